//! etcd is restored from a backup under controllers that are ahead of it, with real members of etcd and the real
//! binaries: they refuse to start, an operator runs `tidegate cluster restored`, and they go on under a later epoch than
//! any node has seen. A node that was cut off all the time uses a lease that the backup knows nothing of: the bound holds
//! over it and a newcomer. What only the lost log had is lost, and what the living node counted comes back.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidegate_client::{Client, RuParts};
use tidegate_core::bound::{Bound, tick};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_proto::v1;
use tidegate_tests::process::controllers::Controllers;
use tidegate_tests::process::error::PATIENCE;
use tidegate_tests::process::log::{MachineClock, machine_micros};
use tidegate_tests::process::proxy::Proxy;
use tokio::task::JoinHandle;

const RATE: i64 = 200;
const BURST: i64 = 100;
/// RU of one operation.
const COST: i64 = 5;
/// Lease lengths in the backup and after it.
const LEASE: &str = "5s";
const LONGER: &str = "10s";
const LONGER_US: u64 = 10_000_000;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A node under load: what it was admitted, and when.
struct Node {
    client: Client,
    stop: Arc<AtomicBool>,
    admitted: Arc<AtomicU64>,
    work: JoinHandle<Vec<u64>>,
}

impl Node {
    /// It asks for more than there is.
    async fn start(endpoints: Vec<String>, clock: MachineClock, name: &str) -> Self {
        let client = Client::connect(endpoints, name).await.unwrap();
        let (stop, admitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (group, stopped, counted) =
            (client.group("shop").await.unwrap(), Arc::clone(&stop), Arc::clone(&admitted));
        let work = tokio::spawn(async move {
            let mut all = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let Ok(permit) = group.acquire(Ru::whole(COST), Duration::from_millis(500)).await else {
                    // Without a lease it is refused, at once and again: that is no failure here.
                    tokio::task::yield_now().await;
                    continue;
                };
                all.push(clock.micros(permit.admitted_at()));
                permit.settle_ru(RuParts { flat: Ru::whole(COST), ..RuParts::default() });
                counted.fetch_add(1, Ordering::Relaxed);
            }
            all
        });
        Self { client, stop, admitted, work }
    }

    fn count(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    async fn goes_on(&self) {
        let before = self.count();
        until("the node is admitted something", async || self.count() > before + 5).await;
    }

    async fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let all = self.work.await.unwrap();
        let unconfirmed = self.client.shutdown().await.unconfirmed;
        assert!(unconfirmed.is_empty(), "{unconfirmed:?}");
        all
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let reached = async {
        while !is_so().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, reached).await.is_ok(), "{what}");
}

/// Runs the command beside the data of a controller.
fn restored(controllers: &Controllers, index: usize) -> Output {
    let mut command = Command::new(controllers.binary());
    command.args(["cluster", "restored", "--output", "json", "--data"]).arg(controllers.data(index));
    command.args(["--cluster-name", &format!("c{index}")]);
    for member in controllers.etcd.endpoints() {
        command.args(["--etcd", &member]);
    }
    command.output().unwrap()
}

/// Micro-RU of operations.
fn cost(operations: &[u64]) -> i64 {
    Ru::whole(COST).0 * i64::try_from(operations.len()).unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the ledger has of the group, in micro-RU.
async fn ledger(controllers: &Controllers, leader: usize) -> i64 {
    let request = v1::UsageRequest { group: "shop".to_owned(), per_client: false };
    let usage = controllers.admin(leader).await.unwrap().usage(request).await.unwrap().into_inner();
    usage.rows.iter().map(|row| row.total.as_ref().map_or(0, |total| total.flat_micro_ru)).sum()
}

/// Starts a controller whose file is ahead, which ends with the reason.
async fn refuses(controllers: &mut Controllers, index: usize) {
    controllers.start(index).unwrap();
    let process = controllers.process(index).unwrap();
    let status = process.end_within(PATIENCE).await.unwrap();
    let tail = process.tail();
    assert!(!status.success() && tail.contains("`tidegate cluster restored`"), "{status}: {tail}");
}

/// The other one may not have seen yet that the controllers of before were killed.
fn run_until_nobody_runs(controllers: &Controllers) -> Value {
    loop {
        let output = restored(controllers, 1);
        if output.status.success() {
            return serde_json::from_slice(&output.stdout).unwrap();
        }
        assert!(told(&output).contains(" runs; stop all of its controllers"), "{}", told(&output));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_goes_on_after_a_restore_of_etcd_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let load_node = Path::new(env!("CARGO_BIN_EXE_load-node"));
    let mut controllers = Controllers::new(folder.path(), load_node, 2).unwrap();
    controllers.have_fence("3s");
    controllers.start(0).unwrap();
    let (leader, first) = controllers.successor(None).await.unwrap();
    assert_eq!(leader, 0);
    let rate = RATE.to_string();
    let burst = BURST.to_string();
    let shop = ["--rate", &rate, "--burst", &burst, "--ttl", LEASE, "--fallback", "stop"];
    controllers.tidegate(&[["group", "create", "shop"].as_slice(), &shop].concat()).unwrap();
    let early = restored(&controllers, 0);
    assert!(
        !early.status.success() && told(&early).contains("in use by another process"),
        "{}",
        told(&early)
    );
    let backup = controllers.etcd.back_up().unwrap();

    controllers.start(1).unwrap();
    controllers.stands_by(1).await.unwrap();
    controllers.tidegate(&["group", "alter", "shop", "--ttl", LONGER]).unwrap();
    controllers.tidegate(&["group", "create", "later", "--rate", "1"]).unwrap();
    controllers.kill(0);
    let (leader, seen) = controllers.successor(Some(0)).await.unwrap();
    assert!(leader == 1 && seen > first, "{seen} after {first}");

    // What ends meanwhile is in the lost log only.
    let (clock, begun) = (MachineClock::start().unwrap(), machine_micros());
    let gone = Node::start(controllers.endpoints(), clock, "gone").await;
    gone.goes_on().await;
    let gone = gone.end().await;
    let addresses = controllers.addresses();
    let ways = [Proxy::start(addresses[0]).await.unwrap(), Proxy::start(addresses[1]).await.unwrap()];
    let cut = |cut| ways.iter().for_each(|way| way.set(|at| (at.up.cut, at.down.cut) = (cut, cut)));
    let endpoints = ways.iter().map(|way| format!("http://{}", way.address())).collect();
    let alone = Node::start(endpoints, clock, "alone").await;
    alone.goes_on().await;
    cut(true);
    controllers.kill(1);
    let cut_off = alone.count();

    controllers.etcd.restore(&backup).unwrap();
    refuses(&mut controllers, 0).await;
    refuses(&mut controllers, 1).await;
    let report = run_until_nobody_runs(&controllers);
    assert!(report["epoch"].as_u64().unwrap() > seen, "{report}");
    let lost = report["lost"]["newest_changes"].as_array().unwrap();
    let lost: Vec<&str> = lost.iter().filter_map(|entry| entry["subject"].as_str()).collect();
    assert_eq!(lost, ["later", "shop"], "{report}");
    assert_eq!(report["lost"]["groups"][0]["group"], "shop", "{report}");
    let lost_ru = report["lost"]["ru"].as_str().unwrap().split('.').next().unwrap().parse::<i64>().unwrap();
    assert!(lost_ru >= cost(&gone) / 1_000_000, "{report}");
    let again = restored(&controllers, 1);
    assert!(told(&again).contains("there is no store"), "{}", told(&again));
    let again = restored(&controllers, 0);
    assert!(told(&again).contains("if `cluster restored` was run before"), "{}", told(&again));

    controllers.start(0).unwrap();
    let (leader, epoch) = controllers.successor(None).await.unwrap();
    controllers.start(1).unwrap();
    controllers.stands_by(1).await.unwrap();
    assert!(
        controllers.data(0).join("tidegate.redb.replaced").exists(),
        "the first is put aside as it starts"
    );
    assert!(controllers.data(1).join("tidegate.redb.replaced-1").exists());
    assert!(leader == 0 && epoch > seen, "{epoch} after {seen}");
    let status = controllers.admin(0).await.unwrap().status(v1::StatusRequest {}).await.unwrap().into_inner();
    let until_recovered = Span(status.uptime_us + status.recovery_us);
    assert!(
        until_recovered.0 >= LONGER_US,
        "leases of the lost log may last for {LONGER}: {until_recovered}"
    );
    let mut groups = controllers.tidegate(&["group", "list", "-o", "name"]).unwrap();
    groups.sort();
    assert_eq!(groups, ["default", "shop"], "as in the backup");

    let newcomer = Node::start(controllers.endpoints(), clock, "newcomer").await;
    newcomer.goes_on().await;
    let on_its_own = alone.count() - cut_off;
    assert!(on_its_own > 0, "it used its lease meanwhile");
    cut(false);
    until("it is back", async || alone.client.is_connected()).await;
    alone.goes_on().await;
    let (newcomer, alone) = (newcomer.end().await, alone.end().await);
    let counted = ledger(&controllers, 0).await;
    assert_eq!(counted, cost(&newcomer) + cost(&alone), "what ended before is lost, and nothing else");
    let newcomers = newcomer.len();
    let mut all = [newcomer, alone].concat();
    all.extend(gone);
    all.sort_unstable();
    let rate = Rate::whole(RATE);
    let mut bound = Bound::new(Time(0), rate);
    all.iter().for_each(|at| bound.admit(Time(at.saturating_sub(begun)), Ru::whole(COST)));
    let most = Ru::whole(BURST) + tick(rate);
    assert!(bound.worst() <= most, "{} RU above the rate within {}", bound.worst(), bound.worst_window());
    println!(
        "{on_its_own} operations without a controller, {newcomers} of the newcomer; epoch {first}, {seen}, {epoch}"
    );
}
