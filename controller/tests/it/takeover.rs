//! A second controller starts on the store while the first one, which lost it, still runs. Time advances only when the
//! test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_controller::Controller;
use tidegate_controller::clock::Clock;
use tidegate_controller::store::{Store, StoreError, Write};
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tokio::time::sleep;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{Faulty, Lab, MemoryStore, Node, config, entry, pass_on, report};

/// The fence of all controllers here, and how long it silences a successor: drift and margin are added.
const FENCE_US: u64 = 1_000_000;
const PREDECESSOR_US: u64 = FENCE_US * 1_000 / 999 + 1 + 50_000;

/// The clock of all controllers of a test, in microseconds.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn move_on(&self, us: u64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    async fn fenced(&self, store: Arc<dyn Store>) -> Lab {
        self.started(store, Some(Span(FENCE_US))).await
    }

    async fn started(&self, store: Arc<dyn Store>, fence: Option<Span>) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let config = tidegate_controller::Config { fence, ..config(&folder) };
        let clock = Clock::driven(Arc::clone(&self.0));
        let running = Controller::start_at(config, store, clock).await.unwrap();
        Lab { folder, running }
    }
}

/// A disk on which one commit takes long, and then fails.
struct Slow {
    disk: MemoryStore,
    hand: Hand,
    /// How long the next commit takes, in microseconds; afterwards every write fails.
    takes: AtomicU64,
    failed: AtomicBool,
    /// Commits since then.
    refused: AtomicU64,
}

impl Slow {
    fn new(hand: &Hand) -> Self {
        let (takes, failed, refused) = Default::default();
        Self { disk: MemoryStore::default(), hand: hand.clone(), takes, failed, refused }
    }
}

impl Store for Slow {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        if self.failed.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::Failed {
                operation: "commit a change",
                reason: "input/output error".into(),
            });
        }
        self.disk.commit(batch)?;
        let takes = self.takes.swap(0, Ordering::SeqCst);
        // Other commits may be under way, which take no time: none that begins later may succeed.
        self.failed.fetch_or(takes > 0, Ordering::SeqCst);
        self.hand.move_on(takes);
        Ok(())
    }

    pass_on!(disk);
}

async fn refused(lab: &Lab) -> String {
    let error = Node::connect(lab, "node", 1).await.err().unwrap();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    error.message().to_owned()
}

async fn health(lab: &Lab) -> ServingStatus {
    let request = HealthCheckRequest { service: "tidegate.v1.Grants".to_owned() };
    HealthClient::new(lab.channel().await).check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn a_controller_that_lost_the_store_falls_silent_before_its_successor_speaks() {
    let hand = Hand::default();
    let disk: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let lost = Arc::new(Faulty::over(Arc::clone(&disk)));
    let old = hand.fenced(Arc::clone(&lost) as Arc<dyn Store>).await;
    old.group("web", "1000").await;
    let mut node = Node::connect(&old, "node", 1).await.unwrap();
    node.report(vec![report("web", 0, 10)]).await;
    let granted = node.renew(vec![entry("web", 300)], Vec::new()).await.unwrap();
    let lease = granted.entries[0].clone();
    assert_eq!(health(&old).await, ServingStatus::Serving);

    lost.full.store(true, Ordering::SeqCst);
    let new = hand.fenced(disk).await;
    assert!(refused(&new).await.contains("may still be granting"));
    assert_eq!(health(&new).await, ServingStatus::NotServing);
    hand.move_on(FENCE_US - 1);
    assert!(old.running.service().silence().is_none() && new.running.service().silence().is_some());
    // For a while both are silent.
    hand.move_on(1);
    assert!(refused(&old).await.contains("could not write to its store for 1s"));
    let error = node.renew(vec![entry("web", 300)], Vec::new()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert!(error.message().contains("could not write to its store for 1s"), "{error}");
    let warnings = old.running.service().status().warnings;
    assert!(warnings.iter().any(|warning| warning.starts_with("no grants: ")), "{warnings:?}");
    hand.move_on(PREDECESSOR_US - FENCE_US - 1);
    assert!(refused(&new).await.contains("may still be granting"));
    hand.move_on(1);
    // Its last heartbeat may be as old as the fence by now; after the next one it speaks.
    while new.running.service().silence().is_some() {
        sleep(Duration::from_millis(20)).await;
    }
    let mut successor = Node::connect(&new, "node", 1).await.unwrap();

    assert_eq!(successor.welcome.epoch, 2);
    successor.seq = 100;
    let mut ask = v1::RenewEntry { proof: lease.proof.clone(), ..entry("web", 5_000) };
    (ask.held_rate, ask.held_cap_micro_ru) = (lease.rate, lease.cap_micro_ru);
    let granted = successor.renew(vec![ask], vec![report("web", 0, 30)]).await.unwrap();
    assert!(granted.entries[0].rate > 0 && granted.entries[0].rate <= lease.rate, "{granted:?}");
    successor.report(vec![report("web", 0, 30)]).await;

    // The store comes back to the controller that lost it, which finds another epoch and writes nothing.
    lost.full.store(false, Ordering::SeqCst);
    let error = old.running.service().upkeep().flush().unwrap_err();
    assert!(matches!(error, StoreError::TakenOver { ours: 1, theirs: 2 }), "{error}");
    assert!(old.running.service().silence().is_some());
    assert_eq!(crate::support::charged(&new, "web").await, 30_000_000);
}

#[tokio::test]
async fn a_disk_that_was_full_for_a_while_ends_grants_for_that_while() {
    let hand = Hand::default();
    let store = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let lab = hand.fenced(Arc::clone(&store) as Arc<dyn Store>).await;
    lab.group("web", "1000").await;
    store.full.store(true, Ordering::SeqCst);
    hand.move_on(FENCE_US);
    // A commit that began before the disk was full may end after this.
    while lab.running.service().silence().is_none() {
        hand.move_on(FENCE_US);
        sleep(Duration::from_millis(20)).await;
    }
    refused(&lab).await;
    store.full.store(false, Ordering::SeqCst);
    while lab.running.service().silence().is_some() {
        sleep(Duration::from_millis(20)).await;
    }
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    assert_eq!(node.welcome.epoch, 1);
    assert!(node.renew(vec![entry("web", 300)], Vec::new()).await.unwrap().entries[0].rate > 0);
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_commit_counts_from_its_beginning_however_long_it_takes() {
    for (takes, silent) in [(FENCE_US - 1, false), (FENCE_US, true)] {
        let hand = Hand::default();
        let store = Arc::new(Slow::new(&hand));
        let lab = hand.fenced(Arc::clone(&store) as Arc<dyn Store>).await;
        assert_eq!(lab.running.service().silence(), None);
        store.takes.store(takes, Ordering::SeqCst);
        // The controller writes to the store on its own.
        while store.refused.load(Ordering::SeqCst) == 0 || hand.now() < takes {
            sleep(Duration::from_millis(1)).await;
        }
        // A successor waits from the moment it took the store, which may be the moment that commit began.
        assert_eq!(lab.running.service().silence().is_some(), silent);
    }
}

#[tokio::test]
async fn a_stop_before_the_predecessors_fence_has_passed_is_no_clean_one() {
    let hand = Hand::default();
    let disk: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = hand.fenced(Arc::clone(&disk)).await;
    first.group("web", "1000").await;
    first.running.abort().await;
    let second = hand.fenced(Arc::clone(&disk)).await;
    second.running.shutdown().await.unwrap();
    let third = hand.fenced(Arc::clone(&disk)).await;
    assert_eq!(third.running.service().epoch(), 3);
    refused(&third).await;
    // Afterwards, a clean stop leaves nothing to wait for.
    hand.move_on(PREDECESSOR_US);
    while third.running.service().silence().is_some() {
        sleep(Duration::from_millis(20)).await;
    }
    let mut node = Node::connect(&third, "node", 1).await.unwrap();
    node.renew(vec![entry("web", 1)], Vec::new()).await.unwrap();
    third.running.shutdown().await.unwrap();
    let fourth = hand.fenced(disk).await;
    assert!(Node::connect(&fourth, "node", 1).await.is_ok());
    assert_eq!(fourth.running.service().epoch(), 3);
}

#[tokio::test]
async fn a_fence_outlives_a_successor_that_has_none_and_dies() {
    let hand = Hand::default();
    let disk: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = hand.fenced(Arc::clone(&disk)).await;
    first.group("web", "1000").await;
    first.running.abort().await;
    // The first may still be granting when the third starts.
    hand.started(Arc::clone(&disk), None).await.running.abort().await;
    let third = hand.started(disk, None).await;
    assert!(refused(&third).await.contains("may still be granting"));
    hand.move_on(PREDECESSOR_US);
    assert!(Node::connect(&third, "node", 1).await.is_ok());
}
