//! Which things must be found that are made, changed and removed while answers are lost.

use std::collections::BTreeMap;

use super::console::Reply;

/// Something that is there with a value, or not there.
pub type Value = Option<String>;

/// What is known of a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// As acknowledged.
    Sure(Value),
    /// One of both.
    Doubt(Value, Value),
}

impl Known {
    fn allows(&self, found: &Value) -> bool {
        match self {
            Self::Sure(value) => value == found,
            Self::Doubt(before, asked) => before == found || asked == found,
        }
    }
}

/// Things by name.
#[derive(Clone, Debug, Default)]
pub struct Things(BTreeMap<String, Known>);

impl Things {
    fn value(&self, name: &str) -> Value {
        match self.0.get(name) {
            Some(Known::Sure(value)) => value.clone(),
            _ => None,
        }
    }

    /// A thing was asked to be so, and this was the reply.
    pub fn note(&mut self, name: &str, asked: Value, reply: &Reply) {
        let before = self.value(name);
        match reply {
            Reply::Done => drop(self.0.insert(name.to_owned(), Known::Sure(asked))),
            Reply::Lost => drop(self.0.insert(name.to_owned(), Known::Doubt(before, asked))),
            Reply::Undone | Reply::Refused(_) => {}
        }
    }

    /// Names of things that are there for certain.
    pub fn there(&self) -> Vec<&str> {
        let there = self.0.iter().filter(|(_, known)| matches!(known, Known::Sure(Some(_))));
        there.map(|(name, _)| name.as_str()).collect()
    }

    /// Whether any may have this value.
    pub fn may_say(&self, value: &str) -> bool {
        let says = |known: &Value| known.as_deref() == Some(value);
        self.0.values().any(|known| match known {
            Known::Sure(value) => says(value),
            Known::Doubt(before, asked) => says(before) || says(asked),
        })
    }

    /// What differs, in words.
    pub fn differences(&self, what: &str, found: &BTreeMap<String, String>) -> Vec<String> {
        let missing = self.0.iter().filter_map(|(name, known)| {
            let found = found.get(name).cloned();
            (!known.allows(&found)).then(|| format!("{what} {name}: {known:?} expected, {found:?} found"))
        });
        let extra = found.keys().filter(|name| !self.0.contains_key(*name));
        missing.chain(extra.map(|name| format!("{what} {name}: nobody made it"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(things: &[(&str, &str)]) -> BTreeMap<String, String> {
        things.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn acknowledged_things_must_be_there_and_unanswered_ones_may() {
        let value = |text: &str| Some(text.to_owned());
        let mut things = Things::default();
        things.note("a", value("1"), &Reply::Done);
        things.note("b", value("2"), &Reply::Lost);
        let differences = |things: &Things, f: &[(&str, &str)]| things.differences("thing", &found(f)).len();
        assert_eq!(differences(&things, &[("a", "1")]), 0);
        assert_eq!(differences(&things, &[("a", "1"), ("b", "2")]), 0);
        assert_eq!(differences(&things, &[]), 1, "lost");
        assert_eq!(differences(&things, &[("a", "7")]), 1, "set back");
        assert_eq!(differences(&things, &[("a", "1"), ("c", "3")]), 1, "from nowhere");
        things.note("a", value("9"), &Reply::Undone);
        assert_eq!(differences(&things, &[("a", "9")]), 1, "done all the same");
        things.note("a", None, &Reply::Lost);
        assert_eq!(differences(&things, &[("a", "1")]) + differences(&things, &[]), 0);
        assert_eq!(things.there(), Vec::<&str>::new());
        assert!(things.may_say("2") && things.may_say("1") && !things.may_say("7"));
        things.note("c", value("3"), &Reply::Done);
        things.note("c", None, &Reply::Done);
        assert_eq!(differences(&things, &[("a", "1"), ("c", "3")]), 1, "came back");
    }
}
