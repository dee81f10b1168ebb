//! I5: the most that groups may admit, and what they did, while definitions come, change and go.
//!
//! An admission counts in its group and in all that are above it at that moment. A changed definition counts from its
//! acknowledgement on, and the one before it until all leases have ended. A group that moves brings its leases along:
//! for as long as these last, the limits that they were made under count beside the limits of its new parents. The old
//! parents keep their bounds throughout. Nodes that are cut off may run a group at its fallback rate, the highest that
//! they ever received, because a node that hears nothing hears of no lower one.

use std::collections::BTreeSet;

use tidegate_core::bound::{Bound, tick};
use tidegate_core::group::{Fallback, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::cap::{Capped, Limits};
use super::world::World;

/// The highest fallbacks that a group ever had: of each node, and of all together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fallbacks {
    each: Rate,
    total: Rate,
}

impl World {
    /// Nodes that are cut off may run groups at their fallback rates; by default none is expected to.
    pub fn allow_fallbacks(&mut self) {
        self.fallbacks_count = true;
    }

    /// Groups that are or were there.
    pub fn groups(&self) -> Vec<GroupId> {
        self.bounds.keys().copied().collect()
    }

    /// The measured bound of a group, under its definition of the moment.
    pub fn bound(&mut self, id: GroupId) -> Option<&mut Bound> {
        self.bounds.get_mut(&id).map(|capped| &mut capped.nominal)
    }

    /// Takes an admission into account in the bounds of a group and of all above it.
    pub(super) fn count(&mut self, id: GroupId, cost: Ru) {
        let now = self.now;
        for above in self.chain(id) {
            if let Some(capped) = self.bounds.get_mut(&above) {
                capped.admit(now, cost);
            }
            self.was_below.insert((id, above));
        }
    }

    /// A group and those above it. A group that is gone is where it was: its leases may be out.
    pub(super) fn chain(&self, id: GroupId) -> Vec<GroupId> {
        let mut chain = vec![id];
        let mut level = id;
        while let Some(above) = self.parent(level).filter(|above| !chain.contains(above)) {
            chain.push(above);
            level = above;
        }
        chain
    }

    fn parent(&self, id: GroupId) -> Option<GroupId> {
        match self.specs.get(&id) {
            Some(spec) => spec.parent,
            None => self.gone.get(&id).copied().flatten(),
        }
    }

    /// When no lease of now is out any more, on the clock of any controller or node.
    pub(super) fn settled(&self) -> Time {
        let longest = self.longest_ttl;
        self.now.max(self.old_until).after(longest).after(Span(longest.0 / 1_000)).after(Span::millis(60))
    }

    /// A definition is in force from now on.
    pub(super) fn defined(&mut self, id: GroupId, spec: &GroupSpec) {
        let before = self.specs.get(&id).map(Limits::of);
        if self.specs.get(&id).is_none_or(|before| before.quota != spec.quota) {
            self.quotas.remove(&id);
        }
        let above: BTreeSet<GroupId> = self.chain(id).into_iter().skip(1).collect();
        // The limits that current leases were made under: the group's own, and those above it.
        let own = self.bounds.get(&id).map(Capped::leased);
        let over = above.iter().filter_map(|id| self.bounds.get(id)).map(Capped::leased);
        let brought = own.map(|own| over.fold(own, Limits::least));
        self.gone.remove(&id);
        self.specs.insert(id, spec.clone());
        self.longest_ttl = self.longest_ttl.max(spec.ttl);
        let (now, settled, limits) = (self.now, self.settled(), Limits::of(spec));
        self.changing_until = self.changing_until.max(settled);
        self.charges.define(id, spec.quota, now, settled);
        match self.bounds.get_mut(&id) {
            None => drop(self.bounds.insert(id, Capped::new(now, limits))),
            Some(capped) if before.is_none() => capped.created(now, limits, settled),
            Some(capped) if before != Some(limits) => capped.altered(now, limits, settled),
            Some(_) => {}
        }
        let brought = brought.filter(|brought| *brought != Limits::default());
        for comes_under in self.chain(id).into_iter().skip(1).filter(|id| !above.contains(id)) {
            if let (Some(brought), Some(capped)) = (brought, self.bounds.get_mut(&comes_under)) {
                capped.joined(now, brought, settled);
            }
        }
        self.bend_curve(id, spec, settled);
        self.count_fallbacks(id, spec);
        self.count_shadows();
    }

    /// A group is gone from now on. Its leases count until they end.
    pub(super) fn removed(&mut self, id: GroupId) {
        let (now, settled) = (self.now, self.settled());
        self.changing_until = self.changing_until.max(settled);
        if let Some(spec) = self.specs.remove(&id) {
            self.gone.insert(id, spec.parent);
            self.retire(id);
        }
        if let Some(capped) = self.bounds.get_mut(&id) {
            capped.removed(now, settled);
            capped.curve = None;
        }
    }

    /// Lets what a group and those below it may admit by fallbacks count in all above them.
    fn count_fallbacks(&mut self, id: GroupId, spec: &GroupSpec) {
        if !self.fallbacks_count {
            return;
        }
        let each = match spec.fallback {
            _ if spec.fallback_total.is_some() => Rate::ZERO,
            Fallback::Stop => Rate::ZERO,
            Fallback::Rate(rate) | Fallback::Part(rate, _) => rate,
            Fallback::Unlimited => Rate::MAX,
        };
        let highest = self.fallbacks.entry(id).or_default();
        highest.each = each.max(highest.each);
        // Divided among nodes, however many there are.
        highest.total = spec.fallback_total.unwrap_or_default().max(highest.total);
        let (now, nodes) = (self.now, i64::try_from(self.nodes.len()).unwrap_or(i64::MAX));
        let of_all = |highest: &Fallbacks| highest.each.scale(nodes, 1) + highest.total;
        // Where it went, all that is below it went, too.
        let some =
            self.fallbacks.iter().filter(|(_, highest)| of_all(highest) > Rate::ZERO).map(|(id, _)| *id);
        let below = some.filter(|other| self.chain(*other).contains(&id));
        let pairs: Vec<_> =
            below.flat_map(|below| self.chain(below).into_iter().map(move |id| (below, id))).collect();
        self.fell_back_in.extend(pairs);
        for above in self.chain(id) {
            let under = self.fell_back_in.iter().filter(|(_, ancestor)| *ancestor == above);
            let sum = under.filter_map(|(below, _)| self.fallbacks.get(below));
            let sum = sum.fold(0_i64, |sum, highest| sum.saturating_add(of_all(highest).0)).min(Rate::MAX.0);
            // On a clock that is fast.
            let rate = Rate(sum).scale(1_002, 1_000);
            if let Some(capped) = self.bounds.get_mut(&above) {
                capped.allow_fallbacks(now, rate);
            }
        }
    }

    /// I5 of a group.
    ///
    /// # Errors
    /// The worst window is above burst and overrun.
    pub fn judge_bound(&mut self, id: GroupId) -> Result<(), String> {
        let overrun = self.overrun(id);
        let Some(capped) = self.bounds.get(&id) else {
            return Ok(());
        };
        let excess = capped.excess();
        if excess <= overrun + tick(capped.fastest) {
            return self.judge_curve(id);
        }
        Err(format!(
            "I5: group {}: {excess} above rate * window and burst, overrun {overrun}; {} above rate * window in {}",
            id.0,
            capped.nominal.worst(),
            capped.nominal.worst_window(),
        ))
    }

    /// The worst window of a group whose limits never changed, in thousandths of its burst and overrun.
    pub fn share_of_bound(&self, id: GroupId) -> u64 {
        let (Some(capped), Some(spec)) =
            (self.bounds.get(&id).filter(|capped| !capped.changed), self.specs.get(&id))
        else {
            return 0;
        };
        let allowed = i128::from((capped.depth(spec) + self.overrun(id)).0.max(1));
        u64::try_from(i128::from(capped.nominal.worst().0) * 1_000 / allowed).unwrap_or(0)
    }
}
