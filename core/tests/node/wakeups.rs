//! The next moment at which something happens by itself: a task that sleeps until then misses nothing and does not
//! wake in vain.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::units::{Ru, Span};

use super::{Admitted, at, node, queued, terms};

/// A lump of 30 RU that may be spent from the first second on, beside 100 RU/s.
fn with_a_lump_of_later(cap: i64) -> LeaseTerms {
    LeaseTerms { lump_after: Span::secs(1), ..terms(100, cap, 30) }
}

#[test]
fn an_operation_starts_when_the_bucket_covers_it_before_a_lump_of_later_may_be_spent() {
    let mut node = node(with_a_lump_of_later(100));
    let waiter = queued(node.acquire(at(1), Ru::whole(60), at(60_000)));
    assert_eq!(node.look().next_poll(), Some(at(601)));
    assert_eq!(node.poll(at(600)), None);
    assert_eq!(node.poll(at(601)), Some((waiter, Ok(Admitted::Paid))));
}

#[test]
fn tokens_in_the_bucket_count_beside_a_lump_of_later_that_is_larger_than_what_is_missing() {
    let mut node = node(with_a_lump_of_later(100));
    let waiter = queued(node.acquire(at(1), Ru::whole(60), at(60_000)));
    for now in [401, 600] {
        assert_eq!(node.poll(at(now)), None);
        assert_eq!(node.look().next_poll(), Some(at(601)), "at {now} ms");
    }
    assert_eq!(node.poll(at(601)), Some((waiter, Ok(Admitted::Paid))));
}

#[test]
fn an_operation_larger_than_the_bucket_starts_when_its_lump_may_be_spent() {
    let mut node = node(with_a_lump_of_later(50));
    let waiter = queued(node.acquire(at(1), Ru::whole(60), at(60_000)));
    let due = node.look().next_poll().unwrap();
    assert!(due > at(1_001) && due < at(1_002), "{due:?}");
    assert_eq!(node.poll(at(1_001)), None);
    assert_eq!(node.poll(due), Some((waiter, Ok(Admitted::Paid))));
}

#[test]
fn nobody_wakes_for_an_operation_that_only_a_lump_can_cover() {
    let mut node = node(terms(100, 10, 0));
    queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    assert_eq!(node.look().next_poll(), Some(at(5_000)), "the end of the lease");
}

#[test]
fn an_operation_as_large_as_the_bucket_passes_one_that_waits_for_a_lump_when_the_bucket_is_full() {
    let mut node = node(terms(10, 10, 0));
    queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    let small = queued(node.acquire(at(1), Ru::whole(10), at(60_000)));
    for now in [1, 501, 1_000] {
        assert_eq!(node.poll(at(now)), None);
        assert_eq!(node.look().next_poll(), Some(at(1_001)), "at {now} ms");
    }
    assert_eq!(node.poll(at(1_001)), Some((small, Ok(Admitted::Paid))));
}

#[test]
fn nobody_wakes_for_an_operation_that_the_bucket_became_too_small_for() {
    let mut node = node(terms(100, 50, 0));
    queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    queued(node.acquire(at(1), Ru::whole(40), at(60_000)));
    node.ask(at(10), 2);
    node.on_grant(at(11), 2, &Grant::Leased(terms(10, 10, 0)));
    assert_eq!(node.look().next_poll(), Some(at(5_010)), "the end of the lease");
}
