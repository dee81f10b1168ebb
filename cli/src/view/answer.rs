//! The answer to a statement of SQL.

use serde::Serialize;
use tidegate_sql::{Answer, Column, Kind, SessionChange, Value};

use crate::page::Page;
use crate::table::{Column as Shown, Table};

/// What a statement gave. Which fields there are depends on the statement.
#[derive(Serialize)]
pub(crate) struct AnswerView<'s> {
    statement: &'s str,
    /// Things that changed; only without a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    affected: Option<u64>,
    /// The columns of a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    columns: Option<Vec<ColumnView>>,
    /// The rows of a table: `null`, numbers and texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<Vec<serde_json::Value>>>,
    /// After SET RESOURCE GROUP.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_group: Option<String>,
    pub(crate) notes: Vec<String>,
}

#[derive(Serialize)]
struct ColumnView {
    name: String,
    /// "text", "int", "float" or "timestamp", which is UTC.
    kind: &'static str,
}

impl<'s> AnswerView<'s> {
    pub(crate) fn new(statement: &'s str, answer: Answer) -> Self {
        let mut view = Self {
            statement,
            affected: None,
            columns: None,
            rows: None,
            session_group: None,
            notes: Vec::new(),
        };
        match answer {
            Answer::Done { affected, notes } => (view.affected, view.notes) = (Some(affected), notes),
            Answer::Session(SessionChange::SetGroup(group)) => view.session_group = Some(group),
            Answer::Table(table) => {
                view.columns = Some(table.columns.into_iter().map(ColumnView::from).collect());
                let cells = |row: Vec<Value>| row.into_iter().map(cell).collect();
                view.rows = Some(table.rows.into_iter().map(cells).collect());
                view.notes = table.notes;
            }
        }
        view
    }

    /// For people.
    pub(crate) fn page(&self) -> Page {
        match (&self.columns, &self.session_group, self.affected) {
            (Some(columns), ..) => self.table(columns).into(),
            (_, Some(group), _) => format!("session group {group}").into(),
            (.., Some(1)) => "ok, 1 changed".into(),
            (.., affected) => format!("ok, {} changed", affected.unwrap_or_default()).into(),
        }
    }

    fn table(&self, columns: &[ColumnView]) -> Table {
        let mut table = Table::new(columns.iter().map(ColumnView::column));
        for row in self.rows.iter().flatten() {
            table.row(row.iter().map(shown));
        }
        table
    }
}

impl From<Column> for ColumnView {
    fn from(column: Column) -> Self {
        let kind = match column.kind {
            Kind::Text => "text",
            Kind::Int | Kind::Int32 => "int",
            Kind::Float => "float",
            Kind::Timestamp => "timestamp",
        };
        Self { name: column.name, kind }
    }
}

impl ColumnView {
    /// Numbers stand to the right. Somebody asked for each column, so none leaves.
    fn column(&self) -> Shown {
        match self.kind {
            "int" | "float" => Shown::number(&self.name),
            _ => Shown::text(&self.name),
        }
    }
}

fn cell(value: Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Int(number) => number.into(),
        Value::Float(number) => number.into(),
        Value::Text(text) => text.into(),
    }
}

/// A cell on one line.
fn shown(cell: &serde_json::Value) -> String {
    match cell {
        serde_json::Value::Null => "NULL".to_owned(),
        serde_json::Value::String(text) => text.replace(['\n', '\r', '\t'], " "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::Screen;

    #[test]
    fn tables_are_aligned_and_json_keeps_types() {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind };
        let table = tidegate_sql::Table {
            columns: vec![column("name", Kind::Text), column("ru", Kind::Float)],
            rows: vec![
                vec![Value::Text("a\nb".to_owned()), Value::Float(0.5)],
                vec![Value::Null, Value::Int(12)],
            ],
            notes: vec![],
        };
        let view = AnswerView::new("select", Answer::Table(table));
        assert_eq!(view.page().lines(&Screen::default(), false), ["name   ru", "a b   0.5", "NULL   12"]);
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["rows"], serde_json::json!([["a\nb", 0.5], [null, 12]]));
        assert_eq!(json["columns"][1]["kind"], "float");
        assert!(json.get("affected").is_none());
    }
}
