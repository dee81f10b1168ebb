//! The watch stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use tidegate_controller::Controller;
use tidegate_controller::audit::Actor;
use tidegate_controller::bindings::Principal;
use tidegate_controller::group_fields::{Takes, fields};
use tidegate_controller::limits::{MAX_EVENT_PARTS, SNAPSHOT_PART, WATCH_QUEUE};
use tidegate_controller::store::records::{StoredBinding, put_json};
use tidegate_controller::store::{Store, Table};
use tidegate_proto::v1;
use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_proto::v1::watch_event::Kind;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

use crate::support::{Lab, MemoryStore, Node, PATIENCE, config, entry, group};

async fn watch(lab: &Lab, have_revision: u64) -> Streaming<v1::WatchEvent> {
    lab.grants()
        .await
        .watch(v1::WatchRequest { have_revision, ..v1::WatchRequest::default() })
        .await
        .unwrap()
        .into_inner()
}

/// The next event that is no heartbeat.
async fn next(events: &mut Streaming<v1::WatchEvent>) -> (u64, Kind) {
    loop {
        let event = timeout(PATIENCE, events.message()).await.unwrap().unwrap().unwrap();
        match event.kind.unwrap() {
            Kind::Heartbeat(_) => {}
            kind => return (event.revision, kind),
        }
    }
}

async fn bind(lab: &Lab, tenant: &str, group: &str) {
    let binding = v1::Binding { tenant: tenant.into(), user: String::new(), group: group.into() };
    lab.admin().await.bind(v1::BindRequest { binding: Some(binding) }).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_and_then_every_change() {
    let lab = Lab::start().await;
    lab.group("a", "10").await;
    bind(&lab, "t", "a").await;
    let mut events = watch(&lab, 0).await;
    let (revision, Kind::Snapshot(snapshot)) = next(&mut events).await else {
        panic!("a snapshot was expected")
    };
    assert_eq!((snapshot.bindings.len(), snapshot.more), (1, false));
    assert!(snapshot.cost_tables.unwrap().active.is_some());

    bind(&lab, "u", "a").await;
    let (second, Kind::Binding(change)) = next(&mut events).await else { panic!("a binding was expected") };
    assert_eq!((change.binding.unwrap().tenant.as_str(), change.removed, second), ("u", false, revision + 1));
    lab.group("b", "20").await;
    let (_, Kind::GroupsChanged(changed)) = next(&mut events).await else { panic!("a group was expected") };
    assert_eq!(changed.groups, ["b"]);

    let delete = v1::DeleteGroupRequest { name: "a".into(), force_to: "b".into(), ..Default::default() };
    lab.admin().await.delete_group(delete).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (revision, kind) = next(&mut events).await;
        seen.push((revision, matches!(kind, Kind::Binding(_))));
    }
    // Only the last part of a change carries its revision.
    let newest = revision + 3;
    assert_eq!(seen, [(newest - 1, true), (newest - 1, true), (newest, false)]);
}

#[tokio::test]
async fn what_no_lease_depends_on_wakes_no_node() {
    let lab = Lab::start().await;
    lab.group("a", "10").await;
    let mut events = watch(&lab, 0).await;
    let (begin, Kind::Snapshot(_)) = next(&mut events).await else { panic!("a snapshot was expected") };
    let texts = fields().iter().filter(|field| matches!(field.takes, Takes::Text(_)));
    let mut changes: Vec<_> = texts.map(|field| (field.name, json!("whom to call"))).collect();
    changes.push(("max_wait_us", json!(5_000)));
    changes.push(("query_limit", json!({"rows": 5, "action": "kill"})));
    for (field, value) in &changes {
        let (status, altered) =
            lab.http("PATCH", "/v1/groups/a", Some(&json!({ *field: value }).to_string())).await;
        assert_eq!((status, &altered["changed"]), (200, &json!(true)), "{altered}");
    }
    // A change that leases depend on is the next to be heard of, and each of the others had a revision.
    let (status, _) = lab.http("PATCH", "/v1/groups/a", Some(r#"{"weight":2}"#)).await;
    let (revision, Kind::GroupsChanged(changed)) = next(&mut events).await else {
        panic!("a group was expected")
    };
    let others = u64::try_from(changes.len()).unwrap();
    assert_eq!((status, changed.groups, revision), (200, vec!["a".to_owned()], begin + others + 1));
}

#[tokio::test]
async fn a_target_comes_and_goes_with_the_next_grant_and_the_change_wakes_nodes() {
    let lab = Lab::start().await;
    lab.group("a", "10").await;
    let low = v1::Group { priority: "low".into(), ..group("spill", "5") };
    lab.admin()
        .await
        .create_group(v1::CreateGroupRequest { group: Some(low), if_not_exists: false })
        .await
        .unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let mut events = watch(&lab, 0).await;
    let (_, Kind::Snapshot(_)) = next(&mut events).await else { panic!("a snapshot was expected") };
    for target in ["", "spill", "/"] {
        if !target.is_empty() {
            let body = json!({ "demote_to": target }).to_string();
            let (status, altered) = lab.http("PATCH", "/v1/groups/a", Some(&body)).await;
            assert_eq!((status, &altered["changed"]), (200, &json!(true)), "{altered}");
            let (_, Kind::GroupsChanged(changed)) = next(&mut events).await else {
                panic!("a group was expected")
            };
            assert_eq!(changed.groups, ["a"]);
        }
        let entries = vec![entry("a", 1), entry("spill", 1), entry("nowhere", 1)];
        let granted = node.renew_as(v1::Renew { entries, ..v1::Renew::default() }).await.unwrap();
        let told: Vec<&str> = granted.entries.iter().map(|entry| entry.demote_to.as_str()).collect();
        assert_eq!(told, [target.trim_matches('/'), "", ""], "{granted:?}");
    }
}

#[tokio::test]
async fn a_current_watcher_gets_no_snapshot() {
    let lab = Lab::start().await;
    lab.group("a", "10").await;
    let mut events = watch(&lab, 0).await;
    let (revision, _) = next(&mut events).await;
    let mut current = watch(&lab, revision).await;
    let first = timeout(PATIENCE, current.message()).await.unwrap().unwrap().unwrap();
    assert_eq!((first.revision, first.kind), (revision, Some(Kind::Heartbeat(v1::Heartbeat {}))));
    bind(&lab, "t", "a").await;
    assert!(matches!(next(&mut current).await, (_, Kind::Binding(_))));
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    assert!(page.contains("tidegate_watchers 2\n"), "{page}");
}

/// A controller with `count` tenants bound to group `crowd`, and a group `wide` beside it.
async fn crowded(count: usize) -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let start = || Controller::start_with(config(&folder), Arc::clone(&store) as Arc<dyn Store>);
    let actor = Actor::new(None, "test");
    let first = start().await.unwrap();
    for name in ["crowd", "wide"] {
        let text = v1::Group { name: name.into(), ru_per_sec: "10".into(), ..v1::Group::default() };
        first.service().definitions().create_group(&actor, &text, false).unwrap();
    }
    first.shutdown().await.unwrap();
    let rows = (0..count).map(|number| {
        let principal = Principal::Tenant(format!("t{number}"));
        let key = principal.key();
        put_json(Table::Bindings, key, &StoredBinding { principal, group: "crowd".into() }).unwrap()
    });
    store.commit(&rows.collect::<Vec<_>>()).unwrap();
    let running = start().await.unwrap();
    Lab { folder, running }
}

async fn disband(lab: &Lab) {
    let delete =
        v1::DeleteGroupRequest { name: "crowd".into(), force_to: "wide".into(), ..Default::default() };
    lab.admin().await.delete_group(delete).await.unwrap();
}

#[tokio::test]
async fn a_large_snapshot_comes_in_parts() {
    let lab = crowded(2 * SNAPSHOT_PART + 1).await;
    let mut events = watch(&lab, 0).await;
    let mut received = Vec::new();
    loop {
        let (revision, Kind::Snapshot(snapshot)) = next(&mut events).await else {
            panic!("a part was expected")
        };
        received.push(snapshot.bindings.len());
        assert_eq!((revision != 0, snapshot.cost_tables.is_some()), (!snapshot.more, !snapshot.more));
        if !snapshot.more {
            break;
        }
    }
    assert_eq!(received, [SNAPSHOT_PART, SNAPSHOT_PART, 1]);
}

/// Starts to watch over a connection that holds as little as may be for a reader.
async fn watch_slowly(lab: &Lab) -> Streaming<v1::WatchEvent> {
    let endpoint = Endpoint::from_shared(format!("http://{}", lab.running.grpc_addr)).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    let mut grants = GrantsClient::new(endpoint.connect().await.unwrap());
    grants.watch(v1::WatchRequest::default()).await.unwrap().into_inner()
}

/// The snapshot is longer than all that holds messages for a reader, so that its last parts are read from the bindings
/// after the changes, and its first ones before them.
#[tokio::test]
async fn a_watcher_knows_every_binding_whatever_changes_while_the_snapshot_is_on_its_way() {
    let lab = crowded(60_000).await;
    let service = lab.running.service().clone();
    let actor = Actor::new(None, "test");
    let listed = || {
        let view = service.definitions().told();
        let all = view.bindings.after(None).map(|(principal, group)| {
            ((principal.tenant().to_owned(), principal.user().to_owned()), group.to_string())
        });
        all.collect::<BTreeMap<_, _>>()
    };
    for read in [1, 7, 60] {
        let (mut events, mut known) = (watch_slowly(&lab).await, BTreeMap::new());
        let (mut parts, mut whole) = (0, false);
        let newest = loop {
            if parts == read {
                // One that was sent, one that is sent last, one that is new, one that goes.
                for tenant in ["t0".to_owned(), "t9999".to_owned(), format!("new{read}")] {
                    let group = if read == 7 { "crowd" } else { "wide" };
                    service.definitions().bind(&actor, &tenant, "", group).unwrap();
                }
                service.definitions().unbind(&actor, &format!("t{read}"), "", None).unwrap();
                parts += 1;
            }
            let (revision, kind) = next(&mut events).await;
            match kind {
                Kind::Snapshot(part) => {
                    parts += 1;
                    whole |= !part.more;
                    known.extend(part.bindings.into_iter().map(|of| ((of.tenant, of.user), of.group)));
                    if whole {
                        // The last change, after which the watcher is current.
                        service.definitions().bind(&actor, "last", &format!("u{read}"), "wide").unwrap();
                    }
                }
                Kind::Binding(v1::BindingChange { binding: Some(of), removed: true }) => {
                    known.remove(&(of.tenant, of.user));
                }
                Kind::Binding(v1::BindingChange { binding: Some(of), .. }) => {
                    known.insert((of.tenant, of.user), of.group);
                }
                other => panic!("{other:?} was not expected"),
            }
            if whole && revision == service.status().revision {
                break revision;
            }
        };
        let listed = listed();
        let differ: Vec<_> =
            listed.iter().filter(|(of, group)| known.get(*of) != Some(group)).take(9).collect();
        assert!(differ.is_empty() && known.len() == listed.len(), "at revision {newest}: {differ:?} differ");
    }
}

/// Reads a stream to its end.
async fn end(events: &mut Streaming<v1::WatchEvent>) -> Status {
    loop {
        match timeout(PATIENCE, events.message()).await.unwrap() {
            Ok(Some(_)) => {}
            Ok(None) => return Status::ok("the stream ended"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn a_change_of_very_many_bindings_asks_for_a_new_snapshot() {
    let lab = crowded(MAX_EVENT_PARTS + 1).await;
    let revision = lab.running.service().status().revision;
    let mut events = watch(&lab, revision).await;
    disband(&lab).await;
    assert_eq!(end(&mut events).await.code(), Code::Aborted);
    let mut again = watch(&lab, revision).await;
    assert!(matches!(next(&mut again).await, (_, Kind::Snapshot(_))));
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_dropped() {
    let lab = crowded(MAX_EVENT_PARTS - 1).await;
    let mut events = watch(&lab, lab.running.service().status().revision).await;
    // Fills what the transport buffers for a reader; later changes fill the ring.
    disband(&lab).await;
    let service = lab.running.service().clone();
    let changes = tokio::task::spawn_blocking(move || {
        let actor = Actor::new(None, "test");
        for round in 0..=WATCH_QUEUE {
            service
                .definitions()
                .bind(&actor, "x", "", if round % 2 == 0 { "wide" } else { "default" })
                .unwrap();
        }
    });
    changes.await.unwrap();
    let status = end(&mut events).await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(lab.running.service().metrics.watchers_dropped.get(), 1);
}

/// A controller that nobody is bound in has prices all the same.
#[tokio::test]
async fn a_snapshot_without_bindings_has_the_cost_tables() {
    let lab = Lab::start().await;
    let (_, first) = next(&mut watch(&lab, 0).await).await;
    let Kind::Snapshot(whole) = first else { panic!("a snapshot was expected: {first:?}") };
    assert!(whole.bindings.is_empty() && !whole.more, "{whole:?}");
    assert!(whole.cost_tables.unwrap().active.is_some());
    lab.running.shutdown().await.unwrap();
}

/// Nodes price what they run by the tables that they were told last.
#[tokio::test]
async fn a_watcher_is_told_of_other_prices() {
    let lab = Lab::start().await;
    let mut events = watch(&lab, 0).await;
    let (before, Kind::Snapshot(whole)) = next(&mut events).await else { panic!("a snapshot was expected") };
    let mut table = whole.cost_tables.unwrap().active.unwrap();
    (table.name, table.version) = ("dearer".to_owned(), 1);
    for role in ["shadow", "active"] {
        let request = v1::PutCostTableRequest { table: Some(table.clone()), role: role.to_owned() };
        lab.admin().await.put_cost_table(request).await.unwrap();
    }
    let (first, Kind::CostTables(tables)) = next(&mut events).await else { panic!("tables were expected") };
    assert_eq!(
        (tables.shadow.as_ref(), tables.active.map(|active| active.name == "dearer")),
        (Some(&table), Some(false))
    );
    let (second, Kind::CostTables(tables)) = next(&mut events).await else { panic!("tables were expected") };
    assert_eq!(tables.active, Some(table));
    assert!(before < first && first < second, "{before} {first} {second}");
    lab.running.shutdown().await.unwrap();
}
