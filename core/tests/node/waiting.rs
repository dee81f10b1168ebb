//! Operations that wait: in which order, for how long, and how their wait ends.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::node::{Acquired, Admitted, NodeConfig, NodeGroup, Refusal, WaiterId};
use tidegate_core::units::{Ru, Span};

use super::{at, node, queued, terms};

#[test]
fn waiters_are_served_in_order_and_nobody_overtakes() {
    let mut node = node(LeaseTerms { ask_again: Span::secs(1), ..terms(100, 10, 0) });
    let first = queued(node.acquire(at(1), Ru::whole(8), at(2_000)));
    let second = queued(node.acquire(at(2), Ru::whole(1), at(2_000)));
    assert!(matches!(node.try_acquire(at(50), Ru::whole(1)), Err(Refusal::Throttled { .. })));
    assert_eq!(node.poll(at(70)), None, "8 RU are not there yet, and 1 RU waits behind them");
    assert_eq!(node.look().next_deadline(at(70)), Some(at(81)));
    assert_eq!(node.poll(at(81)), Some((first, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(81)), None);
    assert_eq!(node.poll(at(91)), Some((second, Ok(Admitted::Paid))));
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
        ("admitted", 0, |node, waiter| assert_eq!(node.poll(at(42)), Some((waiter, Ok(Admitted::Paid))))),
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
        let unreported = node.take_unreported().unwrap();
        let waited = (unreported.since_us, unreported.waited.ended(), unreported.waited.within(99));
        assert_eq!(waited, (0, 1, Some(Span(40_960))), "{end}");
        assert_eq!(unreported.waited.in_vain(), u32::from(end != "admitted"), "{end}");
        assert_eq!(node.take_unreported(), None, "{end}");
        assert_eq!(node.state(at(42)).waiting, 0, "{end}");
    }
}

/// Each report begins where the one before ended, and has nothing of operations that did not wait.
#[test]
fn waits_are_reported_once() {
    let mut node = node(terms(100, 10, 0));
    let mut since = 0;
    for round in 0..5 {
        let now = 1_000 * (round + 1);
        node.ask(at(now), round + 2);
        node.on_grant(
            at(now),
            round + 2,
            &Grant::Leased(LeaseTerms { fill: Ru::whole(2), ..terms(100, 10, 0) }),
        );
        while node.try_acquire(at(now), Ru::whole(1)).is_ok() {}
        assert_eq!(node.take_unreported(), None, "nothing waited");
        queued(node.acquire(at(now), Ru::whole(1), at(now + 900)));
        queued(node.acquire(at(now), Ru::whole(1), at(now + 900)));
        assert_eq!(node.poll(at(now)), None);
        while node.poll(at(now + 50)).is_some() {}
        let unreported = node.take_unreported().unwrap();
        assert_eq!((unreported.since_us, unreported.waited.ended()), (since, 2));
        since = node.consumption().waited_us;
        assert_eq!(since, u128::from(round + 1) * 100_000);
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
    assert_eq!(node.take_unreported().map(|unreported| unreported.waited.in_vain()), Some(0));
    assert_eq!(
        node.acquire_estimated(at(30), Ru::whole(1_000), at(9_000)),
        Ok(Acquired::Now(Admitted::Paid))
    );
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

/// A saturated node whose bucket is empty at 1,050 ms: asking again is useless until 1,100 ms.
fn saturated(before: i64, rate: i64) -> NodeGroup {
    let mut node = node(terms(before, 10, 0));
    assert_eq!(node.try_acquire(at(1_040), Ru::whole(10)), Ok(Admitted::Paid));
    node.ask(at(1_050), 2);
    let ask_again = Span::millis(50);
    node.on_grant(at(1_050), 2, &Grant::Leased(LeaseTerms { ask_again, ..terms(rate, 10, 0) }));
    node
}

#[test]
fn a_wait_may_be_worth_while_from_the_moment_on_that_asking_again_is() {
    for (now, hopeless) in [(1_099, true), (1_100, false)] {
        let wait = saturated(20, 20).acquire(at(now), Ru::whole(9), at(now + 100));
        assert_eq!(wait.is_err(), hopeless, "at {now} ms: {wait:?}");
    }
}

#[test]
fn a_rate_that_grew_by_no_more_than_a_twentieth_counts_as_settled() {
    for (rate, hopeless) in [(20, true), (21, true), (22, false)] {
        let wait = saturated(20, rate).acquire(at(1_060), Ru::whole(9), at(1_100));
        assert_eq!(wait.is_err(), hopeless, "{rate} RU/s after 20: {wait:?}");
    }
}

#[test]
fn an_operation_that_is_covered_at_its_very_deadline_is_admitted() {
    let saturated = LeaseTerms { ask_again: Span::secs(1), ..terms(10, 10, 0) };
    let mut node = node(saturated);
    node.ask(at(3), 2);
    node.on_grant(at(3), 2, &Grant::Leased(saturated));
    assert!(node.acquire(at(4), Ru::whole(9), at(900)).is_err(), "9 RU are there at 901 ms");
    let waiter = queued(node.acquire(at(4), Ru::whole(9), at(901)));
    assert_eq!(node.poll(at(901)), Some((waiter, Ok(Admitted::Paid))));
}

#[test]
fn every_refusal_counts() {
    let mut node = node(terms(1, 1, 0));
    for refused in 1..=3 {
        assert!(node.try_acquire(at(1), Ru::whole(1)).is_err());
        assert_eq!(node.consumption().throttled, refused);
    }
}

#[test]
fn ten_thousand_waiters_are_served_first_come_first_served() {
    let mut node = node(terms(1_000, 500, 0));
    let ids: Vec<_> = (0..10_000).map(|_| queued(node.acquire(at(1), Ru::whole(1), at(60_000)))).collect();
    let mut served = Vec::new();
    let (mut now, mut seq) = (at(1), 1);
    while served.len() < ids.len() {
        now = node.look().next_deadline(now).unwrap().max(now);
        while let Some((id, outcome)) = node.poll(now) {
            assert_eq!(outcome, Ok(Admitted::Paid));
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
    assert_eq!(node.consumption().throttled, 1);
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
