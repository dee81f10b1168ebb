//! A group that lends to its thread, beside the node machine alone: at the same moments both are asked for the same, and
//! answer alike. What a thread remembers of a former answer never outlives the state from which it was learnt.
//!
//! Buckets never fill up here, so that tokens come to both alike, to the micro-RU: a full one loses what is earned before
//! it learns what a purse has spent. There are no lumps, which a purse leaves alone and the machine spends first. And no
//! operation is under way when a quota begins to count RU: its end is taken for another's, whichever comes first.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::exchange::{Allowance, Ask, Enforcement, Grant, LeaseTerms, Spending};
use tidegate_core::node::{NodeConfig, NodeGroup, NodeState, Refusal};
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts, Total};
use tokio::runtime::Builder;
use tokio::time::advance;

use super::GroupCell;
use crate::cell::Notice;
use crate::group::Group;
use crate::names::GroupName;
use crate::permit::Permit;
use crate::refused::Refused;
use crate::shared::Shared;

/// Twice as much as is ever granted.
const CAP: i64 = 10_000;

#[derive(Clone, Debug)]
enum Step {
    Try(i64),
    /// Without a trace of a refusal.
    Take(i64),
    Check(i64),
    /// The oldest permit or a later one, at this charge.
    Settle(usize, i64),
    Cancel(usize),
    Pass(u64),
    /// Everything is recalled.
    Look,
    Grant(Terms),
    UnknownGroup,
    Lower(i64),
    SessionLost,
}

#[derive(Clone, Copy, Debug)]
struct Terms {
    rate: i64,
    fill: i64,
    ttl_ms: u64,
    max_fit: i64,
    paced: bool,
    share: Option<Share>,
}

/// A share of a quota.
#[derive(Clone, Copy, Debug)]
struct Share {
    unit: Unit,
    /// How much may be used beyond what was.
    more: i64,
    resets_ms: u64,
    rolls: bool,
    /// It is of another window than the one before.
    begins: bool,
}

fn cost() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0_i64..20, 2 => 20_i64..400, 2 => 400_i64..3_000]
}

fn terms() -> impl Strategy<Value = Terms> {
    let max_fit = prop_oneof![3 => Just(i64::MAX / 4), 1 => 100_i64..3_000];
    let fill = prop_oneof![Just(0), 0_i64..3_000];
    let rate = prop_oneof![Just(0), 0_i64..2_000];
    let share = prop::option::of(share());
    let all = (rate, fill, 20_u64..2_000, max_fit, prop::bool::weighted(0.2), share);
    all.prop_map(|(rate, fill, ttl_ms, max_fit, paced, share)| Terms {
        rate,
        fill,
        ttl_ms,
        max_fit,
        paced,
        share,
    })
}

fn share() -> impl Strategy<Value = Share> {
    let of_ru = (Just(Unit::Ru), prop_oneof![0_i64..50, 50_i64..5_000]);
    let of_requests = (Just(Unit::Requests), (0_i64..120).prop_map(|count| count * Unit::REQUEST.0));
    let amount = prop_oneof![of_ru, of_requests];
    (amount, 1_u64..3_000, any::<bool>(), prop::bool::weighted(0.2))
        .prop_map(|((unit, more), resets_ms, rolls, begins)| Share { unit, more, resets_ms, rolls, begins })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => cost().prop_map(Step::Try),
        4 => cost().prop_map(Step::Take),
        1 => cost().prop_map(Step::Check),
        8 => (0_usize..4, cost()).prop_map(|(which, cost)| Step::Settle(which, cost)),
        4 => (0_usize..4).prop_map(Step::Cancel),
        8 => prop_oneof![8 => 0_u64..1_500, 1 => 1_500_u64..150_000].prop_map(Step::Pass),
        2 => Just(Step::Look),
        4 => terms().prop_map(Step::Grant),
        1 => Just(Step::UnknownGroup),
        1 => (0_i64..2_000).prop_map(Step::Lower),
        1 => Just(Step::SessionLost),
    ]
}

/// The group and the machine.
struct Both {
    group: Group,
    alone: NodeGroup,
    seq: u64,
    /// The window of the last share, and what it was of.
    window: (u64, Option<Unit>),
    permits: Vec<Permit<'static>>,
}

impl Both {
    fn new() -> Self {
        let shared = Shared::new(NodeConfig { drift_ppm: 0, ..NodeConfig::default() }, None);
        let Ok(name) = GroupName::new("g") else { unreachable!("it is a name") };
        let config = NodeConfig { fallback: shared.fallback_of(&name), ..shared.config };
        let alone = NodeGroup::new(shared.clock.now(), config);
        let group = Group { cell: GroupCell::new(1, name, shared, Arc::default(), None) };
        Self { group, alone, seq: 0, window: (0, None), permits: Vec::new() }
    }

    fn now(&self) -> Time {
        self.group.cell.shared().clock.now()
    }

    /// Asks and is answered at once.
    fn grant(&mut self, grant: impl FnOnce(&Ask) -> Grant) {
        self.seq += 1;
        let (cell, now, seq) = (&self.group.cell, self.now(), self.seq);
        self.alone.renew_now(now);
        let alone = self.alone.ask(now, seq);
        cell.heed(Notice::Renew);
        let together = cell.if_awake(|state, now| state.ask(now, seq)).flatten().map(|(ask, ..)| ask);
        // A batch tells of its operations when it is back, so that the load of the last moments may differ.
        let spent = |ask: &Ask| Spending { offered: Rate::ZERO, ..ask.spending };
        assert_eq!(together.as_ref().map(spent), Some(spent(&alone)));
        let grant = grant(&alone);
        let heard = self.alone.on_grant(now, seq, &grant);
        assert_eq!(cell.grant(seq, &grant, Vec::new(), None), heard);
    }

    fn lease(&mut self, terms: Terms) {
        let hand = self.alone.state(self.now()).available;
        let (window, unit) = self.window;
        let begins = terms.share.is_some_and(|share| share.begins || unit != Some(share.unit));
        let window = window + u64::from(begins);
        let counts_ru = terms.share.is_some_and(|share| share.unit == Unit::Ru);
        if counts_ru && unit != Some(Unit::Ru) {
            while let Some(permit) = self.permit(0) {
                self.settle_within(permit, 0);
            }
        }
        self.window = (window, terms.share.map(|share| share.unit));
        self.grant(|ask| {
            let allowance = terms.share.map(|Share { unit, more, resets_ms, rolls, .. }| {
                let used = if begins { Ru::ZERO } else { ask.spending.used };
                let resets_in = Span::millis(resets_ms);
                let (ceiling, left) = (used + Ru(more), Ru(more));
                Allowance { window, unit, ceiling, amount: Ru::MAX, left, resets_in, length: Span(0), rolls }
            });
            Grant::Leased(LeaseTerms {
                rate: Rate(terms.rate),
                cap: Ru(CAP),
                fill: Ru(terms.fill.min(CAP / 2 - hand.0).max(0)),
                ttl: Span::millis(terms.ttl_ms),
                renew_after: Span::secs(1),
                max_fit: Ru(terms.max_fit),
                enforcement: Enforcement { paced: terms.paced, ..Enforcement::default() },
                allowance,
                ..LeaseTerms::default()
            })
        });
    }

    fn try_acquire(&mut self, cost: Ru) {
        let now = self.now();
        let alone = self.alone.try_acquire(now, cost);
        let together = self.group.try_acquire(cost);
        match (alone, together) {
            (Ok(_), Ok(permit)) => self.permits.push(permit.into_owned()),
            (Err(Refusal::Throttled { .. }), Err(Refused::Throttled { .. }))
            | (Err(Refusal::Unavailable { .. }), Err(Refused::Unavailable { .. }))
            | (Err(Refusal::UnknownGroup), Err(Refused::UnknownGroup { .. })) => {}
            (
                Err(Refusal::QuotaUsedUp { unit, resets_in }),
                Err(Refused::QuotaUsedUp { unit: said, resets_in: told, .. }),
            ) => assert_eq!((said, told), (unit, Duration::from_micros(resets_in.0))),
            (Err(Refusal::NeverFits { max }), Err(Refused::NeverFits { max: said, .. })) => {
                assert_eq!(said, max);
            }
            (alone, together) => unreachable!("{alone:?} alone, {together:?} with purses, for {cost:?}"),
        }
    }

    fn take(&mut self, cost: Ru) {
        let now = self.now();
        let alone = self.alone.check(now, cost).and_then(|()| self.alone.try_acquire(now, cost));
        let together = self.group.take(cost);
        assert_eq!(together.is_some(), alone.is_ok(), "{alone:?} alone, for {cost:?}");
        self.permits.extend(together.map(Permit::into_owned));
    }

    /// Tokens that fit beside those in hand; at least one.
    fn room(&mut self) -> Ru {
        let state = self.alone.state(self.now());
        (state.cap - state.available).max(Ru(1))
    }

    fn permit(&mut self, which: usize) -> Option<Permit<'static>> {
        (which < self.permits.len()).then(|| self.permits.remove(which))
    }

    fn settle(&mut self, permit: Permit<'_>, charge: i64) {
        let charged = RuParts::flat(Ru(charge));
        let actual = Consumption { charged, operations: 1, ..Consumption::default() };
        self.alone.settle(self.now(), permit.estimate(), &actual);
        permit.settle_ru(charged);
    }

    /// The same of a charge with which the bucket does not fill up.
    fn settle_within(&mut self, permit: Permit<'_>, charge: i64) {
        let least = permit.estimate() - self.room() + Ru(1);
        self.settle(permit, charge.max(least.0));
    }

    async fn take_step(&mut self, step: Step) {
        let now = self.now();
        match step {
            Step::Try(cost) => self.try_acquire(Ru(cost)),
            Step::Take(cost) => self.take(Ru(cost)),
            Step::Check(cost) => {
                let alone = self.alone.check(now, Ru(cost));
                assert_eq!(self.group.check(Ru(cost)).is_ok(), alone.is_ok(), "{alone:?} alone, for {cost}");
            }
            Step::Settle(which, charge) => {
                if let Some(permit) = self.permit(which) {
                    self.settle_within(permit, charge);
                }
            }
            Step::Cancel(which) => {
                let room = self.room();
                let Some(permit) = self.permit(which) else { return };
                let estimate = permit.estimate();
                if estimate < room {
                    let began = self.group.cell.shared().clock.at(permit.admitted_at());
                    self.alone.give_back(now, began, estimate);
                    permit.cancel();
                } else {
                    self.settle(permit, estimate.0);
                }
            }
            Step::Pass(us) => {
                let (room, rate) = (self.room(), self.alone.state(now).rate);
                let until_full = rate.time_for(Ru(room.0 - 1)).filter(|_| rate.0 > 0);
                advance(Duration::from_micros(until_full.map_or(us, |full| us.min(full.0)))).await;
            }
            Step::Look => self.look(),
            Step::Grant(terms) => self.lease(terms),
            Step::UnknownGroup => {
                self.window.1 = None;
                self.grant(|_| Grant::UnknownGroup);
            }
            Step::Lower(rate) => {
                let state = self.alone.state(now);
                let cap = state.cap.scale(rate, state.rate.0.max(1)).min(state.cap);
                if state.rate.0 > 0 && cap <= state.available {
                    return;
                }
                self.alone.on_lower(now, Rate(rate));
                self.group.cell.heed(Notice::Lower(Rate(rate)));
            }
            Step::SessionLost => {
                self.alone.on_session_lost(now);
                self.group.cell.heed(Notice::SessionLost);
            }
        }
    }

    /// Everything comes back from the purse, and is what the machine alone has.
    fn look(&mut self) {
        let (together, alone) = (self.group.state(), self.alone.state(self.now()));
        let parts = |state: &NodeState| {
            (state.lease, state.rate, state.cap, state.available, state.debt, state.quota)
        };
        assert_eq!(parts(&together), parts(&alone));
        let (together, alone) = (self.group.consumption(), *self.alone.consumption());
        let parts = |total: &Total| (total.ru(), total.operations, total.throttled);
        assert_eq!(parts(&together), parts(&alone));
        assert_eq!(self.group.cell.open(), self.permits.len());
    }
}

proptest! {
    #[test]
    fn a_thread_is_answered_as_if_it_had_no_purse(
        has_seat in prop::bool::weighted(0.8),
        first in terms(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut both = Both::new();
            if !has_seat {
                both.group.cell.lending().without_seats();
            }
            both.lease(Terms { fill: CAP / 2, ..first });
            for step in steps {
                both.take_step(step).await;
            }
            both.look();
            while let Some(permit) = both.permit(0) {
                both.settle(permit, 1);
            }
            both.look();
        });
    }
}
