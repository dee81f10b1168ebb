//! One webhook: what its metrics say, when it is tried, and what is told at the stop.

use std::fs::{Permissions, set_permissions};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_core::units::Time;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::*;
use crate::alarms::queue::{MOST_AGE, MOST_QUEUED};
use crate::alarms::settings::address;

/// A webhook whose secret is there or missing.
fn hook(folder: &TempDir, to: SocketAddr, has_secret: bool, clock: Clock) -> (Hook, Arc<Metrics>) {
    let secret_file = folder.path().join("secret");
    if has_secret {
        std::fs::write(&secret_file, "a secret of tests, for no receiver").unwrap();
        set_permissions(&secret_file, Permissions::from_mode(0o600)).unwrap();
    }
    let settings = Webhook {
        name: "ops".to_owned(),
        url: address(&format!("http://{to}/"), false).unwrap(),
        secret_file,
        authorities: None,
        kinds: Vec::new(),
        groups: Vec::new(),
    };
    let metrics = Arc::new(Metrics::new());
    (Hook::new(settings, (1, Value::Null), clock, Arc::clone(&metrics)), metrics)
}

fn nowhere() -> SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}

fn push(hook: &Hook, count: usize) {
    let entry = Entry { at: hook.clock.now(), of: None, json: Value::Null };
    hook.push(std::iter::repeat_n(entry, count));
}

/// What the page of metrics says behind this; 0 when nothing.
fn metric(metrics: &Metrics, name: &str) -> u64 {
    let page = metrics.page(&[]).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("tidegate_webhook_{name} ")));
    line.map_or(0, |count| count.parse().unwrap())
}

const QUEUED: &str = "queued{webhook=\"ops\"}";
const DROPPED: &str = "dropped_total{webhook=\"ops\"}";
const DELIVERED: &str = "deliveries_total{webhook=\"ops\",outcome=\"delivered\"}";
const FAILED: &str = "deliveries_total{webhook=\"ops\",outcome=\"failed\"}";

/// A receiver that answers so often with an error, and then takes what it is sent.
async fn receiver(mut errors: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut bytes, mut part) = (Vec::new(), [0; 4_096]);
            // A body is one object, and nothing in it here is another that ends it within a part.
            while !bytes.ends_with(b"}") {
                let count = stream.read(&mut part).await.unwrap();
                bytes.extend_from_slice(&part[..count]);
            }
            let status = if errors > 0 { "503 Not now" } else { "204 Taken" };
            errors = errors.saturating_sub(1);
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
        }
    });
    to
}

#[test]
fn what_waits_and_what_is_dropped_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicU64::new(0));
    let (hook, metrics) = hook(&folder, nowhere(), true, Clock::driven(Arc::clone(&now)));
    push(&hook, 3);
    assert_eq!((metric(&metrics, QUEUED), metric(&metrics, DROPPED)), (3, 0));
    push(&hook, MOST_QUEUED);
    assert_eq!((metric(&metrics, QUEUED), metric(&metrics, DROPPED)), (MOST_QUEUED as u64, 3));
    now.store(MOST_AGE.0 + 1, Ordering::SeqCst);
    assert_eq!(hook.clock.now(), Time(MOST_AGE.0 + 1));
    assert!(hook.next().is_none());
    assert_eq!((metric(&metrics, QUEUED), metric(&metrics, DROPPED)), (0, MOST_QUEUED as u64 + 3));
}

#[tokio::test]
async fn the_last_tries_tell_all_that_waits_until_one_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (all, metrics) = hook(&folder, receiver(0).await, true, Clock::start());
    push(&all, 250);
    all.deliver_last().await;
    assert_eq!((all.waiting(), metric(&metrics, DELIVERED), metric(&metrics, FAILED)), (0, 3, 0));

    let (some, metrics) = hook(&folder, receiver(1).await, true, Clock::start());
    push(&some, 250);
    some.deliver_last().await;
    assert_eq!((some.waiting(), metric(&metrics, DELIVERED), metric(&metrics, FAILED)), (250, 0, 1));
    assert!(some.fault().is_some_and(|fault| fault.contains("503")));
}

/// A stop does not wait for its end, and there is no later try.
#[tokio::test]
async fn the_last_tries_are_made_in_a_pause_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::driven(Arc::new(AtomicU64::new(0)));
    let (hook, metrics) = hook(&folder, receiver(1).await, true, clock);
    push(&hook, 250);
    for (waiting, delivered) in [(250, 0), (0, 3)] {
        hook.deliver_last().await;
        assert_eq!((hook.waiting(), metric(&metrics, DELIVERED)), (waiting, delivered));
    }
    assert_eq!(metric(&metrics, FAILED), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_failed_is_tried_again_after_its_pause_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let (hook, metrics) = hook(&folder, nowhere(), false, Clock::start());
    push(&hook, 1);
    // The first pause is half a second to a second, the next twice as long.
    for (ms, tries) in [(400, 1), (700, 2)] {
        tokio::select! {
            () = hook.deliver() => {}
            () = sleep(Duration::from_millis(ms)) => {}
            // Each try wakes this task.
            () = poll_fn(|_| if metric(&metrics, FAILED) > tries { Poll::Ready(()) } else { Poll::Pending }) => {}
        }
        assert_eq!(metric(&metrics, FAILED), tries, "{ms} ms later");
    }
    assert_eq!(hook.waiting(), 1);
}
