//! The fields of a group's definition, each listed once: its name in an alteration, how it is copied, when two
//! definitions differ in it, and what to write if it may not be empty.
//!
//! Rates are decimal RU/s, amounts decimal RU, both text and exact to a millionth; `*_us` is microseconds. An empty
//! text or a zero means the default, so that a short body is a complete definition; but a limit is lifted by name only,
//! because a variable that was never set is empty, too.

use tidegate_proto::v1::Group;

/// Value of `parent` without a group above. No group can have this name.
pub const TOP: &str = "/";
/// Value of an amount or a rate that is left open and follows the limit.
pub const DEFAULT: &str = "default";
/// Value of `fallback_total` without a total.
pub const NONE: &str = "none";

/// A field that can be altered.
struct Field {
    name: &'static str,
    /// The text to write if an empty one is not accepted; empty if it is.
    stated: &'static str,
    is_empty: fn(&Group) -> bool,
    take: fn(&mut Group, &Group),
    is_same: fn(&Group, &Group) -> bool,
}

macro_rules! field {
    ($name:ident) => {
        field!($name, "", |_| false)
    };
    ($name:ident, $stated:literal) => {
        field!($name, $stated, |group| group.$name.trim().is_empty())
    };
    ($name:ident, $stated:literal, $is_empty:expr) => {
        Field {
            name: stringify!($name),
            stated: $stated,
            is_empty: $is_empty,
            take: |group, from| group.$name.clone_from(&from.$name),
            is_same: |one, other| one.$name == other.$name,
        }
    };
}

const FIELDS: [Field; 15] = [
    field!(parent, "the group above, or \"/\" for none"),
    field!(ru_per_sec, "a rate such as \"2000 RU/s\", or \"unlimited\""),
    field!(burst, "an amount such as \"500 RU\", or \"default\" for one second of the limit"),
    field!(burstable, "\"off\", \"moderated\" or \"unlimited\""),
    field!(burst_ru_per_sec, "a rate such as \"3000 RU/s\", or \"default\" for twice ru_per_sec"),
    field!(priority, "\"low\", \"medium\" or \"high\""),
    field!(weight),
    field!(ttl_us),
    field!(renew_us),
    field!(fallback, "\"stop\", \"unlimited\", or a rate such as \"100 RU/s\""),
    field!(fallback_total, "a rate such as \"1000 RU/s\", or \"none\""),
    field!(max_debt, "an amount such as \"1000 RU\", or \"default\""),
    field!(comment),
    field!(query_limit),
    field!(max_wait_us),
];

/// Names of the fields that an alteration may name.
pub fn alterable() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

/// `group` with the `mask` fields taken from `from`. The error is the first name that cannot be altered.
pub fn merged<'m>(group: &Group, from: &Group, mask: &'m [String]) -> Result<Group, &'m str> {
    let mut merged = group.clone();
    for name in mask {
        let field = FIELDS.iter().find(|field| field.name == name.as_str()).ok_or(name.as_str())?;
        (field.take)(&mut merged, from);
    }
    Ok(merged)
}

/// Sets a field to its default; returns whether there is such a field.
pub fn clear(group: &mut Group, name: &str) -> bool {
    let field = FIELDS.iter().find(|field| field.name == name);
    field.map(|field| (field.take)(group, &Group::default())).is_some()
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
}
