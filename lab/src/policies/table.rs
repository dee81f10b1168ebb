//! A table of figures: as text, as JSON, as HTML.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::frame::{escaped, grouped};

/// Columns with a name each, and rows of cells.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Without a row.
    pub fn new<C: Into<String>>(columns: impl IntoIterator<Item = C>) -> Self {
        Self { columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// One row more.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// What a row says in a column; the row is named by its first cell.
    pub fn cell(&self, row: &str, column: &str) -> Option<&str> {
        let column = self.columns.iter().position(|name| name == column)?;
        let row = self.rows.iter().find(|cells| cells.first().is_some_and(|first| first == row))?;
        row.get(column).map(String::as_str)
    }

    /// Columns of equal width, numbers at their right.
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.columns).chain(&self.rows);
        let width = |column: usize| {
            lines().filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for cells in lines() {
            let padded = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            let _ = writeln!(text, "  {}", padded.collect::<Vec<_>>().join("  ").trim_end());
        }
        text
    }

    /// A list of rows, each with the columns' names; numbers are numbers.
    pub fn json(&self) -> Value {
        let value = |cell: &String| {
            let plain = cell.replace(',', "");
            plain.parse::<i64>().map(Value::from).or_else(|_| plain.parse::<f64>().map(Value::from))
        };
        let row = |cells: &Vec<String>| {
            let pairs = self.columns.iter().zip(cells);
            let pairs = pairs.map(|(name, cell)| {
                (name.clone(), value(cell).unwrap_or_else(|_| Value::from(cell.as_str())))
            });
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        Value::Array(self.rows.iter().map(row).collect())
    }

    /// A `table` element.
    pub fn html(&self) -> String {
        let line = |tag: &str, cells: &[String]| {
            let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let rows: String = self.rows.iter().map(|cells| line("td", cells)).collect();
        format!("<table>\n{}{rows}</table>\n", line("th", &self.columns))
    }
}

/// 12,345.
pub fn thousands(number: u64) -> String {
    grouped(&number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_the_same_in_every_form() {
        let mut table = Table::new(["policy", "most in a minute"]);
        table.row(["a <b>".to_owned(), thousands(1_200)]);
        table.row(["c", "2.5"]);
        assert_eq!(
            table.text(),
            "  policy  most in a minute\n  a <b>              1,200\n  c                    2.5\n"
        );
        let json = r#"[{"policy":"a <b>","most in a minute":1200},{"policy":"c","most in a minute":2.5}]"#;
        assert_eq!(table.json(), json.parse::<Value>().unwrap());
        assert!(table.html().contains("<tr><td>a &lt;b&gt;</td><td>1,200</td></tr>"));
        assert_eq!(table.cell("c", "most in a minute"), Some("2.5"));
    }
}
