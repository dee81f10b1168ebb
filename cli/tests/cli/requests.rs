//! A quota of requests over a controller process and several clients, of which one is gone without a word and the
//! controller is killed: never one more, and all that is not lost can be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_client::{Client, QuotaUnit, Refused, Ru};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::support::{Controller, eventually};

const REQUESTS: u64 = 400;
/// How long a request waits at most: for a renewal, or for a controller that begins again.
const PATIENCE: Duration = Duration::from_millis(500);

fn whole(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

/// Begins requests of any cost until none is left; one in ten never runs.
async fn spend(client: Client, begun: Arc<AtomicU64>) -> u64 {
    let group = client.group("shop").await.unwrap();
    let (mut own, mut turn) = (0, 0);
    loop {
        turn += 1;
        match group.acquire(Ru::whole(turn % 3), PATIENCE).await {
            Ok(permit) if turn % 10 == 0 => permit.cancel(),
            Ok(permit) => {
                begun.fetch_add(1, Ordering::SeqCst);
                own += 1;
                drop(permit);
            }
            Err(Refused::QuotaUsedUp { unit, .. }) => {
                assert_eq!(unit, QuotaUnit::Requests);
                return own;
            }
            Err(Refused::Throttled { .. } | Refused::Unavailable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// What the controller makes of it: used, held by nodes, lost, left.
fn counted(controller: &Controller) -> [u64; 4] {
    let leases = controller.json(&["lease", "list", "shop"]);
    let quota = &leases["groups"][0]["quota"];
    assert_eq!((&quota["unit"], &quota["amount"]), (&json!("requests"), &json!(REQUESTS.to_string())));
    ["used", "unused", "lost", "left"].map(|field| whole(&quota[field]))
}

#[tokio::test(flavor = "multi_thread")]
async fn never_one_more_request_whatever_dies_and_none_that_is_left_is_refused() {
    never_one_more("month").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_one_more_in_a_window_that_rolls() {
    never_one_more("rolling month").await;
}

async fn never_one_more(window: &str) {
    let mut controller = Controller::start();
    let quota = format!("{REQUESTS} requests per {window}");
    // Nothing admits without a lease, and leases end soon.
    let create = ["group", "create", "shop", "--rate", "1000000", "--ttl", "2s", "--quota", &quota];
    controller.ok(&create);
    let begun = Arc::new(AtomicU64::new(0));
    // A client whose process is gone in the midst of it: nothing of it runs on, and it says no goodbye.
    let gone = Runtime::new().unwrap();
    let (endpoint, count) = (controller.endpoint.clone(), Arc::clone(&begun));
    let of_gone = Arc::new(AtomicU64::new(0));
    let of_it = Arc::clone(&of_gone);
    gone.spawn(async move {
        let client = Client::connect([endpoint], "gone").await.unwrap();
        let group = client.group("shop").await.unwrap();
        for _ in 0..30 {
            let permit = group.acquire(Ru::whole(1), Duration::from_secs(20)).await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            of_it.fetch_add(1, Ordering::SeqCst);
            std::mem::forget(permit);
        }
        std::mem::forget((client, group));
        std::future::pending::<()>().await;
    });
    eventually("it has begun some", || of_gone.load(Ordering::SeqCst) == 30);
    gone.shutdown_background();
    let mut others = JoinSet::new();
    for number in 0..3 {
        let client = Client::connect([controller.endpoint.clone()], format!("node-{number}")).await.unwrap();
        others.spawn(spend(client, Arc::clone(&begun)));
    }
    eventually("half of it is used", || begun.load(Ordering::SeqCst) > REQUESTS / 2);
    controller.kill();
    controller.again();
    let own: u64 = others.join_all().await.into_iter().sum();
    let total = begun.load(Ordering::SeqCst);
    assert_eq!(total, own + 30);
    assert!(total <= REQUESTS, "{total} of {REQUESTS}");
    // What is not begun is lost with the client that is gone and the controller that was killed, and nothing is left.
    eventually("leases of clients that are gone have ended", || counted(&controller)[1] == 0);
    let [used, _, lost, left] = counted(&controller);
    assert_eq!((used + lost, left), (REQUESTS, 0), "{total} begun");
    assert!(used + lost >= total, "{used} used, {lost} lost, {total} begun");
    let listed = controller.ok(&["lease", "list", "shop", "-o", "wide"]);
    assert!(listed.contains("0 requests"), "{listed}");
    let status = controller.ok(&["group", "show", "shop"]);
    assert!(status.contains(&quota), "{status}");
}
