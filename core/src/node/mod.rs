//! The state machine of one resource group on one node: admits, queues, settles, asks for renewal.
//!
//! Units: micro-RU and microseconds on the node's own monotonic clock, which the caller passes in. There is one machine
//! per group and node; the shell holds the lock, sends what `ask` returns and wakes the waiters that `poll` returns.

mod batch;
mod budget;
mod distance;
mod dormant;
mod estimate;
mod look;
mod pace;
mod passing;
mod patience;
mod question;
mod quota;
mod renewal;
mod surplus;
mod turn;

pub use batch::{Batch, Spent};
pub use budget::LeaseState;
use budget::{Budget, From, Right};
pub use dormant::Dormant;
pub use estimate::{Admitted, Estimate};
pub use look::{Alike, Look};
pub use passing::Passing;
use passing::denial;
pub use patience::RoundTrip;
pub use quota::QuotaLeft;
pub use renewal::Heard;

use crate::demand::Demand;
use crate::group::Fallback;
use crate::quota::Unit;
use crate::units::{Rate, Ru, Span, Time};
use crate::usage::{Consumption, Total};
use crate::waited::Unreported;
pub use crate::waiters::WaiterId;
use crate::waiters::{Waiter, Waiters};
use quota::Quota;
use renewal::Renewal;
use turn::Turn;

/// Settings of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeConfig {
    /// How much faster than the controller's the node's clock may run, in millionths.
    pub drift_ppm: u32,
    /// Most operations waiting in one group.
    pub max_waiters: usize,
    /// Shortest wait for an answer; long round trips extend it. Without an answer the next renewal goes out, which is
    /// no sooner than the regular one a second later. At half, a controller that is held up for half a second gets
    /// every question twice; at twice, a lost message costs two seconds.
    pub reply_timeout: Span,
    /// Longest wait for an answer. If it equals `reply_timeout`, the wait is fixed.
    pub longest_wait: Span,
    /// A group without operations for this long gives up its lease.
    pub idle_after: Span,
    /// What the node may admit before the controller has said anything about a group.
    pub fallback: Fallback,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            drift_ppm: 1_000,
            max_waiters: 100_000,
            reply_timeout: Span::secs(1),
            longest_wait: Span::secs(60),
            idle_after: Span::secs(60),
            fallback: Fallback::Stop,
        }
    }
}

/// The answer to an operation that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// It may start.
    Now(Admitted),
    /// It waits its turn; `poll` returns the outcome.
    Queued(WaiterId),
}

/// Why an operation is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The group's rate is used up.
    Throttled {
        /// When trying again may help.
        retry_after: Span,
    },
    /// The node has no lease: the controller is away, recovering, or has not answered yet.
    Unavailable {
        /// When trying again may help.
        retry_after: Span,
    },
    /// The controller does not know the group.
    UnknownGroup,
    /// The group's quota is used up, or has less left than this operation costs.
    QuotaUsedUp {
        /// What the quota counts.
        unit: Unit,
        /// Time to the next window, or until something returns to one that rolls.
        resets_in: Span,
    },
    /// The cost is above what the group's bucket can ever hold.
    NeverFits {
        /// The largest cost that can be admitted.
        max: Ru,
    },
    /// The queue is full.
    TooManyWaiters {
        /// Its length.
        limit: usize,
    },
}

/// A view of the machine, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// The basis of the right to spend.
    pub lease: LeaseState,
    /// The lease is evaluated and not enforced.
    pub shadow: bool,
    /// Leased rate.
    pub rate: Rate,
    /// Depth of the local bucket.
    pub cap: Ru,
    /// Tokens and lump in hand, less debt.
    pub available: Ru,
    /// RU owed for operations that cost more than they took.
    pub debt: Ru,
    /// Largest debt within which the node is expected to stay.
    pub max_debt: Ru,
    /// Operations waiting.
    pub waiting: usize,
    /// RU waiting.
    pub backlog: Ru,
    /// RU/s offered.
    pub demand: Rate,
    /// Time to the end of the lease.
    pub expires_in: Option<Span>,
    /// What is known of the group's quota; `None` without one, or without a lease.
    pub quota: Option<QuotaLeft>,
}

/// One resource group on one node.
#[derive(Clone, Debug, Hash)]
pub struct NodeGroup {
    config: NodeConfig,
    budget: Budget,
    waiters: Waiters,
    demand: Demand,
    /// The part of the demand that did not fit the bucket.
    large_demand: Demand,
    renewal: Renewal,
    consumption: Total,
    quota: Quota,
    max_debt: Ru,
    /// The largest debt so far, for the reported overrun.
    worst_debt: Ru,
    /// Waits that ended and were not reported. Few groups have any, and who does not wait never comes here.
    unreported: Option<Box<Unreported>>,
}

impl NodeGroup {
    /// A group without any grant so far.
    pub fn new(now: Time, config: NodeConfig) -> Self {
        Self {
            config,
            budget: Budget::new(now, config.drift_ppm, Right::unheard(now, &config)),
            waiters: Waiters::default(),
            demand: Demand::default(),
            large_demand: Demand::default(),
            renewal: Renewal::new(now),
            consumption: Total::default(),
            quota: Quota::default(),
            max_debt: Ru::ZERO,
            worst_debt: Ru::ZERO,
            unreported: None,
        }
    }

    /// Takes `cost` or refuses it; never queues, never overtakes a waiter.
    ///
    /// # Errors
    /// [`Refusal`], with when to try again.
    pub fn try_acquire(&mut self, now: Time, cost: Ru) -> Result<Admitted, Refusal> {
        let cost = cost.or_zero();
        self.arrive(now, cost);
        self.quota.arrive(now);
        if let Some(from) = self.turns().admits(cost) {
            self.start(now, cost, from);
            return Ok(Admitted::Paid);
        }
        self.renewal.press();
        if self.budget.right().is_shadow() {
            return Ok(start_over(&mut self.consumption, &mut self.quota));
        }
        self.consumption.throttled += 1;
        Err(self.look().refusal(now, cost))
    }

    /// Whether `try_acquire` would take `cost` now. It spends nothing and does not count as demand.
    ///
    /// # Errors
    /// [`Refusal`], with when to try again.
    pub fn check(&mut self, now: Time, cost: Ru) -> Result<(), Refusal> {
        self.budget.advance(now);
        let cost = cost.or_zero();
        let starts = self.budget.right().is_shadow() || self.turns().admits(cost).is_some();
        if starts { Ok(()) } else { Err(self.look().refusal(now, cost)) }
    }

    /// Takes `cost`, or waits for it until `deadline` behind earlier operations.
    ///
    /// # Errors
    /// [`Refusal`] at once when waiting is known to be useless.
    pub fn acquire(&mut self, now: Time, cost: Ru, deadline: Time) -> Result<Acquired, Refusal> {
        self.enter(now, Waiter { cost: cost.or_zero(), deadline, since: now, estimated: false })
    }

    /// As [`NodeGroup::acquire`], for a cost that is an estimate: one that never fits counts neither as refused nor as
    /// demand, since the caller asks again for the most that fits.
    ///
    /// # Errors
    /// [`Refusal`] at once when waiting is known to be useless.
    pub fn acquire_estimated(&mut self, now: Time, cost: Ru, deadline: Time) -> Result<Acquired, Refusal> {
        self.budget.advance(now);
        let waiter = Waiter { cost: cost.or_zero(), deadline, since: now, estimated: true };
        match self.look().hopeless(waiter.cost) {
            Some(never @ Refusal::NeverFits { .. }) => Err(never),
            _ => self.enter(now, waiter),
        }
    }

    fn enter(&mut self, now: Time, waiter: Waiter) -> Result<Acquired, Refusal> {
        let Waiter { cost, deadline, .. } = waiter;
        self.arrive(now, cost);
        self.quota.arrive(now);
        if let Some(from) = self.turns().admits(cost) {
            self.start(now, cost, from);
            return Ok(Acquired::Now(Admitted::Paid));
        }
        self.renewal.press();
        if self.budget.right().is_shadow() {
            return Ok(Acquired::Now(start_over(&mut self.consumption, &mut self.quota)));
        }
        let large = self.turns().is_large(cost);
        if large && self.turns().waits_for_lump().is_none() {
            self.renewal.ask_soon(now);
        }
        if let Some(refusal) = denial(self, now, cost, deadline) {
            self.consumption.throttled += 1;
            return Err(refusal);
        }
        if large {
            self.large_demand.arrived(now, cost);
        }
        Ok(Acquired::Queued(self.waiters.join(waiter, large)))
    }

    /// Removes a waiter, however its wait ended, and counts the time that it waited.
    fn dismiss(&mut self, now: Time, id: WaiterId, is_in_vain: bool) -> Option<Waiter> {
        let waiter = self.waiters.leave(id)?;
        let (waited, since_us) = (now.since(waiter.since), self.consumption.waited_us);
        if waited > Span(0) {
            let none = || Box::new(Unreported { since_us, ..Unreported::default() });
            self.unreported.get_or_insert_with(none).waited.count(waited, is_in_vain);
            self.consumption.waited_us = since_us.saturating_add(waited.0.into());
        }
        Some(waiter)
    }

    /// Waits that ended since the last call, for a report. They are not kept while the group sleeps: it does so when
    /// all is reported.
    pub fn take_unreported(&mut self) -> Option<Box<Unreported>> {
        self.unreported.take()
    }

    fn arrive(&mut self, now: Time, cost: Ru) {
        self.budget.advance(now);
        self.demand.arrived(now, cost);
        self.renewal.note_arrival(now);
        if self.budget.right().state() == LeaseState::Idle {
            self.renewal.press();
            self.budget.want(now.after(self.look().fallback_wait()));
        }
    }

    /// An operation starts. One that passes others takes no more than is in the bucket, so it is no reason to ask.
    #[inline]
    fn start(&mut self, now: Time, cost: Ru, from: From) {
        self.budget.admit(cost, from);
        if !self.quota.is_none() && self.quota.begin(cost, &self.consumption) {
            self.renewal.press();
        }
        if from == From::Bucket {
            return;
        }
        if self.budget.hand().available() < self.budget.bucket().cap().scale(1, 8) {
            // Under a paced limit there are never tokens for more than one operation: only those that wait are a reason.
            if !self.budget.right().is_paced() {
                self.renewal.press();
            }
            self.worst_debt = self.worst_debt.max(self.budget.hand().debt());
        }
        debug_assert!(self.budget.right().expires().is_none_or(|end| now < end), "I4: spent past the lease");
    }

    /// Removes a waiter. False when the queue does not have it: `poll` has returned its outcome.
    pub fn cancel(&mut self, now: Time, waiter: WaiterId) -> bool {
        self.budget.advance(now);
        self.dismiss(now, waiter, true).is_some()
    }

    /// Undoes an admission whose operation never ran. It began at `began`, or a little later.
    pub fn give_back(&mut self, now: Time, began: Time, cost: impl Into<Estimate>) {
        self.budget.advance(now);
        let (paid, cost) = match cost.into() {
            Estimate::Paid(cost) => (true, cost.or_zero()),
            Estimate::Over(_) => (false, Ru::ZERO),
        };
        self.quota.give_back(began, cost);
        if paid {
            self.budget.refund(cost, cost);
        }
    }

    /// Counts what an admitted operation really used; the difference to an estimate that it took is refunded or owed.
    pub fn settle(&mut self, now: Time, estimate: impl Into<Estimate>, actual: &Consumption) {
        self.budget.advance(now);
        if let Estimate::Paid(estimate) = estimate.into() {
            let estimate = estimate.or_zero();
            let difference = actual.ru() - estimate;
            self.quota.end(estimate);
            self.budget.refund(estimate, (Ru::ZERO - difference).or_zero());
            self.renewal.settled(now);
            if difference.is_positive() {
                self.budget.overrun(difference);
                self.worst_debt = self.worst_debt.max(self.budget.hand().debt());
            }
        }
        self.consumption.count(actual);
    }

    /// Counts an operation that ran without admission.
    pub fn charge(&mut self, now: Time, actual: &Consumption) {
        self.arrive(now, actual.ru());
        self.settle(now, Ru::ZERO, actual);
    }

    /// The next waiter whose wait has ended, and the outcome. Call this until it returns `None`.
    pub fn poll(&mut self, now: Time) -> Option<(WaiterId, Result<Admitted, Refusal>)> {
        self.budget.advance(now);
        self.sort_waiters(now);
        let firsts = [self.waiters.first()?, self.waiters.first_large().or(self.waiters.first())?];
        for (first, waiter) in firsts {
            if let Some(outcome) = self.look().hopeless(waiter.cost) {
                // An estimate that never fits is asked for again, as far as it fits.
                let is_refused = !(waiter.estimated && matches!(outcome, Refusal::NeverFits { .. }));
                self.dismiss(now, first, is_refused);
                self.consumption.throttled += u128::from(is_refused);
                return Some((first, Err(outcome)));
            }
            if let Some((unit, resets_in)) = self.quota.used_up(now, waiter.cost, &self.consumption)
                && now.after(resets_in) > waiter.deadline
            {
                self.dismiss(now, first, true);
                self.consumption.throttled += 1;
                return Some((first, Err(Refusal::QuotaUsedUp { unit, resets_in })));
            }
        }
        if let Some(Turn { id, cost, from }) = self.turns().next() {
            self.dismiss(now, id, false);
            self.start(now, cost, from);
            let lumps = self.budget.right().has_lumps() && self.budget.bucket().takes_lumps(cost);
            if lumps && self.waiters.is_empty() {
                self.renewal.served(now);
            }
            return Some((id, Ok(Admitted::Paid)));
        }
        if self.budget.right().is_shadow() {
            // They wait since before the limit was in shadow.
            let (id, _) = self.waiters.first()?;
            self.dismiss(now, id, false);
            return Some((id, Ok(start_over(&mut self.consumption, &mut self.quota))));
        }
        let (deadline, late) = self.waiters.most_urgent()?;
        if deadline > now {
            return None;
        }
        let waiter = self.dismiss(now, late, true)?;
        self.consumption.throttled += 1;
        Some((late, Err(self.look().refusal(now, waiter.cost))))
    }

    /// Takes in that the clock of `now` runs off by `beyond` ppm, or within its allowance if `None`: the node earns as
    /// if it were fast. The caller shortens what is granted, see [`crate::slew`].
    pub fn on_slewed_clock(&mut self, now: Time, beyond: Option<u32>) {
        self.budget.drift_by(now, beyond.unwrap_or_default().max(self.config.drift_ppm));
    }

    /// Cumulative consumption of this incarnation.
    pub fn consumption(&self) -> &Total {
        &self.consumption
    }

    /// A view of the machine.
    pub fn state(&mut self, now: Time) -> NodeState {
        self.budget.advance(now);
        let lease_end = self.budget.right().expires();
        NodeState {
            lease: self.budget.right().state(),
            shadow: self.budget.right().is_shadow(),
            rate: self.budget.bucket().rate(),
            cap: self.budget.bucket().cap(),
            available: self.budget.hand().available(),
            debt: self.budget.hand().debt(),
            max_debt: self.max_debt,
            waiting: self.waiters.len(),
            backlog: self.waiters.backlog(),
            demand: self.demand.rate(now),
            expires_in: lease_end.map(|end| end.since(now)),
            quota: self.quota_left(now, Ru::ZERO, 0),
        }
    }

    /// What is known of the group's quota, of whose share so much was spent, and so many operations began, from batches
    /// that are out; `None` without one, or without a lease.
    pub fn quota_left(&mut self, now: Time, spent: Ru, begun: u64) -> Option<QuotaLeft> {
        self.budget.advance(now);
        self.look().lease_end().and_then(|_| self.quota.left(now, &self.consumption, (spent, begun)))
    }
}

/// An operation starts that is over a limit in shadow.
fn start_over(consumption: &mut Total, quota: &mut Quota) -> Admitted {
    consumption.throttled += 1;
    quota.begin_over();
    Admitted::Over
}
