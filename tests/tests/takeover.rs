//! Three controllers on three members of etcd, with the real binaries: the one that leads is killed, stopped, or asked
//! to end, and so is the member of etcd that leads. Another controller leads soon, no window passes the bound, no
//! definition is lost, and every RU is counted once.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_client::{Client, RuParts};
use tidegate_core::bound::{Bound, tick};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_proto::v1;
use tidegate_tests::process::controllers::Controllers;
use tidegate_tests::process::log::{MachineClock, machine_micros};
use tokio::task::JoinHandle;

const NODES: usize = 3;
const RATE: i64 = 2_000;
const BURST: i64 = 400;
/// RU of one operation.
const COST: i64 = 5;
/// Workers of a node: together they ask for far more than there is.
const WORKERS: usize = 8;

/// A node under load: what it was admitted, and when.
struct Node {
    client: Client,
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<Vec<u64>>>,
}

impl Node {
    async fn start(endpoints: &[String], clock: MachineClock, name: &str) -> Self {
        let client = Client::connect(endpoints.to_vec(), name).await.unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let workers =
            (0..WORKERS).map(|_| tokio::spawn(work(client.clone(), clock, Arc::clone(&stop)))).collect();
        Self { client, stop, workers }
    }

    async fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut admitted = Vec::new();
        for worker in self.workers {
            admitted.extend(worker.await.unwrap());
        }
        let unconfirmed = self.client.shutdown().await.unconfirmed;
        assert!(unconfirmed.is_empty(), "{unconfirmed:?}");
        admitted
    }
}

/// Works until it is stopped; returns when each operation was admitted, in microseconds of the machine.
async fn work(client: Client, clock: MachineClock, stop: Arc<AtomicBool>) -> Vec<u64> {
    let group = client.group("shop").await.unwrap();
    let mut admitted = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        // While nobody leads and leases are over, operations are refused: that is no failure here.
        if let Ok(permit) = group.acquire(Ru::whole(COST), Duration::from_millis(500)).await {
            admitted.push(clock.micros(permit.admitted_at()));
            permit.settle_ru(RuParts { flat: Ru::whole(COST), ..RuParts::default() });
        }
    }
    admitted
}

/// Waits until every node is admitted something after now.
async fn all_go_on(nodes: &[Node]) {
    let admitted = |node: &Node| node.client.group_now("shop").unwrap().consumption().operations;
    let before: Vec<_> = nodes.iter().map(admitted).collect();
    let moved = async {
        loop {
            let all = nodes.iter().zip(&before).all(|(node, before)| admitted(node) > *before);
            if all && nodes.iter().all(|node| node.client.is_connected()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), moved).await.unwrap();
}

async fn define(controllers: &Controllers, leader: usize, name: &str) {
    let group = v1::Group {
        name: name.to_owned(),
        ru_per_sec: RATE.to_string(),
        burst: BURST.to_string(),
        fallback: "stop".to_owned(),
        ..v1::Group::default()
    };
    let request = v1::CreateGroupRequest { group: Some(group), if_not_exists: true };
    answered(async || controllers.admin(leader).await.unwrap().create_group(request.clone()).await).await;
}

/// The answer to a call, as soon as there is one: a leader whose beat is late takes none.
async fn answered<T>(call: impl AsyncFn() -> Result<T, tonic::Status>) -> T {
    loop {
        match call().await {
            Err(status) if status.code() == tonic::Code::Unavailable => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_controller_takes_over_and_nothing_is_lost_doubled_or_over_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let load_node = Path::new(env!("CARGO_BIN_EXE_load-node"));
    let mut controllers = Controllers::new(folder.path(), load_node, 3).unwrap();
    controllers.start(0).unwrap();
    let (mut leader, mut epoch) = controllers.successor(None).await.unwrap();
    controllers.start(1).unwrap();
    controllers.start(2).unwrap();
    define(&controllers, leader, "shop").await;
    let (clock, begun) = (MachineClock::start().unwrap(), machine_micros());
    let mut nodes = Vec::new();
    for node in 0..NODES {
        nodes.push(Node::start(&controllers.endpoints(), clock, &format!("n{node}")).await);
    }
    all_go_on(&nodes).await;

    let mut made = vec!["default".to_owned(), "shop".to_owned()];
    for (round, fault) in ["kill", "stop", "end", "kill", "stop and end", "kill both"].into_iter().enumerate()
    {
        let name = format!("made-{round}");
        define(&controllers, leader, &name).await;
        made.push(name);
        let began = machine_micros();
        match fault {
            "stop" | "stop and end" => drop(controllers.process(leader).unwrap().stop().await.unwrap()),
            "end" => controllers.end(leader).await.unwrap(),
            "kill both" => {
                let member = controllers.etcd.leader().unwrap();
                controllers.etcd.kill(member).unwrap();
                controllers.kill(leader);
            }
            _ => controllers.kill(leader),
        }
        let (next, later) = controllers.successor(Some(leader)).await.unwrap();
        println!("{fault}: c{next} leads after {}", Span(machine_micros() - began));
        // After a stop in order, leases are resumed under the same epoch.
        assert!(later > epoch || fault == "end", "{fault}: epoch {later} after {epoch}");
        all_go_on(&nodes).await;
        if fault == "stop and end" {
            // It is asked to end before it can find that it leads no more, and has nothing to save then.
            controllers.process(leader).unwrap().terminate();
            controllers.process(leader).unwrap().go_on();
            controllers.end(leader).await.unwrap();
            controllers.start(leader).unwrap();
        } else if fault == "stop" {
            // It finds that it leads no more.
            controllers.process(leader).unwrap().go_on();
            controllers.stands_by(leader).await.unwrap();
        } else {
            controllers.start(leader).unwrap();
        }
        (leader, epoch) = (next, later);
        let mut found = controllers.tidegate(&["group", "list", "-o", "name"]).unwrap();
        found.sort();
        made.sort();
        assert_eq!(found, made, "after {fault}");
        let leads = controllers.tidegate(&["cluster", "status", "-o", "name"]).unwrap();
        assert_eq!(leads, controllers.endpoints()[leader..=leader], "after {fault}");
    }

    let mut admitted = Vec::new();
    for node in nodes {
        admitted.extend(node.end().await);
    }
    admitted.sort();
    let rate = Rate::whole(RATE);
    let mut bound = Bound::new(Time(0), rate);
    for at in &admitted {
        bound.admit(Time(at.saturating_sub(begun)), Ru::whole(COST));
    }
    let most = Ru::whole(BURST) + tick(rate);
    assert!(bound.worst() <= most, "{} RU above the rate within {}", bound.worst(), bound.worst_window());
    // Nodes keep their leases while nobody leads, and prove them to the next leader.
    let took = Span(machine_micros() - begun);
    println!(
        "{} operations, {} % of the rate within {took}",
        admitted.len(),
        bound.admitted().0 * 100 / rate.over(took).0
    );
    let request = v1::UsageRequest { group: "shop".to_owned(), per_client: false };
    let usage =
        answered(async || controllers.admin(leader).await.unwrap().usage(request.clone()).await).await;
    let usage = usage.into_inner();
    let counted: i64 =
        usage.rows.iter().map(|row| row.total.as_ref().map_or(0, |total| total.flat_micro_ru)).sum();
    assert_eq!(counted, bound.admitted().0, "the ledger has what was admitted, once");
}
