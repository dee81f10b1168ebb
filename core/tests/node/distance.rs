//! Nodes whose answers take long: what they report, when, and what they keep until the answer.

use tidegate_core::exchange::{Ask, Grant, LeaseTerms};
use tidegate_core::node::{Admitted, NodeConfig, NodeGroup};
use tidegate_core::units::{Rate, Ru, Span};

use super::{at, queued, terms};

/// A node that asked at 0 ms and was granted `trip` milliseconds later.
fn far(trip: u64, terms: LeaseTerms) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    node.ask(at(0), 1);
    node.on_grant(at(trip), 1, &Grant::Leased(terms));
    node
}

/// One RU each ten milliseconds: 100 RU/s.
fn steady(node: &mut NodeGroup, from: u64, to: u64) {
    for ms in (from..to).step_by(10) {
        assert_eq!(node.try_acquire(at(ms), Ru::whole(1)), Ok(Admitted::Paid), "{ms} ms");
    }
}

#[test]
fn a_new_load_is_watched_for_an_eighth_of_a_round_trip_and_reported() {
    for (trip, watched) in [(20, 0), (80, 20), (400, 50)] {
        let mut node = far(trip, terms(10, 10, 0));
        assert_eq!(node.try_acquire(at(1_400), Ru::whole(10)), Ok(Admitted::Paid));
        node.ask(at(1_400), 2);
        node.on_grant(at(1_400 + trip), 2, &Grant::Leased(terms(10, 10, 0)));
        node.ask(at(1_900), 3);
        node.on_grant(at(1_900 + trip), 3, &Grant::Leased(terms(10, 10, 0)));
        queued(node.acquire(at(2_310), Ru::whole(10), at(60_000)));
        let due = node.due(at(2_310)).map(|due| due.max(at(2_310)));
        assert_eq!(due, Some(at(2_310 + watched)), "a round trip of {trip} ms");
    }
}

#[test]
fn the_end_of_a_steady_load_is_reported_once_and_gives_its_rate_back() {
    let mut node = far(100, terms(200, 100, 0));
    steady(&mut node, 600, 1_450);
    node.ask(at(1_450), 2);
    steady(&mut node, 1_450, 1_500);
    node.on_grant(at(1_550), 2, &Grant::Leased(terms(200, 100, 0)));
    // The last one came at 1,490 ms; the tenth of a second from 1,500 ms on stays empty.
    assert_eq!(node.due(at(1_550)), Some(at(1_600)));
    let ask = node.ask(at(1_600), 3);
    assert_eq!((ask.demand, ask.held.rate, ask.held.cap), (Rate::ZERO, Rate::ZERO, Ru::ZERO));
    // Whatever the controller leases for what may come, the node does not report the same again.
    node.on_grant(at(1_700), 3, &Grant::Leased(terms(20, 10, 0)));
    assert_eq!(node.due(at(1_700)), Some(at(2_600)));
}

#[test]
fn a_load_has_not_ended_while_one_of_its_operations_waits() {
    let mut node = far(100, terms(10, 50, 90));
    steady(&mut node, 600, 1_500);
    queued(node.acquire(at(1_490), Ru::whole(20), at(60_000)));
    node.ask(at(1_500), 2);
    let useless = LeaseTerms { ask_again: Span::secs(2), ..terms(10, 50, 0) };
    node.on_grant(at(1_600), 2, &Grant::Leased(useless));
    assert_eq!(node.due(at(1_700)), Some(at(2_500)), "the regular renewal");
}

#[test]
fn a_load_that_only_lumps_serve_gives_no_rate_back_at_its_end() {
    let mut node = far(100, terms(0, 0, 100));
    steady(&mut node, 600, 1_500);
    assert_eq!(node.due(at(1_600)), Some(at(1_000)), "the regular renewal");
    assert!(node.ask(at(1_600), 2).demand > Rate::whole(80), "it may come again, and nothing is held for it");
}

/// A node 100 ms away that renews under a load of 100 RU/s, with so much of its lump left.
fn renews(rate: i64, cap: i64, left: i64) -> (NodeGroup, Ask) {
    let mut node = far(100, terms(rate, cap, 90 + left));
    steady(&mut node, 600, 1_500);
    let ask = node.ask(at(1_500), 2);
    (node, ask)
}

#[test]
fn a_lump_serves_a_load_that_the_rate_does_not_cover_for_three_round_trips_and_more_goes_back() {
    let kept = |rate, cap, left| renews(rate, cap, left).1.held.lump;
    assert_eq!(kept(0, 5, 30), Ru::whole(30));
    assert_eq!(kept(0, 5, 31), Ru::ZERO, "the next answer comes before that is spent");
    assert_eq!(kept(100, 5, 25), Ru::ZERO, "the rate covers the load");
    assert_eq!(kept(0, 0, 30), Ru::ZERO, "these operations take lumps, and each gets its own");
}

#[test]
fn a_renewal_goes_out_a_round_trip_before_a_load_above_the_rate_has_used_up_what_is_there() {
    let (mut node, _) = renews(0, 5, 30);
    node.on_grant(at(1_600), 2, &Grant::Leased(terms(0, 5, 0)));
    assert_eq!(node.due(at(1_600)), Some(at(1_800)), "30 RU last for 300 ms");
}

#[test]
fn while_large_operations_are_expected_nobody_asks_again_before_an_answer_for_small_ones() {
    // The largest operation is 1,000 RU; one in sixteen of that is not large yet.
    for (micros, due) in [(62_500_000, at(2_030)), (62_500_001, at(3_000))] {
        let mut node = far(100, terms(1, 10, 0));
        let waiter = queued(node.acquire(at(1_000), Ru(micros), at(60_000)));
        node.ask(at(1_000), 2);
        node.on_grant(at(1_100), 2, &Grant::Leased(LeaseTerms { lump: Ru(micros), ..terms(1, 10, 0) }));
        assert_eq!(node.poll(at(1_100)), Some((waiter, Ok(Admitted::Paid))));
        node.ask(at(2_000), 3);
        queued(node.acquire(at(2_010), Ru::whole(10), at(60_000)));
        assert_eq!(node.due(at(2_010)), Some(due), "after {}", Ru(micros));
    }
}
