//! The same of windows that roll: a plain log of all charges has at most the quota in any interval of their length.

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Allowance, Ask, Grant, LeaseTerms, Spending};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::node::{Admitted, NodeConfig, NodeGroup, Refusal};
use tidegate_core::quota::{CELLS, Opening, QuotaView, Unit, window_number};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

use super::seeds;
use super::world::{AMOUNT, CALM, Chances, ROUGH, STEP, World};

const MINUTE: Span = Span::secs(60);
const CELL: Span = Span::secs(1);

/// The most that any interval of this length has, both ends included.
fn worst(charges: &[(Time, Ru)], length: Span) -> Ru {
    let mut log = charges.to_vec();
    log.sort_by_key(|(at, _)| *at);
    let (mut sum, mut worst, mut first) = (Ru::ZERO, Ru::ZERO, 0);
    for (index, (at, amount)) in log.iter().enumerate() {
        sum += *amount;
        while log[first].0.after(length) < *at {
            sum -= log[first].1;
            first += 1;
        }
        // What is of the same moment is all in or all out.
        if log.get(index + 1).is_none_or(|(next, _)| next > at) {
            worst = worst.max(sum);
        }
    }
    worst
}

/// What is left just before something returns, each second from the first used up on: the worst, and the sum of all.
#[derive(Default)]
struct Left {
    sum: i64,
    times: i64,
}

/// Runs for so many seconds.
fn run(world: &mut World, seconds: u64, demand: impl Fn(Time, usize) -> u64) -> Left {
    let (mut left, end) = (Left::default(), world.now.after(Span::secs(seconds)));
    let mut used_up = false;
    while world.now < end {
        world.now = world.now.after(STEP);
        world.pass(&demand);
        // Just before a cell leaves.
        if world.now.after(STEP).0.is_multiple_of(CELL.0) {
            let view = world.view();
            used_up |= view.left < AMOUNT.scale(1, 100);
            if used_up {
                (left.sum, left.times) = (left.sum + view.left.0, left.times + 1);
            }
        }
    }
    left
}

fn in_turns(now: Time, node: usize) -> u64 {
    if (now.0 / 3_000_000 + node as u64).is_multiple_of(3) { 500 } else { 50 }
}

#[test]
fn a_plain_log_finds_the_worst_interval() {
    let at = |secs: u64, ru| (Time(secs * 1_000_000), Ru::whole(ru));
    let log = [at(0, 5), at(30, 2), at(60, 4), at(61, 1), at(30, -1)];
    assert_eq!(worst(&log, MINUTE), Ru::whole(10));
    assert_eq!(worst(&log, Span::secs(59)), Ru::whole(6));
}

#[test]
fn a_calm_window_that_rolls_is_used_up_again_and_again_and_no_more() {
    for unit in [Unit::Ru, Unit::Requests] {
        for nodes in [1, 3, 8] {
            let mut world = World::rolling(unit, 1, nodes, CALM);
            let left = run(&mut world, 240, |_, _| 400);
            let most = worst(&world.charges, MINUTE);
            assert!(most <= AMOUNT, "{nodes} nodes: {most} of {AMOUNT}");
            assert!(most >= AMOUNT.scale(995, 1_000), "{nodes} nodes: {most}");
            // From the first use on, what leaves comes back; by the cell, and as late as reports are.
            let all: i64 = world.charges.iter().map(|(_, amount)| amount.0).sum();
            println!("{unit:?} {nodes}: {} of {}, left {}/{}", all, AMOUNT.0 * 4, left.sum, left.times);
            assert!(all * 100 >= AMOUNT.0 * 4 * 95, "{nodes} nodes: {all}");
            assert!(left.sum * 200 <= AMOUNT.0 * left.times, "{nodes} nodes: {} in {}", left.sum, left.times);
        }
    }
}

#[test]
fn no_interval_has_more_whatever_is_killed() {
    let (mut sum, mut times) = (0, 0);
    for seed in 0..u64::from(seeds(12)) {
        let unit = if seed % 2 == 0 { Unit::Ru } else { Unit::Requests };
        let batches = if seed % 4 < 2 { 0 } else { 50 };
        let mut world = World::rolling(unit, seed, 8, Chances { cancels: 5, batches, ..ROUGH });
        let left = run(&mut world, 200, in_turns);
        let most = worst(&world.charges, MINUTE);
        assert!(most <= AMOUNT, "seed {seed}, {unit:?}: {most} of {AMOUNT}");
        (sum, times) = (sum + left.sum, times + left.times);
    }
    println!("left {sum} in {times}: {} millionths", sum / times.max(1) * 1_000_000 / AMOUNT.0);
    // Mostly shares of nodes whose messages are lost or which are cut off; recoveries add little (docs/limiters.md).
    assert!(sum * 1_000 <= AMOUNT.0 * times * 15, "{sum} in {times}");
}

/// Lets nothing begin until all that was used has left; then nodes take shares, all but one are not heard any more and go
/// on with what they hold, and the length is changed: in a third of the cases a second time while they do.
fn change_length(world: &mut World, change: u64) {
    run(world, world.length.0 / 1_000_000 + 20, |_, _| 0);
    run(world, 1, |_, _| 100);
    let until = world.now.after(Span::secs(8));
    world.nodes.iter_mut().skip(1).for_each(|node| node.cut_off_until = until);
    world.change_length(Span::secs(20 + 20 * (change % 3)));
    if change % 3 == 2 {
        run(world, 1, |_, _| 100);
        world.change_length(Span::secs(20));
    }
}

#[test]
fn no_interval_since_a_change_of_the_length_has_more() {
    for seed in 0..u64::from(seeds(12)) {
        let unit = if seed % 2 == 0 { Unit::Ru } else { Unit::Requests };
        let mut world = World::rolling(unit, seed, 8, Chances { cancels: 5, batches: 20, ..ROUGH });
        for change in 0..6 {
            change_length(&mut world, change);
            run(&mut world, 50, |_, _| 500);
            let most = worst(&world.charges, world.length);
            assert!(most <= AMOUNT, "seed {seed}, {unit:?}, change {change}: {most} of {AMOUNT}");
        }
    }
}

const GROUP: GroupId = GroupId(3);

fn ru(number: i64) -> Ru {
    Ru::whole(number)
}

fn secs(number: u64) -> Time {
    Time(number * 1_000_000)
}

/// A quota of 100 RU per minute that rolls, all of it on disk, which nodes may use at once.
fn engine() -> Engine {
    let mut engine = Engine::new(Time(0), EngineConfig::default());
    let spec = GroupSpec { quota: Some(ru(100)), ..GroupSpec::capped(Rate::whole(1_000)) };
    engine.put_group(Time(0), GROUP, spec).unwrap();
    let number = window_number(GROUP, 1);
    let opening = Opening { number, length: MINUTE, durable: Ru::MAX, rolls: true, ..Opening::default() };
    engine.open_quota(Time(0), GROUP, &opening);
    engine
}

/// A renewal that says so much was used, of which so much runs, and wants more.
fn renews(engine: &mut Engine, at: Time, client: u64, seq: u64, told: Option<(Ru, Ru, Ru)>) -> Allowance {
    let number = window_number(GROUP, 1);
    let spending = told.map_or(Spending::default(), |(used, ceiling, running)| Spending {
        window: number,
        used,
        ceiling,
        running,
        ..Spending::default()
    });
    let ask = Ask { acked_seq: seq - 1, demand: Rate::whole(20), largest: ru(1), spending, ..Ask::default() };
    let Some(Grant::Leased(terms)) = engine.renew(at, ClientId(client), GROUP, seq, &ask, Some(ask.held))
    else {
        panic!()
    };
    terms.allowance.unwrap()
}

fn view(engine: &mut Engine, at: Time) -> QuotaView {
    engine.expire(at);
    engine.check().unwrap();
    engine.quota_view(GROUP, at).unwrap()
}

#[test]
fn what_runs_is_held_and_is_charged_when_it_is_heard_to_have_ended() {
    let mut engine = engine();
    let share = renews(&mut engine, secs(0), 1, 1, None).ceiling;
    assert!(share >= ru(10), "{share}");
    // 10 were begun, of which 6 run for half a minute, renewed all the while.
    for second in 1..=30 {
        renews(&mut engine, secs(second), 1, second + 1, Some((ru(10), share, ru(6))));
    }
    renews(&mut engine, secs(31), 1, 32, Some((ru(10), ru(10), ru(0))));
    assert_eq!(engine.quota_cells(GROUP, secs(31)), [(Span::secs(31), ru(4)), (Span::secs(61), ru(6))]);
    for second in 32..=92 {
        renews(&mut engine, secs(second), 1, second + 1, Some((ru(10), ru(10), ru(0))));
        let used = if second < 62 {
            10
        } else if second < 92 {
            6
        } else {
            0
        };
        assert_eq!(view(&mut engine, secs(second)).used, ru(used), "at {second} s");
    }
}

#[test]
fn what_a_node_that_is_gone_held_is_lost_for_a_window_and_never_comes_back_before() {
    let mut engine = engine();
    let share = renews(&mut engine, secs(0), 1, 1, None).ceiling;
    let ends = engine.next_expiry().unwrap();
    let gone = view(&mut engine, ends);
    assert_eq!((gone.lost, gone.used, gone.unused), (share, ru(0), ru(0)));
    // It returns, and shows what it has not used: all of it may count as lost by another by now.
    let later = ends.after(Span::secs(5));
    renews(&mut engine, later, 1, 2, Some((ru(2), share, ru(1))));
    let back = view(&mut engine, later);
    assert_eq!((back.lost, back.used), (share, ru(1)), "what runs is held");
    // Renewed, so that nothing else is lost.
    for second in 1..=60 {
        let at = later.after(Span::secs(second));
        renews(&mut engine, at, 1, second + 2, Some((ru(2), ru(2), ru(0))));
        let lost = view(&mut engine, at).lost;
        let late = at.since(ends);
        assert!(late > MINUTE || lost == share, "{late}: {lost}");
        assert!(late < Span::secs(61) || lost == ru(0), "{late}: {lost}");
    }
}

#[test]
fn a_used_up_quota_says_when_something_returns() {
    let mut engine = engine();
    let mut seq = 0;
    let mut used = ru(0);
    let mut share = Allowance::default();
    // 1 RU in the first second, all that is left in the tenth.
    for second in [0, 1, 10, 11, 12, 13, 14, 15] {
        seq += 1;
        let told = (seq > 1).then_some((used, share.ceiling, ru(0)));
        share = renews(&mut engine, secs(second), 1, seq, told);
        used = if second < 10 { ru(1) } else { share.ceiling };
    }
    let told = Some((used, used, ru(0)));
    let Allowance { rolls, length, resets_in, .. } = renews(&mut engine, secs(16), 1, seq + 1, told);
    assert_eq!(
        (rolls, length, resets_in),
        (true, MINUTE, Span::secs(46)),
        "what was heard of at 1 s leaves at 62 s"
    );
    let view = view(&mut engine, secs(16));
    assert_eq!((view.resets_in, view.rolls), (Span::secs(46), true));
}

#[test]
fn an_unused_quota_returns_what_is_used_now_after_a_window() {
    let mut engine = engine();
    assert_eq!(view(&mut engine, Time(1_500_000)).resets_in, Span(60_500_000));
}

#[test]
fn a_mark_counts_for_less_when_something_left_while_it_was_stored() {
    let mut engine = engine();
    let number = window_number(GROUP, 2);
    let opening = Opening {
        number,
        length: MINUTE,
        granted: ru(30),
        durable: ru(30),
        rolls: true,
        ..Opening::default()
    };
    engine.open_quota(Time(0), GROUP, &opening);
    let before = view(&mut engine, Time(60_500_000));
    let mark = before.mark().unwrap();
    let later = Time(61_500_000);
    renews(&mut engine, later, 1, 1, None);
    engine.quota_durable(GROUP, number, mark, before.gone);
    let after = view(&mut engine, later);
    assert_eq!((after.gone, after.durable), (before.gone + 30_000_000, mark - ru(30)));
}

#[test]
fn another_window_loses_what_nodes_hold_of_the_one_before_when_their_leases_end() {
    let mut engine = engine();
    let share = renews(&mut engine, secs(0), 1, 1, None).ceiling;
    let (number, length) = (window_number(GROUP, 2), Span::secs(3_600));
    let opening = Opening { number, length, durable: Ru::MAX, rolls: true, ..Opening::default() };
    engine.open_quota(secs(1), GROUP, &opening);
    let next = view(&mut engine, secs(1));
    assert_eq!((next.window, next.used, next.unused, next.lost), (number, ru(0), ru(0), share));
    assert_eq!(engine.quota_cells(GROUP, secs(1)), []);
    let end = engine.next_expiry().unwrap();
    let cells = engine.quota_cells(GROUP, end);
    assert_eq!(cells.iter().map(|(_, amount)| *amount).collect::<Vec<_>>(), [share]);
    assert!(cells.iter().all(|(leaves_in, _)| leaves_in.0 > 3_600_000_000), "{cells:?}");
}

#[test]
fn what_nodes_hold_of_a_window_counts_in_all_that_open_before_their_leases_end() {
    for rolls in [false, true] {
        let mut engine = engine();
        let share = renews(&mut engine, secs(0), 1, 1, None).ceiling;
        let (end, length) = (engine.next_expiry().unwrap(), Span::secs(3_600));
        let mut open = |at: Time, count| {
            let (number, ends) = (window_number(GROUP, count), at.after(length));
            let opening = Opening { number, ends, length, durable: Ru::MAX, rolls, ..Opening::default() };
            engine.open_quota(at, GROUP, &opening);
            view(&mut engine, at)
        };
        // Nobody has a share of these: when what the node holds ends is known from the windows before alone.
        for count in 2..=4 {
            let next = open(Time(u64::from(count)), count);
            assert_eq!((next.granted, next.left), (share, ru(100) - share), "window {count}, rolls: {rolls}");
        }
        let late = open(end, 5);
        assert_eq!((late.granted, late.left), (ru(0), ru(100)), "rolls: {rolls}");
    }
}

/// A node with a lease and a share of a window that rolls.
fn leased(node: &mut NodeGroup, at: Time, unit: Unit, ceiling: Ru, left: Ru) -> Ask {
    let seq = at.0;
    let ask = node.ask(at, seq);
    let allowance = Allowance {
        window: 7,
        unit,
        ceiling,
        amount: Ru::MAX,
        left,
        resets_in: Span::secs(2),
        length: MINUTE,
        rolls: true,
    };
    let terms = LeaseTerms {
        rate: Rate::MAX,
        cap: Ru::MAX,
        fill: Ru::MAX,
        ttl: MINUTE,
        renew_after: Span::secs(20),
        max_fit: Ru::MAX,
        allowance: Some(allowance),
        ..LeaseTerms::default()
    };
    node.on_grant(at, seq, &Grant::Leased(terms));
    ask
}

fn node() -> NodeGroup {
    NodeGroup::new(Time(0), NodeConfig::default())
}

#[test]
fn a_share_ends_with_the_lease_and_a_refusal_when_something_returns() {
    let mut node = node();
    leased(&mut node, secs(1), Unit::Ru, ru(5), ru(5));
    assert_eq!(node.try_acquire(secs(9), ru(5)), Ok(Admitted::Paid), "past what returns, within the lease");
    let mut node = self::node();
    leased(&mut node, secs(1), Unit::Ru, ru(0), ru(0));
    let refused = node.try_acquire(secs(2), ru(1)).unwrap_err();
    assert_eq!(refused, Refusal::QuotaUsedUp { unit: Unit::Ru, resets_in: Span::secs(1) });
    let quota = node.state(secs(2)).quota.unwrap();
    assert_eq!((quota.resets_in, quota.length, quota.rolls), (Span::secs(1), MINUTE, true));
    // Then the controller knows more.
    let refused = node.try_acquire(secs(3), ru(1)).unwrap_err();
    assert!(matches!(refused, Refusal::Throttled { .. }), "{refused:?}");
    assert!(node.due(secs(3)).is_some_and(|due| due <= secs(3)));
}

#[test]
fn a_request_that_the_controller_was_told_of_is_not_given_back() {
    let mut node = node();
    leased(&mut node, secs(1), Unit::Requests, ru(9), ru(9));
    for second in [2, 3] {
        node.try_acquire(secs(second), ru(1)).unwrap();
    }
    assert_eq!(node.ask(secs(4), secs(4).0).spending.used, ru(2));
    node.try_acquire(secs(5), ru(1)).unwrap();
    node.give_back(secs(6), secs(3), ru(1));
    node.give_back(secs(6), secs(5), ru(1));
    let spending = node.ask(secs(9), secs(9).0).spending;
    assert_eq!((spending.used, spending.running), (ru(2), ru(0)));
}

#[test]
fn a_node_that_has_used_what_numbers_can_say_counts_again() {
    let mut node = node();
    let half = Ru(Ru::MAX.0 / 2);
    leased(&mut node, secs(1), Unit::Ru, Ru::MAX, Ru::MAX);
    node.try_acquire(secs(2), half).unwrap();
    let used = Consumption { charged: RuParts::flat(half), operations: 1, ..Consumption::default() };
    node.settle(secs(3), half, &used);
    let ask = leased(&mut node, secs(4), Unit::Ru, Ru::MAX, Ru::MAX);
    assert_eq!((ask.spending.window, ask.spending.used), (7, half));
    node.try_acquire(secs(5), ru(3)).unwrap();
    node.try_acquire(secs(5), ru(4)).unwrap();
    let one = Consumption { charged: RuParts::flat(ru(3)), operations: 1, ..Consumption::default() };
    node.settle(secs(6), ru(3), &one);
    // It says that it has none, and begins nothing before it has another.
    let ask = node.ask(secs(7), secs(7).0);
    assert_eq!(ask.spending, Spending::default());
    let refused = node.try_acquire(secs(8), ru(1)).unwrap_err();
    assert!(matches!(refused, Refusal::Throttled { .. }), "{refused:?}");
    leased(&mut node, secs(9), Unit::Ru, ru(50), ru(50));
    let spending = node.ask(secs(10), secs(10).0).spending;
    assert_eq!(
        (spending.window, spending.used, spending.running),
        (7, ru(4), ru(4)),
        "what runs counts again"
    );
    // The grant engine takes the share that is no more for lost.
    let mut engine = engine();
    let share = renews(&mut engine, secs(0), 1, 1, None).ceiling;
    renews(&mut engine, secs(1), 1, 2, Some((ru(3), share, ru(0))));
    renews(&mut engine, secs(2), 1, 3, None);
    let view = view(&mut engine, secs(2));
    assert!(view.used == ru(3) && view.lost >= share - ru(3), "{view:?}");
    assert_eq!(CELLS, 60, "docs/limiters.md says how late something returns");
}
