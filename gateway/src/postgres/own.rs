//! Answers to the gateway's own statements in PostgreSQL's messages.

use tidegate_sql::{Answer, Statement, Table};

use super::message::{command_complete, data_row, no_data, no_parameters, notice, row_description};

/// Whether the answer is rows, whose columns a client may ask for before.
pub(super) fn gives_rows(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::ShowCreateGroup { .. }
            | Statement::ShowGroups
            | Statement::ShowProposal { .. }
            | Statement::CurrentGroup { .. }
            | Statement::AddWatch { .. }
            | Statement::Select(_)
    )
}

/// Whether a statement whose answer is rows changes something, so that one that was run to be described is not to be
/// run once more.
pub(super) fn is_done_when_described(statement: &Statement) -> bool {
    matches!(statement, Statement::AddWatch { .. })
}

/// A whole answer to a simple query.
pub(super) fn simple(answer: &Answer, tag: &str) -> Vec<u8> {
    let mut reply = Vec::new();
    if let Answer::Table(table) = answer {
        reply.extend(row_description(&table.columns, &[]));
    }
    reply.extend(executed(answer, tag, &[]));
    reply
}

/// The answer to an `Execute`.
pub(super) fn executed(answer: &Answer, tag: &str, formats: &[bool]) -> Vec<u8> {
    let mut reply = Vec::new();
    match answer {
        Answer::Table(table) => {
            notes(&table.notes, &mut reply);
            reply.extend(rows(table, formats));
        }
        Answer::Done { notes: told, .. } => {
            notes(told, &mut reply);
            reply.extend(command_complete(tag));
        }
        Answer::Session(_) => reply.extend(command_complete(tag)),
    }
    reply
}

/// The answer to a `Describe`; `table` is what the statement will give, if it gives rows.
pub(super) fn described(table: Option<&Table>, parameters: bool, formats: &[bool]) -> Vec<u8> {
    let mut reply = if parameters { no_parameters() } else { Vec::new() };
    match table {
        Some(table) => reply.extend(row_description(&table.columns, formats)),
        None => reply.extend(no_data()),
    }
    reply
}

/// Columns, rows and their end.
pub(super) fn table(table: &Table) -> Vec<u8> {
    [row_description(&table.columns, &[]), rows(table, &[])].concat()
}

/// Rows and their end.
pub(super) fn rows(table: &Table, formats: &[bool]) -> Vec<u8> {
    let mut reply: Vec<u8> = table.rows.iter().flat_map(|row| data_row(row, formats)).collect();
    reply.extend(command_complete(&format!("SELECT {}", table.rows.len())));
    reply
}

fn notes(notes: &[String], reply: &mut Vec<u8>) {
    for note in notes {
        reply.extend(notice(note));
    }
}

#[cfg(test)]
mod tests {
    use tidegate_sql::{Column, Kind, SessionChange, Value};

    use super::*;

    /// The kinds of these messages, and the tag of the last.
    fn kinds(mut messages: &[u8]) -> (String, String) {
        let (mut kinds, mut last) = (String::new(), String::new());
        while let Some((kind, rest)) = messages.split_first() {
            let length = usize::try_from(u32::from_be_bytes(*rest.first_chunk().unwrap())).unwrap();
            kinds.push(char::from(*kind));
            last = String::from_utf8_lossy(&rest[4..length]).trim_end_matches('\0').to_owned();
            messages = &rest[length..];
        }
        (kinds, last)
    }

    fn table_of_two() -> Table {
        Table {
            columns: vec![Column { name: "n".into(), kind: Kind::Int }],
            rows: vec![vec![Value::Int(1)], vec![Value::Null]],
            notes: vec!["one".into(), "two".into()],
        }
    }

    #[test]
    fn answers_have_columns_notes_rows_and_an_end_where_they_belong() {
        let rows = Answer::Table(table_of_two());
        let done = Answer::Done { affected: 1, notes: vec!["one".into()] };
        let session = Answer::Session(SessionChange::SetGroup("g".into()));
        for (answer, in_simple, in_execute, tag) in
            [(&rows, "TNNDDC", "NNDDC", "SELECT 2"), (&done, "NC", "NC", "TAG"), (&session, "C", "C", "TAG")]
        {
            assert_eq!(kinds(&simple(answer, "TAG")), (in_simple.into(), tag.into()));
            assert_eq!(kinds(&executed(answer, "TAG", &[])), (in_execute.into(), tag.into()));
        }
        assert_eq!(kinds(&table(&table_of_two())), ("TDDC".into(), "SELECT 2".into()));
    }

    #[test]
    fn a_description_has_parameters_of_a_statement_only_and_columns_if_there_are_rows() {
        let table = table_of_two();
        for (table, parameters, expected) in
            [(Some(&table), true, "tT"), (Some(&table), false, "T"), (None, true, "tn"), (None, false, "n")]
        {
            assert_eq!(kinds(&described(table, parameters, &[])).0, expected);
        }
    }

    #[test]
    fn statements_that_give_rows_have_to_run_to_be_described() {
        let name = || "g".to_owned();
        for (statement, rows) in [
            (Statement::ShowCreateGroup { name: name() }, true),
            (Statement::ShowGroups, true),
            (Statement::ShowProposal { name: name() }, true),
            (Statement::CurrentGroup { column: name() }, true),
            (Statement::SetGroup { name: name() }, false),
            (Statement::ApplyProposal { name: name() }, false),
            (Statement::DropGroup { name: name(), if_exists: true }, false),
        ] {
            assert_eq!(gives_rows(&statement), rows, "{statement:?}");
        }
    }
}
