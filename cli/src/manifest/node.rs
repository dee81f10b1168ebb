//! A document as a tree, each part with its line.

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// The line, from 1.
    pub(crate) line: usize,
    pub(crate) value: Value,
}

/// A value as it is written: whether `5` is a number or a text is its field's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing, `null` or `~`.
    Null,
    /// Without quotes.
    Plain(String),
    /// A text in quotes, or a block.
    Quoted(String),
    List(Vec<Node>),
    /// Entries in their order. No name is there twice.
    Map(Vec<Entry>),
}

/// A field of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The line of the name.
    pub(crate) line: usize,
    pub(crate) node: Node,
}

impl Value {
    /// What it is, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Plain(_) | Self::Quoted(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    /// How many nodes it has, itself included.
    pub(crate) fn count(&self) -> usize {
        let below: usize = match &self.value {
            Value::List(items) => items.iter().map(Self::count).sum(),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.count()).sum(),
            Value::Null | Value::Plain(_) | Value::Quoted(_) => 0,
        };
        below + 1
    }
}
