//! A statement that waits for a decision, by itself: the input it came in may move meanwhile.

use std::sync::Arc;

use tidegate_cost_model::{SqlDialect, Template};
use tidegate_sql::{Statement as Own, TextDigest};

use super::command::Command;
use super::step::Statement;
use crate::govern::{Governor, Known, SqlText};

/// What comes with the executions of a prepared statement.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) known: Known,
    /// It is the gateway's.
    pub(super) ours: Option<Arc<Own>>,
}

impl From<Known> for Remembered {
    fn from(known: Known) -> Self {
        Self { known, ours: None }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) command: Command,
    pub(super) template: Arc<Template>,
    /// The beginning of its text, where it came as text, and whether that is all of it.
    pub(super) text: Vec<u8>,
    whole: bool,
    /// Of its text, where it was prepared.
    digest: Option<TextDigest>,
    /// It has not been looked at whether the gateway answers it itself.
    pub(super) may_be_ours: bool,
    /// It was prepared, and the gateway answers it itself.
    pub(super) ours: Option<Arc<Own>>,
    /// What runs in its place, to tell what it costs.
    pub(super) explains: Option<Vec<u8>>,
    /// It runs as it is, to tell what it costs.
    pub(super) explained: bool,
}

impl Asked {
    pub(super) fn of(governor: &Governor, statement: &Statement<'_, Remembered>) -> Self {
        let text = statement.sql;
        let (template, digest, ours) = match &statement.template {
            Some(Remembered { known, ours }) => (Arc::clone(&known.template), known.digest, ours.clone()),
            None => (governor.template(SqlDialect::MySql, text), None, None),
        };
        Self {
            number: statement.number,
            command: statement.command,
            template,
            text: text.to_vec(),
            whole: statement.whole,
            digest,
            // One that is longer than what is seen of it is none of ours.
            may_be_ours: statement.whole && !text.is_empty(),
            ours,
            explains: None,
            explained: statement.explained,
        }
    }

    /// The text that is to run.
    pub(super) fn text(&self) -> SqlText<'_> {
        match (&self.explains, self.digest) {
            (Some(inner), _) => SqlText::Whole(inner),
            (None, Some(digest)) => SqlText::Digest(digest),
            (None, None) => SqlText::of(&self.text, self.whole),
        }
    }

    /// What is kept of it once it is prepared.
    pub(super) fn known(&self) -> Known {
        Known::new(Arc::clone(&self.template), self.text())
    }
}
