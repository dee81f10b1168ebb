//! Alarms end to end: from what nodes say to what a receiver has, whatever the receiver does.

use std::fs::{Permissions, set_permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tidegate_controller::alarms::{Kind, Thresholds, Webhook, address, try_out};
use tidegate_controller::{Config, Controller};
use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1;
use tidegate_tls::Clients;
use tokio::time::{Instant, interval, timeout};

use crate::certificates::Site;
use crate::receiver::{Manner, Post, Receiver};
use crate::support::{Lab, Node, PATIENCE, config, entry, group};

const SECRET: &str = "a secret of tests, for no receiver\n";
/// Time between two renewals of a node.
const RENEWS_EVERY: Duration = Duration::from_millis(100);

fn webhook(folder: &TempDir, url: &str) -> Webhook {
    let secret_file = folder.path().join("secret");
    std::fs::write(&secret_file, SECRET).unwrap();
    set_permissions(&secret_file, Permissions::from_mode(0o600)).unwrap();
    Webhook {
        name: "ops".to_owned(),
        url: address(url, false).unwrap(),
        secret_file,
        authorities: None,
        kinds: Vec::new(),
        groups: Vec::new(),
    }
}

/// Settings whose alarms come soon and go to this receiver.
fn told(folder: &TempDir, receiver: &Receiver) -> Config {
    let mut config = config(folder);
    config.alarms.thresholds =
        Thresholds { throttled_for: Span::secs(1), resolved_after: Span::secs(1), quota_percent: 80 };
    config.alarms.webhooks = vec![webhook(folder, &format!("http://{}/hook?key=hidden", receiver.address))];
    config
}

async fn lab(folder: TempDir, config: Config) -> Lab {
    Lab { running: Controller::start(config).await.unwrap(), folder }
}

/// Whether the function of docs/alarms.md believes a delivery.
fn verifies(secret: &str, post: &Post, age: i64) -> bool {
    let document = include_str!("../../../docs/alarms.md");
    let code = document.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let call = "import sys, time\nbody = sys.stdin.buffer.read()\n\
                print(verify(sys.argv[1].encode(), sys.argv[2], body, int(time.time()) + int(sys.argv[3])))\n";
    let mut python = Command::new("python3")
        .args(["-c", &format!("{code}\n{call}"), secret, post.header("tidegate-signature"), &age.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(&post.body).unwrap();
    let said = python.wait_with_output().unwrap();
    match String::from_utf8_lossy(&said.stdout).trim() {
        "True" => true,
        "False" => false,
        other => panic!("{other:?}"),
    }
}

/// A group with operations that wait, and one whose operations are refused at once.
async fn renew(node: &mut Node, waiting: u64, refused: u64) {
    let entry = v1::RenewEntry {
        acked_seq: node.seq,
        backlog_micro_ru: i64::try_from(waiting).unwrap() * 1_000_000,
        waiting,
        ..entry("shop", 100)
    };
    let total = v1::Consumption { operations: 1, throttled: refused, ..v1::Consumption::default() };
    let report =
        v1::Report { group: "fast".to_owned(), incarnation: 1, total: Some(total), ..v1::Report::default() };
    node.renew(vec![entry], vec![report]).await.unwrap();
}

#[tokio::test]
async fn what_is_throttled_is_told_once_and_so_is_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(Manner::status(204)).await;
    let settings = told(&folder, &receiver);
    let lab = lab(folder, settings).await;
    lab.group("shop", "10").await;
    lab.group("fast", "10").await;
    let first = receiver.post().await;
    assert_eq!(first.json()["events"][0]["event"], "started");
    assert!(verifies(SECRET, &first, 0));
    assert!(!verifies("another secret of tests", &first, 0) && !verifies(SECRET, &first, 400));
    let mut changed = first.clone();
    *changed.body.last_mut().unwrap() = b' ';
    assert!(!verifies(SECRET, &changed, 0));
    assert!(first.head.starts_with("POST /hook?key=hidden HTTP/1.1\r\n"), "{}", first.head);
    assert_eq!(first.json()["delivery"], first.header("tidegate-delivery"));

    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let (mut again, mut refused, mut raised) = (interval(RENEWS_EVERY), 0, Vec::new());
    while raised.len() < 2 {
        tokio::select! {
            event = receiver.event() => raised.push(event),
            _ = again.tick() => {
                refused += 1;
                renew(&mut node, 7, refused).await;
            }
        }
    }
    raised.sort_by_key(|event| event["id"].to_string());
    let [fast, shop] = raised.as_slice() else { panic!() };
    for (event, id, group) in [(fast, "throttled/fast", "fast"), (shop, "throttled/shop", "shop")] {
        let shown = json!({"event": event["event"], "id": event["id"], "kind": event["kind"], "group": event["group"],
            "severity": event["severity"]});
        let expected =
            json!({"event": "raised", "id": id, "kind": "throttled", "group": group, "severity": "warning"});
        assert_eq!(shown, expected);
    }
    let values = &shop["values"];
    assert_eq!((&values["waiting_operations"], &values["backlog_ru"]), (&json!(7), &json!("7")), "{shop}");
    assert_eq!((&values["demand_ru_per_sec"], &values["reason"]), (&json!("100"), &json!("rate")), "{shop}");
    assert_eq!(fast["values"]["waiting_operations"], 0, "{fast}");
    let warnings = lab.running.service().status().warnings;
    assert!(
        warnings.iter().any(|line| line.starts_with("alarm throttled/shop: group shop: ")),
        "{warnings:?}"
    );
    let page = lab.http_text("GET", "/metrics", "", &[]).await.1;
    assert!(page.contains("tidegate_alarms_open{kind=\"throttled\"} 2\n"), "{page}");

    let mut resolved = Vec::new();
    while resolved.len() < 2 {
        tokio::select! {
            event = receiver.event() => resolved.push(event),
            _ = again.tick() => renew(&mut node, 0, refused).await,
        }
    }
    resolved.sort_by_key(|event| event["id"].to_string());
    for (before, after) in raised.iter().zip(&resolved) {
        assert_eq!(after["event"], "resolved");
        assert_eq!((&before["id"], &before["since_unix_ms"]), (&after["id"], &after["since_unix_ms"]));
    }
    assert!(receiver.heard_nothing());
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_delivery_is_tried_again_as_it_was_until_it_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let mut elsewhere = Receiver::start(Manner::status(200)).await;
    let mut receiver = Receiver::start(Manner::status(500)).await;
    let settings = told(&folder, &receiver);
    let lab = lab(folder, settings).await;
    let first = receiver.post().await;
    receiver.be(Manner::Gone);
    let second = receiver.post().await;
    let location = format!("location: http://{}/\r\n", elsewhere.address);
    receiver.be(Manner::Status(307, location));
    let third = receiver.post().await;
    receiver.be(Manner::status(200));
    for again in [second, third, receiver.post().await] {
        assert_eq!(again.body, first.body);
        assert_eq!(again.header("tidegate-delivery"), first.header("tidegate-delivery"));
        assert!(verifies(SECRET, &again, 0), "signed at its own time");
    }
    assert!(elsewhere.heard_nothing(), "redirects are not followed");
    lab.running.shutdown().await.unwrap();
}

/// Waits until the page of metrics has a line.
async fn metric(lab: &Lab, line: &str) {
    let mut again = interval(RENEWS_EVERY);
    let found = async {
        while !lab.http_text("GET", "/metrics", "", &[]).await.1.contains(line) {
            again.tick().await;
        }
    };
    timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{line}"));
}

#[tokio::test]
async fn what_a_receiver_refuses_is_given_up_and_the_next_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(Manner::status(422)).await;
    let mut settings = told(&folder, &receiver);
    settings.capacity = Some(Rate::whole(10));
    let lab = lab(folder, settings).await;
    let first = receiver.post().await;
    metric(&lab, "tidegate_webhook_deliveries_total{webhook=\"ops\",outcome=\"refused\"} 1\n").await;
    let host = "webhook ops: it answers 422 Unprocessable Entity; 0 messages wait".to_owned();
    let warnings = lab.running.service().status().warnings;
    assert!(warnings.contains(&host), "{warnings:?}");
    receiver.be(Manner::Endless);
    lab.group("a", "7").await;
    lab.group("b", "4").await;
    let second = receiver.post().await;
    assert_ne!(first.header("tidegate-delivery"), second.header("tidegate-delivery"));
    let event = &second.json()["events"][0];
    assert_eq!((&event["id"], &event["group"]), (&json!("capacity_oversubscribed"), &json!(null)));
    let values = json!({"guaranteed_ru_per_sec": "11", "limit_ru_per_sec": "10"});
    assert_eq!(event["values"], values);
    // A body without an end is not read, and the webhook fails no more.
    metric(&lab, "tidegate_webhook_deliveries_total{webhook=\"ops\",outcome=\"delivered\"} 1\n").await;
    metric(&lab, "tidegate_webhook_queued{webhook=\"ops\"} 0\n").await;
    receiver.be(Manner::status(200));
    lab.delete("b").await;
    assert_eq!(receiver.said().await, "resolved capacity_oversubscribed");
    let warnings = lab.running.service().status().warnings;
    assert!(!warnings.iter().any(|line| line.contains("webhook")), "{warnings:?}");
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_receiver_that_says_nothing_holds_up_neither_grants_nor_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(Manner::Silent).await;
    let settings = told(&folder, &receiver);
    let lab = lab(folder, settings).await;
    lab.group("shop", "10").await;
    receiver.post().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    for _ in 0..50 {
        renew(&mut node, 7, 0).await;
    }
    drop(node);
    let begin = Instant::now();
    timeout(PATIENCE, lab.running.shutdown()).await.expect("a stop in time").unwrap();
    // One try alone would take 10 s.
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
    // It was tried once more.
    receiver.post().await;
}

#[tokio::test]
async fn after_a_crash_alarms_that_hold_are_raised_again_under_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(Manner::status(200)).await;
    let mut settings = told(&folder, &receiver);
    settings.capacity = Some(Rate::whole(10));
    let first = lab(folder, settings.clone()).await;
    first.group("a", "7").await;
    first.group("b", "4").await;
    assert_eq!(receiver.said().await, "started");
    assert_eq!(receiver.said().await, "raised capacity_oversubscribed");
    first.running.abort().await;
    let second = lab(first.folder, settings).await;
    assert_eq!(receiver.said().await, "started");
    assert_eq!(receiver.said().await, "raised recovery");
    assert_eq!(receiver.said().await, "raised capacity_oversubscribed");
    assert_eq!(receiver.said().await, "resolved recovery");
    // Until its answer is read, a delivery is one that a stop repeats.
    metric(&second, "tidegate_webhook_queued{webhook=\"ops\"} 0\n").await;
    second.running.shutdown().await.unwrap();
    assert!(receiver.heard_nothing(), "a stop resolves nothing");
}

#[tokio::test]
async fn a_quota_is_told_at_both_levels_and_to_those_who_want_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(Manner::status(200)).await;
    let mut other = Receiver::start(Manner::status(200)).await;
    let mut settings = told(&folder, &receiver);
    let mut spent = webhook(&folder, &format!("http://{}/", other.address));
    (spent.name, spent.kinds, spent.groups) =
        ("spent".to_owned(), vec![Kind::QuotaSpent], vec!["shop".to_owned()]);
    settings.alarms.webhooks.push(spent);
    let lab = lab(folder, settings).await;
    for name in ["shop", "reports"] {
        let limited = v1::Group { quota: "50 per month".to_owned(), ..group(name, "100") };
        let request = v1::CreateGroupRequest { group: Some(limited), if_not_exists: false };
        lab.admin().await.create_group(request).await.unwrap();
    }
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let (mut again, mut said) = (interval(RENEWS_EVERY), Vec::new());
    let mut spendings = [None, None];
    while said.len() < 5 {
        tokio::select! {
            event = receiver.said() => said.push(event),
            _ = again.tick() => {
                let entries = ["shop", "reports"].into_iter().zip(&spendings).map(|(group, spending)| v1::RenewEntry {
                    acked_seq: node.seq,
                    spending: *spending,
                    backlog_micro_ru: 90_000_000,
                    ..entry(group, 100)
                });
                let granted = node.renew(entries.collect(), Vec::new()).await.unwrap();
                // All that may be used is.
                for (spending, entry) in spendings.iter_mut().zip(&granted.entries) {
                    if let Some(share) = &entry.allowance {
                        *spending = Some(v1::Spending {
                            window: share.window,
                            used_micro_ru: share.ceiling_micro_ru,
                            ceiling_micro_ru: share.ceiling_micro_ru,
                            running_micro_ru: 0,
                        });
                    }
                }
            }
        }
        said.retain(|event| !event.contains("throttled"));
    }
    said.sort();
    let levels = ["quota_high/reports", "quota_high/shop", "quota_spent/reports", "quota_spent/shop"];
    let expected: Vec<String> = levels.iter().map(|level| format!("raised {level}")).collect();
    assert_eq!(said[..4], expected);
    assert_eq!(other.said().await, "started");
    let event = other.event().await;
    assert_eq!((&event["id"], &event["severity"]), (&json!("quota_spent/shop"), &json!("critical")));
    assert_eq!(event["values"]["amount_ru"], "50");
    let used: f64 = event["values"]["used_ru"].as_str().unwrap().parse().unwrap();
    assert!((49.5..=50.0).contains(&used), "{event}");
    assert!(other.heard_nothing());
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_a_crash_may_have_lost_of_a_quota_is_told_as_used() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(Manner::status(200)).await;
    let mut settings = told(&folder, &receiver);
    settings.alarms.thresholds.quota_percent = 40;
    let first = lab(folder, settings.clone()).await;
    let limited = v1::Group { quota: "50 per month".to_owned(), ..group("shop", "100") };
    let request = v1::CreateGroupRequest { group: Some(limited), if_not_exists: false };
    first.admin().await.create_group(request).await.unwrap();
    let mut node = Node::connect(&first, "node", 1).await.unwrap();
    // Once there is a share, half of the quota is marked on disk as what may be used.
    let mut again = interval(RENEWS_EVERY);
    loop {
        let wanted = v1::RenewEntry { acked_seq: node.seq, backlog_micro_ru: 1_000_000, ..entry("shop", 1) };
        let granted = node.renew(vec![wanted], Vec::new()).await.unwrap();
        if granted.entries[0].allowance.as_ref().is_some_and(|share| share.ceiling_micro_ru > 0) {
            break;
        }
        again.tick().await;
    }
    assert_eq!(receiver.said().await, "started");
    first.running.abort().await;
    let second = lab(first.folder, settings).await;
    assert_eq!(receiver.said().await, "started");
    // With the recovery, and not after it. The node never said that it used any.
    let mut raised = [receiver.event().await, receiver.event().await];
    raised.sort_by_key(|event| event["id"].to_string());
    let said = raised.each_ref().map(|event| (&event["event"], &event["id"]));
    let (quota, recovery) = (json!("quota_high/shop"), json!("recovery"));
    assert_eq!(said, [(&json!("raised"), &quota), (&json!("raised"), &recovery)]);
    let values = &raised[0]["values"];
    assert_eq!((&values["used_ru"], &values["amount_ru"]), (&json!("25"), &json!("50")), "{values}");
    second.running.shutdown().await.unwrap();
}

/// What the status says of the webhook of a controller, once it says anything.
async fn fault(lab: &Lab) -> String {
    let mut again = interval(RENEWS_EVERY);
    let found = async {
        loop {
            let warnings = lab.running.service().status().warnings;
            if let Some(line) = warnings.into_iter().find(|line| line.starts_with("webhook ops: ")) {
                return line;
            }
            again.tick().await;
        }
    };
    timeout(PATIENCE, found).await.unwrap()
}

#[tokio::test]
async fn a_receiver_under_tls_is_believed_by_the_authority_that_is_named() {
    let site = Site::new();
    // Any server will do that speaks HTTP under TLS: a controller has no such path.
    let server = site.start(Clients::Anonymous).await;
    let faults = [(Some(site.path("ca.pem")), "it answers 40"), (None, "ca in [[webhook]]")];
    for (authorities, said) in faults {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = config(&folder);
        let url = format!("https://localhost:{}/hook/hidden", server.rest_addr.port());
        let authorities: Option<PathBuf> = authorities.or_else(|| {
            site.authority("strange");
            Some(site.path("strange.pem"))
        });
        settings.alarms.webhooks = vec![Webhook { authorities, ..webhook(&folder, &url) }];
        let lab = lab(folder, settings).await;
        let fault = fault(&lab).await;
        assert!(fault.contains(said) && !fault.contains("hidden"), "{fault}");
        lab.running.shutdown().await.unwrap();
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_secret_that_others_can_read_starts_no_controller_and_a_new_one_counts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(Manner::status(503)).await;
    let settings = told(&folder, &receiver);
    let secret = settings.alarms.webhooks[0].secret_file.clone();
    set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
    let refused = Controller::start(settings.clone()).await.err().unwrap().to_string();
    assert!(refused.starts_with("webhook ops: secret_file: ") && refused.contains("chmod 600"), "{refused}");
    set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let lab = lab(folder, settings).await;
    assert!(verifies(SECRET, &receiver.post().await, 0));
    std::fs::write(&secret, "another secret of tests").unwrap();
    receiver.be(Manner::status(200));
    let post = receiver.post().await;
    assert!(verifies("another secret of tests", &post, 0) && !verifies(SECRET, &post, 0));
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_webhook_is_tried_out_by_one_message_without_a_controller() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(Manner::status(204)).await;
    let webhook = webhook(&folder, &format!("http://{}/hook?key=hidden", receiver.address));
    assert_eq!(try_out(&webhook).await, Ok(()));
    let post = receiver.post().await;
    assert!(verifies(SECRET, &post, 0) && post.head.starts_with("POST /hook?key=hidden HTTP/1.1\r\n"));
    let (sent, id) = (post.json(), post.header("tidegate-delivery").to_owned());
    assert_eq!(
        (&sent["version"], &sent["delivery"], &sent["events"][0]["event"]),
        (&json!(1), &json!(id), &json!("test"))
    );
    assert_eq!(sent["events"].as_array().unwrap().len(), 1);
    for (manner, says) in [
        (Manner::status(503), "503"),
        (Manner::status(422), "422"),
        (Manner::Status(302, "location: http://localhost/\r\n".to_owned()), "redirects are not followed"),
        (Manner::Gone, ""),
    ] {
        receiver.be(manner);
        let refused = try_out(&webhook).await.unwrap_err();
        assert!(refused.contains(says) && !refused.contains("hidden"), "{says}: {refused}");
        // Once.
        receiver.post().await;
    }
    std::fs::write(&webhook.secret_file, "short").unwrap();
    let refused = try_out(&webhook).await.unwrap_err();
    assert!(refused.starts_with("secret_file: "), "{refused}");
}
