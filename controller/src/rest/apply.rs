//! `/v1/apply`.

use std::sync::Arc;

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By};
use crate::service::{Applied, Service, Wish};
use crate::step::{Prune, Step};

type Shared = Extension<Arc<Service>>;

/// Definitions that are to be true together.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = ApplyRequest)]
pub(super) struct ApplyBody {
    /// In any order, each about another thing.
    steps: Vec<Step>,
    /// What goes because no step names it.
    prune: Option<Prune>,
    /// Refuse unless the definitions are still at this revision; 0 does not check.
    expected_revision: u64,
    /// Only plan and check.
    dry_run: bool,
}

/// What was done, or would be.
#[derive(Serialize, ToSchema)]
pub(super) struct ApplyAnswer {
    /// One of each step in order, then what is pruned.
    outcomes: Vec<OutcomeShape>,
    /// Of the definitions: after the change, or for which the plan holds.
    revision: u64,
    /// What is allowed but doubtful.
    warnings: Vec<String>,
    /// Of a dry run: everything that stands against it.
    faults: Vec<FaultShape>,
    /// How many there are.
    fault_count: usize,
}

/// What became of one thing.
#[derive(Serialize, ToSchema)]
#[schema(as = Outcome)]
pub(super) struct OutcomeShape {
    /// "group", "binding", "cost_table" or "watch".
    kind: &'static str,
    name: String,
    /// "created", "altered", "unchanged" or "deleted".
    outcome: &'static str,
    /// JSON, as in the audit log; empty when there was none, or nothing changed.
    before: String,
    /// See `before`.
    after: String,
}

/// What is wrong with a step.
#[derive(Serialize, ToSchema)]
#[schema(as = StepFault)]
pub(super) struct FaultShape {
    /// Such as "steps[3].group.burst".
    field: String,
    /// The kind of error.
    code: &'static str,
    /// What is wrong and what to do.
    message: String,
}

/// Makes many definitions true in one change, or none.
#[utoipa::path(post, path = "/v1/apply", request_body = ApplyBody,
    responses((status = 200, body = ApplyAnswer), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 412, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn apply(
    Extension(service): Shared,
    By(actor): By,
    Body(body): Body<ApplyBody>,
) -> Result<Json<ApplyAnswer>, ApiError> {
    let wish = Wish {
        steps: body.steps,
        prune: body.prune.unwrap_or_default(),
        expected_revision: body.expected_revision,
        dry_run: body.dry_run,
    };
    let applied = blocking(service, move |service| service.apply(&actor, &wish)).await?;
    Ok(Json(answer(applied)))
}

fn answer(applied: Applied) -> ApplyAnswer {
    let outcomes = applied.outcomes.into_iter().map(|outcome| OutcomeShape {
        kind: outcome.kind,
        outcome: outcome.done.as_str(),
        before: outcome.before().to_owned(),
        after: outcome.after().to_owned(),
        name: outcome.name,
    });
    let faults = applied.faults.into_iter();
    let faults = faults.map(|fault| FaultShape {
        field: fault.field,
        code: fault.kind.code(),
        message: fault.message,
    });
    ApplyAnswer {
        outcomes: outcomes.collect(),
        revision: applied.revision,
        warnings: applied.warnings,
        faults: faults.collect(),
        fault_count: applied.fault_count,
    }
}
