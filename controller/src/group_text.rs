//! A group definition as text: the shape of REST bodies, of stored rows and of the audit log.
//!
//! Rates are decimal RU/s, amounts decimal RU, both text and exact to a millionth; `*_us` is microseconds. An empty
//! text or a zero is "the default", so that a short body is a complete definition; but a limit is lifted by name only,
//! because a variable that was never set is empty, too. Field names equal those of `tidegate.v1.Group`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::query_limit::QueryLimitText;

/// As `parent`: no group above. No name of a group can be that.
pub const TOP: &str = "/";
/// As an amount or a rate that follows the limit when it is left open.
pub const DEFAULT: &str = "default";
/// As `fallback_total`: none.
pub const NONE: &str = "none";

/// What to write where nothing is not enough.
const STATED: [(&str, &str); 9] = [
    ("parent", "the group above, or \"/\" for none"),
    ("ru_per_sec", "a rate such as \"2000 RU/s\", or \"unlimited\""),
    ("burst", "an amount such as \"500 RU\", or \"default\" for one second of the limit"),
    ("burstable", "\"off\", \"moderated\" or \"unlimited\""),
    ("burst_ru_per_sec", "a rate such as \"3000 RU/s\", or \"default\" for twice ru_per_sec"),
    ("priority", "\"low\", \"medium\" or \"high\""),
    ("fallback", "\"stop\", \"unlimited\", or a rate such as \"100 RU/s\""),
    ("fallback_total", "a rate such as \"1000 RU/s\", or \"none\""),
    ("max_debt", "an amount such as \"1000 RU\", or \"default\""),
];

/// The definition of a resource group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Group)]
pub struct GroupText {
    /// 1 to 64 characters of `[a-z0-9._-]`, starting with a letter or a digit; upper case is folded.
    pub name: String,
    /// Name of the group above, or "/" for none. Empty is none in a new group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent: String,
    /// Guarantee in RU/s and, unless burstable, cap; or "unlimited". Required in a new group.
    pub ru_per_sec: String,
    /// Bucket depth in RU. "default", or empty in a new group, is one second of the limit.
    pub burst: String,
    /// "off", "moderated" or "unlimited". Empty is "off".
    pub burstable: String,
    /// With burstable "moderated": the most RU/s the group may use. "default", or empty in a new group, is twice
    /// `ru_per_sec`.
    pub burst_ru_per_sec: String,
    /// "low", "medium" or "high". Empty is "medium".
    pub priority: String,
    /// 1 to 10000. 0 is 1.
    pub weight: u32,
    /// Lease length, 500000 to 60000000. 0 is 5 s.
    pub ttl_us: u64,
    /// Renewal period, 100000 to half of `ttl_us`. 0 is 1 s, or less for short leases.
    pub renew_us: u64,
    /// Without a lease, cut off or while the controller recovers: "stop", "unlimited", or RU/s per node. Empty is "stop".
    pub fallback: String,
    /// RU/s that all nodes together may use without leases; each is told its part, at most `fallback` where that is a
    /// rate. "none", or empty in a new group, is none: `fallback` applies to every node.
    pub fallback_total: String,
    /// Debt in RU a node is expected to stay within. Empty is 1000.
    pub max_debt: String,
    /// Free text, up to 256 characters.
    pub comment: String,
    /// Set by the controller; ignored in requests.
    pub revision: u64,
    /// Rule against runaway statements; left out for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_limit: Option<QueryLimitText>,
    /// Longest wait of a statement for admission at a SQL gateway, 1000 to 3600000000. 0 is the gateway's own.
    pub max_wait_us: u64,
}

/// The fields an alteration may name.
pub const ALTERABLE: [&str; 15] = [
    "parent",
    "ru_per_sec",
    "burst",
    "burstable",
    "burst_ru_per_sec",
    "priority",
    "weight",
    "ttl_us",
    "renew_us",
    "fallback",
    "fallback_total",
    "max_debt",
    "comment",
    "query_limit",
    "max_wait_us",
];

impl GroupText {
    /// This text with the `mask` fields taken from `from`. The error is the first name that cannot be altered.
    pub fn merged<'m>(&self, from: &Self, mask: &'m [String]) -> Result<Self, &'m str> {
        let mut merged = self.clone();
        for field in mask {
            match field.as_str() {
                "parent" => merged.parent.clone_from(&from.parent),
                "ru_per_sec" => merged.ru_per_sec.clone_from(&from.ru_per_sec),
                "burst" => merged.burst.clone_from(&from.burst),
                "burstable" => merged.burstable.clone_from(&from.burstable),
                "burst_ru_per_sec" => merged.burst_ru_per_sec.clone_from(&from.burst_ru_per_sec),
                "priority" => merged.priority.clone_from(&from.priority),
                "weight" => merged.weight = from.weight,
                "ttl_us" => merged.ttl_us = from.ttl_us,
                "renew_us" => merged.renew_us = from.renew_us,
                "fallback" => merged.fallback.clone_from(&from.fallback),
                "fallback_total" => merged.fallback_total.clone_from(&from.fallback_total),
                "max_debt" => merged.max_debt.clone_from(&from.max_debt),
                "comment" => merged.comment.clone_from(&from.comment),
                "query_limit" => merged.query_limit.clone_from(&from.query_limit),
                "max_wait_us" => merged.max_wait_us = from.max_wait_us,
                other => return Err(other),
            }
        }
        Ok(merged)
    }

    /// The first field that is empty here and says something in `before`, and what to write instead.
    pub fn emptied(&self, before: &Self) -> Option<(&'static str, &'static str)> {
        self.all_emptied(before).next()
    }

    /// The fields that are empty here and say something in `before`, and what to write instead.
    pub fn all_emptied(&self, before: &Self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let empty = |group: &Self, field: &str| match field {
            "parent" => group.parent.trim().is_empty(),
            "ru_per_sec" => group.ru_per_sec.trim().is_empty(),
            "burst" => group.burst.trim().is_empty(),
            "burstable" => group.burstable.trim().is_empty(),
            "burst_ru_per_sec" => group.burst_ru_per_sec.trim().is_empty(),
            "priority" => group.priority.trim().is_empty(),
            "fallback" => group.fallback.trim().is_empty(),
            "fallback_total" => group.fallback_total.trim().is_empty(),
            _ => group.max_debt.trim().is_empty(),
        };
        STATED.into_iter().filter(move |(field, _)| empty(self, field) && !empty(before, field))
    }

    /// Names of the fields in which two definitions differ; the revision is not compared.
    pub fn differing(&self, other: &Self) -> Vec<&'static str> {
        let pairs = [
            ("parent", self.parent == other.parent),
            ("ru_per_sec", self.ru_per_sec == other.ru_per_sec),
            ("burst", self.burst == other.burst),
            ("burstable", self.burstable == other.burstable),
            ("burst_ru_per_sec", self.burst_ru_per_sec == other.burst_ru_per_sec),
            ("priority", self.priority == other.priority),
            ("weight", self.weight == other.weight),
            ("ttl_us", self.ttl_us == other.ttl_us),
            ("renew_us", self.renew_us == other.renew_us),
            ("fallback", self.fallback == other.fallback),
            ("fallback_total", self.fallback_total == other.fallback_total),
            ("max_debt", self.max_debt == other.max_debt),
            ("comment", self.comment == other.comment),
            ("query_limit", self.query_limit == other.query_limit),
            ("max_wait_us", self.max_wait_us == other.max_wait_us),
        ];
        pairs.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alterable_field_is_merged_and_compared() {
        let other = GroupText {
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
            query_limit: Some(QueryLimitText::default()),
            max_wait_us: 5,
        };
        let base = GroupText { name: "n".into(), revision: 4, ..GroupText::default() };
        for field in ALTERABLE {
            let mask = [field.to_owned()];
            let merged = base.merged(&other, &mask).unwrap();
            assert_eq!(merged.differing(&base), [field]);
        }
        assert_eq!(other.merged(&base, &["query_limit".to_owned()]).unwrap().query_limit, None);
        assert_eq!(base.merged(&other, &["name".to_owned()]), Err("name"));
        assert_eq!(base.merged(&other, &ALTERABLE.map(str::to_owned)).unwrap(), other);
    }

    #[test]
    fn a_field_that_was_set_is_not_emptied_unseen() {
        let before = GroupText { ru_per_sec: "unlimited".into(), ..GroupText::default() };
        for (field, _) in STATED {
            let set = GroupText {
                parent: "a".into(),
                ru_per_sec: "unlimited".into(),
                burst: "1".into(),
                burstable: "off".into(),
                burst_ru_per_sec: "1".into(),
                priority: "low".into(),
                fallback: "stop".into(),
                fallback_total: "1".into(),
                max_debt: "1".into(),
                ..GroupText::default()
            };
            for nothing in ["", " "] {
                let from = GroupText { fallback_total: nothing.into(), ..GroupText::default() };
                let merged = set.merged(&from, &[field.to_owned()]).unwrap();
                assert_eq!(merged.emptied(&set).map(|(field, _)| field), Some(field), "{nothing:?}");
                assert_eq!(merged.emptied(&merged), None);
            }
        }
        assert_eq!(before.emptied(&before), None);
    }

    #[test]
    fn a_definition_from_before_a_field_still_reads() {
        let text: GroupText = serde_json::from_str(r#"{"name":"a","weight":3}"#).unwrap();
        assert_eq!(text, GroupText { name: "a".into(), weight: 3, ..GroupText::default() });
        assert!(!serde_json::to_string(&text).unwrap().contains("query_limit"));
    }
}
