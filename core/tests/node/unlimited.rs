//! Leases without a rate: the group is metered, not throttled.

use tidegate_core::exchange::{Allowance, Grant, LeaseTerms, Spending};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Admitted, Heard, LeaseState, NodeConfig, NodeGroup, Refusal};
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span};

use super::{at, free, node, terms, used};

/// A node that asked at 0 ms and has a lease without a rate until the fifth second.
fn unlimited() -> NodeGroup {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    node.ask(at(0), 1);
    assert_eq!(node.on_grant(at(1), 1, &free(5)), Heard::Applied);
    node
}

#[test]
fn without_a_limit_everything_is_admitted_and_counted_until_the_lease_ends() {
    let mut node = unlimited();
    for _ in 0..3 {
        assert_eq!(node.try_acquire(at(10), Ru::MAX), Ok(Admitted::Paid));
        node.settle(at(20), Ru::whole(1), &used(7));
    }
    assert_eq!((node.state(at(20)).debt, node.look().worst_debt()), (Ru::ZERO, Ru::ZERO));
    assert_eq!((node.consumption().ru().clamped(), node.consumption().operations), (Ru::whole(21), 3));
    assert_eq!(node.try_acquire(at(4_999), Ru::MAX), Ok(Admitted::Paid));
    assert!(matches!(node.try_acquire(at(5_000), Ru(1)), Err(Refusal::Unavailable { .. })));
}

#[test]
fn where_the_limit_is_lifted_nothing_is_owed_any_more() {
    let mut node = node(terms(0, 20, 0));
    node.charge(at(1), &used(8));
    node.ask(at(10), 2);
    node.on_grant(at(11), 2, &free(5));
    assert_eq!(node.state(at(11)).debt, Ru::ZERO);
    node.ask(at(20), 3);
    node.on_grant(at(21), 3, &Grant::Leased(terms(0, 20, 1)));
    assert_eq!(node.try_acquire(at(21), Ru::whole(1)), Ok(Admitted::Paid), "the limit is back");
}

#[test]
fn where_the_limit_goes_its_quota_goes_with_it() {
    for unit in [Unit::Ru, Unit::Requests] {
        let used_up = Allowance { window: 1, unit, resets_in: Span::secs(60), ..Allowance::default() };
        let mut node = node(LeaseTerms { allowance: Some(used_up), ..terms(100, 50, 0) });
        let refused = node.try_acquire(at(10), Ru::whole(1));
        assert!(matches!(refused, Err(Refusal::QuotaUsedUp { .. })), "{refused:?}");
        node.ask(at(20), 2);
        node.on_grant(at(21), 2, &free(5));
        assert_eq!(node.try_acquire(at(22), Ru::whole(1)), Ok(Admitted::Paid), "{unit:?}");
        assert_eq!(node.quota_left(at(22), Ru::ZERO, 0), None);
        assert_eq!(node.ask(at(1_020), 3).spending, Spending::default());
    }
}

#[test]
fn a_late_answer_without_a_rate_lengthens_a_lease_without_one_and_shortens_none() {
    let mut node = unlimited();
    for (seq, ms) in [(2, 1_000), (3, 2_000), (4, 3_000), (5, 4_000)] {
        node.ask(at(ms), seq);
    }
    // They would end at 4 s, 5 s and 6 s.
    assert_eq!(node.on_grant(at(4_100), 2, &free(3)), Heard::Ignored);
    assert_eq!(node.on_grant(at(4_100), 3, &free(3)), Heard::Ignored);
    assert_eq!(node.look().lease_end(), Some(at(5_000)));
    assert_eq!(node.on_grant(at(4_100), 4, &free(3)), Heard::Extended);
    assert_eq!(node.look().lease_end(), Some(at(6_000)));
    assert_eq!(node.try_acquire(at(5_999), Ru::whole(1)), Ok(Admitted::Paid));
}

#[test]
fn a_late_answer_without_a_rate_lengthens_no_lease_on_one() {
    let mut node = node(terms(100, 50, 0));
    node.ask(at(2_000), 2);
    node.ask(at(4_000), 3);
    assert_eq!(node.on_grant(at(4_100), 2, &free(5)), Heard::Ignored);
    let state = node.state(at(4_100));
    assert_eq!((state.lease, state.rate), (LeaseState::Leased, Rate::whole(100)));
    assert_eq!(node.look().lease_end(), Some(at(5_000)));
}

#[test]
fn a_controller_that_recovers_leaves_a_lease_without_a_rate_to_its_end() {
    let mut node = unlimited();
    node.ask(at(1_000), 2);
    node.on_grant(at(1_001), 2, &Grant::Recovering { ask_again: Span::secs(1), fallback: None });
    assert_eq!(node.try_acquire(at(4_999), Ru::whole(1_000)), Ok(Admitted::Paid));
    assert!(node.try_acquire(at(5_000), Ru(1)).is_err());
}

#[test]
fn a_lease_without_a_rate_that_ended_before_it_came_makes_no_tokens() {
    let fallback = Fallback::Rate(Rate::whole(10));
    let mut node = node(LeaseTerms { fallback, ..terms(100, 50, 0) });
    node.ask(at(1_000), 2);
    assert_eq!(
        node.try_acquire(at(6_000), Ru::whole(10)),
        Ok(Admitted::Paid),
        "a second at the fallback rate"
    );
    assert_eq!(node.try_acquire(at(7_000), Ru::whole(10)), Ok(Admitted::Paid), "another");
    let grant = Grant::Unlimited { ttl: Span::secs(5), renew_after: Span::secs(1), fallback };
    node.on_grant(at(7_000), 2, &grant);
    assert!(node.try_acquire(at(7_000), Ru::whole(1)).is_err(), "the same second again");
    assert_eq!(node.try_acquire(at(7_100), Ru::whole(1)), Ok(Admitted::Paid));
}
