//! A store that cannot be written, from the start or from some moment on. A controller that cannot write its store
//! does not start and says why; one that runs keeps what it acknowledged, refuses what it cannot store, goes on
//! granting, and stores again when it can.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_proto::v1::{CreateGroupRequest, GetGroupRequest, Group, UsageRequest};
use tidegate_tests::process::chaos::{LOADED, judge};
use tidegate_tests::process::cluster::{Cluster, Disk};
use tidegate_tests::process::error::PATIENCE;
use tidegate_tests::process::load::{Kind, Work};
use tidegate_tests::process::log::{self, machine_micros};
use tonic::{Code, Status};

/// Lease length, in microseconds.
const TTL_US: u64 = 500_000;
const READ_ONLY: u32 = 0o444;
const CLOSED: u32 = 0o555;

async fn cluster(nodes: usize) -> (TempDir, Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let load_node = Path::new(env!("CARGO_BIN_EXE_load-node"));
    let work = Work { group: "load".to_owned(), burst: 1_000, kind: Kind::Mixed };
    let cluster = Cluster::new(folder.path(), load_node, nodes, vec![work]).await.unwrap();
    (folder, cluster)
}

async fn create(cluster: &mut Cluster, name: &str) -> Result<(), Status> {
    let ru_per_sec = "1000".to_owned();
    let group = Group { name: name.to_owned(), ru_per_sec, ttl_us: TTL_US, ..Group::default() };
    let request = CreateGroupRequest { group: Some(group), if_not_exists: false };
    cluster.admin().await.unwrap().create_group(request).await.map(drop)
}

async fn exists(cluster: &mut Cluster, name: &str) -> bool {
    let found = cluster.admin().await.unwrap().get_group(GetGroupRequest { name: name.to_owned() }).await;
    if let Err(status) = &found {
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }
    found.is_ok()
}

/// Starts a controller that must not start, and returns what it says.
async fn refusal(cluster: &mut Cluster) -> String {
    cluster.launch_controller().unwrap();
    let mut controller = cluster.controller.take().unwrap();
    let status = controller.end_within(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(1), "{}", controller.tail());
    controller.tail()
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_named_at_the_start_with_a_remedy() {
    let (_folder, mut cluster) = cluster(0).await;
    let store = cluster.store();
    let data = store.parent().unwrap();
    cluster.disk = Disk::Permitted;
    fs::create_dir(data).unwrap();
    let says_why = |said: &str, case: &str| {
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(store.to_str().unwrap()), "{case}: {said}");
        assert!(
            last.contains("Permission denied") && last.contains("the file are writable"),
            "{case}: {said}"
        );
    };

    permit(data, CLOSED);
    says_why(&refusal(&mut cluster).await, "a folder that a store cannot be made in");
    assert_eq!(fs::read_dir(data).unwrap().count(), 0);

    permit(data, 0o755);
    cluster.start_controller().await.unwrap();
    create(&mut cluster, "kept").await.unwrap();
    cluster.kill_controller();
    let bytes = fs::read(&store).unwrap();
    for (case, folder) in [("a store that is read-only", 0o755), ("a folder that is, too", CLOSED)] {
        permit(&store, READ_ONLY);
        permit(data, folder);
        says_why(&refusal(&mut cluster).await, case);
        assert!(fs::read(&store).unwrap() == bytes, "{case}: the store was changed");
    }

    // The folder is written to only when the store is made.
    permit(&store, 0o644);
    cluster.start_controller().await.unwrap();
    assert!(exists(&mut cluster, "kept").await);
    permit(data, 0o755);
}

/// Admissions of the only node after a moment.
async fn admitted_after(cluster: &Cluster, micros: u64) {
    let goes_on = async {
        loop {
            let lives = log::read(&cluster.node_log(0)).unwrap_or_default();
            let mut operations = lives.iter().flat_map(|life| life.operations("load"));
            if operations.any(|operation| operation.admitted_us > micros) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, goes_on).await.unwrap();
}

/// A controller whose disk refuses every write, with a node under load and two groups that were acknowledged.
async fn failing() -> (TempDir, Cluster) {
    let (folder, mut cluster) = cluster(1).await;
    cluster.disk = Disk::Failing;
    cluster.start_controller().await.unwrap();
    create(&mut cluster, "load").await.unwrap();
    cluster.start_node(0).unwrap();
    create(&mut cluster, "before").await.unwrap();
    admitted_after(&cluster, 0).await;
    cluster.controller.as_ref().unwrap().writes(false).unwrap();
    let since = machine_micros();
    for name in ["refused", "refused-again"] {
        let status = create(&mut cluster, name).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(
            status.message().contains("not in force") && status.message().contains("; check "),
            "{status}"
        );
        assert!(!exists(&mut cluster, name).await);
    }
    assert!(exists(&mut cluster, "before").await);
    // Leases are renewed, since the tokens of this time were granted after the disk failed.
    admitted_after(&cluster, since + 3 * TTL_US).await;
    (folder, cluster)
}

/// The node ends with everything confirmed, and after a crash the ledger is what it logged.
async fn settled(mut cluster: Cluster) {
    cluster.stop_nodes().await.unwrap();
    cluster.kill_controller();
    cluster.disk = Disk::Free;
    cluster.start_controller().await.unwrap();
    assert!(exists(&mut cluster, "before").await);
    for name in ["refused", "refused-again"] {
        assert!(!exists(&mut cluster, name).await, "{name}");
    }
    let request = UsageRequest { group: "load".to_owned(), per_client: true };
    let rows = cluster.admin().await.unwrap().usage(request).await.unwrap().into_inner().rows;
    let logs = [log::read(&cluster.node_log(0)).unwrap()];
    let mut violations = Vec::new();
    let load = LOADED.iter().find(|loaded| loaded.name == "load").unwrap();
    let figures = judge::ledger(load, &logs, &rows, &mut violations);
    println!("{figures:?}");
    assert_eq!(violations, Vec::<String>::new());
    assert!(figures.ledger.is_positive());
}

#[tokio::test]
async fn a_store_that_fails_under_a_controller_loses_nothing_when_it_is_killed() {
    let (_folder, mut cluster) = failing().await;
    cluster.kill_controller();
    cluster.disk = Disk::Free;
    cluster.start_controller().await.unwrap();
    settled(cluster).await;
}

#[tokio::test]
async fn a_store_that_can_be_written_again_is_written_again() {
    let (_folder, mut cluster) = failing().await;
    cluster.controller.as_ref().unwrap().writes(true).unwrap();
    create(&mut cluster, "after").await.unwrap();
    settled(cluster).await;
}
