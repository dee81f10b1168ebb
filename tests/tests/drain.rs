//! The lead is handed over on real members of etcd, with the real binaries, as an operator asks for it: the other
//! controller leads under the same epoch without recovery, and a node with a lease is refused nothing. A controller that
//! was killed for good is forgotten.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidegate_client::{Client, RuParts};
use tidegate_core::units::Ru;
use tidegate_proto::v1;
use tidegate_tests::process::controllers::Controllers;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// How long anything may take on a machine that does other work.
const PATIENCE: Duration = Duration::from_secs(60);

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let reached = async {
        while !is_so().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, reached).await.is_ok(), "{what}");
}

/// What a command says that is refused.
fn refused(controllers: &Controllers, arguments: &[&str]) -> String {
    controllers.tidegate(arguments).unwrap_err().to_string()
}

/// The controllers that the one that leads lists.
fn members(controllers: &Controllers) -> Vec<String> {
    let text = controllers.tidegate(&["cluster", "members", "-o", "json"]).unwrap().join("\n");
    let list: Vec<Value> = serde_json::from_str(&text).unwrap();
    list.iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect()
}

async fn status(controllers: &Controllers, index: usize) -> v1::StatusReply {
    controllers.admin(index).await.unwrap().status(v1::StatusRequest {}).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_leader_hands_its_leases_over_and_a_killed_controller_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let load_node = Path::new(env!("CARGO_BIN_EXE_load-node"));
    let mut controllers = Controllers::new(folder.path(), load_node, 2).unwrap();
    controllers.have_fence("20s");
    controllers.start(0).unwrap();
    let (leader, epoch) = controllers.successor(None).await.unwrap();
    assert_eq!(leader, 0);
    let alone = refused(&controllers, &["cluster", "drain"]);
    assert!(alone.contains("no other controller of the cluster under tidegate/ runs"), "{alone}");
    controllers.start(1).unwrap();
    controllers.stands_by(1).await.unwrap();
    // The leases outlive whatever a busy machine takes.
    let create = ["group", "create", "shop", "--rate", "1000", "--burst", "500", "--ttl", "60s"];
    controllers.tidegate(&create).unwrap();

    let client = Client::connect(controllers.endpoints(), "n0").await.unwrap();
    let group = client.group("shop").await.unwrap();
    let (stop, admitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&admitted));
    let work = tokio::spawn(async move {
        let mut refusals = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            match group.acquire(Ru::whole(5), Duration::from_secs(30)).await {
                Ok(permit) => {
                    permit.settle_ru(RuParts { flat: Ru::whole(5), ..RuParts::default() });
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    refusals.push(error.to_string());
                    // It may have come at once, and again.
                    tokio::task::yield_now().await;
                }
            }
        }
        refusals
    });
    until("the node has a lease", async || admitted.load(Ordering::Relaxed) > 100).await;
    let other = refused(&controllers, &["cluster", "drain", "--controller", "c1"]);
    assert!(other.contains("controller c1 does not lead, c0 does"), "{other}");
    let runs = refused(&controllers, &["cluster", "forget", "c0"]);
    assert!(runs.contains("controller c0 leads"), "{runs}");

    // It may not have seen yet that the other one runs.
    until("the leader is drained", async || {
        controllers.tidegate(&["cluster", "drain", "--rest", "10m"]).is_ok()
    })
    .await;
    let (next, after) = controllers.successor(Some(0)).await.unwrap();
    assert_eq!((next, after), (1, epoch), "as after any stop in order");
    let found = status(&controllers, 1).await;
    assert_eq!(found.recovery_us, 0, "leases go along: {:?}", found.warnings);
    controllers.stands_by(0).await.unwrap();
    let before = admitted.load(Ordering::Relaxed);
    until("the node goes on with the next one", async || {
        admitted.load(Ordering::Relaxed) > before + 100 && client.is_connected()
    })
    .await;
    let audit = controllers.tidegate(&["audit", "--limit", "5", "-o", "json"]).unwrap().join("\n");
    assert!(audit.contains("drain controller"), "{audit}");
    assert_eq!(members(&controllers), ["c0", "c1"]);

    controllers.kill(0);
    // It is refused until it has been silent for a while.
    until("the killed one is forgotten", async || controllers.tidegate(&["cluster", "forget", "c0"]).is_ok())
        .await;
    until("the list is without it", async || members(&controllers) == ["c1"]).await;
    let absent = refused(&controllers, &["cluster", "forget", "c0"]);
    assert!(absent.contains("controller c0 of the cluster under tidegate/ does not exist"), "{absent}");
    let alone = refused(&controllers, &["cluster", "drain"]);
    assert!(alone.contains("no other controller"), "{alone}");

    stop.store(true, Ordering::Relaxed);
    let refusals = work.await.unwrap();
    assert!(refusals.is_empty(), "{refusals:?}");
    assert!(client.shutdown().await.unconfirmed.is_empty());
    controllers.end(1).await.unwrap();
}
