//! Totals past every edge of 64 bits: counted to the micro-RU, across crashes, folding and removal.

use tidegate_controller::store::records::{consumption_bytes, ledger_key, put_json, u64_key};
use tidegate_controller::store::{RedbStore, Store, Table, Write};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::Ru;
use tidegate_core::usage::Total;
use tidegate_proto::v1;

use crate::support::{Lab, Node, store_path};

/// The first six words are amounts of RU.
const AMOUNTS: usize = 6;

fn report(group: &str, incarnation: u64, words: &[u128; Total::WORDS]) -> v1::Report {
    let total = Some(v1::Consumption::from_words(words));
    v1::Report { group: group.to_owned(), incarnation, total }
}

/// All counters of a group, as the admin API has them.
async fn words(lab: &Lab, group: &str) -> [u128; Total::WORDS] {
    let request = v1::UsageRequest { group: group.to_owned(), per_client: false };
    let rows = lab.admin().await.usage(request).await.unwrap().into_inner().rows;
    rows[0].total.as_ref().unwrap().to_words().unwrap()
}

/// A controller whose ledger has a node's incarnation 3 with these counters.
async fn lab_with(counters: u128) -> Lab {
    let lab = Lab::start().await;
    lab.running.shutdown().await.unwrap();
    {
        let store = RedbStore::open(&store_path(&lab.folder)).unwrap();
        let total = Total::from_words([counters; Total::WORDS]);
        let client = serde_json::json!({"name": "node", "incarnation": 3, "heard_unix_ms": 1});
        let key = ledger_key(ClientId(9), GroupId::DEFAULT);
        let row = Write::Put(Table::Ledger, key, consumption_bytes(&total));
        store.commit(&[put_json(Table::Clients, u64_key(9), &client).unwrap(), row]).unwrap();
    }
    Lab::at(lab.folder).await
}

#[tokio::test]
async fn a_process_counts_past_every_edge_of_64_bits() {
    let edges =
        [Ru::MAX.0.unsigned_abs().into(), i64::MAX.unsigned_abs().into(), u128::from(u64::MAX), 1 << 95];
    for edge in edges {
        let lab = lab_with(edge - 1_000).await;
        let mut node = Node::connect(&lab, "node", 3).await.unwrap();
        let after: [u128; Total::WORDS] = std::array::from_fn(|at| edge + at as u128);
        node.report(vec![report("default", 0, &after), report("default", 0, &after)]).await;
        assert_eq!(words(&lab, "default").await, after);
        let (_, usage) = lab.http("GET", "/v1/usage?group=default", None).await;
        let shown = &usage["rows"][0]["total"];
        let micro: u128 = after[..AMOUNTS - 1].iter().sum();
        let ru = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
        assert_eq!(shown["ru"], ru.trim_end_matches('0').trim_end_matches('.'), "{usage}");
        assert_eq!(shown["operations"], after[AMOUNTS].to_string(), "{usage}");

        let lab = lab.crash().await;
        assert_eq!(words(&lab, "default").await, after, "after a crash");
        let mut node = Node::connect(&lab, "node", 4).await.unwrap();
        let more = after.map(|word| word + 1);
        node.report(vec![report("default", 3, &more), report("default", 0, &[1; Total::WORDS])]).await;
        assert_eq!(words(&lab, "default").await, more.map(|word| word + 1), "the next start tells the rest");
        lab.running.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_counted_past_64_bits_is_folded_whole() {
    let counters = u128::from(u64::MAX) + 5;
    let lab = lab_with(counters).await;
    lab.running.service().tidy().unwrap();
    assert!(lab.running.service().clients().0.is_empty(), "folded");
    let lab = lab.crash().await;
    assert_eq!(words(&lab, "default").await, [counters; Total::WORDS]);
}

#[tokio::test]
async fn a_total_out_of_range_is_refused_by_name_and_not_confirmed() {
    let lab = Lab::start().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let mut wrong = report("default", 0, &[Total::LIMIT; Total::WORDS]);
    let granted = node.renew(Vec::new(), vec![wrong.clone()]).await.unwrap();
    assert!(granted.refused[0].message.starts_with("exact: 79228162514264337593543950336"), "{granted:?}");
    wrong.total = Some(v1::Consumption { flat_micro_ru: -1, ..v1::Consumption::default() });
    let granted = node.renew(Vec::new(), vec![wrong]).await.unwrap();
    assert!(granted.refused[0].message.starts_with("flat_micro_ru: -1"), "{granted:?}");
}
