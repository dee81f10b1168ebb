//! The rule that makes a statement of a group a runaway, and the action on it: `v1::QueryLimit` in, `QueryLimit` out,
//! and back.
//!
//! Limits apply to elapsed time (microseconds), RU charged (decimal text) and rows; an empty text or a zero is no
//! limit. At least one is set. An error names the field, its value and its range. The catalog checks that the group to
//! switch to exists. *Source:* TiDB's `QUERY_LIMIT`, whose `PROCESSED_KEYS` corresponds to rows sent.

use tidegate_core::units::{Ru, Span};

use crate::error::{AdminError, InField};
use crate::limits::{MAX_ROWS_LIMIT, WATCH_RANGE};
use crate::name::GroupName;
use crate::quantity::{amount_text, cut, parse_amount};
use tidegate_proto::v1;

/// Range of the time limit: below it a gateway cannot check often enough, and no statement runs longer.
const EXEC_RANGE: (Span, Span) = (Span::millis(10), Span::secs(30 * 24 * 3_600));

/// A checked rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryLimit {
    /// Time since admission.
    pub exec_elapsed: Option<Span>,
    /// RU charged so far.
    pub ru: Option<Ru>,
    /// Rows sent to the client.
    pub rows: Option<u64>,
    /// The action on a runaway.
    pub action: Action,
    /// How to recognise later statements, and for how long; `None` is for ever.
    pub watch: Option<(Matching, Option<Span>)>,
}

/// The action on a runaway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The gateway only records it.
    DryRun,
    /// The gateway slows it down.
    Cooldown,
    /// The gateway ends it.
    Kill,
    /// The gateway charges it to this group from then on.
    SwitchGroup(GroupName),
}

/// The way to recognise a watched statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matching {
    /// By its text.
    Exact,
    /// By its template.
    Similar,
}

impl QueryLimit {
    /// Checks a rule field by field.
    pub fn parse(text: &v1::QueryLimit) -> Result<Self, AdminError> {
        let (shortest, longest) = EXEC_RANGE;
        let exec_elapsed = (text.exec_elapsed_us != 0).then_some(Span(text.exec_elapsed_us));
        if exec_elapsed.is_some_and(|span| span < shortest || longest < span) {
            return Err(out_of_range("query_limit.exec_elapsed_us", text.exec_elapsed_us, shortest, longest));
        }
        let ru = if text.ru.trim().is_empty() { None } else { Some(parse_amount(&text.ru)) };
        let ru = ru.transpose().in_field("query_limit.ru")?;
        if ru.is_some_and(|ru| !ru.is_positive()) {
            let message = "0 RU is out of range: 0.000001 RU or more; leave it empty for no limit";
            return Err(AdminError::invalid("query_limit.ru", message));
        }
        let rows = (text.rows != 0).then_some(text.rows);
        if rows.is_some_and(|rows| rows > MAX_ROWS_LIMIT) {
            let message = format!("{} is out of range: 1 to {MAX_ROWS_LIMIT}, or 0 for no limit", text.rows);
            return Err(AdminError::invalid("query_limit.rows", message));
        }
        if exec_elapsed.is_none() && ru.is_none() && rows.is_none() {
            let message = "sets no limit; set exec_elapsed_us, ru or rows, or leave query_limit out";
            return Err(AdminError::invalid("query_limit", message));
        }
        let action = Action::parse("query_limit.", &text.action, &text.switch_group)?;
        let action = action.ok_or_else(|| {
            let message = format!("is missing; write one of {ACTIONS}");
            AdminError::invalid("query_limit.action", message)
        })?;
        Ok(Self { exec_elapsed, ru, rows, action, watch: watch(text)? })
    }

    /// The rule as text.
    pub fn text(&self) -> v1::QueryLimit {
        let (watch, span) = self.watch.unzip();
        v1::QueryLimit {
            exec_elapsed_us: self.exec_elapsed.unwrap_or_default().0,
            ru: self.ru.map(amount_text).unwrap_or_default(),
            rows: self.rows.unwrap_or_default(),
            action: self.action.as_str().to_owned(),
            switch_group: self.action.switch_group().map(ToString::to_string).unwrap_or_default(),
            watch: watch.map(Matching::as_str).unwrap_or_default().to_owned(),
            watch_us: span.flatten().unwrap_or_default().0,
        }
    }
}

const ACTIONS: &str = "\"dryrun\", \"cooldown\", \"kill\", \"switch_group\"";

impl Action {
    /// The names of all actions.
    pub const NAMES: [&'static str; 4] = ["dryrun", "cooldown", "kill", "switch_group"];

    /// Reads an action from its two fields, whose names begin with `prefix`. `None` when both are empty.
    pub fn parse(prefix: &str, action: &str, switch_group: &str) -> Result<Option<Self>, AdminError> {
        let (field, group_field) = (format!("{prefix}action"), format!("{prefix}switch_group"));
        let action = match action.to_ascii_lowercase().as_str() {
            "" => None,
            "dryrun" => Some(Self::DryRun),
            "cooldown" => Some(Self::Cooldown),
            "kill" => Some(Self::Kill),
            "switch_group" if switch_group.is_empty() => {
                let message = "is missing; action \"switch_group\" needs the group to switch to";
                return Err(AdminError::invalid(group_field, message));
            }
            "switch_group" => {
                return Ok(Some(Self::SwitchGroup(GroupName::parse(switch_group).in_field(&group_field)?)));
            }
            _ => {
                let message = format!("{:?} is none of {ACTIONS}", cut(action));
                return Err(AdminError::invalid(field, message));
            }
        };
        if !switch_group.is_empty() {
            let message = format!("{:?} needs action \"switch_group\"; leave it empty", cut(switch_group));
            return Err(AdminError::invalid(group_field, message));
        }
        Ok(action)
    }

    /// The spelling of the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::DryRun => "dryrun",
            Self::Cooldown => "cooldown",
            Self::Kill => "kill",
            Self::SwitchGroup(_) => "switch_group",
        }
    }

    /// The group it switches to.
    pub fn switch_group(&self) -> Option<&GroupName> {
        match self {
            Self::SwitchGroup(group) => Some(group),
            _ => None,
        }
    }
}

impl Matching {
    /// Reads the name in `field`; `None` when it is empty.
    pub fn parse(field: &str, text: &str) -> Result<Option<Self>, AdminError> {
        match text.to_ascii_lowercase().as_str() {
            "" => Ok(None),
            "exact" => Ok(Some(Self::Exact)),
            "similar" => Ok(Some(Self::Similar)),
            _ => {
                let message = format!("{:?} is none of \"exact\", \"similar\"", cut(text));
                Err(AdminError::invalid(field, message))
            }
        }
    }

    /// The spelling of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Similar => "similar",
        }
    }
}

fn watch(text: &v1::QueryLimit) -> Result<Option<(Matching, Option<Span>)>, AdminError> {
    let matching = Matching::parse("query_limit.watch", &text.watch)?;
    let span = (text.watch_us != 0).then_some(Span(text.watch_us));
    let (shortest, longest) = WATCH_RANGE;
    match (matching, span) {
        (None, Some(_)) => {
            let message =
                format!("{} needs watch \"exact\" or \"similar\"; set one, or write 0", text.watch_us);
            Err(AdminError::invalid("query_limit.watch_us", message))
        }
        (Some(_), Some(span)) if span < shortest || longest < span => {
            Err(out_of_range("query_limit.watch_us", text.watch_us, shortest, longest))
        }
        _ => Ok(matching.map(|matching| (matching, span))),
    }
}

fn out_of_range(field: &str, us: u64, shortest: Span, longest: Span) -> AdminError {
    let message = format!("{us} ({}) is out of range: {} to {}", Span(us), shortest.0, longest.0);
    AdminError::invalid(field, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill() -> v1::QueryLimit {
        v1::QueryLimit { rows: 5, action: "kill".into(), ..v1::QueryLimit::default() }
    }

    #[test]
    fn the_text_round_trips() {
        let full = v1::QueryLimit {
            exec_elapsed_us: 60_000_000,
            ru: "1000.5".into(),
            rows: 50_000,
            action: "switch_group".into(),
            switch_group: "slow".into(),
            watch: "similar".into(),
            watch_us: 600_000_000,
        };
        for text in [full, kill(), v1::QueryLimit { watch: "exact".into(), ..kill() }] {
            assert_eq!(QueryLimit::parse(&text).unwrap().text(), text);
        }
    }

    #[test]
    fn limits_hold_with_both_ends_of_their_ranges_and_each_alone() {
        let exec = |exec_elapsed_us| v1::QueryLimit { exec_elapsed_us, rows: 0, ..kill() };
        let watch = |watch_us| v1::QueryLimit { watch: "similar".into(), watch_us, ..kill() };
        for text in [
            exec(10_000),
            exec(2_592_000_000_000),
            v1::QueryLimit { ru: "0.000001".into(), rows: 0, ..kill() },
            v1::QueryLimit { rows: 1, ..kill() },
            v1::QueryLimit { rows: MAX_ROWS_LIMIT, ..kill() },
            watch(1_000),
            watch(WATCH_RANGE.1.0),
        ] {
            assert_eq!(QueryLimit::parse(&text).unwrap().text(), text);
        }
    }

    #[test]
    fn each_action_has_a_name_and_one_without_its_group_asks_for_it() {
        for name in Action::NAMES {
            let group = if name == "switch_group" { "slow" } else { "" };
            assert_eq!(Action::parse("", name, group).unwrap().unwrap().as_str(), name);
        }
        let missing = Action::parse("", "switch_group", "").unwrap_err().to_string();
        assert!(missing.contains("needs the group to switch to"), "{missing}");
    }

    #[test]
    fn bad_fields_are_refused_by_name() {
        let table: Vec<(&str, v1::QueryLimit)> = vec![
            ("query_limit", v1::QueryLimit::default()),
            ("query_limit", v1::QueryLimit { rows: 0, ..kill() }),
            ("query_limit.exec_elapsed_us", v1::QueryLimit { exec_elapsed_us: 9_999, ..kill() }),
            ("query_limit.exec_elapsed_us", v1::QueryLimit { exec_elapsed_us: 2_592_000_000_001, ..kill() }),
            ("query_limit.ru", v1::QueryLimit { ru: "0".into(), ..kill() }),
            ("query_limit.ru", v1::QueryLimit { ru: "-1".into(), ..kill() }),
            ("query_limit.ru", v1::QueryLimit { ru: "much".into(), ..kill() }),
            ("query_limit.rows", v1::QueryLimit { rows: u64::MAX, ..kill() }),
            ("query_limit.action", v1::QueryLimit { action: String::new(), ..kill() }),
            ("query_limit.action", v1::QueryLimit { action: "shoot".into(), ..kill() }),
            ("query_limit.switch_group", v1::QueryLimit { switch_group: "a".into(), ..kill() }),
            ("query_limit.switch_group", v1::QueryLimit { action: "switch_group".into(), ..kill() }),
            (
                "query_limit.switch_group",
                v1::QueryLimit { action: "switch_group".into(), switch_group: "a b".into(), ..kill() },
            ),
            ("query_limit.watch", v1::QueryLimit { watch: "alike".into(), ..kill() }),
            ("query_limit.watch_us", v1::QueryLimit { watch_us: 5_000, ..kill() }),
            ("query_limit.watch_us", v1::QueryLimit { watch: "exact".into(), watch_us: 999, ..kill() }),
            ("query_limit.watch_us", v1::QueryLimit { watch: "exact".into(), watch_us: u64::MAX, ..kill() }),
        ];
        for (field, text) in table {
            assert_eq!(QueryLimit::parse(&text).unwrap_err().field(), Some(field), "{text:?}");
        }
    }
}
