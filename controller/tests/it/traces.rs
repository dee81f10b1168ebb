//! Traces end to end: what a collector has of renewals, calls and commits, and what becomes of them without one.

use tempfile::TempDir;
use tidegate_controller::{Config, Controller};
use tidegate_proto::v1;
use tidegate_test_servers::{Collector, Exported, Manner};
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::support::{Lab, Node, PATIENCE, config, entry, group};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// Settings by which this share of traces goes to this collector.
fn traced(folder: &TempDir, collector: &Collector, share: &str) -> Config {
    let text = format!("trace_endpoint = \"{}\"\ntrace_sample = {share}\n", collector.endpoint());
    Config { traces: Config::parse(&text).unwrap().traces, ..config(folder) }
}

async fn lab(collector: &Collector, share: &str) -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let running = Controller::start(traced(&folder, collector, share)).await.unwrap();
    Lab { folder, running }
}

/// Creates a group on behalf of this caller, by gRPC or by REST.
async fn create(lab: &Lab, name: &str, caller: &'static str, by_rest: bool) {
    if by_rest {
        let media = format!("application/json\r\ntraceparent: {caller}");
        let body = format!("{{\"name\":\"{name}\",\"ru_per_sec\":\"10\"}}");
        let (status, said) = lab.http_text("POST", "/v1/groups", &media, body.as_bytes()).await;
        assert!((200..300).contains(&status), "{status}: {said}");
        return;
    }
    let created = v1::CreateGroupRequest { group: Some(group(name, "10")), if_not_exists: false };
    let mut request = tonic::Request::new(created);
    request.metadata_mut().insert("traceparent", caller.parse().unwrap());
    lab.admin().await.create_group(request).await.unwrap();
}

/// A sample of the page of metrics.
async fn sample(lab: &Lab, name: &str) -> u64 {
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name}: {page}")).parse().unwrap()
}

/// Waits until so many spans have ended so.
async fn counted(lab: &Lab, outcome: &str, spans: u64) {
    let name = format!("tidegate_trace_spans_total{{outcome=\"{outcome}\"}}");
    let counted = async { while sample(lab, &name).await != spans {} };
    timeout(PATIENCE, counted).await.unwrap_or_else(|_| panic!("never: {outcome}"));
}

fn until(collector: &Collector, what: &str, check: impl Fn(&Exported) -> bool) -> Exported {
    let all = block_in_place(|| collector.until(what, |spans| spans.iter().any(&check)));
    all.into_iter().find(&check).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_a_span_with_what_it_granted() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let lab = lab(&collector, "1").await;
    lab.group("shop", "1000 RU/s").await;
    let mut node = Node::connect(&lab, "till", 1).await.unwrap();
    node.renew(vec![entry("shop", 100), entry("none", 1)], Vec::new()).await.unwrap();
    let span = until(&collector, "a renewal", |span| span.name == "renewal");
    assert_eq!((span.service.as_str(), span.kind, span.parent.as_str()), ("tidegate-controller", 2, ""));
    assert!(span.error.is_none() && span.began <= span.ended, "{span:?}");
    let value = |key: &str| span.attributes[key].as_str();
    for (key, expected) in [
        ("tidegate.node", "till"),
        ("tidegate.groups", "2"),
        ("tidegate.reports", "0"),
        ("tidegate.leases", "1"),
        ("tidegate.groups.refused", "0"),
        ("tidegate.reports.refused", "0"),
        ("tidegate.renewal.shed", "false"),
    ] {
        assert_eq!(value(key), expected, "{key}");
    }
    let number = |key: &str| value(key).parse::<f64>().unwrap();
    assert!(number("tidegate.ru_per_second.granted") >= 100.0, "{span:?}");
    assert!(number("tidegate.ru.granted") > 0.0, "{span:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_in_the_trace_of_who_called_and_is_recorded_as_that_says() {
    let collector = Collector::start(Manner::Takes).unwrap();
    // Nothing is recorded but for callers.
    let lab = lab(&collector, "0").await;
    for (name, by_rest) in [("one", false), ("two", true)] {
        create(&lab, &format!("un{name}"), UNSAMPLED, by_rest).await;
        create(&lab, &format!("lost-{name}"), "00-0-0-01", by_rest).await;
        create(&lab, name, CALLER, by_rest).await;
    }
    assert_eq!(sample(&lab, "tidegate_trace_contexts_malformed_total").await, 2);
    let spans = block_in_place(|| collector.until("two commits", |spans| spans.len() >= 2));
    assert_eq!(spans.len(), 2, "{spans:?}");
    for span in spans {
        let [_, trace, parent, _] = CALLER.split('-').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((span.trace.as_str(), span.parent.as_str()), (trace, parent));
        assert_eq!((span.name.as_str(), span.kind), ("store commit", 1));
        assert_eq!(span.attributes["db.system.name"], "redb");
        assert!(span.attributes["tidegate.store.rows"].parse::<u64>().unwrap() >= 2, "{span:?}");
    }
    // The collector has them before its answer is counted.
    counted(&lab, "exported", 2).await;
    let open_metrics = "text/plain\r\naccept: application/openmetrics-text";
    for (media, expected) in [("text/plain", false), (open_metrics, true)] {
        let (_, page) = lab.http_text("GET", "/metrics", media, b"").await;
        let exemplars = page.lines().filter(|line| {
            line.starts_with("tidegate_store_commit_seconds_bucket")
                && line.contains("4bf92f3577b34da6a3ce929d0e0e4736")
        });
        assert_eq!(exemplars.count() > 0, expected, "{media}: {page}");
    }
    lab.running.shutdown().await.unwrap();
    assert_eq!(collector.taken().len(), 2, "the commits of upkeep have no caller");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_commit_is_exported_at_a_clean_stop() {
    let collector = Collector::start(Manner::Takes).unwrap();
    let lab = lab(&collector, "1").await;
    lab.running.shutdown().await.unwrap();
    assert!(collector.taken().iter().any(|span| span.name == "store commit"), "{:?}", collector.taken());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_holds_up_no_renewal_and_no_stop() {
    let collector = Collector::start(Manner::Hangs).unwrap();
    let lab = lab(&collector, "1").await;
    lab.group("shop", "1000 RU/s").await;
    let mut node = Node::connect(&lab, "till", 1).await.unwrap();
    node.renew(vec![entry("shop", 100)], Vec::new()).await.unwrap();
    block_in_place(|| collector.asked(1));
    let answers = async {
        // More than the queue has room for.
        while sample(&lab, "tidegate_trace_spans_total{outcome=\"dropped\"}").await == 0 {
            for _ in 0..200 {
                node.renew(vec![entry("shop", 100)], Vec::new()).await.unwrap();
            }
        }
    };
    timeout(PATIENCE * 3, answers).await.expect("renewals go on");
    timeout(PATIENCE, lab.running.shutdown()).await.expect("a stop ends").unwrap();
    assert_eq!(collector.taken().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_come_late_and_not_twice_when_a_collector_comes_back() {
    let collector = Collector::start(Manner::Status(503, "retry-after: 1\r\n")).unwrap();
    let lab = lab(&collector, "0").await;
    create(&lab, "one", CALLER, false).await;
    block_in_place(|| collector.asked(1));
    collector.be(Manner::Takes);
    block_in_place(|| collector.until("the commit", |spans| !spans.is_empty()));
    collector.be(Manner::Status(400, ""));
    create(&lab, "two", CALLER, false).await;
    counted(&lab, "refused", 1).await;
    assert_eq!(collector.taken().len(), 1);
    assert_eq!(sample(&lab, "tidegate_trace_spans_total{outcome=\"exported\"}").await, 1);
}

#[tokio::test]
async fn a_file_of_headers_that_cannot_be_used_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start(Manner::Takes).unwrap();
    let mut config = traced(&folder, &collector, "1");
    config.traces.as_mut().unwrap().headers_file = Some(folder.path().join("absent"));
    let error = Controller::start(config).await.err().unwrap().to_string();
    assert!(error.starts_with("trace_headers_file: ") && error.contains("absent"), "{error}");
}
