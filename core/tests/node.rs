//! The node's state machine, one rule a test. Times are in milliseconds, rates and amounts in whole RU.

#![expect(clippy::panic, reason = "a test stops at the first surprise")]

use std::collections::VecDeque;

use tidegate_core::exchange::{Grant, Held, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Acquired, Dormant, Heard, LeaseState, NodeConfig, NodeGroup, Refusal, WaiterId};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

fn at(ms: u64) -> Time {
    Time(ms * 1_000)
}

fn terms(rate: i64, cap: i64, lump: i64) -> LeaseTerms {
    LeaseTerms {
        rate: Rate::whole(rate),
        cap: Ru::whole(cap),
        lump: Ru::whole(lump),
        ttl: Span::secs(5),
        renew_after: Span::secs(1),
        max_fit: Ru::whole(1_000),
        max_debt: Ru::whole(100),
        ..LeaseTerms::default()
    }
}

/// A node that asked at 0 ms and was granted at 1 ms.
fn node(terms: LeaseTerms) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    node.ask(at(0), 1);
    assert_eq!(node.on_grant(at(1), 1, &Grant::Leased(terms)), Heard::Applied);
    node
}

fn used(ru: i64) -> Consumption {
    Consumption { charged: RuParts::flat(Ru::whole(ru)), operations: 1, ..Consumption::default() }
}

fn queued(outcome: Result<Acquired, Refusal>) -> WaiterId {
    match outcome {
        Ok(Acquired::Queued(id)) => id,
        other => panic!("not queued: {other:?}"),
    }
}

#[test]
fn nothing_is_spent_before_the_first_grant() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    assert_eq!(node.due(at(0)), Some(at(0)), "a new node asks at once");
    assert!(matches!(node.try_acquire(at(0), Ru(1)), Err(Refusal::Unavailable { .. })));
    let waiter = queued(node.acquire(at(0), Ru::whole(1), at(500)));
    node.ask(at(0), 1);
    assert_eq!(node.poll(at(5)), None);
    node.on_grant(at(5), 1, &Grant::Leased(terms(100, 10, 1)));
    assert_eq!(node.poll(at(5)), Some((waiter, Ok(()))));
}

#[test]
fn the_lease_runs_from_the_moment_the_renewal_was_sent() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    node.ask(at(100), 1);
    node.on_grant(at(4_000), 1, &Grant::Leased(terms(100, 50, 50)));
    assert_eq!(node.try_acquire(at(5_099), Ru::whole(1)), Ok(()));
    assert!(matches!(node.try_acquire(at(5_100), Ru::whole(1)), Err(Refusal::Unavailable { .. })));
    assert_eq!(node.state(at(5_100)).available, Ru::ZERO);
    assert_eq!(node.state(at(5_100)).lease, LeaseState::Expired);
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
    assert_eq!(node.lease_end(), Some(at(5_000)));
    assert_eq!(node.on_grant(at(4_900), 2, &Grant::Leased(terms(80, 40, 9))), Heard::Extended);
    assert_eq!(node.lease_end(), Some(at(7_000)), "it runs from its own renewal");
    let state = node.state(at(4_900));
    assert_eq!((state.rate, state.cap, state.available), (Rate::whole(80), Ru::whole(40), Ru::whole(40)));
    assert_eq!(node.on_grant(at(4_901), 2, &Grant::Leased(terms(80, 40, 9))), Heard::Ignored, "once");
    // What no longer fits goes back when the newest renewal is answered, which still counts.
    assert_eq!(node.on_grant(at(6_000), 3, &Grant::Leased(terms(100, 50, 5))), Heard::Applied);
    assert_eq!(node.lease_end(), Some(at(9_000)));
}

#[test]
fn a_late_answer_wakes_no_lease_that_has_ended_or_was_given_up() {
    let mut ended = node(terms(100, 50, 0));
    ended.ask(at(2_000), 2);
    ended.ask(at(4_000), 3);
    assert_eq!(ended.on_grant(at(5_000), 2, &Grant::Leased(terms(100, 50, 0))), Heard::Ignored);
    assert_eq!(ended.state(at(5_000)).lease, LeaseState::Expired);
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
    assert_eq!(node.answer_wait(), Span::secs(1));
    node.on_shed(at(1_900), 2);
    assert_eq!(node.due(at(1_900)), Some(at(2_000)), "as if nothing had been said");
    node.ask(at(2_000), 3);
    assert!(node.answer_wait() > Span::secs(1), "{}", node.answer_wait());
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
fn tokens_never_exceed_the_cap() {
    let mut node = node(terms(100, 20, 0));
    assert_eq!(node.state(at(4_000)).available, Ru::whole(20));
    node.give_back(at(4_000), Ru::whole(500));
    assert_eq!(node.state(at(4_000)).available, Ru::whole(20));
}

#[test]
fn what_was_returned_stays_counted_until_the_controller_answers() {
    let mut node = node(LeaseTerms { scarce: true, ..terms(100, 40, 0) });
    // The group is in use, so that it keeps the rate.
    assert_eq!(node.try_acquire(at(900), Ru::whole(5)), Ok(()));
    let ask = node.ask(at(1_000), 2);
    assert!(ask.returned > Ru::ZERO && ask.held.rate > Rate::ZERO, "{ask:?}");
    let later = node.state(at(4_000)).available;
    assert_eq!(later + ask.returned, Ru::whole(40), "{later} beside {} under way", ask.returned);
    assert_eq!(node.on_grant(at(4_001), 2, &Grant::Leased(terms(100, 40, 0))), Heard::Applied);
    assert_eq!(node.state(at(4_900)).available, Ru::whole(40));
}

#[test]
fn waiters_are_served_in_order_and_nobody_overtakes() {
    let mut node = node(LeaseTerms { ask_again: Span::secs(1), ..terms(100, 10, 0) });
    let first = queued(node.acquire(at(1), Ru::whole(8), at(2_000)));
    let second = queued(node.acquire(at(2), Ru::whole(1), at(2_000)));
    assert!(matches!(node.try_acquire(at(50), Ru::whole(1)), Err(Refusal::Throttled { .. })));
    assert_eq!(node.poll(at(70)), None, "8 RU are not there yet, and 1 RU waits behind them");
    assert_eq!(node.next_deadline(at(70)), Some(at(81)));
    assert_eq!(node.poll(at(81)), Some((first, Ok(()))));
    assert_eq!(node.poll(at(81)), None);
    assert_eq!(node.poll(at(91)), Some((second, Ok(()))));
    assert_eq!(node.consumption().waited_us, 80_000 + 89_000);
}

#[test]
fn a_waiter_leaves_at_its_deadline_or_when_cancelled() {
    let mut node = node(terms(1, 1, 0));
    let late = queued(node.acquire(at(1), Ru::whole(1), at(200)));
    let gone = queued(node.acquire(at(1), Ru::whole(1), at(5_000)));
    assert!(node.cancel(at(2), gone) && !node.cancel(at(2), gone));
    assert!(matches!(node.poll(at(200)), Some((id, Err(Refusal::Throttled { .. }))) if id == late));
    assert_eq!((node.state(at(200)).waiting, node.state(at(200)).backlog), (0, Ru::ZERO));
    assert_eq!(node.consumption().throttled, 1);
}

/// Admitted, out of time, cancelled, and hopeless for each possible reason: 40 ms of wait each.
#[test]
fn what_a_waiter_waited_counts_however_its_wait_ends() {
    type End = fn(&mut NodeGroup, WaiterId);
    let ends: [(&str, u128, End); 6] = [
        ("admitted", 0, |node, waiter| assert_eq!(node.poll(at(42)), Some((waiter, Ok(()))))),
        ("out of time", 1, |node, waiter| {
            assert!(matches!(node.poll(at(42)), Some((id, Err(Refusal::Throttled { .. }))) if id == waiter));
        }),
        ("cancelled", 0, |node, waiter| assert!(node.cancel(at(42), waiter))),
        ("unknown group", 1, |node, waiter| {
            node.ask(at(41), 2);
            node.on_grant(at(42), 2, &Grant::UnknownGroup);
            assert_eq!(node.poll(at(42)), Some((waiter, Err(Refusal::UnknownGroup))));
        }),
        ("never fits", 1, |node, waiter| {
            node.ask(at(41), 2);
            let max_fit = Ru::whole(1);
            node.on_grant(at(42), 2, &Grant::Leased(LeaseTerms { max_fit, ..terms(100, 10, 0) }));
            assert_eq!(node.poll(at(42)), Some((waiter, Err(Refusal::NeverFits { max: max_fit }))));
        }),
        ("closed", 1, |node, waiter| {
            node.release(at(42));
            assert!(
                matches!(node.poll(at(42)), Some((id, Err(Refusal::Unavailable { .. }))) if id == waiter)
            );
        }),
    ];
    for (end, throttled, meet) in ends {
        let (rate, deadline) = if end == "out of time" { (50, at(42)) } else { (100, at(9_000)) };
        let mut node = node(terms(rate, 10, 0));
        let waiter = queued(node.acquire(at(2), Ru::whole(4), deadline));
        assert_eq!(node.poll(at(2)), None, "{end}");
        meet(&mut node, waiter);
        let counted = node.consumption();
        assert_eq!((counted.waited_us, counted.throttled), (40_000, throttled), "{end}");
        assert_eq!(node.state(at(42)).waiting, 0, "{end}");
    }
}

/// The caller asks again for the most that fits; the waits before and after add up.
#[test]
fn an_estimate_that_never_fits_is_not_refused() {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    let waiter = queued(node.acquire_estimated(at(0), Ru::whole(1_500), at(9_000)));
    node.ask(at(0), 1);
    node.on_grant(at(30), 1, &Grant::Leased(LeaseTerms { lump: Ru::whole(1_000), ..terms(100, 10, 0) }));
    let never = Refusal::NeverFits { max: Ru::whole(1_000) };
    assert_eq!(node.poll(at(30)), Some((waiter, Err(never))));
    assert_eq!(node.acquire_estimated(at(30), Ru::whole(1_001), at(9_000)), Err(never));
    assert_eq!((node.consumption().throttled, node.consumption().waited_us), (0, 30_000));
    assert_eq!(node.acquire_estimated(at(30), Ru::whole(1_000), at(9_000)), Ok(Acquired::Now));
    // Any other refusal of an estimate counts, and so does a cost that is no estimate.
    assert_eq!(node.acquire(at(30), Ru::whole(1_001), at(9_000)), Err(never));
    node.acquire_estimated(at(30), Ru::whole(1_000), at(30)).unwrap_err();
    assert_eq!(node.consumption().throttled, 2);
}

#[test]
fn a_hopeless_wait_is_refused_at_once() {
    let saturated = LeaseTerms { ask_again: Span::secs(1), ..terms(10, 10, 0) };
    let mut node = node(saturated);
    // The rate has just risen from zero and may rise again.
    let hopeful = queued(node.acquire(at(2), Ru::whole(9), at(100)));
    assert!(node.cancel(at(2), hopeful));
    node.ask(at(3), 2);
    node.on_grant(at(3), 2, &Grant::Leased(saturated));
    let refused = node.acquire(at(4), Ru::whole(9), at(100));
    assert!(
        matches!(refused, Err(Refusal::Throttled { retry_after }) if retry_after > Span::millis(800)),
        "{refused:?}"
    );
    assert_eq!(
        node.acquire(at(4), Ru::whole(1_001), at(100)),
        Err(Refusal::NeverFits { max: Ru::whole(1_000) })
    );
}

#[test]
fn ten_thousand_waiters_are_served_first_come_first_served() {
    let mut node = node(terms(1_000, 500, 0));
    let ids: Vec<_> = (0..10_000).map(|_| queued(node.acquire(at(1), Ru::whole(1), at(60_000)))).collect();
    let mut served = Vec::new();
    let (mut now, mut seq) = (at(1), 1);
    while served.len() < ids.len() {
        now = node.next_deadline(now).unwrap().max(now);
        while let Some((id, outcome)) = node.poll(now) {
            assert_eq!(outcome, Ok(()));
            served.push(id);
        }
        if node.due(now).is_some_and(|due| due <= now) {
            seq += 1;
            node.ask(now, seq);
            node.on_grant(
                now,
                seq,
                &Grant::Leased(LeaseTerms { ask_again: Span::secs(1), ..terms(1_000, 500, 0) }),
            );
        }
    }
    assert_eq!(served, ids);
    assert!(now >= at(9_900) && now <= at(10_100), "10,000 RU at 1,000 RU/s: {now:?}");
}

#[test]
fn the_queue_has_a_limit() {
    let config = NodeConfig { max_waiters: 2, ..NodeConfig::default() };
    let mut node = NodeGroup::new(at(0), config);
    for _ in 0..2 {
        queued(node.acquire(at(0), Ru::whole(1), at(1_000)));
    }
    assert_eq!(node.acquire(at(0), Ru::whole(1), at(1_000)), Err(Refusal::TooManyWaiters { limit: 2 }));
}

#[test]
fn settling_refunds_or_owes_and_debt_is_paid_before_anyone_else() {
    let mut node = node(terms(10, 20, 20));
    assert_eq!(node.try_acquire(at(1), Ru::whole(10)), Ok(()));
    node.settle(at(1), Ru::whole(10), &used(4));
    assert_eq!(node.state(at(1)).available, Ru::whole(16));
    assert_eq!(node.try_acquire(at(1), Ru::whole(6)), Ok(()));
    node.settle(at(1), Ru::whole(6), &used(21));
    assert_eq!((node.state(at(1)).debt, node.worst_debt()), (Ru::whole(5), Ru::whole(5)));
    assert!(matches!(node.try_acquire(at(400), Ru(1)), Err(Refusal::Throttled { .. })));
    assert_eq!(node.try_acquire(at(602), Ru::whole(1)), Ok(()));
    assert_eq!((node.consumption().ru().clamped(), node.consumption().operations), (Ru::whole(25), 2));
}

#[test]
fn a_charge_after_the_fact_is_owed() {
    let mut node = node(terms(10, 20, 3));
    node.charge(at(1), &used(8));
    assert_eq!(node.state(at(1)).debt, Ru::whole(5));
    assert_eq!(node.consumption().ru().clamped(), Ru::whole(8));
}

#[test]
fn past_the_lease_the_fallback_holds() {
    let stop = node(terms(100, 50, 50));
    let rate = node(LeaseTerms { fallback: Fallback::Rate(Rate::whole(2)), ..terms(100, 50, 50) });
    let free = node(LeaseTerms { fallback: Fallback::Unlimited, ..terms(100, 50, 50) });
    for (mut node, admitted) in [(stop, 0), (rate, 2), (free, 40)] {
        let passed = (0..40).filter(|_| node.try_acquire(at(6_000), Ru::whole(1)).is_ok()).count();
        assert_eq!(passed, admitted);
    }
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
fn unknown_groups_refuse_everyone_who_waits() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    let waiter = queued(node.acquire(at(0), Ru::whole(1), at(9_000)));
    node.ask(at(0), 1);
    node.on_grant(at(1), 1, &Grant::UnknownGroup);
    assert_eq!(node.poll(at(1)), Some((waiter, Err(Refusal::UnknownGroup))));
    assert_eq!(node.try_acquire(at(1), Ru(1)), Err(Refusal::UnknownGroup));
}

#[test]
fn a_clock_that_jumps_back_makes_no_tokens() {
    let mut node = node(terms(100, 1_000, 0));
    assert_eq!(node.state(at(1_001)).available, Ru::whole(100));
    for _ in 0..10 {
        assert_eq!(node.state(at(10)).available, Ru::whole(100));
        assert_eq!(node.state(at(1_001)).available, Ru::whole(100));
    }
}

#[test]
fn a_fast_clock_within_the_margin_earns_no_more_than_was_leased() {
    let config = NodeConfig { drift_ppm: 1_000, ..NodeConfig::default() };
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    node.on_grant(at(0), 1, &Grant::Leased(terms(1_000, 100_000, 0)));
    // One true second is 1,001 ms on this clock.
    assert!(node.state(at(1_001)).available <= Ru::whole(1_000));
}

#[test]
fn an_idle_node_gives_up_and_asks_again_when_it_is_needed() {
    let config = NodeConfig { idle_after: Span::secs(3), ..NodeConfig::default() };
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    node.on_grant(at(0), 1, &Grant::Leased(terms(100, 50, 0)));
    assert_eq!(node.try_acquire(at(500), Ru::whole(1)), Ok(()));
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
    assert_eq!(node.poll(at(9_001)), Some((waiter, Ok(()))));
}

#[test]
fn a_group_that_is_never_used_gives_its_lease_up() {
    let config = NodeConfig { idle_after: Span::secs(3), ..NodeConfig::default() };
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
    let config = NodeConfig { idle_after: Span::secs(3), ..NodeConfig::default() };
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    assert_eq!(node.dormant(), None, "no answer yet");
    let terms = LeaseTerms { fallback: Fallback::Unlimited, ..terms(100, 50, 0) };
    node.on_grant(at(0), 1, &Grant::Leased(terms));
    assert_eq!(node.dormant(), None, "a lease");
    let first = queued(node.acquire(at(100), Ru::whole(60), at(200)));
    assert!(matches!(node.poll(at(200)), Some((id, Err(_))) if id == first));
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
    assert_eq!(node.consumption().throttled, 1);
    assert!(matches!(node.try_acquire(at(90_000), Ru::whole(1)), Err(Refusal::Unavailable { .. })));
    assert_eq!(node.due(at(90_000)), Some(at(90_000)));
    let ask = node.ask(at(90_000), 9);
    assert_eq!((ask.acked_seq, ask.held), (2, Held::default()));
    node.on_grant(at(90_001), 9, &Grant::Leased(terms));
    let second = queued(node.acquire(at(90_002), Ru::whole(60), at(91_000)));
    assert!(second > first, "who still waits to be told must not be taken for another");
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
        assert_eq!(node.next_poll(), Some(at(10_000)));
        let admitted = node.poll(at(10_100)) == Some((waiter, Ok(())));
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
        assert_eq!(node.fallback_wait(), Span::secs(1));
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
        assert!(node.answer_wait() > Span::secs(1), "nobody answers");
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
    let config = NodeConfig { idle_after: Span::secs(3), drift_ppm: 0, ..NodeConfig::default() };
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

#[test]
fn without_an_answer_the_renewal_is_repeated_under_a_new_number() {
    let mut node = node(terms(100, 50, 0));
    node.ask(at(1_000), 2);
    assert_eq!(node.due(at(1_000)), Some(at(2_000)));
    node.on_session_lost(at(1_100));
    assert!(node.due(at(1_100)).is_some_and(|due| due <= at(1_200)));
    assert_eq!(node.try_acquire(at(1_100), Ru::whole(1)), Ok(()), "the lease is still good");
}

#[test]
fn what_an_operation_did_not_need_goes_back_to_its_lump_while_the_ledger_counts_that() {
    let mut node = node(terms(10, 5, 100));
    assert_eq!(node.try_acquire(at(1), Ru::whole(90)), Ok(()));
    node.settle(at(1), Ru::whole(90), &used(20));
    assert_eq!(node.state(at(1)).available, Ru::whole(80), "the bucket of 5 RU has nothing to do with it");
    // The debt of another operation is paid first.
    node.charge(at(1), &used(85));
    assert_eq!(node.state(at(1)).debt, Ru::whole(5));
    node.give_back(at(1), Ru::whole(7));
    assert_eq!((node.state(at(1)).debt, node.state(at(1)).available), (Ru::ZERO, Ru::whole(2)));
}

#[test]
fn what_comes_back_of_a_lump_that_was_told_to_be_spent_is_returned_and_no_more_than_was_told() {
    let mut node = node(LeaseTerms { scarce: true, ..terms(0, 0, 100) });
    assert_eq!(node.try_acquire(at(1), Ru::whole(60)), Ok(()));
    let told = node.ask(at(10), 2);
    assert_eq!((told.running, told.largest, told.held.lump), (Ru::whole(60), Ru::whole(60), Ru::ZERO));
    node.on_grant(at(11), 2, &Grant::Leased(LeaseTerms { scarce: true, ..terms(0, 0, 0) }));
    node.settle(at(20), Ru::whole(60), &used(5));
    assert_eq!(node.state(at(20)).available, Ru::ZERO, "others may have it by now");
    assert_eq!(node.due(at(20)), Some(at(20)), "others wait, so at once");
    node.give_back(at(20), Ru::whole(60));
    let returns = node.ask(at(20), 3);
    assert_eq!((returns.refunded, returns.running), (Ru::whole(55), Ru::ZERO));
    assert_eq!(node.ask(at(30), 4).refunded, Ru::ZERO, "once");
}

#[test]
fn what_a_bucket_deeper_than_others_returns_leaves_room_for_itself_in_the_pool() {
    let mut node = node(LeaseTerms { scarce: true, ..terms(100, 80, 0) });
    assert_eq!(node.try_acquire(at(900), Ru::whole(5)), Ok(()));
    let ask = node.ask(at(1_000), 2);
    assert_eq!(ask.held.cap, Ru::whole(50), "half a second of the rate: {ask:?}");
    let later = node.state(at(4_000)).available;
    assert_eq!(later + ask.returned, Ru::whole(80), "{later} beside {} under way", ask.returned);
}

#[test]
fn a_call_is_answered_at_once_but_never_asks_anew() {
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
fn a_fast_clock_earns_no_more_than_a_true_one() {
    let mut node = node(terms(1_000, 10_000, 0));
    let before = node.state(at(0)).available;
    node.on_slewed_clock(at(0), Some(83_400));
    // Three seconds of true time, in steps, on a clock that runs fast.
    let earned =
        (1..=300_u64).map(|step| node.state(at(step * 10 * 1_083 / 1_000)).available).last().unwrap();
    assert!(earned - before <= Ru::whole(3_000), "{}", earned - before);
    assert!(earned - before > Ru::whole(2_950), "{}", earned - before);
    node.on_slewed_clock(at(3_249), None);
    let from = node.state(at(3_249)).available;
    assert_eq!(node.state(at(3_349)).available - from, Ru::whole(100), "the clock is true again");
}
