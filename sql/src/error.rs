//! Why a statement was not done: a text for people, and a [`Code`] for programs.

use crate::code::Code;

/// A statement that is one of ours and was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// The text does not follow the grammar.
    #[error("syntax error at line {line}, column {column}, near {near:?}: {expected}")]
    Syntax {
        /// Line, from 1.
        line: u64,
        /// Character within the line, from 1.
        column: u64,
        /// Character within the text, from 1, as PostgreSQL reports it.
        position: usize,
        /// The text there, cut to a readable length; empty at the end of the text.
        near: String,
        /// What should stand there.
        expected: String,
    },
    /// The text is longer than tidegate reads.
    #[error("the statement has {bytes} bytes, and tidegate reads {limit}; shorten it")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// One of several statements in a text is ours.
    #[error(
        "a text with several statements holds one for tidegate: {statement:?}; send that alone, since the others \
         go to the database"
    )]
    Several {
        /// Its beginning.
        statement: String,
    },
    /// The grammar knows it, tidegate does not do it.
    #[error("{what} is not supported here; {instead}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What to do instead.
        instead: String,
    },
    /// Tables of tidegate and of the database in one query.
    #[error(
        "{ours} is kept by tidegate and {theirs} by the database, and no query can read both; select from each \
         alone"
    )]
    Mixed {
        /// A table or function of ours.
        ours: String,
        /// A table of theirs.
        theirs: String,
    },
    /// The user may not do this.
    #[error("{user} may not {what}; {needs}")]
    Denied {
        /// The user who asked.
        user: String,
        /// What the user asked for.
        what: String,
        /// The right that is needed.
        needs: String,
    },
    /// The group exists already.
    #[error("resource group {name} exists already; alter it, or write IF NOT EXISTS")]
    Exists {
        /// The group.
        name: String,
    },
    /// A group or a watch does not exist; the text says which.
    #[error("{0}")]
    Unknown(String),
    /// The controller refused it; its text says why and what to do.
    #[error("{message}")]
    Refused {
        /// What the controller said.
        message: String,
        /// What kind of refusal.
        code: Code,
    },
    /// A SELECT from our tables cannot be evaluated.
    #[error("cannot evaluate this SELECT: {message}")]
    Query {
        /// What is wrong and what to do.
        message: String,
        /// What kind of mistake.
        code: Code,
    },
    /// No controller answers.
    #[error(
        "the tidegate controller does not answer ({reason}); nothing is known to have changed, try again when it is back"
    )]
    Unavailable {
        /// What the transport said.
        reason: String,
    },
    /// A fault of tidegate.
    #[error("internal error: {0}")]
    Internal(String),
}

impl SqlError {
    /// The numbers of this error in both protocols.
    pub const fn code(&self) -> Code {
        match self {
            Self::Syntax { .. } | Self::Several { .. } => Code::SYNTAX,
            Self::TooLong { .. } => Code::FULL,
            Self::Unsupported { .. } | Self::Mixed { .. } => Code::UNSUPPORTED,
            Self::Denied { .. } => Code::DENIED,
            Self::Exists { .. } => Code::EXISTS,
            Self::Unknown(_) => Code::UNKNOWN,
            Self::Refused { code, .. } | Self::Query { code, .. } => *code,
            Self::Unavailable { .. } => Code::UNAVAILABLE,
            Self::Internal(_) => Code::INTERNAL,
        }
    }

    /// Where in the text, in characters from 1, for protocols that send it.
    pub const fn position(&self) -> Option<usize> {
        match self {
            Self::Syntax { position, .. } => Some(*position),
            _ => None,
        }
    }

    pub(crate) fn unsupported(what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), instead: instead.into() }
    }
}

/// The start of a text, so that an error never repeats pages.
pub(crate) fn cut(text: &str) -> String {
    const MOST: usize = 60;
    let mut start: String = text.chars().take(MOST).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}
