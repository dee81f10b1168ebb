//! A rate that warms up over eight nodes, beside the single key of the same policy, with kills and a crash.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use tidegate_core::group::{GroupId, GroupSpec, Policy};
use tidegate_core::policy::warm_up::WarmUp;
use tidegate_core::policy::{Limiter, Verdict};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_sim::disk::Death;
use tidegate_sim::load::{Load, Pattern};
use tidegate_sim::log::Log;
use tidegate_sim::settling::Settling;
use tidegate_sim::world::World;

const GROUP: GroupId = GroupId(2);
/// The example of Sentinel: 200/s after 10 s, 66.7/s when cold.
const RATE: i64 = 200;
const PERIOD: Span = Span::secs(10);
const FACTOR: u32 = 3;
/// The example at so many times the rate, so that the size of an operation of 1 RU does not show in a tenth of a second.
const FINE: i64 = 50;

fn load(nodes: (usize, usize), rate: i64) -> Load {
    Load {
        label: "load".to_owned(),
        nodes,
        group: GROUP,
        pattern: Pattern::Open(rate.unsigned_abs()),
        cost: (1, 1),
        settle_tenths: 10,
        max_wait: Span::secs(2),
        from: Time(0),
        until: Time(u64::MAX),
        turns: Span(0),
        odd: false,
        moves: Span(0),
        settling: Settling::default(),
    }
}

fn world(rate: i64, nodes: usize) -> World {
    let mut world = World::new(7, nodes, (Span(500), Span(1_500))).unwrap();
    let policy = Policy::WarmUp { period: PERIOD, factor: FACTOR };
    world.put_group(GROUP, GroupSpec { policy, ..GroupSpec::capped(Rate::whole(rate)) }).unwrap();
    world.checked = true;
    world.log = Some(Log::default());
    world
}

/// RU per second of the example, by a record at `FINE` times of it.
fn rate(log: &Log, from_ms: u64, until_ms: u64) -> f64 {
    let within = |at: Time| (from_ms * 1_000..until_ms * 1_000).contains(&at.0);
    let ru: i64 = log.admitted.iter().filter(|entry| within(entry.at)).map(|entry| entry.cost.0).sum();
    ru as f64 / FINE as f64 / 1_000.0 / (until_ms - from_ms) as f64
}

/// When the operations of one key start that come as soon as they may, with so many to an RU.
fn single(until: Time, parts: i64) -> Vec<u64> {
    let mut limiter = Limiter::new(WarmUp::new(Rate::whole(RATE * FINE), PERIOD, FACTOR).unwrap());
    let (mut at, mut starts) = (0, Vec::new());
    while at < until.0 {
        match limiter.try_acquire(Time(at), Ru::whole(FINE / parts)) {
            Verdict::RetryAt(Time(next)) => at = next,
            _ => starts.push(at),
        }
    }
    starts
}

fn check(world: &mut World) {
    assert_eq!(world.violation, None);
    world.judge_bound(GROUP).unwrap();
}

/// The marks of the policy, for the sum over eight nodes: a third of the rate at the start, all of it after the warm-up,
/// each within 1 %; and never more than one key.
#[test]
fn eight_nodes_together_start_at_66_7_a_second_and_reach_200_after_ten_as_one_key_does() {
    let mut world = world(RATE * FINE, 8);
    world.add_load(load((0, 7), 40 * FINE));
    world.run(Time(13_000_000));
    check(&mut world);
    let log = world.log.take().unwrap();
    let (start, warm) = (rate(&log, 0, 1_000), rate(&log, 10_000, 11_000));
    assert!((start - 66.7).abs() <= 0.7, "{start} a second at the start");
    assert!((warm - 200.0).abs() <= 2.0, "{warm} a second after ten");
    let starts = single(Time(13_000_000), 10);
    for tenth in 1..130_u64 {
        let until = tenth * 100;
        let one = starts.iter().filter(|at| **at < until * 1_000).count() as f64 / 10.0;
        let is = rate(&log, 0, until) * until as f64 / 1_000.0;
        // Each node is an operation ahead, and 5 ms of its rate.
        assert!(is <= one + 8.0 / FINE as f64 + 1.0, "{is} until {until} ms, and one key {one}");
        assert!(is >= one * 0.97 - 2.0, "{is} until {until} ms, and one key {one}");
    }
}

/// Whichever nodes use the group, whatever dies: it is warm after ten seconds of use and cold after a pause or a crash.
#[test]
fn a_pause_and_a_crash_of_the_controller_make_it_cold_and_killed_nodes_and_a_clean_restart_do_not() {
    let mut world = world(RATE * FINE, 4);
    let on = Span::secs(20);
    let turns = Load { turns: on, ..load((0, 3), 80 * FINE) };
    world.add_load(turns);
    world.run(Time(12_000_000));
    world.kill_node(1);
    world.kill_node(2);
    world.run(Time(13_000_000));
    world.start_node(1);
    world.start_node(2);
    world.run(Time(14_000_000));
    world.restart_controller();
    world.run(Time(60_000_000));
    check(&mut world);
    // Twenty seconds without load, and the second turn begins.
    let log = world.log.clone().unwrap();
    let kept = rate(&log, 18_500, 20_000);
    assert!(kept >= 194.0, "{kept} a second after the kills and the clean restart");
    let again = rate(&log, 40_000, 41_000);
    assert!((60.0..=70.0).contains(&again), "{again} a second after the pause");
    let warm = rate(&log, 51_000, 59_000);
    assert!(warm >= 197.0, "{warm} a second when warm again");
    // The load pauses until 80 s; a crash in the third turn, when it is warm.
    world.run(Time(92_000_000));
    world.crash_controller(Death::Killed);
    world.start_controller();
    world.run(Time(110_000_000));
    check(&mut world);
    let log = world.log.take().unwrap();
    let before = rate(&log, 91_000, 92_000);
    assert!(before >= 197.0, "{before} a second before the crash");
    // Leases of before the crash end within 5 s; what is leased after it is cold.
    let cold = rate(&log, 94_000, 97_000);
    assert!(cold <= 100.0, "{cold} a second after the crash");
}

/// The same at the rate of the example itself.
#[test]
fn operations_of_a_two_hundredth_of_the_rate_follow_the_curve_too() {
    let mut world = world(RATE, 8);
    world.add_load(load((0, 7), 40));
    world.run(Time(15_000_000));
    check(&mut world);
    let log = world.log.take().unwrap();
    let (start, warm) = (rate(&log, 0, 1_000) * FINE as f64, rate(&log, 10_000, 15_000) * FINE as f64);
    // 8 nodes begin with an operation each.
    assert!((60.0..=76.0).contains(&start), "{start} a second at the start");
    assert!((warm - 200.0).abs() <= 2.0, "{warm} a second after ten");
}
