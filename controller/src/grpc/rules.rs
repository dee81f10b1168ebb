//! The stream of rules: all of them in parts, and again after every change.
//!
//! The transport's keepalive detects peers that are gone. Changes within a short time are sent together; a slow peer
//! gets fewer lists, never older ones. A part is read from the present state when the peer has taken the one before, so
//! that nothing is held for slow peers; a change in the middle of a list makes the stream send all of it again.

use std::sync::Arc;

use tidegate_core::units::Span;
use tidegate_proto::v1;
use tokio::sync::watch as flag;
use tokio::time::sleep;
use tonic::Status;

use super::reader::Reader;
use super::{Stopping, statement_shapes as shapes};
use crate::clock::duration;
use crate::identity::Narrowed;
use crate::limits::{RULES_EVERY, RULES_EVERY_EACH, RULES_PART};
use crate::service::{RulesView, Service, Told};

/// Runs a stream to its end. It releases the service before `stopping`, for which the shutdown waits.
pub(super) async fn serve(
    mut stopping: Stopping,
    service: Arc<Service>,
    mut changes: flag::Receiver<u64>,
    narrowed: Narrowed,
    peer: Reader<v1::Rules>,
) {
    let ended = tokio::select! {
        ended = stopping.requested() => {
            ended.unwrap_or_else(|| Status::unavailable("the controller is shutting down; ask again"))
        }
        ended = run(&service, &mut changes, &narrowed, &peer) => ended,
    };
    drop(service);
    peer.end(ended).await;
}

async fn run(
    service: &Service,
    changes: &mut flag::Receiver<u64>,
    narrowed: &Narrowed,
    peer: &Reader<v1::Rules>,
) -> Status {
    loop {
        // Before the rules are read, so that a change meanwhile is sent again rather than lost.
        changes.mark_unchanged();
        let entries = match tell_all(service, narrowed, peer).await {
            Ok(entries) => entries,
            Err(status) => return status,
        };
        let pause = Span(RULES_EVERY.0.saturating_add(RULES_EVERY_EACH.0.saturating_mul(entries)));
        tokio::select! {
            () = peer.closed() => return gone(),
            () = sleep(duration(pause)) => {}
        }
        tokio::select! {
            () = peer.closed() => return gone(),
            changed = changes.changed() => if changed.is_err() {
                return Status::unavailable("the controller is shutting down; ask again");
            },
        }
    }
}

fn gone() -> Status {
    Status::cancelled("the gateway went away")
}

/// Sends one list; returns the number of its entries.
async fn tell_all(service: &Service, narrowed: &Narrowed, peer: &Reader<v1::Rules>) -> Result<u64, Status> {
    let (mut told, mut entries) = (Told::default(), 0_u64);
    loop {
        let view = service.statements().rules(told, RULES_PART);
        told = told.and(&view);
        let count = view.groups.len() + view.watches.len();
        entries = entries.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        let more = count >= RULES_PART;
        peer.tell(part(&view, narrowed, service.clock().unix_ms(), more)).await?;
        if !more {
            return Ok(entries);
        }
    }
}

/// The rules and watches of the groups that the gateway was given.
fn part(view: &RulesView, narrowed: &Narrowed, unix_ms: u64, more: bool) -> v1::Rules {
    let groups = view.groups.iter().filter(|rule| narrowed.gives(&rule.group));
    let watches = view.watches.iter().filter(|watch| narrowed.gives(&watch.group));
    v1::Rules {
        groups: groups.map(shapes::rule).collect(),
        watches: watches.map(|watch| shapes::told_watch(watch)).collect(),
        more,
        unix_ms,
    }
}
