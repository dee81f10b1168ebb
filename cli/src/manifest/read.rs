//! From text to trees: YAML 1.2, which JSON is a part of.
//!
//! The parser gives events; they are taken one by one, and the first that passes a limit ends it. An alias is a copy, and
//! counts as one, so that a few lines that double each other ten times are refused like a text of that length. A name that
//! is there twice is refused: readers of YAML differ in which one they take. Texts stay as they are written.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::fault::Fault;
use super::json;
use super::limits::{MAX_FIELDS, MAX_LEVELS, MAX_NODES};
use super::node::{Entry, Node, Value};
use super::source::Source;

/// Signs that end a line in YAML 1.1 and not in YAML 1.2: readers would differ in what a text says.
pub(super) const DISPUTED: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// YAML's mark for the end of a document, behind which a stream may end.
const END: &str = "...";

/// What was read of a text.
pub(super) struct Documents {
    /// The documents that hold something.
    pub(super) nodes: Vec<Node>,
    is_json: bool,
}

/// Reads a text. What is not YAML ends the reading; duplicate names do not.
pub(super) fn documents(source: &Source) -> Result<Documents, Vec<Fault>> {
    let fault = |line: usize, message: String| Fault {
        file: source.name.clone(),
        line,
        place: String::new(),
        message,
    };
    let text = source.text.trim_start_matches('\u{feff}');
    if json::begins(text) {
        match json::values(text) {
            Ok(nodes) => return Ok(Documents { nodes, is_json: true }),
            // YAML may begin so, too.
            Err(wrong) if source.name.ends_with(".json") => {
                return Err(wrong.into_iter().map(|(line, message)| fault(line, message)).collect());
            }
            Err(_) => {}
        }
    }
    if let Some(line) = cut_off(text) {
        let message = "the last line has no end; is the file cut off? end it with a line end".to_owned();
        return Err(vec![fault(line, message)]);
    }
    if let Some((at, sign)) = text.char_indices().find(|(_, sign)| DISPUTED.contains(sign)) {
        let line = text.get(..at).unwrap_or_default().lines().count().max(1);
        let code = u32::from(sign);
        let message = format!(
            "U+{code:04X} ends a line for some readers only; write it in quotes, as \"\\u{code:04x}\""
        );
        return Err(vec![fault(line, message)]);
    }
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let taken = next.map_err(|error| syntax(&error)).and_then(|(event, span)| builder.take(event, span));
        if let Err(wrong) = taken {
            builder.wrong.push(wrong);
            break;
        }
    }
    if builder.wrong.is_empty() {
        return Ok(Documents { nodes: builder.documents, is_json: false });
    }
    Err(builder.wrong.into_iter().map(|Wrong { line, message }| fault(line, message)).collect())
}

/// The fault of a text that would still be read if it had been cut off between two lines. `read` is what was read of
/// it.
pub(super) fn unended(source: &Source, read: Option<&Documents>) -> Option<Fault> {
    let text = source.text.trim_start_matches('\u{feff}').trim_end();
    let message = match read.filter(|read| read.is_json) {
        Some(values) if values.nodes.len() < 2 => return None,
        Some(_) => "more than one value is in it, and the end of the last need not be the end of the file",
        _ if text.lines().last() == Some(END) => return None,
        _ => "nothing shows where it ends",
    };
    let remedy = "what a file that is cut off lacks would be deleted; end YAML with a line `...`, and put JSON in one list";
    Some(Fault {
        file: source.name.clone(),
        line: text.lines().count(),
        place: String::new(),
        message: format!("{message}: {remedy}"),
    })
}

/// The last line of a text that may have been cut in its middle. Brackets show by themselves that they are closed.
fn cut_off(text: &str) -> Option<usize> {
    let closed = text.is_empty() || text.ends_with(['\n', '\r', '}', ']']);
    (!closed).then(|| text.lines().count())
}

/// What is wrong with a text at a line.
struct Wrong {
    line: usize,
    message: String,
}

fn syntax(error: &ScanError) -> Wrong {
    let info = error.info();
    if info.contains("recursion limit") {
        return too_deep(error.marker().line());
    }
    let hint = if info.contains("tab") { "; indent with blanks, as YAML takes no tabs there" } else { "" };
    let column = error.marker().col() + 1;
    Wrong { line: error.marker().line(), message: format!("not YAML at column {column}: {info}{hint}") }
}

fn too_deep(line: usize) -> Wrong {
    let message = format!("more than {MAX_LEVELS} lists and maps are in each other; a document has three");
    Wrong { line, message }
}

/// A list or a map that is not closed yet.
struct Open {
    line: usize,
    anchor: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    /// The fields, and the name that waits for its value.
    Map(Vec<Entry>, Option<(String, usize)>),
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    documents: Vec<Node>,
    wrong: Vec<Wrong>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Wrong> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(tag.is_some(), line)?;
                self.finish(Node { line, value: scalar(text.into_owned(), style) }, anchor)
            }
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor);
                let message = "this alias stands for a part that it is in itself, or for none".to_owned();
                let node = known.ok_or(Wrong { line, message })?;
                // Counted before it is copied.
                self.nodes = self.nodes.saturating_add(node.count());
                self.check_room(line)?;
                let value = node.value.clone();
                self.finish(Node { line, value }, 0)
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.is_some(), line)?;
                self.open(Open { line, anchor, inside: Inside::List(Vec::new()) })
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.is_some(), line)?;
                self.open(Open { line, anchor, inside: Inside::Map(Vec::new(), None) })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = match open.inside {
                    Inside::List(items) => Value::List(items),
                    Inside::Map(entries, _) => Value::Map(entries),
                };
                self.finish(Node { line: open.line, value }, open.anchor)
            }
            Event::DocumentStart(_) => {
                self.anchors.clear();
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn open(&mut self, open: Open) -> Result<(), Wrong> {
        if self.open.len() >= MAX_LEVELS {
            return Err(too_deep(open.line));
        }
        self.open.push(open);
        Ok(())
    }

    fn check_room(&self, line: usize) -> Result<(), Wrong> {
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let message = format!(
            "more than {MAX_NODES} values, aliases counted with what they stand for; apply a part of it at a time"
        );
        Err(Wrong { line, message })
    }

    /// A value is whole: it goes where it belongs.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Wrong> {
        self.nodes = self.nodes.saturating_add(1);
        self.check_room(node.line)?;
        if anchor != 0 {
            // It is held twice.
            self.nodes = self.nodes.saturating_add(node.count());
            self.check_room(node.line)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.inside) {
            None if node.value == Value::Null => {}
            None => self.documents.push(node),
            Some(Inside::List(items)) => items.push(node),
            Some(Inside::Map(entries, waiting)) => match waiting.take() {
                Some((name, line)) => {
                    match entries.iter().find(|entry| entry.name == name) {
                        Some(other) => {
                            let message =
                                format!("{name:?} is in line {}, too; leave one of them", other.line);
                            self.wrong.push(Wrong { line, message });
                        }
                        None => entries.push(Entry { name, line, node }),
                    }
                    if entries.len() > MAX_FIELDS {
                        let message = format!("more than {MAX_FIELDS} fields are in one map");
                        return Err(Wrong { line, message });
                    }
                }
                None => *waiting = Some(name_of(node)?),
            },
        }
        Ok(())
    }
}

/// A node that names a field.
fn name_of(node: Node) -> Result<(String, usize), Wrong> {
    let line = node.line;
    match node.value {
        Value::Plain(name) | Value::Quoted(name) => Ok((name, line)),
        other => Err(Wrong { line, message: format!("{} cannot name a field", other.kind()) }),
    }
}

fn refuse_tag(tagged: bool, line: usize) -> Result<(), Wrong> {
    let message = "tags (!) are not understood; each field knows what it takes".to_owned();
    if tagged { Err(Wrong { line, message }) } else { Ok(()) }
}

fn scalar(text: String, style: ScalarStyle) -> Value {
    match style {
        ScalarStyle::Plain if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL") => Value::Null,
        ScalarStyle::Plain => Value::Plain(text),
        _ => Value::Quoted(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Node>, Fault> {
        let read = documents(&Source { name: "f".into(), text: text.into() });
        read.map(|read| read.nodes).map_err(|faults| faults[0].clone())
    }

    fn refused(text: &str) -> String {
        read(text).map(|read| panic!("{read:?}")).unwrap_err().to_string()
    }

    #[test]
    fn documents_and_their_lines_are_read() {
        let documents = read("# first\na: 5\nb: \"5\"\n---\n---\n- c: ~\n  d: [x, y]\n...\n").unwrap();
        let [Node { value: Value::Map(first), line: 2 }, Node { value: Value::List(second), .. }] =
            &documents[..]
        else {
            panic!("{documents:?}")
        };
        assert_eq!((first[0].name.as_str(), &first[0].node.value), ("a", &Value::Plain("5".into())));
        assert_eq!((first[1].line, &first[1].node.value), (3, &Value::Quoted("5".into())));
        let Value::Map(item) = &second[0].value else { panic!() };
        assert_eq!((&item[0].node.value, item[1].node.line), (&Value::Null, 7));
        assert_eq!(read(r#"{"a":"b\n\u00e9","c":[1]}"#).unwrap()[0].count(), 4);
        assert!(read("\u{feff}a: 1\n").is_ok() && read("# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_definition_is_refused_with_its_line() {
        for (text, line, said) in [
            ("a: 1\nb: 2\na: 3\n", 3, "\"a\" is in line 1, too"),
            ("a:\n\tb: 1\n", 2, "tab"),
            ("a: 1\nb: [1, 2\n", 3, "not YAML"),
            ("{\"a\": 1, \"b\": \"x", 1, "cut off"),
            ("a: 1\nb: 20", 2, "cut off"),
            ("a: !!str 5\n", 1, "tags"),
            ("a: !x {b: 1}\n", 1, "tags"),
            ("a: *b\n", 1, "not YAML"),
            ("a: &b [*b]\n", 1, "alias"),
            ("? [a]\n: 1\n", 1, "a list cannot name"),
            ("a: 1\nb: \"x\u{2028}y\"\n", 2, "\\u2028"),
        ] {
            let fault = read(text).unwrap_err();
            let fits = fault.line.abs_diff(line) <= 1 && fault.to_string().contains(said);
            assert!(fits, "{text:?}: {fault}");
        }
        let deep = format!("{}{}\n", "[".repeat(MAX_LEVELS + 1), "]".repeat(MAX_LEVELS + 1));
        assert!(refused(&deep).contains("in each other"));
        assert!(refused(&"[".repeat(100_000)).contains("cut off"));
        assert!(refused(&format!("{}\n", "[".repeat(100_000))).contains("in each other"));
    }

    #[test]
    fn a_text_shows_its_end_where_nothing_can_follow() {
        let fault = |text: &str| {
            let source = Source { name: "f".into(), text: text.into() };
            unended(&source, documents(&source).ok().as_ref())
        };
        for text in
            ["a: 1\n...\n", "a: 1\n---\nb: 2\n...", "...\n\n", "{\"a\": 1}\n", "[{}, {}]", "{a: [b]}\n...\n"]
        {
            assert_eq!(fault(text).map(|fault| fault.to_string()), None, "{text:?}");
        }
        for text in [
            "",
            "a: 1\n",
            "a: 1\n...\nb: 2\n",
            "a: ...\n",
            " ...\n",
            "{\"a\": 1}\n{\"a\": 2}\n",
            "{a: [b]}\n",
        ] {
            assert!(fault(text).is_some_and(|fault| fault.to_string().contains("`...`")), "{text:?}");
        }
    }

    #[test]
    fn aliases_count_as_what_they_stand_for() {
        assert_eq!(read("a: &x [1, 2]\nb: *x\n").unwrap()[0].count(), 7);
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let below = level - 1;
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{below}"); 10].join(", ")));
        }
        assert!(refused(&bomb).contains("aliases counted"));
    }
}
