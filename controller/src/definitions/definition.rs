//! A resource group's definition, checked: `v1::Group` in, `Definition` out, and back.
//!
//! An error names the field, its value and its range. Settings that may be left open (burst depth, moderated limit)
//! stay open, so that they follow the rate when it is altered.

use std::sync::Arc;

use tidegate_core::group::{Burstable, Fallback, GroupId, GroupSpec, Policy, Priority};
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span};

use crate::definitions::group_fields::{
    DEFAULT, MAX_COMMENT, MAX_OWNER, MAX_WAIT_RANGE, MIN_RENEW, NONE, TOP,
};
use crate::definitions::policy;
use crate::definitions::quota::Quota;
use crate::error::{AdminError, InField};
use crate::name::GroupName;
use crate::quantity::{amount_text, cut, limit_text, parse_amount, parse_limit, parse_rate, rate_text};
use crate::statements::query_limit::QueryLimit;
use tidegate_proto::v1;

/// Why no group under a quota may use what it likes without a lease.
pub(crate) const UNLIMITED_BESIDE_QUOTA: &str = "\"unlimited\" would let nodes without leases use more than a quota has \
     left; write \"stop\", or RU/s per node such as \"100\", or take the quota away with \"none\"";

/// A checked definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: GroupName,
    /// The group above.
    pub parent: Option<GroupName>,
    /// Guarantee and, unless it may burst, cap.
    pub rate: Option<Rate>,
    /// Bucket depth; `None` is one second of the limit.
    pub burst: Option<Ru>,
    /// Whether the group may use more than `rate`.
    pub burstable: Bursting,
    /// Rank when borrowing.
    pub priority: Priority,
    /// Share when borrowing.
    pub weight: u32,
    /// Lease length.
    pub ttl: Span,
    /// Renewal period.
    pub renew_every: Span,
    /// What a node may admit without a lease.
    pub fallback: Fallback,
    /// Rate that all nodes together may admit without leases, divided among them.
    pub fallback_total: Option<Rate>,
    /// Debt within which a node is expected to stay.
    pub max_debt: Ru,
    /// A comment for people.
    pub comment: Box<str>,
    /// Who owns it, and whom to call.
    pub owner: Box<str>,
    /// Whether its limits are evaluated and not enforced.
    pub shadow: bool,
    /// How operations follow each other.
    pub policy: Policy,
    /// What all nodes together may use in each window of a calendar.
    pub quota: Option<Quota>,
    /// The group in which operations over the rate or the quota go on.
    pub demote_to: Option<GroupName>,
    /// Grows with every change.
    pub revision: u64,
    /// Rule against runaway statements. Shared, because all of them go to gateways at once.
    pub query_limit: Option<Arc<QueryLimit>>,
    /// Longest wait of a statement for admission at a gateway; `None` is the gateway's own.
    pub max_wait: Option<Span>,
}

/// Whether a group may use more than its rate, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bursting {
    /// No.
    Off,
    /// Up to a total rate; `None` is twice the group's own.
    Moderated(Option<Rate>),
    /// All that its ancestors have left.
    Unlimited,
}

impl Definition {
    /// A group of which nothing is said but its name.
    pub fn named(name: GroupName) -> Self {
        let spec = GroupSpec::unlimited();
        Self {
            name,
            parent: None,
            rate: None,
            burst: None,
            burstable: Bursting::Off,
            priority: spec.priority,
            weight: spec.weight,
            ttl: spec.ttl,
            renew_every: spec.renew_every,
            fallback: spec.fallback,
            fallback_total: spec.fallback_total,
            max_debt: spec.max_debt,
            comment: Box::default(),
            owner: Box::default(),
            shadow: spec.shadow,
            policy: spec.policy,
            quota: None,
            demote_to: None,
            revision: 0,
            query_limit: None,
            max_wait: None,
        }
    }

    /// The group of all who are bound to no other, as it is at first start. It has the first revision: to expect
    /// revision 0 of a group is to expect none in particular.
    pub fn default_group() -> Self {
        Self {
            revision: 1,
            fallback: Fallback::Unlimited,
            comment: "everyone who is bound to no other group".into(),
            ..Self::named(GroupName::default_group())
        }
    }

    /// Checks a definition field by field. The catalog checks the rules between groups. Empty texts are defaults, as in
    /// stored rows; [`emptied`](crate::definitions::group_fields::emptied) returns those that a request must not leave
    /// empty.
    pub fn parse(text: &v1::Group) -> Result<Self, AdminError> {
        let defaults = GroupSpec::unlimited();
        let parent = open(&text.parent, TOP, GroupName::parse).in_field("parent")?;
        let rate = open(&text.ru_per_sec, "unlimited", parse_limit).in_field("ru_per_sec")?.flatten();
        let burst = open(&text.burst, DEFAULT, parse_amount).in_field("burst")?;
        if burst.is_some_and(|burst| !burst.is_positive()) {
            return Err(AdminError::invalid("burst", "0 RU is out of range: 0.000001 RU or more"));
        }
        let (ttl, renew_every) = periods(text)?;
        let query_limit = text.query_limit.as_ref().map(QueryLimit::parse).transpose()?;
        let max_debt = open(&text.max_debt, DEFAULT, parse_amount).in_field("max_debt")?;
        let fallback = fallback(&text.fallback)?;
        let quota = quota(text, burst, fallback)?;
        Self {
            name: GroupName::parse(&text.name).in_field("name")?,
            parent,
            rate,
            burst,
            burstable: bursting(text, rate)?,
            priority: priority(&text.priority)?,
            weight: weight(text.weight)?,
            ttl,
            renew_every,
            fallback,
            fallback_total: open(&text.fallback_total, NONE, parse_rate).in_field("fallback_total")?,
            max_debt: max_debt.unwrap_or(defaults.max_debt),
            comment: free_text("comment", &text.comment, MAX_COMMENT)?.into(),
            owner: free_text("owner", &text.owner, MAX_OWNER)?.into(),
            revision: text.revision,
            query_limit: query_limit.map(Arc::new),
            max_wait: max_wait(text.max_wait_us)?,
            shadow: shadow(&text.enforcement)?,
            policy: policy::parse(&text.policy)?,
            quota,
            demote_to: open(&text.demote_to, TOP, GroupName::parse).in_field("demote_to")?,
        }
        .with_curve()
    }

    /// The definition, if its rate can warm up as its policy says.
    fn with_curve(self) -> Result<Self, AdminError> {
        if !matches!(self.policy, Policy::WarmUp { .. }) {
            return Ok(self);
        }
        if self.limit().is_none() {
            let message = "\"warm_up\" needs a limit to warm up to; set ru_per_sec, and burstable \"off\" or \"moderated\", \
                           or policy \"token_bucket\"";
            return Err(AdminError::invalid("policy", message));
        }
        self.spec(None).curve().map_err(|error| AdminError::invalid("policy", error))?;
        Ok(self)
    }

    /// The definition as text, with defaults written out unless they follow the rate.
    pub fn text(&self) -> v1::Group {
        let (burstable, burst_rate) = match self.burstable {
            Bursting::Off => ("off", None),
            Bursting::Moderated(rate) => ("moderated", rate),
            Bursting::Unlimited => ("unlimited", None),
        };
        v1::Group {
            name: self.name.to_string(),
            parent: self.parent.as_ref().map(ToString::to_string).unwrap_or_default(),
            ru_per_sec: limit_text(self.rate),
            burst: self.burst.map(amount_text).unwrap_or_default(),
            burstable: burstable.to_owned(),
            burst_ru_per_sec: burst_rate.map(rate_text).unwrap_or_default(),
            priority: match self.priority {
                Priority::Low => "low",
                Priority::Medium => "medium",
                Priority::High => "high",
            }
            .to_owned(),
            weight: self.weight,
            ttl_us: self.ttl.0,
            renew_us: self.renew_every.0,
            fallback: match self.fallback {
                Fallback::Stop => "stop".to_owned(),
                Fallback::Unlimited => "unlimited".to_owned(),
                Fallback::Rate(rate) | Fallback::Part(rate, _) => rate_text(rate),
            },
            fallback_total: self.fallback_total.map(rate_text).unwrap_or_default(),
            max_debt: amount_text(self.max_debt),
            comment: self.comment.to_string(),
            owner: self.owner.to_string(),
            enforcement: if self.shadow { "shadow" } else { "on" }.to_owned(),
            policy: policy::text(self.policy),
            quota: self.quota.as_ref().map(ToString::to_string).unwrap_or_default(),
            demote_to: self.demote_to.as_ref().map(ToString::to_string).unwrap_or_default(),
            revision: self.revision,
            query_limit: self.query_limit.as_ref().map(|limit| limit.text()),
            max_wait_us: self.max_wait.unwrap_or_default().0,
        }
    }

    /// Whether the definition concerns gateways.
    pub fn rules_gateways(&self) -> bool {
        self.query_limit.is_some() || self.max_wait.is_some()
    }

    /// The group to which its runaway statements are switched.
    pub fn switch_group(&self) -> Option<&GroupName> {
        self.query_limit.as_ref()?.action.switch_group()
    }

    /// Whether both are the same to leases: the core enforces the same, below the same group.
    pub(crate) fn is_enforced_as(&self, other: &Self) -> bool {
        // The core knows amount and unit of a quota, and nothing of its calendar.
        let same_quota = self.quota == other.quota;
        self.parent == other.parent && same_quota && self.spec(None) == other.spec(None)
    }

    /// The part that the core enforces.
    pub fn spec(&self, parent: Option<GroupId>) -> GroupSpec {
        let burstable = match (self.burstable, self.rate) {
            (Bursting::Off, _) => Burstable::Off,
            (Bursting::Moderated(Some(cap)), _) => Burstable::Moderated(cap),
            (Bursting::Moderated(None), Some(rate)) => Burstable::Moderated((rate + rate).min(Rate::MAX)),
            (Bursting::Moderated(None), None) | (Bursting::Unlimited, _) => Burstable::Unlimited,
        };
        GroupSpec {
            parent,
            rate: self.rate,
            burst: self.burst,
            burstable,
            priority: self.priority,
            weight: self.weight,
            ttl: self.ttl,
            renew_every: self.renew_every,
            fallback: self.fallback,
            fallback_total: self.fallback_total,
            max_debt: self.max_debt,
            shadow: self.shadow,
            policy: self.policy,
            quota: self.quota.as_ref().map(|quota| quota.amount),
            quota_unit: self.quota.as_ref().map(|quota| quota.unit).unwrap_or_default(),
        }
    }

    /// The rate that the group and everything below it never exceed; a quota is none.
    pub fn limit(&self) -> Option<Rate> {
        GroupSpec { quota: None, ..self.spec(None) }.limit()
    }
}

/// Reads a field that may be left open: by an empty text, or by name with `word`.
fn open<T, E>(text: &str, word: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Option<T>, E> {
    let said = text.trim();
    if said.is_empty() || said.eq_ignore_ascii_case(word) { Ok(None) } else { parse(text).map(Some) }
}

fn bursting(text: &v1::Group, rate: Option<Rate>) -> Result<Bursting, AdminError> {
    let cap = open(&text.burst_ru_per_sec, DEFAULT, parse_rate).in_field("burst_ru_per_sec")?;
    let kind = text.burstable.to_ascii_lowercase();
    if kind != "moderated" && cap.is_some() {
        let message = format!("{} needs burstable \"moderated\"", cut(&text.burst_ru_per_sec));
        return Err(AdminError::invalid("burst_ru_per_sec", message));
    }
    match (kind.as_str(), rate, cap) {
        ("" | "off", ..) => Ok(Bursting::Off),
        ("unlimited", ..) => Ok(Bursting::Unlimited),
        ("moderated", None, _) => {
            let message = "\"moderated\" needs a limited ru_per_sec to burst above; set one, or \"off\"";
            Err(AdminError::invalid("burstable", message))
        }
        ("moderated", Some(rate), Some(cap)) if cap < rate => {
            let message = format!("{cap} is below ru_per_sec, {rate}; write that or more");
            Err(AdminError::invalid("burst_ru_per_sec", message))
        }
        ("moderated", ..) => Ok(Bursting::Moderated(cap)),
        _ => {
            let message =
                format!("{:?} is none of \"off\", \"moderated\", \"unlimited\"", cut(&text.burstable));
            Err(AdminError::invalid("burstable", message))
        }
    }
}

fn priority(text: &str) -> Result<Priority, AdminError> {
    match text.to_ascii_lowercase().as_str() {
        "low" => Ok(Priority::Low),
        "" | "medium" => Ok(Priority::Medium),
        "high" => Ok(Priority::High),
        _ => {
            let message = format!("{:?} is none of \"low\", \"medium\", \"high\"", cut(text));
            Err(AdminError::invalid("priority", message))
        }
    }
}

fn shadow(text: &str) -> Result<bool, AdminError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "" | "on" => Ok(false),
        "shadow" => Ok(true),
        _ => {
            let message = format!("{:?} is none of \"on\", \"shadow\"", cut(text));
            Err(AdminError::invalid("enforcement", message))
        }
    }
}

/// The quota, where nothing beside it makes it void.
fn quota(text: &v1::Group, burst: Option<Ru>, fallback: Fallback) -> Result<Option<Quota>, AdminError> {
    let quota = open(&text.quota, NONE, Quota::parse).map_err(|error| AdminError::invalid("quota", error))?;
    let Some(quota) = quota else { return Ok(None) };
    if fallback == Fallback::Unlimited {
        return Err(AdminError::invalid("fallback", UNLIMITED_BESIDE_QUOTA));
    }
    if let Some(burst) = burst.filter(|burst| quota.unit == Unit::Ru && *burst > quota.amount) {
        let message = format!(
            "{burst} is above the quota, {}: no operation can be as large; write {} or less, or \"default\"",
            quota.amount, quota.amount
        );
        return Err(AdminError::invalid("burst", message));
    }
    Ok(Some(quota))
}

fn weight(weight: u32) -> Result<u32, AdminError> {
    match weight {
        0 => Ok(1),
        1..=GroupSpec::MAX_WEIGHT => Ok(weight),
        _ => {
            let message = format!("{weight} is out of range: 1 to {}", GroupSpec::MAX_WEIGHT);
            Err(AdminError::invalid("weight", message))
        }
    }
}

fn fallback(text: &str) -> Result<Fallback, AdminError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "" | "stop" => Ok(Fallback::Stop),
        "unlimited" => Ok(Fallback::Unlimited),
        _ => parse_rate(text).map(Fallback::Rate).map_err(|error| {
            AdminError::invalid("fallback", format!("{error}; or write \"stop\" or \"unlimited\""))
        }),
    }
}

/// Lease length and renewal period.
fn periods(text: &v1::Group) -> Result<(Span, Span), AdminError> {
    let defaults = GroupSpec::unlimited();
    let (shortest, longest) = GroupSpec::TTL_RANGE;
    let ttl = if text.ttl_us == 0 { defaults.ttl } else { Span(text.ttl_us) };
    if ttl < shortest || longest < ttl {
        let message = out_of_range(ttl, shortest, longest);
        return Err(AdminError::invalid("ttl_us", message));
    }
    let most = Span(ttl.0 / 2);
    let renew =
        if text.renew_us == 0 { defaults.renew_every.min(Span(ttl.0 / 5)) } else { Span(text.renew_us) };
    if renew < MIN_RENEW || most < renew {
        let message = format!("{}, which is half of ttl_us", out_of_range(renew, MIN_RENEW, most));
        return Err(AdminError::invalid("renew_us", message));
    }
    Ok((ttl, renew))
}

/// The error for people, and in the microseconds of the API.
fn out_of_range(span: Span, least: Span, most: Span) -> String {
    format!("{span} is out of range: {least} to {most} ({} is not in {} to {} us)", span.0, least.0, most.0)
}

fn max_wait(us: u64) -> Result<Option<Span>, AdminError> {
    let (shortest, longest) = MAX_WAIT_RANGE;
    match Span(us) {
        Span(0) => Ok(None),
        span if span < shortest || longest < span => {
            let message = out_of_range(span, shortest, longest);
            Err(AdminError::invalid("max_wait_us", message))
        }
        span => Ok(Some(span)),
    }
}

fn free_text<'t>(field: &str, text: &'t str, most: usize) -> Result<&'t str, AdminError> {
    let length = text.chars().count();
    if length > most {
        return Err(AdminError::invalid(field, format!("{length} characters are too many: at most {most}")));
    }
    if text.chars().any(char::is_control) {
        return Err(AdminError::invalid(field, "holds a control character; write plain text on one line"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> v1::Group {
        v1::Group { name: name.to_owned(), ..v1::Group::default() }
    }

    #[test]
    fn a_name_alone_is_a_definition() {
        let definition = Definition::parse(&named("a")).unwrap();
        assert_eq!(definition.spec(None), GroupSpec::unlimited());
        assert_eq!(Definition::parse(&definition.text()).unwrap(), definition);
    }

    /// An operation may be as large as the burst, and needs as much of a quota of RU; it is one of a quota of requests.
    #[test]
    fn a_burst_is_within_a_quota_of_ru_and_beside_one_of_requests() {
        for (quota, burst, fits) in [
            ("5 per day", "5", true),
            ("5 per day", "5.000001", false),
            ("5 requests per day", "5.000001", true),
            ("1 request per rolling hour", "1000", true),
        ] {
            let text = v1::Group { quota: quota.into(), burst: burst.into(), ..named("a") };
            let refused = Definition::parse(&text).err().map(|error| error.field().map(ToOwned::to_owned));
            assert_eq!(refused, (!fits).then(|| Some("burst".to_owned())), "{quota}, {burst}");
        }
    }

    #[test]
    fn the_text_round_trips() {
        let text = v1::Group {
            parent: "top".into(),
            ru_per_sec: "100.5".into(),
            burst: "30".into(),
            burstable: "moderated".into(),
            burst_ru_per_sec: "150".into(),
            priority: "high".into(),
            weight: 3,
            ttl_us: 2_000_000,
            renew_us: 500_000,
            fallback: "7".into(),
            fallback_total: "70.5".into(),
            max_debt: "0".into(),
            comment: "ä comment".into(),
            owner: "ä".repeat(200),
            revision: 9,
            query_limit: Some(v1::QueryLimit { rows: 7, action: "kill".into(), ..v1::QueryLimit::default() }),
            max_wait_us: 3_000_000,
            enforcement: "shadow".into(),
            policy: "paced".into(),
            quota: "1000.5 per month Europe/Berlin".into(),
            ..named("a")
        };
        assert_eq!(Definition::parse(&text).unwrap().text(), text);
        let default = Definition::default_group();
        assert_eq!(Definition::parse(&default.text()).unwrap(), default);
    }

    #[test]
    fn what_is_left_open_can_be_said_by_name() {
        let text = v1::Group {
            parent: "/".into(),
            ru_per_sec: "Unlimited".into(),
            burst: "default".into(),
            burst_ru_per_sec: " Default ".into(),
            fallback_total: "none".into(),
            max_debt: "default".into(),
            quota: "None".into(),
            ..named("a")
        };
        assert_eq!(Definition::parse(&text).unwrap(), Definition::parse(&named("a")).unwrap());
    }

    fn warms(rate: &str, burstable: &str, policy: &str) -> v1::Group {
        let (ru_per_sec, burstable) = (rate.to_owned(), burstable.to_owned());
        v1::Group { ru_per_sec, burstable, policy: policy.to_owned(), ..named("a") }
    }

    #[test]
    fn a_rate_that_warms_up_has_a_limit_and_a_curve() {
        for (burstable, limit) in [("off", 100), ("moderated", 200)] {
            let definition = Definition::parse(&warms("100", burstable, "Warm_up(20s)")).unwrap();
            assert_eq!(definition.text().policy, "warm_up(20s, 3)");
            assert_eq!(Definition::parse(&definition.text()).unwrap(), definition);
            let most = definition.spec(None).curve().unwrap().unwrap().most();
            assert_eq!(most, Ru::whole(limit * 20), "it warms up to what it may use");
        }
        let quota = v1::Group { quota: "5 per day".into(), ..warms("unlimited", "off", "warm_up") };
        let error = Definition::parse(&quota).unwrap_err().to_string();
        assert!(error.contains("needs a limit to warm up to"), "{error}");
    }

    #[test]
    fn an_open_moderated_limit_follows_the_rate() {
        let text = v1::Group { ru_per_sec: "10".into(), burstable: "moderated".into(), ..named("a") };
        let spec = Definition::parse(&text).unwrap().spec(None);
        assert_eq!(spec.burstable, Burstable::Moderated(Rate::whole(20)));
    }

    #[test]
    fn bad_fields_are_refused_by_name() {
        let base = named("a");
        let table: Vec<(&str, v1::Group)> = vec![
            ("name", named("a b")),
            ("parent", v1::Group { parent: "//".into(), ..base.clone() }),
            ("ru_per_sec", v1::Group { ru_per_sec: "0".into(), ..base.clone() }),
            ("ru_per_sec", v1::Group { ru_per_sec: "NaN".into(), ..base.clone() }),
            ("ru_per_sec", v1::Group { ru_per_sec: "-5".into(), ..base.clone() }),
            ("burst", v1::Group { burst: "0".into(), ..base.clone() }),
            ("burstable", v1::Group { burstable: "yes".into(), ..base.clone() }),
            ("burstable", v1::Group { burstable: "moderated".into(), ..base.clone() }),
            ("burst_ru_per_sec", v1::Group { burst_ru_per_sec: "5".into(), ..base.clone() }),
            (
                "burst_ru_per_sec",
                v1::Group {
                    ru_per_sec: "5".into(),
                    burstable: "moderated".into(),
                    burst_ru_per_sec: "4".into(),
                    ..base.clone()
                },
            ),
            ("priority", v1::Group { priority: "urgent".into(), ..base.clone() }),
            ("weight", v1::Group { weight: 10_001, ..base.clone() }),
            ("ttl_us", v1::Group { ttl_us: 1, ..base.clone() }),
            ("ttl_us", v1::Group { ttl_us: u64::MAX, ..base.clone() }),
            ("renew_us", v1::Group { renew_us: 1, ..base.clone() }),
            ("renew_us", v1::Group { renew_us: 2_500_001, ..base.clone() }),
            ("fallback", v1::Group { fallback: "go".into(), ..base.clone() }),
            ("fallback_total", v1::Group { fallback_total: "0".into(), ..base.clone() }),
            ("fallback_total", v1::Group { fallback_total: "unlimited".into(), ..base.clone() }),
            ("fallback_total", v1::Group { fallback_total: "1000000001".into(), ..base.clone() }),
            ("max_debt", v1::Group { max_debt: "-1".into(), ..base.clone() }),
            ("max_wait_us", v1::Group { max_wait_us: 999, ..base.clone() }),
            ("max_wait_us", v1::Group { max_wait_us: 3_600_000_001, ..base.clone() }),
            ("enforcement", v1::Group { enforcement: "off".into(), ..base.clone() }),
            ("policy", v1::Group { policy: "leaky".into(), ..base.clone() }),
            ("policy", v1::Group { policy: "warm_up".into(), ..base.clone() }),
            ("policy", warms("10", "unlimited", "warm_up")),
            ("policy", warms("unlimited", "off", "warm_up")),
            ("policy", warms("10", "off", "warm_up(10s, 1)")),
            ("policy", warms("1000000", "off", "warm_up(1h, 3)")),
            ("quota", v1::Group { quota: "0 per day".into(), ..base.clone() }),
            ("quota", v1::Group { quota: "5 per week".into(), ..base.clone() }),
            ("quota", v1::Group { quota: "5 per day Berlin".into(), ..base.clone() }),
            ("quota", v1::Group { quota: "unlimited".into(), ..base.clone() }),
            (
                "fallback",
                v1::Group { quota: "5 per day".into(), fallback: "unlimited".into(), ..base.clone() },
            ),
            ("burst", v1::Group { quota: "5 per day".into(), burst: "5.000001".into(), ..base.clone() }),
            ("comment", v1::Group { comment: "x".repeat(257), ..base.clone() }),
            ("comment", v1::Group { comment: "a\nb".into(), ..base.clone() }),
            ("owner", v1::Group { owner: "ä".repeat(201), ..base.clone() }),
            ("owner", v1::Group { owner: "a\u{85}b".into(), ..base.clone() }),
            ("query_limit", v1::Group { query_limit: Some(v1::QueryLimit::default()), ..base }),
        ];
        for (field, text) in table {
            assert_eq!(Definition::parse(&text).unwrap_err().field(), Some(field), "{text:?}");
        }
    }
}
