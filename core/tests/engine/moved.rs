//! Groups that move, or are removed, while others are below them or wait in them: one rule a test. Times are in
//! milliseconds, rates and amounts in whole RU.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use tidegate_core::GroupError;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru};

use super::{A, B, GROUP, at, engine, leased, wants};

fn below(parent: u32) -> GroupSpec {
    GroupSpec { parent: Some(GroupId(parent)), ..GroupSpec::unlimited() }
}

#[test]
fn a_group_with_groups_below_it_is_not_moved_where_those_would_be_too_deep() {
    let mut engine = engine();
    for id in 3..8 {
        engine.put_group(at(0), GroupId(id), below(id - 1)).unwrap();
    }
    engine.put_group(at(0), GroupId(20), GroupSpec::unlimited()).unwrap();
    engine.put_group(at(0), GroupId(21), below(20)).unwrap();
    engine.put_group(at(0), GroupId(22), below(21)).unwrap();
    assert_eq!(engine.put_group(at(0), GroupId(20), below(7)), Err(GroupError::TooDeep(GroupId(20))));
    assert_eq!(engine.put_group(at(0), GroupId(20), below(6)), Ok(()));
}

#[test]
fn removed_groups_count_as_levels_until_their_leases_end() {
    let mut engine = engine();
    engine.put_group(at(0), GroupId(3), below(2)).unwrap();
    engine.put_group(at(0), GroupId(4), below(3)).unwrap();
    leased(engine.renew(at(0), A, GroupId(4), 1, &wants(50), None));
    assert_eq!(engine.removed_below(GROUP), 0);
    for id in [4, 3] {
        engine.remove_group(at(10), GroupId(id)).unwrap();
    }
    assert_eq!(engine.removed_below(GROUP), 2);
    engine.expire(at(6_000));
    assert_eq!(engine.removed_below(GROUP), 0);
}

#[test]
fn a_group_that_moves_takes_nothing_of_what_its_new_parent_had_saved_before() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let (parent, mover) = (GroupId(2), GroupId(3));
    let saves = GroupSpec { burst: Some(Ru::whole(1_000)), ..GroupSpec::capped(Rate::whole(100)) };
    engine.put_group(at(0), parent, saves).unwrap();
    engine.put_group(at(0), mover, GroupSpec::capped(Rate::whole(100))).unwrap();
    let large = |ru| Ask { head: Ru::whole(ru), backlog: Ru::whole(ru), waiting: 1, ..Ask::default() };
    assert_eq!(leased(engine.renew(at(0), A, parent, 1, &large(1_000), None)).lump, Ru::whole(1_000));
    engine.release(at(10), A);
    // The mover has leased as much as the parent has a second, elsewhere, until now.
    leased(engine.renew(at(9_000), B, mover, 1, &wants(100), None));
    engine
        .put_group(at(10_000), mover, GroupSpec { parent: Some(parent), ..GroupSpec::unlimited() })
        .unwrap();
    assert_eq!(leased(engine.renew(at(10_010), A, parent, 2, &large(900), None)).lump, Ru::whole(900));
}

#[test]
fn who_waits_in_a_group_that_moves_away_holds_nobody_back_where_it_was() {
    let mut engine = engine();
    let mover = GroupId(3);
    engine
        .put_group(at(0), mover, GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(10)) })
        .unwrap();
    let large = |ru| Ask { head: Ru::whole(ru), backlog: Ru::whole(ru), waiting: 1, ..Ask::default() };
    // One operation takes all that the child has, and another waits.
    assert_eq!(leased(engine.renew(at(0), ClientId(3), mover, 1, &large(10), None)).lump, Ru::whole(10));
    leased(engine.renew(at(0), A, mover, 1, &large(9), None));
    let seen = |engine: &mut Engine, ms| {
        let terms = leased(engine.renew(at(ms), B, GROUP, ms, &wants(5), None));
        (terms.scarce, terms.lump_wanted)
    };
    assert_eq!(seen(&mut engine, 10), (true, true));
    engine.put_group(at(20), mover, GroupSpec::capped(Rate::whole(10))).unwrap();
    assert_eq!(seen(&mut engine, 30), (false, false));
    // Where it is now, it is waited for.
    let there = leased(engine.renew(at(40), B, mover, 1, &wants(5), None));
    assert!(there.scarce && there.lump_wanted);
}

#[test]
fn who_waits_in_a_group_that_is_removed_holds_nobody_back_in_those_above() {
    let mut engine = engine();
    let removed = GroupId(3);
    let small = GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(10)) };
    engine.put_group(at(0), removed, small).unwrap();
    let large = |ru| Ask { head: Ru::whole(ru), backlog: Ru::whole(ru), waiting: 1, ..Ask::default() };
    assert_eq!(leased(engine.renew(at(0), ClientId(3), removed, 1, &large(10), None)).lump, Ru::whole(10));
    leased(engine.renew(at(0), A, removed, 1, &large(9), None));
    let view = |engine: &Engine| engine.group_view(GROUP).unwrap();
    assert_eq!(view(&engine).demand, Rate::whole(10));
    engine.take_lowers();
    engine.remove_group(at(10), removed).unwrap();
    // Each that holds something is ordered to stop, and what they hold counts until they have heard of that.
    let stops = engine.take_lowers().into_iter().map(|order| (order.client, order.group, order.rate_at_most));
    let all = [ClientId(3), A].map(|client| (client, removed, Rate::ZERO));
    assert_eq!(stops.collect::<BTreeSet<_>>(), BTreeSet::from(all));
    assert_eq!((view(&engine).demand, view(&engine).held >= Ru::whole(10)), (Rate::ZERO, true));
    let other = leased(engine.renew(at(20), B, GROUP, 1, &wants(5), None));
    assert_eq!((other.scarce, other.lump_wanted), (false, false));
}

#[test]
fn what_a_group_without_a_limit_wants_is_known_while_others_come_and_go() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let groups = [GroupId(2), GroupId(3)];
    for (client, group) in [A, B].into_iter().zip(groups) {
        engine.put_group(at(0), group, GroupSpec::unlimited()).unwrap();
        let grant = engine.renew(at(0), client, group, 1, &wants(10), None);
        assert!(matches!(grant, Some(Grant::Unlimited { .. })), "{grant:?}");
    }
    let wanted = |engine: &Engine| engine.group_view(GroupId::ROOT).unwrap().demand;
    let each = wanted(&engine).scale(1, 2);
    engine.release(at(10), B);
    assert_eq!((wanted(&engine), each), (each, Rate::whole(20)));
}

#[test]
fn engines_hash_alike_only_while_they_are_in_the_same_state() {
    let hash = |engine: &Engine| {
        let mut hasher = DefaultHasher::new();
        engine.hash(&mut hasher);
        hasher.finish()
    };
    let (mut one, mut other) = (engine(), engine());
    // The order in which groups came says nothing about them.
    for (engine, ids) in [(&mut one, [3, 4]), (&mut other, [4, 3])] {
        for id in ids {
            engine.put_group(at(0), GroupId(id), below(2)).unwrap();
        }
    }
    assert_eq!(hash(&one), hash(&other));
    other.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(99))).unwrap();
    assert_ne!(hash(&one), hash(&other));
}

#[test]
fn who_asked_while_there_was_no_limit_waits_behind_those_who_never_stopped_waiting() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let limited = GroupSpec { burst: Some(Ru::whole(100)), ..GroupSpec::capped(Rate::whole(10)) };
    let large = |ru| Ask { head: Ru::whole(ru), backlog: Ru::whole(ru), waiting: 1, ..Ask::default() };
    engine.put_group(at(0), GROUP, limited.clone()).unwrap();
    assert_eq!(leased(engine.renew(at(0), ClientId(3), GROUP, 1, &large(100), None)).lump, Ru::whole(100));
    let lump = |engine: &mut Engine, ms, client| {
        leased(engine.renew(at(ms), client, GROUP, ms, &large(80), None)).lump
    };
    assert_eq!((lump(&mut engine, 100, A), lump(&mut engine, 200, B)), (Ru::ZERO, Ru::ZERO));
    engine.put_group(at(300), GROUP, GroupSpec::unlimited()).unwrap();
    assert!(matches!(engine.renew(at(310), A, GROUP, 310, &large(80), None), Some(Grant::Unlimited { .. })));
    engine.put_group(at(400), GROUP, limited).unwrap();
    assert_eq!((lump(&mut engine, 410, A), lump(&mut engine, 420, B)), (Ru::ZERO, Ru::ZERO));
    let first = (1..20).find_map(|second| {
        let got = [A, B].map(|client| lump(&mut engine, 1_000 * second + client.0, client));
        got.iter().any(|lump| lump.is_positive()).then_some(got)
    });
    assert_eq!(first, Some([Ru::ZERO, Ru::whole(80)]));
}
