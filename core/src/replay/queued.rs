//! Moments of an even stretch before a queue that is drained at one rate: all of a moment starts in time, or nothing.

use super::held::{divided, fine};
use super::pressed::{Ran, Run, Started};
use super::{Budget, ReplayError, Span, Time};

/// Moments for one decision of the budget, which takes about as long.
const MOMENTS_A_DECISION: u64 = 4;

/// A queue as of a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) at: Time,
    /// In millionths of a micro-RU.
    pub(super) queued: i128,
    /// What it yields in a microsecond.
    pub(super) rate: i128,
}

impl Queue {
    /// Decides moments of a run, up to one after which the rate changes. What is idle hears from which moment on it is, and
    /// until which, and says whether the rate stays.
    pub(super) fn run(
        &mut self,
        free: Time,
        run: &Run,
        idle: &mut dyn FnMut(Time, Time) -> bool,
        budget: &mut Budget,
        started: Started<'_>,
    ) -> Result<Ran, ReplayError> {
        let (cost, mut gaps, mut counts, mut arrival) = (fine(run.cost), run.gaps, run.counts, run.first);
        let (mut ran, mut free, mut stays) = (Ran::default(), free, true);
        while ran.moments < run.moments && stays {
            if ran.moments.is_multiple_of(MOMENTS_A_DECISION) {
                budget.spend()?;
            }
            let turn = arrival.max(free).max(self.at);
            let left = self.queued - self.rate * i128::from(turn.since(self.at).0);
            if left < 0 {
                let within = divided(self.queued, self.rate);
                stays = idle(self.at.after(Span(u64::try_from(within).unwrap_or(u64::MAX))), turn);
            }
            let left = left.max(0);
            let wait = divided(left, self.rate);
            let start = turn.after(Span(u64::try_from(wait).unwrap_or(u64::MAX)));
            let count = counts.advance();
            if start <= arrival.after(run.patience) {
                (self.at, self.queued) = (start, cost * i128::from(count) + left - wait * self.rate);
                (free, ran.started) = (start, ran.started + count);
                ran.free = Some(start);
                started(run.costs(count), start.since(arrival));
            }
            ran.moments += 1;
            arrival = arrival.after(Span(gaps.advance()));
        }
        Ok(ran)
    }
}
