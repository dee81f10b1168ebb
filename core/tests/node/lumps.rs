//! Lumps: whom they serve, what they pay, and when what is left of them goes back.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::units::{Ru, Span};

use super::{Admitted, at, node, queued, terms, used};

/// Terms with a lump that may be spent only after this long.
fn later(after_ms: u64, terms: LeaseTerms) -> LeaseTerms {
    LeaseTerms { lump_after: Span::millis(after_ms), ..terms }
}

#[test]
fn an_operation_whose_lump_has_come_waits_for_nobody_who_needs_the_bucket() {
    let mut node = node(terms(10, 10, 0));
    let small = queued(node.acquire(at(1), Ru::whole(5), at(60_000)));
    let large = queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    assert_eq!(node.poll(at(2)), None, "there is no lump");
    node.ask(at(10), 2);
    node.on_grant(at(11), 2, &Grant::Leased(later(100, terms(10, 10, 80))));
    assert_eq!(node.poll(at(110)), None, "it may not be spent yet");
    let due = node.look().next_poll().unwrap();
    assert!(due > at(111) && due < at(112), "{due:?}");
    assert_eq!(node.poll(due), Some((large, Ok(Admitted::Paid))));
    assert_eq!(node.poll(due), None, "the bucket is the other's, and not full enough");
    assert_eq!(node.poll(at(501)), Some((small, Ok(Admitted::Paid))));
}

#[test]
fn an_operation_that_needs_the_bucket_beside_a_lump_of_later_is_passed_by_nobody() {
    let mut node = node(later(300, terms(100, 50, 40)));
    let large = queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    assert!(node.try_acquire(at(201), Ru::whole(10)).is_err(), "it needs 40 RU of the bucket");
    let small = queued(node.acquire(at(201), Ru::whole(10), at(60_000)));
    assert_eq!(node.poll(at(202)), None);
    assert_eq!(node.poll(at(401)), Some((large, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(501)), Some((small, Ok(Admitted::Paid))));
}

#[test]
fn a_lump_of_later_pays_neither_debt_of_before_nor_a_charge() {
    let mut charged = node(later(300, terms(0, 0, 80)));
    charged.charge(at(2), &used(5));
    let mut owing = node(terms(0, 0, 0));
    owing.charge(at(2), &used(5));
    owing.ask(at(10), 2);
    owing.on_grant(at(11), 2, &Grant::Leased(later(300, terms(0, 0, 80))));
    for node in [&mut charged, &mut owing] {
        assert_eq!((node.state(at(11)).debt, node.look().worst_debt()), (Ru::whole(5), Ru::whole(5)));
        assert_eq!(node.ask(at(20), 3).returned, Ru::whole(80), "all of the lump is there");
    }
}

#[test]
fn a_clock_that_is_found_fast_puts_a_lump_of_later_off_once() {
    let mut node = node(later(200, terms(0, 0, 80)));
    let waiter = queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    for (ms, beyond) in [(1, Some(100_000)), (80, Some(100_000)), (120, Some(100_000)), (160, None)] {
        node.on_slewed_clock(at(ms), beyond);
    }
    // 220 ms on a clock that is a tenth fast are 200 ms.
    assert_eq!(node.poll(at(221)), None);
    let due = node.look().next_poll().unwrap();
    assert!(due > at(221) && due < at(222), "{due:?}");
    assert_eq!(node.poll(due), Some((waiter, Ok(Admitted::Paid))));
}

/// The bucket holds 10 RU, and others wait for tokens.
#[test]
fn a_lump_left_over_goes_back_early_unless_operations_like_those_before_fit_the_bucket() {
    for (cost, early) in [(5, false), (10, false), (11, true)] {
        let mut node = node(LeaseTerms { scarce: true, ..terms(1, 10, 100) });
        assert_eq!(node.try_acquire(at(20), Ru::whole(cost)), Ok(Admitted::Paid));
        let due = node.due(at(20)).unwrap();
        assert_eq!(due <= at(20), early, "{cost} RU: {due:?}");
    }
}

#[test]
fn after_an_operation_larger_than_the_bucket_another_may_come_before_the_node_asks() {
    for (cost, lump, due) in [(50, 0, 501), (60, 10, 601)] {
        let mut node = node(terms(100, 50, lump));
        let waiter = queued(node.acquire(at(1), Ru::whole(cost), at(60_000)));
        assert_eq!(node.poll(at(501)), Some((waiter, Ok(Admitted::Paid))), "the bucket is empty from now on");
        assert_eq!(node.due(at(501)).map(|early| early.max(at(501))), Some(at(due)), "{cost} RU");
    }
}
