//! A statement that waits for a decision, by itself: the input it came in may move meanwhile.

use std::sync::Arc;

use tidegate_cost_model::{SqlDialect, Template};
use tidegate_sql::{Diagnostics, Naming, Statement as Own, may_name, may_rename};

use super::command::Command;
use super::machine::Machine;
use super::step::Statement;
use crate::govern::{Governor, Known, SqlText};

/// The data that come with the executions of a prepared statement.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) known: Known,
    /// It is the gateway's.
    pub(super) ours: Option<Arc<Own>>,
    /// It asks for the diagnostics of the statement before it, whether the gateway or the server answered that.
    pub(super) question: Option<Arc<Diagnostics>>,
}

impl From<Known> for Remembered {
    fn from(known: Known) -> Self {
        Self { known, ours: None, question: None }
    }
}

/// A statement that waits for a decision.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) command: Command,
    pub(super) template: Arc<Template>,
    /// The beginning of its text, where it came as text, and whether that is all of it.
    pub(super) text: Vec<u8>,
    whole: bool,
    /// The statement that it runs, where its text is not that.
    known: Option<Known>,
    /// The gateway has not yet read what it does with names.
    pub(super) may_name: bool,
    naming: Option<Arc<Naming<Known>>>,
    /// The gateway has not yet read whether it answers it itself.
    pub(super) may_be_ours: bool,
    /// It was prepared, and the gateway answers it itself.
    pub(super) ours: Option<Arc<Own>>,
    /// It was prepared, and asks for what the statement before it left.
    pub(super) question: Option<Arc<Diagnostics>>,
    /// The statement that runs in its place, to show its cost.
    pub(super) explains: Option<Vec<u8>>,
    /// It runs as it is, to show its cost.
    pub(super) explained: bool,
}

impl Asked {
    pub(super) fn of(governor: &Governor, statement: &Statement<'_, Remembered>) -> Self {
        let text = statement.sql;
        let (template, known, ours, question) = match &statement.template {
            Some(Remembered { known, ours, question }) => {
                (Arc::clone(&known.template), Some(known.clone()), ours.clone(), question.clone())
            }
            None => (governor.template(SqlDialect::MySql, text), None, None, None),
        };
        Self {
            number: statement.number,
            command: statement.command,
            template,
            text: text.to_vec(),
            whole: statement.whole,
            known,
            // Nor is it for the gateway to know what it names.
            may_name: statement.command == Command::Query && statement.whole,
            naming: None,
            // A text that is longer than the part seen of it is not ours.
            may_be_ours: statement.whole && !text.is_empty(),
            ours,
            question,
            explains: None,
            explained: statement.explained,
        }
    }

    /// The text that is to run.
    pub(super) fn text(&self) -> SqlText<'_> {
        match (&self.known, &self.explains) {
            (Some(known), _) => known.text(),
            (None, Some(inner)) => SqlText::Whole(inner),
            (None, None) => SqlText::of(&self.text, self.whole),
        }
    }

    /// Whether it may do something with names of statements; the gateway has not yet read that.
    pub(super) fn may_name(&self) -> bool {
        self.may_name && may_name(self.sql())
    }

    /// Finds what it does with names, and the statement behind the one that it runs. All before it has to have ended.
    pub(super) fn look_at_names(&mut self, governor: &Governor, machine: &Machine<Remembered>) {
        self.may_name = false;
        self.naming = governor.naming(SqlDialect::MySql, self.sql(), machine.escapes());
        let known = match self.naming.as_deref() {
            Some(Naming::Execute { name }) => machine.named(name).map(|remembered| &remembered.known),
            Some(Naming::Immediate { statement }) => Some(statement),
            _ => None,
        };
        if let Some(known) = known {
            self.template = Arc::clone(&known.template);
            self.known = Some(known.clone());
        }
    }

    /// What running it does with names; `some` is whether there are any.
    pub(super) fn renames(&self, some: bool) -> Option<Naming<Remembered>> {
        match self.naming.as_deref() {
            Some(naming @ (Naming::Prepare { .. } | Naming::Forget { .. })) => {
                Some(naming.clone().map(Remembered::from))
            }
            // The gateway does not see what a procedure does, nor what one of several statements does.
            _ => (some && self.may_rename()).then_some(Naming::ForgetAll),
        }
    }

    fn may_rename(&self) -> bool {
        !self.whole || matches!(self.command, Command::Unknown(_)) || may_rename(self.template.text())
    }

    /// The text that goes to the server.
    fn sql(&self) -> &[u8] {
        self.explains.as_deref().unwrap_or(&self.text)
    }

    /// What is kept of it once it is prepared.
    pub(super) fn known(&self, governor: &Governor) -> Known {
        governor.prepared(Arc::clone(&self.template), self.text())
    }
}
