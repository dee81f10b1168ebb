//! A backup is put back under running nodes, with the commands of docs/operations.md: over all of it the bound holds,
//! every RU is counted once, no node is restarted, and the full rate comes back.
//!
//! The test judges how long that takes by the controller's clock: by the moment when it says that recovery ends,
//! counted from when nodes were back. It prints the time until the nodes had the full rate, which depends on how busy
//! the machine is, too.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidegate_core::units::{Rate, Ru, Span};
use tidegate_proto::v1::{
    AlterGroupRequest, CreateGroupRequest, Group, ListGroupsRequest, ListLeasesRequest, UsageRequest,
};
use tidegate_tests::process::chaos::cap::Cap;
use tidegate_tests::process::chaos::judge::{APART_US, worst};
use tidegate_tests::process::cluster::Cluster;
use tidegate_tests::process::error::PATIENCE;
use tidegate_tests::process::load::{Kind, Work};
use tidegate_tests::process::log::{Life, machine_micros, read};

const NODES: usize = 2;
const GROUP: &str = "load";
const RATE: i64 = 200;
/// The rate after the backup, which the restore takes back.
const LATER: i64 = 400;
const BURST: i64 = 100;
/// Lease length of every group: the default, and what recovery is measured in.
const LEASE: Span = Span::secs(5);
/// How long a lease may last at the controller: with 0.1 % drift and the margin of 50 ms.
const LEASE_US: u64 = LEASE.0 + LEASE.0 / 1_000 + 1 + 50_000;
/// The mark: full rate within a lease and this.
const MARK: Span = Span::secs(1);
/// What counts as the full rate in one second of the log, in percent; operations are large enough to make it jump.
const FULL_PERCENT: i64 = 85;

/// The commands of a page, block by block.
fn blocks(page: &str, section: &str) -> Vec<String> {
    let section = page.split_once(section).unwrap().1;
    let section = section.split_once("\n## ").map_or(section, |(this, _)| this);
    let blocks = section.split("```sh\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

struct Scene {
    cluster: Cluster,
    folder: tempfile::TempDir,
    cap: Cap,
}

impl Scene {
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs commands as an operator does.
    fn run(&self, commands: &str) {
        let tidegate = self.cluster.tidegate();
        let binaries = Path::new(tidegate.get_program()).parent().unwrap().to_owned();
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
        let output = Command::new("bash")
            .args(["-euxc", commands])
            .env("PATH", path)
            .env("BACKUP", self.path("backup"))
            .env("DATA", self.path("data"))
            .env("TIDEGATE_ENDPOINT", self.cluster.endpoint())
            .output()
            .unwrap();
        assert!(output.status.success(), "{commands}{}", String::from_utf8_lossy(&output.stderr));
    }

    async fn groups(&mut self) -> BTreeSet<String> {
        let request = ListGroupsRequest::default();
        let reply = self.cluster.admin().await.unwrap().list_groups(request).await.unwrap().into_inner();
        reply.groups.into_iter().map(|group| group.name).collect()
    }

    async fn create(&mut self, name: &str) {
        let group = Group {
            name: name.to_owned(),
            ru_per_sec: RATE.to_string(),
            burst: BURST.to_string(),
            ttl_us: LEASE.0,
            ..Group::default()
        };
        let request = CreateGroupRequest { group: Some(group), if_not_exists: false };
        self.cluster.admin().await.unwrap().create_group(request).await.unwrap();
    }

    async fn raise(&mut self) {
        self.cap.asked(Rate::whole(LATER), machine_micros());
        let group = Group { name: GROUP.to_owned(), ru_per_sec: LATER.to_string(), ..Group::default() };
        let update_mask = vec!["ru_per_sec".to_owned()];
        let request = AlterGroupRequest { group: Some(group), update_mask, ..AlterGroupRequest::default() };
        self.cluster.admin().await.unwrap().alter_group(request).await.unwrap();
        self.cap.acknowledged(machine_micros());
    }

    fn logs(&self) -> Vec<Vec<Life>> {
        (0..NODES).map(|node| read(&self.cluster.node_log(node)).unwrap_or_default()).collect()
    }

    /// Admissions of all nodes, in order.
    fn movements(&self) -> Vec<(u64, i64)> {
        let logs = self.logs();
        let all = logs.iter().flatten().flat_map(|life| life.operations(GROUP));
        let mut movements: Vec<(u64, i64)> = all.map(|one| (one.admitted_us, one.estimate)).collect();
        movements.sort_unstable();
        movements
    }

    /// RU that were admitted in each second from then on.
    fn by_second(&self, from_us: u64) -> Vec<i64> {
        let mut seconds: BTreeMap<u64, i64> = BTreeMap::new();
        for (at, cost) in self.movements().into_iter().filter(|(at, _)| *at >= from_us) {
            *seconds.entry((at - from_us) / 1_000_000).or_default() += cost;
        }
        let last = seconds.keys().max().copied().unwrap_or(0);
        (0..=last).map(|second| seconds.get(&second).map_or(0, |sum| sum / 1_000_000)).collect()
    }

    /// Waits until `is_so`.
    async fn until(&mut self, what: &str, mut is_so: impl AsyncFnMut(&mut Self) -> bool) {
        let reached = async {
            while !is_so(self).await {
                for node in self.cluster.nodes.iter_mut().flatten() {
                    assert!(node.ended().is_none(), "{}", node.tail());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, reached).await.is_ok(), "{what}");
    }

    /// Waits until the nodes used the full rate in a second that begins after `from_us`; when that second ended.
    async fn full_since(&mut self, from_us: u64) -> u64 {
        let mut ended = 0;
        self.until("the full rate is not used", async |scene: &mut Self| {
            let movements = scene.movements();
            ended = full_second(&movements, from_us).unwrap_or(0);
            ended > 0
        })
        .await;
        ended
    }
}

/// The end of the first second from `from_us` on in which the rate was used.
fn full_second(movements: &[(u64, i64)], from_us: u64) -> Option<u64> {
    let after: Vec<_> = movements.iter().filter(|(at, _)| *at >= from_us).collect();
    let (mut begin, mut sum) = (0, 0);
    for (at, cost) in &after {
        sum += cost;
        while let Some((old, gone)) = after.get(begin).filter(|(old, _)| old + 1_000_000 < *at) {
            debug_assert!(old <= at);
            sum -= gone;
            begin += 1;
        }
        if sum >= RATE * 10_000 * FULL_PERCENT {
            return Some(*at);
        }
    }
    None
}

#[tokio::test]
async fn a_restore_under_running_nodes_keeps_the_bound_and_gives_the_rate_back() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("backup")).unwrap();
    let page = include_str!("../../docs/operations.md");
    let commands = blocks(page, "\n## Backups and upgrades\n");
    assert_eq!(commands.len(), 2, "one to take a backup, one to put it back");
    let works = vec![Work { group: GROUP.to_owned(), burst: 10, kind: Kind::Steady }];
    let load_node = Path::new(env!("CARGO_BIN_EXE_load-node"));
    let cluster = Cluster::new(folder.path(), load_node, NODES, works).await.unwrap();
    let cap = Cap::new(Rate::whole(RATE), LEASE_US);
    let mut scene = Scene { cluster, folder, cap };
    scene.cluster.start_controller().await.unwrap();
    scene.create(GROUP).await;
    (0..NODES).for_each(|node| scene.cluster.start_node(node).unwrap());
    scene.full_since(machine_micros()).await;

    scene.run(commands.first().unwrap());
    scene.create("later").await;
    scene.raise().await;
    // The nodes see a later epoch than the copy has.
    scene.cluster.kill_controller();
    scene.cluster.start_controller().await.unwrap();
    scene
        .until("the nodes are back", async |scene: &mut Scene| {
            scene.cluster.status().await.unwrap().clients == 2
        })
        .await;
    assert!(scene.groups().await.contains("later"), "a crash loses nothing");
    let seen = scene.cluster.status().await.unwrap().epoch;

    scene.cluster.kill_controller();
    scene.cap.asked(Rate::whole(RATE), machine_micros());
    scene.run(commands.last().unwrap());
    let started_us = machine_micros();
    scene.cluster.start_controller().await.unwrap();
    scene.cap.acknowledged(machine_micros());
    scene
        .until("the nodes are back", async |scene: &mut Scene| {
            scene.cluster.status().await.unwrap().clients == 2
        })
        .await;
    let status = scene.cluster.status().await.unwrap();
    let back = Span(status.uptime_us);
    let ends = Span(status.uptime_us + status.recovery_us);
    assert!(status.epoch > seen, "{} after {seen}", status.epoch);
    assert!(
        status.warnings.iter().any(|line| line.contains("copy or was set back")),
        "{:?}",
        status.warnings
    );
    assert!(
        ends.0 <= back.0 + LEASE_US + 1_000,
        "recovery until {ends} after the start, nodes back at {back}"
    );
    assert!(LEASE_US < (LEASE + MARK).0);
    assert_eq!(
        scene.groups().await,
        BTreeSet::from(["default".to_owned(), GROUP.to_owned()]),
        "as in the copy"
    );

    let full = scene.full_since(started_us).await;
    let settled = started_us + ends.0;
    scene.full_since(settled).await;
    scene
        .until("leases are given", async |scene: &mut Scene| {
            let request = ListLeasesRequest { group: GROUP.to_owned() };
            let leases =
                scene.cluster.admin().await.unwrap().list_leases(request).await.unwrap().into_inner();
            leases.leases.len() == NODES
        })
        .await;
    scene.cluster.stop_nodes().await.unwrap();
    judge(&mut scene).await;
    println!(
        "recovery ended {ends} after the start, by the controller's clock (mark for the full rate: {}); a second at \
         {FULL_PERCENT} % of it had passed {} after the start; RU/s by second: {:?}",
        LEASE + MARK,
        Span(full - started_us),
        scene.by_second(started_us)
    );
}

async fn judge(scene: &mut Scene) {
    let most = worst(&scene.movements(), &scene.cap.steps());
    let allowed = Ru::whole(BURST) + Rate::whole(LATER).over(Span(APART_US));
    assert!(most <= allowed, "{most} above rate * window, and only {allowed} may be");
    let logs = scene.logs();
    let request = UsageRequest { group: GROUP.to_owned(), per_client: true };
    let rows = scene.cluster.admin().await.unwrap().usage(request).await.unwrap().into_inner().rows;
    for (node, lives) in logs.iter().enumerate() {
        assert_eq!(lives.len(), 1, "node {node} was started once");
        let life = lives.first().unwrap();
        let row = rows.iter().find(|row| row.client == Cluster::node_name(node)).unwrap();
        let total = row.total.as_ref().unwrap();
        assert_eq!((total.operations, total.flat_micro_ru), life.charged(GROUP), "exactly once, node {node}");
    }
    println!(
        "{} operations; worst window {most} above rate * window, {allowed} allowed",
        scene.movements().len()
    );
}
