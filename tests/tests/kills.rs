//! `kill -9` of controller and nodes at random moments under load, with the real binaries: no definition, no binding
//! and no RU is lost or doubled, and no window passes the bound.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tidegate_core::units::{Rate, Ru, Time};
use tidegate_proto::v1::{
    BindRequest, Binding, CreateGroupRequest, GetGroupRequest, Group, ListBindingsRequest, UsageRequest,
};
use tidegate_tests::process::cluster::Cluster;
use tidegate_tests::process::log::{self, Life};
use tidegate_tests::sim::measure::Bound;
use tidegate_tests::sim::random::Random;

const ROUNDS: u64 = 50;
const NODES: usize = 3;
const RATE: i64 = 1_000;

fn group(name: &str, rate: &str) -> Group {
    Group { name: name.to_owned(), ru_per_sec: rate.to_owned(), ttl_us: 800_000, ..Group::default() }
}

async fn create(cluster: &Cluster, group: Group) {
    let request = CreateGroupRequest { group: Some(group), if_not_exists: true };
    cluster.admin().await.unwrap().create_group(request).await.unwrap();
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_by_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let load_node = Path::new(env!("CARGO_BIN_EXE_load-node"));
    let mut cluster = Cluster::new(folder.path(), load_node, NODES, "load").unwrap();
    cluster.start_controller().await.unwrap();
    create(&cluster, group("load", &RATE.to_string())).await;
    for node in 0..NODES {
        cluster.start_node(node).unwrap();
    }
    let mut random = Random::new(20_261_121, 0);
    let mut kills = BTreeMap::<&str, u64>::new();
    for round in 0..ROUNDS {
        // Not a wait for anything: the kill comes at a random moment.
        tokio::time::sleep(Duration::from_millis(random.between(20, 900))).await;
        let name = format!("made-{round}");
        create(&cluster, group(&name, "10")).await;
        let binding = Binding { tenant: String::new(), user: format!("user-{round}"), group: name };
        cluster.admin().await.unwrap().bind(BindRequest { binding: Some(binding) }).await.unwrap();
        if random.one_in(3) {
            *kills.entry("controller").or_default() += 1;
            cluster.kill_controller();
            cluster.start_controller().await.unwrap();
        } else {
            let node = usize::try_from(random.between(0, NODES as u64 - 1)).unwrap();
            assert!(
                cluster.node_runs(node),
                "node {node} died by itself: {}",
                cluster.tail(&Cluster::node_name(node))
            );
            *kills.entry("node").or_default() += 1;
            cluster.kill_node(node);
            cluster.start_node(node).unwrap();
        }
    }
    cluster.stop_nodes().await.unwrap();
    let lives: Vec<Vec<Life>> = (0..NODES).map(|node| log::read(&cluster.node_log(node)).unwrap()).collect();
    let operations: usize = lives.iter().flatten().map(|life| life.admitted.len()).sum();
    println!("{kills:?} kills, {operations} operations");
    assert!(operations > 1_000, "the nodes hardly worked: {operations}");
    check_definitions(&cluster).await;
    check_ledger(&cluster, &lives).await;
    check_bound(&lives);
}

async fn check_definitions(cluster: &Cluster) {
    let mut admin = cluster.admin().await.unwrap();
    for round in 0..ROUNDS {
        let name = format!("made-{round}");
        let found = admin.get_group(GetGroupRequest { name: name.clone() }).await;
        assert_eq!(found.expect("a created group").into_inner().group.unwrap().ru_per_sec, "10");
    }
    let bindings = admin.list_bindings(ListBindingsRequest::default()).await.unwrap().into_inner().bindings;
    assert_eq!(bindings.len() as u64, ROUNDS);
    assert!(bindings.iter().all(|b| b.group == b.user.replace("user", "made")), "{bindings:?}");
}

/// Each incarnation's row is what its log says, exactly; the operation under way at a kill is in or out, whole.
async fn check_ledger(cluster: &Cluster, lives: &[Vec<Life>]) {
    let request = UsageRequest { group: "load".to_owned(), per_client: true };
    let rows = cluster.admin().await.unwrap().usage(request).await.unwrap().into_inner().rows;
    let charged = |row: &tidegate_proto::v1::UsageRow| {
        row.total.as_ref().map_or((0, 0), |total| (total.operations, total.flat_micro_ru))
    };
    let mut sum = (0, 0);
    for (node, lives) in lives.iter().enumerate() {
        for life in lives {
            let row = rows
                .iter()
                .find(|r| r.client == Cluster::node_name(node) && r.incarnation == life.incarnation);
            let ledger = row.map_or((0, 0), charged);
            let certain = life.charged;
            let possible = life.doubtful.map(|cost| (certain.0 + 1, certain.1 + cost));
            assert!(
                ledger == certain || Some(ledger) == possible,
                "node {node} incarnation {}: ledger {ledger:?}, charged {certain:?} or {possible:?}",
                life.incarnation
            );
            sum = (sum.0 + ledger.0, sum.1 + ledger.1);
        }
    }
    let total = rows.iter().find(|row| row.client.is_empty()).map_or((0, 0), charged);
    assert_eq!(total, sum, "the total is the sum of the incarnations");
}

fn check_bound(lives: &[Vec<Life>]) {
    let mut admitted: Vec<(u64, i64)> =
        lives.iter().flatten().flat_map(|life| life.admitted.clone()).collect();
    admitted.sort_unstable();
    let start = Time(admitted.first().expect("operations").0);
    let mut bound = Bound::new(start, Rate::whole(RATE));
    for (micros, cost) in admitted {
        bound.admit(Time(micros), Ru(cost));
    }
    println!("worst window: {} above rate * window, burst {}", bound.worst(), Ru::whole(RATE));
    assert!(bound.worst() <= Ru::whole(RATE), "I5: {} above rate * window", bound.worst());
}
