//! The state of a group on a node that gave its lease up and has nothing to do: a small part of the machine, from which
//! the machine continues as if it had never slept.

use super::budget::{Budget, LeaseState, Right};
use super::quota::Quota;
use super::renewal::Renewal;
use super::{NodeConfig, NodeGroup};
use crate::demand::Demand;
use crate::group::Fallback;
use crate::units::{Rate, Ru, Span, Time};
use crate::usage::Total;
use crate::waiters::Waiters;

/// The state kept of a machine that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dormant {
    /// Cumulative: a total that restarted at zero would be counted again.
    pub consumption: Total,
    /// What applies until the next lease, and until when, if it is a part of the group's fallback.
    fallback: (Fallback, Time),
    /// Operations follow each other at the rate, also at that of the fallback.
    paced: bool,
    worst_debt: Ru,
    /// Newest renewal, which has its answer.
    acked_seq: u64,
    /// Ids of waiters are never reused.
    next_waiter: u64,
}

impl Dormant {
    /// Number of words.
    pub const WORDS: usize = Total::WORDS + 8;

    /// The state as numbers, most of which are small or zero.
    pub fn to_words(&self) -> [u128; Self::WORDS] {
        let (kind, rate, lasts) = match self.fallback.0 {
            Fallback::Stop => (0, Rate::ZERO, Span(0)),
            Fallback::Unlimited => (1, Rate::ZERO, Span(0)),
            Fallback::Rate(rate) => (2, rate, Span(0)),
            Fallback::Part(rate, lasts) => (3, rate, lasts),
        };
        let own = [
            kind,
            rate.0.cast_unsigned(),
            lasts.0,
            self.fallback.1.0,
            u64::from(self.paced),
            self.worst_debt.0.cast_unsigned(),
            self.acked_seq,
            self.next_waiter,
        ];
        let mut words = [0; Self::WORDS];
        let all = own.into_iter().map(u128::from).chain(self.consumption.to_words());
        words.iter_mut().zip(all).for_each(|(word, value)| *word = value);
        words
    }

    /// The state from such numbers.
    pub fn from_words(words: [u128; Self::WORDS]) -> Self {
        let [kind, rate, lasts, until, paced, worst_debt, acked, waiter, consumption @ ..] = words;
        // All are in range: `to_words` wrote them.
        let own = [kind, rate, lasts, until, paced, worst_debt, acked, waiter];
        let [kind, rate, lasts, until, paced, worst_debt, acked_seq, next_waiter] =
            own.map(|word| u64::try_from(word).unwrap_or_default());
        let fallback = match kind {
            1 => Fallback::Unlimited,
            2 => Fallback::Rate(Rate(rate.cast_signed())),
            3 => Fallback::Part(Rate(rate.cast_signed()), Span(lasts)),
            _ => Fallback::Stop,
        };
        Self {
            consumption: Total::from_words(consumption),
            fallback: (fallback, Time(until)),
            paced: paced > 0,
            worst_debt: Ru(worst_debt.cast_signed()),
            acked_seq,
            next_waiter,
        }
    }
}

impl NodeGroup {
    /// The state to keep; `None` while the machine has more: a lease, tokens, debt, waiters, something to send or an
    /// answer to wait for.
    pub fn dormant(&self) -> Option<Dormant> {
        let quiet = self.budget.right().state() == LeaseState::Idle
            && self.budget.is_empty()
            && self.waiters.is_empty()
            && self.renewal.is_quiet();
        quiet.then(|| Dormant {
            consumption: self.consumption,
            fallback: self.budget.right().fallback(),
            paced: self.budget.right().is_paced(),
            worst_debt: self.worst_debt,
            acked_seq: self.renewal.question.acked(),
            next_waiter: self.waiters.next_id(),
        })
    }

    /// Restores the machine for an operation that has come.
    pub fn awaken(now: Time, config: NodeConfig, rest: &Dormant) -> Self {
        Self {
            config,
            budget: Budget::new(now, config.drift_ppm, Right::idle(rest.fallback, rest.paced)),
            waiters: Waiters::from_id(rest.next_waiter),
            demand: Demand::default(),
            large_demand: Demand::default(),
            renewal: Renewal::resumed(now, rest.acked_seq),
            consumption: rest.consumption,
            quota: Quota::default(),
            max_debt: Ru::ZERO,
            worst_debt: rest.worst_debt,
            unreported: None,
        }
    }
}
