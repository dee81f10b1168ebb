//! The watch task: follows bindings and cost tables, and renews groups whose definition changed.
//!
//! A broken stream is opened again from the newest revision known; the controller sends a snapshot when that is not
//! current.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_proto::v1;
use tidegate_proto::v1::watch_event::Kind;
use tokio_stream::StreamExt as _;

use crate::backoff::Backoff;
use crate::bindings::Bindings;
use crate::cell::Notice;
use crate::clock::{span, within};
use crate::hub::Hub;
use crate::pricing;
use crate::transport::{Transport, is_about_to_lead};

/// Opening the stream may take this long: two round trips of several seconds.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs until the client ends.
pub(crate) async fn run(hub: Arc<Hub>, transport: Arc<dyn Transport>, endpoints: Vec<String>) {
    let mut backoff = Backoff::of(endpoints.len());
    for endpoint in endpoints.iter().cycle() {
        let request = v1::WatchRequest {
            have_revision: *hub.revision.borrow(),
            have_instance: hub.told_by.load(Ordering::Relaxed),
        };
        let open = || within(OPEN_TIMEOUT, transport.watch(endpoint, request));
        let mut stream = open().await;
        if matches!(&stream, Some(Err(status)) if is_about_to_lead(status)) {
            stream = open().await;
        }
        match stream {
            Some(Ok(mut events)) => {
                let opened = hub.shared.clock.now();
                let mut parts = Bindings::default();
                while let Some(Ok(event)) = events.next().await {
                    apply(&hub, &mut parts, event);
                }
                backoff.lasted(hub.shared.clock.now().since(opened));
                tracing::debug!(endpoint, "watch stream ended");
            }
            Some(Err(status)) => tracing::debug!(endpoint, %status, "no watch stream"),
            None => tracing::debug!(endpoint, "no watch stream within {OPEN_TIMEOUT:?}"),
        }
        let pause = hub.shared.clock.now().after(span(backoff.pause()));
        hub.shared.clock.sleep_until(pause).await;
    }
}

/// Applies one event. `parts` is what has arrived of a snapshot that comes in several messages.
fn apply(hub: &Hub, parts: &mut Bindings, event: v1::WatchEvent) {
    let have = *hub.revision.borrow();
    let snapshot = matches!(event.kind, Some(Kind::Snapshot(_)));
    // A snapshot is the truth, even of a controller that was set back; a change of the past is not.
    if event.revision < have && !snapshot {
        return;
    }
    hub.shared.counters.watch_events.add();
    match event.kind {
        Some(Kind::Snapshot(snapshot)) => {
            for binding in snapshot.bindings {
                put(hub, parts, binding);
            }
            if snapshot.more {
                return;
            }
            let bindings = std::mem::take(parts);
            tracing::info!(revision = event.revision, bindings = bindings.len(), "bindings received");
            hub.change_bindings(|old| *old = bindings);
            if let Some(tables) = snapshot.cost_tables {
                set_tables(hub, tables);
            }
        }
        Some(Kind::Binding(v1::BindingChange { binding: Some(binding), removed })) => {
            hub.change_bindings(|bindings| match removed {
                true => bindings.remove(&binding),
                false => put(hub, bindings, binding),
            });
        }
        Some(Kind::CostTables(tables)) => set_tables(hub, tables),
        Some(Kind::GroupsChanged(changed)) => {
            for name in changed.groups {
                if let Some(cell) = hub.registry.get(&name) {
                    cell.heed(Notice::Renew);
                }
            }
        }
        // A controller without definitions has no snapshot to send; hearing it is enough.
        Some(Kind::Heartbeat(_)) if *hub.turn.borrow() > 0 => {}
        Some(Kind::Heartbeat(_)) => hub.change_bindings(|_| {}),
        Some(Kind::Binding(_)) | None => hub.shared.counters.watch_refused.add(),
    }
    hub.told_by.store(event.instance, Ordering::Relaxed);
    hub.revision.send_replace(event.revision);
}

fn put(hub: &Hub, bindings: &mut Bindings, binding: v1::Binding) {
    if let Err(error) = bindings.put(binding) {
        hub.shared.counters.watch_refused.add();
        tracing::warn!(%error, "binding ignored");
    }
}

fn set_tables(hub: &Hub, wire: v1::CostTables) {
    match pricing::tables(wire) {
        Ok(tables) => {
            tracing::info!(
                name = tables.active.name(),
                version = tables.active.version(),
                "cost table in force"
            );
            hub.shared.prices.set(tables);
        }
        Err(error) => {
            hub.shared.counters.watch_refused.add();
            tracing::error!(%error, "the cost tables in force stay");
        }
    }
}
