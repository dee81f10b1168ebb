//! What REST takes out of a query and hands on, one parameter after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tidegate_controller::Controller;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{RenewIn, ReportIn, Service};
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;
use tonic::Code;

use crate::support::{Lab, MemoryStore, Node, config, entry};

const MINUTE_US: u64 = 60 * 1_000_000;
const DAY_US: u64 = 24 * 60 * MINUTE_US;

/// A controller by a clock that stands still until a test moves it.
async fn lab_at(now: &Arc<AtomicU64>) -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let (store, clock) = (Arc::new(MemoryStore::default()), Clock::driven(Arc::clone(now)));
    let running = Controller::start_at(config(&folder), store, clock).await.unwrap();
    Lab { folder, running }
}

/// One field of each row of a list.
async fn listed(lab: &Lab, path: &str, list: &str, field: &str) -> Vec<String> {
    let (status, body) = lab.http("GET", path, None).await;
    assert_eq!(status, 200, "{path}: {body}");
    let rows = body[list].as_array().unwrap_or_else(|| panic!("{path}: {body}"));
    rows.iter().map(|row| row.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned()).collect()
}

/// Has of each kind one for the group `a` and then, an hour later, one for `b`.
async fn one_of_each(lab: &Lab, now: &AtomicU64) {
    let mut statements = lab.statements().await;
    for (seq, group, calls, ru) in [(1_u64, "a", 1, 9), (2, "b", 7, 3)] {
        lab.group(group, "100").await;
        let fingerprint = format!("{seq:016x}");
        let binding = json!({"user": format!("u{group}"), "group": group}).to_string();
        assert_eq!(lab.http("PUT", "/v1/bindings", Some(&binding)).await.0, 200);
        let watch = json!({"group": group, "match": "similar", "digest": fingerprint, "action": "kill"});
        assert_eq!(lab.http("POST", "/v1/watches", Some(&watch.to_string())).await.0, 200);
        let conviction = v1::ConvictRequest {
            gateway: "gw".into(),
            group: group.into(),
            r#match: "identify".into(),
            action: "kill".into(),
            fingerprint: fingerprint.clone(),
            ..v1::ConvictRequest::default()
        };
        statements.convict(conviction).await.unwrap();
        let row = v1::StatementRow {
            group: group.into(),
            fingerprint,
            kind: "select".into(),
            calls,
            read_micro_ru: ru * 1_000_000,
            ..v1::StatementRow::default()
        };
        let (gateway, rows) = ("gw".to_owned(), vec![row]);
        let report = v1::ReportStatementsRequest { gateway, incarnation: 1, seq, rows, evicted: 0 };
        statements.report_statements(report).await.unwrap();
        if group == "a" {
            now.fetch_add(60 * MINUTE_US, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn a_list_is_of_what_its_parameters_name_and_so_is_what_is_removed() {
    let now = Arc::new(AtomicU64::new(DAY_US));
    let lab = lab_at(&now).await;
    one_of_each(&lab, &now).await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.renew(vec![entry("a", 1), entry("b", 1)], Vec::new()).await.unwrap();
    let cases: [(&str, &str, &str, &[&str]); 21] = [
        ("/v1/groups", "groups", "/name", &["a", "b", "default"]),
        ("/v1/groups?after=a", "groups", "/name", &["b", "default"]),
        ("/v1/groups?after=a&limit=1", "groups", "/name", &["b"]),
        ("/v1/bindings", "bindings", "/user", &["ua", "ub"]),
        ("/v1/bindings?group=b", "bindings", "/user", &["ub"]),
        ("/v1/watches", "watches", "/group", &["a", "b"]),
        ("/v1/watches?group=b", "watches", "/group", &["b"]),
        ("/v1/runaways", "runaways", "/conviction/group", &["b", "a"]),
        ("/v1/runaways?group=a", "runaways", "/conviction/group", &["a"]),
        ("/v1/runaways?limit=1", "runaways", "/conviction/group", &["b"]),
        ("/v1/statements", "rows", "/group", &["a", "b"]),
        ("/v1/statements?group=b", "rows", "/group", &["b"]),
        ("/v1/statements?order=calls", "rows", "/group", &["b", "a"]),
        ("/v1/statements?limit=1", "rows", "/group", &["a"]),
        ("/v1/statements?last=5m", "rows", "/group", &["b"]),
        ("/v1/leases", "leases", "/group", &["a", "b"]),
        ("/v1/leases?group=b", "leases", "/group", &["b"]),
        ("/v1/usage?group=b", "rows", "/group", &["b"]),
        ("/v1/audit?group=a&limit=1", "entries", "/action", &["create group"]),
        ("/v1/audit?limit=1", "entries", "/action", &["add watch"]),
        ("/v1/audit?before_id=1", "entries", "/action", &[]),
    ];
    for (path, list, field, expected) in cases {
        assert_eq!(listed(&lab, path, list, field).await, expected, "{path}");
    }
    for (path, list) in [("/v1/statements", "rows"), ("/v1/watches", "watches")] {
        let removed = lab.http("DELETE", &format!("{path}?group=a"), None).await;
        assert_eq!(removed, (200, json!({"removed": 1})), "{path}");
        assert_eq!(listed(&lab, path, list, "/group").await, ["b"], "{path}");
    }
}

/// As the adapter of gRPC hands the same fields on by itself.
#[tokio::test]
async fn a_list_over_grpc_is_of_what_its_request_names() {
    let now = Arc::new(AtomicU64::new(DAY_US));
    let lab = lab_at(&now).await;
    one_of_each(&lab, &now).await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.renew(vec![entry("a", 1), entry("b", 1)], Vec::new()).await.unwrap();
    let (mut admin, mut statements) = (lab.admin().await, lab.statements().await);
    for (group, after, limit, expected) in [
        ("", "", 0, vec!["a", "b"]),
        ("b", "", 0, vec!["b"]),
        ("", "ua", 0, vec!["b"]),
        ("", "", 1, vec!["a"]),
    ] {
        let (group, after_user) = (group.to_owned(), after.to_owned());
        let request = v1::ListBindingsRequest { group, after_user, limit, ..Default::default() };
        let reply = admin.list_bindings(request).await.unwrap().into_inner();
        let groups: Vec<_> = reply.bindings.iter().map(|binding| binding.group.as_str()).collect();
        assert_eq!((groups, reply.more), (expected, limit == 1), "{after} {limit}");
    }
    for (group, expected) in [("", vec!["a", "b"]), ("b", vec!["b"])] {
        let request = v1::ListLeasesRequest { group: group.into() };
        let leases = admin.list_leases(request).await.unwrap().into_inner().leases;
        assert_eq!(leases.iter().map(|lease| lease.group.as_str()).collect::<Vec<_>>(), expected);
        let request = v1::ListWatchesRequest { group: group.into() };
        let watches = statements.list_watches(request).await.unwrap().into_inner().watches;
        assert_eq!(watches.iter().map(|watch| watch.group.as_str()).collect::<Vec<_>>(), expected);
    }
    for (group, limit, expected) in [("", 0, vec!["b", "a"]), ("a", 0, vec!["a"]), ("", 1, vec!["b"])] {
        let request = v1::ListRunawaysRequest { group: group.into(), limit };
        let runaways = statements.list_runaways(request).await.unwrap().into_inner().runaways;
        let groups = runaways.iter().map(|of| of.conviction.as_ref().unwrap().group.as_str());
        assert_eq!(groups.collect::<Vec<_>>(), expected);
    }
    let reset = v1::ResetStatementsRequest { group: "a".into() };
    assert_eq!(statements.reset_statements(reset).await.unwrap().into_inner().removed, 1);
    let remove = v1::RemoveWatchRequest { id: 0, group: "a".into() };
    assert_eq!(statements.remove_watch(remove).await.unwrap().into_inner().removed, 1);
    for (path, list) in [("/v1/statements", "rows"), ("/v1/watches", "watches")] {
        assert_eq!(listed(&lab, path, list, "/group").await, ["b"], "{path}");
    }
}

#[tokio::test]
async fn a_group_is_deleted_or_a_change_of_it_proposed_as_the_parameters_say() {
    let lab = Lab::start().await;
    lab.group("a", "100").await;
    lab.group("b", "100").await;
    let bound = lab.http("PUT", "/v1/bindings", Some(r#"{"user":"u","group":"a"}"#)).await;
    assert_eq!(bound.0, 200);
    let revision = async |name: &str| {
        let (_, body) = lab.http("GET", &format!("/v1/groups/{name}"), None).await;
        body["group"]["revision"].as_u64().unwrap()
    };
    let (a, b) = (revision("a").await, revision("b").await);
    let mut admin = lab.admin().await;
    let older = v1::DeleteGroupRequest {
        name: "a".into(),
        force_to: "b".into(),
        expected_revision: a + 1,
        if_exists: false,
    };
    let refused = admin.delete_group(older).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    let cases = [
        ("DELETE", "none".to_owned(), 404),
        ("DELETE", "none?if_exists=true".to_owned(), 200),
        ("DELETE", format!("a?force_to=b&expected_revision={}", a + 1), 412),
        ("DELETE", format!("a?expected_revision={a}"), 409),
        ("DELETE", format!("a?force_to=b&expected_revision={a}"), 200),
        ("PUT", format!("b/proposal?expected_revision={}", b + 1), 412),
        ("GET", "b/proposal".to_owned(), 409),
        ("PUT", format!("b/proposal?expected_revision={b}"), 200),
    ];
    for (method, path, expected) in cases {
        let body = (method == "PUT").then_some(r#"{"ru_per_sec": "7"}"#);
        let (status, answer) = lab.http(method, &format!("/v1/groups/{path}"), body).await;
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
    let (_, resolved) = lab.http("GET", "/v1/resolve?user=u", None).await;
    assert_eq!(resolved["group"], json!("b"), "what was bound to the one that is deleted");
}

/// Lets a node charge 5 to 11 RU/s to `default`, by the minute.
fn work(service: &Service, now: &AtomicU64, minutes: u64) {
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let mut sum = 0_u32;
    for seq in 1..=minutes {
        sum += 300 + 60 * u32::try_from(seq % 7).unwrap();
        let charged = RuParts { write: Ru::whole(i64::from(sum)), ..RuParts::default() };
        let total = Consumption { charged, operations: sum.into(), ..Consumption::default() };
        let (group, total) = ("default".to_owned(), Ok(total.into()));
        let report = ReportIn { group, incarnation: 1, total, waited: Vec::new() };
        let request = RenewIn { seq, reports: vec![report], ..RenewIn::default() };
        service.leasing().renew(session.client, session.session, request).unwrap();
        service.upkeep().flush().unwrap();
        service.upkeep().tidy().unwrap();
        now.fetch_add(MINUTE_US, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_record_is_read_and_replayed_as_each_parameter_says() {
    let now = Arc::new(AtomicU64::new(DAY_US));
    let lab = lab_at(&now).await;
    // Nodes without leases would use more than a quota has left.
    assert_eq!(lab.http("PATCH", "/v1/groups/default", Some(r#"{"fallback":"stop"}"#)).await.0, 200);
    let service = lab.running.service();
    let begin = service.clock().unix_ms() / 1_000;
    work(service, &now, 130);
    let (from, to) = (begin + 60 * 60, begin + 120 * 60);
    let plain = service.accounts().usage_history("default", "minute", 0, 0).unwrap();
    for (query, resolution, since, until) in [
        ("resolution=hour".to_owned(), "hour", 0, 0),
        (format!("from_unix_s={from}"), "minute", from, 0),
        (format!("to_unix_s={to}"), "minute", 0, to),
    ] {
        let expected = service.accounts().usage_history("default", resolution, since, until).unwrap();
        assert!(!expected.is_empty() && expected != plain, "{query}");
        let expected: Vec<_> = expected.iter().map(|(start, length, _)| (*start, *length)).collect();
        let (_, body) = lab.http("GET", &format!("/v1/usage/default/history?{query}"), None).await;
        let point =
            |point: &Value| (point["start_unix_s"].as_u64().unwrap(), point["length_s"].as_u64().unwrap());
        let points: Vec<_> = body["points"].as_array().unwrap().iter().map(point).collect();
        assert_eq!(points, expected, "{query}");
    }
    let wish = || v1::WhatIfRequest {
        group: "default".into(),
        ru_per_sec: "7".into(),
        ..v1::WhatIfRequest::default()
    };
    let plain = service.accounts().what_if(&wish()).unwrap();
    for (query, wish) in [
        ("burst=50".to_owned(), v1::WhatIfRequest { burst: "50".into(), ..wish() }),
        ("policy=paced".to_owned(), v1::WhatIfRequest { policy: "paced".into(), ..wish() }),
        ("quota=5000%20per%20day".to_owned(), v1::WhatIfRequest { quota: "5000 per day".into(), ..wish() }),
        ("resolution=hour".to_owned(), v1::WhatIfRequest { resolution: "hour".into(), ..wish() }),
        (format!("from_unix_s={from}"), v1::WhatIfRequest { from_unix_s: from, ..wish() }),
        (format!("to_unix_s={to}"), v1::WhatIfRequest { to_unix_s: to, ..wish() }),
        ("patience_us=1".to_owned(), v1::WhatIfRequest { patience_us: 1, ..wish() }),
        ("p99_wait_us=60000000".to_owned(), v1::WhatIfRequest { p99_wait_us: 60_000_000, ..wish() }),
    ] {
        let expected = service.accounts().what_if(&wish).unwrap();
        assert_ne!(expected, plain, "{query} changes nothing of the answer");
        let path = format!("/v1/groups/default/what-if?ru_per_sec=7&{query}");
        let (status, body) = lab.http("GET", &path, None).await;
        assert_eq!((status, &body), (200, &serde_json::to_value(&expected).unwrap()), "{query}");
    }
}
