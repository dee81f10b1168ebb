//! Each arrangement of one limit shows in the lab what it is known for.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use tidegate_core::units::{Span, Time};
use tidegate_lab::arrangements::measures::Measures;
use tidegate_lab::arrangements::workload::scenario;
use tidegate_lab::arrangements::{Arrangement, Settings, run};
use tidegate_lab::comparison::system::Run;
use tidegate_sim::log::Entry;

/// A fifth of the lab's own rate, which is quicker, and away for less.
fn small() -> Settings {
    Settings { rate: 2_000, away: Span::secs(10), ..Settings::default() }
}

fn log(arrangement: Arrangement, settings: &Settings) -> Run {
    arrangement.run(settings, &scenario(settings)).unwrap()
}

fn measured(arrangement: Arrangement, settings: &Settings) -> Measures {
    let ideal = log(Arrangement::Ideal, settings);
    Measures::of(settings, &scenario(settings), &ideal, &log(arrangement, settings))
}

/// How many operations were admitted between two moments, in milliseconds.
fn admitted(run: &Run, from: u64, to: u64) -> usize {
    let within = |entry: &&Entry| (Time(from * 1_000)..Time(to * 1_000)).contains(&entry.at);
    run.log.admitted.iter().filter(within).count()
}

#[test]
fn the_ideal_bucket_serves_all_there_is_and_never_more() {
    let ideal = measured(Arrangement::Ideal, &small());
    assert!(ideal.over <= 1.0 && ideal.away_over <= 1.0, "{ideal:?}");
    assert_eq!((ideal.unused_calm, ideal.wait, ideal.messages), (0.0, 0.0, 0));
    assert!(ideal.away > 0.98, "{ideal:?}");
}

#[test]
fn all_see_the_same_operations() {
    let arrived = |arrangement| log(arrangement, &small()).log.arrived;
    let ideal = arrived(Arrangement::Ideal);
    for arrangement in Arrangement::ALL {
        assert!(arrived(arrangement) == ideal, "{}", arrangement.name());
    }
}

#[test]
fn an_even_split_leaves_unused_what_one_node_wants_and_others_have() {
    let split = measured(Arrangement::Split, &small());
    assert!(split.over <= 1.0, "{split:?}");
    assert!(split.unused_calm > 0.3 && split.wait > 0.1, "{split:?}");
    // Of 0.8 at all and 0.5 at one, one of two has half.
    let two = measured(Arrangement::Split, &Settings { nodes: 2, ..small() });
    assert!(two.unused_calm < split.unused_calm / 2.0, "{two:?}");
    let (there, away) = (split.unused_busy, 1.0 - split.away);
    assert!((there - away).abs() < 0.1, "no centre is missed: {split:?}");
}

#[test]
fn sticky_nodes_fail_until_the_balancer_notices_and_begin_with_another_burst() {
    let settings = small();
    let sticky = measured(Arrangement::Sticky, &settings);
    assert_eq!((sticky.unused_calm, sticky.wait, sticky.messages), (0.0, 0.0, 0));
    assert!(sticky.over <= 1.0, "{sticky:?}");
    let run = log(Arrangement::Sticky, &settings);
    assert_eq!(admitted(&run, 32_001, 38_000), 0);
    let rate = admitted(&run, 30_000, 31_000);
    let first = admitted(&run, 38_000, 39_000);
    assert!(first * 10 > rate * 15, "the next owner's bucket is full: {first} beside {rate}");
}

#[test]
fn broadcast_needs_no_centre_and_sends_to_each_from_each() {
    let settings = small();
    let broadcast = measured(Arrangement::Broadcast, &settings);
    assert!(broadcast.away > 0.95 && broadcast.away_over < 1.05, "{broadcast:?}");
    let nodes = settings.nodes as u64;
    let most = nodes * (nodes - 1) * 1_000_000 / settings.period.0;
    assert!(broadcast.messages <= most && broadcast.messages * 10 > most * 9, "{broadcast:?}");
}

#[test]
fn counters_that_are_older_admit_more_and_none_the_rate_at_each_busy_node() {
    let settings = small();
    let over = |stale| measured(Arrangement::Log, &Settings { stale: Span::millis(stale), ..settings }).over;
    let (fresh, old) = (over(0), over(1_000));
    assert!(fresh + 0.1 < old, "{fresh} {old}");
    let sync = measured(Arrangement::Sync, &settings);
    assert!(sync.over < 1.1, "{sync:?}");
    assert!(sync.away > 1.5 && sync.away_over > 5.0, "each knows only itself: {sync:?}");
    // Two nodes are busy at most at a time, as the rest of the demand is below the rate everywhere.
    assert!(sync.away < 2.05, "{sync:?}");
}

#[test]
fn get_then_set_loses_updates_where_calls_overlap_and_an_increment_does_not() {
    let settings = small();
    let lost = measured(Arrangement::GetThenSet, &settings);
    let kept = measured(Arrangement::Increment, &settings);
    assert!(lost.over > 3.0, "{lost:?}");
    assert!(kept.over < 1.1, "{kept:?}");
}

#[test]
fn a_window_saves_up_nothing_where_a_bucket_has_its_burst() {
    let window = measured(Arrangement::Increment, &small());
    let bucket = measured(Arrangement::ServerOpen, &small());
    assert!(window.unused_busy > bucket.unused_busy + 0.04, "{window:?} {bucket:?}");
}

#[test]
fn a_call_for_each_operation_costs_a_round_trip_and_a_message_and_get_then_set_two() {
    for ms in [2_u32, 10] {
        let settings = Settings { round_trip: Span::millis(ms.into()), ..small() };
        let trip = f64::from(ms) / 1e3;
        let ideal = log(Arrangement::Ideal, &settings);
        let operations = ideal.log.arrived.len() as u64 / (scenario(&settings).end.0 / 1_000_000);
        for (arrangement, trips) in
            [(Arrangement::ServerOpen, 1.0), (Arrangement::Increment, 1.0), (Arrangement::GetThenSet, 2.0)]
        {
            let found = Measures::of(&settings, &scenario(&settings), &ideal, &log(arrangement, &settings));
            let off = found.wait / (trips * trip);
            assert!(off > 0.95 && off < 1.1, "{} {ms} ms: {found:?}", arrangement.name());
            // The others ask no more in a window that is used up.
            if arrangement == Arrangement::ServerOpen {
                assert!(found.messages + 1 >= operations, "{operations}/s: {found:?}");
            }
        }
    }
}

#[test]
fn without_an_answer_a_call_admits_everything_or_nothing() {
    let (open, closed) =
        (measured(Arrangement::ServerOpen, &small()), measured(Arrangement::ServerClosed, &small()));
    assert!(open.away > 1.9 && open.away_over > 5.0, "{open:?}");
    assert!(closed.away < 0.1 && closed.away_over <= 1.0, "{closed:?}");
    assert_eq!(open.over, closed.over, "with a server they are the same");
}

#[test]
fn leases_stay_within_rate_and_burst_without_a_message_for_each_operation() {
    let settings = small();
    let leases = measured(Arrangement::Leases, &settings);
    assert!(leases.over <= 1.0 && leases.away_over <= 1.0, "{leases:?}");
    assert!(leases.unused_calm < 0.05, "{leases:?}");
    let calls = measured(Arrangement::ServerOpen, &settings).messages;
    assert!(leases.messages * 10 < calls, "{} beside {calls} a second", leases.messages);
    let run = log(Arrangement::Leases, &settings);
    assert!(admitted(&run, 32_000, 34_000) > 0, "leases outlive the controller");
    assert_eq!(admitted(&run, 38_500, 42_000), 0, "and end");
    let fallback = measured(Arrangement::Fallback, &settings);
    assert!(fallback.away > leases.away + 0.2 && fallback.away_over <= 1.0, "{fallback:?}");
}

#[test]
fn a_seed_gives_the_same_numbers_and_another_one_others() {
    let json = |seed| {
        let settings = Settings { seed, rate: 500, nodes: 4, away: Span::secs(1), ..Settings::default() };
        let section = run(&settings, &mut |_| ()).unwrap();
        (section.tables.first().unwrap().json().to_string(), section.pictures)
    };
    assert_eq!(json(1), json(1));
    assert!(json(1) != json(2));
}
