//! A definition as it is typed: texts by field, made from the list of fields, and read back.

use serde_json::{Map, Value};
use tidegate_console::audit::Entry;
use tidegate_console::form::{Changed, Control, Input, Values};
use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::definitions::audit::is_of_group;
use crate::definitions::definition::Definition;
use crate::definitions::group_fields::{Field, Takes, differing, fields};
use crate::error::{AdminError, Fault};
use crate::quantity::{cut, parse_span};

/// Characters of a text without a length of its own.
const USUAL: usize = 64;

/// The fields of the form. A rule against runaways has a language of its own, and stays as it is.
pub(super) fn inputs() -> Vec<Input> {
    let input = |field: &'static Field| {
        let control = match field.takes {
            Takes::Rule => return None,
            Takes::Word(words) => Control::Choice(words),
            Takes::Text(most) => Control::Text(most),
            _ => Control::Text(USUAL),
        };
        let about = match field.takes {
            Takes::Micros(..) => "a time such as 5s or 500ms; left empty, the default",
            _ => field.about,
        };
        Some(Input { name: field.name, about, control })
    };
    fields().iter().filter_map(input).collect()
}

/// All fields with their values, for people.
pub(super) fn shown(group: &v1::Group) -> Vec<(&'static str, String)> {
    let values = stored(group);
    let value = |field: &'static Field| {
        let text = text(values.get(field.name), field.takes);
        // What was left open is shown by its word.
        if text.is_empty() { field.takes.open().unwrap_or_default().to_owned() } else { text }
    };
    fields().iter().map(|field| (field.name, value(field))).collect()
}

/// The values of a definition as they would be typed.
pub(super) fn values(group: &v1::Group) -> Values {
    shown(group).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn stored(group: &v1::Group) -> Map<String, Value> {
    match serde_json::to_value(group) {
        Ok(Value::Object(values)) => values,
        // A message is an object.
        _ => Map::new(),
    }
}

fn text(value: Option<&Value>, takes: Takes) -> String {
    match (value, takes) {
        (Some(Value::Number(number)), Takes::Micros(..)) => match number.as_u64() {
            Some(0) | None => String::new(),
            Some(us) => Span(us).to_string(),
        },
        (Some(Value::Number(number)), _) if number.as_u64() == Some(0) => String::new(),
        (Some(Value::String(text)), _) => text.clone(),
        (Some(Value::Null) | None, _) => String::new(),
        (Some(other), _) => other.to_string(),
    }
}

/// The definition that was typed: `base` with the fields that the form has.
///
/// # Errors
/// Reports each field whose text cannot be read; the controller judges the others.
pub(super) fn definition(base: &v1::Group, values: &Values) -> Result<v1::Group, Vec<(String, String)>> {
    let mut stored = stored(base);
    let mut faults = Vec::new();
    for field in fields().iter().filter(|field| field.takes != Takes::Rule) {
        let Some(typed) = values.get(field.name).map(|typed| typed.trim()) else { continue };
        let value = match field.takes {
            Takes::Number(_) if typed.is_empty() => Ok(Value::from(0)),
            Takes::Number(most) => typed
                .parse::<u32>()
                .map(Value::from)
                .map_err(|_| format!("{:?} is not a whole number; write 1 to {most}", cut(typed))),
            Takes::Micros(..) if typed.is_empty() => Ok(Value::from(0)),
            Takes::Micros(..) => {
                parse_span(typed).map(|span| Value::from(span.0)).map_err(|error| error.to_string())
            }
            // What was left open stays so.
            takes if takes.open() == Some(typed) && text(stored.get(field.name), takes).is_empty() => {
                continue;
            }
            _ => Ok(Value::from(typed)),
        };
        match value {
            Ok(value) => drop(stored.insert(field.name.to_owned(), value)),
            Err(message) => faults.push((field.name.to_owned(), message)),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    serde_json::from_value(Value::Object(stored)).map_err(|error| vec![(String::new(), error.to_string())])
}

/// The fields in which two definitions differ.
pub(super) fn changed(before: &v1::Group, after: &v1::Group) -> Vec<Changed> {
    let (one, other) = (values(before), values(after));
    let of = |values: &Values, field: &str| values.get(field).cloned().unwrap_or_default();
    let fields = differing(before, after).into_iter();
    fields
        .map(|field| Changed { field: field.to_owned(), before: of(&one, field), after: of(&other, field) })
        .collect()
}

/// An entry of the audit log, with what it changed in a definition.
pub(super) fn entry(entry: v1::AuditEntry) -> Entry {
    let state = |text: &str| serde_json::from_str::<v1::Group>(text).ok();
    let after = is_of_group(&entry.action).then(|| state(&entry.after)).flatten();
    let before = match entry.before.as_str() {
        // A group is made with what differs from the default.
        "" => after.as_ref().map(unstated),
        text => state(text),
    };
    let revision = after.as_ref().map_or(0, |after| after.revision);
    let changed = before.zip(after).map(|(before, after)| {
        let mut changed = changed(&before, &after);
        changed.retain(|of| of.before != of.after);
        changed
    });
    Entry { entry, changed, revision }
}

/// A definition of which nothing was said, beside one that was made.
fn unstated(made: &v1::Group) -> v1::Group {
    let limit = "unlimited".to_owned();
    let bare = v1::Group { name: made.name.clone(), ru_per_sec: limit, ..v1::Group::default() };
    let bare = Definition::parse(&bare).map_or_else(|_| v1::Group::default(), |bare| bare.text());
    // What it may use is always worth a line.
    v1::Group { ru_per_sec: String::new(), ..bare }
}

/// An error of the controller, by the fields of the form.
pub(super) fn faults(error: &AdminError) -> Vec<(String, String)> {
    match error {
        AdminError::Invalid { field, message } => vec![(field.clone(), message.clone())],
        AdminError::Several { faults, .. } => of_steps(faults),
        other => vec![(String::new(), other.to_string())],
    }
}

/// The faults of a dry run, by the fields of the form.
pub(super) fn of_steps(faults: &[Fault]) -> Vec<(String, String)> {
    let of = |fault: &Fault| {
        let field = fault.field.rsplit_once(".group.").map_or("", |(_, field)| field);
        (field.to_owned(), fault.message.clone())
    };
    faults.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> v1::Group {
        v1::Group {
            name: "a".to_owned(),
            ru_per_sec: "5".to_owned(),
            ttl_us: 5_000_000,
            weight: 3,
            query_limit: Some(v1::QueryLimit { rows: 7, ..v1::QueryLimit::default() }),
            revision: 9,
            ..v1::Group::default()
        }
    }

    #[test]
    fn what_is_shown_and_sent_back_changes_nothing() {
        let typed = values(&group());
        assert_eq!(
            (typed["ttl_us"].as_str(), typed["weight"].as_str(), typed["renew_us"].as_str()),
            ("5s", "3", "")
        );
        assert_eq!(definition(&group(), &typed), Ok(group()), "the rule, too, which the form does not have");
        let open = fields().iter().filter(|field| field.takes.open().is_some());
        for Field { name, takes, .. } in open {
            // The word that is shown for an open field opens one again that said something.
            let word = takes.open().unwrap();
            let mut of = stored(&group());
            of.insert((*name).to_owned(), Value::from("7"));
            let set: v1::Group = serde_json::from_value(Value::Object(of)).unwrap();
            let typed = Values::from([((*name).to_owned(), format!(" {word} "))]);
            let after = stored(&definition(&set, &typed).unwrap());
            assert_eq!(after[*name], Value::from(word), "{name}");
            assert_eq!(definition(&group(), &typed), Ok(group()), "{name}: it was open");
        }
        assert!(inputs().iter().all(|input| input.name != "query_limit"));
        assert_eq!(inputs().len() + 1, fields().len());
    }

    #[test]
    fn an_entry_of_the_log_has_the_fields_that_changed() {
        let json = |group: &v1::Group| serde_json::to_string(group).unwrap();
        let made = Definition::parse(&v1::Group { query_limit: None, ..group() }).unwrap().text();
        let of = |action: &str, before: &str, after: &str| {
            let entry = |text: &str| text.to_owned();
            let (action, before, after) = (entry(action), entry(before), entry(after));
            super::entry(v1::AuditEntry { action, before, after, ..v1::AuditEntry::default() })
        };
        let fields = |entry: &Entry| -> Vec<(String, String, String)> {
            let changed = entry.changed.clone().unwrap();
            changed.into_iter().map(|of| (of.field, of.before, of.after)).collect()
        };
        let text =
            |field: &str, before: &str, after: &str| (field.to_owned(), before.to_owned(), after.to_owned());
        let created = of("create group", "", &json(&made));
        assert_eq!(fields(&created), [text("ru_per_sec", "", "5"), text("weight", "1", "3")]);
        let altered = v1::Group { ttl_us: 8_000_000, revision: 12, ..made.clone() };
        let altered = of("alter group", &json(&made), &json(&altered));
        assert_eq!((fields(&altered), altered.revision), (vec![text("ttl_us", "5s", "8s")], 12));
        // What is no whole definition is shown as it is.
        for (action, before, after) in [
            ("delete group", json(&made), String::new()),
            ("delete group", json(&made), "{\"moved_to\":\"b\"}".to_owned()),
            ("alter group", json(&made), json(&made)[..20].to_owned()),
            ("alter group", "{".to_owned(), json(&made)),
            ("add watch", json(&made), json(&made)),
        ] {
            assert_eq!(of(action, &before, &after).changed, None, "{action} {after}");
        }
    }

    #[test]
    fn each_text_that_cannot_be_read_is_a_fault_of_its_field() {
        let typed = |field: &str, text: &str| Values::from([(field.to_owned(), text.to_owned())]);
        for (field, text) in [("weight", "many"), ("weight", "-1"), ("ttl_us", "5"), ("max_wait_us", "soon")]
        {
            let faults = definition(&group(), &typed(field, text)).unwrap_err();
            assert_eq!(faults[0].0, field, "{text}");
        }
        let after = definition(&group(), &typed("ru_per_sec", " 7 ")).unwrap();
        let changed = changed(&group(), &after);
        assert_eq!((changed.len(), changed[0].before.as_str(), changed[0].after.as_str()), (1, "5", "7"));
    }
}
