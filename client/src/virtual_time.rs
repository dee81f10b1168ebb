//! The time of a run under the scheduler: it stands still while any task can go on, and then jumps to the next moment
//! that a task sleeps for. So a task that is not woken when something happened is found: time runs away from it.
//!
//! All tasks of a run share one thread of the operating system, so that a thread's own variables are the run's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tidegate_core::units::{Span, Time};

#[derive(Default)]
struct Run {
    now: Time,
    sleepers: BTreeMap<(Time, u64), Waker>,
    next: u64,
    /// Tasks that can go on.
    awake: usize,
    /// Tasks for which time goes on.
    working: usize,
}

thread_local! {
    static RUN: RefCell<Run> = RefCell::default();
}

fn with<R>(change: impl FnOnce(&mut Run) -> R) -> R {
    RUN.with_borrow_mut(change)
}

/// Starts at zero, without tasks.
pub(crate) fn restart() {
    // Wakers of the run before are dropped outside of the borrow.
    let _before = RUN.take();
}

pub(crate) fn now() -> Time {
    with(|run| run.now)
}

/// Time passes although tasks could go on.
pub(crate) fn pass(span: Span) {
    move_to(now().after(span));
}

fn move_to(time: Time) {
    let due = with(|run| {
        run.now = run.now.max(time);
        let later = run.sleepers.split_off(&(Time(run.now.0 + 1), 0));
        std::mem::replace(&mut run.sleepers, later)
    });
    due.into_values().for_each(Waker::wake);
}

/// Completes when time has come to `at`.
pub(crate) async fn sleep_until(at: Time) {
    let mut place = None;
    std::future::poll_fn(|context| {
        with(|run| {
            if run.now >= at {
                return Poll::Ready(());
            }
            let key = *place.get_or_insert_with(|| {
                run.next += 1;
                (at, run.next)
            });
            run.sleepers.insert(key, context.waker().clone());
            Poll::Pending
        })
    })
    .await;
}

/// A task whose rest lets time go on. Under `work`, time goes on only until it is done.
pub(crate) struct Task<F> {
    inner: Option<Pin<Box<F>>>,
    rest: Arc<Rest>,
    work: bool,
}

/// Whether a task rests, and how it is woken.
struct Rest(Mutex<(Phase, Option<Waker>)>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits to be woken.
    Resting,
    /// Woken, and not polled yet.
    Told,
    /// Being polled.
    Polled,
    /// Woken while it is polled.
    PolledAndTold,
}

impl Wake for Rest {
    fn wake(self: Arc<Self>) {
        let outer = self.change(|phase| match phase {
            Phase::Resting | Phase::Told => Phase::Told,
            Phase::Polled | Phase::PolledAndTold => Phase::PolledAndTold,
        });
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}

impl Rest {
    /// Enters a phase; who rests does not count as awake.
    fn change(&self, next: impl FnOnce(Phase) -> Phase) -> Option<Waker> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.0;
        state.0 = next(before);
        with(|run| {
            run.awake += usize::from(before == Phase::Resting);
            run.awake -= usize::from(state.0 == Phase::Resting);
        });
        state.1.clone()
    }
}

/// When no task can go on, time does.
fn go_on() {
    let next = with(|run| {
        let next = run.sleepers.first_key_value().map(|((at, _), _)| *at);
        next.filter(|_| run.awake == 0 && run.working > 0)
    });
    if let Some(next) = next {
        move_to(next);
    }
}

impl<F: Future> Task<F> {
    pub(crate) fn new(inner: F, work: bool) -> Self {
        with(|run| {
            run.awake += 1;
            run.working += usize::from(work);
        });
        Self { inner: Some(Box::pin(inner)), rest: Arc::new(Rest(Mutex::new((Phase::Told, None)))), work }
    }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.rest.change(|_| Phase::Polled);
        self.rest.0.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(context.waker().clone());
        let waker = Waker::from(Arc::clone(&self.rest));
        let Some(inner) = self.inner.as_mut() else { return Poll::Pending };
        let polled = inner.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            self.rest.change(|phase| match phase {
                Phase::PolledAndTold => Phase::Told,
                _ => Phase::Resting,
            });
            go_on();
        }
        polled
    }
}

impl<F> Drop for Task<F> {
    fn drop(&mut self) {
        self.rest.change(|_| Phase::Polled);
        self.inner = None;
        self.rest.change(|_| Phase::Resting);
        with(|run| run.working -= usize::from(self.work));
        go_on();
    }
}
