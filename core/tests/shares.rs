//! Shares of quotas at their edges: slow clocks, operations that never run, groups that are given up, grants that were
//! never applied, costs above a share, windows that open early. And words of a controller that a node must forget.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Allowance, Ask, Grant, LeaseTerms, Spending};
use tidegate_core::group::{ClientId, Fallback, GroupId, GroupSpec};
use tidegate_core::node::{Admitted, LeaseState, NodeConfig, NodeGroup, Refusal};
use tidegate_core::quota::{Opening, window_number};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

const GROUP: GroupId = GroupId(3);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn at(ms: u64) -> Time {
    Time(ms * 1_000)
}

fn ru(whole: i64) -> Ru {
    Ru::whole(whole)
}

/// A share of so much, of a window that ends in ten seconds.
fn share(window: u64, ceiling: i64) -> Allowance {
    let resets_in = Span::secs(10);
    Allowance {
        window,
        ceiling: ru(ceiling),
        amount: ru(100),
        left: ru(ceiling),
        resets_in,
        length: resets_in,
        rolls: false,
        ..Allowance::default()
    }
}

fn terms(allowance: Allowance) -> LeaseTerms {
    LeaseTerms {
        rate: Rate::whole(1_000),
        cap: ru(500),
        fill: ru(500),
        ttl: Span::secs(60),
        renew_after: Span::secs(1),
        max_fit: ru(500),
        allowance: Some(allowance),
        ..LeaseTerms::default()
    }
}

/// A node that asked at 0 ms and has this share.
fn node(config: NodeConfig, ceiling: i64) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), config);
    node.ask(at(0), 1);
    node.on_grant(at(1), 1, &Grant::Leased(terms(share(7, ceiling))));
    node
}

fn used(cost: i64) -> Consumption {
    Consumption { charged: RuParts::flat(ru(cost)), operations: 1, ..Consumption::default() }
}

#[test]
fn a_share_is_used_until_the_window_ends_on_the_slowest_clock() {
    for (drift_ppm, ends_ms) in [(0, 10_000), (1_000, 9_990), (50_000, 9_500)] {
        let mut node = node(NodeConfig { drift_ppm, ..NodeConfig::default() }, 100);
        assert!(node.try_acquire(at(ends_ms - 1), ru(1)).is_ok(), "{drift_ppm} ppm");
        assert!(node.try_acquire(at(ends_ms), ru(1)).is_err(), "{drift_ppm} ppm");
    }
}

#[test]
fn a_node_knows_what_is_left_by_the_renewal_that_was_answered_less_what_it_used_since() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    assert_eq!(node.state(at(0)).quota, None, "before any answer");
    let granted = |window, left| Allowance { left: ru(left), ..share(window, 50) };
    let answer = |node: &mut NodeGroup, ms, seq, allowance| {
        node.on_grant(at(ms), seq, &Grant::Leased(terms(allowance)));
        node.state(at(ms)).quota.map(|quota| quota.left)
    };
    node.ask(at(0), 1);
    assert_eq!(answer(&mut node, 1, 1, granted(7, 60)), Some(ru(60)));
    let running = node.try_acquire(at(2), ru(10)).unwrap();
    node.ask(at(3), 2);
    // Admitted before the answer, and nothing that the controller knew of.
    let late = node.try_acquire(at(4), ru(5)).unwrap();
    assert_eq!(node.state(at(4)).quota.unwrap().left, ru(45), "by the answer before");
    assert_eq!(answer(&mut node, 5, 2, granted(7, 30)), Some(ru(25)));
    node.settle(at(6), running.with(ru(10)), &used(12));
    node.give_back(at(6), Time(0), late.with(ru(5)));
    let known = node.state(at(6)).quota.unwrap();
    assert_eq!((known.amount, known.left, known.length), (ru(100), ru(28), Span::secs(10)));
    assert_eq!(known.resets_in, Span(9_987_000), "from when it asked, on the slowest clock");
    // What was used before a window began does not count in it, what is under way does.
    node.try_acquire(at(7), ru(3)).unwrap();
    node.ask(at(8), 3);
    assert_eq!(answer(&mut node, 9, 3, granted(8, 100)), Some(ru(97)));
    // Used beyond all, and beyond the window and the lease.
    node.charge(at(10), &used(200));
    assert_eq!(node.state(at(10)).quota.unwrap().left, Ru::ZERO);
    assert_eq!(node.state(at(10_100)).quota, None);
    node.ask(at(10_200), 4);
    let short = LeaseTerms { ttl: Span::secs(2), ..terms(granted(9, 100)) };
    node.on_grant(at(10_200), 4, &Grant::Leased(short));
    assert!(node.state(at(12_000)).quota.is_some());
    assert_eq!(node.state(at(12_200)).quota, None);
}

#[test]
fn a_share_holds_nobody_up_once_the_group_has_no_quota() {
    let mut node = node(NodeConfig::default(), 10);
    node.try_acquire(at(2), ru(10)).unwrap();
    assert!(matches!(node.try_acquire(at(3), ru(1)), Err(Refusal::QuotaUsedUp { .. })));
    node.ask(at(4), 2);
    let without = LeaseTerms { allowance: None, ..terms(share(7, 10)) };
    node.on_grant(at(5), 2, &Grant::Leased(without));
    assert_eq!(node.try_acquire(at(6), ru(400)), Ok(Admitted::Paid));
    assert_eq!(node.state(at(6)).quota, None);
}

#[test]
fn an_operation_that_never_ran_leaves_its_part_of_the_share() {
    let mut node = node(NodeConfig::default(), 5);
    for _ in 0..3 {
        let admitted = node.try_acquire(at(2), ru(5)).unwrap();
        assert!(node.try_acquire(at(2), ru(1)).is_err());
        node.give_back(at(3), Time(0), admitted.with(ru(5)));
    }
    let told = Spending { window: 7, used: Ru::ZERO, ceiling: ru(5), ..Spending::default() };
    assert_eq!(node.ask(at(4), 2).spending, told);
}

#[test]
fn a_node_takes_what_it_used_since_off_what_was_left() {
    let mut node = node(NodeConfig::default(), 10);
    let admitted = node.try_acquire(at(2), ru(8)).unwrap();
    node.settle(at(3), admitted.with(ru(8)), &used(8));
    let refused = node.try_acquire(at(4), ru(5)).unwrap_err();
    assert!(matches!(refused, Refusal::QuotaUsedUp { .. }), "{refused:?}");
}

#[test]
fn a_share_that_is_given_up_is_what_was_used() {
    let mut node = node(NodeConfig { idle_after: Span::secs(2), ..NodeConfig::default() }, 50);
    let admitted = node.try_acquire(at(2), ru(8)).unwrap();
    node.settle(at(3), admitted.with(ru(8)), &used(8));
    let ask = node.ask(at(3_000), 2);
    assert!(ask.gives_up());
    assert_eq!(ask.spending, Spending { window: 7, used: ru(8), ceiling: ru(8), ..Spending::default() });
}

/// A window of 100 RU of the group, with a mark that covers it.
fn open(engine: &mut Engine, now: Time, count: u32) {
    let ends = now.after(Span::secs(60));
    let number = window_number(GROUP, count);
    engine.open_quota(now, GROUP, &Opening { number, ends, durable: ru(100), ..Opening::default() });
}

fn engine() -> Engine {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let spec = GroupSpec { quota: Some(ru(100)), ..GroupSpec::capped(Rate::whole(1_000)) };
    engine.put_group(at(0), GROUP, spec).unwrap();
    open(&mut engine, at(0), 1);
    engine
}

/// The ceiling of the answer to a node that waits for an operation of this cost.
fn ceiling(engine: &mut Engine, now: Time, client: ClientId, seq: u64, ask: Ask) -> Ru {
    match engine.renew(now, client, GROUP, seq, &ask, None) {
        Some(Grant::Leased(LeaseTerms { allowance: Some(allowance), .. })) => allowance.ceiling,
        other => panic!("no share: {other:?}"),
    }
}

fn waits(cost: i64) -> Ask {
    Ask { demand: Rate::whole(cost), backlog: ru(cost), head: ru(cost), largest: ru(cost), ..Ask::default() }
}

fn spending(count: u32, used: i64, ceiling: Ru) -> Spending {
    Spending { window: window_number(GROUP, count), used: ru(used), ceiling, ..Spending::default() }
}

#[test]
fn a_share_that_never_came_is_free_at_once() {
    let mut engine = engine();
    assert!(ceiling(&mut engine, at(1), A, 1, waits(80)) >= ru(80));
    assert_eq!(ceiling(&mut engine, at(2), B, 1, waits(80)), Ru::ZERO);
    // A never applied the answer, and asks for less.
    let second = ceiling(&mut engine, at(3), A, 2, waits(10));
    let view = engine.quota_view(GROUP, at(3)).unwrap();
    assert!(second < ru(80) && view.granted == second, "{second}, {view:?}");
}

#[test]
fn what_operations_cost_above_a_share_is_missing_for_others() {
    let mut engine = engine();
    let first = ceiling(&mut engine, at(1), A, 1, waits(40));
    let said = Ask { acked_seq: 1, spending: spending(1, 70, first), ..waits(1) };
    ceiling(&mut engine, at(2), A, 2, said);
    let view = engine.quota_view(GROUP, at(2)).unwrap();
    assert!(view.used >= ru(70) && view.granted >= ru(70), "{view:?}");
    assert_eq!(ceiling(&mut engine, at(3), B, 1, waits(40)), Ru::ZERO);
}

#[test]
fn a_node_that_begins_to_count_again_may_have_used_all_of_its_share() {
    let mut engine = engine();
    let first = ceiling(&mut engine, at(1), A, 1, waits(40));
    let said = Ask { acked_seq: 1, spending: spending(1, 30, first), ..waits(1) };
    let second = ceiling(&mut engine, at(2), A, 2, said);
    assert!(second >= ru(30));
    // It has applied that answer, and says nothing of what it used.
    let third = ceiling(&mut engine, at(3), A, 3, Ask { acked_seq: 2, ..waits(1) });
    let view = engine.quota_view(GROUP, at(3)).unwrap();
    let most = first.max(second);
    assert_eq!((view.lost, view.used, view.unused), (most - ru(30), ru(30), third), "{view:?}");
    assert_eq!(view.granted, most + third);
}

/// What a node does, of three.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It asks, and waits for an operation of this cost; the answer comes, or is lost.
    Ask {
        node: usize,
        cost: i64,
        heard: bool,
    },
    Use(usize, i64),
    /// It begins to count again, when it has its answer.
    Forget(usize),
    Goodbye(usize),
    /// So many milliseconds pass.
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = || 0_usize..3;
    let ask = (node(), 1_i64..60, prop::bool::weighted(0.8));
    let step = prop_oneof![
        6 => ask.prop_map(|(node, cost, heard)| Step::Ask { node, cost, heard }),
        4 => (node(), 1_i64..60).prop_map(|(node, cost)| Step::Use(node, cost)),
        1 => node().prop_map(Step::Forget),
        1 => node().prop_map(Step::Goodbye),
        1 => prop_oneof![1_u64..3_000, 5_000_u64..30_000].prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

/// What a node counts, and the newest renewals that it sent and of which it has the answer.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    seq: u64,
    acked: u64,
    window: u64,
    used: Ru,
    ceiling: Ru,
}

struct Nodes {
    engine: Engine,
    now: Time,
    count: u32,
    ends: Time,
    nodes: [Counts; 3],
    /// What nodes used in the present window.
    used: Ru,
}

impl Nodes {
    fn step(&mut self, step: Step) {
        let window = window_number(GROUP, self.count);
        match step {
            Step::Ask { node, cost, heard } => self.ask(node, cost, heard),
            Step::Use(node, cost) => {
                let node = &mut self.nodes[node];
                let cost = ru(cost).min(node.ceiling - node.used).or_zero();
                node.used += cost;
                self.used += if node.window == window { cost } else { Ru::ZERO };
            }
            Step::Forget(node) => {
                let node = &mut self.nodes[node];
                if node.acked == node.seq {
                    (node.window, node.used, node.ceiling) = (0, Ru::ZERO, Ru::ZERO);
                }
            }
            Step::Goodbye(node) => self.engine.release(self.now, ClientId(node as u64 + 1)),
            Step::Pass(ms) => {
                self.now = self.now.after(Span::millis(ms));
                self.engine.expire(self.now);
            }
        }
        if self.now >= self.ends {
            (self.count, self.ends, self.used) = (self.count + 1, self.now.after(Span::secs(60)), Ru::ZERO);
            open(&mut self.engine, self.now, self.count);
            // A share is used until the end of its window.
            self.nodes.iter_mut().for_each(|node| node.ceiling = node.used);
        }
    }

    fn ask(&mut self, of: usize, cost: i64, heard: bool) {
        let node = &mut self.nodes[of];
        node.seq += 1;
        let spending = match node.window {
            0 => Spending::default(),
            window => Spending { window, used: node.used, ceiling: node.ceiling, ..Spending::default() },
        };
        let ask = Ask { acked_seq: node.acked, spending, ..waits(cost) };
        let answer = self.engine.renew(self.now, ClientId(of as u64 + 1), GROUP, node.seq, &ask, None);
        let Some(Grant::Leased(LeaseTerms { allowance: Some(allowance), .. })) = answer else {
            panic!("no share: {answer:?}")
        };
        if heard {
            let used = if node.window == allowance.window { node.used } else { Ru::ZERO };
            let Allowance { window, ceiling, .. } = allowance;
            *node = Counts { seq: node.seq, acked: node.seq, window, used, ceiling };
        }
    }

    /// What was used, and what nodes can still use by the shares that they have.
    fn used_or_usable(&self) -> Ru {
        let window = window_number(GROUP, self.count);
        let present = self.nodes.iter().filter(|node| node.window == window);
        self.used + present.map(|node| (node.ceiling - node.used).or_zero()).sum::<Ru>()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn what_nodes_used_and_may_still_use_is_granted_and_within_the_quota(steps in steps()) {
        let (now, nodes) = (at(0), [Counts::default(); 3]);
        let mut nodes =
            Nodes { engine: engine(), now, count: 1, ends: Time(60_000_000), nodes, used: Ru::ZERO };
        for step in steps {
            nodes.step(step);
            let view = nodes.engine.quota_view(GROUP, nodes.now).unwrap();
            let most = nodes.used_or_usable();
            prop_assert!(most <= view.granted && view.granted <= ru(100), "{most} after {step:?}: {view:?}");
        }
    }
}

#[test]
fn a_mark_counts_in_its_own_window_and_never_goes_back() {
    let mut engine = engine();
    let (number, ends) = (window_number(GROUP, 2), at(120_000));
    let opening = Opening { number, ends, durable: ru(10), ..Opening::default() };
    engine.open_quota(at(60_000), GROUP, &opening);
    for (window, mark, durable) in [(1, 90, 10), (2, 5, 10), (2, 30, 30), (3, 90, 30)] {
        engine.quota_durable(GROUP, window_number(GROUP, window), ru(mark), 0);
        let view = engine.quota_view(GROUP, at(60_000)).unwrap();
        assert_eq!(view.durable, ru(durable), "a mark of {mark} RU in window {window}");
    }
}

#[test]
fn a_window_that_opens_early_counts_what_nodes_still_have_of_the_one_before() {
    let mut engine = engine();
    let first = ceiling(&mut engine, at(1), A, 1, waits(80));
    open(&mut engine, at(1_000), 2);
    let view = engine.quota_view(GROUP, at(1_000)).unwrap();
    assert_eq!((view.granted, view.used), (first, first), "{view:?}");
    assert_eq!(ceiling(&mut engine, at(1_001), B, 1, waits(40)), Ru::ZERO);
}

#[test]
fn the_fallback_goes_with_the_group() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    node.ask(at(0), 1);
    let fallback = Fallback::Rate(Rate::whole(10));
    node.on_grant(at(1), 1, &Grant::Leased(LeaseTerms { fallback, ..terms(share(7, 50)) }));
    node.ask(at(1_000), 2);
    node.on_grant(at(1_001), 2, &Grant::UnknownGroup);
    node.ask(at(5_000), 3);
    node.on_grant(at(5_001), 3, &Grant::Recovering { ask_again: Span::secs(1), fallback: None });
    assert_eq!(node.state(at(5_001)).lease, LeaseState::Recovering);
    assert!(node.try_acquire(at(9_000), ru(1)).is_err());
}

#[test]
fn the_answer_to_a_group_that_is_given_up_says_how_it_is_enforced() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let spec = GroupSpec { shadow: true, ..GroupSpec::capped(Rate::whole(100)) };
    engine.put_group(at(0), GROUP, spec).unwrap();
    engine.renew(at(1), A, GROUP, 1, &waits(10), None);
    let given_up = Ask { acked_seq: 1, ..Ask::default() };
    let answer = engine.renew(at(2), A, GROUP, 2, &given_up, None);
    let Some(Grant::Leased(terms)) = answer else { panic!("{answer:?}") };
    assert!(terms.enforcement.shadow && terms.fallback == Fallback::Unlimited, "{terms:?}");
}
