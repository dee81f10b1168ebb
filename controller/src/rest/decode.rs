//! Errors of decoding, each as an error of a field with the remedy.
//!
//! serde names what it expected in its own words and, for JSON, without the field. So each field is decoded alone to
//! find the one at fault: every type here accepts a body with one field.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::AdminError;
use crate::quantity::cut;

/// Characters of a list of names in an error.
const LONGEST_LIST: usize = 400;

/// Decodes a value from JSON.
pub(super) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, AdminError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        AdminError::invalid(
            "body",
            format!("it is not JSON: something is wrong at {place}; send an object, {{...}}"),
        )
    })?;
    of(value)
}

/// The same for parsed JSON.
pub(super) fn of<T: DeserializeOwned>(value: Value) -> Result<T, AdminError> {
    let Value::Object(fields) = &value else {
        return Err(AdminError::invalid("body", format!("{}; send an object, {{...}}", kind(&value))));
    };
    T::deserialize(&value).map_err(|error| {
        let reason = error.to_string();
        let (field, told, value) = at_fault::<T>(fields, reason);
        invalid(&field, &told, value.as_ref())
    })
}

/// The field that fails alone, the error, and its value.
fn at_fault<T: DeserializeOwned>(
    fields: &Map<String, Value>,
    reason: String,
) -> (String, String, Option<Value>) {
    let alone = |value: Value| T::deserialize(&value).err().map(|error| error.to_string());
    let wrong = |reason: &String| !reason.starts_with("missing field");
    let with = |key: &str, value: Value| Value::Object(Map::from_iter([(key.to_owned(), value)]));
    for (key, value) in fields {
        let Some(reason) = alone(with(key, value.clone())).filter(wrong) else { continue };
        // If one of its parts fails alone, the error names that part.
        for (inner, part) in value.as_object().into_iter().flatten() {
            let nested = with(key, with(inner, part.clone()));
            if let Some(reason) = alone(nested).filter(wrong) {
                return (format!("{key}.{inner}"), reason, Some(part.clone()));
            }
        }
        return (key.clone(), reason, Some(value.clone()));
    }
    ("body".to_owned(), reason, None)
}

/// The error of a parameter of the query or of the path: `name: what is wrong`, in axum's words.
pub(super) fn parameter(said: &str) -> AdminError {
    let said = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(said);
    match said.split_once(": ") {
        Some((name, reason)) if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => {
            invalid(name, reason, None)
        }
        _ => invalid("query", said, None),
    }
}

/// serde's error in the words of this API.
fn invalid(field: &str, said: &str, value: Option<&Value>) -> AdminError {
    if let Some(name) = between(said, "unknown field `", "`") {
        let known = said.split_once("expected ").map_or("", |(_, known)| known);
        let known = known.trim_start_matches("one of ").replace('`', "");
        let known: String = known.chars().take(LONGEST_LIST).collect();
        return AdminError::invalid(cut(name), format!("there is no such field; the fields are {known}"));
    }
    if let Some(name) = between(said, "missing field `", "`") {
        return AdminError::invalid(name, "is missing; add it");
    }
    if said.contains("invalid digit") || said.contains("cannot parse integer") || said.contains("number too")
    {
        return AdminError::invalid(field, "is not a whole number from 0 on; write one");
    }
    if said.contains("was not `true` or `false`") {
        return AdminError::invalid(field, "is neither true nor false; write one of them");
    }
    let expected = said.rsplit_once("expected ").map(|(_, expected)| expected);
    match (expected, value) {
        (Some("a string"), Some(value)) => {
            AdminError::invalid(field, format!("{}; write a text in quotes", kind(value)))
        }
        (Some("a boolean"), Some(value)) => {
            AdminError::invalid(field, format!("{}; write true or false", kind(value)))
        }
        (Some(expected), Some(value)) if expected.starts_with(['u', 'i']) && expected.len() <= 5 => {
            AdminError::invalid(
                field,
                format!("{}; write a whole number from 0 on, without quotes", kind(value)),
            )
        }
        (_, Some(value)) => {
            AdminError::invalid(field, format!("{}; see its type in /openapi.json", kind(value)))
        }
        (_, None) => AdminError::invalid(field, "does not read; see /openapi.json for its parts"),
    }
}

/// A value and its kind.
fn kind(value: &Value) -> String {
    let what = match value {
        Value::Null => return "it is null".to_owned(),
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => return "it is a list".to_owned(),
        Value::Object(_) => return "it is an object".to_owned(),
    };
    format!("{} is {what}", cut(&value.to_string()))
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

#[cfg(test)]
mod tests {
    use tidegate_proto::v1;

    use super::*;

    /// The field of an error, and its message.
    fn told(body: &str) -> (String, String) {
        let error = json::<v1::Group>(body.as_bytes()).expect_err(body);
        (error.field().unwrap_or_default().to_owned(), error.to_string())
    }

    #[test]
    fn every_mistake_names_its_field_and_what_to_write() {
        for (body, field, says) in [
            ("{\"name\": ", "body", "not JSON: something is wrong at line 1 column"),
            ("[1]", "body", "it is a list; send an object"),
            ("5", "body", "5 is a number; send an object"),
            (r#"{"name":"a","ru_per_sec":5}"#, "ru_per_sec", "5 is a number; write a text in quotes"),
            (r#"{"ttl_us":"5"}"#, "ttl_us", "is a text; write a whole number"),
            (r#"{"ttl_us":-5}"#, "ttl_us", "-5 is a number; write a whole number from 0 on"),
            (r#"{"name":null}"#, "name", "it is null; write a text in quotes"),
            (r#"{"rate":"5"}"#, "rate", "there is no such field; the fields are name, parent"),
            (r#"{"query_limit":{"rows":"5"}}"#, "query_limit.rows", "is a text; write a whole number"),
            (r#"{"query_limit":{"row":5}}"#, "row", "the fields are"),
            (r#"{"query_limit":7}"#, "query_limit", "7 is a number"),
            (r#"{"name":true}"#, "name", "true is a truth value; write a text in quotes"),
            (r#"{"name":{}}"#, "name", "it is an object; write a text in quotes"),
            (r#"{"ttl_us":[]}"#, "ttl_us", "it is a list; write a whole number from 0 on"),
            (r#"{"ttl_us":1.5}"#, "ttl_us", "1.5 is a number; write a whole number from 0 on"),
        ] {
            let (at, said) = told(body);
            assert!(at == field && said.contains(says), "{body}: {at}: {said}");
            for word in ["expected", "invalid type", "deserialize", "struct", "u64", "`"] {
                assert!(!said.contains(word), "{body}: {said}");
            }
        }
        let error = json::<v1::ApplyRequest>(br#"{"dry_run":"yes"}"#).unwrap_err();
        assert_eq!(error.to_string(), "dry_run: \"yes\" is a text; write true or false");
        let error = json::<v1::CreateTokenRequest>(br#"{"groups":"shop"}"#).unwrap_err();
        assert_eq!(error.to_string(), "groups: \"shop\" is a text; see its type in /openapi.json");
        for (said, field) in [
            ("Failed to deserialize query string: limit: invalid digit found in string", "limit"),
            (
                "Failed to deserialize query string: per_client: provided string was not `true` or `false`",
                "per_client",
            ),
            ("Failed to deserialize query string: unknown field `x`, expected one of `a`, `b`", "x"),
        ] {
            let error = parameter(said);
            assert!(error.field() == Some(field) && !error.to_string().contains("deserialize"), "{error}");
        }
    }
}
