//! The purses of one group, one for each seat, and which of them are open.

use std::sync::OnceLock;
use std::thread::available_parallelism;

use tidegate_core::node::Batch;
use tidegate_core::units::{Ru, Time};

use super::bias::{self, barrier_of_others};
use super::purse::{Account, Purse};
use super::seat::{MAX_SEATS, seat};
use crate::clock::Tick;

/// One for each seat, made when the group is busy for the first time.
#[derive(Debug, Default)]
pub(crate) struct Purses(OnceLock<Box<[Purse]>>);

/// Which purses of a group are open: a bit for each seat. Guarded by the group's lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open(u64);

impl Open {
    /// None is.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Purses {
    /// The calling thread's.
    #[inline]
    pub(crate) fn mine(&self) -> Option<&Purse> {
        self.0.get()?.get(seat()?)
    }

    /// Closes the calling thread's purse alone, which takes no barrier.
    pub(crate) fn close_mine(&self, open: &mut Open) -> Option<Account> {
        let (purse, seat) = (self.mine()?, seat()?);
        if open.0 & (1 << seat) == 0 {
            return None;
        }
        open.0 &= !(1 << seat);
        purse.bias.bar();
        Some(purse.take())
    }

    /// Opens the calling thread's purse, which is closed, with a batch that pays for an operation of `cost` first.
    pub(crate) fn open_mine(&self, open: &mut Open, batch: Batch, until: Tick, cost: Ru) -> bool {
        self.with_mine(open, |purse| purse.open(batch, until, cost))
    }

    /// Has the calling thread's purse, which is closed, refuse operations from the first to the second cost until then.
    pub(crate) fn refuse_mine(&self, open: &mut Open, costs: (Ru, Ru), until: Tick, retry_at: Time) -> bool {
        self.with_mine(open, |purse| purse.refuse(costs, until, retry_at))
    }

    fn with_mine(&self, open: &mut Open, change: impl FnOnce(&Purse)) -> bool {
        // The caller has the group's lock: nothing is waited for here.
        if !bias::is_sound() || !bias::is_prepared() {
            return false;
        }
        let purses = self.0.get_or_init(|| (0..seats()).map(|_| Purse::default()).collect());
        let Some((seat, purse)) = seat().and_then(|seat| Some((seat, purses.get(seat)?))) else {
            return false;
        };
        change(purse);
        open.0 |= 1 << seat;
        true
    }

    /// Has no purse for any seat.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn without_seats(&self) {
        assert!(self.0.set(Box::default()).is_ok(), "there are purses already");
    }

    /// The purses of these seats.
    fn named(&self, seats: u64) -> impl Iterator<Item = &Purse> {
        let all = self.0.get().into_iter().flatten().enumerate();
        all.filter(move |(seat, _)| seats & (1 << seat) != 0).map(|(_, purse)| purse)
    }

    /// What went out of all open purses, RU and operations, while their threads go on.
    pub(crate) fn gone(&self, open: Open) -> (Ru, u64) {
        let sum = |(ru, operations): (Ru, u64), (more, count)| (ru + more, operations.saturating_add(count));
        self.named(open.0).map(Purse::gone).fold((Ru::ZERO, 0), sum)
    }

    /// Closes every open purse; passes the contents of each to `take_in`.
    pub(crate) fn close_all(&self, open: &mut Open, mut take_in: impl FnMut(Account)) {
        if open.is_empty() {
            return;
        }
        let closing = std::mem::take(&mut open.0);
        let named = |seats| self.named(seats);
        named(closing).for_each(|purse| purse.bias.bar());
        // The calling thread is not inside its own.
        let others = closing & !seat().map_or(0, |seat| 1 << seat);
        if others != 0 {
            barrier_of_others();
            named(others).for_each(|purse| purse.bias.wait_until_out());
        }
        named(closing).for_each(|purse| take_in(purse.take()));
    }
}

/// Purses of a group: for all threads of a runtime with a worker for each processor, and some more.
fn seats() -> usize {
    if cfg!(all(test, not(shuttle))) {
        // A test counts on a purse for each of its threads, whatever runs beside it has threads.
        return MAX_SEATS;
    }
    available_parallelism().map_or(8, |processors| (4 * processors.get()).clamp(8, MAX_SEATS))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::{Barrier, Mutex};
    use std::time::Duration;

    use tokio::time::advance;

    use tidegate_core::units::Span;
    use tidegate_core::usage::{RuParts, Usage};
    use tidegate_cost_model::Charge;

    use super::*;
    use crate::clock::Clock;

    const COST: Ru = Ru(10);

    /// A purse of 100 micro-RU for a second, an operation of 10 paid; and what the clock says at its end.
    fn open(clock: &Clock) -> (Purses, Open) {
        open_for(clock, Batch::ANY)
    }

    /// The same for so many operations.
    fn open_for(clock: &Clock, operations: u64) -> (Purses, Open) {
        let (purses, mut open) = (Purses::default(), Open::default());
        let batch = Batch { tokens: Ru(100), operations, until: Time(1_000_000) };
        assert!(purses.open_mine(&mut open, batch, clock.tick_at(batch.until), COST));
        (purses, open)
    }

    fn charge(ru: Ru) -> Charge {
        Charge { parts: RuParts::flat(ru), total: ru, shadow: Ru::ZERO }
    }

    #[tokio::test(start_paused = true)]
    async fn a_purse_pays_while_it_has_tokens_and_time() {
        let clock = Clock::start();
        let (purses, mut open) = open(&clock);
        let purse = purses.mine().unwrap();
        assert!(purse.spend(Ru(91), &clock).is_none(), "ten are spent");
        assert!(purse.spend(Ru(40), &clock).is_some());
        advance(Duration::from_millis(999)).await;
        assert!(purse.spend(Ru(30), &clock).is_some());
        advance(Duration::from_millis(1)).await;
        assert!(purse.spend(Ru(1), &clock).is_none(), "its time is over");
        let account = purses.close_mine(&mut open).unwrap();
        assert_eq!(
            (account.spent.drawn, account.spent.left, account.spent.arrived),
            (Ru(100), Ru(20), Ru(80))
        );
        assert_eq!((account.spent.begun, account.closed), (3, 0));
        assert!(purse.spend(Ru(0), &clock).is_none(), "it is closed");
        assert!(purses.close_mine(&mut open).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_too_much_comes_back_up_to_what_was_drawn() {
        let clock = Clock::start();
        let (purses, mut open) = open(&clock);
        let purse = purses.mine().unwrap();
        assert!(purse.settle_charge(COST, &charge(Ru(4)), &clock));
        assert!(!purse.settle_charge(COST, &charge(Ru(5)), &clock), "that would be 101 of 100");
        assert!(!purse.give_back(Ru(5)));
        assert!(purse.give_back(Ru(3)));
        assert!(purse.settle_charge(COST, &charge(Ru(9)), &clock));
        assert!(!purse.settle_charge(COST, &charge(Ru(9)), &clock), "it is whole again");
        let account = purses.close_mine(&mut open).unwrap();
        assert_eq!((account.spent.left, account.spent.actual.ru()), (Ru(100), Ru(13)));
        assert_eq!((account.spent.begun, account.closed, account.spent.actual.operations), (1, 3, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_too_little_is_taken_only_from_tokens_that_are_good() {
        let clock = Clock::start();
        let (purses, mut open) = open(&clock);
        let purse = purses.mine().unwrap();
        assert!(
            !purse.settle_charge(COST, &charge(Ru(101)), &clock),
            "the group goes into debt, not the purse"
        );
        assert!(purse.settle_charge(COST, &charge(Ru(30)), &clock));
        advance(Duration::from_secs(1)).await;
        assert!(!purse.settle_charge(COST, &charge(Ru(11)), &clock), "tokens of an ended lease pay nothing");
        assert!(
            purse.settle_charge(COST, &charge(COST), &clock),
            "what was paid for can be settled at any time"
        );
        assert_eq!(purses.close_mine(&mut open).unwrap().spent.left, Ru(70));
    }

    #[tokio::test(start_paused = true)]
    async fn where_operations_are_counted_no_more_begin_than_were_lent() {
        let clock = Clock::start();
        let (purses, mut open) = open_for(&clock, 3);
        let purse = purses.mine().unwrap();
        assert!(!purse.give_back(COST), "the group has to know when it began");
        assert!(purse.spend(COST, &clock).is_some());
        assert_eq!(purses.gone(open), (Ru(20), 2));
        assert!(purse.spend(COST, &clock).is_some());
        assert!(purse.spend(COST, &clock).is_none(), "that would be the fourth of three");
        assert!(purse.settle_charge(COST, &charge(Ru(30)), &clock), "what is over comes from good tokens");
        let account = purses.close_mine(&mut open).unwrap();
        assert_eq!((account.spent.begun, account.spent.operations, account.closed), (3, 3, 1));
        assert_eq!((account.spent.drawn, account.spent.left), (Ru(100), Ru(50)));

        let (purses, _) = open_for(&clock, 3);
        let purse = purses.mine().unwrap();
        advance(Duration::from_secs(1)).await;
        assert!(purse.spend(COST, &clock).is_none(), "its time is over");
        assert!(!purse.settle_charge(COST, &charge(Ru(11)), &clock));
        assert!(purse.settle_charge(COST, &charge(COST), &clock));
    }

    #[tokio::test(start_paused = true)]
    async fn what_operations_used_is_summed_field_by_field() {
        let clock = Clock::start();
        let usage = Usage::from_array(std::array::from_fn(|field| field as u64 + 10));
        let measured = RuParts { cpu: Ru(1), read: Ru(2), write: Ru(3), network: Ru(4), flat: Ru(5) };
        let only_cpu = RuParts { cpu: Ru(6), ..RuParts::default() };
        for parts in [measured, only_cpu] {
            let (purses, mut open) = open(&clock);
            let purse = purses.mine().unwrap();
            let charge = Charge { parts, total: parts.total(), shadow: Ru(7) };
            for _ in 0..2 {
                assert!(purse.settle(COST, &charge, &usage, &clock));
            }
            let actual = purses.close_mine(&mut open).unwrap().spent.actual;
            let doubled = |ru: Ru| ru + ru;
            let RuParts { cpu, read, write, network, flat } = parts;
            let charged = RuParts {
                cpu: doubled(cpu),
                read: doubled(read),
                write: doubled(write),
                network: doubled(network),
                flat: doubled(flat),
            };
            assert_eq!((actual.charged, actual.shadow, actual.operations), (charged, Ru(14), 2));
            assert_eq!(actual.usage.to_array(), usage.to_array().map(|amount| 2 * amount));
            assert_eq!(purses.close_mine(&mut open).map(|account| account.closed), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn charges_that_are_too_large_for_a_sum_go_to_the_group() {
        let clock = Clock::start();
        let (purses, mut open) = (Purses::default(), Open::default());
        let largest = Ru::whole(1_000_000);
        let batch = Batch { tokens: Ru::MAX, operations: Batch::ANY, until: Time(1_000_000) };
        assert!(purses.open_mine(&mut open, batch, clock.tick_at(batch.until), COST));
        let purse = purses.mine().unwrap();
        assert!(!purse.settle_charge(COST, &charge(largest + largest), &clock));
        assert!(!purse.settle_charge(COST, &Charge { shadow: largest + largest, ..charge(COST) }, &clock));
        assert!(purse.settle_charge(COST, &charge(Ru(largest.0 / 2)), &clock));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_repeated_for_as_much_and_as_long_as_it_holds() {
        let clock = Clock::start();
        let (purses, mut open) = (Purses::default(), Open::default());
        purses.refuse_mine(&mut open, (COST, Ru(20)), clock.tick_at(Time(50_000)), Time(80_000));
        let purse = purses.mine().unwrap();
        advance(Duration::from_millis(20)).await;
        assert_eq!(purse.refuses(COST, &clock), Some(Span::millis(60)));
        assert_eq!(purse.refuses(Ru(9), &clock), None, "less might be let in");
        assert_eq!(purse.refuses(Ru(21), &clock), None, "more never fits, which is another answer");
        advance(Duration::from_millis(30)).await;
        assert_eq!(purse.refuses(COST, &clock), None);
        let account = purses.close_mine(&mut open).unwrap();
        assert_eq!((account.spent.refused, account.spent.arrived, account.spent.begun), (1, COST, 0));
    }

    #[tokio::test]
    async fn all_purses_are_closed_at_once_from_any_thread() {
        let clock = Clock::start();
        let (purses, open) = (Purses::default(), Mutex::new(Open::default()));
        let meet = Barrier::new(2);
        let batch = Batch { tokens: Ru(100), operations: Batch::ANY, until: Time(1_000_000_000) };
        let take_part = || assert!(purses.open_mine(&mut open.lock().unwrap(), batch, Tick(u64::MAX), COST));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                take_part();
                meet.wait();
                meet.wait();
                assert!(purses.mine().unwrap().spend(Ru(0), &clock).is_none(), "closed by the other thread");
            });
            take_part();
            meet.wait();
            let mut left = Ru::ZERO;
            purses.close_all(&mut open.lock().unwrap(), |account| left += account.spent.left);
            assert_eq!(left, Ru(180));
            meet.wait();
        });
        purses.close_all(&mut open.lock().unwrap(), |_| unreachable!("all are closed"));
    }
}
