//! Incarnations that are silent for long.

use tidegate_controller::store::records::{consumption_bytes, ledger_key, put_json, u64_key};
use tidegate_controller::store::{RedbStore, Store, Table, Write};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};

use crate::support::{Lab, Node, charged, report, store_path};

#[tokio::test]
async fn silent_incarnations_are_folded_and_report_no_more() {
    let lab = Lab::start().await;
    lab.running.shutdown().await.unwrap();
    {
        let store = RedbStore::open(&store_path(&lab.folder)).unwrap();
        let charged = RuParts { write: Ru::whole(40), ..RuParts::default() };
        let total = Consumption { charged, operations: 40, ..Consumption::default() };
        let client = serde_json::json!({"name": "node", "incarnation": 3, "heard_unix_ms": 1});
        let row =
            Write::Put(Table::Ledger, ledger_key(ClientId(9), GroupId::DEFAULT), consumption_bytes(&total));
        store.commit(&[put_json(Table::Clients, u64_key(9), &client).unwrap(), row]).unwrap();
    }
    let lab = Lab::at(lab.folder).await;
    lab.running.service().tidy().unwrap();
    assert_eq!(charged(&lab, "default").await, 40_000_000);
    assert!(lab.running.service().clients().0.is_empty());

    let lab = lab.crash().await;
    assert_eq!(charged(&lab, "default").await, 40_000_000);
    let mut node = Node::connect(&lab, "node", 4).await.unwrap();
    node.report(vec![report("default", 3, 45), report("default", 0, 2)]).await;
    assert_eq!(charged(&lab, "default").await, 42_000_000);
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    assert!(page.contains("tidegate_refused_total{reason=\"folded\"} 1\n"), "{page}");
}
