//! A failing store, and files and ports that are unusable.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::audit::Actor;
use tidegate_controller::store::{RedbStore, Store, Table};
use tidegate_controller::{Controller, StartError};
use tidegate_proto::v1;
use tidegate_proto::v1::client_message::Kind as Ask;
use tidegate_proto::v1::server_message::Kind as Answer;
use tokio::time::timeout;
use tonic::Code;

use crate::support::{Faulty, Lab, Node, PATIENCE, charged, config, group, report, store_path};

async fn faulty() -> (Lab, Arc<Faulty>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::over(Arc::new(RedbStore::open(&store_path(&folder)).unwrap())));
    let running =
        Controller::start_with(config(&folder), Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    (Lab { folder, running }, store)
}

#[tokio::test]
async fn a_change_that_cannot_be_stored_is_refused_and_not_in_force() {
    let (lab, store) = faulty().await;
    lab.group("web", "1000").await;
    store.full.store(true, Ordering::SeqCst);
    let mut admin = lab.admin().await;
    let create = v1::CreateGroupRequest { group: Some(group("other", "1")), if_not_exists: false };
    let error = admin.create_group(create.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("not in force") && error.message().contains("no space left"), "{error}");
    let get = v1::GetGroupRequest { name: "other".into() };
    assert_eq!(admin.get_group(get).await.unwrap_err().code(), Code::NotFound);
    let (status, body) = lab.http("PUT", "/v1/bindings", Some(r#"{"user":"u","group":"web"}"#)).await;
    assert_eq!((status, body["error"]["code"].as_str()), (503, Some("unavailable")));
    let warnings = admin.status(v1::StatusRequest {}).await.unwrap().into_inner().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("commits failed")), "{warnings:?}");

    store.full.store(false, Ordering::SeqCst);
    admin.create_group(create).await.unwrap();
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_conviction_waits_for_the_disk_and_a_watch_of_an_operator_does_not() {
    let (lab, store) = faulty().await;
    let limit = v1::QueryLimit {
        rows: 5,
        action: "kill".into(),
        watch: "similar".into(),
        ..v1::QueryLimit::default()
    };
    let web = v1::Group { query_limit: Some(limit), ..group("web", "1000") };
    let create = v1::CreateGroupRequest { group: Some(web), if_not_exists: false };
    lab.admin().await.create_group(create).await.unwrap();
    store.full.store(true, Ordering::SeqCst);
    let conviction = v1::ConvictRequest {
        gateway: "gw".into(),
        group: "web".into(),
        r#match: "identify".into(),
        action: "kill".into(),
        fingerprint: "00000000000000ab".into(),
        ..v1::ConvictRequest::default()
    };
    let mut statements = lab.statements().await;
    let id = statements.convict(conviction).await.unwrap().into_inner().watch_id;
    assert!(id > 0 && lab.running.service().upkeep().flush().is_err());
    let watch = v1::Watch {
        group: "web".into(),
        r#match: "similar".into(),
        digest: "00000000000000cd".into(),
        ..v1::Watch::default()
    };
    let error =
        statements.add_watch(v1::AddWatchRequest { watch: Some(watch), watch_us: 0 }).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let remove = v1::RemoveWatchRequest { id, group: String::new() };
    assert_eq!(statements.remove_watch(remove).await.unwrap_err().code(), Code::Unavailable);
    store.full.store(false, Ordering::SeqCst);
    drop((statements, store));
    let lab = lab.restart().await;
    let mut statements = lab.statements().await;
    let watches =
        statements.list_watches(v1::ListWatchesRequest::default()).await.unwrap().into_inner().watches;
    assert_eq!(watches.iter().map(|watch| watch.id).collect::<Vec<_>>(), [id]);
    let runaways = statements.list_runaways(v1::ListRunawaysRequest::default()).await.unwrap().into_inner();
    assert_eq!(runaways.runaways.len(), 1);
}

#[tokio::test]
async fn consumption_waits_for_the_disk_and_is_not_called_durable() {
    let (lab, store) = faulty().await;
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("web", 0, 5)]).await;
    // Once a renewal is durable, the commits that were under way before it are over.
    store.full.store(true, Ordering::SeqCst);
    let before = node.renew(Vec::new(), vec![report("web", 0, 9)]).await.unwrap();
    let failures = lab.running.service().metrics.commit_failures.get();
    while lab.running.service().metrics.commit_failures.get() < failures + 2 {
        let granted = node.renew(Vec::new(), vec![report("web", 0, 9)]).await.unwrap();
        assert!(granted.durable_seq < before.seq, "{granted:?}");
    }
    store.full.store(false, Ordering::SeqCst);
    node.report(vec![report("web", 0, 9)]).await;
    assert_eq!(charged(&lab, "web").await, 9_000_000);
}

#[tokio::test]
async fn a_goodbye_is_answered_once_its_reports_are_on_disk_and_not_before() {
    let (lab, store) = faulty().await;
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    store.full.store(true, Ordering::SeqCst);
    let failures = lab.running.service().metrics.commit_failures.get();
    let goodbye = v1::Goodbye { seq: 50, reports: vec![report("web", 0, 5)] };
    node.send(Some(Ask::Goodbye(goodbye))).await;
    let mut farewell = std::pin::pin!(node.next());
    while lab.running.service().metrics.commit_failures.get() < failures + 2 {
        tokio::select! {
            biased;
            told = &mut farewell => panic!("told before it is on disk: {told:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    store.full.store(false, Ordering::SeqCst);
    assert!(matches!(farewell.await.unwrap(), Answer::Farewell(v1::Farewell { seq: 50, .. })));
    // What the node now forgets is there after a crash.
    drop(store);
    let lab = lab.crash().await;
    assert_eq!(charged(&lab, "web").await, 5_000_000);
}

/// A node that is gone waits for nothing: it counts as connected no longer, though the disk is still full.
#[tokio::test]
async fn a_goodbye_whose_node_went_away_is_not_waited_for() {
    let (lab, store) = faulty().await;
    lab.group("web", "1000").await;
    let node = Node::connect(&lab, "node", 1).await.unwrap();
    store.fill(true);
    let goodbye = v1::Goodbye { seq: 50, reports: vec![report("web", 0, 5)] };
    node.send(Some(Ask::Goodbye(goodbye))).await;
    // It was heard.
    while charged(&lab, "web").await < 5_000_000 {}
    drop(node);
    let gone = async {
        while lab.running.service().status().clients > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    // What it said last counts all the same.
    store.fill(false);
    lab.running.service().upkeep().flush().unwrap();
    drop(store);
    let lab = lab.crash().await;
    assert_eq!(charged(&lab, "web").await, 5_000_000);
}

#[tokio::test]
async fn a_stop_that_cannot_save_says_so_and_the_next_start_recovers() {
    let (lab, store) = faulty().await;
    store.full.store(true, Ordering::SeqCst);
    let error = lab.running.shutdown().await.unwrap_err().to_string();
    assert!(error.contains("next start will recover"), "{error}");
    drop(store);
    let lab = Lab::at(lab.folder).await;
    let status = lab.running.service().status();
    assert!(status.epoch == 2 && status.recovery.0 > 0, "{status:?}");
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_named_and_left_alone() {
    let lab = Lab::start().await;
    let locked = Controller::start(config(&lab.folder)).await.err().unwrap().to_string();
    assert!(locked.contains("in use by another process") && locked.contains("store.redb"), "{locked}");
    lab.running.shutdown().await.unwrap();

    let path = store_path(&lab.folder);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() / 2);
    bytes[..512].fill(0xa5);
    fs::write(&path, &bytes).unwrap();
    let corrupt = Controller::start(config(&lab.folder)).await.err().unwrap().to_string();
    assert!(corrupt.contains("store.redb") && corrupt.contains("backup"), "{corrupt}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn damage_anywhere_in_the_store_is_an_error_or_harmless() {
    let lab = Lab::start().await;
    for name in ["a", "b", "c", "d"] {
        lab.group(name, "10").await;
    }
    lab.running.shutdown().await.unwrap();
    let path = store_path(&lab.folder);
    let whole = fs::read(&path).unwrap();
    let mut random = StdRng::seed_from_u64(11);
    let mut refused = 0;
    for _ in 0..40 {
        let mut bytes = whole.clone();
        let at = random.random_range(0..bytes.len() - 4_096);
        bytes[at..at + 4_096].fill(random.random());
        fs::write(&path, &bytes).unwrap();
        match Controller::start(config(&lab.folder)).await {
            Ok(running) => running.abort().await,
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("store.redb"), "{error}");
            }
        }
    }
    assert!(refused > 0);
}

#[tokio::test]
async fn a_port_in_use_and_a_remote_address_are_refused_by_name() {
    let lab = Lab::start().await;
    let folder = tempfile::tempdir().unwrap();
    let taken = lab.running.rest_addr;
    let mut config = config(&folder);
    config.http_listen = taken;
    let error = Controller::start(config.clone()).await.err().unwrap().to_string();
    assert!(error.contains(&taken.to_string()) && error.contains("http_listen"), "{error}");
    config.http_listen = "0.0.0.0:0".parse().unwrap();
    let error = Controller::start(config).await.err().unwrap();
    assert!(matches!(&error, StartError::Config(errors) if errors.len() == 1), "{error}");
    assert!(error.to_string().contains("allow_remote"), "{error}");
}

#[tokio::test]
async fn a_goodbye_that_cannot_be_stored_is_told_of_the_stop() {
    let (lab, store) = faulty().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    store.fill(true);
    let failures = lab.running.service().metrics.commit_failures.get();
    node.send(Some(Ask::Goodbye(v1::Goodbye { seq: 1, reports: vec![report("default", 0, 5)] }))).await;
    while lab.running.service().metrics.commit_failures.get() == failures {
        tokio::task::yield_now().await;
    }
    let (told, stopped) = tokio::join!(node.next(), lab.running.shutdown());
    let told = told.unwrap_err();
    assert!(told.code() == Code::Unavailable && told.message().contains("shutting down"), "{told}");
    stopped.unwrap_err();
}

/// A full disk is a reason to make a copy elsewhere.
#[tokio::test]
async fn a_backup_can_be_made_though_its_entry_of_the_log_cannot_be_stored() {
    let (lab, store) = faulty().await;
    lab.group("web", "1000").await;
    store.fill(true);
    let mut tables = BTreeSet::new();
    let made = lab.running.service().backup(&Actor::new(None, "test"), |part| {
        tables.extend(part.into_iter().map(|(table, ..)| table));
        ControlFlow::Continue(())
    });
    assert!(made.unwrap() > 0 && tables.contains(&Table::Groups), "{tables:?}");
    store.fill(false);
    lab.running.shutdown().await.unwrap();
}
