//! The advice of a node on when to try again.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Admitted, NodeConfig, NodeGroup, Refusal};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

fn at(ms: u64) -> Time {
    Time(ms * 1_000)
}

/// A lease of half an RU/s, or of none.
fn terms(rate: i64, fallback: Fallback) -> LeaseTerms {
    LeaseTerms {
        rate: Rate(rate),
        cap: Ru(500_000),
        lump: Ru(100_000),
        ttl: Span::secs(5),
        renew_after: Span::secs(1),
        max_fit: Ru::whole(1_000),
        max_debt: Ru::whole(100),
        fallback,
        ..LeaseTerms::default()
    }
}

/// A node that asked at 0 ms and got its grant at 1 ms.
fn granted(terms: LeaseTerms) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    node.ask(at(0), 1);
    node.on_grant(at(1), 1, &Grant::Leased(terms));
    node
}

/// The same, and it owes 3 RU since.
fn owing(terms: LeaseTerms) -> NodeGroup {
    let mut node = granted(terms);
    assert_eq!(node.try_acquire(at(1), Ru(100_000)), Ok(Admitted::Paid));
    let used = RuParts::flat(Ru(3_100_000));
    node.settle(at(1), Ru(100_000), &Consumption { charged: used, operations: 1, ..Consumption::default() });
    node
}

/// When trying again may help, and whether a lease is missing. Zero and false for an operation that is admitted or
/// never can be.
fn refused(node: &mut NodeGroup, now: Time) -> (Span, bool) {
    match node.try_acquire(now, Ru(1)) {
        Err(Refusal::Throttled { retry_after }) => (retry_after, false),
        Err(Refusal::Unavailable { retry_after }) => (retry_after, true),
        _ => (Span(0), false),
    }
}

#[test]
fn what_is_owed_is_waited_for_with_a_lease_and_with_a_fallback() {
    let fallback = Fallback::Rate(Rate(500_000));
    let mut node = owing(terms(500_000, fallback));
    let (wait, _) = refused(&mut node, at(2));
    assert!(Span::millis(5_990) <= wait && wait <= Span::millis(6_010), "{wait}");
    // The lease has ended, and half of the debt is paid; the fallback pays the rest.
    let (wait, unavailable) = refused(&mut node, at(5_101));
    assert!(!unavailable && Span::millis(500) <= wait && wait <= Span::millis(1_500), "{wait}");
}

#[test]
fn without_a_rate_the_next_answer_is_waited_for() {
    let mut node = owing(terms(0, Fallback::Stop));
    let (wait, unavailable) = refused(&mut node, at(2));
    assert!(!unavailable && wait >= Span::secs(1), "{wait}");
    // An answer is on its way, and may take this long.
    node.ask(at(20), 2);
    let (wait, _) = refused(&mut node, at(21));
    assert!(wait >= Span::millis(10), "{wait}");
}

#[test]
fn tokens_are_waited_for_where_they_suffice_and_the_next_answer_where_it_takes_a_lump() {
    let lease = terms(500_000, Fallback::Stop);
    for (what, mut node, cost, wait) in [
        ("0.1 of 0.5 RU are there", granted(lease), Ru(500_000), Span::millis(800)),
        ("the bucket is too small", granted(lease), Ru::whole(10), Span::secs(1)),
        ("too small, and 3 RU are owed before", owing(lease), Ru::whole(10), Span::secs(26)),
    ] {
        let throttled = Err(Refusal::Throttled { retry_after: wait });
        assert_eq!(node.try_acquire(at(1), cost), throttled, "{what}");
    }
}

#[test]
fn an_answer_on_its_way_is_waited_for_until_it_is_due_and_one_that_is_late_no_longer_is() {
    let mut node = owing(terms(0, Fallback::Stop));
    node.ask(at(20), 2);
    // The answer is due at 1,020 ms.
    for (now, retry_after) in [(21, 999), (1_000, 20), (1_015, 10), (1_020, 1_000), (1_100, 1_000)] {
        let (wait, _) = refused(&mut node, at(now));
        assert_eq!(wait, Span::millis(retry_after), "at {now} ms");
    }
}

#[test]
fn nobody_hammers_a_controller_that_is_away() {
    let mut never = NodeGroup::new(at(0), NodeConfig::default());
    let mut left = owing(terms(500_000, Fallback::Stop));
    left.on_session_lost(at(10));
    for (node, now) in [(&mut never, 0), (&mut left, 6_000)] {
        let mut tries = 0;
        let (begin, end) = (at(now), at(now + 60_000));
        let mut time = begin;
        while time < end {
            let (wait, unavailable) = refused(node, time);
            assert!(unavailable, "there is no lease");
            time = time.after(wait);
            tries += 1;
            if tries % 2 == 0 {
                node.ask(time, 10 + tries);
            }
        }
        assert!(tries <= 62, "{tries} tries in a minute");
    }
}
