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

#[cfg(test)]
mod gone_tests;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc::Receiver;
    use tokio::time::timeout;
    use tonic::Extensions;

    use super::*;
    use crate::statements::testing::{Stage, actor};

    /// In virtual time: far longer than any pause between lists.
    const LONG: Duration = Duration::from_secs(60);

    /// Reads one list to its end, and does something after its first part; returns the groups in it.
    async fn list(
        parts: &mut Receiver<Result<v1::Rules, Status>>,
        mut after_first: impl FnMut(),
    ) -> Vec<String> {
        let (mut names, mut is_first) = (Vec::new(), true);
        loop {
            let part = timeout(LONG, parts.recv()).await.expect("a part comes").unwrap().unwrap();
            names.extend(part.groups.into_iter().map(|rule| rule.group));
            if !part.more {
                return names;
            }
            if std::mem::take(&mut is_first) {
                after_first();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_in_the_middle_of_a_list_is_sent_in_the_next_and_then_no_list_comes() {
        let stage = Stage::new();
        let groups = RULES_PART * 3;
        (0..groups).for_each(|number| stage.ruled(&format!("g-{number:03}"), "", 0));
        let (peer, mut parts) = Reader::of(&Extensions::new(), &stage.service.metrics);
        let mut changes = stage.calls().follow_rules().unwrap();
        let narrowed = Narrowed::default();
        let read = async {
            // It is in the part that the peer has taken already.
            let delete = || {
                stage.service.definitions().delete_group(&actor(), "g-000", "", 0, false).unwrap();
            };
            let first = list(&mut parts, delete).await;
            assert!(first.len() >= groups - 1, "{}", first.len());
            let second = list(&mut parts, || {}).await;
            assert_eq!((second.len(), second[0].as_str()), (groups - 1, "g-001"));
            let more = timeout(LONG, parts.recv()).await;
            assert!(more.is_err(), "{more:?}");
            parts.close();
        };
        let (ended, ()) = tokio::join!(run(&stage.service, &mut changes, &narrowed, &peer), read);
        assert_eq!(ended.message(), gone().message());
    }
}
