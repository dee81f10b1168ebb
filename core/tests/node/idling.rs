//! Groups without load: the lease is given up, and comes back.

use tidegate_core::exchange::{Grant, Held, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Admitted, Dormant, LeaseState, NodeConfig, NodeGroup, Refusal};
use tidegate_core::units::{Rate, Ru, Span};

use super::{at, node, queued, terms, used};

/// Of a node that gives a group up after three seconds without load.
fn sleeps_soon() -> NodeConfig {
    NodeConfig { idle_after: Span::secs(3), ..NodeConfig::default() }
}

/// A node with a lease from 0 ms on.
fn leased(config: NodeConfig) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    node.on_grant(at(0), 1, &Grant::Leased(terms(100, 50, 0)));
    node
}

#[test]
fn an_idle_node_gives_up_and_asks_again_when_it_is_needed() {
    let mut node = leased(sleeps_soon());
    assert_eq!(node.try_acquire(at(500), Ru::whole(1)), Ok(Admitted::Paid));
    let mut seq = 1;
    for ms in [1_000, 2_000, 3_000] {
        seq += 1;
        assert!(!node.ask(at(ms), seq).gives_up());
        node.on_grant(at(ms), seq, &Grant::Leased(terms(100, 50, 0)));
    }
    let last = node.ask(at(4_000), 5);
    assert!(last.gives_up() && last.returned > Ru::ZERO);
    node.on_grant(at(4_001), 5, &Grant::Leased(terms(0, 0, 0)));
    assert_eq!(node.due(at(9_000)), None, "an idle group sends nothing");
    let waiter = queued(node.acquire(at(9_000), Ru::whole(1), at(9_500)));
    assert!(node.due(at(9_000)).is_some_and(|due| due <= at(9_000)));
    assert!(!node.ask(at(9_000), 6).gives_up());
    node.on_grant(at(9_001), 6, &Grant::Leased(terms(100, 50, 1)));
    assert_eq!(node.poll(at(9_001)), Some((waiter, Ok(Admitted::Paid))));
}

#[test]
fn a_lease_is_given_up_again_when_the_stream_breaks_before_the_answer() {
    let mut node = leased(sleeps_soon());
    assert_eq!(node.try_acquire(at(0), Ru::ZERO), Ok(Admitted::Paid));
    assert!(node.ask(at(3_000), 2).gives_up());
    node.on_session_lost(at(3_100));
    assert_eq!(node.dormant(), None, "the controller counts it as held");
    assert!(node.due(at(3_100)).is_some_and(|due| due <= at(3_200)), "{:?}", node.due(at(3_100)));
    let again = node.ask(at(3_200), 3);
    assert!(again.gives_up(), "{again:?}");
    node.on_grant(at(3_201), 3, &Grant::Leased(terms(0, 0, 0)));
    assert_eq!(node.due(at(9_000)), None, "an idle group sends nothing");
    node.on_session_lost(at(9_000));
    assert!(node.dormant().is_some(), "nothing was under way");
}

#[test]
fn what_operations_did_not_need_is_returned_with_the_lease() {
    let config = sleeps_soon();
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    node.on_grant(at(1), 1, &Grant::Leased(terms(0, 0, 100)));
    assert_eq!(node.try_acquire(at(1), Ru::whole(60)), Ok(Admitted::Paid));
    assert_eq!(node.ask(at(2_500), 2).running, Ru::whole(60));
    node.on_grant(at(2_501), 2, &Grant::Leased(terms(0, 0, 0)));
    node.settle(at(3_400), Ru::whole(60), &used(5));
    let last = node.ask(at(3_500), 3);
    assert!(last.gives_up(), "{last:?}");
    assert_eq!(last.refunded, Ru::whole(55));
}

#[test]
fn a_group_that_is_never_used_gives_its_lease_up() {
    let config = sleeps_soon();
    let mut node = NodeGroup::new(at(0), config);
    for (seq, ms) in [(1, 0), (2, 1_000), (3, 2_000)] {
        assert!(!node.ask(at(ms), seq).gives_up());
        node.on_grant(at(ms), seq, &Grant::Leased(terms(100, 50, 0)));
    }
    assert!(node.ask(at(3_000), 4).gives_up());
    node.on_grant(at(3_001), 4, &Grant::Leased(terms(0, 0, 0)));
    assert_eq!(node.state(at(3_001)).lease, LeaseState::Idle);
    assert_eq!(node.due(at(60_000)), None, "an idle group sends nothing");
}

#[test]
fn a_group_that_slept_goes_on_where_it_was() {
    let config = sleeps_soon();
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    assert_eq!(node.dormant(), None, "no answer yet");
    let terms = LeaseTerms { fallback: Fallback::Unlimited, ..terms(100, 50, 0) };
    node.on_grant(at(0), 1, &Grant::Leased(terms));
    assert_eq!(node.dormant(), None, "a lease");
    queued(node.acquire(at(100), Ru::whole(60), at(200)));
    let last = queued(node.acquire(at(100), Ru::whole(60), at(300)));
    assert!(matches!(node.poll(at(200)), Some((id, Err(_))) if id < last));
    assert!(matches!(node.poll(at(300)), Some((id, Err(_))) if id == last));
    node.charge(at(300), &used(7));
    assert!(node.ask(at(3_300), 2).gives_up());
    assert_eq!(node.dormant(), None, "the end is not confirmed");
    node.on_grant(at(3_301), 2, &Grant::Leased(terms));
    let rest = node.dormant().expect("nothing is left to do");
    assert_eq!(Dormant::from_words(rest.to_words()), rest);

    let mut node = NodeGroup::awaken(at(90_000), config, &rest);
    assert_eq!(
        (node.state(at(90_000)).lease, node.consumption().ru().clamped()),
        (LeaseState::Idle, Ru::whole(7))
    );
    assert_eq!(node.consumption().throttled, 2);
    assert_eq!(node.dormant(), Some(rest), "woken for nothing, it sleeps on as it was");
    assert!(matches!(node.try_acquire(at(90_000), Ru::whole(1)), Err(Refusal::Unavailable { .. })));
    assert_eq!(node.due(at(90_000)), Some(at(90_000)));
    let ask = node.ask(at(90_000), 9);
    assert_eq!((ask.acked_seq, ask.held), (2, Held::default()));
    node.on_grant(at(90_001), 9, &Grant::Leased(terms));
    let next = queued(node.acquire(at(90_002), Ru::whole(60), at(91_000)));
    assert!(next > last, "who still waits to be told must not be taken for another");
    assert_eq!(node.dormant(), None, "a waiter");
}

#[test]
fn an_idle_group_falls_back_when_nobody_answers() {
    for (fallback, admits) in
        [(Fallback::Stop, false), (Fallback::Rate(Rate::whole(10)), true), (Fallback::Unlimited, true)]
    {
        let mut node = idle(fallback);
        let waiter = queued(node.acquire(at(9_000), Ru::whole(1), at(20_000)));
        assert!(node.due(at(9_000)).is_some_and(|due| due <= at(9_000)), "asks at once");
        assert_eq!(node.poll(at(9_999)), None, "the controller may be there");
        assert_eq!(node.look().next_poll(), Some(at(10_000)));
        let admitted = node.poll(at(10_100)) == Some((waiter, Ok(Admitted::Paid)));
        assert_eq!(admitted, admits, "{fallback:?}");
        assert_eq!(node.state(at(10_100)).lease, LeaseState::Expired);
    }
}

#[test]
fn renewals_in_vain_make_no_idle_group_wait_longer_for_its_fallback() {
    // The controller is away while the group sleeps, twice for so long that renewals wait longer and longer.
    let mut node = idle(Fallback::Rate(Rate::whole(1)));
    let mut seq = 10;
    let mut from = 100_000;
    for _ in 0..3 {
        assert_eq!(node.look().fallback_wait(), Span::secs(1));
        queued(node.acquire(at(from), Ru::whole(1), at(from + 60_000)));
        let mut served = 0;
        for ms in (from..from + 10_000).step_by(10) {
            if node.due(at(ms)).is_some_and(|due| due <= at(ms)) {
                seq += 1;
                node.ask(at(ms), seq);
            }
            if served == 0 && node.poll(at(ms)).is_some() {
                served = ms - from;
            }
        }
        // The node waits for an answer, then earns a second's worth.
        assert!((2_000..=2_010).contains(&served), "served after {served} ms");
        assert!(node.look().answer_wait() > Span::secs(1), "nobody answers");
        from += 10_000;
    }
}

#[test]
fn an_idle_group_that_is_only_charged_asks_for_a_lease_to_pay_from() {
    let mut node = idle(Fallback::Stop);
    node.settle(at(9_000), Ru::ZERO, &used(5));
    assert!(node.due(at(9_000)).is_some_and(|due| due <= at(9_000)));
    assert_eq!(node.ask(at(9_000), 3).debt, Ru::whole(5));
    node.on_grant(at(9_001), 3, &Grant::Leased(terms(100, 50, 5)));
    assert_eq!(node.state(at(9_001)).debt, Ru::ZERO);
}

/// A node that gave its lease up after three seconds, with an answer to that.
fn idle(fallback: Fallback) -> NodeGroup {
    let config = NodeConfig { drift_ppm: 0, ..sleeps_soon() };
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    node.on_grant(at(0), 1, &Grant::Leased(LeaseTerms { fallback, ..terms(100, 50, 0) }));
    assert!(node.ask(at(3_000), 2).gives_up());
    node.on_grant(at(3_001), 2, &Grant::Leased(terms(0, 0, 0)));
    node
}

#[test]
fn who_owes_does_not_sleep() {
    let mut node = idle(Fallback::Stop);
    assert!(node.dormant().is_some());
    node.charge(at(3_002), &used(1));
    assert_eq!(node.dormant(), None);
    let mut node = idle(Fallback::Stop);
    node.settle(at(3_002), Ru::whole(1), &used(2));
    assert_eq!(node.dormant(), None, "an operation that outlasted the lease cost more than it took");
}

#[test]
fn a_group_that_slept_keeps_the_fallback_that_it_had() {
    let rate = Rate::whole(10);
    for (fallback, admits) in [
        (Fallback::Stop, false),
        (Fallback::Rate(rate), true),
        (Fallback::Unlimited, true),
        (Fallback::Part(rate, Span::secs(60)), true),
        (Fallback::Part(rate, Span::secs(5)), false),
    ] {
        let slept = idle(fallback).dormant().unwrap();
        let stored = Dormant::from_words(slept.to_words());
        assert_eq!(stored, slept);
        let config = NodeConfig { drift_ppm: 0, ..NodeConfig::default() };
        let mut node = NodeGroup::awaken(at(9_000), config, &stored);
        let waiter = queued(node.acquire(at(9_000), Ru::whole(1), at(20_000)));
        assert_eq!(node.poll(at(9_999)), None, "the controller may be there");
        let admitted = node.poll(at(10_100)) == Some((waiter, Ok(Admitted::Paid)));
        assert_eq!(admitted, admits, "{fallback:?}");
    }
}

#[test]
fn an_idle_group_that_is_used_again_refuses_for_as_long_as_an_answer_may_take() {
    let mut node = idle(Fallback::Rate(Rate::whole(10)));
    for (ms, left) in [(9_000, 1_000), (9_500, 500), (9_900, 100)] {
        let retry_after = Span::millis(left);
        assert_eq!(node.try_acquire(at(ms), Ru::whole(1)), Err(Refusal::Unavailable { retry_after }));
    }
    assert_eq!(node.try_acquire(at(10_100), Ru::whole(1)), Ok(Admitted::Paid), "the fallback");
}

#[test]
fn release_gives_everything_up_and_refuses_from_then_on() {
    let mut node = node(terms(1, 1, 0));
    let waiter = queued(node.acquire(at(1), Ru::whole(1), at(4_000)));
    node.release(at(2));
    assert!(matches!(node.poll(at(2)), Some((id, Err(Refusal::Unavailable { .. }))) if id == waiter));
    assert!(matches!(node.acquire(at(2), Ru(1), at(9_000)), Err(Refusal::Unavailable { .. })));
    assert_eq!(node.due(at(2)), None);
}

/// The largest debt is that of the node's life, not of the time since the group woke up.
#[test]
fn a_group_that_slept_remembers_its_largest_debt() {
    let config = sleeps_soon();
    let mut node = leased(config);
    node.charge(at(0), &used(20));
    let worst = node.look().worst_debt();
    assert_eq!(worst, Ru::whole(20));
    assert!(node.ask(at(3_500), 2).gives_up(), "the debt is paid");
    node.on_grant(at(3_501), 2, &Grant::Leased(terms(0, 0, 0)));
    let rest = node.dormant().unwrap();
    let again = NodeGroup::awaken(at(9_000), config, &Dormant::from_words(rest.to_words()));
    assert_eq!(again.look().worst_debt(), worst);
}
