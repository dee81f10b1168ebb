//! What a node does otherwise where answers take long.
//!
//! Method: what is told must still be right when the answer comes, a round trip later. A load that begins is told of as
//! soon as its size shows, even while the answer to another question is on its way; one that has stopped is told of at
//! once, with all that was held for it; and who is short asks a round trip before tokens run out, not when they have.

use super::NodeGroup;
use crate::lumps::LUMP_PART;
use crate::units::{MICRO, Rate, Span, Time};
use crate::want::FAR;

/// A load that comes is watched for so long before it is told of, or for an eighth of a round trip.
const WATCHED: Span = Span::millis(20);

/// What a renewal told of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Told {
    /// RU/s offered.
    pub load: Rate,
    /// Operations waited.
    pub waiters: bool,
}

impl NodeGroup {
    /// How long answers take, where that is long. While operations that take lumps are about, what the pool earns is for
    /// these, and none of this is of use.
    pub(super) fn far(&self, now: Time) -> Option<Span> {
        let trip = self.renewal.patience.round_trip().smoothed()?;
        (trip >= FAR && self.renewal.lumps_until <= now).then_some(trip)
    }

    /// How long a load is watched that comes.
    fn watches(trip: Span) -> Span {
        WATCHED.max(Span(trip.0 / 8))
    }

    /// From when on there is something to say of operations that have begun to wait.
    pub(super) fn watched_until(&self, now: Time) -> Option<Time> {
        let trip = self.far(now)?;
        let (_, first) = self.waiters.first()?;
        (first.cost <= self.max_fit.scale(1, LUMP_PART)).then(|| first.since.after(Self::watches(trip)))
    }

    /// When to ask though an answer is on its way: it was asked for before operations began to wait, and brings nothing
    /// for them. What it brings otherwise goes back to the pool.
    pub(super) fn asks_anew_at(&self, now: Time) -> Option<Time> {
        let until = self.watched_until(now).filter(|_| !self.renewal.told.waiters)?;
        Some(until.max(self.renewal.allowed()))
    }

    /// RU/s that have come to wait since the first that does.
    pub(super) fn comes_to_wait(&self, now: Time) -> Rate {
        let watched = self.watched_until(now).is_some_and(|until| until <= now);
        let Some((_, first)) = self.waiters.first().filter(|_| watched) else {
            return Rate::ZERO;
        };
        let age = i64::try_from(now.since(first.since).0).unwrap_or(i64::MAX).max(1);
        Rate(self.waiters.backlog().scale(MICRO, age).0).min(Rate::MAX)
    }

    /// When it shows that a steady load has stopped, for which a rate is held.
    pub(super) fn stopped_at(&self, now: Time) -> Option<Time> {
        self.far(now)?;
        let largest = Some(self.budget.largest()).filter(|largest| largest.is_positive())?;
        let idle = self.waiters.is_empty() && self.budget.rate() > Rate::ZERO;
        let last = self.renewal.last_arrival.filter(|_| idle)?;
        self.demand.shows_end_at(last, largest)
    }

    /// It shows by now.
    pub(super) fn has_stopped(&self, now: Time) -> bool {
        self.stopped_at(now).is_some_and(|at| at <= now)
    }

    /// RU/s told that the rate does not cover.
    fn short(&self) -> Rate {
        (self.renewal.told.load - self.budget.rate()).max(Rate::ZERO)
    }

    /// A lump is kept for what comes until the next answer, though nothing waits: the rate does not cover that.
    pub(super) fn needs_lump(&self, now: Time) -> bool {
        self.far(now).is_some_and(|trip| {
            let comes = self.short().over(trip + trip + trip);
            comes.is_positive() && self.budget.available() <= comes && !self.budget.has_left_over(None)
        })
    }

    /// A round trip before a load that the rate does not cover has used up what is in hand.
    pub(super) fn runs_low_at(&self, now: Time) -> Option<Time> {
        let trip = self.far(now)?;
        let short = Some(self.short()).filter(|short| *short > Rate::ZERO)?;
        let lasts = short.time_for(self.budget.available().or_zero())?;
        Some(now.after(lasts - trip))
    }
}
