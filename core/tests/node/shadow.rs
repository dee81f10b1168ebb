//! A lease in shadow: evaluated as if it were enforced, and nobody waits or is refused.

use super::*;

fn shadow(rate: i64, cap: i64) -> LeaseTerms {
    LeaseTerms {
        enforcement: Enforcement { shadow: true, ..Enforcement::default() },
        fill: Ru::whole(cap),
        fallback: Fallback::Unlimited,
        ..terms(rate, cap, 0)
    }
}

fn admitted(outcome: Result<Acquired, Refusal>) -> Admitted {
    match outcome {
        Ok(Acquired::Now(admitted)) => admitted,
        other => panic!("not admitted: {other:?}"),
    }
}

/// Twice the rate for a second: what an enforced lease admits is paid, the rest is counted.
#[test]
fn admits_all_and_counts_what_an_enforced_lease_refuses() {
    let (mut shadow, mut enforced) =
        (node(shadow(100, 50)), node(LeaseTerms { fill: Ru::whole(50), ..terms(100, 50, 0) }));
    for step in 0..200 {
        let now = at(1 + step * 5);
        let answer = shadow.try_acquire(now, Ru::whole(1));
        let refused = enforced.try_acquire(now, Ru::whole(1)).is_err();
        assert_eq!(answer, Ok(if refused { Admitted::Over } else { Admitted::Paid }), "{now:?}");
        assert_eq!(shadow.consumption().throttled, enforced.consumption().throttled);
        assert_eq!(shadow.state(now).available, enforced.state(now).available);
    }
    assert_eq!(shadow.consumption().throttled, 200 - 50 - 99);
    assert!(shadow.state(at(1_000)).shadow && !enforced.state(at(1_000)).shadow);
}

#[test]
fn never_queues_whatever_an_operation_costs() {
    let mut node = node(shadow(100, 50));
    let later = at(60_000);
    assert_eq!(admitted(node.acquire(at(2), Ru::whole(50), later)), Admitted::Paid);
    // More than is there, than the bucket holds, than can ever be admitted.
    for cost in [1, 60, 5_000] {
        assert_eq!(node.check(at(2), Ru::whole(cost)), Ok(()));
        assert_eq!(admitted(node.acquire(at(2), Ru::whole(cost), later)), Admitted::Over);
        assert_eq!(admitted(node.acquire_estimated(at(2), Ru::whole(cost), later)), Admitted::Over);
    }
    assert_eq!((node.consumption().throttled, node.state(at(2)).waiting), (6, 0));
    // Two of each, and 50 RU: what is over the limit is demand, too.
    assert!(node.ask(at(3), 2).demand >= Rate::whole(50 + 2 * (1 + 60 + 5_000)));
}

#[test]
fn an_operation_over_the_limit_changes_no_budget_when_it_ends() {
    let mut node = node(shadow(100, 50));
    assert_eq!(node.try_acquire(at(1), Ru::whole(50)), Ok(Admitted::Paid));
    assert_eq!(node.try_acquire(at(1), Ru::whole(30)), Ok(Admitted::Over));
    let before = node.state(at(1));
    node.settle(at(1), Estimate::Over(Ru::whole(30)), &used(10));
    node.settle(at(1), Estimate::Over(Ru::whole(30)), &used(70));
    node.give_back(at(1), at(0), Estimate::Over(Ru::whole(30)));
    assert_eq!(node.state(at(1)), before);
    assert_eq!((node.consumption().ru(), node.consumption().operations), (Ru::whole(80).into(), 2));
    // One that paid is settled as ever: a refund, and a debt that makes the next ones go over.
    node.settle(at(1), Ru::whole(50), &used(40));
    assert_eq!(node.state(at(1)).available, Ru::whole(10));
    assert_eq!(node.try_acquire(at(1), Ru::whole(10)), Ok(Admitted::Paid));
    node.settle(at(1), Ru::whole(10), &used(35));
    assert_eq!(node.state(at(1)).debt, Ru::whole(25));
    assert_eq!(node.try_acquire(at(200), Ru::whole(1)), Ok(Admitted::Over));
    assert_eq!(node.try_acquire(at(300), Ru::whole(1)), Ok(Admitted::Paid), "the debt is earned");
}

#[test]
fn who_waits_when_a_limit_goes_into_shadow_is_let_go_in_order() {
    let mut node = node(terms(100, 50, 0));
    let waiters: Vec<WaiterId> =
        [40, 900, 5].map(|cost| queued(node.acquire(at(2), Ru::whole(cost), at(60_000)))).into();
    node.ask(at(3), 2);
    node.on_grant(at(4), 2, &Grant::Leased(shadow(100, 4)));
    let released: Vec<_> = std::iter::from_fn(|| node.poll(at(5))).collect();
    assert_eq!(released, waiters.iter().map(|id| (*id, Ok(Admitted::Over))).collect::<Vec<_>>());
    assert_eq!((node.consumption().throttled, node.state(at(5)).backlog), (3, Ru::ZERO));
    assert!(node.consumption().waited_us > 0);
}

/// They wait since before, and are let go by `poll`; nobody else joins them.
#[test]
fn an_operation_that_comes_while_others_are_let_go_starts_at_once() {
    let mut node = node(terms(100, 50, 0));
    let waiter = queued(node.acquire(at(2), Ru::whole(900), at(60_000)));
    node.ask(at(3), 2);
    node.on_grant(at(4), 2, &Grant::Leased(shadow(100, 4)));
    assert_eq!(admitted(node.acquire(at(5), Ru::whole(500), at(60_000))), Admitted::Over);
    assert_eq!(node.poll(at(5)), Some((waiter, Ok(Admitted::Over))));
    assert_eq!(node.poll(at(5)), None);
}

#[test]
fn past_the_lease_and_while_recovering_everything_is_admitted() {
    let mut cut_off = node(shadow(1, 1));
    for ms in [5_000, 60_000, 600_000] {
        assert_eq!(admitted(cut_off.acquire(at(ms), Ru::whole(9_000), at(ms))), Admitted::Paid);
        assert!(!cut_off.state(at(ms)).shadow, "the fallback admits it");
    }
    let mut recovering = node(shadow(1, 1));
    recovering.ask(at(10), 2);
    let answer = Grant::Recovering { ask_again: Span::secs(1), fallback: Some(Fallback::Unlimited) };
    recovering.on_grant(at(11), 2, &answer);
    assert_eq!(admitted(recovering.acquire(at(12), Ru::whole(9_000), at(12))), Admitted::Paid);
}

#[test]
fn a_lease_that_is_enforced_again_refuses_at_once() {
    let mut node = node(shadow(100, 50));
    node.try_acquire(at(1), Ru::whole(50)).unwrap();
    assert_eq!(node.try_acquire(at(2), Ru::whole(10)), Ok(Admitted::Over));
    node.ask(at(3), 2);
    node.on_grant(at(4), 2, &Grant::Leased(terms(100, 50, 0)));
    assert!(matches!(node.try_acquire(at(5), Ru::whole(10)), Err(Refusal::Throttled { .. })));
    assert!(matches!(node.acquire(at(5), Ru::whole(5_000), at(9_000)), Err(Refusal::NeverFits { .. })));
}
