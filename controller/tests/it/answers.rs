//! Answers of more rows than one holds, over gRPC, REST and in the console: they are cut, and say so.

use serde_json::{Value, json};
use tidegate_controller::limits::MAX_ROWS;
use tidegate_controller::store::records::{
    META_NEXT_CLIENT, META_NEXT_GROUP, StoredGroup, consumption_bytes, group_key, ledger_key, put_json,
    put_number, u64_key,
};
use tidegate_controller::store::{RedbStore, Store as _, Table, Write};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::usage::Total;
use tidegate_proto::v1;

use crate::console::Browser;
use crate::support::{Lab, group, store_path};

/// A moment ahead of every test: a node heard then counts as not silent.
const LATELY_MS: u64 = 1 << 45;

/// A controller with one group and one node more than an answer has rows. The first node was charged in each group, and
/// each node in `default`.
async fn crowded() -> Lab {
    let lab = Lab::start().await;
    lab.running.shutdown().await.unwrap();
    {
        let store = RedbStore::open(&store_path(&lab.folder)).unwrap();
        let count = u32::try_from(MAX_ROWS).unwrap();
        let charged = consumption_bytes(&Total::from_words([1; Total::WORDS]));
        let ledger = |client: u64, group| {
            Write::Put(Table::Ledger, ledger_key(ClientId(client), group), charged.clone())
        };
        let last = u64::from(GroupId::DEFAULT.0 + count);
        let nodes = u64::from(count) + 1;
        let mut rows = vec![put_number(META_NEXT_GROUP, last + 1), put_number(META_NEXT_CLIENT, nodes + 1)];
        for number in 1..=count {
            let id = GroupId(GroupId::DEFAULT.0 + number);
            let group = group(&format!("g{number:05}"), "5");
            let stored = StoredGroup { id: id.0, group, longest_ttl_us: None };
            rows.extend([put_json(Table::Groups, group_key(id), &stored).unwrap(), ledger(1, id)]);
        }
        for client in 1..=nodes {
            let node = json!({"name": format!("n{client:05}"), "incarnation": 3, "heard_unix_ms": LATELY_MS});
            rows.push(put_json(Table::Clients, u64_key(client), &node).unwrap());
            rows.push(ledger(client, GroupId::DEFAULT));
        }
        store.commit(&rows).unwrap();
    }
    Lab::at(lab.folder).await
}

/// Whose a row is.
fn who(row: &Value) -> Value {
    json!([row["group"], row["client"], row["incarnation"]])
}

#[tokio::test]
async fn an_answer_that_is_cut_says_so_wherever_it_is_asked_for() {
    let lab = crowded().await;
    let mut admin = lab.admin().await;
    for (of, is_cut, rows) in [("", true, MAX_ROWS), ("g00001", false, 2)] {
        let request = v1::UsageRequest { group: of.to_owned(), per_client: !is_cut };
        let reply = admin.usage(request).await.unwrap().into_inner();
        assert_eq!((reply.truncated, reply.rows.len()), (is_cut, rows), "{of}");
    }
    // The rest of a large answer is read as text, for the sake of time.
    let path = "/v1/usage?group=default&per_client=true";
    let (_, text) = lab.http_text("GET", path, "application/json", b"").await;
    assert!(text.ends_with("\"truncated\":true}"), "{}", text.len());
    let (_, answer) = lab.http("GET", "/v1/usage?group=g00001&per_client=true", None).await;
    assert_eq!(answer["truncated"], json!(false));
    let who: Vec<_> = answer["rows"].as_array().unwrap().iter().map(who).collect();
    assert_eq!(who, [json!(["g00001", "", 0]), json!(["g00001", "n00001", 3])]);
    let reply = admin.list_clients(v1::ListClientsRequest {}).await.unwrap().into_inner();
    assert_eq!((reply.truncated, reply.clients.len()), (true, MAX_ROWS));
    // The newest, by which the last one is missing.
    assert!(reply.clients.iter().all(|client| client.client != "n00001"));

    let mut browser = Browser::at(&lab.running);
    let page = browser.get("/console").await;
    assert!(page.text.contains("More groups are in use than one answer holds"), "{page:?}");
    assert!(page.text.contains(&format!("and {} silent", MAX_ROWS + 1)), "{page:?}");
    let page = browser.get("/console/groups?q=g0000").await;
    assert!(page.text.contains("More groups are in use than one answer holds"), "{page:?}");
    let page = browser.get("/console/nodes?q=n00001").await;
    assert!(page.text.contains("More nodes are known than one answer holds"), "{page:?}");
    assert!(page.text.contains("No node fits.") && !page.text.contains("the CSV has all"), "{page:?}");
    lab.running.shutdown().await.unwrap();
}
