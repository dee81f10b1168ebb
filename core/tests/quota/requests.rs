//! The same of quotas of requests: an operation counts when it begins, whatever it costs.

use tidegate_core::exchange::{Allowance, Ask, Enforcement, Grant, LeaseTerms, Spending};
use tidegate_core::node::{Admitted, Estimate, NodeConfig, NodeGroup, Passing, Refusal, Spent};
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

use super::seeds;
use super::world::{AMOUNT, CALM, Chances, ROUGH, World};

fn requests(seed: u64, nodes: usize, chance: Chances) -> World {
    World::of(Unit::Requests, seed, nodes, chance)
}

/// Now in bursts and now a little, each node in turn.
fn in_turns(now: Time, node: usize) -> u64 {
    if (now.0 / 3_000_000 + node as u64).is_multiple_of(3) { 500 } else { 50 }
}

#[test]
fn every_request_of_a_calm_window_can_begin_and_no_more() {
    for nodes in [1, 3, 8] {
        let mut world = requests(1, nodes, CALM);
        world.run(4, |_, _| 400);
        for (window, (begun, _)) in world.windows.iter().enumerate() {
            assert_eq!(*begun, AMOUNT, "{nodes} nodes, window {window}");
        }
    }
}

#[test]
fn no_window_begins_more_whatever_is_killed() {
    let seeds = seeds(8);
    let (mut begun, mut left) = (0, 0);
    for seed in 0..seeds {
        let mut world = requests(seed.into(), 8, Chances { cancels: 5, ..ROUGH });
        world.run(3, in_turns);
        for (window, (settled, unused)) in world.windows.iter().enumerate() {
            assert!(*settled <= AMOUNT, "seed {seed}, window {window}: {settled} of {AMOUNT}");
            (begun, left) = (begun + settled.0, left + unused.0);
        }
    }
    // What nodes and controllers that are gone held is lost until the next window; all else has begun.
    let whole = AMOUNT.0 * 3 * i64::from(seeds);
    println!("of {whole}: begun {begun}, left {left}");
    assert!(left * 1_000 <= whole * 5, "of {whole}: left {left}");
    assert!(begun * 100 >= whole * 95, "of {whole}: begun {begun}");
}

/// A node with a share of `ceiling` requests of the window with this number.
fn leased(node: &mut NodeGroup, at: Time, window: u64, ceiling: i64) -> Ask {
    let seq = at.0;
    let ask = node.ask(at, seq);
    let allowance = Allowance {
        window,
        unit: Unit::Requests,
        ceiling: Ru::whole(ceiling),
        amount: Ru::whole(10),
        left: Ru::whole(ceiling) - ask.spending.used,
        resets_in: Span::secs(100),
        length: Span::secs(100),
        rolls: false,
    };
    let terms = LeaseTerms {
        rate: Rate::whole(1_000),
        cap: Ru::whole(1_000),
        fill: Ru::whole(1_000),
        ttl: Span::secs(60),
        renew_after: Span::secs(20),
        max_fit: Ru::whole(1_000),
        allowance: Some(allowance),
        ..LeaseTerms::default()
    };
    node.on_grant(at, seq, &Grant::Leased(terms));
    ask
}

fn at(millis: u64) -> Time {
    Time(millis * 1_000)
}

fn node() -> NodeGroup {
    NodeGroup::new(at(0), NodeConfig::default())
}

fn used(node: &mut NodeGroup, millis: u64) -> Ru {
    node.ask(at(millis), at(millis).0).spending.used
}

#[test]
fn an_operation_is_one_request_whatever_it_costs() {
    let mut node = node();
    leased(&mut node, at(1), 7, 3);
    for (millis, cost) in [(2, 0), (3, 5), (4, 800)] {
        assert_eq!(node.try_acquire(at(millis), Ru::whole(cost)), Ok(Admitted::Paid));
    }
    // What they cost in the end, and what was used without admission, is none.
    let dear = Consumption { charged: RuParts::flat(Ru::whole(9)), operations: 1, ..Consumption::default() };
    node.settle(at(5), Ru::ZERO, &dear);
    node.charge(at(5), &dear);
    node.settle(at(5), Ru::whole(5), &Consumption::default());
    assert_eq!(used(&mut node, 6), Ru::whole(3));
    let quota = node.state(at(6)).quota.unwrap();
    assert_eq!((quota.unit, quota.amount, quota.left), (Unit::Requests, Ru::whole(10), Ru::ZERO));
    let refused = node.try_acquire(at(7), Ru::ZERO).unwrap_err();
    assert!(matches!(refused, Refusal::QuotaUsedUp { unit: Unit::Requests, .. }), "{refused:?}");
    // The last of the quota can begin.
    leased(&mut node, at(8), 7, 4);
    assert_eq!(node.try_acquire(at(9), Ru::ZERO), Ok(Admitted::Paid));
}

#[test]
fn what_never_ran_comes_back_to_the_window_in_which_it_began() {
    let mut node = node();
    leased(&mut node, at(1), 7, 3);
    for millis in 2..5 {
        node.try_acquire(at(millis), Ru::whole(1)).unwrap();
    }
    node.give_back(at(5), at(4), Ru::whole(1));
    assert_eq!(used(&mut node, 6), Ru::whole(2));
    // The next window: nothing of the one before comes back into it, and nothing of its own is missing.
    leased(&mut node, at(7), 8, 3);
    assert_eq!(used(&mut node, 8), Ru::ZERO);
    node.try_acquire(at(9), Ru::whole(1)).unwrap();
    node.give_back(at(10), at(3), Ru::whole(1));
    assert_eq!(used(&mut node, 11), Ru::whole(1));
    // It may have begun before the share came.
    node.give_back(at(12), at(7), Ru::whole(1));
    assert_eq!(used(&mut node, 13), Ru::whole(1));
    node.give_back(at(14), at(9), Ru::whole(1));
    assert_eq!(used(&mut node, 15), Ru::ZERO);
}

#[test]
fn in_shadow_what_runs_counts_too() {
    let mut node = node();
    leased(&mut node, at(1), 7, 1);
    let shadow = |node: &mut NodeGroup, millis: u64| {
        let ask = node.ask(at(millis), at(millis).0);
        let enforcement = Enforcement { shadow: true, paced: false };
        let allowance = Allowance {
            window: 7,
            unit: Unit::Requests,
            ceiling: Ru::whole(1),
            amount: Ru::whole(10),
            resets_in: Span::secs(100),
            ..Allowance::default()
        };
        let terms = LeaseTerms {
            ttl: Span::secs(60),
            renew_after: Span::secs(20),
            max_fit: Ru::whole(1_000),
            enforcement,
            allowance: Some(allowance),
            ..LeaseTerms::default()
        };
        node.on_grant(at(millis), at(millis).0, &Grant::Leased(terms));
        ask
    };
    shadow(&mut node, 2);
    assert_eq!(node.try_acquire(at(3), Ru::ZERO), Ok(Admitted::Paid));
    for millis in 4..7 {
        assert_eq!(node.try_acquire(at(millis), Ru::ZERO), Ok(Admitted::Over));
    }
    assert_eq!(used(&mut node, 8), Ru::whole(4));
    node.give_back(at(9), at(5), Estimate::Over(Ru::ZERO));
    assert_eq!(used(&mut node, 10), Ru::whole(3));
}

/// Nobody pays for them, so no demand of RU says that they are there.
#[test]
fn operations_that_cost_nothing_get_shares_and_no_more_than_those() {
    let mut world = requests(1, 4, CALM);
    world.free = true;
    world.run(2, |_, _| 400);
    for (window, (begun, _)) in world.windows.iter().enumerate() {
        assert_eq!(*begun, AMOUNT, "window {window}");
    }
}

#[test]
fn a_node_with_requests_to_begin_has_not_given_up_whatever_they_cost() {
    let spending = Spending { window: 7, unit: Unit::Requests, ..Spending::default() };
    let idle = Ask { acked_seq: 1, spending, ..Ask::default() };
    assert!(idle.gives_up());
    assert!(!Ask { waiting: 1, ..idle }.gives_up());
    let offered = Spending { offered: Rate(1), ..spending };
    assert!(!Ask { spending: offered, ..idle }.gives_up());
}

#[test]
fn the_last_request_can_begin_so_a_quota_is_spent_without_it() {
    for (taken, is_spent) in [(0, false), (99, false), (100, true), (101, true)] {
        assert_eq!(Unit::Requests.is_spent(Ru::whole(taken), Ru::whole(100)), is_spent, "{taken}");
    }
    // The last of RU is less than an operation costs.
    assert!(Unit::Ru.is_spent(Ru::whole(99), Ru::whole(100)));
}

/// A thread that may begin so many operations begins no more, and those that it did not begin are there again.
#[test]
fn threads_are_lent_operations() {
    let mut node = node();
    leased(&mut node, at(1), 7, 100);
    let batch = node.draw(at(2), Ru::ZERO).unwrap();
    assert_eq!(batch.operations, 25);
    let part =
        Spent { drawn: batch.tokens, left: batch.tokens, operations: 25, begun: 5, ..Spent::default() };
    node.put_back(at(3), &part);
    assert_eq!(used(&mut node, 4), Ru::whole(5));
    // 95 are left, of which threads hold so many.
    let out: Vec<_> = std::iter::from_fn(|| node.draw(at(5), Ru::ZERO)).collect();
    let lent = out.iter().map(|batch| batch.operations).collect::<Vec<_>>();
    assert_eq!(lent, [23, 18], "a quarter of what is left each time, and sixteen or none");
    let refused = (0..100).filter(|_| node.try_acquire(at(6), Ru::ZERO).is_err()).count();
    assert_eq!(refused, 100 - (95 - 23 - 18));
}

/// An operation that goes on in another group asked here, so the share follows it, too.
#[test]
fn operations_that_go_on_elsewhere_count_as_offered() {
    let mut node = node();
    leased(&mut node, at(1), 7, 5);
    for millis in (100..1_000).step_by(100) {
        Passing(&mut node).pass_on(at(millis), Ru::whole(1));
    }
    let offered = node.ask(at(1_000), at(1_000).0).spending.offered;
    assert!(offered > Rate::whole(5), "{offered}");
}

/// What was charged before a quota counts RU is no part of what is used of it.
#[test]
fn a_quota_that_counts_ru_from_now_on_begins_with_none_used() {
    let mut node = node();
    leased(&mut node, at(1), 7, 5);
    let charged = RuParts::flat(Ru::whole(50));
    node.charge(at(10), &Consumption { charged, operations: 1, ..Consumption::default() });
    let (seq, ceiling) = (at(20).0, Ru::whole(40));
    node.ask(at(20), seq);
    let allowance = Allowance { window: 8, ceiling, resets_in: Span::secs(100), ..Allowance::default() };
    let terms = LeaseTerms { ttl: Span::secs(60), allowance: Some(allowance), ..LeaseTerms::default() };
    node.on_grant(at(20), seq, &Grant::Leased(terms));
    let spending = node.ask(at(30), at(30).0).spending;
    assert_eq!((spending.window, spending.used), (8, Ru::ZERO));
}

/// The end of a window is one reason to ask, and a controller that is late to open the next is asked as ever after it.
#[test]
fn the_end_of_a_window_is_asked_for_once() {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    let answer = |node: &mut NodeGroup, at: Time, resets_in| {
        let allowance = Allowance { window: 7, resets_in, ..Allowance::default() };
        let (ttl, renew_after) = (Span::secs(60), Span::secs(20));
        let terms = LeaseTerms { ttl, renew_after, allowance: Some(allowance), ..LeaseTerms::default() };
        node.ask(at, at.0 + 1);
        node.on_grant(at, at.0 + 1, &Grant::Leased(terms));
    };
    answer(&mut node, at(0), Span::secs(2));
    assert_eq!(node.due(at(100)), Some(at(2_000)));
    answer(&mut node, at(2_000), Span(0));
    assert_eq!(node.due(at(2_100)), Some(at(22_000)));
}
