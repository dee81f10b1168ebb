//! The grant stream.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use tidegate_controller::inside;
use tidegate_proto::v1;
use tidegate_proto::v1::client_message::Kind as Ask;
use tidegate_proto::v1::server_message::Kind as Answer;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tower::ServiceExt as _;

use crate::support::{Lab, MemoryStore, Node, PATIENCE, charged, entry, group, report, started};

fn status(entry: &v1::GrantEntry) -> v1::GrantStatus {
    v1::GrantStatus::try_from(entry.status).unwrap()
}

#[tokio::test]
async fn a_node_gets_leases_for_what_it_asks() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node-1", 1).await.unwrap();
    assert_eq!((node.welcome.protocol, node.welcome.epoch, node.welcome.recovery_us), (1, 1, 0));
    let asks = vec![entry("Web", 100), entry("default", 5), entry("none", 5)];
    let granted = node.renew(asks, Vec::new()).await.unwrap();
    let [web, default, none] = granted.entries.as_slice() else { panic!("three answers were expected") };
    assert_eq!((web.group.as_str(), status(web)), ("Web", v1::GrantStatus::Leased));
    assert!(web.rate >= 100_000_000 && web.rate <= 1_000_000_000 && !web.proof.is_empty(), "{web:?}");
    assert_eq!(status(default), v1::GrantStatus::Unlimited);
    assert_eq!(status(none), v1::GrantStatus::UnknownGroup);

    let leases = lab.admin().await.list_leases(v1::ListLeasesRequest { group: "web".into() }).await.unwrap();
    let leases = leases.into_inner();
    assert_eq!((leases.leases[0].client.as_str(), leases.groups[0].bound_rate.as_str()), ("node-1", "1000"));
    let clients =
        lab.admin().await.list_clients(v1::ListClientsRequest {}).await.unwrap().into_inner().clients;
    assert_eq!((clients[0].agent.as_str(), clients[0].connected, clients[0].leases), ("test/1", true, 2));
}

#[tokio::test]
async fn what_a_process_was_leased_counts_beside_its_successor_until_it_ends() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut rates = Vec::new();
    for incarnation in [1, 2] {
        // The first may still run, and spend what it has.
        let mut process = Node::connect(&lab, "node", incarnation).await.unwrap();
        let granted = process.renew(vec![entry("web", 1_000)], Vec::new()).await.unwrap();
        rates.push(granted.entries[0].rate);
    }
    assert!(rates[0] > 900_000_000 && rates.iter().sum::<i64>() <= 1_000_000_000, "{rates:?}");
}

#[tokio::test]
async fn a_bad_hello_is_refused() {
    let lab = Lab::start().await;
    let good = v1::Hello {
        protocol_min: 1,
        protocol_max: 1,
        client_id: "node".into(),
        incarnation: 1,
        ..v1::Hello::default()
    };
    let table = [
        (
            Ask::Hello(v1::Hello { protocol_min: 2, protocol_max: 9, ..good.clone() }),
            Code::FailedPrecondition,
        ),
        (Ask::Hello(v1::Hello { client_id: "a b".into(), ..good.clone() }), Code::InvalidArgument),
        (Ask::Hello(v1::Hello { incarnation: 0, ..good.clone() }), Code::InvalidArgument),
        (Ask::Renew(v1::Renew::default()), Code::InvalidArgument),
    ];
    for (first, code) in table {
        let refused = Node::open(&lab, first).await.err().unwrap();
        assert_eq!(refused.code(), code, "{refused}");
    }
    Node::connect(&lab, "node", 5).await.unwrap();
    let older = Node::connect(&lab, "node", 4).await.err().unwrap();
    assert_eq!(older.code(), Code::FailedPrecondition);
    assert!(older.message().contains("older than 5"), "{older}");
}

#[tokio::test]
async fn a_malformed_entry_is_refused_alone_and_a_malformed_message_ends_one_stream() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut other = Node::connect(&lab, "other", 1).await.unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let asks = vec![
        v1::RenewEntry { held_rate: -1, ..entry("web", 10) },
        entry("no such name!", 10),
        entry("web", 10),
    ];
    let reports = vec![v1::Report::default(), report("none", 0, 5), report("web", 9, 5), report("web", 0, 3)];
    let granted = node.renew(asks, reports).await.unwrap();
    let statuses: Vec<_> = granted.entries.iter().map(status).collect();
    assert_eq!(statuses, [v1::GrantStatus::Refused, v1::GrantStatus::Refused, v1::GrantStatus::Leased]);
    assert!(granted.entries[0].message.starts_with("held_rate: -1"), "{}", granted.entries[0].message);
    assert_eq!(charged(&lab, "web").await, 3_000_000);

    node.send(Some(Ask::Renew(v1::Renew { seq: 0, ..Default::default() }))).await;
    assert_eq!(node.next().await.unwrap_err().code(), Code::InvalidArgument);
    let mut again = Node::connect(&lab, "node", 1).await.unwrap();
    again.send(None).await;
    assert_eq!(again.next().await.unwrap_err().code(), Code::InvalidArgument);
    assert!(other.renew(vec![entry("web", 10)], Vec::new()).await.is_ok());
}

#[tokio::test]
async fn a_newer_stream_of_a_node_replaces_the_older() {
    let lab = Lab::start().await;
    let mut first = Node::connect(&lab, "node", 1).await.unwrap();
    let mut second = Node::connect(&lab, "node", 1).await.unwrap();
    assert_eq!(first.next().await.unwrap_err().code(), Code::Aborted);
    assert!(second.renew(Vec::new(), Vec::new()).await.is_ok());
    let mut third = Node::connect(&lab, "node", 2).await.unwrap();
    assert_eq!(second.next().await.unwrap_err().code(), Code::Aborted);
    assert!(third.renew(Vec::new(), Vec::new()).await.is_ok());
    assert_eq!(lab.running.service().status().clients, 1);
}

#[tokio::test]
async fn a_node_is_told_to_lower_when_another_needs_its_share() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut greedy = Node::connect(&lab, "greedy", 1).await.unwrap();
    let granted = greedy.renew(vec![entry("web", 2_000)], Vec::new()).await.unwrap();
    let held = granted.entries[0].rate;
    let mut other = Node::connect(&lab, "other", 1).await.unwrap();
    let asks = vec![v1::RenewEntry { backlog_micro_ru: 50_000_000, ..entry("web", 2_000) }];
    other.renew(asks, Vec::new()).await.unwrap();
    let Answer::Lower(lower) = greedy.next().await.unwrap() else { panic!("an order to lower was expected") };
    assert_eq!((lower.epoch, lower.entries[0].group.as_str()), (1, "web"));
    assert!(lower.entries[0].rate_at_most < held, "{lower:?}");
}

#[tokio::test]
async fn repeated_reports_are_counted_once_and_a_farewell_means_that_they_are_stored() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node", 7).await.unwrap();
    for ru in [4, 4, 9, 9] {
        node.renew(Vec::new(), vec![report("web", 0, ru)]).await.unwrap();
    }
    node.report(vec![report("web", 7, 10)]).await;
    // A late report takes nothing back.
    node.renew(Vec::new(), vec![report("web", 0, 2)]).await.unwrap();
    assert_eq!(charged(&lab, "web").await, 10_000_000);
    node.send(Some(Ask::Goodbye(v1::Goodbye { seq: 99, reports: vec![report("web", 0, 12)] }))).await;
    let Answer::Farewell(farewell) = node.next().await.unwrap() else { panic!("a farewell was expected") };
    assert_eq!(farewell.seq, 99);
    let lab = lab.crash().await;
    assert_eq!(charged(&lab, "web").await, 12_000_000);
    let history =
        v1::UsageHistoryRequest { group: "web".into(), resolution: "hour".into(), ..Default::default() };
    let points = lab.admin().await.usage_history(history).await.unwrap().into_inner().points;
    assert_eq!(
        points.iter().map(|point| point.amount.as_ref().unwrap().write_micro_ru).sum::<i64>(),
        12_000_000
    );
}

#[tokio::test]
async fn a_message_with_too_many_entries_is_refused() {
    let lab = Lab::start().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let most = usize::try_from(node.welcome.max_entries).unwrap();
    let error = node.renew(vec![entry("default", 1); most + 1], Vec::new()).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
}

#[tokio::test]
async fn a_node_that_started_once_with_a_clock_far_ahead_is_let_in_at_its_next_start() {
    let mut lab = Lab::start().await;
    lab.group("web", "1000").await;
    let now = lab.running.service().clock().unix_us();
    for ahead in [now + 365 * 86_400_000_000, u64::MAX] {
        let mut wrong = Node::connect(&lab, "node", ahead).await.unwrap();
        wrong.report(vec![report("web", 0, 1)]).await;
        let mut right = Node::connect(&lab, "node", now).await.unwrap();
        right.report(vec![report("web", 0, 7)]).await;
        // Its stream has ended, and its process does not come back.
        let refused = Node::connect(&lab, "node", ahead).await.err().unwrap();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        lab = lab.crash().await;
        let mut again = Node::connect(&lab, "node", now).await.unwrap();
        again.report(vec![report("web", 0, 7)]).await;
    }
    assert_eq!(charged(&lab, "web").await, 9_000_000, "what both charged counts");
}

#[tokio::test]
async fn what_comes_too_late_to_be_of_use_is_shed_and_its_reports_are_counted() {
    let lab = Lab::start().await;
    lab.group("app", "100").await;
    let mut node = Node::connect(&lab, "n1", 1).await.unwrap();
    // All are sent now; by the node's clock some were sent earlier, so that they have waited since.
    let sent = |sent_us, ru| v1::Renew {
        entries: vec![entry("app", 50)],
        reports: vec![report("app", 0, ru)],
        sent_us,
        answer_within_us: 60_000_000,
        ..v1::Renew::default()
    };
    for (sent_us, ru, shed) in [(900_000_000, 1, false), (890_000_000, 2, false), (860_000_000, 3, true)] {
        let granted = node.renew_as(sent(sent_us, ru)).await.unwrap();
        assert_eq!((granted.shed, granted.entries.is_empty()), (shed, shed), "{granted:?}");
    }
    assert_eq!(lab.running.service().metrics.shed.get(), 1);
    // A renewal without a sending time is considered, whenever it comes.
    let untold = v1::Renew { answer_within_us: 0, ..sent(1, 3) };
    assert!(!node.renew_as(untold).await.unwrap().shed);
    node.report(Vec::new()).await;
    assert_eq!(charged(&lab, "app").await, 3_000_000);
}

#[tokio::test]
async fn what_was_not_counted_is_told_beside_what_is_on_disk() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    lab.group("api", "1000").await;
    let mut node = Node::connect(&lab, "node", 5).await.unwrap();
    node.report(vec![report("web", 0, 9)]).await;
    let mut huge = report("api", 0, 1);
    huge.total.as_mut().unwrap().cpu_micro_ru = -1;
    let reports = vec![report("web", 0, 8), huge.clone(), report("api", 6, 1), report("web", 4, 1)];
    let granted = node.renew(Vec::new(), reports).await.unwrap();
    let refused: Vec<_> = granted.refused.iter().map(|r| (r.group.as_str(), r.incarnation)).collect();
    assert_eq!(refused, [("web", 0), ("api", 0), ("api", 6)]);
    assert!(granted.refused[1].message.starts_with("cpu_micro_ru: -1"), "{granted:?}");
    // A report for a removed group, or of a folded incarnation, never counts: the node need not keep it.
    let granted = node.renew(Vec::new(), vec![report("none", 0, 1)]).await.unwrap();
    assert!(granted.refused.is_empty(), "{granted:?}");
    node.send(Some(Ask::Goodbye(v1::Goodbye { seq: 50, reports: vec![huge, report("web", 0, 10)] }))).await;
    let Ok(Answer::Farewell(farewell)) = node.next().await else { panic!("a farewell was expected") };
    assert_eq!((farewell.seq, farewell.refused.len()), (50, 1));
    assert_eq!(charged(&lab, "web").await, 11_000_000);
}

/// As a process does that ends without a word: its leases run on, and it is connected no longer.
#[tokio::test]
async fn a_stream_that_its_node_closes_is_over() {
    let lab = Lab::start().await;
    let (asks, stream) = mpsc::channel(1);
    let hello = v1::Hello {
        protocol_min: 1,
        protocol_max: 1,
        client_id: "node-1".into(),
        incarnation: 1,
        ..v1::Hello::default()
    };
    asks.send(v1::ClientMessage { kind: Some(Ask::Hello(hello)) }).await.unwrap();
    let mut answers = lab.grants().await.session(ReceiverStream::new(stream)).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    assert_eq!(lab.running.service().status().clients, 1);
    drop(asks);
    assert!(timeout(PATIENCE, answers.message()).await.unwrap().unwrap().is_none());
    assert_eq!(lab.running.service().status().clients, 0);
}

#[tokio::test]
async fn a_second_hello_ends_the_stream_and_not_the_node() {
    let lab = Lab::start().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.send(Some(Ask::Hello(v1::Hello { client_id: "other".into(), ..v1::Hello::default() }))).await;
    let refused = node.next().await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "a session has one hello only"));
    assert!(Node::connect(&lab, "node", 1).await.is_ok());
}

#[tokio::test]
async fn a_goodbye_with_more_reports_than_a_message_may_have_is_refused_and_counts_nothing() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let most = usize::try_from(node.welcome.max_entries).unwrap();
    let reports = vec![report("web", 0, 5); most + 1];
    node.send(Some(Ask::Goodbye(v1::Goodbye { seq: 1, reports }))).await;
    let refused = node.next().await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with(&format!("reports: {} are too many", most + 1)), "{refused}");
    assert_eq!(charged(&lab, "web").await, 0);
}

#[tokio::test]
async fn what_a_node_says_of_itself_is_shown_as_it_said_it() {
    let lab = Lab::start().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let said = v1::NodeStats { process_cpu_ns: 11, metered_cpu_ns: 7, resident_bytes: 5 };
    node.renew_as(v1::Renew { node: Some(said), ..v1::Renew::default() }).await.unwrap();
    let clients =
        lab.admin().await.list_clients(v1::ListClientsRequest {}).await.unwrap().into_inner().clients;
    assert_eq!(clients[0].node, Some(said));
}

#[tokio::test]
async fn a_lease_without_a_limit_and_a_rate_that_warms_up_are_listed_as_such() {
    let lab = Lab::start().await;
    let cold = v1::Group { policy: "warm_up(10s, 4)".into(), ..group("cold", "1000") };
    let request = v1::CreateGroupRequest { group: Some(cold), if_not_exists: false };
    lab.admin().await.create_group(request).await.unwrap();
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let asks = ["cold", "default", "web"].map(|name| entry(name, 10)).to_vec();
    node.renew(asks, Vec::new()).await.unwrap();
    let listed = async |group: &str| {
        let request = v1::ListLeasesRequest { group: group.to_owned() };
        lab.admin().await.list_leases(request).await.unwrap().into_inner()
    };
    let default = listed("default").await.leases.remove(0);
    assert_eq!((default.rate.as_str(), default.committed.as_str()), ("unlimited", "unlimited"));
    let web = listed("web").await;
    assert!(web.leases[0].rate.parse::<f64>().is_ok() && web.groups[0].warmth.is_none(), "{web:?}");
    // A group begins cold, at a part of its rate.
    let warmth = listed("cold").await.groups.remove(0).warmth.unwrap();
    let rate: f64 = warmth.rate.parse().unwrap();
    assert!((250.0..500.0).contains(&rate) && warmth.warm_ppm < 200_000, "{warmth:?}");
}

#[tokio::test]
async fn a_node_is_told_what_its_group_falls_back_to() {
    use v1::fallback::Kind;
    let lab = Lab::start().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    for (name, fallback, told) in [
        ("stops", "stop", Kind::Rate(0)),
        ("slows", "7.5", Kind::Rate(7_500_000)),
        ("goes-on", "unlimited", Kind::Unlimited(true)),
    ] {
        let made = v1::Group { fallback: fallback.into(), ..group(name, "1000") };
        let request = v1::CreateGroupRequest { group: Some(made), if_not_exists: false };
        lab.admin().await.create_group(request).await.unwrap();
        let granted = node.renew(vec![entry(name, 10)], Vec::new()).await.unwrap();
        assert_eq!(granted.entries[0].fallback, Some(v1::Fallback { kind: Some(told) }), "{name}");
    }
}

/// It would hold a stream of the listener for as long as its connection lasts.
#[tokio::test(start_paused = true)]
async fn a_stream_that_says_no_hello_is_over_in_time() {
    let service = Arc::new(started(&Arc::new(MemoryStore::default()), &Arc::default()));
    let (_stop, stopped) = watch::channel(false);
    let silent = tokio_stream::pending::<Result<axum::body::Bytes, Infallible>>();
    let request = http::Request::post("http://localhost/tidegate.v1.Grants/Session")
        .header("content-type", "application/grpc")
        .body(axum::body::Body::from_stream(silent))
        .unwrap();
    let answer = inside::grpc(&service, stopped).oneshot(request).await.unwrap();
    let said = answer.into_body().collect().await.unwrap();
    let trailers = said.trailers().unwrap();
    let code = trailers["grpc-status"].to_str().unwrap().parse::<i32>().unwrap();
    assert_eq!(Code::from(code), Code::DeadlineExceeded);
    assert!(trailers["grpc-message"].to_str().unwrap().starts_with("no%20hello%20within"), "{trailers:?}");
    assert_eq!(service.status().clients, 0);
}
