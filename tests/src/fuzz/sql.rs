//! TiDB's SQL: any text is read or refused with a reason, what is not recognised as ours is not read as ours, and a
//! definition that is printed is read back as itself.
//!
//! An input is a byte for the dialect and a text.

use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Statement, create_group_text, may_be_ours};

/// Longest message: a reason quotes the text it is about, in part.
const LONGEST_REASON: usize = 4_096;

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    let Some((first, text)) = bytes.split_first() else { return };
    let dialect = if first & 1 == 0 { SqlDialect::PostgreSql } else { SqlDialect::MySql };
    let recognised = may_be_ours(text);
    let Ok(text) = std::str::from_utf8(text) else { return };
    match Statement::parse(text, dialect) {
        Ok(None) => {}
        Ok(Some(statement)) => {
            assert!(recognised, "{statement:?} is not recognised");
            if let Statement::CreateGroup { group, .. } = &statement {
                let printed = create_group_text(group, dialect);
                let again = Statement::parse(&printed, dialect).expect("what was printed is read");
                let group = match again {
                    Some(Statement::CreateGroup { group, .. }) => Some(group),
                    _ => None,
                };
                let group = group.expect("what was printed makes a group");
                assert_eq!(create_group_text(&group, dialect), printed, "printed again");
            }
        }
        Err(reason) => {
            assert!(recognised, "{reason} about a text that is not recognised");
            let reason = reason.to_string();
            assert!(!reason.is_empty() && reason.len() <= LONGEST_REASON, "{} bytes", reason.len());
        }
    }
}
