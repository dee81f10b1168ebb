//! What a clean restart of the controller keeps: one rule a test. Times are in milliseconds, rates and amounts in whole
//! RU.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::view::Snapshot;

use super::{A, B, GROUP, at, engine, holds, leased, wants};

/// An engine with the same definitions that goes on from a snapshot.
fn restarted(before: &mut Engine, ms: u64) -> Engine {
    let saved = before.snapshot(at(ms));
    let mut after = engine();
    after.restore(at(ms), &saved);
    after
}

fn busy() -> Ask {
    wants(500)
}

fn still_holds(acked_seq: u64, terms: &LeaseTerms) -> Ask {
    holds(busy(), acked_seq, terms)
}

/// Two clients that have a half each since 20 and 30 ms, and their terms in the renewals 3 and 2.
fn halves(engine: &mut Engine) -> (LeaseTerms, LeaseTerms) {
    let all = leased(engine.renew(at(0), A, GROUP, 1, &busy(), None));
    leased(engine.renew(at(0), B, GROUP, 1, &busy(), None));
    let half = leased(engine.renew(at(10), A, GROUP, 2, &still_holds(1, &all), None));
    let a = leased(engine.renew(at(20), A, GROUP, 3, &still_holds(2, &half), None));
    let b = leased(engine.renew(at(30), B, GROUP, 2, &Ask { acked_seq: 1, ..busy() }, None));
    assert_eq!((a.rate, b.rate), (Rate::whole(50), Rate::whole(50)));
    (a, b)
}

#[test]
fn groups_that_nobody_used_are_not_in_a_snapshot() {
    assert_eq!(engine().snapshot(at(1_000)), Snapshot::default());
}

#[test]
fn a_pool_is_saved_with_what_it_has_earned_and_is_not_suspended() {
    let mut before = engine();
    let all = Ask { backlog: Ru::whole(100), head: Ru::whole(100), waiting: 1, ..Ask::default() };
    assert_eq!(leased(before.renew(at(0), A, GROUP, 1, &all, None)).lump, Ru::whole(100));
    before.renew(at(0), A, GROUP, 2, &Ask { acked_seq: 1, ..Ask::default() }, None);
    assert_eq!(before.group_view(GROUP).unwrap().pool, Ru::ZERO);
    let after = restarted(&mut before, 300);
    assert_eq!(after.group_view(GROUP).unwrap().pool, Ru::whole(30));
}

#[test]
fn every_bucket_counts_as_held_and_its_tokens_can_come_back() {
    let mut before = engine();
    let (a, _) = halves(&mut before);
    let saved = before.group_view(GROUP).unwrap();
    assert!(a.cap.is_positive() && saved.held >= a.cap, "{a:?}, {saved:?}");
    let mut after = restarted(&mut before, 30);
    assert_eq!(
        after.group_view(GROUP).unwrap(),
        tidegate_core::view::GroupView { demand: Rate::ZERO, ..saved }
    );
    // A gives all of its bucket back.
    let returns = Ask { acked_seq: 3, returned: a.cap, ..Ask::default() };
    leased(after.renew(at(30), A, GROUP, 4, &returns, None));
    assert_eq!(after.group_view(GROUP).unwrap().pool, saved.pool + a.cap);
}

#[test]
fn under_a_limit_that_is_lowered_after_a_restart_leases_go_on_until_their_old_ends() {
    let mut before = engine();
    let (a, b) = halves(&mut before);
    let mut after = restarted(&mut before, 100);
    after.put_group(at(100), GROUP, GroupSpec::capped(Rate::whole(40))).unwrap();
    // The answer to B's newest renewal was lost. What it held before goes on as well.
    let unheard = Ask { acked_seq: 1, held: Held { rate: Rate::whole(50), ..Held::default() }, ..busy() };
    for (client, seq, ask) in [(A, 4, still_holds(3, &a)), (B, 3, unheard)] {
        let terms = leased(after.renew(at(200), client, GROUP, seq, &ask, None));
        assert!(terms.rate >= Rate::whole(19), "{client:?}: {terms:?} after {b:?}");
        assert!(Span::millis(4_600) < terms.ttl && terms.ttl < Span::secs(5), "{client:?}: {terms:?}");
    }
}

#[test]
fn a_recovery_is_saved_for_each_removed_group_whose_leases_are_out() {
    let mut before = engine();
    let (middle, child) = (GroupId(3), GroupId(4));
    for (id, parent) in [(middle, GROUP), (child, middle)] {
        let spec = GroupSpec { parent: Some(parent), ..GroupSpec::capped(Rate::whole(80)) };
        before.put_group(at(0), id, spec).unwrap();
    }
    let terms = leased(before.renew(at(0), A, child, 1, &busy(), None));
    [child, middle].into_iter().for_each(|id| before.remove_group(at(0), id).unwrap());
    // Nothing of the group between is out but what counts for the one below it.
    let longest = before.config().longest_use(terms.ttl);
    assert_eq!(before.snapshot(at(0)).recoveries, [(GROUP, longest)]);
}

/// The groups of the property: two below one, of which one has a limit of its own.
const TREE: [GroupId; 3] = [GROUP, GroupId(3), GroupId(4)];

fn spec(place: usize, rate: Rate) -> GroupSpec {
    let parent = (place > 0).then_some(GROUP);
    GroupSpec { parent, ttl: Span::secs(5 + 3 * (place as u64 % 2)), ..GroupSpec::capped(rate) }
}

/// What counts, in every group: what its leases may be using, hold, and when they end, and what is left in the pool.
fn counted(engine: &Engine) -> Vec<String> {
    let of = |id: GroupId| {
        let view = engine.group_view(id).unwrap();
        let leases =
            engine.leases(id).map(|lease| (lease.client, lease.committed, lease.lump, lease.expires));
        let leases: Vec<_> = leases.collect();
        format!("{id:?}: {:?} {:?} {:?} {leases:?}", view.committed, view.held, view.pool)
    };
    TREE.map(of).to_vec()
}

/// One step: who renews what, with which demand, after how long; whether the answer arrives; the limit after it.
type Step = ((u64, usize), i64, u64, bool, Option<(usize, i64)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = (1_u64..=3, 0_usize..3);
    let limit = proptest::option::weighted(0.2, (0_usize..3, prop_oneof![Just(20_i64), Just(60), Just(100)]));
    let demand = prop_oneof![Just(0_i64), Just(15), Just(500)];
    let pause = prop_oneof![9 => 0_u64..400, 1 => 2_000_u64..9_000];
    vec((who, demand, pause, prop::bool::weighted(0.6), limit), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(192)
    })]

    /// Whenever the controller is stopped, and whatever answers are lost or on their way by then.
    #[test]
    fn a_clean_restart_counts_all_that_nodes_may_use_and_hold_until_the_same_ends(steps in steps()) {
        let mut engine = Engine::new(at(0), EngineConfig::default());
        let mut rates = [Rate::whole(100), Rate::whole(60), Rate::whole(100)];
        for (place, id) in TREE.into_iter().enumerate() {
            engine.put_group(at(0), id, spec(place, rates[place])).unwrap();
        }
        let mut now = Time(0);
        // The number of the newest renewal, and the terms that have arrived with their number.
        let mut nodes: BTreeMap<(u64, usize), (u64, u64, Held)> = BTreeMap::new();
        for ((client, place), demand, pause, arrives, limit) in steps {
            now = now.after(Span::millis(pause));
            let (seq, acked_seq, held) = nodes.entry((client, place)).or_default();
            *seq += 1;
            let backlog = Ru::whole(if demand > 100 { 30 } else { 0 });
            let waiting = u64::from(demand > 100);
            let demand = Rate::whole(demand);
            let ask =
                Ask { acked_seq: *acked_seq, held: *held, demand, backlog, head: backlog, waiting, ..Ask::default() };
            let answer = engine.renew(now, ClientId(client), TREE[place], *seq, &ask, None);
            if let (Some(Grant::Leased(terms)), true) = (answer, arrives) {
                (*acked_seq, *held) =
                    (*seq, Held { rate: terms.rate, cap: terms.cap, lump: held.lump + terms.lump });
            }
            if let Some((place, rate)) = limit {
                rates[place] = Rate::whole(rate);
                engine.put_group(now, TREE[place], spec(place, rates[place])).unwrap();
            }
            let saved = engine.snapshot(now);
            let mut again = Engine::new(now, EngineConfig::default());
            for (place, id) in TREE.into_iter().enumerate() {
                again.put_group(now, id, spec(place, rates[place])).unwrap();
            }
            again.restore(now, &saved);
            prop_assert_eq!(counted(&again), counted(&engine), "at {:?}", now);
        }
    }
}
