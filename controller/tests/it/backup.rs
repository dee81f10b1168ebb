//! Backups while the controller goes on.

use tempfile::TempDir;
use tidegate_controller::Controller;
use tidegate_controller::audit::Actor;
use tidegate_controller::restore::{Over, restore};
use tidegate_controller::store::records::pair_key;
use tidegate_controller::store::{Draft, RedbStore, Row, Store as _, StoreError, Table, Write};
use tidegate_core::group::GroupId;
use tidegate_proto::v1;
use tokio::time::timeout;
use tonic::{Code, Streaming};

use crate::support::{Lab, Node, PATIENCE, charged, report, store_path};
use crate::tokens::{admin, by_tokens, plain};

/// Rows of a history that make the store far larger than the buffers between its two ends.
const ROWS: u64 = 60_000;

/// A store with a long history: after the first part, more remains to be read than the buffers hold.
async fn large_store() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let row = |hour: u64| {
        let mut consumption = vec![0; 153];
        consumption[0] = 1;
        Write::Put(Table::Hours, pair_key((500_000 + hour) * 3_600, GroupId::DEFAULT), consumption)
    };
    let Lab { folder, running } = Lab::at(folder).await;
    running.abort().await;
    let store = RedbStore::open(&store_path(&folder)).unwrap();
    store.commit(&(0..ROWS).map(row).collect::<Vec<_>>()).unwrap();
    drop(store);
    folder
}

async fn large() -> Lab {
    Lab::at(large_store().await).await
}

async fn begun(lab: &Lab) -> Streaming<v1::BackupPart> {
    lab.admin().await.backup(v1::BackupRequest {}).await.unwrap().into_inner()
}

async fn next(parts: &mut Streaming<v1::BackupPart>) -> Option<v1::BackupPart> {
    timeout(PATIENCE, parts.message()).await.unwrap().unwrap()
}

/// Reads to the end; returns whether there was a last part, and the code of an error.
async fn ended(mut parts: Streaming<v1::BackupPart>) -> (bool, Option<Code>) {
    let mut last = false;
    loop {
        match timeout(PATIENCE, parts.message()).await.unwrap() {
            Ok(Some(part)) => last |= part.last,
            Ok(None) => return (last, None),
            Err(error) => return (last, Some(error.code())),
        }
    }
}

fn rows(part: v1::BackupPart) -> Vec<Row> {
    let row = |row: v1::StoreRow| (Table::named(&row.table).unwrap(), row.key, row.value);
    part.rows.into_iter().map(row).collect()
}

#[tokio::test]
async fn it_is_of_one_moment_whatever_changes_meanwhile_and_puts_back_what_was_counted() {
    let lab = large().await;
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    // Reported, and not flushed yet.
    node.renew(Vec::new(), vec![report("web", 1, 7)]).await.unwrap();
    let mut parts = begun(&lab).await;
    let first = next(&mut parts).await.unwrap();
    let revision = lab.running.service().status().revision;
    for index in 0..5 {
        lab.group(&format!("late-{index}"), "5").await;
    }
    node.report(vec![report("web", 1, 9)]).await;

    let copy = lab.folder.path().join("copy.redb");
    let mut draft = Draft::begin(&copy, false).unwrap();
    draft.put(&rows(first)).unwrap();
    let mut audited = 0;
    let last = loop {
        let part = next(&mut parts).await.unwrap();
        if part.last {
            break part;
        }
        let rows = rows(part);
        audited += rows.iter().filter(|(table, ..)| *table == Table::Audit).count();
        draft.put(&rows).unwrap();
    };
    assert!(next(&mut parts).await.is_none());
    assert_eq!(last.rows_in_all, draft.rows());
    // The group and the backup itself: audit entries come last, long after the other changes.
    assert_eq!(audited, 2);
    draft.finish(|_| Ok::<(), StoreError>(())).unwrap();

    let Lab { folder, running } = lab;
    running.abort().await;
    restore(&copy, &store_path(&folder), Over { store: true, other_cluster: false }).unwrap();
    let lab = Lab::at(folder).await;
    let status = lab.running.service().status();
    assert_eq!((status.revision, status.groups, status.epoch), (revision, 2, 3));
    assert!(status.recovery.0 > 0);
    assert_eq!(charged(&lab, "web").await, 7_000_000, "what was told until then is counted");
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("web", 1, 9)]).await;
    assert_eq!(charged(&lab, "web").await, 9_000_000, "and what the node tells again counts once");
}

#[tokio::test]
async fn one_that_is_not_read_holds_up_nobody_but_the_next_one() {
    let lab = large().await;
    let mut parts = begun(&lab).await;
    next(&mut parts).await.unwrap();
    lab.group("web", "5").await;
    let mut second = begun(&lab).await;
    let refused = timeout(PATIENCE, second.message()).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("another backup is under way"), "{refused}");
    // Its reader goes away, and the next backup is served.
    drop(parts);
    let third = async {
        loop {
            if let Ok(Some(_)) = begun(&lab).await.message().await {
                return;
            }
        }
    };
    timeout(PATIENCE, third).await.unwrap();
}

#[tokio::test]
async fn a_stop_breaks_it_off_without_a_last_part() {
    let lab = large().await;
    let mut parts = begun(&lab).await;
    next(&mut parts).await.unwrap();
    let Lab { folder, running } = lab;
    timeout(PATIENCE, running.shutdown()).await.unwrap().unwrap();
    assert!(!ended(parts).await.0);
    drop(folder);
}

/// What it sends is the whole store, with the key that signs leases.
#[tokio::test]
async fn the_end_of_the_token_that_began_it_breaks_it_off_without_a_last_part() {
    let folder = large_store().await;
    let running = Controller::start(by_tokens(&folder)).await.unwrap();
    let channel = plain(&running).await;
    let (tokens, actor) = (running.service().tokens(), Actor::new(None, "test"));
    let wish = v1::CreateTokenRequest { name: "copier".into(), role: "admin".into(), ..Default::default() };
    let (token, secret) = tokens.create(&actor, &wish).unwrap();
    let mut copier = admin(&channel, secret.reveal());
    let mut begun = async || copier.backup(v1::BackupRequest {}).await.unwrap().into_inner();
    assert_eq!(ended(begun().await).await, (true, None), "while it is good");
    let mut parts = begun().await;
    next(&mut parts).await.unwrap();
    tokens.revoke(&actor, token.message().id, true).unwrap();
    assert_eq!(ended(parts).await, (false, Some(Code::Unauthenticated)), "and says why");
    running.shutdown().await.unwrap();
}
