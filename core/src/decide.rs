//! One decision: how much rate, local cap, fill and lump a client gets, given what the others have.
//!
//! The target comes from the division of the tree (max-min) plus a share of the slack; the ledger then lets
//! through only what is free at every level. What is missing is recalled from those above their target.

use crate::engine::Engine;
use crate::exchange::{Grant, LeaseTerms};
use crate::group::{ClientId, GroupId};
use crate::lease::Lease;
use crate::tree::{Chain, Party};
use crate::units::{Rate, Ru, Span, Time};

/// A node that waits for a lump asks again at the soonest after this.
const LEAST_LUMP_WAIT: Span = Span::millis(10);
/// The local bucket holds at most this much of the leased rate.
const LOCAL_CAP: Span = Span::millis(500);
/// A lease above its target by less than one part in this many is left alone.
const HYSTERESIS: i64 = 64;

/// A target missed by less than one part in this many is not worth recalling from others.
const TRIFLE: i64 = 16;
/// Operations ahead in the queue that are added up to tell a waiting node when to ask again.
const MOST_AHEAD: usize = 32;

/// The place and time of a decision; the lease is out of the ledger while it is made.
pub(crate) struct Decision<'a> {
    pub engine: &'a mut Engine,
    pub chain: &'a Chain,
    pub now: Time,
    pub client: ClientId,
    pub group: GroupId,
}

impl Decision<'_> {
    pub(crate) fn decide(mut self, lease: &mut Lease) -> Grant {
        let Some(spec) = self.engine.tree.get(self.group).map(|group| group.spec.clone()) else {
            return Grant::UnknownGroup;
        };
        lease.expires = self.now.after(self.engine.config.longest_use(spec.ttl));
        lease.counted_at = self.now;
        if !self.limited() {
            lease.unlimited = true;
            return Grant::Unlimited {
                ttl: spec.ttl,
                renew_after: spec.renew_after(),
                fallback: spec.fallback,
            };
        }
        lease.unlimited = false;
        let recovering = self.now < self.engine.recovering_until;
        let target = if recovering { lease.held_rate } else { self.target(lease) };
        let free = self.free();
        let rate = target.min(if recovering { free } else { free.max(lease.held_rate) });
        let fits = lease.head <= self.local_cap(target) + lease.lump;
        let short = target - rate;
        let lump = if recovering { Some(Ru::ZERO) } else { self.lump(lease, fits) };
        let mut terms = LeaseTerms {
            ttl: spec.ttl,
            renew_after: spec.renew_after(),
            max_fit: self.engine.max_fit(self.group),
            max_debt: spec.max_debt,
            fallback: spec.fallback,
            ..LeaseTerms::default()
        };
        match lump {
            Some(lump) => {
                lease.queued_since = None;
                lease.rate = if self.is_short() { rate } else { keep_if_close(rate, lease.held_rate, free) };
                if short.0 > target.0 / TRIFLE {
                    self.recall(short, spec.renew_after());
                } else if lease.want > rate {
                    terms.ask_again = Span(spec.renew_after().0 / 4);
                }
                self.give(lease, lump);
            }
            None => {
                // Too large for the local bucket: its share accrues in the pool until a lump covers it.
                lease.rate = Rate::ZERO;
                if free < target {
                    self.recall(target - free, spec.renew_after());
                }
                self.enqueue(lease);
                self.give(lease, Ru::ZERO);
                terms.ask_again = self.lump_wait(lease, spec.renew_after());
            }
        }
        terms.scarce = self.scarce();
        terms.ack_now = lease.held_rate.0 - lease.rate.0 > lease.held_rate.0 / 8;
        (terms.rate, terms.cap) = (lease.rate, lease.cap);
        (terms.fill, terms.lump) = (lease.fresh_fill, lease.fresh_lump);
        lease.lowered_at = None;
        Grant::Leased(terms)
    }

    /// Whether anyone in the chain waits.
    fn scarce(&self) -> bool {
        self.chain.up().any(|id| {
            self.engine.tree.get(id).is_some_and(|group| group.spec.limit().is_some() && group.backlogged > 0)
        })
    }

    fn limited(&self) -> bool {
        self.chain.up().any(|id| self.engine.tree.get(id).is_some_and(|group| group.spec.limit().is_some()))
    }

    /// Max-min share of what the chain has, plus a share of the slack.
    fn target(&mut self, lease: &Lease) -> Rate {
        let (mut share, mut slack): (Option<Rate>, Option<Rate>) = (None, None);
        let mut above: Option<(GroupId, i64)> = None;
        for id in self.chain.up().rev() {
            if let (Some((parent, parties)), Some(capacity)) = (above, share) {
                share = self.engine.tree.get_mut(parent).map(|g| g.party_share(Party::Child(id), capacity));
                slack = slack.map(|slack| Rate(slack.0 / parties));
            }
            let Some(group) = self.engine.tree.get(id) else {
                return Rate::ZERO;
            };
            if let Some(limit) = group.spec.limit() {
                share = Some(share.map_or(limit, |share| share.min(limit)));
                let own_slack = Rate((limit - group.demand()).0 / 2);
                slack = Some(slack.map_or(own_slack, |slack| slack.min(own_slack)));
            }
            above = Some((id, group.parties()));
        }
        let (Some(mut capacity), Some(group)) = (share, self.engine.tree.get_mut(self.group)) else {
            return lease.want;
        };
        if !group.children.is_empty() {
            capacity = group.party_share(Party::Own, capacity);
        }
        group.own.set_capacity(capacity.0);
        let clients = i64::try_from(group.own.len().max(1)).unwrap_or(i64::MAX);
        Rate(group.own.share(self.client)) + Rate(slack.unwrap_or(Rate::ZERO).max(Rate::ZERO).0 / clients)
    }

    /// What is not leased out, at the tightest level.
    fn free(&self) -> Rate {
        let free = self.chain.up().filter_map(|id| {
            let group = self.engine.tree.get(id)?;
            Some(group.spec.limit()? - group.committed)
        });
        free.min().unwrap_or(Rate::MAX).max(Rate::ZERO)
    }

    /// Depth of the local bucket at a rate: half a second of it, and never more than its part of half the burst.
    /// When an operation larger than that half waits, the others leave room for it.
    fn local_cap(&self, rate: Rate) -> Ru {
        let mut cap = rate.over(LOCAL_CAP);
        for id in self.chain.up() {
            let Some(group) = self.engine.tree.get(id) else {
                continue;
            };
            let (Some(limit), Some(depth)) = (group.spec.limit(), group.spec.depth()) else {
                continue;
            };
            let waiting = group.queue.first_key_value().map_or(Ru::ZERO, |(_, need)| *need);
            let budget = depth.scale(1, 2).min((depth - waiting).or_zero());
            cap = cap.min(budget.scale(rate.0, limit.0.max(1)));
        }
        cap
    }

    /// Tokens for the backlog, from the pools of the chain, shared among the backlogged. `None`: the first waiter
    /// does not fit into the local bucket and the pools do not cover it yet.
    fn lump(&self, lease: &Lease, fits: bool) -> Option<Ru> {
        let (mut available, mut share) = (Ru::MAX, Ru::MAX);
        for id in self.chain.up() {
            let Some(group) = self.engine.tree.get(id) else {
                continue;
            };
            if group.spec.limit().is_none() {
                continue;
            }
            let place = lease.queued_since.map(|since| (since, self.client, self.group));
            let first = group.queue.first_key_value().filter(|(first, _)| place.is_none_or(|p| **first < p));
            let reserved = first.map_or(Ru::ZERO, |(_, need)| *need);
            let free = (group.pool.tokens() - reserved).or_zero();
            available = available.min(free);
            share = share.min(Ru(free.0 / i64::try_from(group.backlogged.max(1)).unwrap_or(i64::MAX)));
        }
        let missing = (lease.backlog - lease.lump).or_zero();
        if fits {
            return Some(missing.min(share));
        }
        let needed = (lease.head - lease.lump).or_zero();
        (available >= needed).then(|| needed.max(missing.min(share)))
    }

    /// Time until the pools cover an operation and those ahead of it, as things are. The first in the queue asks
    /// more often: surplus of others may serve it sooner.
    fn lump_wait(&self, lease: &Lease, renew_every: Span) -> Span {
        let place = (lease.queued_since.unwrap_or(self.now), self.client, self.group);
        let (mut wait, mut first) = (LEAST_LUMP_WAIT, true);
        for id in self.chain.up() {
            let Some(group) = self.engine.tree.get(id) else {
                continue;
            };
            let Some(limit) = group.spec.limit() else { continue };
            let ahead: Ru = group.queue.range(..place).take(MOST_AHEAD).map(|(_, need)| *need).sum();
            first &= ahead == Ru::ZERO;
            let missing = lease.head + ahead - group.pool.tokens();
            wait = wait.max((limit - group.committed).time_for(missing).unwrap_or(renew_every));
        }
        wait.min(if first { Span(renew_every.0 / 4) } else { renew_every })
    }

    fn enqueue(&mut self, lease: &mut Lease) {
        let since = *lease.queued_since.get_or_insert(self.now);
        for id in self.chain.up() {
            if let Some(group) = self.engine.tree.get_mut(id) {
                group.queue.insert((since, self.client, self.group), lease.head);
            }
        }
    }

    /// Sets cap, fill and lump so that at every level the pool and what nodes may hold stay within the depth.
    fn give(&mut self, lease: &mut Lease, lump: Ru) {
        lease.cap = self.local_cap(lease.rate);
        let mut excess = Ru::ZERO;
        let mut fill = lease.cap;
        for id in self.chain.up() {
            let Some(group) = self.engine.tree.get(id) else {
                continue;
            };
            let Some(depth) = group.spec.depth() else { continue };
            let left = group.pool.tokens() - lump;
            let room = (depth - group.held - lease.lump - lump).or_zero();
            // Holding no more than before needs no room.
            lease.cap = lease.cap.min(room.max(lease.held_cap));
            excess = excess.max(lease.cap.max(lease.held_cap) + left - room);
            fill = fill.min(left);
        }
        let fill = fill.min(excess).or_zero().min(lease.cap);
        for id in self.chain.up() {
            let Some(group) = self.engine.tree.get_mut(id) else {
                continue;
            };
            if let Some(depth) = group.spec.depth() {
                group.pool.grant(fill + lump);
                let hold = lease.cap.max(lease.held_cap) + lease.lump + lump;
                group.pool.trim(depth - group.held - hold);
            }
        }
        lease.lump += lump;
        (lease.fresh_lump, lease.fresh_fill) = (lump, fill);
        lease.tokens_max = (lease.tokens_max + lump + fill).min(lease.hold());
    }

    /// Asks those who hold more than their share to lower themselves, largest first.
    fn recall(&mut self, short: Rate, renew_every: Span) {
        let tightest = self.chain.up().filter_map(|id| {
            let group = self.engine.tree.get(id)?;
            Some((group.spec.limit()? - group.committed, id))
        });
        if let Some((_, level)) = tightest.min() {
            if let Some(group) = self.engine.tree.get_mut(level) {
                group.short_until = self.now.after(renew_every).after(renew_every);
            }
            self.engine.recall(self.now, level, short, self.client);
        }
    }

    /// Whether someone who shares a level with this client lacks rate.
    fn is_short(&self) -> bool {
        self.chain.up().any(|id| self.engine.tree.get(id).is_some_and(|group| group.short_until > self.now))
    }
}

/// Lowering by a trifle only costs an acknowledgement.
fn keep_if_close(rate: Rate, held: Rate, free: Rate) -> Rate {
    let close = held > rate && held.0 - rate.0 <= held.0 / HYSTERESIS;
    if close && held <= free { held } else { rate }
}
