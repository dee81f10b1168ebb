//! What a node does differently if answers take long.
//!
//! Method: a report must still be right when its answer comes, a round trip later. The node reports a load that begins
//! as soon as its size shows, even while the answer to an earlier renewal is on its way. It reports a load that stopped
//! at once, and returns all that it held for it. It asks a round trip before tokens run out, not when they have.

use super::NodeGroup;
use crate::lumps::LUMP_PART;
use crate::units::{MICRO, Rate, Span, Time};
use crate::want::FAR;

/// A new load is watched for this long before it is reported, or for an eighth of a round trip if that is longer.
const WATCHED: Span = Span::millis(20);

/// The load as a renewal reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Told {
    /// RU/s offered.
    pub load: Rate,
    /// Whether operations waited.
    pub waiters: bool,
}

/// The group, seen by how long its answers take.
#[derive(Clone, Copy)]
pub(super) struct Distance<'a> {
    group: &'a NodeGroup,
    now: Time,
}

impl NodeGroup {
    /// What it does differently now if answers take long.
    #[inline]
    pub(super) fn distance(&self, now: Time) -> Distance<'_> {
        Distance { group: self, now }
    }
}

impl Distance<'_> {
    /// How long answers take, if that is long. `None` also while operations that take lumps are expected: these need
    /// what the pool earns, and the methods of this file do not help.
    pub(super) fn trip(&self) -> Option<Span> {
        let trip = self.group.renewal.patience.round_trip().smoothed()?;
        (trip >= FAR && !self.group.renewal.expects_lumps(self.now)).then_some(trip)
    }

    /// How long a new load is watched.
    fn watches(trip: Span) -> Span {
        WATCHED.max(Span(trip.0 / 8))
    }

    /// When there is enough to report about operations that began to wait.
    pub(super) fn watched_until(&self) -> Option<Time> {
        let trip = self.trip()?;
        let (_, first) = self.group.waiters.first()?;
        (first.cost <= self.group.look().max_fit().scale(1, LUMP_PART))
            .then(|| first.since.after(Self::watches(trip)))
    }

    /// When to ask although an answer is on its way: the node sent that renewal before operations began to wait, so its
    /// answer brings nothing for them. The rest of it goes back to the pool.
    pub(super) fn asks_again_at(&self) -> Option<Time> {
        let until = self.watched_until().filter(|_| !self.group.renewal.question.told().waiters)?;
        Some(until.max(self.group.renewal.allowed()))
    }

    /// RU/s that began to wait since the first waiter did.
    pub(super) fn comes_to_wait(&self) -> Rate {
        let watched = self.watched_until().is_some_and(|until| until <= self.now);
        let Some((_, first)) = self.group.waiters.first().filter(|_| watched) else {
            return Rate::ZERO;
        };
        let age = i64::try_from(self.now.since(first.since).0).unwrap_or(i64::MAX).max(1);
        Rate(self.group.waiters.backlog().scale(MICRO, age).0).min(Rate::MAX)
    }

    /// When the end of a steady load shows, if rate is held for it.
    pub(super) fn stopped_at(&self) -> Option<Time> {
        self.trip()?;
        let largest = Some(self.group.budget.taken().largest()).filter(|largest| largest.is_positive())?;
        let idle = self.group.waiters.is_empty() && self.group.budget.bucket().rate() > Rate::ZERO;
        let last = self.group.renewal.last_arrival().filter(|_| idle)?;
        self.group.demand.shows_end_at(last, largest)
    }

    /// Whether it shows by now.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped_at().is_some_and(|at| at <= self.now)
    }

    /// RU/s reported that the rate does not cover.
    fn short(&self) -> Rate {
        (self.group.renewal.question.told().load - self.group.budget.bucket().rate()).max(Rate::ZERO)
    }

    /// Whether to keep a lump although nothing waits, because the rate does not cover the load until the next answer.
    pub(super) fn needs_lump(&self) -> bool {
        self.trip().is_some_and(|trip| {
            let comes = self.short().over(trip + trip + trip);
            comes.is_positive()
                && self.group.budget.hand().available() <= comes
                && !self.group.budget.has_left_over(None)
        })
    }

    /// A round trip before a load that the rate does not cover uses up what is in hand.
    pub(super) fn runs_low_at(&self) -> Option<Time> {
        let trip = self.trip()?;
        let short = Some(self.short()).filter(|short| *short > Rate::ZERO)?;
        let lasts = short.time_for(self.group.budget.hand().available().or_zero())?;
        Some(self.now.after(lasts - trip))
    }
}
