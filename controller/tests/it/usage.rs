//! What operators read of consumption: ranges of its history, groups below, and rows that no group has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::audit::Actor;
use tidegate_controller::error::AdminError;
use tidegate_controller::service::{EntryIn, RenewIn, ReportIn, Service, Session};
use tidegate_controller::store::records::{
    NOBODY, consumption_bytes, group_key, ledger_key, pair_key, put_json, u64_key,
};
use tidegate_controller::store::{Store, Table, Write};
use tidegate_core::exchange::Ask;
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Rate, Ru};
use tidegate_core::usage::{Consumption, RuParts, Total};
use tidegate_proto::v1;

use crate::support::{MemoryStore, group, started, tell};

const MINUTE_S: u64 = 60;
const HOUR_US: u64 = 3_600 * 1_000_000;
const DAY_US: u64 = 24 * HOUR_US;

fn created(service: &Service, group: &v1::Group) {
    service.definitions().create_group(&Actor::new(None, "test"), group, false).unwrap();
}

fn total(ru: i64, operations: u64, throttled: u64) -> Total {
    let charged = RuParts { write: Ru::whole(ru), ..RuParts::default() };
    Consumption { charged, operations, throttled, ..Consumption::default() }.into()
}

/// Reports, without a network, all that a start has charged to a group so far.
fn tell_of(service: &Service, session: &Session, seq: u64, group: &str, total: Total) {
    let report = ReportIn { group: group.to_owned(), incarnation: 1, total: Ok(total), waited: Vec::new() };
    let request = RenewIn { seq, reports: vec![report], ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, request).unwrap();
    service.upkeep().flush().unwrap();
}

/// When the points of a range begin, counted from `begin` in minutes.
fn minutes(service: &Service, begin: u64, from: u64, to: u64) -> Vec<u64> {
    let points = service.accounts().usage_history("default", "minute", from, to).unwrap();
    points.iter().map(|(start, ..)| (start - begin) / MINUTE_S).collect()
}

#[test]
fn a_range_has_the_points_that_begin_in_it_and_none_that_are_to_come() {
    let (now, store) = (Arc::new(AtomicU64::new(DAY_US)), Arc::new(MemoryStore::default()));
    let service = started(&store, &now);
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let begin = service.clock().unix_ms() / 1_000;
    for minute in 0_u64..130 {
        tell(&service, &session, minute + 1, 1, i64::try_from(minute + 1).unwrap());
        service.upkeep().tidy().unwrap();
        now.fetch_add(MINUTE_S * 1_000_000, Ordering::Relaxed);
    }
    let at = |minute: u64, second: u64| begin + minute * MINUTE_S + second;
    assert_eq!(minutes(&service, begin, at(3, 0), at(6, 0)), [3, 4, 5]);
    // A minute that began before is not in it, and one that begins in its last second is.
    assert_eq!(minutes(&service, begin, at(3, 1), at(6, 1)), [4, 5, 6]);
    // Across the hour, before and behind which minutes lie in other rows once they are packed.
    assert_eq!(minutes(&service, begin, at(58, 0), at(62, 0)), [58, 59, 60, 61]);
    // The machine was suspended before all was packed.
    now.fetch_add(2 * DAY_US, Ordering::Relaxed);
    (0..4).for_each(|_| service.upkeep().tidy().unwrap());
    assert_eq!(minutes(&service, begin, at(58, 0), at(62, 0)), [58, 59, 60, 61], "packed");
    assert_eq!(minutes(&service, begin, at(58, 1), at(60, 1)), [59, 60], "packed");
    // Ends that are no range, that are to come, or longer ago than is kept, are as near as there is something.
    assert_eq!(minutes(&service, begin, at(6, 0), at(3, 0)), [] as [u64; 0]);
    assert_eq!(minutes(&service, begin, at(128, 0), u64::MAX), [128, 129]);
    now.fetch_add(8 * DAY_US, Ordering::Relaxed);
    assert_eq!(minutes(&service, begin, at(0, 0), at(7 * 24 * 60, 0)).len(), 130, "a week is an answer");
    let longer =
        service.accounts().usage_history("default", "minute", at(0, 0), at(7 * 24 * 60, 1)).unwrap_err();
    assert!(longer.to_string().contains("10081 points are too many"), "{longer}");
    let seconds = |from| service.accounts().usage_history("default", "second", from, 0).unwrap();
    assert_eq!(seconds(1), [], "ten minutes of seconds are no answer that is too long");
}

/// A rolling backlog of rows is what a start reads; a group that is not there leaves them behind when the controller
/// ends while it is deleted.
#[test]
fn rows_of_a_group_that_is_gone_are_no_start_for_one_with_its_number() {
    let (now, store) = (Arc::new(AtomicU64::new(DAY_US)), Arc::new(MemoryStore::default()));
    drop(started(&store, &now));
    let client = serde_json::json!({"name": "node", "incarnation": 1, "heard_unix_ms": 1});
    let (one, row) = (ClientId(1), |ru| consumption_bytes(&total(ru, 1, 0)));
    let mut rows = vec![put_json(Table::Clients, u64_key(one.0), &client).unwrap()];
    for gone in (GroupId::DEFAULT.0 + 1..).take(8).map(GroupId) {
        rows.push(Write::Put(Table::Ledger, ledger_key(one, gone), row(40)));
        rows.push(Write::Put(Table::Folded, group_key(gone), row(50)));
        rows.push(Write::Put(Table::Apart, ledger_key(one, gone), row(7)));
        rows.push(Write::Put(Table::Apart, ledger_key(NOBODY, gone), row(8)));
    }
    rows.push(Write::Put(Table::Ledger, ledger_key(one, GroupId::DEFAULT), row(3)));
    rows.push(Write::Put(Table::Apart, ledger_key(one, GroupId::DEFAULT), row(2)));
    store.commit(&rows).unwrap();
    let service = started(&store, &now);
    created(&service, &group("new", "100"));
    let (rows, truncated) = service.accounts().usage("", false).unwrap();
    let used = rows.iter().map(|row| (row.group.as_str(), row.total.charged.write, row.apart.charged.write));
    let default = ("default", Ru::whole(1).into(), Ru::whole(2).into());
    assert_eq!((used.collect::<Vec<_>>(), truncated), (vec![default], false));
    let (rows, _) = service.accounts().usage("new", true).unwrap();
    assert!(
        rows.len() == 1 && rows[0].total == Total::default() && rows[0].apart == Total::default(),
        "{rows:?}"
    );
}

#[test]
fn an_hour_is_packed_of_the_groups_that_used_most_in_it() {
    const GROUPS: u32 = 1_003;
    let (now, store) = (Arc::new(AtomicU64::new(DAY_US)), Arc::new(MemoryStore::default()));
    let service = started(&store, &now);
    let hour = service.clock().unix_ms() / 3_600_000 * 3_600;
    // The first three used least.
    let row = |at, table, n: u32| {
        let ru = if n < 3 { 1 } else { 2 };
        Write::Put(table, pair_key(at, GroupId(100 + n)), consumption_bytes(&total(ru, 1, 0)))
    };
    let hours = (0..GROUPS).map(|n| row(hour, Table::Hours, n));
    let minutes = (0..GROUPS).map(|n| row(hour + 120, Table::Minutes, n));
    store.commit(&hours.chain(minutes).collect::<Vec<_>>()).unwrap();
    let keys: Vec<_> = (0..GROUPS).map(|n| pair_key(hour, GroupId(100 + n))).collect();
    let pass = |seconds: u64| now.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    let packed = || {
        service.upkeep().tidy().unwrap();
        store.get(Table::PastMinutes, &keys).unwrap()
    };
    // What is counted in its last second is stored within a minute.
    pass(hour + 3_600 + 59 - service.clock().unix_ms() / 1_000);
    assert!(packed().iter().all(Option::is_none));
    pass(1);
    let left_out: Vec<usize> =
        packed().iter().enumerate().filter(|(_, row)| row.is_none()).map(|(n, _)| n).collect();
    assert_eq!(left_out, [0, 1, 2]);
}

#[test]
fn a_replay_is_of_fifty_groups_below_and_of_none_more() {
    let (now, store) = (Arc::new(AtomicU64::new(DAY_US)), Arc::new(MemoryStore::default()));
    let service = started(&store, &now);
    created(&service, &group("top", "1000"));
    let below = |n: u32| v1::Group { parent: "top".into(), ..group(&format!("g{n}"), "10") };
    (0..50).for_each(|n| created(&service, &below(n)));
    let session = service.leasing().hello("node", 1, "test").unwrap();
    tell_of(&service, &session, 1, "g7", total(5, 5, 0));
    let wish = v1::WhatIfRequest { group: "top".into(), ru_per_sec: "4".into(), ..Default::default() };
    let reply = service.accounts().what_if(&wish).unwrap();
    assert_eq!((reply.groups, reply.wanted_ru.as_str()), (51, "5"));
    created(&service, &below(50));
    let error = service.accounts().what_if(&wish).unwrap_err();
    assert!(error.to_string().contains("top has more than 50 groups below it"), "{error}");
}

#[test]
fn what_ran_over_a_limit_in_shadow_is_not_wanted_twice() {
    for (enforcement, wanted) in [("", "15"), ("shadow", "10")] {
        let (now, store) = (Arc::new(AtomicU64::new(DAY_US)), Arc::new(MemoryStore::default()));
        let service = started(&store, &now);
        created(&service, &v1::Group { enforcement: enforcement.into(), ..group("g", "100") });
        let session = service.leasing().hello("node", 1, "test").unwrap();
        tell_of(&service, &session, 1, "g", total(10, 10, 5));
        let wish = v1::WhatIfRequest { group: "g".into(), ru_per_sec: "4".into(), ..Default::default() };
        assert_eq!(service.accounts().what_if(&wish).unwrap().wanted_ru, wanted, "{enforcement}");
    }
}

#[test]
fn a_proposed_quota_opens_with_each_hour_of_the_record() {
    let (now, store) = (Arc::new(AtomicU64::new(DAY_US)), Arc::new(MemoryStore::default()));
    let service = started(&store, &now);
    created(&service, &group("g", "1000"));
    let session = service.leasing().hello("node", 1, "test").unwrap();
    for minute in 1_u32..=150 {
        tell_of(&service, &session, minute.into(), "g", total(minute.into(), minute.into(), 0));
        now.fetch_add(MINUTE_S * 1_000_000, Ordering::Relaxed);
    }
    let throttled = |quota: &str| {
        let wish = v1::WhatIfRequest { group: "g".into(), quota: quota.into(), ..Default::default() };
        let proposed = service.accounts().what_if(&wish).unwrap().proposed.unwrap();
        assert_eq!(proposed.quota, quota);
        proposed.even.unwrap().throttled_ppm
    };
    // 60, 60 and 30 RU in three hours: 20, 20 and none are too many, or 40 operations of 150. All in one day.
    assert_eq!((throttled("40 per hour"), throttled("40 requests per hour")), (266_667, 266_667));
    assert_eq!(throttled("40 per day"), 733_333);
}

#[test]
fn a_thousand_nodes_are_forgotten_at_once_and_no_more() {
    let (now, store) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
    let service = started(&store, &now);
    let forget = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
        service.accounts().forget_clients(&Actor::new(None, "test"), &names).unwrap_err()
    };
    assert!(matches!(forget(1_000), AdminError::NotFound { what } if what == "client n0"));
    let error = forget(1_001).to_string();
    assert!(error.contains("1001 clients are too many at once: at most 1000"), "{error}");
}

#[test]
fn a_node_is_not_forgotten_before_its_longest_lease_has_ended() {
    let (now, store) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
    let service = started(&store, &now);
    created(&service, &v1::Group { ttl_us: 60_000_000, ..group("slow", "100") });
    created(&service, &group("usual", "100"));
    let lease = |name: &str| {
        let session = service.leasing().hello(name, 1, "test").unwrap();
        let ask = Ask { demand: Rate::whole(1), backlog: Ru::whole(5), ..Ask::default() };
        let entry = |group: &str| EntryIn { group: group.to_owned(), ask: Ok((ask, Vec::new())) };
        let entries = vec![entry("slow"), entry("usual")];
        let request = RenewIn { seq: 1, entries, ..RenewIn::default() };
        service.leasing().renew(session.client, session.session, request).unwrap();
        session
    };
    let session = lease("node");
    let forget = || service.accounts().forget_clients(&Actor::new(None, "test"), &["node".to_owned()]);
    service.leasing().disconnect(session.client, session.session);
    // A clock that is slow makes a minute of lease a little longer than a minute of silence.
    now.fetch_add(60_000_000, Ordering::Relaxed);
    // The lease of another node is not its own.
    lease("other");
    let error = forget().unwrap_err().to_string();
    assert!(
        error.contains("may still report or use a lease; stop the node, and repeat this in 1"),
        "{error}"
    );
    now.fetch_add(1_000_000, Ordering::Relaxed);
    assert_eq!(forget().unwrap(), [1]);
}
