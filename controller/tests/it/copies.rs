//! Stores that are copies: restored, duplicated, or behind what nodes have seen.

use std::fs;

use tidegate_proto::v1;
use tidegate_proto::v1::client_message::Kind as Ask;
use tidegate_proto::v1::watch_event::Kind;
use tokio::time::timeout;

use tidegate_controller::service::FARTHEST_EPOCH;

use crate::support::{Lab, Node, PATIENCE, entry};

/// Bytes of the store, which no process has open.
fn file(lab: &tempfile::TempDir) -> Vec<u8> {
    fs::read(lab.path().join("store.redb")).unwrap()
}

/// A lab with a group, and a copy of its store as it was after a clean stop.
async fn lab_and_copy() -> (Lab, Vec<u8>) {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let Lab { folder, running } = lab;
    running.shutdown().await.unwrap();
    let copy = file(&folder);
    (Lab::at(folder).await, copy)
}

/// Kills the controller, replaces its store by the copy, and starts it again.
async fn put_back(lab: Lab, copy: &[u8]) -> Lab {
    let Lab { folder, running } = lab;
    running.abort().await;
    fs::write(folder.path().join("store.redb"), copy).unwrap();
    Lab::at(folder).await
}

fn hello(client: &str, seen_epoch: u64, seen_standing: &[u8]) -> Ask {
    Ask::Hello(v1::Hello {
        protocol_min: 1,
        protocol_max: 1,
        client_id: client.to_owned(),
        incarnation: 1,
        seen_epoch,
        seen_standing: seen_standing.to_vec(),
        ..v1::Hello::default()
    })
}

/// A node that brings the standing it got elsewhere.
async fn comes_from(lab: &Lab, client: &str, welcome: &v1::Welcome) -> Node {
    Node::open(lab, hello(client, welcome.epoch, &welcome.standing)).await.unwrap()
}

async fn status_of(node: &mut Node, ask: v1::RenewEntry) -> v1::GrantEntry {
    node.renew(vec![ask], Vec::new()).await.unwrap().entries.remove(0)
}

#[tokio::test]
async fn the_mark_of_a_clean_stop_is_good_for_the_original_and_for_no_copy() {
    let (lab, copy) = lab_and_copy().await;
    let status = lab.running.service().status();
    assert_eq!((status.epoch, status.recovery.0), (1, 0), "the original is clean");
    let Lab { folder, running } = lab;
    running.shutdown().await.unwrap();
    // Even while the original's seal is there.
    fs::write(folder.path().join("store.redb"), &copy).unwrap();
    let lab = Lab::at(folder).await;
    let status = lab.running.service().status();
    assert!(status.epoch == 2 && status.recovery.0 > 4_000_000, "{status:?}");
    let mut newcomer = Node::connect(&lab, "newcomer", 1).await.unwrap();
    let granted = status_of(&mut newcomer, entry("web", 10)).await;
    assert_eq!(granted.status(), v1::GrantStatus::Recovering);
}

#[tokio::test]
async fn a_folder_that_was_copied_with_its_seal_is_not_clean() {
    let lab = Lab::start().await;
    let Lab { folder, running } = lab;
    running.shutdown().await.unwrap();
    let other = tempfile::tempdir().unwrap();
    for name in ["store.redb", "store.redb.seal"] {
        fs::copy(folder.path().join(name), other.path().join(name)).unwrap();
    }
    let twin = Lab::at(other).await;
    assert!(twin.running.service().status().recovery.0 > 0);
    let lab = Lab::at(folder).await;
    assert_eq!(lab.running.service().status().recovery.0, 0);
}

#[tokio::test]
async fn a_controller_that_is_behind_raises_its_epoch_durably_and_recovers() {
    let (lab, copy) = lab_and_copy().await;
    let lab = lab.crash().await.crash().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let seen = node.welcome.clone();
    assert_eq!(seen.epoch, 3);
    // The third start grants leases after its own recovery; the node proves nothing yet.
    let unlimited = status_of(&mut node, entry("default", 5)).await;
    assert_eq!(unlimited.status(), v1::GrantStatus::Unlimited);
    let lab = put_back(lab, &copy).await;
    assert_eq!(lab.running.service().epoch(), 2, "behind what was seen");
    let back = comes_from(&lab, "node", &seen).await;
    assert_eq!(back.welcome.epoch, 4);
    assert!(back.welcome.recovery_us > 4_900_000, "{}", back.welcome.recovery_us);
    let warnings = lab.running.service().status().warnings.join("\n");
    assert!(warnings.contains("set back") && warnings.contains('4'), "{warnings}");
    // The same news a second time change nothing.
    let again = comes_from(&lab, "node", &seen).await;
    assert_eq!(again.welcome.epoch, 4);
    assert!(again.welcome.recovery_us <= back.welcome.recovery_us);
    let lab = lab.crash().await;
    assert_eq!(lab.running.service().epoch(), 5, "the raised epoch is on disk");
    let once_more = comes_from(&lab, "node", &seen).await;
    assert_eq!(once_more.welcome.epoch, 5, "and so is what was heard");
}

#[tokio::test]
async fn a_start_on_a_copy_that_is_heard_of_in_the_middle_of_a_run_empties_the_pools_and_takes_no_lease() {
    let (lab, copy) = lab_and_copy().await;
    let mut holder = Node::connect(&lab, "holder", 1).await.unwrap();
    let lease = status_of(&mut holder, entry("web", 200)).await;
    assert_eq!(lease.status(), v1::GrantStatus::Leased);
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("store.redb"), &copy).unwrap();
    let twin = Lab::at(other).await;
    let wanderer = Node::connect(&twin, "wanderer", 1).await.unwrap();
    assert_eq!(wanderer.welcome.epoch, 2);

    let mut wanderer = comes_from(&lab, "wanderer", &wanderer.welcome).await;
    assert_eq!(wanderer.welcome.epoch, 3);
    let granted = status_of(&mut wanderer, entry("web", 200)).await;
    assert_eq!(granted.status(), v1::GrantStatus::Recovering);
    let held = v1::RenewEntry {
        acked_seq: 1,
        held_rate: lease.rate,
        held_cap_micro_ru: lease.cap_micro_ru,
        ..entry("web", 5_000)
    };
    let kept = holder.renew(vec![held], Vec::new()).await.unwrap();
    assert_eq!(kept.epoch, 3);
    assert!(!kept.standing.is_empty(), "it is told what to bring to the next one");
    assert_eq!(kept.entries[0].status(), v1::GrantStatus::Leased);
    assert_eq!((kept.entries[0].rate, kept.entries[0].lump_micro_ru), (lease.rate, 0));
    let request = v1::ListLeasesRequest { group: "web".into() };
    let leases = lab.admin().await.list_leases(request).await.unwrap().into_inner();
    assert_eq!(leases.groups[0].pool, "0", "{leases:?}");
}

#[tokio::test]
async fn claims_that_nobody_signed_cannot_exhaust_epochs_nor_keep_an_older_store_recovering() {
    let (lab, _) = lab_and_copy().await;
    let foreign = {
        let other = Lab::start().await;
        Node::connect(&other, "stranger", 1).await.unwrap().welcome.standing
    };
    for (seen, led) in [
        (u64::MAX, 1),
        (FARTHEST_EPOCH + 1, 1),
        (7, 8),
        (7, 8),
        (FARTHEST_EPOCH, FARTHEST_EPOCH + 1),
        (FARTHEST_EPOCH, FARTHEST_EPOCH + 1),
        (FARTHEST_EPOCH + 2, FARTHEST_EPOCH + 1),
    ] {
        let liar = Node::open(&lab, hello("liar", seen, &foreign)).await.unwrap();
        assert_eq!((liar.welcome.epoch, liar.welcome.recovery_us), (led, 0), "{seen}");
    }
    let long = Node::open(&lab, hello("liar", 1, &[0; 257])).await.err().unwrap();
    assert!(long.message().contains("seen_standing") && long.message().contains("257"), "{long}");
}

#[tokio::test]
async fn a_new_store_that_may_stand_in_for_a_lost_one_recovers_for_it() {
    let lost = Lab::start().await;
    let seen = Node::connect(&lost, "node", 1).await.unwrap().welcome;
    let lost = lost.crash().await.crash().await;
    let later = Node::connect(&lost, "node", 1).await.unwrap().welcome;
    let lab = Lab::start().await;
    let node = comes_from(&lab, "node", &later).await;
    assert_eq!(node.welcome.epoch, later.epoch + 1);
    assert!(node.welcome.recovery_us > 4_900_000, "{}", node.welcome.recovery_us);
    // The same holds for an equal epoch, which need not be raised.
    let lab = Lab::start().await;
    let node = comes_from(&lab, "node", &seen).await;
    assert!(node.welcome.epoch == 1 && node.welcome.recovery_us > 4_900_000, "{:?}", node.welcome);
}

#[tokio::test]
async fn a_revision_that_was_reached_once_more_after_a_restore_is_sent_again() {
    let bind = async |lab: &Lab, user: &str| {
        let binding = v1::Binding { tenant: String::new(), user: user.into(), group: "web".into() };
        lab.admin().await.bind(v1::BindRequest { binding: Some(binding) }).await.unwrap();
    };
    let first = async |lab: &Lab, have: &v1::WatchEvent| {
        let request = v1::WatchRequest { have_revision: have.revision, have_instance: have.instance };
        let mut events = lab.grants().await.watch(request).await.unwrap().into_inner();
        timeout(PATIENCE, events.message()).await.unwrap().unwrap().unwrap()
    };
    let (lab, copy) = lab_and_copy().await;
    bind(&lab, "ann").await;
    let known = first(&lab, &v1::WatchEvent::default()).await;
    assert!(matches!(known.kind, Some(Kind::Snapshot(_))), "{known:?}");
    let current = first(&lab, &known).await;
    assert!(matches!(current.kind, Some(Kind::Heartbeat(_))), "{current:?}");
    let lab = lab.crash().await;
    let current = first(&lab, &known).await;
    assert!(matches!(current.kind, Some(Kind::Heartbeat(_))), "a crash takes nothing back: {current:?}");
    let lab = put_back(lab, &copy).await;
    bind(&lab, "bob").await;
    assert_eq!(lab.running.service().status().revision, known.revision);
    let told = first(&lab, &known).await;
    let Some(Kind::Snapshot(snapshot)) = told.kind else { panic!("a snapshot was expected: {told:?}") };
    assert_eq!(snapshot.bindings[0].user, "bob");
}
