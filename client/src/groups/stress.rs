//! Purses under threads of the operating system, with the barriers that ship: what the scheduler of `concurrency`
//! cannot show, as it knows no processor that reorders.
//!
//! The lease never earns anything, so what was charged and what is left make up what was granted, to the micro-RU.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::node::{Heard, NodeConfig};
use tidegate_core::units::{Ru, Span};
use tidegate_core::usage::RuParts;

use super::GroupCell;
use crate::group::Group;
use crate::names::GroupName;
use crate::permit::Permit;
use crate::shared::Shared;

/// The pool at the start; more than any run spends.
const POOL: i64 = 1_000_000_000_000;
/// How long threads contend.
const LONG: Duration = Duration::from_secs(3);

/// A group with a lease on a full bucket.
fn leased() -> Group {
    let shared = Shared::new(NodeConfig { drift_ppm: 0, ..NodeConfig::default() }, None);
    let Ok(name) = GroupName::new("g") else { unreachable!("it is a name") };
    let cell = GroupCell::new(1, name, shared, Arc::default(), None);
    assert!(cell.if_awake(|state, now| state.ask(now, 1)).flatten().is_some());
    let terms = LeaseTerms {
        cap: Ru(POOL),
        fill: Ru(POOL),
        ttl: Span::secs(3_600),
        renew_after: Span::secs(1_800),
        max_fit: Ru::MAX,
        ..LeaseTerms::default()
    };
    assert_eq!(cell.grant(1, &Grant::Leased(terms), Vec::new(), None), Heard::Applied);
    Group { cell }
}

/// What all threads did.
#[derive(Default)]
struct Sums {
    charged: AtomicI64,
    operations: AtomicU64,
    /// Operations of these that a purse paid.
    paid: AtomicU64,
}

/// An operation that is estimated at ten, and charged six to fourteen or not run at all.
fn operate(group: &Group, turn: u64, sums: &Sums) {
    let (estimate, cell) = (Ru(10), &group.cell);
    let permit = match cell.pay(estimate) {
        Some(at) => {
            sums.paid.fetch_add(1, Ordering::Relaxed);
            Permit::new(cell, estimate, at)
        }
        None => {
            let Ok(admitted) = group.try_enter(estimate) else { unreachable!("there is enough for all") };
            Permit::admitted(cell, estimate, admitted)
        }
    };
    let actual = match turn % 4 {
        0 => return permit.cancel(),
        1 => 6,
        2 => 10,
        _ => 14,
    };
    permit.settle_ru(RuParts::flat(Ru(actual)));
    sums.charged.fetch_add(actual, Ordering::Relaxed);
    sums.operations.fetch_add(1, Ordering::Relaxed);
}

fn assert_conserved(group: &Group, sums: &Sums) {
    let (state, consumed) = (group.state(), group.consumption());
    let charged = sums.charged.load(Ordering::Relaxed);
    assert_eq!(
        (consumed.ru().clamped().0, consumed.operations),
        (charged, sums.operations.load(Ordering::Relaxed).into())
    );
    assert_eq!((state.available.0, state.debt, group.cell.open()), (POOL - charged, Ru::ZERO, 0));
}

/// Purses are closed and filled as fast as threads can, by two that do nothing else, while three pay from theirs and
/// others come, leave a full purse, and go.
#[test]
fn nothing_is_lost_or_made_while_purses_close_all_the_time() {
    let (group, sums, over) = (leased(), Sums::default(), AtomicBool::new(false));
    let closes = AtomicU64::new(0);
    let runs = || !over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..).take_while(|_| runs()).for_each(|turn| operate(&group, turn, &sums)));
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while runs() {
                    let state = group.state();
                    assert!(state.available <= Ru(POOL) && state.debt == Ru::ZERO, "{state:?}");
                    closes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while runs() {
            let brief = || (0..8).for_each(|turn| operate(&group, turn, &sums));
            // Joined, so that it has given its seat back.
            std::thread::scope(|scope| scope.spawn(brief).join().unwrap());
            over.store(group.cell.shared().clock.now().0 > crate::clock::span(LONG).0, Ordering::Relaxed);
        }
    });
    assert_conserved(&group, &sums);
    let (operations, paid) = (sums.operations.into_inner(), sums.paid.into_inner());
    println!("{operations} operations, {paid} admitted from purses, {} times closed", closes.into_inner());
    assert!(paid > 1_000, "the purses were hardly used");
}

thread_local! {
    static KEPT: RefCell<Vec<Permit<'static>>> = const { RefCell::new(Vec::new()) };
}

/// Threads end with tokens in their purses, and with permits that are dropped after their seats are gone: all of it is
/// there for the next thread, and for a look at the group.
#[test]
fn threads_that_end_leave_what_is_in_their_purses() {
    let (group, sums, left) = (leased(), Sums::default(), AtomicU64::new(0));
    let life = |outlives_seat: bool| {
        let keep = || {
            let admitted = group.try_enter(Ru(3)).unwrap();
            KEPT.with_borrow_mut(|kept| {
                kept.push(Permit::admitted(&group.cell, Ru(3), admitted).into_owned())
            });
            sums.charged.fetch_add(3, Ordering::Relaxed);
            sums.operations.fetch_add(1, Ordering::Relaxed);
        };
        // A thread drops last what it uses first: the clock in any case, and the seat before or after the permit.
        group.cell.shared().clock.now();
        if outlives_seat {
            KEPT.with_borrow(|_| ());
        }
        (0..8).for_each(|turn| operate(&group, turn, &sums));
        keep();
        // Another thread may have closed the purse; who came late among the threads of all tests has none.
        while group.cell.lending().has_mine() {
            if let Some(at) = group.cell.pay(Ru(0)) {
                left.fetch_add(1, Ordering::Relaxed);
                Permit::new(&group.cell, Ru(0), at).cancel();
                return;
            }
            operate(&group, 1, &sums);
        }
    };
    for round in 0..100 {
        std::thread::scope(|scope| {
            let threads = [0; 3].map(|_| scope.spawn(|| life(round % 2 == 0)));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        // By itself, and so on the seat of one that has ended.
        std::thread::scope(|scope| scope.spawn(|| life(round % 2 == 1)).join().unwrap());
        if round % 10 == 0 {
            assert_conserved(&group, &sums);
        }
    }
    assert_conserved(&group, &sums);
    assert!(left.into_inner() > 0, "nobody left anything");
}
