//! TiDB's SQL: any text is read or refused with a reason, what is not recognised as ours is not read as ours, and a
//! definition that is printed is read back as itself. What a text says of names is found in it again.
//!
//! An input is a byte for the dialect and a text.

use tidegate_cost_model::{SqlDialect, Template};
use tidegate_sql::{Naming, Statement, create_group_text, may_be_ours, may_name, may_rename};

/// Longest message: a reason quotes the text it is about, in part.
const LONGEST_REASON: usize = 4_096;
/// Longest name of a prepared statement.
const LONGEST_NAME: usize = 64;

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    let Some((first, text)) = bytes.split_first() else { return };
    let dialect = if first & 1 == 0 { SqlDialect::PostgreSql } else { SqlDialect::MySql };
    names(text, dialect, first & 2 == 0);
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

/// A text that is read is one that may be, and has names of a bounded length in it; in MySQL it is one that would
/// give up all names if it were not read.
fn names(text: &[u8], dialect: SqlDialect, escapes: bool) {
    let Some(naming) = Naming::parse(text, dialect, escapes) else { return };
    assert!(may_name(text), "{naming:?} is not recognised");
    let (name, statement) = match &naming {
        Naming::Prepare { name, statement } => (Some(name), statement.as_ref()),
        Naming::Execute { name } | Naming::Forget { name } => (Some(name), None),
        Naming::Immediate { statement } => (None, Some(statement)),
        Naming::ForgetAll => (None, None),
    };
    assert!(name.is_none_or(|name| (1..=LONGEST_NAME).contains(&name.len())), "{naming:?}");
    assert!(statement.is_none_or(|statement| statement.len() <= text.len()), "{naming:?}");
    if dialect == SqlDialect::MySql {
        let template = Template::new(dialect, text);
        assert!(may_rename(template.text()), "{naming:?} of {}", template.text());
    }
}
