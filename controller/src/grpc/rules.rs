//! One stream of rules: all of them in parts, and again after every change.
//!
//! The transport's keepalive notices who is gone. Changes within a short time are told together; who reads slowly gets
//! fewer lists, never older ones.

use std::sync::Arc;

use tidegate_core::units::Span;
use tidegate_proto::v1;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch as flag;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::{Stopping, statement_shapes as shapes};
use crate::clock::duration;
use crate::limits::{DRAIN_WITHIN, RULES_EVERY, RULES_EVERY_EACH, RULES_PART};
use crate::service::{RulesView, Service};

/// Messages that wait for the transport.
pub(super) const QUEUE: usize = 4;

type Answers = Sender<Result<v1::Rules, Status>>;

/// Runs a stream to its end. The service is let go of before `stopping`, which the shutdown waits for.
pub(super) async fn serve(
    mut stopping: Stopping,
    service: Arc<Service>,
    mut changes: flag::Receiver<u64>,
    answers: Answers,
) {
    let ended = tokio::select! {
        () = stopping.requested() => Status::unavailable("the controller is shutting down; ask again"),
        ended = run(&service, &mut changes, &answers) => ended,
    };
    drop(service);
    // The gateway may be gone or asleep, and then nobody wants to know.
    let _ = timeout(duration(DRAIN_WITHIN), answers.send(Err(ended))).await;
}

async fn run(service: &Service, changes: &mut flag::Receiver<u64>, answers: &Answers) -> Status {
    loop {
        // Before the rules are read, so that a change meanwhile is told again rather than lost.
        changes.mark_unchanged();
        let view = service.rules();
        let entries = u64::try_from(view.groups.len() + view.watches.len()).unwrap_or(u64::MAX);
        let pause = Span(RULES_EVERY.0.saturating_add(RULES_EVERY_EACH.0.saturating_mul(entries)));
        for part in parts(&view) {
            if answers.send(Ok(part)).await.is_err() {
                return gone();
            }
        }
        drop(view);
        tokio::select! {
            () = answers.closed() => return gone(),
            () = sleep(duration(pause)) => {}
        }
        tokio::select! {
            () = answers.closed() => return gone(),
            changed = changes.changed() => if changed.is_err() {
                return Status::unavailable("the controller is shutting down; ask again");
            },
        }
    }
}

fn gone() -> Status {
    Status::cancelled("the gateway went away")
}

/// The messages of one list; there is always one.
fn parts(view: &RulesView) -> impl Iterator<Item = v1::Rules> {
    let count = view.groups.len() + view.watches.len();
    let last = count.saturating_sub(1) / RULES_PART;
    (0..=last).map(move |number| {
        // The groups first, then the watches, as if they were one list.
        let from = number * RULES_PART;
        let groups = view.groups.iter().skip(from).take(RULES_PART).map(shapes::rule).collect::<Vec<_>>();
        let room = RULES_PART - groups.len();
        let watches = view.watches.iter().skip(from.saturating_sub(view.groups.len())).take(room);
        v1::Rules {
            groups,
            watches: watches.map(|watch| shapes::told_watch(watch)).collect(),
            more: number < last,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::GroupName;
    use crate::query_limit::{QueryLimit, QueryLimitText};
    use crate::service::GroupRule;
    use crate::watches::{Watch, WatchText};

    fn view(groups: usize, watches: usize) -> RulesView {
        let limit = QueryLimitText { rows: 1, action: "kill".into(), ..QueryLimitText::default() };
        let limit = Arc::new(QueryLimit::parse(&limit).unwrap());
        let watch = WatchText {
            group: "a".into(),
            matching: "similar".into(),
            digest: "0".repeat(16),
            ..WatchText::default()
        };
        let watch = Watch::load(&watch).unwrap();
        RulesView {
            groups: vec![
                GroupRule { group: GroupName::default_group(), limit: Some(limit), max_wait: None };
                groups
            ],
            watches: (0..watches)
                .map(|id| Arc::new(Watch { id: u64::try_from(id).unwrap(), ..watch.clone() }))
                .collect(),
        }
    }

    #[test]
    fn a_list_is_told_whole_in_bounded_parts() {
        for (groups, watches, expected) in [
            (0, 0, 1),
            (RULES_PART, 0, 1),
            (RULES_PART + 1, 0, 2),
            (RULES_PART - 1, 2, 2),
            (3, 2 * RULES_PART, 3),
            (2 * RULES_PART, 1, 3),
        ] {
            let view = view(groups, watches);
            let parts: Vec<_> = parts(&view).collect();
            assert_eq!(parts.len(), expected, "{groups} {watches}");
            assert_eq!(parts.iter().map(|part| part.groups.len()).sum::<usize>(), groups);
            let ids = parts.iter().flat_map(|part| part.watches.iter().map(|watch| watch.id));
            assert!(ids.eq(0..u64::try_from(watches).unwrap()), "{groups} {watches}");
            assert!(parts.iter().all(|part| part.groups.len() + part.watches.len() <= RULES_PART));
            assert!(parts.iter().rev().map(|part| part.more).eq((0..expected).map(|at| at > 0)));
        }
    }
}
