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
    v1::Report { group: group.to_owned(), incarnation, total, ..v1::Report::default() }
}

/// All counters of a group, from the admin API.
async fn words(lab: &Lab, group: &str) -> [u128; Total::WORDS] {
    let request = v1::UsageRequest { group: group.to_owned(), per_client: false };
    let rows = lab.admin().await.usage(request).await.unwrap().into_inner().rows;
    rows[0].total.as_ref().unwrap().to_words().unwrap()
}

/// A moment ahead of every test: a node heard then counts as not silent.
const LATELY_MS: u64 = 1 << 45;

/// A controller whose ledger has a node's incarnation 3 with these counters, last heard at this time.
async fn lab_with(counters: u128, heard_unix_ms: u64) -> Lab {
    let lab = Lab::start().await;
    lab.running.shutdown().await.unwrap();
    {
        let store = RedbStore::open(&store_path(&lab.folder)).unwrap();
        let total = Total::from_words([counters; Total::WORDS]);
        let client = serde_json::json!({"name": "node", "incarnation": 3, "heard_unix_ms": heard_unix_ms});
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
        let lab = lab_with(edge - 1_000, LATELY_MS).await;
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
    let lab = lab_with(counters, 1).await;
    lab.running.service().upkeep().tidy().unwrap();
    assert!(lab.running.service().leasing().clients().0.is_empty(), "folded");
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

/// RU of a group that are counted apart, of all nodes and by node.
async fn apart(lab: &Lab, group: &str) -> Vec<(String, String)> {
    let request = v1::UsageRequest { group: group.to_owned(), per_client: true };
    let rows = lab.admin().await.usage(request).await.unwrap().into_inner().rows;
    rows.into_iter().map(|row| (row.client, row.apart_ru)).collect()
}

#[tokio::test]
async fn a_claim_that_no_process_can_have_used_is_counted_apart_for_good() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut liar = Node::connect(&lab, "liar", 5).await.unwrap();
    let mut honest = Node::connect(&lab, "honest", 5).await.unwrap();
    let words = |micro: u128| std::array::from_fn(|at| if at == 2 { micro } else { 0 });
    let lie = 1_000_000_000_000_000_000;
    honest.report(vec![report("web", 0, &words(5))]).await;
    // The claim is on disk and confirmed, so the false client need not repeat it. Later charges count.
    liar.report(vec![report("web", 0, &words(lie))]).await;
    liar.report(vec![report("web", 0, &words(lie)), report("web", 0, &words(lie + 7))]).await;
    let rows = |sum: &str, honest: &str, liar: &str| {
        let row = |client: &str, apart: &str| (client.to_owned(), apart.to_owned());
        vec![row("", sum), row("honest", honest), row("liar", liar)]
    };
    let mut lab = lab;
    for _ in 0..2 {
        assert_eq!(words_of(&lab).await, words(12));
        let mut shown = apart(&lab, "web").await;
        shown.sort();
        assert_eq!(shown, rows("1000000000000", "0", "1000000000000"));
        let (_, status) = lab.http("GET", "/v1/status", None).await;
        let warned = status["warnings"].to_string();
        assert!(warned.contains("group web: 1000000000000 RU were reported beyond"), "{status}");
        lab = lab.crash().await;
    }
    let (_, usage) = lab.http("GET", "/v1/usage?group=web", None).await;
    assert_eq!(usage["rows"][0]["apart_ru"], "1000000000000", "{usage}");
    lab.delete("web").await;
    lab.group("web", "1000").await;
    let lab = lab.crash().await;
    assert_eq!(apart(&lab, "web").await, [(String::new(), "0".to_owned())], "of another group of the name");
}

async fn words_of(lab: &Lab) -> [u128; Total::WORDS] {
    words(lab, "web").await
}

#[tokio::test]
async fn what_is_counted_apart_outlasts_folding_and_is_noticed() {
    let lab = Lab::start().await;
    let mut liar = Node::connect(&lab, "liar", 5).await.unwrap();
    let mut lie = [3; Total::WORDS];
    lie[0] = 1 << 90;
    liar.report(vec![report("default", 0, &lie)]).await;
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    assert!(page.contains("tidegate_reports_apart_total 1\n"), "{page}");
    drop(liar);
    lab.running.shutdown().await.unwrap();
    {
        let store = RedbStore::open(&store_path(&lab.folder)).unwrap();
        let mut client = None;
        let mut find = |key: &[u8], _: &[u8]| {
            client = Some(key.to_vec());
            Ok(std::ops::ControlFlow::Continue(()))
        };
        store.scan(Table::Clients, &[], &mut find).unwrap();
        let silent = serde_json::json!({"name": "liar", "incarnation": 5, "heard_unix_ms": 1});
        store.commit(&[put_json(Table::Clients, client.unwrap(), &silent).unwrap()]).unwrap();
    }
    let lab = Lab::at(lab.folder).await;
    lab.running.service().upkeep().tidy().unwrap();
    assert!(lab.running.service().leasing().clients().0.is_empty(), "folded");
    let lab = lab.crash().await;
    let whole = [(
        String::new(),
        format!("{}.{:06}", ((1_u128 << 90) + 12) / 1_000_000, ((1_u128 << 90) + 12) % 1_000_000),
    )];
    assert_eq!(apart(&lab, "default").await, whole);
    assert_eq!(words(&lab, "default").await, [0; Total::WORDS]);
}
