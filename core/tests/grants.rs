//! The controller's decisions, one rule a test. Times are in milliseconds, rates and amounts in whole RU.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held, LeaseTerms};
use tidegate_core::group::{Burstable, ClientId, GroupId, GroupSpec, Priority};
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::{GroupError, MAX_DEPTH};

use common::{at, leased};

const GROUP: GroupId = GroupId(2);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn engine(rate: i64) -> Engine {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(rate))).unwrap();
    engine
}

fn wants(rate: i64) -> Ask {
    Ask { demand: Rate::whole(rate), ..Ask::default() }
}

fn waits(rate: i64, backlog: i64) -> Ask {
    Ask { backlog: Ru::whole(backlog), head: Ru::whole(1), waiting: 1, ..wants(rate) }
}

fn holds(ask: Ask, seq: u64, terms: &LeaseTerms) -> Ask {
    let held = Held { rate: terms.rate, cap: terms.cap, lump: Ru::ZERO };
    Ask { acked_seq: seq, held, ..ask }
}

fn committed(engine: &Engine, id: GroupId) -> Rate {
    engine.group_view(id).unwrap().committed
}

#[test]
fn a_quiet_node_of_a_group_without_a_limit_stays_without_one() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GROUP, GroupSpec::unlimited()).unwrap();
    let quiet = |seq| Ask { acked_seq: seq, ..Ask::default() };
    let free = |grant| assert!(matches!(grant, Some(Grant::Unlimited { .. })), "{grant:?}");
    free(engine.renew(at(0), A, GROUP, 1, &wants(5), None));
    free(engine.renew(at(1_000), A, GROUP, 2, &quiet(1), None));
    // The same after the controller has forgotten the client.
    free(engine.renew(at(60_000), A, GROUP, 3, &quiet(2), None));
    // The group gets a limit: the node has not given up, so it gets a part of the limit.
    engine.put_group(at(60_500), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    let terms = leased(engine.renew(at(61_000), A, GROUP, 4, &quiet(3), None));
    assert!(terms.rate > Rate::ZERO && terms.cap > Ru::ZERO, "{terms:?}");
    engine.check().unwrap();
}

#[test]
fn a_lowered_lease_counts_at_its_old_rate_until_it_is_acknowledged() {
    let mut engine = engine(100);
    let first = leased(engine.renew(at(0), A, GROUP, 1, &waits(500, 50), None));
    assert_eq!(first.rate, Rate::whole(100));
    // B finds nothing free, and the controller orders A to lower itself.
    let starved = leased(engine.renew(at(10), B, GROUP, 1, &waits(500, 50), None));
    assert_eq!(starved.rate, Rate::ZERO);
    let orders = engine.take_lowers();
    assert_eq!((orders.len(), orders[0].client, orders[0].rate_at_most), (1, A, Rate::whole(50)));
    // A renews before the order reaches it: it gets half, and still counts in full.
    let second = leased(engine.renew(at(20), A, GROUP, 2, &holds(waits(500, 50), 1, &first), None));
    assert_eq!((second.rate, second.ack_now), (Rate::whole(50), true));
    assert_eq!(committed(&engine, GROUP), Rate::whole(100));
    let still = leased(engine.renew(at(30), B, GROUP, 2, &holds(waits(500, 50), 1, &starved), None));
    assert_eq!(still.rate, Rate::ZERO);
    // The acknowledgement frees the other half.
    leased(engine.renew(at(40), A, GROUP, 3, &holds(waits(500, 50), 2, &second), None));
    let fair = leased(engine.renew(at(50), B, GROUP, 3, &holds(waits(500, 50), 2, &still), None));
    assert_eq!(fair.rate, Rate::whole(50));
}

#[test]
fn without_acknowledgement_the_old_rate_counts_until_its_own_end() {
    let mut engine = engine(100);
    let first = leased(engine.renew(at(0), A, GROUP, 1, &waits(500, 50), None));
    engine.renew(at(10), B, GROUP, 1, &waits(500, 50), None);
    leased(engine.renew(at(1_000), A, GROUP, 2, &holds(waits(500, 50), 1, &first), None));
    engine.expire(at(5_054));
    assert_eq!(committed(&engine, GROUP), Rate::whole(100), "the end on the controller's clock is later");
    // ttl 5 s, drift 0.1 %, margin 50 ms: the newest grant of A ends 5,055.006 ms after it was made.
    engine.expire(at(6_056));
    assert_eq!(committed(&engine, GROUP), Rate::ZERO);
}

#[test]
fn a_lease_outlives_its_use_by_the_slowest_clock() {
    for ttl in [Span::millis(500), Span::millis(900), Span(1_999_999), Span::secs(5), Span::secs(60)] {
        for drift_ppm in [0, 1_000, 100_000] {
            let config = EngineConfig { drift_ppm, margin: Span(0) };
            let mut engine = Engine::new(at(0), config);
            let spec = GroupSpec { ttl, ..GroupSpec::capped(Rate::whole(100)) };
            engine.put_group(at(0), GROUP, spec).unwrap();
            leased(engine.renew(at(0), A, GROUP, 1, &wants(10), None));
            let end = engine.next_expiry().unwrap();
            // The slowest clock shows this at that time: the node has stopped spending.
            let shown = end.0 * (1_000_000 - u64::from(drift_ppm)) / 1_000_000;
            assert!(shown >= ttl.0, "{ttl} with {drift_ppm} ppm: the lease counts for {}", Span(end.0));
            assert_eq!(engine.config().longest_use(ttl), Span(end.0));
        }
    }
}

#[test]
fn lumps_and_caps_stay_within_the_burst() {
    let mut engine = engine(100);
    let terms = leased(engine.renew(at(0), A, GROUP, 1, &waits(500, 1_000), None));
    let view = engine.group_view(GROUP).unwrap();
    assert!(terms.lump > Ru::whole(10), "the backlog is served from the pool: {terms:?}");
    assert_eq!(view.pool + view.held, Ru::whole(100));
    assert_eq!(view.held, terms.cap + terms.lump);
}

#[test]
fn a_lump_that_never_arrived_goes_back_to_the_pool() {
    let mut engine = engine(100);
    let lost = leased(engine.renew(at(0), A, GROUP, 1, &waits(10, 60), None));
    assert_eq!(lost.lump, Ru::whole(60));
    let again = leased(engine.renew(at(1), A, GROUP, 2, &waits(10, 60), None));
    assert_eq!(again.lump, Ru::whole(60), "seq 1 was not acknowledged, so its tokens are here again");
}

#[test]
fn a_liar_gains_nothing() {
    let mut engine = engine(100);
    let honest = leased(engine.renew(at(0), A, GROUP, 1, &waits(40, 5), None));
    let huge = Held { rate: Rate::MAX, cap: Ru::MAX, lump: Ru::MAX };
    let lie = Ask { acked_seq: 1, held: huge, returned: Ru::MAX, debt: Ru(i64::MIN), ..waits(40, 5) };
    let terms = leased(engine.renew(at(100), A, GROUP, 2, &lie, None));
    assert!(terms.rate <= Rate::whole(100) && committed(&engine, GROUP) <= Rate::whole(100));
    let view = engine.group_view(GROUP).unwrap();
    assert!(view.pool + view.held <= Ru::whole(100), "{view:?} after {honest:?}");
    for strange in [
        Ask { demand: Rate(i64::MAX), backlog: Ru(i64::MAX), head: Ru(i64::MAX), ..Ask::default() },
        Ask { demand: Rate(i64::MIN), backlog: Ru(i64::MIN), head: Ru(i64::MIN), ..Ask::default() },
        Ask {
            returned: Ru(i64::MIN),
            held: Held { rate: Rate(-1), cap: Ru(-1), lump: Ru(-1) },
            ..Ask::default()
        },
    ] {
        let seq = strange.demand.0.count_ones().into();
        engine.renew(at(200), B, GROUP, seq, &strange, None);
        engine.check().unwrap();
    }
}

#[test]
fn repeated_and_reordered_renewals_are_not_answered() {
    let mut engine = engine(100);
    assert!(engine.renew(at(0), A, GROUP, 7, &wants(10), None).is_some());
    assert_eq!(engine.renew(at(1), A, GROUP, 7, &wants(10), None), None);
    assert_eq!(engine.renew(at(1), A, GROUP, 6, &wants(10), None), None);
    assert!(engine.renew(at(1), A, GROUP, 8, &wants(10), None).is_some());
    assert_eq!(engine.renew(at(1), A, GroupId(99), 9, &wants(10), None), Some(Grant::UnknownGroup));
}

#[test]
fn in_recovery_nobody_gets_more_than_it_proves() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    engine.recover_until(at(6_000));
    let newcomer = engine.renew(at(100), B, GROUP, 1, &waits(500, 50), None);
    assert!(matches!(newcomer, Some(Grant::Recovering { .. })), "{newcomer:?}");
    let held = Held { rate: Rate::whole(30), cap: Ru::whole(3), lump: Ru::whole(2) };
    let ask = Ask { acked_seq: 9, held, ..waits(500, 50) };
    let kept = leased(engine.renew(at(100), A, GROUP, 10, &ask, Some(held)));
    assert_eq!((kept.rate, kept.lump, kept.fill), (Rate::whole(30), Ru::ZERO, Ru::ZERO));
    let again = leased(engine.renew(at(3_000), A, GROUP, 11, &holds(waits(500, 50), 10, &kept), None));
    assert!(again.rate <= Rate::whole(30));
    assert_eq!(engine.group_view(GROUP).unwrap().pool, Ru::ZERO);
    let after = leased(engine.renew(at(6_500), B, GROUP, 2, &waits(500, 50), None));
    assert!(after.rate > Rate::ZERO);
}

#[test]
fn what_a_node_proves_counts_in_full_until_recovery_is_over() {
    // The limit was lowered just before the crash: the node may use what it holds until it hears of the lower one.
    let mut engine = engine(40);
    engine.recover_until(at(6_000));
    let held = Held { rate: Rate::whole(80), cap: Ru::whole(10), lump: Ru::whole(25) };
    let ask = Ask { acked_seq: 9, held, ..waits(500, 50) };
    let kept = leased(engine.renew(at(100), A, GROUP, 10, &ask, Some(held)));
    assert!(kept.rate <= Rate::whole(40), "{kept:?}");
    assert_eq!(engine.group_view(GROUP).unwrap().held, kept.cap.max(held.cap) + held.lump);
    engine.expire(at(5_999));
    assert_eq!(committed(&engine, GROUP), Rate::whole(80), "the answer may be lost");
    engine.expire(at(6_000));
    assert!(committed(&engine, GROUP) <= Rate::whole(40));
}

#[test]
fn in_recovery_nobody_holds_less_than_nothing() {
    let mut engine = engine(100);
    engine.recover_until(at(6_000));
    let below = Held { rate: Rate(i64::MIN), cap: Ru(-1), lump: Ru(i64::MIN) };
    let terms = leased(engine.renew(at(0), A, GROUP, 1, &wants(50), Some(below)));
    assert_eq!((terms.rate, terms.cap, committed(&engine, GROUP)), (Rate::ZERO, Ru::ZERO, Rate::ZERO));
    engine.expire(at(100_000));
    engine.check().unwrap();
}

#[test]
fn guarantees_come_first_then_priority_then_weight() {
    let mut engine = engine(100);
    let child =
        |rate: i64, spec: GroupSpec| GroupSpec { parent: Some(GROUP), rate: Some(Rate::whole(rate)), ..spec };
    let borrows = || GroupSpec { burstable: Burstable::Unlimited, ..GroupSpec::unlimited() };
    let specs = [
        child(40, GroupSpec::unlimited()),
        child(10, GroupSpec { priority: Priority::High, ..borrows() }),
        child(5, GroupSpec { weight: 3, ..borrows() }),
        child(5, borrows()),
    ];
    for (id, spec) in (3..).zip(specs) {
        engine.put_group(at(0), GroupId(id), spec).unwrap();
    }
    // Wants are twice the load: 40 guaranteed, 10 + 20 for the high priority, then 5 and 5, and 20 left by 3 to 1.
    let mut seqs = [0_u64; 4];
    let mut terms = [LeaseTerms::default(); 4];
    for round in 0..6 {
        for (index, offered) in [200, 15, 200, 200].into_iter().enumerate() {
            let id = GroupId(u32::try_from(index).unwrap() + 3);
            let ask = holds(wants(offered), seqs[index], &terms[index]);
            seqs[index] += 1;
            terms[index] = leased(engine.renew(
                at(round * 100 + index as u64),
                ClientId(index as u64),
                id,
                seqs[index],
                &ask,
                None,
            ));
        }
    }
    let rates: Vec<i64> = terms.iter().map(|t| t.rate.0 / 1_000_000).collect();
    assert_eq!(rates, [40, 30, 20, 10]);
}

#[test]
fn a_removed_group_counts_in_its_parent_until_its_leases_end() {
    let mut engine = engine(100);
    let child = GroupId(3);
    let spec = GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(80)) };
    engine.put_group(at(0), child, spec).unwrap();
    assert_eq!(engine.remove_group(at(0), GROUP), Err(GroupError::HasChildren(GROUP)));
    let terms = leased(engine.renew(at(0), A, child, 1, &waits(500, 50), None));
    engine.remove_group(at(10), child).unwrap();
    assert_eq!(engine.take_lowers().len(), 1);
    assert_eq!(engine.renew(at(20), B, child, 1, &wants(1), None), Some(Grant::UnknownGroup));
    assert_eq!(committed(&engine, GROUP), terms.rate);
    engine.expire(at(6_000));
    assert_eq!(committed(&engine, GROUP), Rate::ZERO);
    assert_eq!(engine.remove_group(at(6_000), child), Err(GroupError::Unknown(child)));
    engine.remove_group(at(6_000), GROUP).unwrap();
}

#[test]
fn a_group_whose_children_are_removed_can_be_removed_before_their_leases_end() {
    let mut engine = engine(100);
    let (middle, child) = (GroupId(3), GroupId(4));
    engine.put_group(at(0), middle, GroupSpec { parent: Some(GROUP), ..GroupSpec::unlimited() }).unwrap();
    let spec = GroupSpec { parent: Some(middle), ..GroupSpec::capped(Rate::whole(80)) };
    engine.put_group(at(0), child, spec).unwrap();
    let terms = leased(engine.renew(at(0), A, child, 1, &waits(500, 50), None));
    engine.remove_group(at(10), child).unwrap();
    engine.remove_group(at(20), middle).unwrap();
    assert_eq!(committed(&engine, GROUP), terms.rate);
    engine.expire(at(6_000));
    assert_eq!(committed(&engine, GROUP), Rate::ZERO);
    engine.remove_group(at(6_000), GROUP).unwrap();
    engine.check().unwrap();
}

#[test]
fn a_clean_restart_waits_for_the_leases_of_removed_groups() {
    let mut before = engine(100);
    let child = GroupId(3);
    let spec = GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(80)) };
    before.put_group(at(0), child, spec).unwrap();
    let terms = leased(before.renew(at(0), A, child, 1, &waits(500, 50), None));
    before.remove_group(at(10), child).unwrap();
    let snapshot = before.snapshot(at(20));
    let mut after = engine(100);
    after.restore(at(20), &snapshot);
    assert!(after.recovering_until() >= at(0).after(terms.ttl));
    let early = after.renew(at(30), B, GROUP, 1, &waits(500, 50), None);
    assert!(matches!(early, Some(Grant::Recovering { .. })), "{early:?}");
    assert_eq!(leased(after.renew(at(6_000), B, GROUP, 2, &waits(500, 50), None)).rate, Rate::whole(100));
}

#[test]
fn a_limit_that_comes_back_begins_with_an_empty_bucket() {
    let mut engine = engine(100);
    let limited = GroupSpec::capped(Rate::whole(100));
    engine.put_group(at(1_000), GROUP, GroupSpec::unlimited()).unwrap();
    // The ledger does not count what this node spends.
    let free = engine.renew(at(1_000), A, GROUP, 1, &wants(500), None);
    assert!(matches!(free, Some(Grant::Unlimited { .. })), "{free:?}");
    engine.put_group(at(2_000), GROUP, limited).unwrap();
    assert_eq!(engine.group_view(GROUP).unwrap().pool, Ru::ZERO);
    let terms = leased(engine.renew(at(2_010), B, GROUP, 1, &waits(500, 50), None));
    assert!(terms.fill + terms.lump <= Ru::whole(1), "10 ms are worth no more: {terms:?}");
}

#[test]
fn definitions_that_cannot_hold_are_refused() {
    let mut engine = engine(100);
    let below = |parent| GroupSpec { parent: Some(parent), ..GroupSpec::unlimited() };
    assert_eq!(engine.put_group(at(0), GROUP, below(GROUP)), Err(GroupError::Cycle(GROUP)));
    assert_eq!(
        engine.put_group(at(0), GROUP, below(GroupId(50))),
        Err(GroupError::UnknownParent(GroupId(50)))
    );
    let mut parent = GROUP;
    let mut depth = 1;
    let refused = loop {
        let id = GroupId(parent.0 + 1);
        match engine.put_group(at(0), id, below(parent)) {
            Ok(()) => (parent, depth) = (id, depth + 1),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, GroupError::TooDeep(_)) && depth == MAX_DEPTH, "{refused:?} at {depth}");
    assert_eq!(engine.put_group(at(0), GROUP, below(parent)), Err(GroupError::Cycle(GROUP)));
    assert_eq!(engine.remove_group(at(0), GroupId::ROOT), Err(GroupError::Reserved(GroupId::ROOT)));
}

#[test]
fn a_moved_group_is_counted_where_it_is_now() {
    let mut engine = engine(100);
    let (other, child) = (GroupId(3), GroupId(4));
    engine.put_group(at(0), other, GroupSpec::capped(Rate::whole(10))).unwrap();
    let under = |parent| GroupSpec { parent: Some(parent), ..GroupSpec::capped(Rate::whole(80)) };
    engine.put_group(at(0), child, under(GROUP)).unwrap();
    let terms = leased(engine.renew(at(0), A, child, 1, &waits(500, 50), None));
    assert_eq!(committed(&engine, GROUP), terms.rate);
    engine.put_group(at(10), child, under(other)).unwrap();
    assert_eq!((committed(&engine, GROUP), committed(&engine, other)), (Rate::ZERO, terms.rate));
    let lowered = leased(engine.renew(at(20), A, child, 2, &holds(waits(500, 50), 1, &terms), None));
    assert!(lowered.rate <= Rate::whole(10), "{lowered:?}");
}

#[test]
fn a_first_child_that_moves_in_hides_nothing_of_what_the_group_wants() {
    let mut engine = engine(100);
    engine.put_group(at(0), GroupId(3), GroupSpec::capped(Rate::whole(10))).unwrap();
    leased(engine.renew(at(0), A, GROUP, 1, &wants(20), None));
    assert_eq!(engine.group_view(GROUP).unwrap().demand, Rate::whole(40));
    let below = GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(10)) };
    engine.put_group(at(10), GroupId(3), below).unwrap();
    assert_eq!(engine.group_view(GROUP).unwrap().demand, Rate::whole(40));
}

#[test]
fn those_who_wait_in_a_moved_group_make_its_new_parents_scarce() {
    let mut engine = engine(100);
    engine.put_group(at(0), GroupId(3), GroupSpec::capped(Rate::whole(10))).unwrap();
    // The operation is too large for the local bucket, so the client holds nothing and waits for a lump.
    let large = Ask { head: Ru::whole(9), ..waits(0, 9) };
    leased(engine.renew(at(0), A, GroupId(3), 1, &large, None));
    leased(engine.renew(at(1), A, GroupId(3), 2, &large, None));
    let below = GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(10)) };
    engine.put_group(at(10), GroupId(3), below).unwrap();
    assert!(leased(engine.renew(at(20), B, GROUP, 1, &wants(5), None)).scarce);
    engine.release(at(30), A);
    assert!(!leased(engine.renew(at(40), B, GROUP, 2, &wants(5), None)).scarce);
}

#[test]
fn a_clean_restart_keeps_leases_and_pools() {
    let mut engine = engine(100);
    let terms = leased(engine.renew(at(0), A, GROUP, 5, &waits(500, 1_000), None));
    let before = engine.group_view(GROUP).unwrap();
    let saved = engine.snapshot(at(0));
    let mut restarted = Engine::new(at(777), EngineConfig::default());
    restarted.put_group(at(777), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    restarted.restore(at(777), &saved);
    let after = restarted.group_view(GROUP).unwrap();
    assert_eq!((after.committed, after.pool, after.held), (before.committed, before.pool, before.held));
    assert_eq!(restarted.renew(at(800), A, GROUP, 5, &wants(1), None), None, "sequence numbers go on");
    assert!(restarted.renew(at(800), A, GROUP, 6, &holds(wants(10), 5, &terms), None).is_some());
    restarted.expire(at(7_000));
    assert_eq!(committed(&restarted, GROUP), Rate::ZERO);
}

#[test]
fn an_operation_that_can_never_fit_takes_nobodys_turn() {
    let mut engine = engine(10);
    let large = |ru| Ask { head: Ru::whole(ru), ..waits(0, ru) };
    let hopeless = leased(engine.renew(at(0), A, GROUP, 1, &large(11), None));
    assert_eq!(hopeless.max_fit, Ru::whole(10));
    assert_eq!(hopeless.lump, Ru::ZERO);
    // No client is before this one, and the pool covers it.
    let first = leased(engine.renew(at(10), B, GROUP, 1, &large(7), None));
    assert!(first.lump >= Ru::whole(7), "{first:?}");
}

#[test]
fn goodbye_frees_everything_at_once() {
    let mut engine = engine(100);
    engine.renew(at(0), A, GROUP, 1, &waits(500, 1_000), None);
    engine.release(at(1), A);
    let view = engine.group_view(GROUP).unwrap();
    assert_eq!((view.committed, view.held, view.leases), (Rate::ZERO, Ru::ZERO, 0));
    assert_eq!(engine.next_expiry(), None);
}

#[test]
fn without_any_limit_a_group_is_only_metered() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GroupId::DEFAULT, GroupSpec::unlimited()).unwrap();
    let grant = engine.renew(at(0), A, GroupId::DEFAULT, 1, &wants(10), None);
    assert!(matches!(grant, Some(Grant::Unlimited { .. })));
    // A server capacity limits all groups.
    engine.put_group(at(1), GroupId::ROOT, GroupSpec::capped(Rate::whole(50))).unwrap();
    let terms = leased(engine.renew(at(2), A, GroupId::DEFAULT, 2, &waits(500, 10), None));
    assert!(terms.rate <= Rate::whole(50) && terms.max_fit == Ru::whole(50));
}

#[test]
fn the_smallest_and_the_largest_rates_are_leased_exactly() {
    for rate in [Rate(1), Rate(999_999), Rate::MAX] {
        let mut engine = Engine::new(at(0), EngineConfig::default());
        engine.put_group(at(0), GROUP, GroupSpec::capped(rate)).unwrap();
        let ask = Ask { demand: Rate::MAX, backlog: Ru(1), head: Ru(1), ..Ask::default() };
        let terms = leased(engine.renew(at(0), A, GROUP, 1, &ask, None));
        assert!(terms.rate <= rate && terms.rate.0 >= rate.0 / 2 || terms.lump >= Ru(1), "{rate}: {terms:?}");
        engine.expire(at(60_000));
        engine.renew(at(60_000), B, GROUP, 1, &ask, None);
        engine.check().unwrap();
    }
}

#[test]
fn idle_groups_cost_nothing_and_hold_nothing() {
    let mut engine = engine(100);
    let terms = leased(engine.renew(at(0), A, GROUP, 1, &wants(10), None));
    assert!(terms.rate > Rate::ZERO);
    let idle = Ask { acked_seq: 1, ..Ask::default() };
    let nothing = leased(engine.renew(at(10), A, GROUP, 2, &idle, None));
    assert_eq!((nothing.rate, nothing.max_fit), (Rate::ZERO, Ru::whole(100)));
    assert_eq!(engine.next_expiry(), None);
    assert!(nothing.ttl == Span::secs(5));
}

/// The next renewal of a client that spent its lump of 60 RU on an operation that still runs.
fn runs(engine: &mut Engine) -> Ask {
    let lump = leased(engine.renew(at(0), A, GROUP, 1, &waits(10, 60), None));
    assert_eq!(lump.lump, Ru::whole(60));
    let runs = Ask { running: Ru::whole(60), ..holds(wants(10), 1, &lump) };
    leased(engine.renew(at(1), A, GROUP, 2, &runs, None));
    runs
}

#[test]
fn what_an_operation_may_not_need_keeps_its_room_until_it_is_refunded() {
    let mut engine = engine(100);
    let runs = runs(&mut engine);
    let before = engine.group_view(GROUP).unwrap();
    assert_eq!(before.pool + before.held, Ru::whole(100), "{before:?}");
    let refunds = Ask { acked_seq: 2, refunded: Ru::whole(55), running: Ru::ZERO, ..runs };
    leased(engine.renew(at(1), A, GROUP, 3, &refunds, None));
    let after = engine.group_view(GROUP).unwrap();
    let moved = after.pool - before.pool;
    assert!((Ru::whole(54)..=Ru::whole(60)).contains(&moved), "{before:?}, {after:?}");
    engine.check().unwrap();
}

#[test]
fn tokens_that_are_there_come_before_tokens_that_may_come_back() {
    let mut engine = engine(100);
    let runs = runs(&mut engine);
    let full = engine.group_view(GROUP).unwrap();
    // The pool fills in the meantime and keeps no more room.
    leased(engine.renew(at(3_000), B, GROUP, 1, &wants(0), None));
    let before = engine.group_view(GROUP).unwrap();
    assert!(
        before.held + Ru::whole(20) < full.held,
        "the operation still has its room: {full:?}, {before:?}"
    );
    assert_eq!(before.pool + before.held, Ru::whole(100), "{before:?}");
    let refunds = Ask { acked_seq: 2, refunded: Ru::whole(55), running: Ru::ZERO, ..runs };
    leased(engine.renew(at(3_000), A, GROUP, 3, &refunds, None));
    let after = engine.group_view(GROUP).unwrap();
    assert!(after.pool + after.held <= Ru::whole(100), "{after:?}");
    engine.check().unwrap();
}

#[test]
fn nobody_is_refunded_what_the_ledger_keeps_no_room_for() {
    let mut engine = engine(100);
    let terms = leased(engine.renew(at(0), A, GROUP, 1, &waits(10, 30), None));
    // Another client has spent a lump, so that there is room.
    let spent = leased(engine.renew(at(0), B, GROUP, 1, &waits(1, 30), None));
    leased(engine.renew(at(0), B, GROUP, 2, &holds(wants(1), 1, &spent), None));
    let before = engine.group_view(GROUP).unwrap();
    assert!(before.pool + before.held < Ru::whole(90), "{before:?}");
    let held = Held { rate: terms.rate, cap: terms.cap, lump: terms.lump };
    let lie = Ask { acked_seq: 1, held, refunded: Ru::MAX, running: Ru::MAX, ..wants(10) };
    for seq in 2..5 {
        leased(engine.renew(at(0), A, GROUP, seq, &Ask { acked_seq: seq - 1, ..lie }, None));
        let after = engine.group_view(GROUP).unwrap();
        assert!(after.pool + after.held <= before.pool + before.held, "{before:?}, {after:?}");
    }
    engine.check().unwrap();
}

#[test]
fn who_was_told_to_lower_a_lease_is_not_told_again_at_once() {
    let mut engine = engine(100);
    leased(engine.renew(at(0), A, GROUP, 1, &waits(500, 50), None));
    let mut told = |ms, seq| {
        let starved = Ask { acked_seq: seq - 1, ..waits(500, 50) };
        leased(engine.renew(at(ms), B, GROUP, seq, &starved, None));
        engine.take_lowers().iter().map(|order| order.client).collect::<Vec<_>>()
    };
    // A never answers. An order that was lost is repeated after 200 ms.
    let orders = [told(10, 1), told(60, 2), told(209, 3), told(210, 4), told(300, 5)];
    assert_eq!(orders, [vec![A], vec![], vec![], vec![A], vec![]]);
}

#[test]
fn children_divide_what_their_parent_has_to_spare() {
    let mut engine = engine(100);
    let children = [GroupId(3), GroupId(4)];
    for child in children {
        let spec = GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(100)) };
        engine.put_group(at(0), child, spec).unwrap();
    }
    let mut terms = [LeaseTerms::default(); 2];
    for round in 1..20 {
        for (index, child) in children.into_iter().enumerate() {
            let ask = holds(wants(10), round - 1, &terms[index]);
            terms[index] = leased(engine.renew(at(round * 100), A, child, round, &ask, None));
        }
    }
    // Twice what each is offered, and a half of the half that is left.
    assert_eq!(terms.map(|terms| terms.rate), [Rate::whole(20 + 60 / 2 / 2); 2]);
}

#[test]
fn the_first_in_the_queue_is_called_once_when_the_pool_covers_it() {
    let mut engine = engine(100);
    let runs = runs(&mut engine);
    let large = Ask { head: Ru::whole(90), ..waits(0, 90) };
    let waits = leased(engine.renew(at(2), B, GROUP, 1, &large, None));
    assert_eq!((waits.lump, waits.rate), (Ru::ZERO, Rate::ZERO));
    engine.take_lowers();
    let mut says = |ms, seq, ask: Ask| {
        leased(engine.renew(at(ms), A, GROUP, seq, &Ask { acked_seq: seq - 1, ..ask }, None));
        engine
            .take_lowers()
            .iter()
            .filter(|order| order.rate_at_most == Rate::MAX)
            .map(|o| o.client)
            .collect()
    };
    let refunds = Ask { refunded: Ru::whole(58), running: Ru::ZERO, held: Held::default(), ..runs };
    let quiet = Ask { refunded: Ru::ZERO, ..refunds };
    let calls: [Vec<ClientId>; 3] = [says(450, 3, refunds), says(850, 4, quiet), says(860, 5, quiet)];
    assert_eq!(calls, [vec![], vec![B], vec![]]);
    let served = leased(engine.renew(at(870), B, GROUP, 2, &Ask { acked_seq: 1, ..large }, None));
    assert_eq!(served.lump, Ru::whole(90));
}
