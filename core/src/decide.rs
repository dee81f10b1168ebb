//! One decision: how much rate, local cap, fill and lump a client gets, given what the others have.
//!
//! The target comes from the division of the tree (max-min) plus a share of the slack. The ledger then grants only what
//! is free at every level, and what is missing is recalled from clients above their target.

use crate::division::Party;
use crate::engine::{EngineConfig, LowerOrder};
use crate::exchange::{Allowance, Enforcement, Grant, LeaseTerms};
use crate::group::{ClientId, Fallback, GroupId};
use crate::lease::{Granted, Lease, Reported};
use crate::quota::{Need, Unit};
use crate::tree::{Chain, Group, Tree};
use crate::units::{MICRO, Rate, Ru, Span, Time};

/// The local bucket holds at most this much of the leased rate.
pub(crate) const LOCAL_CAP: Span = Span::millis(500);
/// At a distance the bucket is smaller by three quarters of a round trip while operations take lumps, because the
/// tokens that the pool earns until it learns that a lump is spent need the room; but it never holds less than this.
/// Half of it loses operations of 0.4 to 0.9 burst 0.005 of the rate at 500 ms, twice of it 0.009.
const LOCAL_CAP_FAR: Span = Span::millis(200);
/// The bucket under a paced limit: what the rate yields while a node is late to start an operation that was due. Timers
/// come a millisecond late, and as much would be lost for each operation; at ten times this, a node could start ten
/// operations of 5 ms at once after a pause.
pub(crate) const PACED_CAP: Span = Span::millis(5);
/// A lease above its target by less than one part in this many is left alone.
const HYSTERESIS: i64 = 64;

/// A client that misses its target by less than one part in this many recalls nothing from others.
const TRIFLE: i64 = 16;
/// A lease that does not fit beside what others may be using goes on until the older lease ends, if that is at least
/// this many renewals away. At half, one lost renewal would end the lease and start the fallback; at twice, clients
/// give up more than they must before others have learnt of the change.
const LEAST_GOING_ON: u64 = 2;

/// Requests that an idle node may begin at once while a quota of them has plenty left: with a tenth, the first second of
/// most bursts waits for a renewal; with ten times as many, what killed nodes lose shows in small quotas.
const AT_ONCE: Ru = Ru::whole(50);

/// The place and time of a decision. The client's lease is out of the ledger's sums meanwhile.
pub(crate) struct Decision<'a> {
    pub tree: &'a mut Tree,
    pub config: EngineConfig,
    /// Orders to lower leases, for the caller to push.
    pub orders: &'a mut Vec<LowerOrder>,
    pub chain: &'a Chain,
    pub now: Time,
    pub client: ClientId,
    pub group: GroupId,
    /// What the node may admit without a lease.
    pub fallback: Fallback,
    /// Leases of before the start may be out that no node has proven yet.
    pub recovering: bool,
    /// How nodes hold operations to the lease.
    pub enforcement: Enforcement,
}

impl Decision<'_> {
    pub(crate) fn decide(mut self, lease: &mut Lease) -> Grant {
        let spec = &self.tree.at(self.chain.slot()).spec;
        let (ttl, renew_after, fallback) = (spec.ttl, spec.renew_after(), self.fallback);
        let paced = self.enforcement.paced;
        let max_fit = self.tree.max_fit(self.chain);
        // Under a paced limit every operation is owed first and paid for while it runs.
        let max_debt = if paced { spec.max_debt.max(max_fit) } else { spec.max_debt };
        let unlimited = !self.tree.is_limited(self.chain);
        lease.begin_grant(self.now, self.now.after(self.config.longest_use(ttl)), unlimited);
        if unlimited {
            // Nobody waits for a lump here: once there is a limit again, all queue from then on.
            lease.leave_queue();
            lease.answered(self.now);
            return Grant::Unlimited { ttl, renew_after, fallback };
        }
        let target = if self.recovering { lease.held().rate } else { self.target(lease) };
        let free = self.free();
        let goes_on = lease.held().end.since(self.now).0 >= renew_after.0.saturating_mul(LEAST_GOING_ON);
        let kept = if goes_on && !self.recovering { lease.held().rate } else { Rate::ZERO };
        let fits =
            self.recovering || lease.reported().head <= self.local_cap(target, lease) + lease.tokens().lump;
        let due = if fits { target } else { Self::beside(lease, target) };
        let rate = due.min(free.max(kept));
        let lump =
            if self.recovering || paced { Some(Ru::ZERO) } else { self.lump(lease, fits, (target, rate)) };
        let ahead = if lump.is_none() { self.ahead(lease, rate, renew_after) } else { None };
        let short = if fits { target - rate } else { Rate::ZERO };
        if !fits {
            self.expect_lumps(lease.reported().head);
        }
        let mut terms = LeaseTerms { ttl, renew_after, max_fit, max_debt, fallback, ..LeaseTerms::default() };
        match (lump, ahead) {
            (None, Some((lump, after))) => {
                lease.leave_queue();
                lease.grant(rate);
                terms.lump_after = after;
                self.give(lease, lump, after, goes_on);
            }
            (Some(lump), _) => {
                lease.leave_queue();
                let close = keep_if_close(rate, lease.held().rate, free);
                lease.grant(if self.is_short() { rate } else { close });
                if short.0 > target.0 / TRIFLE {
                    self.recall(lease, short, renew_after);
                } else if fits && lease.want() > rate {
                    terms.ask_again = self.warms_within(Span(renew_after.0 / 4));
                }
                self.give(lease, lump, Span(0), goes_on);
            }
            (None, None) => {
                // The operation is larger than the local bucket: the client's share accrues in the pool until a lump
                // covers it.
                lease.grant(rate);
                let spare = self.spare();
                if spare < target {
                    self.recall(lease, target - spare, renew_after);
                }
                self.enqueue(lease);
                self.give(lease, Ru::ZERO, Span(0), goes_on);
                terms.ask_again = self.lump_wait(lease, renew_after);
            }
        }
        if !self.fits(lease, free) {
            terms.ttl = terms.ttl.min(self.config.ends_within(lease.held().end.since(self.now)));
            lease.shorten(self.now.after(self.config.longest_use(terms.ttl)));
        }
        terms.enforcement = self.enforcement;
        terms.scarce = self.scarce();
        terms.lump_wanted =
            self.up().any(|group| group.spec.limit().is_some() && !group.live.queue.is_empty());
        let Granted { rate, cap, fill, lump, .. } = *lease.granted();
        terms.allowance = self.allowance(lease, renew_after);
        if let Some(share) = terms.allowance
            && share.ceiling < lease.share.used() + first_of_quota(share.unit, lease)
        {
            // Others may give back what they do not use; of a quota that is used up, there is none.
            let used_up = share.left < first_of_quota(share.unit, lease);
            let useless = match used_up {
                true if share.rolls => renew_after.min(share.resets_in),
                true => renew_after,
                false => Span(renew_after.0 / 4),
            };
            terms.ask_again = terms.ask_again.max(useless);
        }
        terms.ack_now = lease.held().rate.0 - rate.0 > lease.held().rate.0 / 8;
        (terms.rate, terms.cap, terms.fill, terms.lump) = (rate, cap, fill, lump);
        lease.answered(self.now.after(terms.ask_again));
        Grant::Leased(terms)
    }

    /// The client's share of the quota, enough until the answer to its next renewal: while there is plenty for all that it
    /// can spend by its lease, later for its load alone.
    fn allowance(&mut self, lease: &mut Lease, renew_after: Span) -> Option<Allowance> {
        let unit = self.tree.quota_unit(self.chain)?;
        let (granted, reported) = (lease.granted(), lease.reported());
        let lasts = renew_after + renew_after;
        if unit == Unit::Requests {
            let need = requests(reported, lasts);
            return self.tree.give_share(self.chain, self.now, lease, need);
        }
        let most = granted.rate.over(lasts) + granted.cap + lease.tokens().lump + reported.largest;
        let load = reported.demand.over(lasts) + reported.backlog + reported.largest;
        let head = if reported.backlog.is_positive() { reported.largest } else { Ru::ZERO };
        self.tree.give_share(self.chain, self.now, lease, Need { most, load: load.min(most), head })
    }

    /// The part of a client's share for operations that fit the bucket while one waits for a lump: what they need, but
    /// at most half, so that the other half adds up to the lump.
    fn beside(lease: &Lease, target: Rate) -> Rate {
        (lease.reported().steady.scale(9, 8) + Rate(lease.reported().beside.0)).min(target.scale(1, 2))
    }

    /// The groups of the chain, from the group up.
    pub(crate) fn up(&self) -> impl DoubleEndedIterator<Item = &Group> {
        self.tree.up(self.chain)
    }

    /// Whether an operation waits anywhere in the chain below a limit.
    fn scarce(&self) -> bool {
        self.up().any(|group| group.live.backlogged > 0 && group.spec.limit().is_some())
    }

    /// The max-min share of what the chain has, plus a share of the slack.
    fn target(&mut self, lease: &Lease) -> Rate {
        let (mut share, mut slack): (Option<Rate>, Option<Rate>) = (None, None);
        let mut above: Option<&Group> = None;
        for group in self.up().rev() {
            if let (Some(parent), Some(capacity)) = (above, share) {
                let party = Party::Child(group.id);
                share = Some(parent.live.division.share(party, group.live.entered, capacity));
                slack = slack.map(|slack| Rate(slack.0 / parent.parties()));
            }
            if let Some(limit) = group.limit() {
                share = Some(share.map_or(limit, |share| share.min(limit)));
                let own_slack = Rate((limit - group.demand()).0 / 2);
                slack = Some(slack.map_or(own_slack, |slack| slack.min(own_slack)));
            }
            above = Some(group);
        }
        let Some(mut capacity) = share else { return lease.want() };
        let group = self.tree.at_mut(self.chain.slot());
        if !group.children.is_empty() {
            capacity = group.live.division.own_share(capacity);
        }
        group.live.own_capacity = capacity;
        let own = &group.live.own;
        let clients = i64::try_from(own.len().max(1)).unwrap_or(i64::MAX);
        let share = lease.entry().map_or(0, |entry| own.share(self.client, entry, capacity.0));
        Rate(share) + Rate(slack.unwrap_or(Rate::ZERO).max(Rate::ZERO).0 / clients)
    }

    /// The rate neither leased nor pledged for lumps granted ahead of their time, at the tightest level.
    fn free(&self) -> Rate {
        let free = |group: &Group| Some(group.limit()? - group.live.committed - group.pool.pledged());
        self.up().filter_map(free).min().unwrap_or(Rate::MAX).max(Rate::ZERO)
    }

    /// The rate not leased, at the tightest level.
    fn spare(&self) -> Rate {
        let spare = self.up().filter_map(|group| Some(group.limit()? - group.live.committed));
        spare.min().unwrap_or(Rate::MAX).max(Rate::ZERO)
    }

    /// Depth of the local bucket at a rate: half a second of it, and at most the client's part of half the burst. If an
    /// operation larger than that half waits, the others leave room for it. The bucket holds twice the largest
    /// operation if the client's part of the whole burst allows it: fewer tokens than the next operation costs are in
    /// the bucket while that waits, so what this one did not need then has room. docs/algorithm.md measures half and
    /// twice of it.
    fn local_cap(&self, rate: Rate, lease: &Lease) -> Ru {
        if self.enforcement.paced {
            return rate.over(PACED_CAP).max(Ru(1));
        }
        let on_its_way = Span(lease.reported().ahead.0 / 4 * 3);
        let longest =
            if self.is_far(lease) { (LOCAL_CAP - on_its_way).max(LOCAL_CAP_FAR) } else { LOCAL_CAP };
        let (mut cap, mut large) = (rate.over(longest), lease.reported().largest + lease.reported().largest);
        for group in self.up() {
            let (Some(limit), Some(depth)) = (group.spec.limit(), group.spec.depth()) else {
                continue;
            };
            let waiting = group.live.queue.first_key_value().map_or(Ru::ZERO, |(_, need)| *need);
            let left = (depth - waiting).or_zero();
            let part = |budget: Ru| budget.scale(rate.0, limit.0.max(1));
            (cap, large) = (cap.min(part(left.min(depth.scale(1, 2)))), large.min(part(left)));
        }
        cap.max(large)
    }

    /// Whether a lease fits beside what others may be using, at every level. After a changed definition nodes may use
    /// more than it allows until their older leases end, and a lease that does not fit must not last longer than those:
    /// shares computed one after the other need not add up to the new limit.
    fn fits(&self, lease: &Lease, free: Rate) -> bool {
        let room = |group: &Group| group.spec.depth().map(|depth| depth - group.live.held);
        lease.granted().rate <= free
            && self.up().filter_map(room).all(|room| {
                lease.granted().cap + lease.tokens().lump + lease.tokens().running <= room.or_zero()
            })
    }

    /// Sets cap, fill and lump so that at every level the pool and what nodes may hold stay within the depth. If the
    /// older lease goes on, the node keeps a cap that does not fit.
    fn give(&mut self, lease: &mut Lease, lump: Ru, after: Span, goes_on: bool) {
        let kept = if goes_on { lease.held().cap } else { Ru::ZERO };
        let cap = self.local_cap(lease.granted().rate, lease);
        // What looks like room may be held by those leases.
        lease.cap_at(if self.recovering { cap.min(lease.held().cap) } else { cap });
        self.make_room(lease, lump);
        let mut excess = Ru::ZERO;
        let mut fill = lease.granted().cap;
        for group in self.up() {
            let Some(depth) = group.spec.depth() else { continue };
            let left = group.pool.tokens() - lump;
            let room =
                (depth - group.live.held - lease.tokens().lump - lease.tokens().running - lump).or_zero();
            // A cap no larger than before needs no room.
            lease.cap_at(lease.granted().cap.min(room.max(kept)));
            excess = excess.max(lease.cap() + left + self.runs_over(lease, group) - room);
            fill = fill.min(left);
        }
        // What is filled in would come on top of the rate.
        let fill = if self.enforcement.paced {
            Ru::ZERO
        } else {
            fill.min(excess).or_zero().min(lease.granted().cap)
        };
        for slot in self.chain.up() {
            let group = self.tree.at_mut(slot);
            if let Some(depth) = group.spec.depth() {
                if after.0 > 0 {
                    group.pool.grant_ahead(self.now, lump, after);
                } else {
                    group.pool.grant(fill + lump);
                }
                group.pool.trim(depth - group.live.held - (lease.hold() + lump));
            }
        }
        lease.give(lump, fill);
    }

    /// At a distance: what the pool earns in half a round trip. The pool has no room for it while a lump is out and not
    /// known to be spent, so it moves into a bucket while there are tokens.
    fn runs_over(&self, lease: &Lease, group: &Group) -> Ru {
        let (Some(limit), true) = (group.spec.limit(), self.is_far(lease)) else {
            return Ru::ZERO;
        };
        let need = group.live.queue.first_key_value().map_or(Ru::ZERO, |(_, need)| *need);
        let Some(depth) = group.spec.depth() else { return Ru::ZERO };
        if need.is_positive() && need <= depth - group.live.held - lease.hold() {
            return Ru::ZERO;
        }
        (limit - group.live.committed - lease.committed())
            .max(Rate::ZERO)
            .over(Span(lease.reported().ahead.0 / 2))
    }

    /// Makes room for a deeper bucket at the expense of the room for refunds.
    fn make_room(&mut self, lease: &mut Lease, lump: Ru) {
        let room = |group: &Group| {
            Some(group.spec.depth()? - group.live.held - lease.tokens().lump - lease.tokens().running - lump)
        };
        let Some(room) = self.up().filter_map(room).min() else { return };
        let mut missing = (lease.cap() - room).or_zero();
        if missing.is_positive() {
            missing -= lease.take_room(missing);
            self.tree.reclaim(self.chain, missing, Some(self.client));
        }
    }

    /// Orders the clients that hold more than their share to lower themselves, largest first.
    fn recall(&mut self, lease: &mut Lease, short: Rate, renew_every: Span) {
        let tightest = self.up().filter_map(|group| Some((group.limit()? - group.live.committed, group.id)));
        let Some((_, level)) = tightest.min() else { return };
        if let Some(group) = self.tree.get_mut(level) {
            group.short_until = self.now.after(renew_every).after(renew_every);
        }
        // The sums leave this lease out, so the lists must, too.
        if let Some(listed) = lease.listed.take() {
            self.tree.at_mut(self.chain.slot()).live.by_rate.remove(&(listed, self.client));
        }
        self.tree.list(self.chain);
        self.tree.recall(self.orders, self.now, level, short, self.client);
    }

    /// Whether a client that shares a level with this one lacks rate.
    fn is_short(&self) -> bool {
        self.up().any(|group| group.short_until > self.now)
    }
}

/// What the operation that waits needs of a quota; without one, any operation.
fn first_of_quota(unit: Unit, lease: &Lease) -> Ru {
    unit.of(if lease.reported().backlog.is_positive() { lease.reported().largest } else { Ru(1) })
}

/// The requests that a node begins in a time. No rate bounds them, so most is half as many again, and some for a load that
/// begins.
fn requests(reported: &Reported, lasts: Span) -> Need {
    let waiting = i64::try_from(reported.waiting).unwrap_or(i64::MAX).min(Ru::MAX.0 / MICRO);
    let load = (reported.offered.over(lasts) + Ru::whole(waiting)).min(Ru::MAX);
    let head = if waiting > 0 { Unit::REQUEST } else { Ru::ZERO };
    Need { most: load.scale(3, 2) + AT_ONCE, load, head }
}

/// Keeps a rate that is only a trifle too high: lowering it would cost an acknowledgement and gain nothing.
fn keep_if_close(rate: Rate, held: Rate, free: Rate) -> Rate {
    let close = held > rate && held.0 - rate.0 <= held.0 / HYSTERESIS;
    if close && held <= free { held } else { rate }
}
