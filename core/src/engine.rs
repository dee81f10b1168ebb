//! The grant decision: takes a renewal, brings the ledger up to date, returns a lease.
//!
//! Units: micro-RU, micro-RU per second, microseconds on the controller's own clock, which the caller passes in.
//! Method: Doorman's hard ledger (leases never add up to more than the limit, and a lowered lease counts at its old
//! value until acknowledged), max-min targets, token batches for bursts, leases that the controller always outlives,
//! cumulative reports. docs/algorithm.md is the specification; invariants I1 to I3 are checked after every change in
//! debug builds.

use std::collections::BTreeSet;

use crate::decide::Decision;
use crate::exchange::{Ask, Enforcement, Grant, Held, LeaseTerms, Spending};
use crate::group::{ClientId, Fallback, GroupId};
use crate::lease::Lease;
use crate::tree::{Chain, Tree};
use crate::units::{MICRO, Rate, Ru, Span, Time};
use crate::want::{is_thin, uses, wanted};

/// Settings of the whole controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EngineConfig {
    /// How much faster or slower than the controller's a node's clock may run, in millionths.
    pub drift_ppm: u32,
    /// Added to every lease end on the controller's side.
    pub margin: Span,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { drift_ppm: 1_000, margin: Span::millis(50) }
    }
}

impl EngineConfig {
    /// How long a node may use a lease of this length, on the controller's clock: a slow clock stretches it by
    /// `1 / (1 - drift)`. Rounded up, plus the margin.
    pub fn longest_use(&self, ttl: Span) -> Span {
        let second = u128::from(MICRO.unsigned_abs());
        let slowest = second.saturating_sub(u128::from(self.drift_ppm)).max(1);
        let stretched = (u128::from(ttl.0) * second).div_ceil(slowest);
        Span(u64::try_from(stretched).unwrap_or(u64::MAX)) + self.margin
    }

    /// The shortest lease that may be in use for `left`, on the controller's clock.
    pub fn length_in_use_for(&self, left: Span) -> Span {
        let within = self.ends_within(left);
        if self.longest_use(within) < left { within + Span(1) } else { within }
    }

    /// The longest lease that no node can still use after `left`, on the controller's clock.
    pub(crate) fn ends_within(&self, left: Span) -> Span {
        let second = u128::from(MICRO.unsigned_abs());
        let slowest = second.saturating_sub(u128::from(self.drift_ppm)).max(1);
        let shortened = u128::from((left - self.margin).0) * slowest / second;
        Span(u64::try_from(shortened).unwrap_or(u64::MAX))
    }
}

/// An order to lower a lease at once, which the caller pushes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LowerOrder {
    /// The client that holds the lease.
    pub client: ClientId,
    /// The group of the lease.
    pub group: GroupId,
    /// The highest rate that the node may use from now on.
    pub rate_at_most: Rate,
}

/// The controller's state machine.
#[derive(Clone, Debug, Hash)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) tree: Tree,
    pub(crate) expiries: BTreeSet<(Time, ClientId, GroupId)>,
    /// By client, so that one that leaves is found without a walk over all groups.
    pub(crate) holders: BTreeSet<(ClientId, GroupId)>,
    pub(crate) lowers: Vec<LowerOrder>,
    /// Groups whose fallback is divided among nodes.
    pub(crate) divided: BTreeSet<GroupId>,
    /// The end of the latest recovery of a group, and of the one that applies to all groups, future ones included.
    pub(crate) recovering_until: Time,
    pub(crate) all_recover_until: Time,
}

impl Engine {
    /// Creates an engine with an unlimited root and no other group.
    pub fn new(now: Time, config: EngineConfig) -> Self {
        Self {
            config,
            tree: Tree::new(now),
            expiries: BTreeSet::new(),
            holders: BTreeSet::new(),
            lowers: Vec::new(),
            divided: BTreeSet::new(),
            recovering_until: Time(0),
            all_recover_until: Time(0),
        }
    }

    /// Starts a recovery, after an unclean start or when leases are found that this engine never gave: until `until`,
    /// pools stay empty and a client gets at most what it proves it holds, or holds of this engine's leases.
    pub fn recover_until(&mut self, until: Time) {
        self.recovering_until = self.recovering_until.max(until);
        self.all_recover_until = self.all_recover_until.max(until);
        self.tree.iter_mut().for_each(|group| group.recover_until(until));
    }

    /// The same as `recover_until`, for one group and all above it, where its leases count.
    pub fn recover_group_until(&mut self, id: GroupId, until: Time) {
        let Some(chain) = self.tree.chain(id) else { return };
        self.recovering_until = self.recovering_until.max(until);
        for slot in chain.up() {
            self.tree.at_mut(slot).recover_until(until);
        }
    }

    /// The end of the latest recovery; in the past when no group recovers.
    pub fn recovering_until(&self) -> Time {
        self.recovering_until
    }

    /// The end of recovery of every limited group in the group's chain.
    pub fn group_recovering_until(&self, id: GroupId) -> Time {
        self.tree.chain(id).map_or(Time(0), |chain| self.tree.recovering_until(&chain))
    }

    /// The same for a chain; `None` when that is past. A level without a limit does not recover.
    pub(crate) fn recovers(&self, chain: &Chain, now: Time) -> Option<Time> {
        let until = if now < self.recovering_until { self.tree.recovering_until(chain) } else { Time(0) };
        (now < until).then_some(until)
    }

    /// Answers one entry of a renewal. `None`: this entry or a newer one has been answered already.
    ///
    /// `proven` is what the node held before an unclean restart, as the adapter verified it.
    pub fn renew(
        &mut self,
        now: Time,
        client: ClientId,
        group: GroupId,
        seq: u64,
        ask: &Ask,
        proven: Option<Held>,
    ) -> Option<Grant> {
        self.expire(now);
        let Some(chain) = self.tree.chain(group) else { return Some(Grant::UnknownGroup) };
        if self.tree.at(chain.slot()).removed {
            return Some(Grant::UnknownGroup);
        }
        let known = self.tree.at(chain.slot()).live.leases.get(&client);
        if known.is_some_and(|lease| seq <= lease.seq()) {
            return None;
        }
        self.advance(&chain, now);
        // Read again, because a full pool takes back what it left to a lease.
        let known = self.tree.at(chain.slot()).live.leases.get(&client).map(|lease| **lease);
        let mut lease = self.lift(&chain, known);
        let (known_client, enforcement) = (lease.seq() > 0, self.tree.enforcement(&chain));
        self.tree.hear_share(now, &chain, &mut lease, ask);
        self.tree.hear(&chain, now, &mut lease, seq, ask);
        // An unlimited node reports nothing held though it may spend, so its lease stays; so does that of one which keeps a
        // share of a quota: the answer takes it back. A node that gave up kept none, and ignores the answer.
        if ask.gives_up()
            && !lease.share.is_kept()
            && !known.is_some_and(|lease| lease.granted().unlimited)
            && self.tree.is_limited(&chain)
        {
            self.let_go(now, &chain, (client, group), &mut lease);
            // A node that asks for nothing without having given up applies the answer, so this repeats its earlier
            // fallback.
            let fallback = self.tell_fallback(now, &chain, client, (None, ask.acked_seq), enforcement);
            self.assert_invariants();
            let terms = self.idle_terms(&chain, now, &ask.spending, fallback);
            return Some(Grant::Leased(LeaseTerms { enforcement, ..terms }));
        }
        let fallback = self.tell_fallback(now, &chain, client, (Some(seq), ask.acked_seq), enforcement);
        let recovering = self.recovers(&chain, now);
        if let Some(until) = recovering
            && (!Self::readmit(now, until, &mut lease, known_client, proven)
                || fallback.outweighs(lease.held().rate))
        {
            self.let_go(now, &chain, (client, group), &mut lease);
            let ask_again = until.since(now).min(Span::secs(1));
            return Some(Grant::Recovering { ask_again, fallback: Some(fallback) });
        }
        let ask = &self.considered(&chain, ask, enforcement);
        self.note_interest(now, &chain, group, client, &mut lease, ask);
        let recovering = recovering.is_some();
        let (tree, config, orders) = (&mut self.tree, self.config, &mut self.lowers);
        let decision = Decision {
            tree,
            config,
            orders,
            chain: &chain,
            now,
            client,
            group,
            fallback,
            recovering,
            enforcement,
        };
        let grant = decision.decide(&mut lease);
        self.lay(&chain, group, client, lease);
        self.tree.call(&mut self.lowers, now, &chain, client);
        if recovering {
            // The leases that nodes prove were given under the definitions before the restart.
            self.tree.excuse(&chain);
        }
        self.assert_invariants();
        Some(grant)
    }

    /// Drops a lease, which is out of the sums, with what its node wants.
    fn let_go(&mut self, now: Time, chain: &Chain, (client, group): (ClientId, GroupId), lease: &mut Lease) {
        self.drop_interest(chain, group, client, lease);
        self.tree.lose_share(now, lease);
        self.drop_lease(chain, group, client);
        self.assert_invariants();
    }

    /// Takes a lease into the ledger in recovery: a node keeps at most what it had. False: it proved nothing.
    fn readmit(now: Time, until: Time, lease: &mut Lease, known_client: bool, proven: Option<Held>) -> bool {
        if known_client {
            // The ledger has the lease already.
            return true;
        }
        let Some(held) = proven else { return false };
        let held =
            Held { rate: held.rate.max(Rate::ZERO), cap: held.cap.or_zero(), lump: held.lump.or_zero() };
        // The old grant ends no later than recovery, whatever its exact end.
        lease.readmit(now, &held, until);
        true
    }

    /// What the node asks, without what nobody waits for.
    fn considered(&self, chain: &Chain, ask: &Ask, enforcement: Enforcement) -> Ask {
        // The node refuses an operation that can never fit as soon as it has the answer.
        let never = ask.head > self.tree.max_fit(chain);
        let mut ask = if never { Ask { backlog: Ru::ZERO, head: Ru::ZERO, ..*ask } } else { *ask };
        if enforcement.paced {
            // An operation of any size starts at the rate and waits for no lump.
            (ask.largest, ask.head) = (ask.largest.max(ask.head), Ru::ZERO);
        }
        ask
    }

    /// Enters what the node wants into the division, and its place into the queue.
    fn note_interest(
        &mut self,
        now: Time,
        chain: &Chain,
        id: GroupId,
        client: ClientId,
        lease: &mut Lease,
        ask: &Ask,
    ) {
        let before = lease.entry();
        let (had_backlog, has_backlog) = lease.report(ask);
        let others_queue = self.tree.up(chain).any(|group| !group.live.queue.is_empty());
        let lumps = self.tree.up(chain).any(|group| group.lumps_until > now);
        let thin = is_thin(&self.tree, chain, lease);
        lease.wish(wanted(ask, lease, others_queue, lumps, thin));
        if lease.queued_since().is_some() || has_backlog != had_backlog {
            for slot in chain.up() {
                let live = &mut *self.tree.at_mut(slot).live;
                if let Some(since) = lease.queued_since() {
                    live.queue.remove(&(since, client, id));
                }
                live.backlogged += u64::from(has_backlog);
                live.backlogged -= u64::from(had_backlog);
            }
        }
        if !lease.reported().head.is_positive() {
            lease.leave_queue();
        }
        self.tree.at_mut(chain.slot()).live.own.change(client, before, lease.entry());
        self.tree.propagate_demand(chain);
    }

    /// Forgets what a client in the ledger wants, its backlog and its place in the queue.
    pub(crate) fn forget_interest(&mut self, chain: &Chain, id: GroupId, client: ClientId) {
        let group = self.tree.at_mut(chain.slot());
        if !group.live.is_awake() {
            return;
        }
        let Some(lease) = group.live.leases.get_mut(&client) else {
            return;
        };
        let before = **lease;
        lease.forget_interest();
        self.drop_interest(chain, id, client, &before);
    }

    /// The same for a lease that is out of the ledger's sums.
    fn drop_interest(&mut self, chain: &Chain, id: GroupId, client: ClientId, lease: &Lease) {
        if let Some(entry) = lease.entry() {
            self.tree.at_mut(chain.slot()).live.own.change(client, Some(entry), None);
        }
        if lease.queued_since().is_some() || lease.reported().backlog.is_positive() {
            for slot in chain.up() {
                let live = &mut *self.tree.at_mut(slot).live;
                if let Some(since) = lease.queued_since() {
                    live.queue.remove(&(since, client, id));
                }
                live.backlogged -= u64::from(lease.reported().backlog.is_positive());
            }
        }
        self.tree.propagate_demand(chain);
    }

    /// Takes a client's lease out of the ledger's sums, to be put back changed or dropped.
    pub(crate) fn lift(&mut self, chain: &Chain, known: Option<Lease>) -> Lease {
        let lease = known.unwrap_or_default();
        self.tree.add(chain, Rate(-lease.committed().0), Ru(-lease.hold().0), Rate(-lease.counted.0));
        lease
    }

    /// Puts a lease back, or adds a new one.
    pub(crate) fn lay(&mut self, chain: &Chain, id: GroupId, client: ClientId, mut lease: Lease) {
        let (committed, ends) = (lease.committed(), lease.ends());
        lease.counted = uses(&lease);
        let used = lease.counted;
        let live = &mut *self.tree.at_mut(chain.slot()).live;
        if lease.listed != Some(committed) {
            if let Some(was) = lease.listed.replace(committed) {
                live.by_rate.remove(&(was, client));
            }
            live.by_rate.insert((committed, client));
        }
        if lease.tokens().running.is_positive() {
            live.running.insert(client);
        } else if !live.running.is_empty() {
            live.running.remove(&client);
        }
        let ended = live.put(client, lease).map(|before| before.ends());
        if ended.is_none() {
            self.holders.insert((client, id));
        }
        if ended != Some(ends) {
            if let Some(ended) = ended {
                self.expiries.remove(&(ended, client, id));
            }
            self.expiries.insert((ends, client, id));
        }
        self.tree.add(chain, committed, lease.hold(), used);
        self.tree.list(chain);
    }

    /// Replaces the lease that the client has.
    pub(crate) fn replace(&mut self, chain: &Chain, id: GroupId, client: ClientId, mut lease: Lease) {
        let known = self.tree.at(chain.slot()).live.leases.get(&client).map(|lease| **lease);
        lease.listed = self.lift(chain, known).listed;
        self.lay(chain, id, client, lease);
    }

    /// Drops a lease that is out of the sums.
    fn drop_lease(&mut self, chain: &Chain, id: GroupId, client: ClientId) {
        let group = self.tree.at_mut(chain.slot());
        if group.live.is_awake()
            && let Some(lease) = group.live.leases.remove(&client)
        {
            if let Some(listed) = lease.listed {
                group.live.by_rate.remove(&(listed, client));
            }
            if lease.tokens().running.is_positive() {
                group.live.running.remove(&client);
            }
            self.expiries.remove(&(lease.ends(), client, id));
            self.holders.remove(&(client, id));
        }
        self.tree.list(chain);
        self.tree.rest(chain);
    }

    /// Brings the pools of a chain up to `now`, and the rates that warm up or cool.
    pub(crate) fn advance(&mut self, chain: &Chain, now: Time) {
        self.tree.warm(chain, now);
        for slot in chain.up() {
            let over = self.tree.at_mut(slot).accrue(now);
            if over.is_positive() {
                self.tree.reclaim(chain, over, None);
                self.tree.at_mut(slot).trim();
            }
        }
    }

    /// Ends all leases whose time is over, in the order of their ends.
    pub fn expire(&mut self, now: Time) {
        while let Some(&(end, client, id)) = self.expiries.first().filter(|(end, ..)| *end <= now) {
            self.end(end, client, id);
        }
    }

    fn end(&mut self, now: Time, client: ClientId, id: GroupId) {
        // Removed first, so that no lease can be found past its end twice.
        self.expiries.remove(&(now, client, id));
        let Some(chain) = self.tree.chain(id) else { return };
        self.advance(&chain, now);
        self.forget_interest(&chain, id, client);
        let known = self.tree.at(chain.slot()).live.leases.get(&client).map(|lease| **lease);
        let mut lease = self.lift(&chain, known);
        self.tree.lose_share(now, &mut lease);
        self.drop_lease(&chain, id, client);
        self.drop_if_gone(id);
    }

    /// The earliest end of a lease.
    pub fn next_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|(end, ..)| *end)
    }

    /// Ends the leases of a client that said goodbye and spends nothing any more.
    pub fn release(&mut self, now: Time, client: ClientId) {
        self.expire(now);
        let first = (client, GroupId::ROOT);
        let holds = self.holders.range(first..).take_while(|(holder, _)| *holder == client).copied();
        let held: Vec<_> = holds.collect();
        for (client, id) in held {
            self.end(now, client, id);
        }
        self.free_parts(client);
        self.assert_invariants();
    }

    /// Returns the leases to be lowered at once; the caller pushes the orders.
    pub fn take_lowers(&mut self) -> Vec<LowerOrder> {
        std::mem::take(&mut self.lowers)
    }

    /// Terms for a node that gave its lease up.
    fn idle_terms(&self, chain: &Chain, now: Time, told: &Spending, fallback: Fallback) -> LeaseTerms {
        let spec = &self.tree.at(chain.slot()).spec;
        LeaseTerms {
            ttl: spec.ttl,
            renew_after: spec.renew_every,
            max_fit: self.tree.max_fit(chain),
            max_debt: spec.max_debt,
            fallback,
            allowance: self.tree.spent_share(chain, now, told),
            ..LeaseTerms::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_length_is_the_shortest_that_may_be_in_use_for_so_long(
            drift_ppm in prop_oneof![Just(0), Just(1_000), 0_u32..100_000],
            margin in prop_oneof![Just(0), Just(50_000), 0_u64..2_000_000],
            ttl in prop_oneof![1_000_000_u64..60_000_000, 0_u64..100],
            short_by in 0_u64..3,
        ) {
            let config = EngineConfig { drift_ppm, margin: Span(margin) };
            // A lease that was given at this moment, and one of a moment ago.
            let left = Span(config.longest_use(Span(ttl)).0.saturating_sub(short_by));
            let length = config.length_in_use_for(left);
            prop_assert!(config.longest_use(length) >= left && length <= Span(ttl), "{length}");
            let shorter = length.0.checked_sub(1).map(|us| config.longest_use(Span(us)));
            prop_assert!(shorter.is_none_or(|longest| longest < left), "{length} is not the shortest");
        }
    }
}
