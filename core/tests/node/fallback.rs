//! What a node may admit without a lease, and what outlasts a lease that ended.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Admitted, LeaseState, NodeConfig, NodeGroup, Refusal};
use tidegate_core::units::{Rate, Ru, Span};

use super::{at, free, node, queued, terms, used};

const RECOVERING: Grant = Grant::Recovering { ask_again: Span::secs(1), fallback: None };

/// A node with a fallback of 10 RU/s from the fifth second on.
fn falling_back() -> NodeGroup {
    node(LeaseTerms { fallback: Fallback::Rate(Rate::whole(10)), ..terms(100, 50, 0) })
}

#[test]
fn an_operation_without_an_estimate_needs_a_lease_too() {
    let mut new = NodeGroup::new(at(0), NodeConfig::default());
    assert!(matches!(new.try_acquire(at(0), Ru::ZERO), Err(Refusal::Unavailable { .. })));
    let mut node = node(terms(100, 50, 0));
    assert_eq!(node.try_acquire(at(1), Ru::ZERO), Ok(Admitted::Paid));
    assert!(matches!(node.try_acquire(at(5_000), Ru::ZERO), Err(Refusal::Unavailable { .. })));
}

#[test]
fn at_the_fallback_a_new_operation_passes_nobody() {
    let mut node = falling_back();
    let large = queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    assert!(node.try_acquire(at(5_500), Ru::whole(1)).is_err(), "the 5 RU there are for the first");
    assert_eq!(node.poll(at(6_000)), Some((large, Ok(Admitted::Paid))), "its bucket is full");
}

#[test]
fn a_controller_that_recovers_takes_no_tokens_of_the_fallback() {
    let mut node = falling_back();
    assert_eq!(node.state(at(5_500)).available, Ru::whole(5));
    node.ask(at(5_500), 2);
    node.on_grant(at(5_600), 2, &RECOVERING);
    assert_eq!(node.state(at(5_600)).available, Ru::whole(6));
}

#[test]
fn what_is_owed_outlasts_a_lease_a_recovery_and_an_unknown_group() {
    for (grant, state) in [(RECOVERING, LeaseState::Recovering), (Grant::UnknownGroup, LeaseState::Unknown)] {
        let mut node = node(terms(0, 20, 0));
        node.charge(at(1), &used(8));
        node.ask(at(6_000), 2);
        node.on_grant(at(6_001), 2, &grant);
        assert_eq!((node.state(at(6_001)).lease, node.state(at(6_001)).debt), (state, Ru::whole(8)));
        node.ask(at(7_000), 3);
        node.on_grant(at(7_001), 3, &Grant::Leased(terms(0, 20, 10)));
        let paid = node.state(at(7_001));
        assert_eq!((paid.debt, paid.available), (Ru::ZERO, Ru::whole(2)), "{state:?}");
    }
}

#[test]
fn what_an_operation_took_for_nothing_pays_no_debt() {
    let mut node = node(LeaseTerms { fallback: Fallback::Unlimited, ..terms(0, 20, 0) });
    node.charge(at(1), &used(5));
    assert_eq!(node.try_acquire(at(6_000), Ru::whole(10)), Ok(Admitted::Paid));
    node.settle(at(6_001), Ru::whole(10), &used(2));
    assert_eq!(node.state(at(6_001)).debt, Ru::whole(5), "of the lease before");
}

#[test]
fn a_lease_after_a_time_without_one_counts_with_a_fast_clock_as_before() {
    for between in [RECOVERING, Grant::UnknownGroup, free(5)] {
        let config = NodeConfig { drift_ppm: 100_000, ..NodeConfig::default() };
        let mut node = NodeGroup::new(at(0), config);
        node.ask(at(0), 1);
        node.on_grant(at(0), 1, &between);
        node.ask(at(1_000), 2);
        node.on_grant(at(1_000), 2, &Grant::Leased(terms(1_000, 10_000, 0)));
        // A true second is 1,100 ms on a clock that is a tenth fast.
        let earned = node.state(at(2_100)).available;
        assert!(earned <= Ru::whole(1_000) && earned >= Ru::whole(980), "{between:?}: {earned}");
    }
}

#[test]
fn a_clock_that_jumps_back_between_two_leases_makes_no_tokens() {
    let mut node = node(terms(100, 1_000, 0));
    node.ask(at(4_000), 2);
    node.on_grant(at(4_000), 2, &Grant::UnknownGroup);
    node.ask(at(1_000), 3);
    node.on_grant(at(1_000), 3, &Grant::Leased(terms(100, 1_000, 0)));
    assert_eq!(node.state(at(4_000)).available, Ru::ZERO);
    assert_eq!(node.state(at(5_000)).available, Ru::whole(100));
}
