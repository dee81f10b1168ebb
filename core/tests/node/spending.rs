//! Tokens, lumps and debt: what is earned, spent, owed and returned.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Admitted, Heard, NodeConfig, NodeGroup, Refusal};
use tidegate_core::units::{Rate, Ru};

use super::{at, node, queued, terms, used};

#[test]
fn nothing_is_spent_before_the_first_grant() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    assert_eq!(node.due(at(0)), Some(at(0)), "a new node asks at once");
    assert!(matches!(node.try_acquire(at(0), Ru(1)), Err(Refusal::Unavailable { .. })));
    let waiter = queued(node.acquire(at(0), Ru::whole(1), at(500)));
    node.ask(at(0), 1);
    assert_eq!(node.poll(at(5)), None);
    node.on_grant(at(5), 1, &Grant::Leased(terms(100, 10, 1)));
    assert_eq!(node.poll(at(5)), Some((waiter, Ok(Admitted::Paid))));
}

#[test]
fn tokens_never_exceed_the_cap() {
    let mut node = node(terms(100, 20, 0));
    assert_eq!(node.state(at(4_000)).available, Ru::whole(20));
    node.give_back(at(4_000), at(0), Ru::whole(500));
    assert_eq!(node.state(at(4_000)).available, Ru::whole(20));
}

#[test]
fn what_was_returned_stays_counted_until_the_controller_answers() {
    let mut node = node(LeaseTerms { scarce: true, ..terms(100, 40, 0) });
    // The group is in use, so that it keeps the rate.
    assert_eq!(node.try_acquire(at(900), Ru::whole(5)), Ok(Admitted::Paid));
    let ask = node.ask(at(1_000), 2);
    assert!(ask.returned > Ru::ZERO && ask.held.rate > Rate::ZERO, "{ask:?}");
    let later = node.state(at(4_000)).available;
    assert_eq!(later + ask.returned, Ru::whole(40), "{later} beside {} under way", ask.returned);
    assert_eq!(node.on_grant(at(4_001), 2, &Grant::Leased(terms(100, 40, 0))), Heard::Applied);
    assert_eq!(node.state(at(4_900)).available, Ru::whole(40));
}

#[test]
fn settling_refunds_or_owes_and_debt_is_paid_before_anyone_else() {
    let mut node = node(terms(10, 20, 20));
    assert_eq!(node.try_acquire(at(1), Ru::whole(10)), Ok(Admitted::Paid));
    node.settle(at(1), Ru::whole(10), &used(4));
    assert_eq!(node.state(at(1)).available, Ru::whole(16));
    assert_eq!(node.try_acquire(at(1), Ru::whole(6)), Ok(Admitted::Paid));
    node.settle(at(1), Ru::whole(6), &used(21));
    assert_eq!((node.state(at(1)).debt, node.look().worst_debt()), (Ru::whole(5), Ru::whole(5)));
    assert!(matches!(node.try_acquire(at(400), Ru(1)), Err(Refusal::Throttled { .. })));
    assert_eq!(node.try_acquire(at(602), Ru::whole(1)), Ok(Admitted::Paid));
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
fn what_an_operation_did_not_need_goes_back_to_its_lump_while_the_ledger_counts_that() {
    let mut node = node(terms(10, 5, 100));
    assert_eq!(node.try_acquire(at(1), Ru::whole(90)), Ok(Admitted::Paid));
    node.settle(at(1), Ru::whole(90), &used(20));
    assert_eq!(node.state(at(1)).available, Ru::whole(80), "the bucket of 5 RU has nothing to do with it");
    // The debt of another operation is paid first.
    node.charge(at(1), &used(85));
    assert_eq!(node.state(at(1)).debt, Ru::whole(5));
    node.give_back(at(1), at(0), Ru::whole(7));
    assert_eq!((node.state(at(1)).debt, node.state(at(1)).available), (Ru::ZERO, Ru::whole(2)));
}

#[test]
fn what_comes_back_of_a_lump_that_was_told_to_be_spent_is_returned_and_no_more_than_was_told() {
    let mut node = node(LeaseTerms { scarce: true, ..terms(0, 0, 100) });
    assert_eq!(node.try_acquire(at(1), Ru::whole(60)), Ok(Admitted::Paid));
    let told = node.ask(at(10), 2);
    assert_eq!((told.running, told.largest, told.held.lump), (Ru::whole(60), Ru::whole(60), Ru::ZERO));
    node.on_grant(at(11), 2, &Grant::Leased(LeaseTerms { scarce: true, ..terms(0, 0, 0) }));
    node.settle(at(20), Ru::whole(60), &used(5));
    assert_eq!(node.state(at(20)).available, Ru::ZERO, "others may have it by now");
    assert_eq!(node.due(at(20)), Some(at(20)), "others wait, so at once");
    node.give_back(at(20), at(0), Ru::whole(60));
    let returns = node.ask(at(20), 3);
    assert_eq!((returns.refunded, returns.running), (Ru::whole(55), Ru::ZERO));
    assert_eq!(node.ask(at(30), 4).refunded, Ru::ZERO, "once");
}

#[test]
fn no_more_is_returned_of_later_operations_than_the_ledger_still_keeps_room_for() {
    let mut node = node(terms(40, 40, 60));
    assert_eq!(node.try_acquire(at(1), Ru::whole(60)), Ok(Admitted::Paid));
    assert_eq!(node.ask(at(10), 2).running, Ru::whole(60), "the ledger keeps room for so much");
    node.on_grant(at(11), 2, &Grant::Leased(LeaseTerms { fill: Ru::whole(40), ..terms(40, 40, 0) }));
    node.settle(at(20), Ru::whole(60), &used(5));
    // An operation that the ledger does not know of; meanwhile the bucket becomes full again.
    assert_eq!(node.try_acquire(at(20), Ru::whole(40)), Ok(Admitted::Paid));
    node.give_back(at(1_100), at(0), Ru::whole(40));
    assert_eq!(node.ask(at(1_100), 3).refunded, Ru::whole(60));
}

#[test]
fn a_refund_pays_debt_and_only_the_rest_goes_back_to_the_lump() {
    let mut node = node(terms(0, 0, 100));
    assert_eq!(node.try_acquire(at(1), Ru::whole(50)), Ok(Admitted::Paid));
    node.charge(at(1), &used(55));
    assert_eq!(node.state(at(1)).debt, Ru::whole(5));
    node.give_back(at(1), at(0), Ru::whole(50));
    assert_eq!((node.state(at(1)).debt, node.state(at(1)).available), (Ru::ZERO, Ru::whole(45)));
}

#[test]
fn refunds_make_no_lump_larger_than_it_was() {
    let mut node = node(LeaseTerms { fill: Ru::whole(50), ..terms(0, 50, 30) });
    for cost in [20, 40] {
        assert_eq!(node.try_acquire(at(1), Ru::whole(cost)), Ok(Admitted::Paid));
    }
    for cost in [20, 40] {
        node.give_back(at(2), at(0), Ru::whole(cost));
    }
    assert_eq!(node.state(at(2)).available, Ru::whole(80));
    assert_eq!(node.ask(at(10), 2).returned, Ru::whole(30), "the lump; the bucket keeps its 50 RU");
}

#[test]
fn an_operation_of_a_lease_that_ended_gives_back_no_more_than_those_of_the_next_one_took() {
    let mut node = node(terms(0, 0, 60));
    assert_eq!(node.try_acquire(at(1), Ru::whole(60)), Ok(Admitted::Paid), "it outlasts the lease");
    node.ask(at(5_100), 2);
    node.on_grant(at(5_101), 2, &Grant::Leased(terms(0, 0, 30)));
    assert_eq!(node.try_acquire(at(5_102), Ru::whole(30)), Ok(Admitted::Paid));
    assert_eq!(node.ask(at(5_200), 3).running, Ru::whole(30));
    node.on_grant(at(5_201), 3, &Grant::Leased(terms(0, 0, 20)));
    node.settle(at(5_202), Ru::whole(30), &used(30));
    assert_eq!(node.try_acquire(at(5_203), Ru::whole(20)), Ok(Admitted::Paid));
    node.give_back(at(5_204), at(0), Ru::whole(60));
    let ask = node.ask(at(5_300), 4);
    assert_eq!((ask.returned, ask.refunded), (Ru::whole(20), Ru::ZERO));
}

#[test]
fn what_a_bucket_deeper_than_others_returns_leaves_room_for_itself_in_the_pool() {
    let mut node = node(LeaseTerms { scarce: true, ..terms(100, 80, 0) });
    assert_eq!(node.try_acquire(at(900), Ru::whole(5)), Ok(Admitted::Paid));
    let ask = node.ask(at(1_000), 2);
    assert_eq!(ask.held.cap, Ru::whole(50), "half a second of the rate: {ask:?}");
    let later = node.state(at(4_000)).available;
    assert_eq!(later + ask.returned, Ru::whole(80), "{later} beside {} under way", ask.returned);
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
