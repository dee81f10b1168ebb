//! The watch stream: a snapshot in parts, then every change, and a heartbeat.
//!
//! Only the last message of a snapshot and of a change carries the new revision; the others carry the one before, so
//! that a node that is cut off in the middle asks for the whole again.
//!
//! A part of a snapshot is read from the present bindings when the peer has taken the one before, so that nothing is
//! held for slow peers. Later parts already contain what changed since the stream began; the same follows once more as
//! changes, in order, which lead to the same state.
//!
//! A node that was given groups is sent what concerns these. Its stream says another instance, so that what it knows is
//! never taken for the whole, and begins with a snapshot, as its groups may be others than before.

use std::sync::Arc;

use tidegate_proto::v1;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval};
use tonic::Status;
use v1::watch_event::Kind;

use super::Stopping;
use super::reader::Reader;
use crate::clock::duration;
use crate::identity::Narrowed;
use crate::limits::{HEARTBEAT_EVERY, SNAPSHOT_PART};
use crate::message;
use crate::service::{Event, EventKind, Service, Subscription};

type Peer = Reader<v1::WatchEvent>;

/// The state after a message.
#[derive(Clone, Copy)]
struct At {
    /// The start of the controller that sends.
    instance: u64,
    /// The revision after the message.
    revision: u64,
}

/// Runs a stream to its end. It releases the service before `stopping`, for which the shutdown waits.
pub(super) async fn serve(
    mut stopping: Stopping,
    service: Arc<Service>,
    mut from: Subscription,
    narrowed: Narrowed,
    peer: Peer,
) {
    let ended = tokio::select! {
        ended = stopping.requested() => {
            ended.unwrap_or_else(|| Status::unavailable("the controller is shutting down; watch again"))
        }
        ended = run(&service, &mut from, &narrowed, &peer) => ended,
    };
    drop(service);
    peer.end(ended).await;
}

async fn run(service: &Service, from: &mut Subscription, narrowed: &Narrowed, peer: &Peer) -> Status {
    // Instances are random numbers: this is the other way round that of no start.
    let instance = if narrowed.is_whole() { from.instance } else { !from.instance };
    let mut at = At { instance, revision: from.revision };
    if (!from.is_current || !narrowed.is_whole())
        && let Err(status) = send_snapshot(service, narrowed, peer, at).await
    {
        return status;
    }
    let mut heartbeat = interval(duration(HEARTBEAT_EVERY));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            event = from.events.recv() => match event {
                Ok(event) if narrowed.begins_again(&event) => {
                    service.definitions().begin_again(from);
                    at.revision = from.revision;
                    send_snapshot(service, narrowed, peer, at).await
                }
                Ok(event) => {
                    let sent = send_event(narrowed, peer, at, &event).await;
                    at.revision = event.revision;
                    sent
                }
                Err(RecvError::Lagged(missed)) => {
                    let message = format!("{missed} changes were missed by reading too slowly; watch again for a snapshot");
                    Err(Status::resource_exhausted(message))
                }
                Err(RecvError::Closed) => Err(Status::unavailable("the controller is shutting down; watch again")),
            },
            _ = heartbeat.tick() => send(peer, at, Kind::Heartbeat(v1::Heartbeat {})).await,
        };
        if let Err(status) = sent {
            return status;
        }
    }
}

async fn send_snapshot(service: &Service, narrowed: &Narrowed, peer: &Peer, at: At) -> Result<(), Status> {
    let mut last = None;
    loop {
        let (part, told) = {
            let view = service.definitions().told();
            let mut rest = view.bindings.after(last.as_ref()).peekable();
            let part: Vec<_> = rest.by_ref().take(SNAPSHOT_PART).collect();
            let more = rest.peek().is_some();
            let shown = part.iter().filter_map(|(of, group)| narrowed.binding(&view.bindings, of, group));
            let bindings = shown.collect();
            let cost_tables = (!more).then(|| message::cost_tables(&view.costs));
            let told = part.last().map(|(principal, _)| (*principal).clone());
            (v1::Snapshot { bindings, cost_tables, more }, told)
        };
        last = told;
        let more = part.more;
        if more && part.bindings.is_empty() {
            // Many bindings of others: other streams have their turn.
            tokio::task::yield_now().await;
            continue;
        }
        send(peer, if more { At { revision: 0, ..at } } else { at }, Kind::Snapshot(part)).await?;
        if !more {
            return Ok(());
        }
    }
}

async fn send_event(narrowed: &Narrowed, peer: &Peer, before: At, event: &Event) -> Result<(), Status> {
    let mut last = None;
    for kind in &event.kinds {
        let Some(message) = encode(narrowed, kind) else { continue };
        if let Some(earlier) = last.replace(message?) {
            send(peer, before, earlier).await?;
        }
    }
    match last {
        Some(last) => send(peer, At { revision: event.revision, ..before }, last).await,
        None => Ok(()),
    }
}

/// The message for a part of a change, if it concerns the watcher; an error when that has to start over.
fn encode(narrowed: &Narrowed, kind: &EventKind) -> Option<Result<Kind, Status>> {
    Some(Ok(match kind {
        EventKind::Bound(change) => Kind::Binding(narrowed.change(change)?),
        EventKind::Costs(costs) => Kind::CostTables(message::cost_tables(costs)),
        EventKind::Groups(groups) => {
            let given = groups.iter().filter(|group| narrowed.gives(group));
            let groups: Vec<_> = given.map(ToString::to_string).collect();
            (!groups.is_empty()).then_some(Kind::GroupsChanged(v1::GroupsChanged { groups }))?
        }
        EventKind::Resync => {
            return Some(Err(Status::aborted("much changed at once; watch again for a snapshot")));
        }
    }))
}

async fn send(peer: &Peer, at: At, kind: Kind) -> Result<(), Status> {
    peer.tell(v1::WatchEvent { revision: at.revision, instance: at.instance, kind: Some(kind) }).await
}
