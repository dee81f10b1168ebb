//! Lumps: tokens beside the rate, for what waits. Those for operations that no bucket covers are handed out in the
//! order of a queue, at a distance ahead of their time.

use crate::decide::Decision;
use crate::lease::Lease;
use crate::units::{Rate, Ru, Span};
use crate::want::FAR;

/// A node that waits for a lump asks again at the soonest after this.
const LEAST_LUMP_WAIT: Span = Span::millis(10);
/// Lumps are granted at most so long before the pool covers them, and never longer than a node waits until it renews,
/// which is less than a lease: a controller that crashes meanwhile recovers for longer than that. With half of it the
/// node at a round trip of a second asks in vain every second time; twice of it is longer than any renewal.
const MOST_AHEAD_OF_TIME: Span = Span::secs(1);
/// Lumps are granted ahead of their time to operations above one part in so many of the burst. Of smaller ones several
/// fit beside each other, so that nobody has to be in time; and what is granted ahead keeps rate from being leased.
/// With half or twice of it operations of 0.4 to 0.9 burst use the same to 0.002, from home to 500 ms, and eight nodes
/// with operations of a ninth of the burst use all of the rate at 100 ms.
const LARGE_PART: i64 = 4;
/// After an operation that took a lump, others are expected for so long, and rate that nobody needs adds up for them.
/// With half or twice of it waits beside a heavy tail, and what operations of 0.4 to 0.9 burst use, are the same to a
/// hundredth.
pub(crate) const LUMPS_LAST: Span = Span::secs(10);
/// So long after operations above one part in so many of the burst; nodes tell of these at once, too. With half or twice of it a tail of a tenth of the
/// burst, a heavy one, and operations of 0.4 to 0.9 burst wait and use the same.
pub(crate) const LUMP_PART: i64 = 16;
/// One part in so many of a backlog is granted at once, at a distance, before the first in the queue. With half of it
/// (a half of the backlog) operations of 0.4 to 0.9 burst use 0.007 less at 500 ms; with twice of it small ones beside
/// them wait 0.5 s at 100 ms instead of 0.36 s (p99).
const BACKLOG_PART: i64 = 4;
/// Operations ahead in the queue that are added up to tell a waiting node when to ask again.
const MOST_AHEAD: usize = 32;

impl Decision<'_> {
    /// Operations of this size, that take lumps, are about.
    pub(crate) fn expect_lumps(&mut self, head: Ru) {
        for slot in self.chain.up() {
            let group = self.engine.tree.at_mut(slot);
            if let Some(group) =
                group.filter(|group| group.spec.depth().is_some_and(|depth| head > depth.scale(1, LUMP_PART)))
            {
                group.lumps_until = self.now.after(LUMPS_LAST);
            }
        }
    }

    /// The client is far away, and operations that take lumps are about.
    pub(crate) fn is_far(&self, lease: &Lease) -> bool {
        lease.ahead >= FAR && self.up().any(|group| group.lumps_until > self.now)
    }

    /// Tokens for the backlog, from the pools of the chain, shared among the backlogged. `None`: the first waiter
    /// does not fit into the local bucket and the pools do not cover it yet.
    pub(crate) fn lump(&self, lease: &Lease, fits: bool, (target, rate): (Rate, Rate)) -> Option<Ru> {
        let missing = (lease.backlog + self.coming(lease, rate) - lease.lump).or_zero();
        if fits && missing == Ru::ZERO {
            return Some(Ru::ZERO);
        }
        let (mut pool, mut available, mut share) = (Ru::MAX, Ru::MAX, Ru::MAX);
        for group in self.up() {
            if group.spec.limit().is_none() {
                continue;
            }
            pool = pool.min(group.pool.tokens());
            let place = lease.queued_since.map(|since| (since, self.client, self.group));
            let first =
                group.live.queue.first_key_value().filter(|(first, _)| place.is_none_or(|p| **first < p));
            let reserved = first.map_or(Ru::ZERO, |(_, need)| *need);
            let free = (group.pool.tokens() - reserved).or_zero();
            available = available.min(free);
            share = share.min(Ru(free.0 / i64::try_from(group.live.backlogged.max(1)).unwrap_or(i64::MAX)));
        }
        if fits {
            let part =
                if self.passes_the_queue(lease, target) { missing.scale(1, BACKLOG_PART) } else { Ru::ZERO };
            return Some(missing.min(share).max(part.min(pool.or_zero())));
        }
        let needed = (lease.head - lease.lump).or_zero();
        (available >= needed).then(|| needed.max(missing.min(share)))
    }

    /// At a distance, where no operations take lumps: what comes until the answer is there, and until the next, beyond
    /// what the rate yields by then. The answer to the next renewal may be the first that brings rate, since others
    /// hold it.
    fn coming(&self, lease: &Lease, rate: Rate) -> Ru {
        if lease.ahead < FAR || !lease.head.is_positive() && !lease.lump.is_positive() || self.is_far(lease) {
            return Ru::ZERO;
        }
        let short =
            |rate: Rate| (lease.demand - rate).max(Rate::ZERO).over(lease.ahead.min(MOST_AHEAD_OF_TIME));
        short(lease.held_rate) + short(rate)
    }

    /// Whether a part of the backlog is served before the first in the queue: at a distance, where rate alone would be
    /// late and then too much, and only where the client's share covers all that it wants. So all that it is granted is
    /// less than its share, and what the share of those in the queue yields is theirs.
    fn passes_the_queue(&self, lease: &Lease, target: Rate) -> bool {
        target >= lease.want && self.is_far(lease)
    }

    /// A lump for the first in the queue that the pools do not cover yet, and how long that takes: no longer than the
    /// round trip in which the node would ask again. All of it counts as held from now on, so there must be room for
    /// it; and what it takes of the rate is not leased out until it has come (`Pool::pledged`).
    pub(crate) fn ahead(&self, lease: &Lease, rate: Rate, most: Span) -> Option<(Ru, Span)> {
        let place = (lease.queued_since.unwrap_or(self.now), self.client, self.group);
        let needed = (lease.head - lease.lump).or_zero();
        let own = lease.held_cap + lease.lump + lease.running;
        let most = lease.ahead.min(most).min(MOST_AHEAD_OF_TIME);
        if !self.is_granted_ahead(lease) {
            return None;
        }
        let mut after = Span(0);
        for group in self.up() {
            let (Some(limit), Some(depth)) = (group.spec.limit(), group.spec.depth()) else { continue };
            let first = group.live.queue.first_key_value().is_none_or(|(first, _)| place <= *first);
            if !first || needed > depth - group.live.held - own {
                return None;
            }
            let spare = limit - group.live.committed - rate.max(lease.held_rate);
            // A micro-RU may still be on its way when time is up, as it is divided.
            after = after.max(spare.time_for(needed - group.pool.tokens() + Ru(1))?);
        }
        (after.0 > 0 && after <= most).then_some((needed, after))
    }

    /// Whether a lump comes ahead of its time: to an operation that is large, over a distance that is worth it.
    fn is_granted_ahead(&self, lease: &Lease) -> bool {
        let large = |depth: Ru| lease.head > depth.scale(1, LARGE_PART);
        lease.ahead >= LEAST_LUMP_WAIT && self.up().filter_map(|group| group.spec.depth()).all(large)
    }

    /// Time until the pools cover an operation and those ahead of it, as things are. The first in the queue asks
    /// more often: surplus of others may serve it sooner.
    pub(crate) fn lump_wait(&self, lease: &Lease, renew_every: Span) -> Span {
        let place = (lease.queued_since.unwrap_or(self.now), self.client, self.group);
        let (mut wait, mut first) = (LEAST_LUMP_WAIT, true);
        for group in self.up() {
            let Some(limit) = group.spec.limit() else { continue };
            let ahead: Ru = group.live.queue.range(..place).take(MOST_AHEAD).map(|(_, need)| *need).sum();
            first &= ahead == Ru::ZERO;
            let missing = lease.head + ahead - group.pool.tokens();
            wait = wait.max((limit - group.live.committed).time_for(missing).unwrap_or(renew_every));
        }
        if self.is_granted_ahead(lease) {
            // A little later than is possible at all: who asks too soon waits for another round trip.
            let in_time = Span(lease.ahead.0 - lease.ahead.0 / 8);
            return (wait - in_time).max(LEAST_LUMP_WAIT).min(renew_every);
        }
        wait.min(if first { Span(renew_every.0 / 4) } else { renew_every })
    }

    pub(crate) fn enqueue(&mut self, lease: &mut Lease) {
        let since = *lease.queued_since.get_or_insert(self.now);
        for slot in self.chain.up() {
            if let Some(group) = self.engine.tree.at_mut(slot) {
                group.live.queue.insert((since, self.client, self.group), lease.head);
            }
        }
    }
}
