//! The fields of a group's definition, each listed once: its name in an alteration, what it takes, how it is copied,
//! when two definitions differ in it, and what to write if it may not be empty.
//!
//! Rates are decimal RU/s, amounts decimal RU, both text and exact to a millionth; `*_us` is microseconds. An empty
//! text or a zero means the default, so that a short body is a complete definition; but a limit is lifted by name only,
//! because a variable that was never set is empty, too.

use tidegate_core::group::GroupSpec;
use tidegate_core::units::Span;
use tidegate_proto::v1::Group;

/// Value of `parent` without a group above. No group can have this name.
pub const TOP: &str = "/";
/// Value of an amount or a rate that is left open and follows the limit.
pub const DEFAULT: &str = "default";
/// Value of `fallback_total` without a total, and of `quota` without a quota.
pub const NONE: &str = "none";

/// Characters of a comment: a line that still fits a table.
pub const MAX_COMMENT: usize = 256;
/// Characters of an owner: a name, a team and a number.
pub const MAX_OWNER: usize = 200;
/// Shortest renewal period; shorter ones would be traffic without use.
pub(crate) const MIN_RENEW: Span = Span::millis(100);
/// Range of the longest wait for admission: a shorter one is no wait, and nobody waits longer.
pub(crate) const MAX_WAIT_RANGE: (Span, Span) = (Span::millis(1), Span::millis(3_600_000));

/// What a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// The name of a group, or [`TOP`] for none.
    Group,
    /// A positive rate, or one of these words.
    Rate(&'static [&'static str]),
    /// A positive amount, or [`DEFAULT`]; where `zero`, or 0.
    Amount {
        /// Whether it may be 0.
        zero: bool,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number up to this one.
    Number(u32),
    /// A time in this range, in microseconds; 0 is the default.
    Micros(Span, Span),
    /// Free text of up to so many characters.
    Text(usize),
    /// A rule against runaway statements.
    Rule,
    /// An amount per minute, hour, day or month, with a zone unless it is UTC; or [`NONE`].
    Quota,
    /// `token_bucket`, `paced`, or `warm_up` with a period and a cold factor in parentheses.
    Policy,
}

impl Takes {
    /// The word that leaves the field open, where an empty text means the same.
    pub fn open(self) -> Option<&'static str> {
        match self {
            Self::Group => Some(TOP),
            Self::Rate(&[word @ (DEFAULT | NONE)]) => Some(word),
            Self::Amount { .. } => Some(DEFAULT),
            Self::Quota => Some(NONE),
            _ => None,
        }
    }
}

/// A field that can be altered.
pub struct Field {
    /// Its name in the message.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// The same for people, in a line.
    pub about: &'static str,
    /// The text to write if an empty one is not accepted; empty if it is.
    stated: &'static str,
    is_empty: fn(&Group) -> bool,
    take: fn(&mut Group, &Group),
    is_same: fn(&Group, &Group) -> bool,
}

macro_rules! field {
    ($name:ident, $takes:expr, $about:literal) => {
        field!($name, $takes, $about, "", |_| false)
    };
    ($name:ident, $takes:expr, $about:literal, $stated:literal) => {
        field!($name, $takes, $about, $stated, |group| group.$name.trim().is_empty())
    };
    ($name:ident, $takes:expr, $about:literal, $stated:literal, $is_empty:expr) => {
        Field {
            name: stringify!($name),
            takes: $takes,
            about: $about,
            stated: $stated,
            is_empty: $is_empty,
            take: |group, from| group.$name.clone_from(&from.$name),
            is_same: |one, other| one.$name == other.$name,
        }
    };
}

/// The fields, in the order in which people read them.
static FIELDS: &[Field] = &[
    field!(parent, Takes::Group, "the group above, or / for none", "the group above, or \"/\" for none"),
    field!(
        ru_per_sec,
        Takes::Rate(&["unlimited"]),
        "guarantee and, unless burstable, cap: RU/s, or unlimited",
        "a rate such as \"2000 RU/s\", or \"unlimited\""
    ),
    field!(
        burst,
        Takes::Amount { zero: false },
        "bucket depth in RU; default is one second of the limit",
        "an amount such as \"500 RU\", or \"default\" for one second of the limit"
    ),
    field!(
        burstable,
        Takes::Word(&["off", "moderated", "unlimited"]),
        "off, moderated or unlimited",
        "\"off\", \"moderated\" or \"unlimited\""
    ),
    field!(
        burst_ru_per_sec,
        Takes::Rate(&[DEFAULT]),
        "with moderated: the most RU/s; default is twice ru_per_sec",
        "a rate such as \"3000 RU/s\", or \"default\" for twice ru_per_sec"
    ),
    field!(
        priority,
        Takes::Word(&["low", "medium", "high"]),
        "low, medium or high",
        "\"low\", \"medium\" or \"high\""
    ),
    field!(weight, Takes::Number(GroupSpec::MAX_WEIGHT), "1 to 10000"),
    field!(
        ttl_us,
        Takes::Micros(GroupSpec::TTL_RANGE.0, GroupSpec::TTL_RANGE.1),
        "lease length, 500000 to 60000000"
    ),
    field!(
        renew_us,
        Takes::Micros(MIN_RENEW, Span(GroupSpec::TTL_RANGE.1.0 / 2)),
        "renewal period, 100000 to half of ttl_us"
    ),
    field!(
        fallback,
        Takes::Rate(&["stop", "unlimited"]),
        "without a lease: stop, unlimited, or RU/s per node",
        "\"stop\", \"unlimited\", or a rate such as \"100 RU/s\""
    ),
    field!(
        fallback_total,
        Takes::Rate(&[NONE]),
        "without leases, of all nodes together: RU/s, or none",
        "a rate such as \"1000 RU/s\", or \"none\""
    ),
    field!(
        max_debt,
        Takes::Amount { zero: true },
        "RU a node is expected to owe at most; default is 1000",
        "an amount such as \"1000 RU\", or \"default\""
    ),
    field!(comment, Takes::Text(MAX_COMMENT), "up to 256 characters"),
    field!(query_limit, Takes::Rule, "rule against runaway statements, or null for none"),
    field!(
        max_wait_us,
        Takes::Micros(MAX_WAIT_RANGE.0, MAX_WAIT_RANGE.1),
        "longest wait at a gateway, 1000 to 3600000000; 0 is the gateway's own"
    ),
    field!(owner, Takes::Text(MAX_OWNER), "who owns it and whom to call, up to 200 characters"),
    field!(
        enforcement,
        Takes::Word(&["on", "shadow"]),
        "on, or shadow: what would be throttled is counted and admitted",
        "\"on\" or \"shadow\""
    ),
    field!(
        policy,
        Takes::Policy,
        "token_bucket; paced: operations follow each other at the rate; or warm_up(10s, 3): at a rate that warms up",
        "\"token_bucket\", \"paced\" or \"warm_up(10s, 3)\""
    ),
    field!(
        quota,
        Takes::Quota,
        "RU or requests of each window of a calendar, such as 1000000 per day Europe/Berlin or 500 requests per hour; or none",
        "a quota such as \"1000000 per day\" or \"500 requests per hour\", or \"none\""
    ),
    field!(
        demote_to,
        Takes::Group,
        "the group in which operations over the rate or the quota go on, or / for none",
        "a group with a lower priority, or \"/\" for none"
    ),
];

/// The fields that an alteration may name.
pub fn fields() -> &'static [Field] {
    FIELDS
}

/// The field of a name.
pub fn field(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

/// Their names.
pub fn alterable() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

/// `group` with the `mask` fields taken from `from`. The error is the first name that cannot be altered.
pub fn merged<'m>(group: &Group, from: &Group, mask: &'m [String]) -> Result<Group, &'m str> {
    let mut merged = group.clone();
    for name in mask {
        (field(name).ok_or(name.as_str())?.take)(&mut merged, from);
    }
    Ok(merged)
}

/// Sets a field to its default; returns whether there is such a field.
pub fn clear(group: &mut Group, name: &str) -> bool {
    field(name).map(|field| (field.take)(group, &Group::default())).is_some()
}

/// The fields that are empty in `group` and set in `before`, with the text to write instead.
pub fn emptied(group: &Group, before: &Group) -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_emptied = |field: &&Field| (field.is_empty)(group) && !(field.is_empty)(before);
    FIELDS.iter().filter(is_emptied).map(|field| (field.name, field.stated))
}

/// Names of the fields in which two definitions differ; name and revision are not compared.
pub fn differing(one: &Group, other: &Group) -> Vec<&'static str> {
    FIELDS.iter().filter(|field| !(field.is_same)(one, other)).map(|field| field.name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidegate_proto::v1::QueryLimit;

    use super::*;

    fn full() -> Group {
        Group {
            name: "n".into(),
            parent: "a".into(),
            ru_per_sec: "b".into(),
            burst: "c".into(),
            burstable: "d".into(),
            burst_ru_per_sec: "e".into(),
            priority: "f".into(),
            weight: 1,
            ttl_us: 2,
            renew_us: 3,
            fallback: "g".into(),
            fallback_total: "j".into(),
            max_debt: "h".into(),
            comment: "i".into(),
            revision: 4,
            query_limit: Some(QueryLimit::default()),
            max_wait_us: 5,
            owner: "k".into(),
            enforcement: "l".into(),
            policy: "m".into(),
            quota: "o".into(),
            demote_to: "p".into(),
        }
    }

    #[test]
    fn every_field_is_listed() {
        let serde_json::Value::Object(all) = serde_json::to_value(full()).unwrap() else { panic!() };
        let all = all.keys().map(String::as_str).filter(|name| !["name", "revision"].contains(name));
        assert_eq!(alterable().collect::<BTreeSet<_>>(), all.collect());
    }

    #[test]
    fn every_alterable_field_is_merged_and_compared() {
        let other = full();
        let base = Group { name: "n".into(), revision: 4, ..Group::default() };
        for field in alterable() {
            let mut merged = merged(&base, &other, &[field.to_owned()]).unwrap();
            assert_eq!(differing(&merged, &base), [field]);
            assert!(clear(&mut merged, field));
            assert_eq!(merged, base);
        }
        let all: Vec<String> = alterable().map(str::to_owned).collect();
        assert_eq!(merged(&base, &other, &all).unwrap(), other);
        assert_eq!(merged(&base, &other, &["name".to_owned()]), Err("name"));
        assert!(!clear(&mut full(), "name"));
    }

    #[test]
    fn a_field_that_was_set_is_not_emptied_unseen() {
        let texts = FIELDS.iter().filter(|field| !field.stated.is_empty());
        for field in texts {
            for nothing in ["", " "] {
                let from = Group { fallback_total: nothing.into(), ..Group::default() };
                let merged = merged(&full(), &from, &[field.name.to_owned()]).unwrap();
                assert_eq!(emptied(&merged, &full()).next(), Some((field.name, field.stated)), "{nothing:?}");
                assert_eq!(emptied(&merged, &merged).next(), None);
            }
        }
    }

    #[test]
    fn a_definition_from_before_a_field_still_reads() {
        let text: Group = serde_json::from_str(r#"{"name":"a","weight":3}"#).unwrap();
        assert_eq!(text, Group { name: "a".into(), weight: 3, ..Group::default() });
        assert!(!serde_json::to_string(&text).unwrap().contains("query_limit"));
    }

    #[test]
    fn documents_list_every_field() {
        let api = include_str!("../../../docs/admin-api.md");
        let section = api.split("\n## A group\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let listed: BTreeSet<&str> = rows.collect();
        assert_eq!(listed, alterable().chain(["name"]).collect());
        let (_, example) = section.split_once("```json\n").unwrap();
        let example: serde_json::Value = serde_json::from_str(example.split("```").next().unwrap()).unwrap();
        let shown: BTreeSet<&str> = example.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(shown, listed.iter().copied().filter(|name| *name != "query_limit").collect());
        // What a document that leaves it out sets to its default without a word.
        let cli = include_str!("../../../docs/cli.md").replace("\n  ", " ");
        let (before, _) = cli.split_once("silently return to their defaults").unwrap();
        let (_, silent) = before.rsplit_once(". ").unwrap();
        let silent: BTreeSet<&str> = silent.split('`').skip(1).step_by(2).collect();
        assert_eq!(silent, FIELDS.iter().filter(|field| field.stated.is_empty()).map(|f| f.name).collect());
    }
}
