//! A node's share of its group's quota: what it may use within the window, by the newest grant.
//!
//! Of RU, used is what was settled in the window, and operations under way at their estimates. So an operation that runs
//! across the end of a window counts in the one in which it ends, as it does in the ledger, and what it cost beyond its
//! estimate leaves less for those after it.
//!
//! A request counts in the window in which it begins: its end says nothing of it, since operations that asked for no
//! admission end, too. One that never ran is given back if it began after the first share in the window, and so counts in
//! no other.
//!
//! Where the window rolls, the share ends with the lease, and a request that the controller was told of is not given
//! back: the controller may have let it leave by then.

use super::batch::{Batch, Spent};
use crate::demand::Demand;
use crate::exchange::{Allowance, Spending};
use crate::quota::Unit;
use crate::units::{MICRO, Rate, Ru, RuTotal, Span, Time};
use crate::usage::Total;

/// What a node knows of its group's quota, for those who call it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLeft {
    /// What is counted, and the unit of the amounts here.
    pub unit: Unit,
    /// For all nodes within the window.
    pub amount: Ru,
    /// Left of it when the controller said so last, less what this node used since, operations under way at their
    /// estimates. What other nodes used since is not known here.
    pub left: Ru,
    /// Time to the next window, on the slowest clock; where it rolls, until something returns.
    pub resets_in: Span,
    /// The length of the window; zero: the controller does not say.
    pub length: Span,
    /// It rolls.
    pub rolls: bool,
}

/// What was used, and may be.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Quota {
    allowance: Allowance,
    /// The end of the window on this node's clock, no later than the controller's; where it rolls, when something returns,
    /// no earlier than the controller says.
    until: Time,
    counted: Counted,
    /// Used when the share was granted.
    used_then: Ru,
    /// Out with threads, each of which spends its part on its own: none of it may be spent twice.
    lent: Ru,
    /// Used as the newest renewal said.
    told: Ru,
    /// All that this node may have used when nothing is left for anyone, as far as the newest grant knows.
    in_reach: Ru,
}

/// How use is counted.
#[derive(Clone, Debug, Hash)]
enum Counted {
    Ru {
        /// RU settled before the node's first share in the window.
        base: RuTotal,
        /// Estimates of operations under way.
        running: Ru,
    },
    Requests(Box<Requests>),
}

impl Default for Counted {
    fn default() -> Self {
        Self::Ru { base: RuTotal(0), running: Ru::ZERO }
    }
}

#[derive(Clone, Debug, Default, Hash)]
struct Requests {
    /// Those that began since the first share in the window.
    begun: Ru,
    /// When that came; where the window rolls, when the controller was told last.
    since: Time,
    /// Those that arrived.
    offered: Demand,
}

/// Use from which on a node counts a window that rolls again, from zero: it has no other end, and amounts have one. What
/// the node held is lost then. Half of the largest amount is years of most nodes; twice of it is too late.
const RECOUNT: Ru = Ru(Ru::MAX.0 / 2);

/// What a thread may spend on its own of the share.
pub(super) struct Part {
    pub tokens: Ru,
    pub operations: u64,
}

impl Part {
    /// Without a quota.
    const ALL: Self = Self { tokens: Ru::MAX, operations: Batch::ANY };
}

/// The window of a share that the node said it has no more: no controller gives this number.
const NO_MORE: u64 = u64::MAX;

impl Quota {
    /// Whether there is none.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.allowance.window == 0
    }

    /// An operation asks for admission.
    #[inline]
    pub(super) fn arrive(&mut self, now: Time) {
        if let Counted::Requests(requests) = &mut self.counted {
            requests.offered.arrived(now, Unit::REQUEST);
        }
    }

    /// An operation begins; returns whether most of the share is used, so that it is time to ask for more.
    #[cold]
    pub(super) fn begin(&mut self, cost: Ru, settled: &Total) -> bool {
        match &mut self.counted {
            Counted::Ru { running, .. } => *running += cost,
            Counted::Requests(requests) => requests.begun += Unit::REQUEST,
        }
        self.is_nearly_used(settled)
    }

    /// Whether most of the share is used, so that it is time to ask for more.
    pub(super) fn is_nearly_used(&self, settled: &Total) -> bool {
        let share = self.allowance.ceiling - self.used_then;
        !self.is_none() && self.allowance.ceiling - self.used(settled) < share.scale(1, 2)
    }

    /// What a thread may spend on its own: a quarter of what is left of the share, because other threads come, too.
    pub(super) fn part(&self, now: Time, settled: &Total) -> Part {
        if self.is_none() {
            return Part::ALL;
        }
        let part = if self.lasts(now) { self.unlent(settled).or_zero().scale(1, 4) } else { Ru::ZERO };
        match self.allowance.unit {
            Unit::Ru => Part { tokens: part, ..Part::ALL },
            Unit::Requests => Part { operations: requests(part), ..Part::ALL },
        }
    }

    /// A thread takes these.
    pub(super) fn lend(&mut self, tokens: Ru, operations: u64) {
        if !self.is_none() {
            self.lent += self.lent_of(tokens, operations);
        }
    }

    /// A thread brings back what it was lent. Tokens that it neither has nor charged were taken by operations under way;
    /// where it charged more, those began elsewhere.
    pub(super) fn take_back(&mut self, now: Time, spent: &Spent) {
        if self.is_none() {
            return;
        }
        self.lent = (self.lent - self.lent_of(spent.drawn, spent.operations)).or_zero();
        match &mut self.counted {
            Counted::Ru { running, .. } => {
                *running = (*running + spent.drawn - spent.left - spent.actual.ru()).or_zero();
            }
            Counted::Requests(counted) => {
                counted.begun += amount(spent.begun);
                counted.offered.arrived(now, amount(spent.begun.saturating_add(spent.refused)));
            }
        }
    }

    /// Checks that no batch is out when the share changes or is told: what a thread spends is not known yet.
    fn assert_gathered(&self) {
        debug_assert!(self.lent == Ru::ZERO, "a batch is out: {self:?}");
    }

    /// What of the share is out with a thread that was lent these.
    fn lent_of(&self, tokens: Ru, operations: u64) -> Ru {
        match self.allowance.unit {
            Unit::Ru => tokens,
            Unit::Requests => amount(operations),
        }
    }

    /// An operation begins that is over a limit in shadow. It takes no RU, and is a request all the same.
    pub(super) fn begin_over(&mut self) {
        if let Counted::Requests(requests) = &mut self.counted {
            requests.begun += Unit::REQUEST;
        }
    }

    /// An operation ends that took this.
    #[inline]
    pub(super) fn end(&mut self, estimate: Ru) {
        if let Counted::Ru { running, .. } = &mut self.counted {
            // One that began before the quota counts for nothing.
            *running = (*running - estimate).or_zero();
        }
    }

    /// An operation that began at this time never ran, and took this.
    pub(super) fn give_back(&mut self, began: Time, estimate: Ru) {
        match &mut self.counted {
            // At the same moment it may have begun before the share came.
            Counted::Requests(requests) if began > requests.since => {
                requests.begun = (requests.begun - Unit::REQUEST).or_zero();
            }
            Counted::Requests(_) => {}
            Counted::Ru { .. } => self.end(estimate),
        }
    }

    /// What an operation of this cost uses when it begins.
    fn needs(&self, cost: Ru) -> Ru {
        self.allowance.unit.of(cost)
    }

    /// Used since the first share in the window.
    fn used(&self, settled: &Total) -> Ru {
        match &self.counted {
            Counted::Ru { base, running } => {
                RuTotal(settled.ru().0.saturating_sub(base.0)).clamped().min(Ru::MAX) + *running
            }
            Counted::Requests(requests) => requests.begun,
        }
    }

    /// Whether the window goes on.
    fn lasts(&self, now: Time) -> bool {
        self.allowance.rolls || now < self.until
    }

    /// What is left of the share, beside what threads hold.
    fn unlent(&self, settled: &Total) -> Ru {
        self.allowance.ceiling - self.used(settled) - self.lent
    }

    /// The most that may still be used, of this node's share or another's.
    fn in_window(&self, settled: &Total) -> Ru {
        let used = self.used(settled) + self.lent;
        (self.allowance.left - (used - self.used_then)).max(self.unlent(settled))
    }

    /// Whether the share covers an operation.
    pub(super) fn covers(&self, now: Time, cost: Ru, settled: &Total) -> bool {
        self.lasts(now) && self.needs(cost) <= self.unlent(settled)
    }

    /// What the quota counts, and the time to the next window or, where it rolls, until something returns, if nothing can
    /// cover an operation before: neither this node's share nor another's.
    pub(super) fn used_up(&self, now: Time, cost: Ru, settled: &Total) -> Option<(Unit, Span)> {
        if self.is_none() || now >= self.until {
            return None;
        }
        (self.needs(cost) > self.in_window(settled)).then(|| (self.allowance.unit, self.until.since(now)))
    }

    /// The largest cost for which it is not used up, as far as costs count in it.
    pub(super) fn largest(&self, now: Time, settled: &Total) -> Ru {
        if self.is_none() || self.allowance.unit == Unit::Requests || now >= self.until {
            return Ru::MAX;
        }
        self.in_window(settled)
    }

    /// The end of the window, which is when to ask for a share in the next. Where it rolls, the controller says with its
    /// answer when to ask again.
    pub(super) fn until(&self) -> Option<Time> {
        (!self.is_none() && !self.allowance.rolls).then_some(self.until)
    }

    /// What is known of it for callers, until the window ends, when threads have spent so much of what they hold.
    pub(super) fn left(&self, now: Time, settled: &Total, (ru, begun): (Ru, u64)) -> Option<QuotaLeft> {
        let Allowance { unit, amount, length, rolls, .. } = self.allowance;
        (!self.is_none() && self.lasts(now)).then(|| {
            let used = self.used(settled) + self.lent_of(ru, begun);
            let left = (self.in_reach - used).or_zero().min(amount);
            QuotaLeft { unit, amount, left, resets_in: self.until.since(now), length, rolls }
        })
    }

    /// What a renewal says.
    pub(super) fn spending(&mut self, now: Time, settled: &Total) -> Spending {
        self.assert_gathered();
        if self.is_none() {
            return Spending::default();
        }
        self.told = self.used(settled);
        let Allowance { unit, rolls, .. } = self.allowance;
        if rolls && self.told > RECOUNT {
            (self.allowance.window, self.allowance.ceiling) = (NO_MORE, Ru::ZERO);
        }
        let (offered, running) = match &mut self.counted {
            Counted::Ru { running, .. } => (Rate::ZERO, if rolls { *running } else { Ru::ZERO }),
            Counted::Requests(requests) => {
                requests.since = if rolls { now } else { requests.since };
                (requests.offered.rate(now), Ru::ZERO)
            }
        };
        match self.allowance {
            Allowance { window: NO_MORE, .. } => Spending { unit, offered, ..Spending::default() },
            Allowance { window, ceiling, .. } => {
                Spending { window, used: self.told, ceiling, unit, offered, running }
            }
        }
    }

    /// Gives back what was not used; returns what the last renewal says.
    pub(super) fn give_up(&mut self, now: Time, settled: &Total) -> Spending {
        self.allowance.ceiling = self.allowance.ceiling.min(self.used(settled));
        Spending { offered: Rate::ZERO, ..self.spending(now, settled) }
    }

    /// Takes in the share of a grant that came at `now`, the answer to the renewal sent at `asked`, by a clock that may
    /// run slow by `drift_ppm`.
    pub(super) fn grant(
        &mut self,
        (now, asked): (Time, Time),
        allowance: Option<Allowance>,
        settled: &Total,
        drift_ppm: u32,
    ) {
        self.assert_gathered();
        let Some(allowance) = allowance else {
            *self = Self::default();
            return;
        };
        if allowance.window != self.allowance.window {
            self.begin_window(now, allowance.unit, settled);
        }
        let second = u128::from(MICRO.unsigned_abs());
        let sure = u128::from(allowance.resets_in.0) * second.saturating_sub(u128::from(drift_ppm)) / second;
        self.until = match allowance.rolls {
            true => now.after(allowance.resets_in),
            false => asked.after(Span(u64::try_from(sure).unwrap_or(u64::MAX))),
        };
        self.allowance = allowance;
        self.used_then = self.used(settled);
        self.in_reach = allowance.left + self.told;
    }

    /// Counts from zero. RU of operations under way count in the window in which they end.
    fn begin_window(&mut self, now: Time, unit: Unit, settled: &Total) {
        self.told = Ru::ZERO;
        self.counted = match (unit, std::mem::take(&mut self.counted)) {
            (Unit::Ru, Counted::Ru { running, .. }) => Counted::Ru { base: settled.ru(), running },
            (Unit::Ru, Counted::Requests(_)) => Counted::Ru { base: settled.ru(), running: Ru::ZERO },
            (Unit::Requests, Counted::Requests(before)) => {
                Counted::Requests(Box::new(Requests { begun: Ru::ZERO, since: now, ..*before }))
            }
            (Unit::Requests, Counted::Ru { .. }) => {
                Counted::Requests(Box::new(Requests { since: now, ..Requests::default() }))
            }
        };
    }
}

/// So many requests, as an amount.
fn amount(requests: u64) -> Ru {
    Ru(i64::try_from(requests).unwrap_or(i64::MAX).saturating_mul(Unit::REQUEST.0)).min(Ru::MAX)
}

/// How many whole requests are in an amount.
fn requests(amount: Ru) -> u64 {
    amount.or_zero().0.unsigned_abs() / Unit::REQUEST.0.unsigned_abs()
}
