//! A statement of ours, read from text.

use sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;

use crate::cursor::Cursor;
use crate::error::{SqlError, cut};
use crate::grammar;
use crate::recognise::{begins_as_ours, may_be_ours};
use crate::tables::Select;
use crate::tokens::{range, statements, tokenise};

/// Longest text that is read, in bytes: room for a statement quoted in `QUERY WATCH ADD`. Longer ones of ours are
/// refused; a longer one that only might be ours goes to the database.
pub const MAX_TEXT: usize = 256 * 1024;

/// Words at the beginning of a `CREATE` among which its kind is looked for.
const HEAD: usize = 24;

/// A statement for tidegate. Names of groups are in lower case.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `CREATE RESOURCE GROUP`.
    CreateGroup {
        /// The definition; what is not given is empty, which is the controller's default.
        group: Box<v1::Group>,
        /// A group of this name is no error.
        if_not_exists: bool,
    },
    /// `ALTER RESOURCE GROUP`.
    AlterGroup {
        /// Name and new values.
        group: Box<v1::Group>,
        /// The fields that change, as the admin API names them.
        fields: Vec<&'static str>,
        /// A missing group is no error.
        if_exists: bool,
    },
    /// `ALTER RESOURCE GROUP .. PROPOSE`.
    Propose {
        /// Name and proposed values.
        group: Box<v1::Group>,
        /// The fields that would change, as the admin API names them.
        fields: Vec<&'static str>,
    },
    /// `ALTER RESOURCE GROUP .. APPLY PROPOSAL`.
    ApplyProposal {
        /// The group.
        name: String,
    },
    /// `ALTER RESOURCE GROUP .. WITHDRAW PROPOSAL`.
    WithdrawProposal {
        /// The group.
        name: String,
    },
    /// `SHOW RESOURCE GROUP PROPOSAL`.
    ShowProposal {
        /// The group.
        name: String,
    },
    /// `DROP RESOURCE GROUP`.
    DropGroup {
        /// The group.
        name: String,
        /// A missing group is no error.
        if_exists: bool,
    },
    /// `SHOW CREATE RESOURCE GROUP`.
    ShowCreateGroup {
        /// The group.
        name: String,
    },
    /// `SHOW RESOURCE GROUPS`.
    ShowGroups,
    /// `SET RESOURCE GROUP`, for the session.
    SetGroup {
        /// The group.
        name: String,
    },
    /// `SELECT CURRENT_RESOURCE_GROUP()`.
    CurrentGroup {
        /// Name of the column.
        column: String,
    },
    /// `ALTER USER .. RESOURCE GROUP` and `ALTER DATABASE .. RESOURCE GROUP`.
    Bind {
        /// The user or database.
        principal: Principal,
        /// The group; `default` removes the binding.
        group: String,
    },
    /// `QUERY WATCH ADD`.
    AddWatch {
        /// The group; `None` is the session's.
        group: Option<String>,
        /// "dryrun", "cooldown", "kill" or "switch_group"; empty is the action of the group's limit.
        action: String,
        /// The group of the action "switch_group".
        switch_group: String,
        /// What is watched.
        watched: WatchedText,
        /// How long it lasts, in microseconds; `None` for ever.
        watch_us: Option<u64>,
    },
    /// `QUERY WATCH REMOVE` with a number.
    RemoveWatch {
        /// The watch.
        id: u64,
    },
    /// `QUERY WATCH REMOVE RESOURCE GROUP`.
    RemoveWatches {
        /// The group.
        group: String,
    },
    /// `TRUNCATE TABLE tidegate.statements`.
    ResetStatements,
    /// `EXPLAIN RU`, with the statement to run, which is the database's. Only a gateway in front of the database runs
    /// it.
    ExplainRu(String),
    /// A SELECT from tables of ours.
    Select(Select),
}

/// The tenant and user of a binding. At least one of them is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principal {
    /// The tenant, which is a database in SQL; empty for a user in any.
    pub tenant: String,
    /// The user; empty for everyone of the tenant.
    pub user: String,
}

/// The statement that a watch covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedText {
    /// "exact" or "similar".
    pub matching: &'static str,
    /// 64 or 16 hexadecimal digits.
    pub digest: String,
    /// The template, for people; empty when only the digest is known.
    pub template: String,
}

impl Statement {
    /// Reads `text`. `None` means that it is not ours and goes to the database as it is; an error means that it is
    /// ours and wrong.
    pub fn parse(text: &str, dialect: SqlDialect) -> Result<Option<Self>, SqlError> {
        if !may_be_ours(text.as_bytes()) {
            return Ok(None);
        }
        let certain = begins_as_ours(text.as_bytes());
        if text.len() > MAX_TEXT {
            return if certain {
                Err(SqlError::TooLong { bytes: text.len(), limit: MAX_TEXT })
            } else {
                Ok(None)
            };
        }
        let tokens = match tokenise(text, dialect) {
            Ok(tokens) => tokens,
            Err(error) if certain => return Err(error),
            Err(_) => return Ok(None),
        };
        match statements(&tokens).as_slice() {
            [] => Ok(None),
            [only] => grammar::statement(Cursor::new(text, only, dialect)),
            [first, ..] if holds_statements(first) => Ok(None),
            several => {
                let ours = |part: &&&[TokenWithSpan]| {
                    !matches!(grammar::statement(Cursor::new(text, part, dialect)), Ok(None))
                };
                let Some(part) = several.iter().find(ours) else { return Ok(None) };
                let statement = range(text, part).and_then(|range| text.get(range)).unwrap_or_default();
                Err(SqlError::Several { statement: cut(statement) })
            }
        }
    }
}

/// Whether a statement is the beginning of a body, whose semicolons do not end it: `CREATE PROCEDURE ..`.
fn holds_statements(tokens: &[TokenWithSpan]) -> bool {
    const BODIES: [&str; 5] = ["PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"];
    let mut words = tokens.iter().filter_map(|token| match &token.token {
        Token::Word(Word { value, quote_style: None, .. }) => Some(value),
        _ => None,
    });
    words.next().is_some_and(|first| first.eq_ignore_ascii_case("CREATE"))
        && words.take(HEAD).any(|word| BODIES.iter().any(|body| word.eq_ignore_ascii_case(body)))
}
