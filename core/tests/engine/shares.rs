//! How a group's rate is divided among its children and its own clients, and how steady a lease is: one rule a test.
//! Times are in milliseconds, rates and amounts in whole RU.

use tidegate_core::engine::Engine;
use tidegate_core::exchange::{Ask, Held, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec, Priority};
use tidegate_core::units::{Rate, Ru, Span};

use super::{A, B, GROUP, at, engine, holds, leased, wants};

/// One client in each of these groups wants all it can get: their rates, in thousandths of a RU/s.
fn divided(engine: &mut Engine, groups: &[GroupId]) -> Vec<i64> {
    let mut terms = vec![LeaseTerms::default(); groups.len()];
    for round in 1..6 {
        for (client, (group, last)) in (1..).zip(groups.iter().zip(&mut terms)) {
            let ask = holds(wants(500), round - 1, last);
            *last =
                leased(engine.renew(at(round * 100 + client), ClientId(client), *group, round, &ask, None));
        }
    }
    terms.iter().map(|terms| terms.rate.0 / 1_000).collect()
}

fn child(spec: GroupSpec) -> GroupSpec {
    GroupSpec { parent: Some(GROUP), ..spec }
}

fn borrows(priority: Priority) -> GroupSpec {
    child(GroupSpec { priority, ..GroupSpec::unlimited() })
}

#[test]
fn guarantees_and_each_priority_leave_a_sixteenth_to_each_priority_after_them() {
    let groups = [3, 4, 5, 6].map(GroupId);
    let [all, high, medium, low] = groups;
    let mut engine = engine();
    engine.put_group(at(0), high, borrows(Priority::High)).unwrap();
    engine.put_group(at(0), medium, borrows(Priority::Medium)).unwrap();
    engine.put_group(at(0), low, borrows(Priority::Low)).unwrap();
    assert_eq!(divided(&mut engine, &[high, medium, low]), [87_500, 6_250, 6_250]);
    // One whose guarantee is all there is.
    let mut engine = self::engine();
    engine.put_group(at(0), all, child(GroupSpec::capped(Rate::whole(100)))).unwrap();
    engine.put_group(at(0), high, borrows(Priority::High)).unwrap();
    engine.put_group(at(0), medium, borrows(Priority::Medium)).unwrap();
    engine.put_group(at(0), low, borrows(Priority::Low)).unwrap();
    assert_eq!(divided(&mut engine, &groups), [81_250, 6_250, 6_250, 6_250]);
}

#[test]
fn a_group_s_own_clients_are_one_party_beside_its_children() {
    let mut engine = engine();
    let (guaranteed, borrower) = (GroupId(3), GroupId(4));
    engine.put_group(at(0), guaranteed, child(GroupSpec::capped(Rate::whole(40)))).unwrap();
    engine.put_group(at(0), borrower, borrows(Priority::Medium)).unwrap();
    assert_eq!(divided(&mut engine, &[guaranteed, borrower, GROUP, GROUP]), [40_000, 30_000, 15_000, 15_000]);
}

#[test]
fn a_lease_that_is_a_trifle_above_its_target_is_left_alone() {
    let mut engine = engine();
    // Twice the load, and half of what is left.
    let first = leased(engine.renew(at(0), A, GROUP, 1, &wants(25), None));
    assert_eq!(first.rate, Rate::whole(75));
    let less = Ask { demand: Rate(24_900_000), ..holds(wants(0), 1, &first) };
    let second = leased(engine.renew(at(1_000), A, GROUP, 2, &less, None));
    assert_eq!(second.rate, first.rate);
    // Five RU/s are more than a sixty-fourth of it.
    let third = leased(engine.renew(at(2_000), A, GROUP, 3, &holds(wants(20), 2, &second), None));
    assert_eq!(third.rate, Rate::whole(70));
}

#[test]
fn nobody_keeps_a_trifle_above_its_share_while_others_lack_rate() {
    let mut engine = engine();
    leased(engine.renew(at(0), A, GROUP, 1, &wants(500), None));
    assert_eq!(leased(engine.renew(at(10), B, GROUP, 1, &wants(500), None)).rate, Rate::ZERO);
    // A has lowered its lease nearly to its share.
    let held = Held { rate: Rate(50_500_000), ..Held::default() };
    let lowered = leased(engine.renew(at(20), A, GROUP, 2, &Ask { acked_seq: 1, held, ..wants(500) }, None));
    assert_eq!(lowered.rate, Rate::whole(50));
}

#[test]
fn who_wants_nothing_makes_nobody_lower_a_trifle() {
    let mut engine = engine();
    let all = leased(engine.renew(at(0), B, GROUP, 1, &wants(500), None));
    assert_eq!(leased(engine.renew(at(10), A, GROUP, 1, &wants(0), None)).rate, Rate::ZERO);
    let less = Ask { demand: Rate(49_900_000), ..holds(wants(0), 1, &all) };
    assert_eq!(leased(engine.renew(at(20), B, GROUP, 2, &less, None)).rate, all.rate);
}

#[test]
fn who_waits_for_a_lump_that_its_whole_share_yields_makes_nobody_lower_a_trifle() {
    let mut engine = engine();
    let often = GroupSpec { renew_every: Span::millis(100), ..GroupSpec::capped(Rate::whole(100)) };
    engine.put_group(at(0), GROUP, often).unwrap();
    let spends = Ask { backlog: Ru::whole(100), head: Ru::whole(1), waiting: 1, ..Ask::default() };
    assert_eq!(leased(engine.renew(at(0), B, GROUP, 1, &spends, None)).lump, Ru::whole(100));
    let rate = |terms: &LeaseTerms| Held { rate: terms.rate, ..Held::default() };
    let large = |acked_seq| Ask { backlog: Ru::whole(95), head: Ru::whole(95), acked_seq, ..Ask::default() };
    leased(engine.renew(at(0), A, GROUP, 1, &large(0), None));
    // B lowers its lease to what it is to have beside A: four thirds of its load.
    let first = leased(engine.renew(at(0), B, GROUP, 2, &Ask { acked_seq: 1, ..wants(15) }, None));
    let second = leased(engine.renew(
        at(1),
        B,
        GROUP,
        3,
        &Ask { acked_seq: 2, held: rate(&first), ..wants(15) },
        None,
    ));
    assert_eq!(second.rate, Rate::whole(20));
    // Long after anyone lacked rate, A asks again.
    let waits = leased(engine.renew(at(400), A, GROUP, 2, &large(1), None));
    assert_eq!((waits.lump, waits.rate), (Ru::ZERO, Rate::ZERO));
    let less = Ask { demand: Rate(14_900_000), acked_seq: 3, held: rate(&second), ..Ask::default() };
    assert_eq!(leased(engine.renew(at(410), B, GROUP, 4, &less, None)).rate, second.rate);
}

#[test]
fn only_who_wants_more_than_it_got_is_told_to_wait_before_it_asks_again() {
    let mut engine = engine();
    let all = leased(engine.renew(at(0), A, GROUP, 1, &wants(50), None));
    assert_eq!((all.rate, all.ask_again), (Rate::whole(100), Span(0)));
    let some = leased(engine.renew(at(1_000), A, GROUP, 2, &holds(wants(10), 1, &all), None));
    assert_eq!((some.rate > Rate::whole(20), some.ask_again), (true, Span(0)));
    let more = leased(engine.renew(at(2_000), A, GROUP, 3, &holds(wants(51), 2, &some), None));
    assert_eq!((more.rate, more.ask_again), (Rate::whole(100), Span::millis(250)));
}

#[test]
fn the_debt_expected_of_a_node_is_told_with_a_lease_and_without() {
    let mut engine = engine();
    let spec = GroupSpec { max_debt: Ru::whole(7), ..GroupSpec::capped(Rate::whole(100)) };
    engine.put_group(at(0), GROUP, spec).unwrap();
    let terms = leased(engine.renew(at(0), A, GROUP, 1, &wants(50), None));
    let idle = leased(engine.renew(at(10), A, GROUP, 2, &Ask { acked_seq: 1, ..Ask::default() }, None));
    assert_eq!((terms.max_debt, idle.max_debt), (Ru::whole(7), Ru::whole(7)));
}

#[test]
fn an_operation_that_fits_the_bucket_and_the_lump_in_hand_costs_its_node_no_rate() {
    let mut engine = engine();
    let rival = leased(engine.renew(at(0), B, GROUP, 1, &wants(500), None));
    let first = leased(engine.renew(at(0), A, GROUP, 1, &Ask { backlog: Ru::whole(20), ..wants(500) }, None));
    assert_eq!(first.lump, Ru::whole(20));
    leased(engine.renew(at(10), B, GROUP, 2, &holds(wants(500), 1, &rival), None));
    let halved = leased(engine.renew(
        at(20),
        B,
        GROUP,
        3,
        &holds(wants(500), 2, &LeaseTerms { rate: Rate::whole(50), ..rival }),
        None,
    ));
    assert_eq!(halved.rate, Rate::whole(50));
    // The bucket is at most half of the burst deep, and the lump is not spent yet.
    let waits =
        Ask { head: Ru::whole(60), backlog: Ru::whole(60), waiting: 1, ..holds(wants(500), 1, &first) };
    let terms = leased(engine.renew(at(30), A, GROUP, 2, &waits, None));
    assert_eq!(terms.rate, Rate::whole(50));
}

#[test]
fn a_backlog_is_served_with_what_comes_in_the_next_30_ms_beyond_the_rate() {
    // B has most of the rate when A's load begins.
    let begins = |had_lease: bool, head: i64| {
        let mut engine = engine();
        leased(engine.renew(at(0), B, GROUP, 1, &wants(42), None));
        let begins = Ask { backlog: Ru::whole(2), head: Ru::whole(head), waiting: 1, ..wants(60) };
        let terms = if had_lease {
            let before = leased(engine.renew(at(1), A, GROUP, 1, &wants(2), None));
            leased(engine.renew(at(2), A, GROUP, 2, &holds(begins, 1, &before), None))
        } else {
            leased(engine.renew(at(2), A, GROUP, 1, &begins, None))
        };
        (terms.lump - Ru::whole(2), (Rate::whole(60) - terms.rate).over(Span::millis(30)))
    };
    let (more, comes) = begins(true, 1);
    assert_eq!((more, more.is_positive()), (comes, true));
    assert_eq!(begins(true, 0).0, Ru::ZERO, "nothing waits any more");
    assert_eq!(begins(false, 1).0, Ru::ZERO, "without a lease its load is a guess");
}
