//! From text to trees where the text is JSON, recognised by its first character.
//!
//! YAML 1.2 has JSON in it, but for the halves of signs beyond the first plane (`\ud83d\ude00`), and a reader of YAML holds
//! all of a line before it knows what it is. Values may follow each other, as in JSON lines.

use super::limits::{MAX_FIELDS, MAX_LEVELS, MAX_NODES};
use super::node::{Entry, Node, Value};

/// What is wrong with a text at a line.
pub(super) type Wrong = (usize, String);

/// The values of a text that begins as JSON does.
pub(super) fn values(text: &str) -> Result<Vec<Node>, Vec<Wrong>> {
    let mut reader = Reader { text, at: 0, line: 1, nodes: 0, wrong: Vec::new() };
    let mut values = Vec::new();
    reader.blank();
    while reader.peek().is_some() {
        match reader.value(0) {
            Ok(Node { value: Value::Null, .. }) => {}
            Ok(node) => values.push(node),
            Err(wrong) => {
                reader.wrong.push(wrong);
                break;
            }
        }
        reader.blank();
    }
    if reader.wrong.is_empty() { Ok(values) } else { Err(reader.wrong) }
}

/// Whether a text begins as JSON does.
pub(super) fn begins(text: &str) -> bool {
    text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with(['{', '['])
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    nodes: usize,
    /// What does not end the reading.
    wrong: Vec<Wrong>,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.peek() {
            self.line += usize::from(byte == b'\n');
            self.at += 1;
        }
    }

    fn wrong<T>(&self, wanted: &str) -> Result<T, Wrong> {
        let found = match self.rest().chars().next() {
            Some(sign) => format!("{sign:?} is"),
            None => "the end is; is the file cut off? it is".to_owned(),
        };
        Err((self.line, format!("not JSON: {found} where {wanted} belongs")))
    }

    /// The next sign, which must be this one.
    fn expect(&mut self, sign: u8, wanted: &str) -> Result<(), Wrong> {
        self.blank();
        if self.peek() != Some(sign) {
            return self.wrong(wanted);
        }
        self.at += 1;
        Ok(())
    }

    /// Whether the next sign is this one, which is passed then.
    fn passes(&mut self, sign: u8) -> bool {
        self.blank();
        let passes = self.peek() == Some(sign);
        self.at += usize::from(passes);
        passes
    }

    fn value(&mut self, level: usize) -> Result<Node, Wrong> {
        self.blank();
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err((self.line, format!("more than {MAX_NODES} values; apply a part of it at a time")));
        }
        if level >= MAX_LEVELS && matches!(self.peek(), Some(b'{' | b'[')) {
            let message =
                format!("more than {MAX_LEVELS} lists and maps are in each other; a document has three");
            return Err((self.line, message));
        }
        let line = self.line;
        let value = match self.peek() {
            Some(b'{') => self.map(level)?,
            Some(b'[') => self.list(level)?,
            Some(b'"') => Value::Quoted(self.text()?),
            _ => self.word()?,
        };
        Ok(Node { line, value })
    }

    fn list(&mut self, level: usize) -> Result<Value, Wrong> {
        self.at += 1;
        let mut items = Vec::new();
        if self.passes(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(level + 1)?);
            if !self.passes(b',') {
                self.expect(b']', "`,` or `]`")?;
                return Ok(Value::List(items));
            }
        }
    }

    fn map(&mut self, level: usize) -> Result<Value, Wrong> {
        self.at += 1;
        let mut entries: Vec<Entry> = Vec::new();
        if self.passes(b'}') {
            return Ok(Value::Map(entries));
        }
        loop {
            self.blank();
            let line = self.line;
            if self.peek() != Some(b'"') {
                return self.wrong("the name of a field, in quotes,");
            }
            let name = self.text()?;
            self.expect(b':', "`:`")?;
            let node = self.value(level + 1)?;
            match entries.iter().find(|entry| entry.name == name) {
                Some(other) => {
                    let message = format!("{name:?} is in line {}, too; leave one of them", other.line);
                    self.wrong.push((line, message));
                }
                None => entries.push(Entry { name, line, node }),
            }
            if entries.len() > MAX_FIELDS {
                return Err((line, format!("more than {MAX_FIELDS} fields are in one map")));
            }
            if !self.passes(b',') {
                self.expect(b'}', "`,` or `}`")?;
                return Ok(Value::Map(entries));
            }
        }
    }

    /// A text in quotes.
    fn text(&mut self) -> Result<String, Wrong> {
        let rest = self.rest();
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let quoted = end.and_then(|end| rest.get(..end + 2));
        let Some(quoted) = quoted else {
            return Err((self.line, "not JSON: a text has no end; is the file cut off?".to_owned()));
        };
        let text = serde_json::from_str(quoted)
            .map_err(|error| (self.line, format!("not JSON: in a text, {error}")))?;
        self.at += quoted.len();
        Ok(text)
    }

    /// A number, `null`, `true` or `false`.
    fn word(&mut self) -> Result<Value, Wrong> {
        let rest = self.rest();
        let ends = |byte: u8| !(byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let word = rest.get(..rest.bytes().position(ends).unwrap_or(rest.len())).unwrap_or_default();
        let value = match serde_json::from_str(word) {
            Ok(serde_json::Value::Null) => Value::Null,
            Ok(_) => Value::Plain(word.to_owned()),
            Err(_) => return self.wrong("a value"),
        };
        self.at += word.len();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_lines_are_read() {
        let text = "\n[{\"a\": 1,\n \"b\": \"\\ud83d\\ude00 \\\"\\\\\"}, null]\n{\"c\":{}}\n";
        let values = values(text).unwrap();
        let [Node { value: Value::List(items), line: 2 }, Node { value: Value::Map(second), line: 4 }] =
            &values[..]
        else {
            panic!("{values:?}")
        };
        let Value::Map(first) = &items[0].value else { panic!() };
        assert_eq!((first[0].line, &first[0].node.value), (2, &Value::Plain("1".into())));
        assert_eq!((first[1].line, &first[1].node.value), (3, &Value::Quoted("\u{1F600} \"\\".into())));
        assert_eq!((&items[1].value, second[0].name.as_str()), (&Value::Null, "c"));
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_line() {
        for (text, line, said) in [
            ("{\"a\":\n", 2, "the end is; is the file cut off"),
            ("{\"a\": \"b", 1, "a text has no end"),
            ("{\"a\":1,}", 1, "the name of a field"),
            ("[1 2]", 1, "`,` or `]`"),
            ("{\"a\":1,\n\"a\":2}", 2, "\"a\" is in line 1, too"),
            ("{a: 1}", 1, "the name of a field"),
            ("[01]", 1, "a value"),
            ("[\"\\x\"]", 1, "in a text"),
            ("[tru]", 1, "a value"),
        ] {
            let wrong = values(text).unwrap_err();
            assert!(wrong[0].0 == line && wrong[0].1.contains(said), "{text:?}: {wrong:?}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(values(&deep).unwrap_err()[0].1.contains("in each other"));
        let wide = format!("[{}1]", "1,".repeat(MAX_NODES));
        assert!(values(&wide).unwrap_err()[0].1.contains("values"));
    }
}
