//! Lists of structured fields (RFC 9651), read strictly: Strings, and Integers as parameters. What is no such list panics.

/// A String, and its parameters in their order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, Value)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Integer(i64),
    String(String),
}

impl Item {
    pub(crate) fn integer(&self, key: &str) -> Option<i64> {
        match &self.parameters.iter().find(|(name, _)| name == key)?.1 {
            Value::Integer(value) => Some(*value),
            other => panic!("{key} of {self:?} is {other:?}"),
        }
    }
}

/// Reads a field as RFC 9651, section 4.2.1, does.
pub(crate) fn list(field: &str) -> Vec<Item> {
    let mut rest = field.trim_matches(' ');
    let mut items = Vec::new();
    loop {
        let (item, after) = item(rest);
        items.push(item);
        rest = after.trim_start_matches([' ', '\t']);
        let Some(next) = rest.strip_prefix(',') else { break };
        rest = next.trim_start_matches([' ', '\t']);
    }
    assert!(rest.is_empty(), "{rest:?} is left of {field:?}");
    items
}

fn item(text: &str) -> (Item, &str) {
    let (name, mut rest) = string(text);
    let mut parameters: Vec<(String, Value)> = Vec::new();
    while let Some(parameter) = rest.strip_prefix(';') {
        let parameter = parameter.trim_start_matches(' ');
        let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
        let (key, value) = parameter.split_at(parameter.find(|c| !is_key(c)).unwrap_or(parameter.len()));
        assert!(key.starts_with(|c: char| c.is_ascii_lowercase() || c == '*'), "no key at {parameter:?}");
        assert!(parameters.iter().all(|(known, _)| known != key), "{key} twice in {text:?}");
        let value = value.strip_prefix('=').unwrap_or_else(|| panic!("{key} is a Boolean in {text:?}"));
        let (value, after) = bare(value);
        parameters.push((key.to_owned(), value));
        rest = after;
    }
    (Item { name, parameters }, rest)
}

fn bare(text: &str) -> (Value, &str) {
    if text.starts_with('"') {
        let (value, rest) = string(text);
        return (Value::String(value), rest);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    assert!((1..=15).contains(&length), "no Integer at {text:?}");
    let (number, rest) = text.split_at(text.len() - digits.len() + length);
    assert!(!rest.starts_with('.'), "a Decimal at {text:?}");
    (Value::Integer(number.parse().unwrap()), rest)
}

fn string(text: &str) -> (String, &str) {
    let inner = text.strip_prefix('"').unwrap_or_else(|| panic!("no String at {text:?}"));
    let (value, rest) = inner.split_once('"').unwrap_or_else(|| panic!("no end of {text:?}"));
    let plain = value.bytes().all(|byte| (b' '..0x7F).contains(&byte) && byte != b'\\');
    assert!(plain, "a name of a group needs no escapes: {text:?}");
    (value.to_owned(), rest)
}
