//! A thread's purse: tokens of one group that the thread spends without the group's lock, and the account of the
//! operations that went through it.
//!
//! Micro-RU, and microseconds of the client's clock. The thread alone reads and writes an open purse, with plain loads
//! and stores; the holder of the group's lock may close it at any moment (see `bias`) and gives its tokens back to the
//! group, so that nothing is lost with a thread that sleeps or ends. A purse is good for a tenth of a second and never
//! longer than the lease: each admission reads the clock, so a process that was stopped spends nothing from before.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_core::node::{Batch, Spent};
use tidegate_core::units::{MICRO, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts, Usage};
use tidegate_cost_model::Charge;

use super::bias::Bias;
use crate::clock::{Clock, Tick};
use crate::sync::{AtomicI64, AtomicU64};

/// What came back from a purse.
#[derive(Default)]
pub(crate) struct Account {
    pub(super) spent: Spent,
    /// Permits that were closed.
    pub(super) closed: u64,
}

/// One thread's, in one group. Two cache lines' alignment, as processors fetch lines in pairs, and in this order, so
/// that an admission and its settlement touch the first line alone: few purses of a thousand groups are at hand.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Purse {
    pub(super) bias: Bias,
    tokens: AtomicI64,
    drawn: AtomicI64,
    /// A tick of the clock.
    until: AtomicU64,
    arrived: AtomicI64,
    admitted: AtomicU64,
    operations: AtomicU64,
    flat: AtomicI64,
    cancelled: AtomicU64,
    refused: AtomicU64,
    /// How many operations may begin; [`Batch::ANY`] where nothing counts them.
    most: AtomicU64,
    /// In place of `until` where operations are counted, so that admissions without a count pay for none.
    counted_until: AtomicU64,
    repeat: Repeat,
    measured: Measured,
}

/// The answer that is repeated while nothing but time changes it.
#[derive(Debug, Default)]
#[repr(C)]
struct Repeat {
    /// Operations of these costs are refused meanwhile.
    from: AtomicI64,
    to: AtomicI64,
    retry_at: AtomicU64,
}

/// Sums that an operation with a flat charge leaves alone.
#[derive(Debug, Default)]
#[repr(C)]
struct Measured {
    cpu: AtomicI64,
    read: AtomicI64,
    write: AtomicI64,
    network: AtomicI64,
    shadow: AtomicI64,
    /// Sums of `Usage`, field by field.
    usage: [AtomicU64; Usage::FIELDS],
}

/// Charges above this, in micro-RU (10^6 RU), go to the group: nine million of the largest fit into a sum of 64 bits, and
/// a purse is emptied with each renewal of its lease, so that no sum reaches its end. With a thousand times as much nine
/// thousand would; with a thousandth, operations of a thousand RU would take the lock.
const LARGEST: i64 = 1_000_000 * MICRO;

/// In a purse that only refuses: it pays for no operation, not even for one that costs nothing.
const NOT_EVEN_NOTHING: i64 = -1;

#[inline]
fn add(sum: &AtomicU64, amount: u64) {
    sum.store(sum.load(Relaxed).wrapping_add(amount), Relaxed);
}

#[inline]
fn add_ru(sum: &AtomicI64, amount: Ru) {
    if amount != Ru::ZERO {
        sum.store(sum.load(Relaxed).wrapping_add(amount.0), Relaxed);
    }
}

fn take(sum: &AtomicU64) -> u64 {
    let value = sum.load(Relaxed);
    sum.store(0, Relaxed);
    value
}

fn take_ru(sum: &AtomicI64) -> Ru {
    let value = sum.load(Relaxed);
    sum.store(0, Relaxed);
    Ru(value)
}

impl Repeat {
    #[inline]
    fn covers(&self, cost: Ru) -> bool {
        (self.from.load(Relaxed)..=self.to.load(Relaxed)).contains(&cost.0)
    }

    fn set(&self, (from, to): (Ru, Ru), retry_at: Time) {
        self.from.store(from.0, Relaxed);
        self.to.store(to.0, Relaxed);
        self.retry_at.store(retry_at.0, Relaxed);
    }

    fn end(&self) {
        self.to.store(-1, Relaxed);
    }
}

impl Measured {
    #[inline(always)]
    fn add_charge(&self, charge: &Charge) {
        if charge.total != charge.parts.flat {
            add_ru(&self.cpu, charge.parts.cpu);
            add_ru(&self.read, charge.parts.read);
            add_ru(&self.write, charge.parts.write);
            add_ru(&self.network, charge.parts.network);
        }
        add_ru(&self.shadow, charge.shadow);
    }

    #[inline(always)]
    fn add_usage(&self, usage: &Usage) {
        for (sum, amount) in self.usage.iter().zip(usage.to_array()) {
            if amount > 0 {
                add(sum, amount);
            }
        }
    }

    /// Empties the sums; those of `flat` and `operations` stand elsewhere.
    fn take(&self, flat: Ru, operations: u64) -> Consumption {
        let charged = RuParts {
            cpu: take_ru(&self.cpu),
            read: take_ru(&self.read),
            write: take_ru(&self.write),
            network: take_ru(&self.network),
            flat,
        };
        Consumption {
            charged,
            shadow: take_ru(&self.shadow),
            operations,
            usage: Usage::from_array(self.usage.each_ref().map(take)),
            ..Consumption::default()
        }
    }
}

impl Purse {
    /// Demand is not accounted for to the micro-RU, so its sum may end where 64 bits do.
    #[inline]
    fn arrive(&self, cost: Ru) {
        self.arrived.store(self.arrived.load(Relaxed).saturating_add(cost.0), Relaxed);
    }

    /// Pays for an operation; `None` when the group has to decide.
    #[inline(always)]
    pub(crate) fn spend(&self, cost: Ru, clock: &Clock) -> Option<Tick> {
        if !self.bias.enter() {
            return None;
        }
        // Neither is below -1.
        let left = self.tokens.load(Relaxed).wrapping_sub(cost.0);
        if left < 0 {
            self.bias.leave();
            return None;
        }
        // Read when the purse can no longer be closed: its lease holds until the owner leaves.
        let now = clock.tick();
        let paid = now.0 < self.until.load(Relaxed) || self.may_begin(now);
        if paid {
            self.tokens.store(left, Relaxed);
            add(&self.admitted, 1);
            self.arrive(cost);
        }
        self.bias.leave();
        paid.then_some(now)
    }

    /// Whether one more of the operations that are counted may begin.
    #[cold]
    fn may_begin(&self, now: Tick) -> bool {
        now.0 < self.counted_until.load(Relaxed) && self.admitted.load(Relaxed) < self.most.load(Relaxed)
    }

    /// Refuses an operation when as much was refused a moment ago and nothing has changed since; returns when to try
    /// again.
    pub(crate) fn refuses(&self, cost: Ru, clock: &Clock) -> Option<Span> {
        if !self.repeat.covers(cost) || !self.bias.enter() {
            return None;
        }
        let now = clock.tick();
        let refused = self.repeat.covers(cost) && now.0 < self.until.load(Relaxed);
        if refused {
            add(&self.refused, 1);
            self.arrive(cost);
        }
        self.bias.leave();
        refused.then(|| Time(self.repeat.retry_at.load(Relaxed)).since(clock.time(now)))
    }

    /// Takes in what an operation really cost. False: the group has to.
    pub(crate) fn settle(&self, estimate: Ru, charge: &Charge, usage: &Usage, clock: &Clock) -> bool {
        self.settle_with(estimate, charge, clock, || self.measured.add_usage(usage))
    }

    /// The same for an operation without a usage vector.
    #[inline(always)]
    pub(crate) fn settle_charge(&self, estimate: Ru, charge: &Charge, clock: &Clock) -> bool {
        self.settle_with(estimate, charge, clock, || {})
    }

    #[inline(always)]
    fn settle_with(&self, estimate: Ru, charge: &Charge, clock: &Clock, also: impl FnOnce()) -> bool {
        if charge.total.0 | charge.shadow.0 > LARGEST || !self.bias.enter() {
            return false;
        }
        // Charges are below LARGEST here, and estimates and tokens at most Ru::MAX: nothing of it nears 64 bits.
        let left = self.tokens.load(Relaxed).wrapping_sub(charge.total.0.wrapping_sub(estimate.0));
        let fits = if charge.total > estimate {
            let until = self.until.load(Relaxed).max(self.counted_until.load(Relaxed));
            left >= 0 && clock.tick().0 < until
        } else {
            // Never more than was drawn: that is what counts in the bucket.
            left <= self.drawn.load(Relaxed)
        };
        if fits {
            self.tokens.store(left, Relaxed);
            add(&self.operations, 1);
            add_ru(&self.flat, charge.parts.flat);
            self.measured.add_charge(charge);
            also();
        }
        self.bias.leave();
        fits
    }

    /// The operation never ran. False: the group has to take the tokens back. Where operations are counted, it has to
    /// know when this one began.
    pub(crate) fn give_back(&self, cost: Ru) -> bool {
        if !self.bias.enter() {
            return false;
        }
        let left = self.tokens.load(Relaxed).saturating_add(cost.0);
        let fits = left <= self.drawn.load(Relaxed) && self.most.load(Relaxed) == Batch::ANY;
        if fits {
            self.tokens.store(left, Relaxed);
            add(&self.cancelled, 1);
        }
        self.bias.leave();
        fits
    }

    /// What went out of it since it was opened, RU and operations, as another thread sees it while its owner goes on.
    pub(super) fn gone(&self) -> (Ru, u64) {
        let [drawn, left] = [&self.drawn, &self.tokens].map(|ru| Ru(ru.load(Relaxed)));
        ((drawn - left).or_zero(), self.admitted.load(Relaxed))
    }

    /// Opens a closed purse, under the group's lock: puts a batch in, and pays the first operation from it.
    pub(super) fn open(&self, batch: Batch, until: Tick, cost: Ru) {
        self.drawn.store(batch.tokens.0, Relaxed);
        let (until, counted_until) = if batch.operations == Batch::ANY { (until.0, 0) } else { (0, until.0) };
        self.until.store(until, Relaxed);
        self.counted_until.store(counted_until, Relaxed);
        self.most.store(batch.operations, Relaxed);
        self.repeat.end();
        self.tokens.store((batch.tokens - cost).0, Relaxed);
        self.arrive(cost);
        add(&self.admitted, 1);
        self.bias.lift();
    }

    /// With the group's lock, closed: operations from the first to the second cost are refused for a while.
    pub(super) fn refuse(&self, costs: (Ru, Ru), until: Tick, retry_at: Time) {
        self.drawn.store(NOT_EVEN_NOTHING, Relaxed);
        self.tokens.store(NOT_EVEN_NOTHING, Relaxed);
        self.until.store(until.0, Relaxed);
        self.repeat.set(costs, retry_at);
        self.bias.lift();
    }

    /// Empties a closed purse, under the group's lock.
    pub(super) fn take(&self) -> Account {
        let operations = take(&self.operations);
        let actual = self.measured.take(take_ru(&self.flat), operations);
        let spent = Spent {
            drawn: take_ru(&self.drawn).or_zero(),
            left: take_ru(&self.tokens).or_zero(),
            operations: take(&self.most),
            begun: take(&self.admitted),
            arrived: take_ru(&self.arrived),
            refused: take(&self.refused),
            actual,
        };
        Account { spent, closed: operations + take(&self.cancelled) }
    }
}
