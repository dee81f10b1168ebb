//! Groups that are removed and created again under their name: nodes report by name, and nothing counts for both.

use tidegate_controller::Controller;
use tidegate_controller::name::GroupName;
use tidegate_controller::store::records::{consumption_bytes, ledger_key, put_json, retired_key, u64_key};
use tidegate_controller::store::{RedbStore, Store, Table, Write};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};

use crate::support::{Lab, Node, charged, config, report, store_path};

fn written(ru: i64) -> Vec<u8> {
    let charged = RuParts { write: Ru::whole(ru), ..RuParts::default() };
    consumption_bytes(&Consumption { charged, ..Consumption::default() }.into())
}

#[tokio::test]
async fn a_group_that_is_there_again_counts_only_what_is_new() {
    let lab = Lab::start().await;
    lab.group("g", "100").await;
    lab.group("h", "100").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let mut other = Node::connect(&lab, "other", 1).await.unwrap();
    node.report(vec![report("g", 0, 10), report("h", 0, 3)]).await;
    lab.delete("g").await;
    // A report while the group does not exist counts for the next one.
    node.report(vec![report("g", 0, 12)]).await;
    lab.group("g", "50").await;
    assert_eq!(charged(&lab, "g").await, 0);
    node.report(vec![report("g", 0, 12), report("h", 0, 4)]).await;
    other.report(vec![report("g", 0, 5)]).await;
    assert_eq!((charged(&lab, "g").await, charged(&lab, "h").await), (7_000_000, 4_000_000));
    node.report(vec![report("g", 0, 14)]).await;
    assert_eq!(charged(&lab, "g").await, 9_000_000);
    let (_, usage) = lab.http("GET", "/v1/usage?group=g&per_client=true", None).await;
    assert_eq!(usage["rows"].as_array().map(Vec::len), Some(3), "{usage}");

    let lab = lab.crash().await;
    assert_eq!(charged(&lab, "g").await, 9_000_000);
    lab.delete("g").await;
    let lab = lab.crash().await;
    lab.group("g", "50").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("g", 0, 15)]).await;
    assert_eq!(charged(&lab, "g").await, 1_000_000);
    // Another start of the node counts from zero.
    let mut node = Node::connect(&lab, "node", 2).await.unwrap();
    node.report(vec![report("g", 0, 2)]).await;
    assert_eq!(charged(&lab, "g").await, 3_000_000);
    let lab = lab.restart().await;
    assert_eq!(charged(&lab, "g").await, 3_000_000);
}

/// Deleting a group stores its nodes for the first time.
#[tokio::test]
async fn nodes_that_no_flush_has_stored_are_known_by_their_names() {
    let lab = Lab::start().await;
    lab.group("g", "100").await;
    for (name, ru) in [("one", 10), ("two", 20)] {
        let mut node = Node::connect(&lab, name, 1).await.unwrap();
        node.renew(Vec::new(), vec![report("g", 0, ru)]).await.unwrap();
    }
    lab.delete("g").await;
    let lab = lab.crash().await;
    lab.group("g", "100").await;
    for (name, ru) in [("two", 20), ("one", 12)] {
        let mut node = Node::connect(&lab, name, 1).await.unwrap();
        node.renew(Vec::new(), vec![report("g", 0, ru)]).await.unwrap();
    }
    assert_eq!(charged(&lab, "g").await, 2_000_000);
}

#[tokio::test]
async fn what_was_counted_before_is_folded_with_its_node() {
    let lab = Lab::start().await;
    lab.running.shutdown().await.unwrap();
    let (default, gone) = (GroupName::default_group(), GroupName::parse("gone").unwrap());
    let client = serde_json::json!({"name": "node", "incarnation": 3, "heard_unix_ms": 1});
    RedbStore::open(&store_path(&lab.folder))
        .unwrap()
        .commit(&[
            put_json(Table::Clients, u64_key(9), &client).unwrap(),
            Write::Put(Table::Ledger, ledger_key(ClientId(9), GroupId::DEFAULT), written(40)),
            Write::Put(Table::Retired, retired_key(&default, ClientId(9)), written(30)),
            Write::Put(Table::Retired, retired_key(&gone, ClientId(9)), written(30)),
            Write::Put(Table::Retired, retired_key(&gone, ClientId(10)), written(30)),
        ])
        .unwrap();
    let lab = Lab::at(lab.folder).await;
    assert_eq!(charged(&lab, "default").await, 10_000_000);
    lab.running.service().upkeep().tidy().unwrap();
    assert_eq!(charged(&lab, "default").await, 10_000_000);
    let lab = lab.restart().await;
    assert_eq!(charged(&lab, "default").await, 10_000_000);
    lab.running.shutdown().await.unwrap();
    let left = {
        let store = RedbStore::open(&store_path(&lab.folder)).unwrap();
        store
            .get(Table::Retired, &[retired_key(&gone, ClientId(10)), retired_key(&gone, ClientId(9))])
            .unwrap()
    };
    assert_eq!(left, [Some(written(30)), None]);
}

#[tokio::test]
async fn a_row_with_less_than_was_counted_before_is_damage() {
    let lab = Lab::start().await;
    lab.running.shutdown().await.unwrap();
    let default = GroupName::default_group();
    {
        let store = RedbStore::open(&store_path(&lab.folder)).unwrap();
        let rows = [
            Write::Put(Table::Ledger, ledger_key(ClientId(9), GroupId::DEFAULT), written(29)),
            Write::Put(Table::Retired, retired_key(&default, ClientId(9)), written(30)),
        ];
        store.commit(&rows).unwrap();
    }
    let error = Controller::start(config(&lab.folder)).await.err().unwrap().to_string();
    assert!(error.contains("less than was counted before"), "{error}");
}
