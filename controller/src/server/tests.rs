//! Looking for what is over, in driven time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_proto::v1;
use tokio::sync::watch as flag;
use tokio::time::{Instant, sleep};

use super::watch_tokens;
use crate::clock::Clock;
use crate::config::Access;
use crate::definitions::audit::Actor;
use crate::identity::FirstToken;
use crate::identity::guard::Guard;
use crate::service::{Service, ServiceConfig};
use crate::store::RedbStore;

/// How long after its end a token or a JWT may still hold a stream.
const OVER_WITHIN: Duration = Duration::from_secs(1);
/// A step of time, in milliseconds.
const STEP_MS: u64 = 10;

#[tokio::test(start_paused = true)]
async fn what_has_expired_is_over_within_a_second_of_its_end_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let us = Arc::new(AtomicU64::new(0));
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let clock = Clock::driven(Arc::clone(&us));
    let service = Arc::new(Service::load(store, ServiceConfig::default(), clock).unwrap());
    let guard = Guard::new(Access::default(), Arc::clone(&service), Arc::default());
    let (stop, stopped) = flag::channel(false);
    let looking = watch_tokens(Arc::clone(&guard), Arc::clone(&service), None, stopped);
    // Wherever between two looks they end.
    for lives_ms in [10, 240, 490, 500, 510, 740, 1_990] {
        let wish = v1::CreateTokenRequest {
            name: "till".into(),
            role: "node".into(),
            ttl_us: lives_ms * 1_000,
            ..Default::default()
        };
        let (_, secret) = service.tokens().create(&Actor::new(None, "test"), &wish).unwrap();
        let end_ms = service.clock().unix_ms() + lives_ms;
        let of_token = service.tokens().identify(secret.reveal()).unwrap().over;
        let of_jwt = guard.providers().over_at(end_ms);
        let (mut ended, mut is_over) = (None, false);
        while !is_over {
            sleep(Duration::from_millis(STEP_MS)).await;
            us.fetch_add(STEP_MS * 1_000, Ordering::Relaxed);
            let now_ms = service.clock().unix_ms();
            if now_ms >= end_ms {
                ended.get_or_insert_with(Instant::now);
            }
            assert!(ended.is_some() || !*of_token.borrow() && !*of_jwt.borrow(), "before the end");
            is_over = *of_token.borrow() && *of_jwt.borrow();
            let late = ended.map_or(Duration::ZERO, |ended: Instant| ended.elapsed());
            assert!(late <= OVER_WITHIN, "{lives_ms}: {late:?}");
        }
    }
    stop.send_replace(true);
    looking.await.unwrap();
}

/// The first token of an admin is looked after beside them, and not in their place.
#[tokio::test(start_paused = true)]
async fn streams_of_jwts_end_where_the_first_token_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let us = Arc::new(AtomicU64::new(0));
    let path = folder.path().join("store");
    let store = Arc::new(RedbStore::open(&path).unwrap());
    let clock = Clock::driven(Arc::clone(&us));
    let service = Arc::new(Service::load(store, ServiceConfig::default(), clock).unwrap());
    let guard = Guard::new(Access::default(), Arc::clone(&service), Arc::default());
    let (stop, stopped) = flag::channel(false);
    let first = Some(FirstToken::beside(&path));
    let looking = watch_tokens(Arc::clone(&guard), Arc::clone(&service), first, stopped);
    let of_jwt = guard.providers().over_at(service.clock().unix_ms() + STEP_MS);
    us.fetch_add(STEP_MS * 1_000, Ordering::Relaxed);
    sleep(OVER_WITHIN).await;
    assert!(*of_jwt.borrow());
    assert!(folder.path().join("store.first-token").exists());
    stop.send_replace(true);
    looking.await.unwrap();
}
