//! Quotas of requests over the wire: what nodes of every build are told, and what operators read.

use serde_json::json;
use tidegate_proto::v1;

use crate::support::{Lab, Node, entry, group};

fn quota(text: &str) -> v1::Group {
    v1::Group { quota: text.to_owned(), ..group("shop", "100") }
}

/// A renewal of a node that counts requests, or of a build that does not.
async fn renews(node: &mut Node, entry: v1::RenewEntry, counts_requests: bool) -> v1::GrantEntry {
    let renew = v1::Renew { entries: vec![entry], counts_requests, ..v1::Renew::default() };
    node.renew_as(renew).await.unwrap().entries.remove(0)
}

/// With some operations that wait.
fn waits(node: &Node) -> v1::RenewEntry {
    let backlog = v1::RenewEntry { backlog_micro_ru: 9_000_000, waiting: 9, ..entry("shop", 9) };
    v1::RenewEntry { acked_seq: node.seq, ..backlog }
}

#[tokio::test]
async fn a_node_that_cannot_count_requests_gets_nothing_and_reads_why() {
    let lab = Lab::start().await;
    let create = |group| v1::CreateGroupRequest { group: Some(group), if_not_exists: false };
    lab.admin().await.create_group(create(quota("5 requests per day"))).await.unwrap();
    let below = v1::Group { name: "below".into(), parent: "shop".into(), ..group("below", "10") };
    lab.admin().await.create_group(create(below)).await.unwrap();
    let mut old = Node::connect(&lab, "old", 1).await.unwrap();
    for group in ["shop", "below"] {
        let asked = v1::RenewEntry { group: group.to_owned(), ..waits(&old) };
        let answer = renews(&mut old, asked, false).await;
        assert_eq!(answer.status(), v1::GrantStatus::Refused, "{answer:?}");
        assert_eq!((answer.rate, answer.cap_micro_ru, answer.fill_micro_ru), (0, 0, 0));
        assert!(answer.allowance.is_none() && answer.requests.is_none(), "{answer:?}");
        for word in [group, "quota of requests", "node old", "upgrade"] {
            assert!(answer.message.contains(word), "{word}: {}", answer.message);
        }
    }
    let mut new = Node::connect(&lab, "new", 1).await.unwrap();
    let mut share = v1::RequestAllowance::default();
    // The first commit of the window makes shares possible.
    while share.ceiling == 0 {
        let asked = waits(&new);
        let answer = renews(&mut new, asked, true).await;
        assert_eq!(answer.status(), v1::GrantStatus::Leased, "{answer:?}");
        // A node that knows of RU alone would count these as RU.
        assert!(answer.allowance.is_none(), "{answer:?}");
        share = *answer.requests.unwrap();
    }
    assert!((1..=5).contains(&share.ceiling), "{share:?}");
    assert_eq!((share.amount, share.left), (5, 5));
    // A quota of RU is for both.
    let alter = v1::AlterGroupRequest {
        group: Some(quota("50 per day")),
        update_mask: vec!["quota".into()],
        ..v1::AlterGroupRequest::default()
    };
    lab.admin().await.alter_group(alter).await.unwrap();
    let asked = waits(&old);
    let answer = renews(&mut old, asked, false).await;
    assert!(answer.allowance.is_some() && answer.requests.is_none(), "{answer:?}");
}

#[tokio::test]
async fn operators_read_what_is_counted_and_how_much_is_left() {
    let lab = Lab::start().await;
    let body = r#"{"name": "shop", "ru_per_sec": "100", "quota": "50 requests per month europe/berlin"}"#;
    let (status, created) = lab.http("POST", "/v1/groups", Some(body)).await;
    assert!(status < 300, "{status}: {created}");
    let (_, shown) = lab.http("GET", "/v1/groups/shop", None).await;
    assert!(shown.to_string().contains("50 requests per month Europe/Berlin"), "{shown}");
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let asked = waits(&node);
    let share = renews(&mut node, asked, true).await.requests.unwrap();
    let used = v1::RequestSpending { window: share.window, used: 1, ceiling: share.ceiling, offered_rate: 0 };
    let asked = v1::RenewEntry { requests: Some(used), ..waits(&node) };
    renews(&mut node, asked, true).await;
    let (_, leases) = lab.http("GET", "/v1/leases", None).await;
    let row = leases["groups"].as_array().unwrap().iter().find(|row| row["group"] == "shop").unwrap();
    let quota = &row["quota"];
    assert_eq!(
        [&quota["unit"], &quota["amount"], &quota["used"], &quota["left"]],
        [&json!("requests"), &json!("50"), &json!("1"), &json!("49")],
        "{quota}"
    );
    // It is out of range, which names field, value and range, and gives nothing.
    let beyond = v1::RequestSpending { window: share.window, used: u64::MAX, ceiling: 1, offered_rate: 0 };
    let asked = v1::RenewEntry { requests: Some(beyond), ..waits(&node) };
    let answer = renews(&mut node, asked, true).await;
    assert_eq!(answer.status(), v1::GrantStatus::Refused);
    assert!(answer.message.contains("requests.used: 18446744073709551615"), "{}", answer.message);
}

#[tokio::test]
async fn a_changed_unit_begins_again_and_what_is_used_is_kept_over_a_restart() {
    let lab = Lab::start().await;
    let create =
        v1::CreateGroupRequest { group: Some(quota("1000 requests per month")), if_not_exists: false };
    lab.admin().await.create_group(create).await.unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let mut share = v1::RequestAllowance::default();
    // The first commit of the window makes shares possible.
    while share.ceiling == 0 {
        let asked = waits(&node);
        share = *renews(&mut node, asked, true).await.requests.unwrap();
    }
    let used = v1::RequestSpending { window: share.window, used: 9, ceiling: share.ceiling, offered_rate: 0 };
    let asked = v1::RenewEntry { requests: Some(used), ..waits(&node) };
    renews(&mut node, asked, true).await;
    drop(node);
    let lab = lab.restart().await;
    let mut node = Node::connect(&lab, "other", 1).await.unwrap();
    let asked = waits(&node);
    let share = renews(&mut node, asked, true).await.requests.unwrap();
    assert_eq!(share.amount, 1_000);
    assert!(share.left <= 991, "{share:?}");
    let (status, altered) =
        lab.http("PATCH", "/v1/groups/shop", Some(r#"{"quota": "1000 per month"}"#)).await;
    assert!(status < 300, "{status}: {altered}");
    let asked = waits(&node);
    let ru = renews(&mut node, asked, true).await.allowance.unwrap();
    assert_ne!(ru.window, share.window);
    assert_eq!((ru.amount_micro_ru, ru.left_micro_ru), (1_000_000_000, 1_000_000_000));
}
