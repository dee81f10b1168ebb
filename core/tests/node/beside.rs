//! Operations larger than the bucket beside those that fit it: in which order they start, what each may take, and what
//! the node reports of them.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::node::{Admitted, NodeGroup, Refusal};
use tidegate_core::units::{Ru, Span};

use super::{at, node, queued, terms, used};

/// A node with this lease whose bucket was emptied at 1,001 ms.
fn emptied(terms: LeaseTerms) -> NodeGroup {
    let mut node = node(terms);
    assert_eq!(node.try_acquire(at(1_001), terms.cap), Ok(Admitted::Paid));
    node
}

/// Renews at once; the answer comes at this time.
fn granted(node: &mut NodeGroup, ms: u64, terms: LeaseTerms) {
    node.ask(at(1_001), 2);
    node.on_grant(at(ms), 2, &Grant::Leased(terms));
}

#[test]
fn an_operation_as_large_as_the_bucket_keeps_its_place() {
    let mut node = emptied(terms(10, 10, 0));
    let first = queued(node.acquire(at(1_001), Ru::whole(4), at(60_000)));
    let as_large = queued(node.acquire(at(1_001), Ru::whole(10), at(60_000)));
    granted(&mut node, 1_020, terms(10, 10, 10));
    assert_eq!(node.poll(at(1_020)), Some((first, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(1_020)), None, "a bit more than 6 RU are left");
    assert_eq!(node.poll(at(1_401)), Some((as_large, Ok(Admitted::Paid))));
}

#[test]
fn a_large_operation_that_came_first_takes_the_bucket_beside_the_lump_before_later_ones() {
    let mut node = emptied(terms(10, 10, 0));
    let large = queued(node.acquire(at(1_001), Ru::whole(50), at(60_000)));
    let small = queued(node.acquire(at(1_001), Ru::whole(8), at(60_000)));
    granted(&mut node, 1_501, terms(10, 10, 45));
    assert_eq!(node.poll(at(1_501)), Some((large, Ok(Admitted::Paid))), "5 RU of the bucket and the lump");
    assert_eq!(node.poll(at(2_300)), None);
    assert_eq!(node.poll(at(2_301)), Some((small, Ok(Admitted::Paid))));
}

#[test]
fn a_large_operation_that_came_later_takes_nothing_of_the_bucket() {
    let mut node = emptied(terms(10, 10, 0));
    let small = queued(node.acquire(at(1_001), Ru::whole(8), at(60_000)));
    let large = queued(node.acquire(at(1_001), Ru::whole(50), at(60_000)));
    granted(&mut node, 1_501, terms(10, 10, 46));
    // The first one may use either; together they hold 51 RU.
    assert_eq!(node.poll(at(1_501)), None, "the lump alone does not cover the later one");
    assert_eq!(node.poll(at(1_801)), Some((small, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(2_200)), None);
    assert_eq!(node.poll(at(2_201)), Some((large, Ok(Admitted::Paid))));
}

#[test]
fn what_waits_beside_a_lump_is_reported_and_comes_before_later_operations_that_fit() {
    let mut node = emptied(terms(10, 10, 0));
    queued(node.acquire(at(1_001), Ru::whole(50), at(60_000)));
    let first = queued(node.acquire(at(1_001), Ru::whole(3), at(60_000)));
    queued(node.acquire(at(1_001), Ru::whole(4), at(60_000)));
    let refused = node.try_acquire(at(1_001), Ru::whole(2));
    assert_eq!(
        refused,
        Err(Refusal::Throttled { retry_after: Span::millis(900) }),
        "3 + 4 + 2 RU at 10 RU/s"
    );
    let ask = node.ask(at(1_001), 2);
    assert_eq!((ask.head, ask.beside, ask.backlog), (Ru::whole(50), Ru::whole(7), Ru::whole(57)));
    node.on_grant(at(1_002), 2, &Grant::Leased(terms(10, 10, 0)));
    assert_eq!(node.poll(at(1_301)), Some((first, Ok(Admitted::Paid))));
    assert_eq!(node.ask(at(1_301), 3).beside, Ru::whole(4), "one has left");
}

#[test]
fn an_operation_that_nothing_in_hand_can_cover_is_reported_in_spite_of_earlier_advice() {
    let full = LeaseTerms { ask_again: Span::secs(1), ..terms(10, 10, 0) };
    let mut fits = node(full);
    queued(fits.acquire(at(50), Ru::whole(10), at(60_000)));
    assert_eq!(fits.due(at(50)), Some(at(1_000)), "asking sooner is useless");
    let mut large = node(full);
    queued(large.acquire(at(50), Ru::whole(11), at(60_000)));
    assert!(
        large.due(at(50)).is_some_and(|due| due <= at(50)),
        "the controller did not know: {:?}",
        large.due(at(50))
    );
}

#[test]
fn the_end_of_the_last_large_operation_is_reported_sooner_than_another_like_it_is_waited_for() {
    let lump = |ru| LeaseTerms { scarce: true, ..terms(0, 0, ru) };
    let serve = || {
        let mut node = node(lump(0));
        let waiter = queued(node.acquire(at(2), Ru::whole(60), at(60_000)));
        node.ask(at(399), 2);
        node.on_grant(at(400), 2, &Grant::Leased(lump(60)));
        assert_eq!(node.poll(at(400)), Some((waiter, Ok(Admitted::Paid))));
        node.ask(at(410), 3);
        node.on_grant(at(411), 3, &Grant::Leased(lump(0)));
        node
    };
    let mut given_back = serve();
    given_back.give_back(at(430), at(0), Ru::whole(60));
    assert_eq!(given_back.due(at(430)), Some(at(500)), "another operation like it may come at once");
    let mut settled = serve();
    settled.settle(at(430), Ru::whole(60), &used(5));
    assert_eq!(settled.due(at(430)), Some(at(440)), "it has come by then if its connection has one");
}
