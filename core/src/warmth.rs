//! How warm a group is whose rate warms up, and the rate that its nodes together may use for that.
//!
//! Units: micro-RU per second, microseconds on the controller's clock. Method: the curve and the store of
//! [`crate::policy::warm_up`], which the use of all nodes together drains and idle time refills. Used is what nodes
//! offered, as far as they have leases for it; a node whose operations wait uses all that it has. It is known from
//! renewals, so a node that is gone counts until its lease ends. A group begins cold.
//!
//! The curve holds for the sum: what is leased is never raised above the rate of the moment, and only what is leased
//! counts as used. Let `A` be what nodes admitted since the group was cold. The store has lost at most the use of
//! leases, so the rate is at most the curve's after that use, and `A` grows by no more. When the curve falls below what
//! is leased, leases that are out last until they are renewed or end, and are not raised (`excess`).

use crate::decide::Decision;
use crate::engine::Engine;
use crate::group::{GroupId, GroupSpec, Policy};
use crate::policy::Policy as _;
use crate::policy::warm_up::{WarmUp, WarmUpState};
use crate::tree::{Chain, Group, Tree};
use crate::units::{Rate, Ru, Span, Time};

/// A group that uses all but one part in this many of its rate is not idle: what the curve yields beyond that has not
/// reached its nodes yet. At half, a load of three quarters of the rate would never let it cool; with twice, the last
/// steps of a short warm-up count as idle, and it takes longer.
pub(crate) const ALL_BUT: i64 = 8;
/// While a rate warms up, a node that waits for more of it asks this many times in a warm-up, so that its lease is
/// behind the curve by a hundredth of that. With half, it is behind by two; twice costs twice the messages.
const STEPS: u64 = 100;
/// But it never asks sooner than this, so that a warm-up of a second costs no more messages than nodes send at most.
const SOONEST: Span = Span::millis(50);

/// The state of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Warmth {
    curve: WarmUp,
    period: Span,
    state: WarmUpState,
    at: Time,
    /// By the curve.
    rate: Rate,
    /// What is leased above that since it has become less; it only shrinks.
    excess: Rate,
}

/// How warm a group is, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmthView {
    /// The rate that all its nodes together may use now.
    pub rate: Rate,
    /// Thousandths of the way from cold to warm: 1000 is warm.
    pub warmth: u32,
}

impl Warmth {
    /// A group that begins cold; `None` unless its rate warms up.
    pub(crate) fn cold(now: Time, spec: &GroupSpec) -> Option<Box<Self>> {
        let Policy::WarmUp { period, .. } = spec.policy else { return None };
        // A definition that has no curve is refused before it comes here.
        let curve = spec.curve().ok()??;
        let state = curve.fresh();
        let rate = curve.rate(&state);
        Some(Box::new(Self { curve, period, state, at: now, rate, excess: Rate::ZERO }))
    }

    /// A group whose definition has changed is as warm as before by its new curve, and cold if it had none.
    pub(crate) fn altered(before: Option<Box<Self>>, now: Time, spec: &GroupSpec) -> Option<Box<Self>> {
        let mut after = Self::cold(now, spec)?;
        if let Some(before) = before {
            let state = after.curve.as_warm_as(&before.curve, &before.state);
            after.set(state, before.excess);
        }
        Some(after)
    }

    fn set(&mut self, state: WarmUpState, leased: Rate) {
        (self.state, self.rate) = (state, self.curve.rate(&state));
        self.excess = if leased > self.rate { leased } else { Rate::ZERO };
    }

    /// The rate by the curve.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// What may be leased: the rate, or what was leased before it became less.
    pub(crate) fn most_leased(&self) -> Rate {
        self.rate.max(self.excess)
    }

    /// Notes that no more than this is leased.
    pub(crate) fn shrink(&mut self, leased: Rate) {
        self.excess = self.excess.min(leased);
    }

    /// Brings it up to `now`, while so much was leased and used of it.
    fn pass(&mut self, now: Time, leased: Rate, used: Rate) {
        let waited = used >= self.rate - self.rate.scale(1, ALL_BUT);
        let mut state = self.state;
        self.curve.pass(&mut state, (self.at, now), used, waited);
        self.at = self.at.max(now);
        self.set(state, leased);
    }

    /// The same at a later moment, if nothing happens until then.
    fn later(&self, now: Time, leased: Rate, used: Rate) -> Self {
        let mut later = *self;
        later.pass(now, leased, used);
        later
    }

    fn view(&self) -> WarmthView {
        WarmthView { rate: self.rate, warmth: self.curve.warmth(&self.state) }
    }

    /// What is in store, to be saved; `None` when it is cold.
    fn saved(&self) -> Option<Ru> {
        (self.rate > self.curve.rate(&self.curve.fresh())).then(|| self.curve.stored_at_most(&self.state))
    }
}

impl Tree {
    /// Brings the rates of a chain that warm up or cool to `now`.
    pub(crate) fn warm(&mut self, chain: &Chain, now: Time) {
        for slot in chain.up() {
            let group = self.at_mut(slot);
            let (id, leased, used) = (group.id, group.live.committed, group.live.used);
            let Some(warmth) = group.warmth.as_deref_mut() else { continue };
            let before = warmth.rate;
            warmth.pass(now, leased, used);
            // Its part of what is above it follows.
            if warmth.rate != before
                && let Some(chain) = self.chain(id)
            {
                self.propagate_demand(&chain);
            }
        }
    }
}

impl Decision<'_> {
    /// When a node that waits for more rate asks again: as a rate of the chain warms up, and within `most`.
    pub(crate) fn warms_within(&self, most: Span) -> Span {
        let warming = |group: &Group| {
            let warmth = group.warmth.as_deref()?;
            (Some(warmth.rate) < group.spec.limit()).then(|| Span(warmth.period.0 / STEPS).max(SOONEST))
        };
        self.up().filter_map(warming).fold(most, Span::min)
    }
}

impl Engine {
    /// How warm a group is whose rate warms up; `None` of others.
    pub fn warmth(&self, group: GroupId, now: Time) -> Option<WarmthView> {
        let group = self.tree.get(group).filter(|group| !group.removed)?;
        Some(group.warmth.as_deref()?.later(now, group.live.committed, group.live.used).view())
    }

    /// What is in store by group, to be saved: those that are not cold.
    pub(crate) fn saved_warmths(&self, now: Time) -> Vec<(GroupId, Ru)> {
        let saved = |group: &Group| {
            let warmth = group.warmth.as_deref().filter(|_| !group.removed)?;
            Some((group.id, warmth.later(now, group.live.committed, group.live.used).saved()?))
        };
        self.tree.iter().filter_map(saved).collect()
    }

    /// Puts back what was in store, `away` before now. Nobody knows what was used since: it counts as idle.
    pub(crate) fn restore_warmths(&mut self, now: Time, away: Span, saved: &[(GroupId, Ru)]) {
        for (id, stored) in saved {
            let warmth = self.tree.get_mut(*id).and_then(|group| group.warmth.as_deref_mut());
            if let Some(warmth) = warmth {
                let mut state = warmth.curve.with_stored(*stored);
                warmth.curve.pass(&mut state, (Time(0), Time(away.0)), Rate::ZERO, false);
                warmth.at = now;
                warmth.set(state, Rate::ZERO);
            }
        }
    }
}
