//! What a command shows to people: texts and tables, one below the other, laid out when it is known on what.

use crate::plain;
use crate::screen::Screen;
use crate::table::{Laid, Span, Table, Tone, wrapped};

/// Texts and tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page(Vec<Block>);

#[derive(Clone, Debug)]
enum Block {
    Text(String),
    Table(Table),
}

impl From<String> for Page {
    fn from(text: String) -> Self {
        Self(vec![Block::Text(text)])
    }
}

impl From<&str> for Page {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Table> for Page {
    fn from(table: Table) -> Self {
        Self(vec![Block::Table(table)])
    }
}

impl Page {
    /// The page with `more` below it.
    pub(crate) fn then(mut self, more: impl Into<Self>) -> Self {
        self.0.extend(more.into().0);
        self
    }

    /// The lines for `screen`; `wide` shows every column.
    pub(crate) fn lines(&self, screen: &Screen, wide: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for block in &self.0 {
            match block {
                Block::Text(text) if screen.is_terminal => {
                    lines.extend(plain::lines(text).split('\n').map(str::to_owned));
                }
                Block::Text(text) => lines.extend(text.split('\n').map(str::to_owned)),
                Block::Table(table) => laid_lines(&table.laid(screen.columns, wide), screen, &mut lines),
            }
        }
        lines
    }

    /// The lines with every column, and one blank between words, whatever the widths.
    #[cfg(test)]
    pub(crate) fn words(&self) -> Vec<String> {
        let lines = self.lines(&Screen::default(), true).into_iter();
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }
}

fn laid_lines(laid: &Laid, screen: &Screen, lines: &mut Vec<String>) {
    lines.extend(laid.head.iter().chain(laid.rows.iter().flatten()).map(|line| painted(line, screen.color)));
    if !laid.hidden.is_empty() {
        let note = format!("(no room for {}; -o wide shows all)", laid.hidden.join(", "));
        let note = screen.columns.map_or_else(|| vec![note.clone()], |columns| wrapped(&note, columns));
        lines.extend(
            note.iter().map(|line| if screen.color { Tone::Faint.paint(line) } else { line.clone() }),
        );
    }
}

/// A line with or without its tones.
pub(crate) fn painted(line: &[Span], color: bool) -> String {
    line.iter().map(|span| if color { span.tone.paint(&span.text) } else { span.text.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Cell, Column};

    fn page() -> Page {
        let mut table = Table::new([Column::name("WHO"), Column::number("RU TOTAL").leaves(1)]);
        table.cells([Cell::from("ann\u{202e}\n"), Cell::warns(7)]);
        Page::from("of \u{1b}[2Jall").then(table)
    }

    #[test]
    fn colours_and_escapes_are_for_those_who_see_them() {
        let file = page().lines(&Screen::default(), false);
        assert_eq!(file, ["of \u{1b}[2Jall", "WHO            RU TOTAL", "ann\\u{202e}\\n         7"]);
        let screen = Screen { columns: Some(80), rows: None, color: true, is_terminal: true };
        let seen = page().lines(&screen, false);
        assert_eq!(
            seen,
            [
                "of \\u{1b}[2Jall",
                "\u{1b}[1mWHO\u{1b}[0m            \u{1b}[1mRU TOTAL\u{1b}[0m",
                "ann\\u{202e}\\n         \u{1b}[33m7\u{1b}[0m"
            ]
        );
    }

    #[test]
    fn what_has_no_room_is_named() {
        let screen = Screen { columns: Some(12), ..Screen::default() };
        assert_eq!(
            page().lines(&screen, false)[1..],
            ["WHO", "ann\\u{…2e}\\n", "(no room for", "RU TOTAL; -o", "wide shows", "all)"]
        );
    }
}
