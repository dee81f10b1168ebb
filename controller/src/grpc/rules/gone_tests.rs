//! Gateways that go away.

use tokio::time::timeout;
use tonic::Extensions;

use super::*;
use crate::clock::Clock;
use crate::service::ServiceConfig;
use crate::store::RedbStore;

/// It has one of the places for streams.
#[tokio::test(start_paused = true)]
async fn the_stream_of_a_gateway_that_went_away_ends_while_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let service = Arc::new(Service::load(store, ServiceConfig::default(), Clock::start()).unwrap());
    let (_stop, stopped) = flag::channel(false);
    let changes = service.statements().follow_rules().unwrap();
    let (peer, mut told) = Reader::of(&Extensions::new(), &service.metrics);
    let (stopping, narrowed) = (Stopping::new(stopped), Narrowed::default());
    let serving = tokio::spawn(serve(stopping, Arc::clone(&service), changes, narrowed, peer));
    assert!(!told.recv().await.unwrap().unwrap().more);
    // Beyond the pause after a list.
    sleep(2 * duration(RULES_EVERY)).await;
    drop(told);
    timeout(duration(RULES_EVERY), serving).await.unwrap().unwrap();
    assert_eq!(service.rules_flag().receiver_count(), 0);
}
