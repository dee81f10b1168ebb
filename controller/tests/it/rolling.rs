//! Quotas with a window that rolls over the wire: what nodes of every build are told, and what operators read.

use serde_json::json;
use tidegate_console::quantity::percent;
use tidegate_proto::v1;

use super::console::Browser;
use crate::support::{Lab, Node, entry, group, report};

fn quota(text: &str) -> v1::Group {
    v1::Group { quota: text.to_owned(), ..group("shop", "100") }
}

/// A renewal of a node that knows of windows that roll, or of a build that does not.
async fn renews(node: &mut Node, entry: v1::RenewEntry, counts_rolling: bool) -> v1::GrantEntry {
    let renew =
        v1::Renew { entries: vec![entry], counts_requests: true, counts_rolling, ..v1::Renew::default() };
    node.renew_as(renew).await.unwrap().entries.remove(0)
}

/// With some operations that wait.
fn waits(node: &Node) -> v1::RenewEntry {
    let backlog = v1::RenewEntry { backlog_micro_ru: 9_000_000, waiting: 9, ..entry("shop", 9) };
    v1::RenewEntry { acked_seq: node.seq, largest_micro_ru: 1_000_000, ..backlog }
}

async fn create(lab: &Lab, text: &str) {
    let create = v1::CreateGroupRequest { group: Some(quota(text)), if_not_exists: false };
    lab.admin().await.create_group(create).await.unwrap();
}

/// The first commit makes shares possible.
async fn share(node: &mut Node) -> v1::Allowance {
    loop {
        let asked = waits(node);
        let share = *renews(node, asked, true).await.allowance.unwrap();
        if share.ceiling_micro_ru > 0 {
            return share;
        }
    }
}

#[tokio::test]
async fn a_node_that_knows_no_window_that_rolls_gets_nothing_and_reads_why() {
    let lab = Lab::start().await;
    for text in ["50 per rolling day", "50 requests per rolling day"] {
        if text.contains("requests") {
            let body = json!({"quota": text}).to_string();
            assert_eq!(lab.http("PATCH", "/v1/groups/shop", Some(&body)).await.0, 200);
        } else {
            create(&lab, text).await;
        }
        let mut old = Node::connect(&lab, "old", 1).await.unwrap();
        let asked = waits(&old);
        let answer = renews(&mut old, asked, false).await;
        assert_eq!(answer.status(), v1::GrantStatus::Refused, "{answer:?}");
        assert_eq!((answer.rate, answer.cap_micro_ru, answer.fill_micro_ru), (0, 0, 0));
        assert!(answer.allowance.is_none() && answer.requests.is_none(), "{answer:?}");
        for word in ["shop", "rolling window", "node old", "upgrade"] {
            assert!(answer.message.contains(word), "{word}: {}", answer.message);
        }
    }
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    assert!(page.contains("tidegate_refused_total{reason=\"counts_no_rolling\"} 2\n"), "{page}");
    // Fixed windows are for both.
    let (status, altered) = lab.http("PATCH", "/v1/groups/shop", Some(r#"{"quota": "50 per day"}"#)).await;
    assert!(status < 300, "{status}: {altered}");
    let mut old = Node::connect(&lab, "old", 2).await.unwrap();
    let asked = waits(&old);
    let answer = renews(&mut old, asked, false).await;
    assert!(answer.allowance.is_some_and(|share| !share.rolls));
}

#[tokio::test]
async fn operators_read_that_it_rolls_and_what_is_used_is_kept_over_a_restart() {
    let lab = Lab::start().await;
    create(&lab, "1000 RU per rolling hour").await;
    let (_, shown) = lab.http("GET", "/v1/groups/shop", None).await;
    assert!(shown.to_string().contains("1000 per rolling hour"), "{shown}");
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let given = share(&mut node).await;
    assert!(given.rolls && given.window_us == 3_600_000_000, "{given:?}");
    let used = v1::Spending {
        window: given.window,
        used_micro_ru: 9_000_000,
        ceiling_micro_ru: given.ceiling_micro_ru,
        running_micro_ru: 2_000_000,
    };
    let asked = v1::RenewEntry { spending: Some(used), ..waits(&node) };
    renews(&mut node, asked, true).await;
    let of = |leases: serde_json::Value| {
        let row = leases["groups"].as_array().unwrap().iter().find(|row| row["group"] == "shop").unwrap();
        row["quota"].clone()
    };
    let quota = of(lab.http("GET", "/v1/leases", None).await.1);
    assert_eq!([&quota["used"], &quota["left"], &quota["rolls"]], [&json!("9"), &json!("991"), &json!(true)]);
    let returns = quota["resets_in_us"].as_u64().unwrap();
    assert!((3_540_000_000..=3_660_000_000).contains(&returns), "{quota}");
    drop(node);
    let lab = lab.restart().await;
    let quota = of(lab.http("GET", "/v1/leases", None).await.1);
    let ru = |field: &str| quota[field].as_str().unwrap().parse::<f64>().unwrap();
    assert!(ru("used") + ru("lost") >= 9.0 && ru("left") <= 991.0, "{quota}");
    let mut node = Node::connect(&lab, "other", 1).await.unwrap();
    let again = share(&mut node).await;
    assert_eq!((again.window, again.rolls), (given.window, true));
    assert!(again.left_micro_ru <= 991_000_000, "{again:?}");
}

#[tokio::test]
async fn what_is_wrong_names_the_remedy() {
    let lab = Lab::start().await;
    create(&lab, "1000 per rolling hour").await;
    for (text, words) in [
        ("5 per rolling week", ["rolling", "month"]),
        ("5 per rolling day Europe/Berlin", ["Europe/Berlin", "leave it out"]),
    ] {
        let body = json!({"quota": text}).to_string();
        let (status, answer) = lab.http("PATCH", "/v1/groups/shop", Some(&body)).await;
        let known = words.iter().skip(1).all(|word| answer.to_string().contains(word));
        assert!(status == 400 && known, "{text}: {status} {answer}");
    }
}

#[tokio::test]
async fn a_what_if_replays_it_in_force_and_proposed_on_every_surface() {
    let lab = Lab::start().await;
    let shop = v1::Group { quota: "150 requests per rolling hour".into(), ..group("shop", "1000") };
    let create = v1::CreateGroupRequest { group: Some(shop), if_not_exists: false };
    lab.admin().await.create_group(create).await.unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("shop", 1, 600)]).await;
    let throttled = |outcome: &Option<v1::WhatIfOutcome>| {
        let outcome = outcome.clone().unwrap();
        let ppm = [outcome.even, outcome.at_once].map(|figures| figures.unwrap().throttled_ppm);
        (outcome.quota, ppm)
    };
    for (proposed, ppm) in [("330 per rolling hour", 450_000), ("420 requests per rolling day", 300_000)] {
        let wish = v1::WhatIfRequest {
            group: "shop".into(),
            quota: proposed.into(),
            ..v1::WhatIfRequest::default()
        };
        let reply = lab.admin().await.what_if(wish).await.unwrap().into_inner();
        let in_force = "150 requests per rolling hour".to_owned();
        assert_eq!(throttled(&reply.current), (in_force, [750_000; 2]));
        assert_eq!(throttled(&reply.proposed), (proposed.to_owned(), [ppm; 2]));
        let path = format!("/v1/groups/shop/what-if?quota={}", proposed.replace(' ', "%20"));
        let (status, body) = lab.http("GET", &path, None).await;
        assert_eq!((status, body), (200, serde_json::to_value(&reply).unwrap()));
    }
    let revision = lab.running.service().definitions().group("shop").unwrap().group.revision.to_string();
    let mut browser = Browser::at(&lab.running);
    browser.get("/console/groups/shop/edit").await;
    let fields = [("name", "shop"), ("expected_revision", &revision), ("quota", "330 per rolling hour")];
    let page = browser.post("/console/what-if", &fields).await;
    let said = format!("throttled <b>{}</b> of the RU", percent(450_000));
    assert!(page.status == 200 && page.text.contains("330 per rolling hour"), "{page:?}");
    assert!(page.text.contains(&said), "{said}: {page:?}");
    lab.running.shutdown().await.unwrap();
}
