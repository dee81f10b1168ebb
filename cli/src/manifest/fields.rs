//! The fields of a document, taken out one by one; a field that is left over is unknown.

use std::collections::BTreeMap;

use super::node::{Entry, Node, Value};
use crate::flags::field_of;

/// What a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Text,
    Number,
    /// A map of texts by name.
    Texts,
    /// A rule against runaways, or nothing.
    Rule,
    /// What the controller sets: read and not sent.
    Told,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) line: usize,
    pub(super) message: String,
}

/// Checked fields of a map.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    texts: BTreeMap<String, String>,
    numbers: BTreeMap<String, u64>,
    /// Maps, by the name of their field.
    maps: BTreeMap<String, Fields>,
    /// Where each field stands, those of maps as `map.field`.
    pub(super) lines: BTreeMap<String, usize>,
}

/// Fields of a rule; `text` is what `--output json` adds for people.
const RULE: &[(&str, Takes)] = &[
    ("exec_elapsed_us", Takes::Number),
    ("ru", Takes::Text),
    ("rows", Takes::Number),
    ("action", Takes::Text),
    ("switch_group", Takes::Text),
    ("watch", Takes::Text),
    ("watch_us", Takes::Number),
    ("text", Takes::Told),
];

impl Fields {
    /// Reads the fields that `known` names.
    pub(super) fn read(entries: &[Entry], known: &[(&str, Takes)], wrong: &mut Vec<Wrong>) -> Self {
        let mut fields = Self::default();
        for Entry { name, line, node } in entries {
            let Some((_, takes)) = known.iter().find(|(other, _)| other == name) else {
                let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                let meant = field_of(name);
                let message = if names.contains(&meant.as_str()) {
                    format!("{}: unknown field; here it is called {meant}", cut(name))
                } else {
                    format!("{}: unknown field; the fields are {}", cut(name), names.join(", "))
                };
                wrong.push(Wrong { line: *line, message });
                continue;
            };
            fields.lines.insert(name.clone(), *line);
            if let Err(message) = fields.take(name, *takes, node, wrong) {
                wrong.push(Wrong { line: node.line, message: format!("{name}: {message}") });
            }
        }
        fields
    }

    fn take(&mut self, name: &str, takes: Takes, node: &Node, wrong: &mut Vec<Wrong>) -> Result<(), String> {
        match (takes, &node.value) {
            (Takes::Told, _) | (Takes::Rule, Value::Null) => {}
            (Takes::Text, Value::Plain(text) | Value::Quoted(text)) => {
                self.texts.insert(name.to_owned(), text.clone());
            }
            (_, Value::Null) => {
                return Err("is empty; write a value, or leave the field out".to_owned());
            }
            (Takes::Number, Value::Plain(text)) => {
                let number = whole(text)
                    .ok_or_else(|| format!("{} is no whole number from 0; write digits only", cut(text)))?;
                self.numbers.insert(name.to_owned(), number);
            }
            (Takes::Number, Value::Quoted(text)) => {
                return Err(format!("{:?} is a text; write the number without quotes", cut(text)));
            }
            (Takes::Texts, Value::Map(entries)) => {
                let known: Vec<(&str, Takes)> =
                    entries.iter().map(|entry| (entry.name.as_str(), Takes::Text)).collect();
                self.below(name, entries, &known, wrong);
            }
            (Takes::Rule, Value::Map(entries)) => self.below(name, entries, RULE, wrong),
            (takes, other) => {
                let wanted = match takes {
                    Takes::Texts | Takes::Rule => "a map of fields",
                    Takes::Number => "a whole number",
                    Takes::Text | Takes::Told => "a text",
                };
                return Err(format!("{} where {wanted} belongs", other.kind()));
            }
        }
        Ok(())
    }

    fn below(&mut self, name: &str, entries: &[Entry], known: &[(&str, Takes)], wrong: &mut Vec<Wrong>) {
        let mut inside = Vec::new();
        let fields = Self::read(entries, known, &mut inside);
        wrong.extend(
            inside
                .into_iter()
                .map(|Wrong { line, message }| Wrong { line, message: format!("{name}.{message}") }),
        );
        self.lines.extend(fields.lines.iter().map(|(field, line)| (format!("{name}.{field}"), *line)));
        self.maps.insert(name.to_owned(), fields);
    }

    /// A text that is there.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// A text, or nothing.
    pub(super) fn text_or_empty(&self, name: &str) -> String {
        self.texts.get(name).cloned().unwrap_or_default()
    }

    /// A number, or 0.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    /// A smaller number, or 0. One that is too large is what the controller refuses.
    pub(super) fn small(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).unwrap_or(u32::MAX)
    }

    /// A map that is there.
    pub(super) fn map(&self, name: &str) -> Option<&Self> {
        self.maps.get(name)
    }

    /// All numbers by name.
    pub(super) fn numbers(&self) -> &BTreeMap<String, u64> {
        &self.numbers
    }

    /// All texts by name.
    pub(super) fn texts(&self) -> &BTreeMap<String, String> {
        &self.texts
    }
}

fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The beginning of what someone wrote.
pub(super) fn cut(text: &str) -> String {
    tidegate_controller::quantity::cut(text)
}
