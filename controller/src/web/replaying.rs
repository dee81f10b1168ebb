//! What the recorded demand of a group would have met under the settings that are typed, before they are saved.
//!
//! It is asked for, and not made as one types: a replay may take a processor for some seconds, and few run at once.

use std::sync::Arc;

use axum::Form;
use axum::extract::State;
use axum::response::Response;
use tidegate_console::form::Values;
use tidegate_console::what_if::{BEARABLE_US, Past, Replay};
use tidegate_core::units::Span;
use tidegate_proto::v1;

use super::editing::Sent;
use super::pages::blocking;
use super::visitor::Visitor;
use super::{Web, reply, typed};
use crate::error::AdminError;

/// The part of the form's page that shows a replay.
pub(super) async fn what_if(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Form(values): Form<Values>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let sent = Sent::of(visitor, values)?;
        let before = web.service.definitions().seen_by(visitor.identity()).group(sent.name())?.group;
        let replay = match typed::definition(&before, &sent.values) {
            Ok(group) => replay(web, visitor, &group, sent.past),
            Err(faults) => Replay::Faults(faults),
        };
        Ok(reply::page(replay.markup()))
    })
    .await
}

/// Replays what was recorded in that time under a definition.
pub(super) fn replay(web: &Web, visitor: &Visitor, group: &v1::Group, past: Past) -> Replay {
    let (length_s, resolution) = past.samples();
    let from = (web.service.clock().unix_ms() / 1_000).saturating_sub(length_s);
    let accounts = web.service.accounts().seen_by(visitor.identity());
    match accounts.what_if_changed(group, resolution, from, Span(BEARABLE_US)) {
        Ok(reply) => Replay::Done(Box::new(reply)),
        Err(AdminError::NothingRecorded { .. }) => Replay::Nothing(past),
        Err(error) => Replay::Faults(typed::faults(&error)),
    }
}
