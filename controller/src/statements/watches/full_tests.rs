//! What a list that is full takes in and gives up, and what is left of watches that are gone.

use super::*;
use crate::statements::runaways::Found;

const MOST: u64 = MAX_WATCHES as u64;

fn watch(id: u64, end_unix_ms: u64, source: &str) -> Watch {
    Watch {
        id,
        group: GroupName::parse("a").unwrap(),
        matching: Matching::Similar,
        digest: format!("{id:016x}").into(),
        text: "SELECT ?".into(),
        action: Some(Action::Kill),
        start_unix_ms: 5,
        end_unix_ms,
        source: source.into(),
        rule: Box::default(),
    }
}

fn full(end_unix_ms: u64, source: &str) -> Watches {
    let mut watches = Watches::new(1);
    (1..=MOST).for_each(|id| watches.put(watch(id, end_unix_ms, source)));
    watches
}

/// A conviction of the statement of a watch, under a rule that watches it for ten seconds.
fn identify(watches: &mut Watches, unix_ms: u64, statement: u64) -> Option<(u64, bool)> {
    let text = v1::QueryLimit {
        rows: 1,
        action: "kill".into(),
        watch: "similar".into(),
        watch_us: 10_000_000,
        ..v1::QueryLimit::default()
    };
    let conviction = Conviction {
        gateway: "gw".into(),
        group: GroupName::parse("a").unwrap(),
        found: Found::Identify,
        action: Action::Kill,
        fingerprint: format!("{statement:016x}").into(),
        template: "SELECT ?".into(),
        text_sha256: Box::default(),
        rule: Box::default(),
        tenant: Box::default(),
        user: Box::default(),
    };
    watches.identify(unix_ms, &QueryLimit::parse(&text).unwrap(), &conviction)
}

#[test]
fn a_conviction_takes_no_place_of_an_operators_watch_but_extends_it() {
    let mut watches = full(100_000, MANUAL);
    assert_eq!(identify(&mut watches, 99_000, MOST + 1), None);
    assert_eq!((watches.len(), watches.evicted()), (MAX_WATCHES, 0));
    assert_eq!(identify(&mut watches, 99_000, 7), Some((7, true)));
    assert_eq!((watches.len(), watches.evicted()), (MAX_WATCHES, 0));
    assert_eq!((watches.get(7).unwrap().end_unix_ms, watches.get(7).unwrap().is_manual()), (109_000, true));
}

/// A watch that made room would be back after a restart if the store kept it.
#[test]
fn a_watch_that_made_room_is_removed_from_the_store_as_well() {
    let mut watches = full(100_000, "gw");
    assert!(watches.take_dirty().is_empty(), "all are stored");
    assert_eq!(identify(&mut watches, 99_000, MOST + 1), Some((MOST + 1, true)));
    let changes = watches.take_dirty();
    let written: Vec<(u64, bool)> = changes.iter().map(|(id, watch)| (*id, watch.is_some())).collect();
    assert_eq!(written, [(1, false), (MOST + 1, true)]);
    assert_eq!((watches.len(), watches.evicted()), (MAX_WATCHES, 1));
}

#[test]
fn nothing_is_left_of_watches_that_are_gone() {
    let mut watches = full(100_000, "gw");
    identify(&mut watches, 99_000, MOST + 1);
    watches.remove(2);
    watches.put(Watch { id: MOST + 9, ..watch(3, 0, MANUAL) });
    assert!(watches.expire(100_000));
    assert_eq!((watches.len(), watches.ids.len(), watches.ends.len()), (2, 2, 2));
    watches.forget_group(&GroupName::parse("a").unwrap());
    assert_eq!((watches.len(), watches.ids.len(), watches.ends.len()), (0, 0, 0));
}

#[test]
fn the_latest_end_is_one() {
    let latest = 10 + WATCH_RANGE.1.0 / 1_000;
    let text = |end_unix_ms| v1::Watch {
        group: "a".into(),
        r#match: "similar".into(),
        digest: "00000000000000ab".into(),
        end_unix_ms,
        ..v1::Watch::default()
    };
    assert_eq!(Watch::parse(&text(latest), 10).unwrap().end_unix_ms, latest);
    assert_eq!(Watch::parse(&text(11), 10).unwrap().end_unix_ms, 11);
    assert_eq!(Watch::parse(&text(latest + 1), 10).unwrap_err().field(), Some("end_unix_ms"));
}
