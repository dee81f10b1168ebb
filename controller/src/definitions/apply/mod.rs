//! Many definitions in one change: all or nothing, planned as a whole.
//!
//! Steps state a result, so that their order does not matter and repeating them changes nothing. The check covers the
//! state after all of them, which a draft holds, and reports every fault at once. Then the edits are put into an order
//! in which each is possible, stored in one transaction, and put in force under one lock.

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

/// The result of an apply, or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// One outcome for each step in order, then those of pruning.
    pub outcomes: Vec<Outcome>,
    /// Revision of the definitions after the change or, in a dry run, for which the plan holds.
    pub revision: u64,
    /// What is allowed but doubtful.
    pub warnings: Vec<String>,
    /// The faults, in a dry run only; with any of them the change would fail as a whole.
    pub faults: Vec<Fault>,
    /// Number of faults.
    pub fault_count: usize,
}

/// The outcome for one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// "group", "binding", "cost_table" or "watch".
    pub kind: &'static str,
    /// Its name or id.
    pub name: String,
    /// The kind of change.
    pub done: Done,
    /// The change as the audit log shows it.
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

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The thing did not exist.
    Created,
    /// The thing was different.
    Altered,
    /// The thing was the same already.
    Unchanged,
    /// The thing was removed.
    Deleted,
}

impl Done {
    /// The spelling of the API.
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
    /// Reports every fault.
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
            let changes = changes.map(|outcome| outcome.change.clone());
            let changes: Vec<Change> = planned.altered.into_iter().chain(changes).collect();
            applied.outcomes = planned.outcomes;
            if wish.dry_run || !changed {
                return Ok(Plan::nothing(applied));
            }
            applied.revision = revision + 1;
            // What gateways convict until the change is stored must not get the same ids.
            state.convictions.reserve_below(planned.next_watch);
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

/// Faults so far, and the number of those beyond the limit.
#[derive(Default)]
struct Faults {
    faults: Vec<Fault>,
    count: usize,
}

impl Faults {
    /// Adds a fault of a step.
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

    /// An error with all of them, if there are any.
    fn result(self) -> Result<(), AdminError> {
        if self.count == 0 {
            return Ok(());
        }
        Err(AdminError::Several { faults: self.faults, count: self.count })
    }
}
