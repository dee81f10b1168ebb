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
