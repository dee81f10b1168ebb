//! The history under a wall clock that was wrong.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::clock::Clock;
use tidegate_controller::service::{RenewIn, ReportIn, Service, ServiceConfig};
use tidegate_controller::store::records::{CONSUMPTION_BYTES, pair_key};
use tidegate_controller::store::{Store, Table, Write};
use tidegate_core::group::GroupId;
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, Total, Usage};

use crate::support::{Faulty, MemoryStore, started, tell};

const DAY_US: u64 = 24 * 3_600 * 1_000_000;

/// A controller whose wall clock is some days ahead, and its time.
fn ahead(store: &Arc<MemoryStore>, days: u64) -> (Service, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(days * DAY_US));
    (started(store, &now), now)
}

/// Number of stored rows of a resolution.
fn rows(store: &MemoryStore, table: Table) -> usize {
    let mut count = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        count += 1;
        Ok(ControlFlow::Continue(()))
    };
    store.scan(table, &[], &mut visit).unwrap();
    count
}

#[test]
fn a_wall_clock_that_was_a_year_ahead_takes_little_history_with_it() {
    let store = Arc::new(MemoryStore::default());
    let (service, _) = ahead(&store, 0);
    let hour = service.clock().unix_ms() / 3_600_000;
    let mut consumption = vec![0; CONSUMPTION_BYTES];
    consumption[0] = 1;
    let row = |table, hours: u64| {
        Write::Put(table, pair_key((hour - hours) * 3_600, GroupId::DEFAULT), consumption.clone())
    };
    let minutes = (0..20).map(|hours| row(Table::Minutes, hours));
    store
        .commit(&minutes.chain((0..80).map(|days| row(Table::Hours, days * 24))).collect::<Vec<_>>())
        .unwrap();
    drop(service);

    let (wrong, now) = ahead(&store, 400);
    for _ in 0..60 {
        wrong.upkeep().tidy().unwrap();
        now.fetch_add(60 * 1_000_000, Ordering::Relaxed);
    }
    drop(wrong);
    assert_eq!(
        (rows(&store, Table::Minutes), rows(&store, Table::Hours)),
        (18, 79),
        "an hour of a wrong clock"
    );
    let (again, now) = ahead(&store, 0);
    again.upkeep().tidy().unwrap();
    assert_eq!((rows(&store, Table::Minutes), rows(&store, Table::Hours)), (18, 79));
    assert_eq!(again.accounts().usage_history("default", "minute", 0, 0).unwrap().len(), 18);
    // The controller removes what is old by a right clock.
    now.fetch_add(2 * DAY_US, Ordering::Relaxed);
    again.upkeep().tidy().unwrap();
    assert_eq!((rows(&store, Table::Minutes), rows(&store, Table::Hours)), (16, 79), "once packed");
    (0..16).for_each(|_| again.upkeep().tidy().unwrap());
    assert_eq!((rows(&store, Table::Minutes), rows(&store, Table::Hours)), (0, 79));
    now.fetch_add(90 * DAY_US, Ordering::Relaxed);
    again.upkeep().tidy().unwrap();
    assert_eq!(rows(&store, Table::Hours), 0);
}

#[test]
fn a_start_goes_on_with_the_hour_and_the_minute_in_which_the_controller_stopped() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(30 * 60 * 1_000_000));
    let mut reported = 0;
    // The second start is in the hour of the first, the third in the minute of the second.
    for (seconds, ru) in [(0, 5), (600, 7), (20, 9)] {
        now.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
        let service = started(&store, &now);
        let session = service.leasing().hello("node", 1, "test").unwrap();
        reported += ru;
        tell(&service, &session, 1, 1, reported);
        service.upkeep().flush().unwrap();
    }
    let service = started(&store, &now);
    let amounts = |resolution| {
        let points = service.accounts().usage_history("default", resolution, 0, 0).unwrap();
        points.iter().map(|(_, _, amount)| amount.charged.write.clamped()).collect::<Vec<_>>()
    };
    assert_eq!(amounts("hour"), [Ru::whole(21)]);
    assert_eq!(amounts("minute"), [Ru::whole(5), Ru::whole(16)]);
}

/// Nothing is known of when the history begins but by the wall clock, which may be put right later.
#[test]
fn a_store_without_history_keeps_what_comes_after_a_clock_that_was_ahead() {
    let store = Arc::new(MemoryStore::default());
    let (now, wall) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(400 * DAY_US)));
    let clock = Clock::driven(Arc::clone(&now)).with_wall(Arc::clone(&wall));
    let service = Service::load(Arc::clone(&store) as _, ServiceConfig::default(), clock).unwrap();
    service.upkeep().tidy().unwrap();
    wall.store(0, Ordering::Relaxed);
    let session = service.leasing().hello("node", 1, "test").unwrap();
    for seq in 1..=3 {
        tell(&service, &session, seq, 1, i64::try_from(seq).unwrap());
        service.upkeep().flush().unwrap();
        now.fetch_add(60 * 1_000_000, Ordering::Relaxed);
        service.upkeep().tidy().unwrap();
    }
    assert_eq!((rows(&store, Table::Minutes), rows(&store, Table::Hours)), (3, 1));
}

/// The disk may have been full for longer than the flush after the end of an hour is waited for.
#[test]
fn an_hour_whose_end_is_stored_late_is_packed_with_its_end() {
    let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let now = Arc::new(AtomicU64::new(0));
    let service = started(&disk, &now);
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let begin_s = service.clock().unix_ms() / 1_000;
    assert_eq!(begin_s % 3_600, 0);
    let reports = |seq, minute: u64, ru| {
        now.store(minute * 60 * 1_000_000, Ordering::Relaxed);
        tell(&service, &session, seq, 1, ru);
        service.upkeep().flush().is_ok()
    };
    assert!(reports(1, 30, 1));
    disk.fill(true);
    assert!(!reports(2, 59, 10) && !reports(3, 62, 100));
    disk.fill(false);
    for _ in 0..3 {
        service.upkeep().tidy().unwrap();
    }
    // Minutes are kept for a day but in their hour.
    now.store(25 * 3_600 * 1_000_000, Ordering::Relaxed);
    let minutes = service.accounts().usage_history("default", "minute", begin_s, begin_s + 3_600).unwrap();
    let at = |(start, _, amount): &(u64, u64, Total)| ((start - begin_s) / 60, amount.ru());
    let expected = [(30, Ru::whole(1).into()), (59, Ru::whole(9).into())];
    assert_eq!(minutes.iter().map(at).collect::<Vec<_>>(), expected);
}

/// Replays need less, and it is kept for longer.
#[test]
fn minutes_of_the_last_day_say_all_that_was_used_also_when_their_hour_is_packed() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(0));
    let service = started(&store, &now);
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let usage = Usage { read_bytes: 4_096, ..Usage::default() };
    let total = Ok(Consumption { usage, operations: 1, ..Consumption::default() }.into());
    let report = ReportIn { group: "default".into(), incarnation: 0, total, waited: Vec::new() };
    let request = RenewIn { seq: 1, reports: vec![report], ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, request).unwrap();
    now.store(2 * 3_600 * 1_000_000, Ordering::Relaxed);
    service.upkeep().tidy().unwrap();
    assert_eq!(rows(&store, Table::PastMinutes), 1);
    let minutes = service.accounts().usage_history("default", "minute", 0, 0).unwrap();
    assert_eq!(minutes.iter().map(|(.., amount)| amount.usage.read_bytes).collect::<Vec<_>>(), [4_096]);
}
