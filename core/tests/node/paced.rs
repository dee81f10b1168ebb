//! A paced lease: an operation starts when those before it are paid for at the rate, and nothing is saved up.

use tidegate_core::node::Dormant;

use super::*;

/// 100 RU/s, so that 1 RU is paid for in 10 ms; the node may be 5 ms late.
fn paced() -> LeaseTerms {
    LeaseTerms {
        enforcement: Enforcement { paced: true, ..Enforcement::default() },
        cap: Ru(500_000),
        ttl: Span::secs(60),
        ..terms(100, 0, 0)
    }
}

/// When each of these operations starts, all of which come at `from`, on a node that is looked at every millisecond.
fn starts(node: &mut NodeGroup, from: u64, costs: &[i64]) -> Vec<u64> {
    let mut started = Vec::new();
    for cost in costs {
        match node.acquire(at(from), Ru::whole(*cost), at(60_000)) {
            Ok(Acquired::Now(admitted)) => {
                assert_eq!(admitted, Admitted::Paid);
                started.push(from);
            }
            other => _ = queued(other),
        }
    }
    for ms in from.. {
        while let Some((_, outcome)) = node.poll(at(ms)) {
            assert_eq!(outcome, Ok(Admitted::Paid));
            started.push(ms);
        }
        if started.len() == costs.len() {
            break;
        }
        let next =
            node.look().next_poll().unwrap_or_else(|| panic!("nobody wakes those who wait at {ms} ms"));
        assert!(next > at(ms), "a wake-up for nothing at {ms} ms");
    }
    started
}

/// The definition: the first starts at once, every other when the one before is paid for.
fn defined(from: u64, costs: &[i64]) -> Vec<u64> {
    let mut at = from;
    let mut each = Vec::new();
    for cost in costs {
        each.push(at);
        at += u64::try_from(*cost).unwrap_or_default() * 10;
    }
    each
}

#[test]
fn operations_of_any_size_follow_each_other_at_the_rate() {
    let costs = [3, 1, 40, 1, 1, 900, 7, 1_000, 2];
    let mut node = node(paced());
    let started = starts(&mut node, 20, &costs);
    for (is, should) in started.iter().zip(defined(20, &costs)) {
        // As much as the bucket holds may be paid in advance, and a look comes a millisecond late.
        assert!((should.saturating_sub(5)..=should + 1).contains(is), "{started:?}");
    }
    assert_eq!(node.state(at(60_000)).waiting, 0);
}

#[test]
fn nothing_is_saved_up_while_nobody_comes() {
    let mut node = node(paced());
    let admitted =
        |node: &mut NodeGroup, ms| (0..50).filter(|_| node.try_acquire(at(ms), Ru::whole(1)).is_ok()).count();
    assert_eq!((admitted(&mut node, 30_000), admitted(&mut node, 30_004)), (1, 0));
    assert_eq!((admitted(&mut node, 30_005), admitted(&mut node, 30_006)), (0, 1));
}

/// Whoever is told when to come again may start then.
#[test]
fn a_refusal_says_when_those_before_are_paid_for() {
    for cost in [1, 80] {
        let mut node = node(paced());
        assert_eq!(node.try_acquire(at(1_000), Ru::whole(90)), Ok(Admitted::Paid));
        let refused = node.try_acquire(at(1_100), Ru::whole(cost));
        let Err(Refusal::Throttled { retry_after }) = refused else { panic!("{refused:?}") };
        assert_eq!(retry_after, Span(795_001), "90 RU less the 0.5 in hand, 10 ms each");
        let then = at(1_100).after(retry_after);
        assert!(node.check(Time(then.0 - 2), Ru::whole(cost)).is_err());
        assert_eq!(node.check(then, Ru::whole(cost)), Ok(()));
    }
}

#[test]
fn what_an_operation_did_not_need_brings_the_next_one_forward_and_what_it_lacked_holds_it_back() {
    for (estimate, actual) in [(30, 10), (10, 30)] {
        let mut node = node(paced());
        assert_eq!(node.try_acquire(at(1_000), Ru::whole(estimate)), Ok(Admitted::Paid));
        node.settle(at(1_000), Ru::whole(estimate), &used(actual));
        let next = u64::try_from(actual).unwrap_or_default() * 10;
        assert!(node.check(at(1_000 + next - 6), Ru::whole(1)).is_err());
        assert_eq!(node.check(at(1_000 + next), Ru::whole(1)), Ok(()));
    }
}

#[test]
fn an_operation_above_the_burst_is_refused() {
    let mut node = node(paced());
    assert_eq!(
        node.acquire(at(10), Ru::whole(1_001), at(60_000)),
        Err(Refusal::NeverFits { max: Ru::whole(1_000) })
    );
    assert_eq!(node.acquire(at(10), Ru::whole(1_000), at(60_000)), Ok(Acquired::Now(Admitted::Paid)));
}

/// A thread spends what the bucket holds, which makes up for looks that come late, and no more.
#[test]
fn threads_draw_from_the_little_that_is_saved_up() {
    let terms = LeaseTerms { cap: Ru::whole(500), ..paced() };
    let mut node = node(LeaseTerms { rate: Rate::whole(100_000), ..terms });
    let drawn: Vec<_> = std::iter::from_fn(|| node.draw(at(1_000), Ru::whole(1))).collect();
    let sum = drawn.iter().fold(Ru::ZERO, |sum, batch| sum + batch.tokens);
    assert!(drawn.len() > 2 && sum < Ru::whole(500), "{drawn:?}");
    // While they hold it, the rate puts nothing in its place.
    let rest = (0..500).filter(|_| node.try_acquire(at(2_000), Ru::whole(1)).is_ok()).count();
    assert!(Ru::whole(i64::try_from(rest).unwrap()) <= Ru::whole(501) - sum, "{rest} beside {sum}");
    assert_eq!(node.draw(at(2_000), Ru::whole(1)), None);
}

#[test]
fn nobody_asks_for_a_lump() {
    let mut node = node(paced());
    assert_eq!(node.draw(at(10), Ru::whole(1)), None, "less than sixteen operations");
    let costs = [1_000, 900];
    for cost in costs {
        let _ = node.acquire(at(10), Ru::whole(cost), at(60_000));
    }
    let ask = node.ask(at(11), 2);
    assert_eq!((ask.beside, ask.backlog), (Ru::ZERO, Ru::whole(900) + ask.debt));
    assert_eq!(node.look().next_poll(), Some(at(9_000).after(Span(1_005_001))));
}

/// One that waits for a lump when the limit becomes paced, and one that fits the bucket.
#[test]
fn those_who_wait_since_before_keep_their_order() {
    let mut node = node(terms(100, 50, 0));
    let large = queued(node.acquire(at(2), Ru::whole(400), at(60_000)));
    let small = queued(node.acquire(at(3), Ru::whole(49), at(60_000)));
    node.ask(at(3), 2);
    node.on_grant(at(4), 2, &Grant::Leased(paced()));
    assert_eq!(node.poll(at(5)), Some((large, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(3_900)), None);
    assert_eq!(node.poll(at(4_100)), Some((small, Ok(Admitted::Paid))));
}

/// At most one of 1 RU in 100 ms, as the fallback of 10 RU/s says, past the lease, after sleep and in recovery.
#[test]
fn the_fallback_is_paced_too() {
    let fallback = Fallback::Rate(Rate::whole(10));
    let config = NodeConfig { drift_ppm: 0, ..NodeConfig::default() };
    let one_at_a_time = |node: &mut NodeGroup, from: u64| {
        let count = |node: &mut NodeGroup, ms| {
            (0..50).filter(|_| node.try_acquire(at(ms), Ru::whole(1)).is_ok()).count()
        };
        assert_eq!(count(node, from), 1, "at {from} ms");
        assert_eq!((count(node, from + 90), count(node, from + 100)), (0, 1), "at {from} ms");
    };
    let leased = || node(LeaseTerms { ttl: Span::secs(5), fallback, ..paced() });
    one_at_a_time(&mut leased(), 20_000);

    let mut slept = node(LeaseTerms { ttl: Span::secs(120), fallback, ..paced() });
    slept.ask(at(70_000), 2);
    slept.on_grant(at(70_001), 2, &Grant::Leased(LeaseTerms { fallback, ..LeaseTerms::default() }));
    let Some(rest) = slept.dormant() else { panic!("awake: {:?}", slept.state(at(70_001))) };
    let mut awake = NodeGroup::awaken(at(80_000), config, &Dormant::from_words(rest.to_words()));
    assert!(awake.try_acquire(at(80_000), Ru::whole(1)).is_err(), "it waits for an answer first");
    one_at_a_time(&mut awake, 90_000);

    let mut recovering = leased();
    recovering.ask(at(6_000), 2);
    let grant = |fallback| Grant::Recovering { ask_again: Span::secs(1), fallback };
    recovering.on_grant(at(6_001), 2, &grant(Some(Fallback::Stop)));
    recovering.ask(at(7_000), 3);
    recovering.on_grant(at(7_001), 3, &grant(Some(fallback)));
    one_at_a_time(&mut recovering, 9_000);
}

#[test]
fn a_group_without_a_limit_is_not_paced() {
    let mut node = node(paced());
    node.ask(at(10), 2);
    node.on_grant(at(11), 2, &free(5));
    assert!((0..50).all(|_| node.try_acquire(at(12), Ru::whole(1)).is_ok()));
    assert!(node.draw(at(12), Ru(1)).is_some());
}
