//! The watch list as operators and gateways see it: when it is full, in what order, what is logged, counted and told.

use super::*;
use crate::limits::{MAX_LIST_TEXT, MAX_RUNAWAYS, MAX_TEMPLATE};
use crate::statements::testing::{Stage, actor, conviction, similar};

fn fill(stage: &Stage, watch: &v1::Watch) {
    for id in 1..=u64::try_from(MAX_WATCHES).unwrap() {
        stage.put(id, v1::Watch { digest: similar("", id).digest, ..watch.clone() });
    }
}

#[test]
fn a_list_full_of_operators_watches_takes_no_other_but_replaces_its_own() {
    let stage = Stage::new();
    stage.ruled("web", "", 0);
    fill(&stage, &similar("web", 0));
    let other = similar("web", 0xffff_ffff);
    let refused = stage.calls().add_watch(&actor(), &other);
    assert!(matches!(refused, Err(AdminError::Full { what: "watches", limit: MAX_WATCHES })), "{refused:?}");
    let dry = v1::Watch { action: "dryrun".into(), ..similar("web", 7) };
    assert_eq!(stage.calls().add_watch(&actor(), &dry).unwrap().id, 7);
    assert_eq!(stage.service.lock().convictions.watches.len(), MAX_WATCHES);
}

#[test]
fn what_makes_room_is_counted_once() {
    let stage = Stage::new();
    stage.ruled("web", "similar", 10_000);
    fill(&stage, &v1::Watch { source: "gw".into(), ..similar("web", 0) });
    for statement in 0..u64::try_from(MAX_RUNAWAYS).unwrap() {
        let record = Conviction::parse(&conviction("web", statement)).unwrap();
        stage.service.lock().convictions.runaways.convict(0, record);
    }
    for statement in 0xffff_0000..0xffff_0003 {
        assert!(stage.calls().convict(&conviction("web", statement)).unwrap().is_some());
    }
    let metrics = &stage.service.metrics;
    assert_eq!((metrics.watches_evicted.get(), metrics.runaways_evicted.get()), (3, 3));
}

#[test]
fn a_watch_that_makes_room_for_one_of_an_operator_is_counted_too() {
    let stage = Stage::new();
    stage.ruled("web", "", 0);
    fill(&stage, &v1::Watch { source: "gw".into(), ..similar("web", 0) });
    let metrics = &stage.service.metrics;
    stage.calls().add_watch(&actor(), &similar("web", 7)).unwrap();
    assert_eq!(metrics.watches_evicted.get(), 0, "it takes the place of the same statement");
    stage.calls().add_watch(&actor(), &similar("web", 0xffff_ffff)).unwrap();
    assert_eq!(metrics.watches_evicted.get(), 1);
}

/// Each change of the rules sends all of them to all gateways.
#[test]
fn gateways_are_told_of_watches_that_change_or_end_and_of_nothing_else() {
    let stage = Stage::new();
    stage.ruled("web", "similar", 10_000);
    let mut rules = stage.calls().follow_rules().unwrap();
    let mut is_told = || {
        let is_told = rules.has_changed().unwrap();
        rules.borrow_and_update();
        is_told
    };
    stage.calls().convict(&conviction("web", 1)).unwrap();
    assert!(is_told());
    stage.calls().convict(&conviction("web", 1)).unwrap();
    let seen = v1::ConvictRequest { r#match: "watch".into(), ..conviction("web", 1) };
    stage.calls().convict(&seen).unwrap();
    assert!(!is_told(), "a statement that is watched already");
    stage.pass_ms(9_999);
    stage.service.leasing().expire();
    assert!(!is_told(), "nothing ended yet");
    stage.pass_ms(1);
    stage.service.leasing().expire();
    assert!(is_told());
    assert_eq!(stage.calls().watches("").unwrap(), []);
}

#[test]
fn watches_are_listed_by_their_ids_and_what_ended_is_logged_one_by_one_or_together() {
    let stage = Stage::new();
    stage.ruled("web", "", 0);
    for statement in [9, 5, 7] {
        stage.calls().add_watch(&actor(), &similar("web", statement)).unwrap();
    }
    for group in ["web", ""] {
        let ids: Vec<u64> = stage.calls().watches(group).unwrap().iter().map(|watch| watch.id).collect();
        assert_eq!(ids, [1, 2, 3], "{group:?}");
    }
    assert_eq!(stage.calls().remove_watch(&actor(), 2, "").unwrap(), 1);
    assert_eq!(stage.calls().remove_watch(&actor(), 0, "web").unwrap(), 2);
    let log = stage.service.definitions().audit_log("", 0, 2).unwrap();
    let before: Vec<serde_json::Value> =
        log.iter().map(|entry| serde_json::from_str(&entry.before).unwrap()).collect();
    assert_eq!((before[0].as_array().map(Vec::len), &before[1]["id"]), (Some(2), &serde_json::json!(2)));
}

#[test]
fn records_are_those_of_the_group_asked_for() {
    let stage = Stage::new();
    stage.ruled("web", "", 0);
    stage.ruled("api", "", 0);
    for (group, statement) in [("web", 1), ("api", 2), ("web", 3)] {
        stage.calls().convict(&conviction(group, statement)).unwrap();
    }
    let of = |group| {
        let records = stage.calls().runaways(group, 0).unwrap();
        records.into_iter().map(|record| record.conviction.unwrap().fingerprint).collect::<Vec<_>>()
    };
    let digest = |statement| similar("", statement).digest;
    assert_eq!(of("web"), [digest(3), digest(1)]);
    assert_eq!(of("api"), [digest(2)]);
    assert_eq!(of("").len(), 3);
    let one = stage.calls().runaways("api", 1).unwrap();
    assert_eq!(one.len(), 1, "as many as asked for, though those of others are newer");
    for (group, limit, records, more) in
        [("", 2, 2, true), ("", 3, 3, false), ("", 4, 3, false), ("web", 1, 1, true), ("api", 1, 1, false)]
    {
        let reply = stage.calls().list_runaways(group, limit).unwrap();
        assert_eq!((reply.runaways.len(), reply.more), (records, more), "{group} {limit}");
    }
}

#[test]
fn a_list_of_records_of_the_longest_templates_fits_an_answer() {
    let stage = Stage::new();
    stage.ruled("web", "", 0);
    for statement in 0..MAX_STATEMENT_PAGE {
        let template = "x".repeat(MAX_TEMPLATE);
        let long = v1::ConvictRequest { template, ..conviction("web", statement.into()) };
        stage.calls().convict(&long).unwrap();
    }
    let bytes = |limit| {
        let records = stage.calls().runaways("", limit).unwrap();
        records.into_iter().map(|record| record.conviction.unwrap().template.len()).sum::<usize>()
    };
    assert_eq!(bytes(2), 2 * MAX_TEMPLATE);
    let all = bytes(MAX_STATEMENT_PAGE);
    assert!((MAX_LIST_TEXT / 2..=MAX_LIST_TEXT).contains(&all), "{all}");
}
