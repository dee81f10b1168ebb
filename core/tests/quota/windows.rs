//! Windows of the calendar, one after the other: what nodes hold of one when the next one opens.

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::quota::{Opening, QuotaView, Unit, window_number};
use tidegate_core::units::{Rate, Ru, Span, Time};

const GROUP: GroupId = GroupId(2);

fn secs(number: u64) -> Time {
    Time(number * 1_000_000)
}

fn spec(quota_unit: Unit) -> GroupSpec {
    GroupSpec { quota: Some(Ru::whole(100)), quota_unit, ..GroupSpec::capped(Rate::whole(1_000)) }
}

/// A window of ten seconds from a moment on, with this number in the group.
fn window(at: Time, count: u32) -> Opening {
    let number = window_number(GROUP, count);
    Opening { number, ends: at.after(Span::secs(10)), durable: Ru::MAX, ..Opening::default() }
}

fn open(engine: &mut Engine, at: Time, opening: &Opening) -> QuotaView {
    engine.open_quota(at, GROUP, opening);
    engine.check().unwrap();
    engine.quota_view(GROUP, at).unwrap()
}

/// A group in its first window, of which a node holds a share; and that share.
fn shared() -> (Engine, Ru) {
    let mut engine = Engine::new(Time(0), EngineConfig::default());
    engine.put_group(Time(0), GROUP, spec(Unit::Ru)).unwrap();
    open(&mut engine, Time(0), &window(Time(0), 1));
    let ask = Ask { demand: Rate::whole(20), largest: Ru::whole(1), ..Ask::default() };
    let Some(Grant::Leased(terms)) = engine.renew(Time(0), ClientId(1), GROUP, 1, &ask, Some(ask.held))
    else {
        panic!()
    };
    let share = terms.allowance.unwrap().ceiling;
    assert!(share.is_positive());
    (engine, share)
}

/// The node stopped at the end of its window, so that what it did not use is no one's.
#[test]
fn a_window_that_opens_in_time_begins_with_nothing() {
    let (mut engine, _) = shared();
    let next = open(&mut engine, secs(10), &window(secs(10), 2));
    assert_eq!((next.granted, next.left), (Ru::ZERO, Ru::whole(100)));
}

/// The clock of the calendar was set forward: the node goes on until the end that it was told, and so does its share.
#[test]
fn a_share_counts_in_a_window_that_opens_before_the_end_that_its_node_was_told() {
    let (mut engine, share) = shared();
    engine.move_quota_end(GROUP, secs(2));
    let next = open(&mut engine, secs(2), &window(secs(2), 2));
    assert_eq!((next.granted, next.left), (share, Ru::whole(100) - share));
}

/// No number of requests stands for RU.
#[test]
fn a_share_of_another_unit_counts_in_no_window_that_follows() {
    let (mut engine, _) = shared();
    engine.put_group(secs(1), GROUP, spec(Unit::Requests)).unwrap();
    let next = open(&mut engine, secs(1), &window(secs(1), 2));
    assert_eq!((next.unit, next.granted, next.left), (Unit::Requests, Ru::ZERO, Ru::whole(100)));
}

/// What may be used longest says until when all of it counts.
#[test]
fn what_may_be_used_until_later_counts_in_all_windows_until_then() {
    let (mut engine, share) = shared();
    let lost = Ru::whole(30);
    let opening =
        Opening { granted: lost, lost, lost_until: secs(60), ends: secs(3_600), ..window(secs(1), 2) };
    let second = open(&mut engine, secs(1), &opening);
    assert_eq!(second.granted, lost + share);
    let third = open(&mut engine, secs(59), &window(secs(59), 3));
    assert_eq!(third.granted, lost + share, "the lease of the share has ended, the other has not");
    let fourth = open(&mut engine, secs(60), &window(secs(60), 4));
    assert_eq!(fourth.granted, Ru::ZERO);
}

/// A number of requests is no bound of what one of them costs.
#[test]
fn the_largest_operation_that_fits_is_within_a_quota_of_its_own_unit() {
    for (unit, burst, largest) in
        [(Unit::Ru, 1_000, 100), (Unit::Ru, 30, 30), (Unit::Requests, 1_000, 1_000), (Unit::Requests, 30, 30)]
    {
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        let group = GroupSpec { burst: Some(Ru::whole(burst)), ..spec(unit) };
        engine.put_group(Time(0), GROUP, group).unwrap();
        open(&mut engine, Time(0), &window(Time(0), 1));
        let ask = Ask { demand: Rate::whole(20), largest: Ru::whole(1), ..Ask::default() };
        let Some(Grant::Leased(terms)) = engine.renew(Time(0), ClientId(1), GROUP, 1, &ask, None) else {
            panic!()
        };
        assert_eq!(terms.max_fit, Ru::whole(largest), "{unit:?}, burst of {burst}");
    }
}
