//! Lumps: tokens beside the rate, for operations that wait. Lumps for operations that no bucket covers are granted in
//! the order of a queue, and at a distance ahead of their time.

use crate::decide::Decision;
use crate::lease::Lease;
use crate::units::{Rate, Ru, Span};
use crate::want::FAR;

/// A node that waits for a lump asks again no sooner than after this.
const LEAST_LUMP_WAIT: Span = Span::millis(10);
/// Longest time by which a lump is granted before the pool covers it. It is never longer than a node waits until it
/// renews, which is less than a lease, so that the recovery after a crash of the controller outlasts it. At half, the
/// node at a round trip of a second asks in vain every second time; twice is longer than any renewal.
const MOST_AHEAD_OF_TIME: Span = Span::secs(1);
/// Operations above one part in this many of the burst get their lumps ahead of time. Smaller ones fit beside each
/// other, so that nobody has to be in time, and a lump granted ahead keeps rate from being leased. With half or twice
/// this, operations of 0.4 to 0.9 burst use the same to 0.002, from home to 500 ms, and eight nodes with operations of
/// a ninth of the burst use all of the rate at 100 ms.
const LARGE_PART: i64 = 4;
/// For this long after an operation that took a lump, more of them are expected, and rate that nobody needs adds up for
/// them. With half or twice this, waits beside a heavy tail, and what operations of 0.4 to 0.9 burst use, are the same
/// to a hundredth.
pub(crate) const LUMPS_LAST: Span = Span::secs(10);
/// Only operations above one part in this many of the burst count for [`LUMPS_LAST`]; nodes report these at once, too.
/// With half or twice this, a tail of a tenth of the burst, a heavy one, and operations of 0.4 to 0.9 burst wait and
/// use the same.
pub(crate) const LUMP_PART: i64 = 16;
/// At a distance, one part in this many of a backlog is granted at once, before the first in the queue. Half of it (a
/// half of the backlog) lets operations of 0.4 to 0.9 burst use 0.007 less at 500 ms; with twice it, small ones beside
/// them wait 0.5 s at 100 ms instead of 0.36 s (p99).
const BACKLOG_PART: i64 = 4;
/// A lump for a node nearby covers also what comes in this time beyond its rate. The node reports ten times a second
/// while operations wait, so that those that come in between wait for the next answer. Without it, halves of the nodes
/// that are on in turns wait 50.7 ms (p99) instead of 48.5, and small operations beside a heavy tail 196 ms instead of
/// 135; with 50 ms, 44.4 and 174 ms, but a heavy node that moves may have its rate after 1.2 s instead of 1.1.
const NEXT_REPORT: Span = Span::millis(30);
/// Operations before a waiting node's in the queue that count towards its advice on when to ask again.
const MOST_AHEAD: usize = 32;

impl Decision<'_> {
    /// Notes an operation that takes a lump: more of them are expected for [`LUMPS_LAST`].
    pub(crate) fn expect_lumps(&mut self, head: Ru) {
        for slot in self.chain.up() {
            let group = self.tree.at_mut(slot);
            if group.spec.depth().is_some_and(|depth| head > depth.scale(1, LUMP_PART)) {
                group.lumps_until = self.now.after(LUMPS_LAST);
            }
        }
    }

    /// Whether operations that take lumps are expected.
    fn expects_lumps(&self) -> bool {
        self.up().any(|group| group.lumps_until > self.now)
    }

    /// Whether the client is far away while operations that take lumps are expected.
    pub(crate) fn is_far(&self, lease: &Lease) -> bool {
        lease.reported().ahead >= FAR && self.expects_lumps()
    }

    /// Tokens for the backlog, from the pools of the chain, shared among the clients with a backlog. `None`: the first
    /// waiter does not fit into the local bucket, and the pools do not cover it yet.
    pub(crate) fn lump(&self, lease: &Lease, fits: bool, (target, rate): (Rate, Rate)) -> Option<Ru> {
        let missing = (lease.reported().backlog + self.coming(lease, rate) - lease.tokens().lump).or_zero();
        if fits && missing == Ru::ZERO {
            return Some(Ru::ZERO);
        }
        let (mut pool, mut available, mut share) = (Ru::MAX, Ru::MAX, Ru::MAX);
        for group in self.up() {
            if group.spec.limit().is_none() {
                continue;
            }
            pool = pool.min(group.pool.tokens());
            let place = lease.queued_since().map(|since| (since, self.client, self.group));
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
        let needed = (lease.reported().head - lease.tokens().lump).or_zero();
        (available >= needed).then(|| needed.max(missing.min(share)))
    }

    /// If no operations take lumps: the load beyond what the rate yields until more rate can come, because others still
    /// hold it. At a distance that is until this answer arrives and until the next one does. A node nearby that has had
    /// no lease yet asks again within milliseconds, and its load is a guess.
    fn coming(&self, lease: &Lease, rate: Rate) -> Ru {
        let waits = lease.reported().head.is_positive() || lease.tokens().lump.is_positive();
        if !waits || self.expects_lumps() {
            return Ru::ZERO;
        }
        let short = |rate: Rate, span: Span| (lease.reported().demand - rate).max(Rate::ZERO).over(span);
        if lease.reported().ahead < FAR {
            let goes_on = lease.reported().head.is_positive() && lease.held().rate > Rate::ZERO;
            return if goes_on { short(rate, NEXT_REPORT) } else { Ru::ZERO };
        }
        let trip = lease.reported().ahead.min(MOST_AHEAD_OF_TIME);
        short(lease.held().rate, trip) + short(rate, trip)
    }

    /// Whether a part of the backlog is served before the first in the queue: at a distance, where rate alone would
    /// come late and then be too much, and only if the client's share covers all that it wants. Then its grants stay
    /// below its share, and the share of those in the queue yields their tokens.
    fn passes_the_queue(&self, lease: &Lease, target: Rate) -> bool {
        target >= lease.want() && self.is_far(lease)
    }

    /// A lump for the first in the queue that the pools do not cover yet, and the time until they do: no longer than
    /// the round trip after which the node would ask again. All of it counts as held from now on, so it needs room; and
    /// its part of the rate is not leased until it has come (`Pool::pledged`).
    pub(crate) fn ahead(&self, lease: &Lease, rate: Rate, most: Span) -> Option<(Ru, Span)> {
        let place = (lease.queued_since().unwrap_or(self.now), self.client, self.group);
        let needed = (lease.reported().head - lease.tokens().lump).or_zero();
        let own = lease.held().cap + lease.tokens().lump + lease.tokens().running;
        let most = lease.reported().ahead.min(most).min(MOST_AHEAD_OF_TIME);
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
            let spare = limit - group.live.committed - rate.max(lease.held().rate);
            // The accrual divides, so a micro-RU may still be missing when the time is up.
            after = after.max(spare.time_for(needed - group.pool.tokens() + Ru(1))?);
        }
        (after.0 > 0 && after <= most).then_some((needed, after))
    }

    /// Whether a lump comes ahead of its time: the operation is large, and the distance is worth it.
    fn is_granted_ahead(&self, lease: &Lease) -> bool {
        let large = |depth: Ru| lease.reported().head > depth.scale(1, LARGE_PART);
        lease.reported().ahead >= LEAST_LUMP_WAIT
            && self.up().filter_map(|group| group.spec.depth()).all(large)
    }

    /// Time until the pools cover an operation and those before it, as things are. The first in the queue asks more
    /// often: surplus of others may serve it sooner.
    pub(crate) fn lump_wait(&self, lease: &Lease, renew_every: Span) -> Span {
        let place = (lease.queued_since().unwrap_or(self.now), self.client, self.group);
        let (mut wait, mut first) = (LEAST_LUMP_WAIT, true);
        for group in self.up() {
            let Some(limit) = group.spec.limit() else { continue };
            let ahead: Ru = group.live.queue.range(..place).take(MOST_AHEAD).map(|(_, need)| *need).sum();
            first &= ahead == Ru::ZERO;
            let missing = lease.reported().head + ahead - group.pool.tokens();
            wait = wait.max((limit - group.live.committed).time_for(missing).unwrap_or(renew_every));
        }
        if self.is_granted_ahead(lease) {
            // A little later than the earliest possible time: a node that asks too soon waits for another round trip.
            let in_time = Span(lease.reported().ahead.0 - lease.reported().ahead.0 / 8);
            return (wait - in_time).max(LEAST_LUMP_WAIT).min(renew_every);
        }
        wait.min(if first { Span(renew_every.0 / 4) } else { renew_every })
    }

    pub(crate) fn enqueue(&mut self, lease: &mut Lease) {
        let since = lease.queue(self.now);
        for slot in self.chain.up() {
            let place = (since, self.client, self.group);
            self.tree.at_mut(slot).live.queue.insert(place, lease.reported().head);
        }
    }
}
