//! When a node asks, and what an answer is worth that comes late, twice or never.

use std::collections::VecDeque;

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Admitted, Heard, LeaseState, NodeConfig, NodeGroup, Refusal};
use tidegate_core::units::{Rate, Ru, Span};

use super::{at, node, queued, terms};

#[test]
fn the_lease_runs_from_the_moment_the_renewal_was_sent() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    node.ask(at(100), 1);
    node.on_grant(at(4_000), 1, &Grant::Leased(terms(100, 50, 50)));
    assert_eq!(node.try_acquire(at(5_099), Ru::whole(1)), Ok(Admitted::Paid));
    assert!(matches!(node.try_acquire(at(5_100), Ru::whole(1)), Err(Refusal::Unavailable { .. })));
    assert_eq!(node.state(at(5_100)).available, Ru::ZERO);
    assert_eq!(node.state(at(5_100)).lease, LeaseState::Expired);
}

#[test]
fn a_fallback_of_the_node_s_own_holds_from_the_time_of_an_answer_on() {
    let fallback = Fallback::Rate(Rate::whole(10));
    let config = NodeConfig { fallback, reply_timeout: Span::secs(1), ..NodeConfig::default() };
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    assert!(matches!(node.try_acquire(at(999), Ru::whole(1)), Err(Refusal::Unavailable { .. })));
    let admitted = (0..40).filter(|tenth| node.try_acquire(at(1_001 + 100 * tenth), Ru::whole(1)).is_ok());
    assert!((38..=40).contains(&admitted.count()), "10 RU/s for four seconds");
}

#[test]
fn a_grant_that_comes_after_its_end_is_worth_nothing() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    node.ask(at(0), 1);
    node.on_grant(at(9_000), 1, &Grant::Leased(terms(100, 50, 50)));
    assert!(matches!(node.try_acquire(at(9_000), Ru(1)), Err(Refusal::Unavailable { .. })));
}

#[test]
fn only_the_answer_to_the_newest_renewal_brings_anything() {
    let mut node = node(terms(100, 50, 0));
    node.ask(at(100), 2);
    node.ask(at(1_200), 3);
    let before = node.state(at(1_201));
    assert_eq!(node.on_grant(at(1_201), 2, &Grant::Leased(terms(900, 90, 90))), Heard::Extended);
    let after = node.state(at(1_201));
    assert_eq!((after.rate, after.cap, after.available), (before.rate, before.cap, before.available));
    assert_eq!(node.on_grant(at(1_202), 3, &Grant::Leased(terms(10, 5, 0))), Heard::Applied);
    assert_eq!(
        node.on_grant(at(1_203), 3, &Grant::Leased(terms(900, 90, 90))),
        Heard::Ignored,
        "a duplicate"
    );
    assert_eq!(node.state(at(1_203)).rate, Rate::whole(10));
}

#[test]
fn a_late_answer_lengthens_the_lease_within_what_it_grants() {
    let mut node = node(terms(100, 50, 0));
    node.ask(at(2_000), 2);
    node.ask(at(4_000), 3);
    assert_eq!(node.look().lease_end(), Some(at(5_000)));
    assert_eq!(node.on_grant(at(4_900), 2, &Grant::Leased(terms(80, 30, 9))), Heard::Extended);
    assert_eq!(node.look().lease_end(), Some(at(7_000)), "it runs from its own renewal");
    let state = node.state(at(4_900));
    assert_eq!((state.rate, state.cap, state.available), (Rate::whole(80), Ru::whole(30), Ru::whole(30)));
    assert_eq!(node.on_grant(at(4_901), 2, &Grant::Leased(terms(80, 30, 9))), Heard::Ignored, "once");
    // What no longer fits goes back when the newest renewal is answered, which still counts.
    assert_eq!(node.on_grant(at(6_000), 3, &Grant::Leased(terms(100, 50, 5))), Heard::Applied);
    assert_eq!(node.look().lease_end(), Some(at(9_000)));
}

#[test]
fn a_node_whose_answers_all_came_late_waits_for_a_lost_one_no_longer_than_a_lease() {
    let answers = [
        Grant::Leased(LeaseTerms { ttl: Span::secs(2), ..terms(80, 40, 9) }),
        Grant::Unlimited { ttl: Span::secs(2), renew_after: Span::secs(1), fallback: Fallback::Stop },
    ];
    for answer in answers {
        // The controller stands still for six seconds.
        let mut node = NodeGroup::new(at(0), NodeConfig::default());
        queued(node.acquire(at(0), Ru::whole(1), at(60_000)));
        node.ask(at(0), 1);
        node.ask(at(1_000), 2);
        node.ask(at(3_000), 3);
        assert_eq!(node.on_grant(at(6_000), 1, &answer), Heard::Ignored);
        assert_eq!(node.on_grant(at(6_000), 2, &answer), Heard::Ignored);
        // The third answer is lost.
        node.ask(at(6_000), 4);
        assert_eq!(node.due(at(6_000)), Some(at(8_000)), "{answer:?}");
    }
}

#[test]
fn a_late_answer_whose_lease_ends_no_later_changes_nothing() {
    let mut node = node(terms(100, 50, 0));
    node.ask(at(2_000), 2);
    node.ask(at(4_000), 3);
    let late = LeaseTerms { ttl: Span::secs(3), ..terms(80, 40, 9) };
    assert_eq!(node.on_grant(at(4_500), 2, &Grant::Leased(late)), Heard::Ignored);
    assert_eq!((node.look().lease_end(), node.state(at(4_500)).rate), (Some(at(5_000)), Rate::whole(100)));
}

#[test]
fn a_node_asks_early_once_less_than_an_eighth_of_its_bucket_is_left() {
    for (cost, early) in [(Ru::whole(70), false), (Ru(70_000_001), true)] {
        let mut node = node(LeaseTerms { fill: Ru::whole(80), ..terms(0, 80, 0) });
        assert_eq!(node.try_acquire(at(20), cost), Ok(Admitted::Paid));
        let due = node.due(at(20)).unwrap();
        assert_eq!(due <= at(20), early, "{cost}: {due:?}");
    }
}

/// The round trip is 100 ms, and nobody else waits for tokens.
#[test]
fn a_node_at_a_distance_keeps_half_of_its_bucket_or_what_its_largest_operation_takes() {
    for (cost, returned) in [(1, 25), (40, 10)] {
        let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
        node.ask(at(0), 1);
        let full = LeaseTerms { fill: Ru::whole(50), ..terms(100, 50, 0) };
        node.on_grant(at(100), 1, &Grant::Leased(full));
        assert_eq!(node.try_acquire(at(200), Ru::whole(cost)), Ok(Admitted::Paid));
        assert_eq!(node.ask(at(1_000), 2).returned, Ru::whole(returned), "{cost} RU");
    }
}

#[test]
fn a_late_answer_wakes_no_lease_that_has_ended_or_was_given_up() {
    let mut ended = node(terms(100, 50, 0));
    ended.ask(at(2_000), 2);
    ended.ask(at(4_000), 3);
    assert_eq!(ended.on_grant(at(5_000), 2, &Grant::Leased(terms(100, 50, 0))), Heard::Ignored);
    assert_eq!(ended.state(at(5_000)).lease, LeaseState::Expired);
    let config = NodeConfig { idle_after: Span::secs(2), ..NodeConfig::default() };
    let mut given_up = NodeGroup::new(at(0), config);
    given_up.ask(at(0), 1);
    given_up.on_grant(at(1), 1, &Grant::Leased(terms(100, 50, 0)));
    given_up.ask(at(1_000), 2);
    assert!(given_up.ask(at(3_000), 3).gives_up());
    assert_eq!(given_up.on_grant(at(3_100), 2, &Grant::Leased(terms(100, 50, 0))), Heard::Ignored);
    assert_eq!((given_up.state(at(3_100)).lease, given_up.look().lease_end()), (LeaseState::Idle, None));
    let mut lost = node(terms(100, 50, 0));
    lost.ask(at(2_000), 2);
    lost.ask(at(4_000), 3);
    lost.on_session_lost(at(4_100));
    assert_eq!(lost.on_grant(at(4_200), 2, &Grant::Leased(terms(100, 50, 0))), Heard::Ignored);
    let mut without = node(terms(100, 50, 0));
    without.ask(at(2_000), 2);
    without.ask(at(4_000), 3);
    for grant in [Grant::Leased(terms(0, 0, 0)), Grant::UnknownGroup] {
        assert_eq!(without.on_grant(at(4_500), 2, &grant), Heard::Ignored);
    }
    assert_eq!(without.state(at(4_500)).rate, Rate::whole(100));
}

/// Runs a node that always wants more, `round_trip(now)` from a controller that grants `lease` each time; counts the
/// milliseconds of `from..to` in which it had a lease, and its renewals in that time.
fn leased_ms(lease: Span, round_trip: impl Fn(u64) -> u64, from: u64, to: u64) -> (u64, usize) {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    let granted = Grant::Leased(LeaseTerms { ttl: lease, ..terms(10, 5, 1) });
    let (mut seq, mut on_the_way, mut leased, mut asked) = (0, VecDeque::new(), 0, 0);
    for now in 0..to {
        while let Some((_, answered)) = on_the_way.pop_front_if(|(arrives, _)| *arrives <= now) {
            node.on_grant(at(now), answered, &granted);
        }
        if node.due(at(now)).is_some_and(|due| due <= at(now)) {
            seq += 1;
            node.ask(at(now), seq);
            on_the_way.push_back((now + round_trip(now), seq));
            asked += usize::from(now >= from);
        }
        let _ = node.try_acquire(at(now), Ru::whole(1));
        leased += u64::from(now >= from && node.state(at(now)).lease == LeaseState::Leased);
    }
    (leased, asked)
}

#[test]
fn answers_are_waited_for_as_long_as_they_take() {
    for (round_trip, lease) in
        [(10, 5), (900, 5), (1_040, 5), (2_000, 5), (2_000, 10), (4_500, 10), (8_000, 10)]
    {
        let (leased, asked) = leased_ms(Span::secs(lease), |_| round_trip, 25_000, 60_000);
        let worth = (lease * 1_000).saturating_sub(round_trip);
        // Renewals follow each other, so that each lease lasts until the next one comes.
        let most = 35_000.min(35_000 / round_trip * worth);
        assert!(leased * 100 >= most * 97, "{round_trip} ms: {leased} of {most}");
        assert!(asked as u64 <= 35_000 / round_trip.min(100) + 4, "{round_trip} ms: {asked}");
    }
}

#[test]
fn a_round_trip_that_changes_tenfold_within_a_second_is_followed() {
    let jumps = |now: u64| if (now / 10_000).is_multiple_of(2) { 200 } else { 2_000 };
    let (leased, _) = leased_ms(Span::secs(5), jumps, 5_000, 105_000);
    assert_eq!(leased, 100_000);
    // Answers overtake each other when the round trip falls; `leased_ms` keeps those in order, as a stream does.
    let (leased, _) = leased_ms(Span::secs(10), |now| 100 + (now % 10_000) / 2, 20_000, 100_000);
    assert!(leased > 79_000, "{leased}");
}

#[test]
fn a_renewal_that_was_shed_makes_nobody_ask_sooner_and_later_ones_wait_longer() {
    let mut node = node(terms(100, 50, 0));
    node.ask(at(1_000), 2);
    assert_eq!(node.look().answer_wait(), Span::secs(1));
    node.on_shed(at(1_900), 2);
    assert_eq!(node.due(at(1_900)), Some(at(2_000)), "as if nothing had been said");
    node.ask(at(2_000), 3);
    assert!(node.look().answer_wait() > Span::secs(1), "{}", node.look().answer_wait());
    node.on_shed(at(2_100), 2);
    node.on_shed(at(2_100), 7);
    let answered = node.on_grant(at(2_900), 3, &Grant::Leased(terms(100, 50, 0)));
    assert_eq!(answered, Heard::Applied);
}

#[test]
fn a_lower_that_the_renewal_in_flight_acknowledges_is_not_answered_again() {
    let mut node = node(terms(100, 50, 0));
    node.ask(at(100), 2);
    node.on_grant(at(400), 2, &Grant::Leased(terms(100, 50, 0)));
    node.ask(at(500), 3);
    node.on_lower(at(600), Rate::whole(60));
    assert_eq!(node.due(at(600)), Some(at(600)), "the one in flight told of 100");
    node.ask(at(600), 4);
    node.on_lower(at(700), Rate::whole(60));
    assert_eq!(node.due(at(700)), Some(at(1_600)), "the one in flight told of 60");
    node.on_lower(at(800), Rate::whole(30));
    assert_eq!(node.due(at(800)), Some(at(800)));
}

#[test]
fn a_pushed_lower_takes_effect_at_once_and_is_acknowledged() {
    let mut node = node(terms(100, 50, 0));
    node.on_lower(at(500), Rate::whole(20));
    assert_eq!(node.due(at(500)), Some(at(500)));
    let ask = node.ask(at(500), 2);
    assert_eq!((ask.held.rate, ask.held.cap), (Rate::whole(20), Ru::whole(10)));
    assert_eq!(ask.returned, Ru(39_900_000), "49.9 RU were in the bucket, 10 fit");
    node.on_lower(at(500), Rate::whole(90));
    assert_eq!(node.state(at(500)).rate, Rate::whole(20), "a push never raises");
}

#[test]
fn without_an_answer_the_renewal_is_repeated_under_a_new_number() {
    let mut node = node(terms(100, 50, 0));
    node.ask(at(1_000), 2);
    assert_eq!(node.due(at(1_000)), Some(at(2_000)));
    node.on_session_lost(at(1_100));
    assert!(node.due(at(1_100)).is_some_and(|due| due <= at(1_200)));
    assert_eq!(node.try_acquire(at(1_100), Ru::whole(1)), Ok(Admitted::Paid), "the lease is still good");
}

#[test]
fn a_call_is_answered_at_once_but_never_asks_again() {
    let mut node = node(LeaseTerms { ask_again: Span::secs(2), ..terms(0, 0, 0) });
    queued(node.acquire(at(2), Ru::whole(50), at(9_000)));
    node.ask(at(50), 2);
    node.on_lower(at(60), Rate::MAX);
    assert_eq!(node.due(at(60)), Some(at(1_050)), "the renewal under way may bring it");
    node.on_grant(at(70), 2, &Grant::Leased(LeaseTerms { ask_again: Span::secs(2), ..terms(0, 0, 0) }));
    assert!(node.due(at(70)).is_some_and(|due| due <= at(70)), "{:?}", node.due(at(70)));
    assert_eq!(node.ask(at(70), 3).head, Ru::whole(50));
}

#[test]
fn a_group_waits_as_long_as_answers_of_other_groups_take_until_it_has_its_own() {
    let config = NodeConfig { drift_ppm: 0, ..NodeConfig::default() };
    let mut other = NodeGroup::new(at(0), config);
    other.ask(at(0), 1);
    other.on_grant(at(1_500), 1, &Grant::Leased(terms(100, 50, 0)));
    assert_eq!(other.look().round_trip().smoothed(), Some(Span::millis(1_500)));
    let mut new = NodeGroup::new(at(2_000), config);
    new.expect_round_trip(other.look().round_trip());
    assert_eq!(new.look().round_trip(), other.look().round_trip());
    assert_eq!(new.look().answer_wait(), other.look().round_trip().nearly_all());
    assert_eq!(new.ask(at(2_000), 1).ahead, Span::millis(1_500));
    // A group that has measured keeps to that.
    let mut measured = node(terms(100, 50, 0));
    let before = measured.look().round_trip();
    measured.expect_round_trip(other.look().round_trip());
    assert_eq!(measured.look().round_trip(), before);
}

#[test]
fn a_fixed_wait_learns_nothing_from_answers() {
    for (longest_wait, learns) in [(Span::secs(1), false), (Span::secs(2), true)] {
        let mut node = NodeGroup::new(at(0), NodeConfig { longest_wait, ..NodeConfig::default() });
        node.ask(at(0), 1);
        node.on_grant(at(900), 1, &Grant::Leased(terms(100, 50, 0)));
        assert_eq!(node.look().answer_wait() > Span::secs(1), learns);
        assert_eq!(node.look().round_trip().smoothed().is_some(), learns);
        assert_eq!(node.ask(at(1_000), 2).ahead > Span(0), learns, "it asks for nothing ahead of its time");
    }
}

#[test]
fn in_recovery_a_lease_is_kept_unless_the_fallback_is_worth_more() {
    for (fallback, kept) in [(9, true), (10, true), (11, false)] {
        let mut node = node(terms(10, 5, 0));
        node.ask(at(100), 2);
        let fallback = Some(Fallback::Rate(Rate::whole(fallback)));
        node.on_grant(at(101), 2, &Grant::Recovering { ask_again: Span::secs(1), fallback });
        assert_eq!(node.state(at(101)).lease == LeaseState::Leased, kept, "{fallback:?}");
    }
}
