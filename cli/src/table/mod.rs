//! Text tables with aligned columns: numbers to the right, words to the left, two blanks between.
//!
//! A table fits the width it is given: titles go over several lines, texts are cut or go on below, and then whole
//! columns leave, step by step. Numbers are never cut. Without a width it is laid out in full.

mod cell;
mod column;
mod laid;

#[cfg(test)]
pub(crate) use cell::width;
pub(crate) use cell::{Cell, Tone, cut_end, wrapped};
pub(crate) use column::Column;
pub(crate) use laid::{Laid, Span};

/// A table under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these columns; a title that begins with `>` is one of numbers.
    pub(crate) fn new<C: Into<Column>>(columns: impl IntoIterator<Item = C>) -> Self {
        Self { columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row; a cell that is empty shows as `-`.
    pub(crate) fn row<T: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds a row of which some cells have a tone.
    pub(crate) fn cells(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.row(cells);
    }
}
