//! How long operations of a group waited, as commands show it, against what their client measured.

use std::time::Duration;

use serde_json::Value;
use tidegate_client::{Client, Ru};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use crate::support::{Controller, eventually};

/// Operations of 1 RU, and the time between two: twice the rate of the group.
const OPERATIONS: usize = 600;
const APART: Duration = Duration::from_millis(10);
const RATE: &str = "50";
/// How long each waits at most.
const PATIENCE: Duration = Duration::from_millis(400);

/// What the client saw.
struct Measured {
    /// How long each operation took to be admitted or refused, the longest first.
    took: Vec<Duration>,
    /// Of them, admitted.
    admitted: u64,
    /// How late the runtime was at most: so much later than its answer an operation may have had it.
    late: Duration,
}

/// Offers twice the rate and returns what became of it.
async fn offer(client: &Client) -> Measured {
    let group = client.group("shop").await.unwrap();
    let (mut tasks, mut ticks) = (JoinSet::new(), interval(APART));
    let mut late = Duration::ZERO;
    for _ in 0..OPERATIONS {
        let due = ticks.tick().await;
        late = late.max(Instant::now().saturating_duration_since(due));
        let group = group.clone();
        tasks.spawn(async move {
            let began = Instant::now();
            let admitted = group.acquire(Ru::whole(1), PATIENCE).await.is_ok();
            (began.elapsed(), admitted)
        });
    }
    let ended = tasks.join_all().await;
    let admitted = ended.iter().filter(|(_, admitted)| *admitted).count() as u64;
    let mut took: Vec<Duration> = ended.into_iter().map(|(took, _)| took).collect();
    took.sort_unstable_by(|one, other| other.cmp(one));
    Measured { took, admitted, late }
}

fn of_group<'v>(samples: &'v Value, group: &str) -> &'v Value {
    samples.as_array().unwrap().iter().find(|sample| sample["group"] == group).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_waits_of_a_group_are_those_that_its_client_measured() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "stores", "--rate", "1000"]);
    controller.ok(&["group", "create", "shop", "--parent", "stores", "--rate", RATE, "--burst", "5"]);
    let client = Client::connect([controller.endpoint.clone()], "till").await.unwrap();
    let measured = offer(&client).await;
    let counts = client.stats().counts;
    assert!(counts.queued > 100, "{counts:?}");
    let shown = || controller.json(&["lease", "list", "shop"])["groups"][0]["waits"].clone();
    eventually("each wait is reported", || shown()["ended"] == counts.queued);
    let shown = shown();
    assert_eq!(shown["in_vain"], counts.queued - (measured.admitted - counts.admitted), "{shown}");

    // What took an operation's time is not only its wait: the client's figure is never below the true one, and above
    // it by no more than the runtime was late.
    let rank = usize::try_from(counts.queued - (counts.queued * 99).div_ceil(100)).unwrap();
    let exact = measured.took[rank];
    let p99 = Duration::from_micros(shown["p99_us"].as_u64().unwrap());
    assert!(p99 <= exact + exact / 4, "{p99:?}, measured {exact:?}");
    assert!(
        p99 + 2 * measured.late + APART >= exact,
        "{p99:?}, measured {exact:?}, late {:?}",
        measured.late
    );

    // Once only, and with the group above.
    let samples = controller.json(&["top", "--once"]);
    assert_eq!(of_group(&samples, "shop")["waits"]["p99_us"], shown["p99_us"], "{samples}");
    assert_eq!(of_group(&samples, "stores")["with_children"]["waits"]["ended"], counts.queued);
    assert!(of_group(&samples, "stores")["waits"].is_null());
    assert_eq!(client.shutdown().await.unconfirmed, []);
}
