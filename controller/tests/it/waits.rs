//! How long operations waited: from the reports of nodes to what the controller answers.

use tidegate_proto::v1;

use crate::support::{Lab, Node, entry};

/// Waits by the number of their length, after so much time waited before.
fn piece(since_us: u64, waits: &[(u32, u32)], in_vain: u32) -> v1::Waited {
    let (lengths, waits) = waits.iter().copied().unzip();
    v1::Waited { since_us, lengths, waits, in_vain }
}

fn report(waited_us: u64, waited: &[v1::Waited]) -> v1::Report {
    let total = v1::Consumption { operations: waited_us, waited_us, ..v1::Consumption::default() };
    v1::Report { group: "shop".to_owned(), incarnation: 0, total: Some(total), waited: waited.to_vec() }
}

/// What the controller says of the waits of `shop`.
async fn waits(lab: &Lab) -> Option<v1::GroupWaits> {
    let request = v1::ListLeasesRequest { group: "shop".to_owned() };
    let reply = lab.admin().await.list_leases(request).await.unwrap().into_inner();
    reply.groups.into_iter().next().unwrap().waits
}

async fn ended(lab: &Lab) -> u64 {
    waits(lab).await.map_or(0, |waits| waits.ended)
}

#[tokio::test]
async fn waits_count_once_whatever_is_sent_again() {
    let lab = Lab::start().await;
    lab.group("shop", "100").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let ask = || vec![entry("shop", 100)];
    node.renew(ask(), vec![report(0, &[])]).await.unwrap();
    assert_eq!(waits(&lab).await, None, "nothing waited");
    // 98 waits of about 2 ms, then two of about 12 ms.
    let [first, second] = [piece(0, &[(20, 98)], 0), piece(200_000, &[(30, 2)], 1)];
    node.renew(ask(), vec![report(200_000, std::slice::from_ref(&first))]).await.unwrap();
    assert_eq!(ended(&lab).await, 98);
    node.renew(ask(), vec![report(230_000, std::slice::from_ref(&second))]).await.unwrap();
    let shown = waits(&lab).await.unwrap();
    assert_eq!((shown.ended, shown.in_vain), (100, 1));
    assert_eq!((shown.p50_us, shown.p99_us, shown.max_us), (2_048, 12_288, 12_288));
    let buckets: Vec<_> = shown.buckets.iter().map(|of| (of.length, of.at_most_us, of.waits)).collect();
    assert_eq!(buckets, [(20, 2_048, 98), (30, 12_288, 2)]);
    // The answers were lost with the stream: all comes again with what is new, twice.
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let third = piece(230_000, &[(0, 5)], 0);
    for _ in 0..2 {
        let again = report(230_400, &[first.clone(), second.clone(), third.clone()]);
        node.renew(ask(), vec![again]).await.unwrap();
        assert_eq!(ended(&lab).await, 105);
    }
    // Another node, and one that knows nothing of it.
    let mut other = Node::connect(&lab, "other", 1).await.unwrap();
    other.renew(ask(), vec![report(2_000_000, &[piece(0, &[(40, 10)], 0)])]).await.unwrap();
    let mut old = Node::connect(&lab, "old", 1).await.unwrap();
    old.renew(ask(), vec![report(5_000, &[])]).await.unwrap();
    assert_eq!(ended(&lab).await, 115);

    let (_, leases) = lab.http("GET", "/v1/leases?group=shop", None).await;
    let shown = &leases["groups"][0]["waits"];
    assert_eq!((&shown["ended"], &shown["p50_us"]), (&115.into(), &2_048.into()), "{leases}");
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    assert!(
        page.contains("tidegate_group_wait_seconds{group=\"shop\",quantile=\"0.5\"} 0.002048\n"),
        "{page}"
    );

    // A restart forgets the last minute; what its ledger has is not counted again.
    node.report(vec![report(230_400, &[])]).await;
    let lab = lab.crash().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let fourth = piece(230_400, &[(1, 1)], 0);
    node.renew(ask(), vec![report(230_500, &[first, second, third, fourth])]).await.unwrap();
    assert_eq!(ended(&lab).await, 1);
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn waits_that_cannot_be_are_left_out_and_what_was_consumed_counts() {
    let lab = Lab::start().await;
    lab.group("shop", "100").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    for (number, waited) in (1..).zip([piece(0, &[(105, 1)], 0), piece(0, &[(0, u32::MAX)], 0)]) {
        let report = report(1_000 * number, &[waited]);
        let granted = node.renew(vec![entry("shop", 100)], vec![report]).await.unwrap();
        assert_eq!(granted.refused, []);
        assert_eq!(waits(&lab).await, None);
        let request = v1::UsageRequest { group: "shop".to_owned(), ..v1::UsageRequest::default() };
        let usage = lab.admin().await.usage(request).await.unwrap().into_inner();
        assert_eq!(usage.rows[0].total.as_ref().unwrap().operations, 1_000 * number);
    }
    node.renew(vec![entry("shop", 100)], vec![report(3_000, &[piece(2_000, &[(0, 10)], 0)])]).await.unwrap();
    assert_eq!(ended(&lab).await, 10, "those of the next report count");
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_group_without_leases_is_listed_while_its_waits_are_recent() {
    let lab = Lab::start().await;
    lab.group("shop", "100").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let in_vain = piece(0, &[(0, 10)], 10);
    node.renew(Vec::new(), vec![report(1_000, &[in_vain])]).await.unwrap();
    let request = v1::ListLeasesRequest::default();
    let reply = lab.admin().await.list_leases(request).await.unwrap().into_inner();
    let groups: Vec<_> = reply.groups.iter().map(|state| (state.group.as_str(), state.leases)).collect();
    assert_eq!((groups.as_slice(), reply.leases.len()), ([("shop", 0)].as_slice(), 0));
    assert_eq!(reply.groups[0].waits.as_ref().map(|waits| waits.in_vain), Some(10));
    lab.running.shutdown().await.unwrap();
}
