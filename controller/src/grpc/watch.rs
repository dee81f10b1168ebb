//! One watch stream: a snapshot in parts, then every change, and a heartbeat.
//!
//! Only the last message of a snapshot and of a change carries the new revision; the others carry the one before, so
//! that a node that is cut off in the middle asks for the whole again.

use std::sync::Arc;

use tidegate_proto::v1;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::Sender;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::Status;
use v1::watch_event::Kind;

use super::{Stopping, shapes};
use crate::bindings::Principal;
use crate::clock::duration;
use crate::limits::{DRAIN_WITHIN, HEARTBEAT_EVERY, SNAPSHOT_PART};
use crate::name::GroupName;
use crate::service::{Event, EventKind, Service, SnapshotView, Subscription};

/// Messages that wait for the transport.
pub(super) const QUEUE: usize = 4;
/// Heartbeats a watcher may fall behind before it is dropped.
const PATIENCE: u32 = 6;

/// What a message tells the state of.
#[derive(Clone, Copy)]
struct At {
    /// Which start of which controller tells.
    instance: u64,
    /// The revision after the message.
    revision: u64,
}

type Answers = Sender<Result<v1::WatchEvent, Status>>;

/// Runs a stream to its end. The service is let go of before `stopping`, which the shutdown waits for.
pub(super) async fn serve(
    mut stopping: Stopping,
    service: Arc<Service>,
    mut from: Subscription,
    answers: Answers,
) {
    let ended = tokio::select! {
        () = stopping.requested() => Status::unavailable("the controller is shutting down; watch again"),
        ended = run(&service, &mut from, &answers) => ended,
    };
    // The node may be gone or asleep, and then nobody wants to know.
    let _ = timeout(duration(DRAIN_WITHIN), answers.send(Err(ended))).await;
}

async fn run(service: &Service, from: &mut Subscription, answers: &Answers) -> Status {
    let mut at = At { instance: from.instance, revision: from.revision };
    if let Some(snapshot) = from.snapshot.take()
        && let Err(status) = send_snapshot(answers, at, &snapshot).await
    {
        return slow(service, status);
    }
    let mut heartbeat = interval(duration(HEARTBEAT_EVERY));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            event = from.events.recv() => match event {
                Ok(event) => {
                    let sent = send_event(answers, at, &event).await;
                    at.revision = event.revision;
                    sent
                }
                Err(RecvError::Lagged(missed)) => {
                    let message = format!("{missed} changes were missed by reading too slowly; watch again for a snapshot");
                    Err(Status::resource_exhausted(message))
                }
                Err(RecvError::Closed) => Err(Status::unavailable("the controller is shutting down; watch again")),
            },
            _ = heartbeat.tick() => send(answers, at, Kind::Heartbeat(v1::Heartbeat {})).await,
        };
        if let Err(status) = sent {
            return slow(service, status);
        }
    }
}

/// Counts a watcher that is dropped for reading too slowly.
fn slow(service: &Service, status: Status) -> Status {
    if status.code() == tonic::Code::ResourceExhausted {
        service.metrics.watchers_dropped.inc();
    }
    status
}

async fn send_snapshot(answers: &Answers, at: At, snapshot: &SnapshotView) -> Result<(), Status> {
    let mut rest = snapshot.bindings.iter().peekable();
    loop {
        let part: Vec<v1::Binding> = rest.by_ref().take(SNAPSHOT_PART).map(binding).collect();
        let more = rest.peek().is_some();
        let part = v1::Snapshot {
            bindings: part,
            cost_tables: (!more).then(|| shapes::cost_tables(&snapshot.costs)),
            more,
        };
        send(answers, if more { At { revision: 0, ..at } } else { at }, Kind::Snapshot(part)).await?;
        if !more {
            return Ok(());
        }
    }
}

async fn send_event(answers: &Answers, before: At, event: &Event) -> Result<(), Status> {
    let last = event.kinds.len().saturating_sub(1);
    for (place, kind) in event.kinds.iter().enumerate() {
        let at = if place == last { At { revision: event.revision, ..before } } else { before };
        let Some(message) = encode(kind) else {
            return Err(Status::aborted("much changed at once; watch again for a snapshot"));
        };
        send(answers, at, message).await?;
    }
    Ok(())
}

/// The message of a part; `None` when the watcher has to start over.
fn encode(kind: &EventKind) -> Option<Kind> {
    match kind {
        EventKind::Bound(principal, group) => Some(Kind::Binding(v1::BindingChange {
            removed: group.is_none(),
            binding: Some(v1::Binding {
                tenant: principal.tenant().to_owned(),
                user: principal.user().to_owned(),
                group: group.as_ref().map(ToString::to_string).unwrap_or_default(),
            }),
        })),
        EventKind::Costs(costs) => Some(Kind::CostTables(shapes::cost_tables(costs))),
        EventKind::Groups(groups) => {
            let groups = groups.iter().map(ToString::to_string).collect();
            Some(Kind::GroupsChanged(v1::GroupsChanged { groups }))
        }
        EventKind::Resync => None,
    }
}

fn binding((principal, group): (&Principal, &GroupName)) -> v1::Binding {
    shapes::binding(principal, group)
}

/// Sends, or gives up on a watcher that does not read.
async fn send(answers: &Answers, at: At, kind: Kind) -> Result<(), Status> {
    let patience = duration(HEARTBEAT_EVERY) * PATIENCE;
    let event = v1::WatchEvent { revision: at.revision, instance: at.instance, kind: Some(kind) };
    match timeout(patience, answers.send(Ok(event))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Status::cancelled("the node went away")),
        Err(_) => Err(Status::resource_exhausted("the stream was not read; watch again for a snapshot")),
    }
}
