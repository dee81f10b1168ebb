//! Words of scripts and plans: definitions, loads, amounts and times as text, read and written.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidegate_core::group::{Burstable, Fallback, GroupId, GroupSpec, Policy, Priority};
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::load::{Load, Pattern};
use super::settling::Settling;

/// `key=value` words of a line; a bare word is its own value.
pub(super) struct Words<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Words<'a> {
    /// The words of a line that is split already.
    pub(super) fn new(words: impl Iterator<Item = &'a str>) -> Self {
        Self(words.map(|word| word.split_once('=').unwrap_or((word, word))).collect())
    }

    /// The value of a word, or the default where the line does not have it.
    pub(super) fn get<T>(
        &self,
        key: &str,
        default: T,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        match self.0.get(key) {
            None => Ok(default),
            Some(value) => parse(value).ok_or_else(|| format!("{key}={value} cannot be read")),
        }
    }

    /// Whether the line has a word.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

pub(super) fn milli(text: &str) -> Result<u64, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part = format!("{part:0<3}");
    Ok(number(whole).ok_or("a decimal?")? * 1_000
        + number(part.get(..3).unwrap_or("0")).ok_or("a decimal?")?)
}

pub(super) fn group_id(text: &str) -> Result<GroupId, String> {
    text.parse().map(GroupId).map_err(|_| format!("`{text}` is not a group number"))
}

pub(super) fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

pub(super) fn span(text: &str) -> Option<Span> {
    let unit = text.find(|c: char| c.is_alphabetic())?;
    let (amount, unit) = text.split_at(unit);
    let amount: u64 = amount.parse().ok()?;
    match unit {
        "us" => Some(Span(amount)),
        "ms" => Some(Span::millis(amount)),
        "s" => Some(Span::secs(amount)),
        _ => None,
    }
}

pub(super) fn range<T: Copy>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<(T, T)> {
    match text.split_once("..") {
        Some((low, high)) => Some((parse(low)?, parse(high)?)),
        None => parse(text).map(|value| (value, value)),
    }
}

/// A decimal number of RU, to the micro-RU.
pub(super) fn micro(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part = format!("{part:0<6}");
    Some(whole.parse::<i64>().ok()? * 1_000_000 + part.get(..6)?.parse::<i64>().ok()?)
}

pub(super) fn spec(mut spec: GroupSpec, words: &Words<'_>) -> Result<GroupSpec, String> {
    spec.rate = words.get("rate", spec.rate, |text| {
        if text == "unlimited" { Some(None) } else { micro(text).map(|rate| Some(Rate(rate))) }
    })?;
    spec.burst = words.get("burst", spec.burst, |text| match text {
        "default" => Some(None),
        _ => micro(text).map(|burst| Some(Ru(burst))),
    })?;
    spec.parent = words.get("parent", spec.parent, |text| match text {
        "top" => Some(None),
        _ => group_id(text).ok().map(Some),
    })?;
    spec.burstable = words.get("burstable", spec.burstable, |text| match text.split_once(':') {
        Some(("moderated", cap)) => micro(cap).map(|cap| Burstable::Moderated(Rate(cap))),
        _ if text == "unlimited" => Some(Burstable::Unlimited),
        _ if text == "off" => Some(Burstable::Off),
        _ => None,
    })?;
    spec.priority = words.get("priority", spec.priority, |text| match text {
        "low" => Some(Priority::Low),
        "medium" => Some(Priority::Medium),
        "high" => Some(Priority::High),
        _ => None,
    })?;
    spec.weight = words.get("weight", spec.weight, |text| text.parse().ok())?;
    spec.ttl = words.get("ttl", spec.ttl, span)?;
    spec.max_debt = words.get("debt", spec.max_debt, |text| micro(text).map(Ru))?;
    spec.fallback = words.get("fallback", spec.fallback, |text| match text {
        "unlimited" => Some(Fallback::Unlimited),
        "stop" => Some(Fallback::Stop),
        rate => micro(rate).map(|rate| Fallback::Rate(Rate(rate))),
    })?;
    spec.shadow = words.get("enforcement", spec.shadow, |text| match text {
        "on" => Some(false),
        "shadow" => Some(true),
        _ => None,
    })?;
    spec.policy = words.get("policy", spec.policy, |text| match text {
        "token_bucket" => Some(Policy::TokenBucket),
        "paced" => Some(Policy::Paced),
        _ => warm_up(text),
    })?;
    let total =
        |text: &str| if text == "none" { Some(None) } else { micro(text).map(|rate| Some(Rate(rate))) };
    spec.quota = words.get("quota", spec.quota, |text| match text {
        "none" => Some(None),
        amount => micro(amount).map(|amount| Some(Ru(amount))),
    })?;
    spec.quota_unit = words.get("unit", spec.quota_unit, |text| match text {
        "RU" => Some(Unit::Ru),
        "requests" => Some(Unit::Requests),
        _ => None,
    })?;
    spec.fallback_total = words.get("total", spec.fallback_total, total)?;
    Ok(spec)
}

fn show_quota(amount: Ru, unit: Unit) -> String {
    let unit = if unit == Unit::Ru { "" } else { " unit=requests" };
    format!(" quota={}{unit}", show_micro(amount.0))
}

/// `warm_up:10s:3`.
fn warm_up(text: &str) -> Option<Policy> {
    let (period, factor) = text.strip_prefix("warm_up:")?.split_once(':')?;
    Some(Policy::WarmUp { period: span(period)?, factor: factor.parse().ok()? })
}

fn show_policy(policy: Policy) -> String {
    match policy {
        Policy::TokenBucket => String::new(),
        Policy::Paced => " policy=paced".to_owned(),
        Policy::WarmUp { period, factor } => format!(" policy=warm_up:{}us:{factor}", period.0),
    }
}

pub(super) fn load(name: &str, words: &Words<'_>, now: Time) -> Result<Load, String> {
    let closed = words.get("closed", 0, number)?;
    let open = words.get("open", 0, number)?;
    let later = |text: &str| span(text).map(|span| now.after(span));
    Ok(Load {
        label: name.to_owned(),
        nodes: words.get("nodes", (0, 0), |text| range(text, |t| t.parse().ok()))?,
        group: words.get("group", GroupId(2), |text| group_id(text).ok())?,
        pattern: if closed > 0 { Pattern::Closed(closed) } else { Pattern::Open(open) },
        cost: words.get("cost", (1, 9), |text| range(text, number))?,
        settle_tenths: words.get("settle", 10, number)?,
        max_wait: words.get("wait", Span::secs(2), span)?,
        from: words.get("from", now, later)?,
        until: words.get("until", Time(u64::MAX), later)?,
        turns: words.get("turns", Span(0), span)?,
        odd: words.has("odd"),
        moves: words.get("moves", Span(0), span)?,
        settling: Settling::read(words)?,
    })
}

/// An amount as `micro` reads it.
pub(super) fn show_micro(amount: i64) -> String {
    format!("{}.{:06}", amount / 1_000_000, amount % 1_000_000)
}

/// The words that `spec` reads a definition from, whatever it is compared with.
pub(super) fn show_spec(spec: &GroupSpec) -> String {
    let amount = |amount: Option<i64>, none: &str| amount.map_or_else(|| none.to_owned(), show_micro);
    format!(
        "rate={} burst={} parent={} burstable={} priority={} weight={} ttl={}us fallback={} total={} debt={} enforcement={}{}{}",
        amount(spec.rate.map(|rate| rate.0), "unlimited"),
        amount(spec.burst.map(|burst| burst.0), "default"),
        spec.parent.map_or_else(|| "top".to_owned(), |GroupId(parent)| parent.to_string()),
        match spec.burstable {
            Burstable::Off => "off".to_owned(),
            Burstable::Moderated(rate) => format!("moderated:{}", show_micro(rate.0)),
            Burstable::Unlimited => "unlimited".to_owned(),
        },
        match spec.priority {
            Priority::Low => "low",
            Priority::Medium => "medium",
            Priority::High => "high",
        },
        spec.weight,
        spec.ttl.0,
        match spec.fallback {
            Fallback::Stop => "stop".to_owned(),
            Fallback::Rate(rate) | Fallback::Part(rate, _) => show_micro(rate.0),
            Fallback::Unlimited => "unlimited".to_owned(),
        },
        amount(spec.fallback_total.map(|total| total.0), "none"),
        show_micro(spec.max_debt.0),
        if spec.shadow { "shadow" } else { "on" },
        show_policy(spec.policy),
        spec.quota.map(|quota| show_quota(quota, spec.quota_unit)).unwrap_or_default(),
    )
}

/// The words that `load` reads a load from, at the beginning of a world.
pub(super) fn show_load(load: &Load) -> String {
    let mut text = format!("{} group={} nodes={}..{}", load.label, load.group.0, load.nodes.0, load.nodes.1);
    let _ = match load.pattern {
        Pattern::Open(rate) => write!(text, " open={rate}"),
        Pattern::Closed(workers) => write!(text, " closed={workers}"),
    };
    let (low, high) = load.cost;
    let _ = write!(text, " cost={low}..{high} wait={}us settle={}", load.max_wait.0, load.settle_tenths);
    let _ = write!(text, " from={}us turns={}us moves={}us", load.from.0, load.turns.0, load.moves.0);
    if load.until != Time(u64::MAX) {
        let _ = write!(text, " until={}us", load.until.0);
    }
    if load.odd {
        text.push_str(" odd");
    }
    let _ = write!(text, "{}", load.settling);
    text
}
