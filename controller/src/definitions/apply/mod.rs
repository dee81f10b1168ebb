//! Many definitions in one change: all of it or nothing, planned as a whole.
//!
//! Steps say what is to be true, so that their order does not matter and doing them again changes nothing. Checked is the
//! state that all of them come to, which a draft holds; every fault is told at once. Then they are put into an order in
//! which each is possible, stored in one transaction, and put in force under one lock.

mod draft;
mod plan;
mod prune;
mod put;
mod wanted;

use tidegate_proto::v1;

use crate::definitions::DefinitionCalls;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::Plan;
use crate::error::{AdminError, Fault};
use crate::limits::{MAX_FAULTS, MAX_STEPS};

/// What was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// One of each step in order, then what is pruned.
    pub outcomes: Vec<Outcome>,
    /// Of the definitions: after the change, or that the plan holds for.
    pub revision: u64,
    /// What is allowed but doubtful.
    pub warnings: Vec<String>,
    /// What stands against it; in a dry run only. Nothing would be changed.
    pub faults: Vec<Fault>,
    /// How many there are.
    pub fault_count: usize,
}

/// What became of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// "group", "binding", "cost_table" or "watch".
    pub kind: &'static str,
    /// Which one.
    pub name: String,
    /// What happened.
    pub done: Done,
    /// As the audit log has it.
    change: Change,
}

impl Outcome {
    /// The state before as JSON; empty when there was none, or nothing changed.
    pub fn before(&self) -> &str {
        &self.change.before
    }

    /// The state after as JSON; empty when there is none, or nothing changed.
    pub fn after(&self) -> &str {
        &self.change.after
    }

    fn unchanged(kind: &'static str, name: String) -> Self {
        Self { kind, name, done: Done::Unchanged, change: Change::default() }
    }
}

/// What happened to a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was not there.
    Created,
    /// It was another.
    Altered,
    /// It was so already.
    Unchanged,
    /// It is gone.
    Deleted,
}

impl Done {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Altered => "altered",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
        }
    }
}

impl DefinitionCalls<'_> {
    /// Makes all steps true in one change, or none.
    ///
    /// # Errors
    /// Says everything that stands against it.
    pub fn apply(&self, actor: &Actor, wish: &v1::ApplyRequest) -> Result<Applied, AdminError> {
        if wish.steps.len() > MAX_STEPS {
            let message =
                format!("{} are more than the {MAX_STEPS} of one change; make several", wish.steps.len());
            return Err(AdminError::invalid("steps", message));
        }
        let unix_ms = self.service.clock().unix_ms();
        let wanted = wanted::read(&wish.steps, unix_ms);
        let prune = wish.prune.clone().unwrap_or_default();
        // No flush may store an older state of a watch after this.
        let _alone = self.service.flushing();
        let result = self.change(actor, |state| {
            let revision = state.definitions.revision;
            if wish.expected_revision != 0 && wish.expected_revision != revision {
                return Err(AdminError::Stale { expected: wish.expected_revision, actual: revision });
            }
            let wanted = wanted?;
            let planned = plan::plan(state, &wanted, &prune)?;
            let mut applied = Applied { revision, warnings: planned.warnings, ..Applied::default() };
            let changed = !planned.edits.is_empty();
            let changes = planned.outcomes.iter().filter(|outcome| outcome.done != Done::Unchanged);
            let changes: Vec<Change> = changes.map(|outcome| outcome.change.clone()).collect();
            applied.outcomes = planned.outcomes;
            if wish.dry_run || !changed {
                return Ok(Plan::nothing(applied));
            }
            applied.revision = revision + 1;
            Ok(Plan { edits: planned.edits, changes, reply: applied })
        });
        match result {
            Err(AdminError::Several { faults, count }) if wish.dry_run => {
                let revision = self.service.lock().definitions.revision;
                Ok(Applied { faults, fault_count: count, revision, ..Applied::default() })
            }
            result => result,
        }
    }
}

/// Faults so far, and how many there were beyond those that are kept.
#[derive(Default)]
struct Faults {
    faults: Vec<Fault>,
    count: usize,
}

impl Faults {
    /// Adds what is wrong with a step.
    fn add(&mut self, place: &str, error: &AdminError) {
        self.count += 1;
        if self.faults.len() >= MAX_FAULTS {
            return;
        }
        let (field, message) = match error {
            AdminError::Invalid { field, message } if field.is_empty() => (place.to_owned(), message.clone()),
            AdminError::Invalid { field, message } => (format!("{place}.{field}"), message.clone()),
            other => (place.to_owned(), other.to_string()),
        };
        self.faults.push(Fault { field, kind: error.kind(), message });
    }

    /// The error that holds all of them.
    fn result(self) -> Result<(), AdminError> {
        if self.count == 0 {
            return Ok(());
        }
        Err(AdminError::Several { faults: self.faults, count: self.count })
    }
}
