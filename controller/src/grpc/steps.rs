//! The steps of one change, and what became of them, as messages of the admin API.

use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;

use super::shapes::{group_in, table_in};
use super::statement_shapes::watch_in;
use crate::error::AdminError;
use crate::limits::MAX_STEPS;
use crate::service::{Applied, Wish};
use crate::step::{BindingText, DeleteGroupText, PrincipalText, Prune, RoleText, Step, WatchId};

/// What is asked for.
pub(super) fn wish(request: v1::ApplyRequest) -> Result<Wish, AdminError> {
    let steps = request.steps.into_iter().take(MAX_STEPS + 1).enumerate();
    let steps = steps.map(|(index, step)| {
        let missing =
            || AdminError::invalid(format!("steps[{index}]"), "says nothing; set one of its fields");
        step.kind.ok_or_else(missing).and_then(|kind| step_in(index, kind))
    });
    Ok(Wish {
        steps: steps.collect::<Result<_, _>>()?,
        prune: request.prune.map(prune).unwrap_or_default(),
        expected_revision: request.expected_revision,
        dry_run: request.dry_run,
    })
}

fn prune(prune: v1::Prune) -> Prune {
    Prune { groups: prune.groups, bindings: prune.bindings, watches: prune.watches, under: prune.under }
}

fn step_in(index: usize, kind: Kind) -> Result<Step, AdminError> {
    Ok(match kind {
        Kind::Group(group) => Step::Group(Box::new(group_in(*group))),
        Kind::Binding(binding) => {
            Step::Binding(BindingText { tenant: binding.tenant, user: binding.user, group: binding.group })
        }
        Kind::CostTable(put) => Step::CostTable(RoleText { role: put.role, table: put.table.map(table_in) }),
        Kind::Watch(watch) => Step::Watch(Box::new(watch_in(watch))),
        Kind::DeleteGroup(group) => Step::DeleteGroup(DeleteGroupText {
            name: group.name,
            force_to: group.force_to,
            expected_revision: group.expected_revision,
            if_exists: group.if_exists,
        }),
        Kind::DeleteBinding(principal) => {
            Step::DeleteBinding(PrincipalText { tenant: principal.tenant, user: principal.user })
        }
        Kind::DeleteWatch(watch) if !watch.group.is_empty() => {
            let field = format!("steps[{index}].delete_watch.group");
            return Err(AdminError::invalid(field, "is not for a step; name watches by their ids"));
        }
        Kind::DeleteWatch(watch) => Step::DeleteWatch(WatchId { id: watch.id }),
    })
}

/// What became of it.
pub(super) fn reply(applied: Applied) -> v1::ApplyReply {
    let outcomes = applied.outcomes.into_iter().map(|outcome| v1::Outcome {
        kind: outcome.kind.to_owned(),
        outcome: outcome.done.as_str().to_owned(),
        before: outcome.before().to_owned(),
        after: outcome.after().to_owned(),
        name: outcome.name,
    });
    let faults = applied.faults.into_iter().map(|fault| v1::StepFault {
        field: fault.field,
        code: fault.kind.code().to_owned(),
        message: fault.message,
    });
    v1::ApplyReply {
        outcomes: outcomes.collect(),
        revision: applied.revision,
        warnings: applied.warnings,
        faults: faults.collect(),
        fault_count: u32::try_from(applied.fault_count).unwrap_or(u32::MAX),
    }
}
