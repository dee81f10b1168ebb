//! What a statement gives: nothing but a note, a table, or a change of the session.

/// The answer to a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Done.
    Done {
        /// Things that changed.
        affected: u64,
        /// Notes and the controller's warnings, a line each.
        notes: Vec<String>,
    },
    /// Rows.
    Table(Table),
    /// The session changes from now on; its owner applies this.
    Session(SessionChange),
}

/// A change of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// The session is charged to this group, which exists.
    SetGroup(String),
}

/// Rows with typed columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// A value per column in each row.
    pub rows: Vec<Vec<Value>>,
    /// Notes beside it, such as that rows were left out.
    pub notes: Vec<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The kind of its values, unless they are null.
    pub kind: Kind,
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Text.
    Text,
    /// 64-bit integers with a sign.
    Int,
    /// The same, sent to MySQL's clients as 32 bits, as its servers do.
    Int32,
    /// 64-bit floating point numbers; amounts of RU are decimals to a millionth.
    Float,
    /// UTC, as text: `2026-01-31 23:59:58.250`.
    Timestamp,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A number in a column of [`Kind::Int`] or [`Kind::Int32`].
    Int(i64),
    /// A number in a column of [`Kind::Float`].
    Float(f64),
    /// A text in a column of [`Kind::Text`] or [`Kind::Timestamp`].
    Text(String),
}

impl Answer {
    /// Done, without notes.
    pub(crate) fn done(affected: u64) -> Self {
        Self::Done { affected, notes: Vec::new() }
    }

    /// Nothing to do, with a note that says why.
    pub(crate) fn note(note: impl Into<String>) -> Self {
        Self::Done { affected: 0, notes: vec![note.into()] }
    }
}

impl Table {
    /// A table of text, of one row.
    pub(crate) fn of_texts<const N: usize>(columns: [(&str, String); N]) -> Self {
        let (columns, row) = columns
            .into_iter()
            .map(|(name, value)| (Column { name: name.to_owned(), kind: Kind::Text }, Value::Text(value)))
            .unzip();
        Self { columns, rows: vec![row], notes: Vec::new() }
    }
}
