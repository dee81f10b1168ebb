//! Text tables with aligned columns: numbers to the right, words to the left, two blanks between.

/// A table under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
struct Column {
    title: String,
    right: bool,
}

impl Table {
    /// A table with these headers. One that begins with `>` is a column of numbers.
    pub(crate) fn new(headers: &[&str]) -> Self {
        let column = |header: &&str| Column {
            title: header.trim_start_matches('>').to_owned(),
            right: header.starts_with('>'),
        };
        Self { columns: headers.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row; a cell that is empty shows as `-`.
    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let shown = |cell: T| {
            let cell: String = cell.into();
            if cell.is_empty() { "-".to_owned() } else { cell }
        };
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// The text, one line per row, without blanks at the ends of lines.
    pub(crate) fn text(&self) -> String {
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.clone()).collect();
        let lines = || std::iter::once(&titles).chain(&self.rows);
        let width = |index: usize| {
            let cells = lines().filter_map(|line| line.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for line in lines() {
            let mut shown = String::new();
            for ((cell, width), column) in line.iter().zip(&widths).zip(&self.columns) {
                if !shown.is_empty() {
                    shown.push_str("  ");
                }
                let width = *width;
                if column.right {
                    shown.push_str(&format!("{cell:>width$}"));
                } else {
                    shown.push_str(&format!("{cell:<width$}"));
                }
            }
            text.push_str(shown.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Most characters of a text in a cell.
const LONGEST_TEXT: usize = 80;

/// The start of a text that others wrote, on one line and without characters that would move the cursor.
pub(crate) fn one_line(text: &str) -> String {
    let blank = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(LONGEST_TEXT).map(blank).collect();
    if text.chars().nth(LONGEST_TEXT).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_stand_right() {
        let mut table = Table::new(&["GROUP", ">RU/s", "NOTE"]);
        table.row(["a", "5", "x"]);
        table.row(["long-name", "12000", ""]);
        assert_eq!(table.text(), "GROUP       RU/s  NOTE\na              5  x\nlong-name  12000  -\n");
    }

    #[test]
    fn texts_of_others_stay_on_one_line() {
        assert_eq!(one_line("a\n\u{1b}[2Jb"), "a  [2Jb");
        assert_eq!(one_line(&"ä".repeat(100)).chars().count(), LONGEST_TEXT + 1);
    }
}
