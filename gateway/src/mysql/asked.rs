//! A statement that waits for a decision, by itself: the input it came in may move meanwhile.

use std::sync::Arc;

use tidegate_cost_model::{SqlDialect, Template};

use super::command::Command;
use super::serve::Known;
use super::step::Statement;
use crate::govern::Governor;

/// See the module.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) command: Command,
    pub(super) template: Arc<Template>,
    /// The beginning of its text, where it came as text.
    pub(super) text: Vec<u8>,
    /// It has not been looked at whether the gateway answers it itself.
    pub(super) may_be_ours: bool,
    /// What runs in its place, to tell what it costs.
    pub(super) explains: Option<Vec<u8>>,
    /// It runs as it is, to tell what it costs.
    pub(super) explained: bool,
}

impl Asked {
    pub(super) fn of(governor: &Governor, statement: &Statement<'_, Known>) -> Self {
        let text = statement.sql;
        let template = statement.template.clone();
        Self {
            number: statement.number,
            command: statement.command,
            template: template.unwrap_or_else(|| governor.template(SqlDialect::MySql, text)),
            text: text.to_vec(),
            // One that is longer than what is seen of it is none of ours.
            may_be_ours: statement.whole && !text.is_empty(),
            explains: None,
            explained: statement.explained,
        }
    }
}
