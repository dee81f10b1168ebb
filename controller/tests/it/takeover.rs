//! A second controller starts on the store while the first one, which lost it, still runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_controller::Controller;
use tidegate_controller::store::{Store, StoreError};
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tokio::time::sleep;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{Faulty, Lab, MemoryStore, Node, config, entry, report};

async fn fenced(store: Arc<dyn Store>) -> Lab {
    started(store, Some(Span::secs(1))).await
}

async fn started(store: Arc<dyn Store>, fence: Option<Span>) -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let config = tidegate_controller::Config { fence, ..config(&folder) };
    let running = Controller::start_with(config, store).await.unwrap();
    Lab { folder, running }
}

/// Connects as soon as it is let in.
async fn patient(lab: &Lab, client: &str) -> Node {
    loop {
        match Node::connect(lab, client, 1).await {
            Ok(node) => return node,
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn health(lab: &Lab) -> ServingStatus {
    let request = HealthCheckRequest { service: "tidegate.v1.Grants".to_owned() };
    HealthClient::new(lab.channel().await).check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn whoever_lost_the_store_falls_silent_before_its_successor_speaks() {
    let disk: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let lost = Arc::new(Faulty::over(Arc::clone(&disk)));
    let old = fenced(Arc::clone(&lost) as Arc<dyn Store>).await;
    old.group("web", "1000").await;
    let mut node = Node::connect(&old, "node", 1).await.unwrap();
    node.report(vec![report("web", 0, 10)]).await;
    let granted = node.renew(vec![entry("web", 300)], Vec::new()).await.unwrap();
    let lease = granted.entries[0].clone();
    assert_eq!(health(&old).await, ServingStatus::Serving);

    lost.full.store(true, Ordering::SeqCst);
    let new = fenced(disk).await;
    let error = Node::connect(&new, "node", 1).await.err().unwrap();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("may still be granting"), "{error}");
    assert_eq!(health(&new).await, ServingStatus::NotServing);
    let mut successor = patient(&new, "node").await;
    let error = node.renew(vec![entry("web", 300)], Vec::new()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert!(error.message().contains("could not write to its store for 1s"), "{error}");
    assert!(Node::connect(&old, "node", 1).await.is_err());
    let warnings = old.running.service().status().warnings;
    assert!(warnings.iter().any(|warning| warning.starts_with("no grants: ")), "{warnings:?}");

    assert_eq!(successor.welcome.epoch, 2);
    successor.seq = 100;
    let mut ask = v1::RenewEntry { proof: lease.proof.clone(), ..entry("web", 5_000) };
    (ask.held_rate, ask.held_cap_micro_ru) = (lease.rate, lease.cap_micro_ru);
    let granted = successor.renew(vec![ask], vec![report("web", 0, 30)]).await.unwrap();
    assert!(granted.entries[0].rate > 0 && granted.entries[0].rate <= lease.rate, "{granted:?}");
    successor.report(vec![report("web", 0, 30)]).await;

    // The store comes back to the one that lost it: it finds the epoch of another and writes nothing.
    lost.full.store(false, Ordering::SeqCst);
    let error = old.running.service().flush().unwrap_err();
    assert!(matches!(error, StoreError::TakenOver { ours: 1, theirs: 2 }), "{error}");
    assert!(old.running.service().silence().is_some());
    assert_eq!(crate::support::charged(&new, "web").await, 30_000_000);
}

#[tokio::test]
async fn a_disk_that_was_full_for_a_while_ends_grants_for_that_while() {
    let store = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let lab = fenced(Arc::clone(&store) as Arc<dyn Store>).await;
    lab.group("web", "1000").await;
    store.full.store(true, Ordering::SeqCst);
    while lab.running.service().silence().is_none() {
        sleep(Duration::from_millis(20)).await;
    }
    assert!(Node::connect(&lab, "node", 1).await.is_err());
    store.full.store(false, Ordering::SeqCst);
    let mut node = patient(&lab, "node").await;
    assert_eq!(node.welcome.epoch, 1);
    assert!(node.renew(vec![entry("web", 300)], Vec::new()).await.unwrap().entries[0].rate > 0);
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stop_before_the_predecessors_fence_has_passed_is_no_clean_one() {
    let disk: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = fenced(Arc::clone(&disk)).await;
    first.group("web", "1000").await;
    first.running.abort().await;
    let second = fenced(Arc::clone(&disk)).await;
    second.running.shutdown().await.unwrap();
    let third = fenced(Arc::clone(&disk)).await;
    assert_eq!(third.running.service().epoch(), 3);
    assert!(Node::connect(&third, "node", 1).await.is_err());
    // Once it has, a clean stop leaves nothing to wait for.
    let mut node = patient(&third, "node").await;
    node.renew(vec![entry("web", 1)], Vec::new()).await.unwrap();
    third.running.shutdown().await.unwrap();
    let fourth = fenced(disk).await;
    assert!(Node::connect(&fourth, "node", 1).await.is_ok());
    assert_eq!(fourth.running.service().epoch(), 3);
}

#[tokio::test]
async fn a_fence_outlives_a_successor_that_has_none_and_dies() {
    let disk: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = fenced(Arc::clone(&disk)).await;
    first.group("web", "1000").await;
    first.running.abort().await;
    // The first may still be granting when the third starts.
    started(Arc::clone(&disk), None).await.running.abort().await;
    let third = started(disk, None).await;
    let error = Node::connect(&third, "node", 1).await.err().unwrap();
    assert!(error.message().contains("may still be granting"), "{error}");
    patient(&third, "node").await;
}
