//! From a state as JSON to YAML that every reader takes for the same.
//!
//! A text is written without quotes only where readers of YAML 1.1 and 1.2 agree that it is one: letters, digits and a few
//! signs, no number, no `on`, `no` or `null`. In quotes it is written as in JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use tidegate_controller::group_fields;

use super::fields::Takes;
use super::object::sorts;
use super::read::DISPUTED;

/// Whether fields are explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comments {
    None,
    /// What each field of a group takes.
    Fields,
}

/// A document of this kind with the fields of a state, without those that the controller sets.
pub(crate) fn document(kind: &str, state: &Map<String, Value>, comments: Comments) -> String {
    let mut text = format!("kind: {kind}\n");
    for (name, value) in in_order(kind, state) {
        let known = group_fields::field(name).filter(|_| kind == "Group");
        if comments == Comments::Fields
            && let Some(known) = known
        {
            let _ = writeln!(text, "# {}", known.about);
        }
        // By the word for what is left open, so that a written document can be applied anywhere.
        match known.and_then(|known| known.takes.open()) {
            Some(word) if value.as_str() == Some("") => field(&mut text, name, &word.into(), 0),
            _ => field(&mut text, name, value, 0),
        }
    }
    if kind == "Group" && comments == Comments::Fields && !state.contains_key("query_limit") {
        field(&mut text, "query_limit", &Value::Null, 0);
    }
    text
}

/// The fields that a document may have, in the order in which people read them.
fn in_order<'s>(
    kind: &str,
    state: &'s Map<String, Value>,
) -> impl Iterator<Item = (&'static str, &'s Value)> {
    let known = sorts().into_iter().find(|(name, ..)| *name == kind);
    let fields = known.map(|(_, fields, _)| fields).unwrap_or_default();
    let written = fields.iter().filter(|(_, takes)| *takes != Takes::Told);
    written.filter_map(|(name, _)| Some((*name, state.get(*name)?)))
}

fn field(text: &mut String, name: &str, value: &Value, indent: usize) {
    let _ = write!(text, "{:indent$}{}:", "", scalar(name));
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            fields.iter().for_each(|(name, value)| field(text, name, value, indent + 2));
        }
        Value::String(value) => {
            let _ = writeln!(text, " {}", scalar(value));
        }
        // Numbers, `null`, `true` and what is empty are as in JSON.
        other => {
            let _ = writeln!(text, " {other}");
        }
    }
}

/// A text, in quotes unless it needs none.
fn scalar(text: &str) -> String {
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
    let lower = text.to_ascii_lowercase();
    // Texts that readers of YAML 1.1 take for a boolean, null or a number.
    let word = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];
    let slash = text == "/";
    if slash || (begins && plain && !word.contains(&lower.as_str())) {
        return text.to_owned();
    }
    let quoted = Value::from(text).to_string();
    // As they are they would end a line for readers of YAML 1.1.
    DISPUTED
        .iter()
        .fold(quoted, |quoted, sign| quoted.replace(*sign, &format!("\\u{:04x}", u32::from(*sign))))
}

#[cfg(test)]
mod tests {
    use super::super::{Source, Unnamed, manifest};
    use super::*;

    fn state(json: Value) -> Map<String, Value> {
        let Value::Object(state) = json else { panic!() };
        state
    }

    #[test]
    fn texts_that_readers_differ_in_are_in_quotes() {
        for (text, written) in [
            ("shop", "shop"),
            ("/", "/"),
            ("a.b-c_d", "a.b-c_d"),
            ("off", "\"off\""),
            ("No", "\"No\""),
            ("null", "\"null\""),
            ("5", "\"5\""),
            ("1:30", "\"1:30\""),
            ("0x1f", "\"0x1f\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("a #b", "\"a #b\""),
            ("- a", "\"- a\""),
            ("a\u{2028}b\u{85}", r#""a\u2028b\u0085""#),
            ("a\tb\"\\", r#""a\tb\"\\""#),
        ] {
            assert_eq!(scalar(text), written, "{text:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let json = serde_json::json!({
            "name": "shop", "parent": "", "ru_per_sec": "2000", "burst": "", "burstable": "off",
            "priority": "medium", "weight": 2, "comment": "50 % off: \"yes\" # no", "revision": 9,
            "query_limit": {"ru": "5", "action": "kill", "rows": 7},
        });
        for comments in [Comments::None, Comments::Fields] {
            let text = document("Group", &state(json.clone()), comments);
            let read = manifest(&[Source { name: "f".into(), text: text.clone() }], Unnamed::Stay).unwrap();
            let tidegate_proto::v1::step::Kind::Group(group) = &read[0].kind else { panic!() };
            assert_eq!((group.parent.as_str(), group.burst.as_str(), group.weight), ("/", "default", 2));
            assert_eq!(group.comment, "50 % off: \"yes\" # no", "{text}");
            assert_eq!(group.query_limit.as_ref().unwrap().rows, 7);
            assert!(!text.contains("revision"));
        }
    }
}
