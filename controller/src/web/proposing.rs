//! A change that is proposed: shown beside what is in force, made, or withdrawn.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tidegate_console::link::Link;
use tidegate_console::proposal::{APPLY, DECISION, Proposal, WITHDRAW};
use tidegate_proto::v1;

use super::pages::blocking;
use super::visitor::Visitor;
use super::{Web, reply, typed};
use crate::error::AdminError;
use crate::quantity::cut;

impl Web {
    /// What is proposed for a group, for those who may see it.
    pub(super) fn proposal(&self, visitor: &Visitor, name: &str) -> Result<Option<v1::Proposal>, AdminError> {
        let proposed =
            if visitor.viewer.may_see_all { self.service.definitions().proposed(name)? } else { None };
        Ok(proposed.map(|(proposal, _)| proposal))
    }
}

/// The page of a proposal.
pub(super) async fn shown(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    blocking(web, visitor, move |web, visitor| page(web, visitor, &name, None)).await
}

fn page(web: &Web, visitor: &Visitor, name: &str, fault: Option<&str>) -> Result<Response, AdminError> {
    let live = web.service.definitions().group(name)?.group;
    let (mut changed, mut notes, mut comparison) = (Vec::new(), Vec::new(), None);
    let proposed = web.service.definitions().proposed(name)?;
    if let Some((proposed, after)) = &proposed {
        changed = typed::changed(&live, after);
        changed.retain(|of| proposed.fields.contains(&of.field));
        match web.service.accounts().proposal(name) {
            Ok(reply) => (notes, comparison) = (reply.notes, reply.comparison),
            // Such as too many replays at once: what is proposed can be seen, and decided, all the same.
            Err(error) => notes.push(error.to_string()),
        }
    }
    let page = Proposal {
        group: &live.name,
        proposed: proposed.as_ref().map(|(proposal, _)| proposal),
        changed: &changed,
        comparison: comparison.as_ref(),
        notes: &notes,
        fault,
    };
    Ok(reply::page(page.page(&visitor.viewer)))
}

/// What becomes of a proposal.
#[derive(Deserialize)]
pub(super) struct Decision {
    form_key: String,
    expected_id: u64,
    decision: String,
}

/// Makes the change that is proposed, or withdraws it.
pub(super) async fn decide(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(name): Path<String>,
    Form(form): Form<Decision>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        visitor.sent(&form.form_key)?;
        let (definitions, actor) = (web.service.definitions(), visitor.actor());
        let done = match form.decision.as_str() {
            APPLY => definitions.apply_proposal(&actor, &name, form.expected_id).map(drop),
            WITHDRAW => definitions.delete_proposal(&actor, &name).map(drop),
            other => {
                let message = format!("{:?} is no decision; press {APPLY} or {WITHDRAW}", cut(other));
                return Err(AdminError::invalid(DECISION, message));
            }
        };
        match done {
            Ok(()) => Ok(reply::on_to(Link::group(&name))),
            Err(error) => {
                let page = page(web, visitor, &name, Some(&error.to_string()))?;
                Ok((reply::status_of_form(&error, StatusCode::CONFLICT), page).into_response())
            }
        }
    })
    .await
}
