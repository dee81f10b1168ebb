//! A client's admission path without a network: the real hub, groups and driver, and a session reduced to what it
//! calls. Every task counts for virtual time.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use shuttle::future::{JoinHandle, spawn};
use tidegate_core::exchange::{Ask, Grant, LeaseTerms};
use tidegate_core::node::{Heard, NodeConfig};
use tidegate_core::units::{Ru, Span};
use tidegate_core::usage::RuParts;

use crate::group::Group;
use crate::groups::GroupCell;
use crate::groups::driver;
use crate::hub::Hub;
use crate::names::Identity;
use crate::permit::Permit;
use crate::refused::Refused;
use crate::reports::Reports;
use crate::shared::Shared;
use crate::virtual_time::{self, Task};

/// Far beyond what any scenario takes: a waiter that waits this long was forgotten.
pub(super) const FAR: Duration = Duration::from_secs(600);

/// What it grants to a group, and the name of the one to which that demotes.
pub(super) type Said = (Grant, Option<&'static str>);

/// A hub, its driver, and the answers to its renewals.
pub(super) struct World {
    pub(super) hub: Arc<Hub>,
    tasks: Vec<JoinHandle<()>>,
}

impl World {
    /// `answer` is the controller: what it grants to an ask.
    pub(super) fn new(answer: impl FnMut(u64, &Ask) -> Grant + Send + 'static) -> Self {
        Self::idle(NodeConfig::default().idle_after, answer)
    }

    /// The same, where groups give their leases up after this.
    pub(super) fn idle(
        idle_after: Span,
        mut answer: impl FnMut(u64, &Ask) -> Grant + Send + 'static,
    ) -> Self {
        Self::of(idle_after, move |_, seq, ask| (answer(seq, ask), None))
    }

    /// The same, where the controller knows the group and names the one to which it demotes.
    pub(super) fn of(idle_after: Span, answer: impl FnMut(&str, u64, &Ask) -> Said + Send + 'static) -> Self {
        virtual_time::restart();
        let config = NodeConfig { drift_ppm: 0, max_waiters: 16, idle_after, ..NodeConfig::default() };
        let shared = Shared::new(config, None);
        let hub = Hub::new(shared, Identity::new("node").unwrap(), 1, 8, Reports::default());
        let tasks = vec![
            spawn(Task::new(driver::run(hub.shared.clock, Arc::clone(&hub.agenda)), false)),
            spawn(Task::new(session(Arc::clone(&hub), answer), false)),
        ];
        Self { hub, tasks }
    }

    /// A group, as `Client::resolve_now` gets it.
    pub(super) fn group(&self, name: &str) -> Group {
        Group { cell: self.hub.registry.get_or_make(name).unwrap() }
    }

    /// Ends driver and session.
    pub(super) async fn end(self) {
        for task in self.tasks {
            task.abort();
            assert!(task.await.is_err(), "driver and session run until they are ended");
        }
    }
}

/// Takes the groups that are due, asks, and applies the answers.
async fn session(hub: Arc<Hub>, mut answer: impl FnMut(&str, u64, &Ask) -> Said) {
    let mut seq = 0;
    loop {
        for cell in hub.agenda.take_due(4) {
            seq += 1;
            if let Some((ask, ..)) = cell.if_awake(|state, now| state.ask(now, seq)).flatten() {
                let (grant, target) = answer(cell.name(), seq, &ask);
                let target = target.map(|name| hub.registry.get_or_make(name).unwrap());
                let heard = cell.grant(seq, &grant, Vec::new(), target);
                assert_eq!(heard, Heard::Applied, "the newest answer is applied");
            }
        }
        if hub.agenda.due.is_empty() {
            hub.agenda.due.added().await;
        }
    }
}

/// Runs a worker; virtual time goes on until all of them are done.
pub(super) fn work<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    spawn(Task::new(future, true))
}

/// The charges of the workers, once all of them are done.
pub(super) async fn charged_by(workers: impl IntoIterator<Item = JoinHandle<i64>>) -> i64 {
    let mut charged = 0;
    for worker in workers {
        charged += worker.await.unwrap();
    }
    charged
}

/// A lease on nothing but `lump`, with room for refunds.
pub(super) fn lump(lump: Ru) -> Grant {
    Grant::Leased(LeaseTerms {
        cap: Ru(1_000),
        lump,
        ttl: Span::secs(60),
        renew_after: Span::secs(1),
        max_fit: Ru::MAX,
        ..LeaseTerms::default()
    })
}

/// Settles a permit with a charge; returns the charge.
pub(super) fn settle(permit: Permit<'_>, ru: i64) -> i64 {
    permit.settle_ru(RuParts::flat(Ru(ru))).total().0
}

/// Gives a future up after it was pending so many times.
pub(super) struct GiveUp<F> {
    inner: Pin<Box<F>>,
    patience: usize,
}

impl<F: Future> GiveUp<F> {
    pub(super) fn after(patience: usize, inner: F) -> Self {
        Self { inner: Box::pin(inner), patience }
    }
}

impl<'p, F: Future<Output = Result<Permit<'p>, Refused>>> Future for GiveUp<F> {
    type Output = Option<Result<Permit<'p>, Refused>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.inner.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if self.patience == 0 => Poll::Ready(None),
            Poll::Pending => {
                self.patience -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// All that a group did is over: no operation waits, no permit is open.
pub(super) fn assert_quiet(cell: &Arc<GroupCell>) {
    let state = cell.node_state();
    assert_eq!((state.waiting, state.backlog, cell.open()), (0, Ru(0), 0), "{state:?}");
}
