//! What people read of alarms.

use tidegate_core::units::{Rate, Ru, Span};

use super::*;
use crate::alarms::{Change, Key};

fn quota(rolls: bool) -> Facts {
    let (amount, used, resets_in) = (Ru::whole(50), Ru::whole(45), Span::secs(9));
    Facts::Quota { unit: Unit::Ru, amount, used, resets_in, rolls }
}

#[test]
fn each_line_says_what_it_is_about() {
    let guarantees = Facts::Guarantees { sum: Rate::whole(11), limit: Rate::whole(10) };
    let table = [
        (Kind::QuotaHigh, "a", quota(false), "is nearly used up", "the next window begins in"),
        (Kind::QuotaSpent, "a", quota(true), "is used up", "some of it returns in"),
        (Kind::CapacityOversubscribed, "", guarantees.clone(), "of the top groups", "the server's capacity"),
        (Kind::CapacityOversubscribed, "a", guarantees, "of the groups below a ", "its limit"),
    ];
    for (kind, group, facts, first, second) in table {
        let line = text(kind, group, &facts);
        assert!(line.contains(first) && line.contains(second), "{line}");
    }
}

#[test]
fn a_reason_is_a_word_and_a_text_where_there_is_one() {
    let event = Event {
        change: Change::Raised,
        key: Key { kind: Kind::QuotaHigh, group: "a".to_owned() },
        facts: quota(false),
        since_unix_ms: 1,
        unix_ms: 2,
    };
    let values = &changed(&event, Some(&Why::Rate))["values"];
    assert_eq!((&values["reason"], &values["reason_text"]), (&json!("rate"), &json!(Why::Rate.to_string())));
    assert_eq!(changed(&event, None)["values"].get("reason"), None);
}

#[test]
fn a_quota_of_requests_and_alarms_that_are_left_out_have_values_of_their_own() {
    let told = |kind, group: &str, facts| {
        let key = Key { kind, group: group.to_owned() };
        changed(&Event { change: Change::Raised, key, facts, since_unix_ms: 1, unix_ms: 2 }, None)
    };
    let (amount, used, resets_in) = (Ru::whole(100), Ru::whole(99), Span::secs(9));
    let requests = Facts::Quota { unit: Unit::Requests, amount, used, resets_in, rolls: false };
    let event = told(Kind::QuotaHigh, "a", requests);
    let values = json!({"amount_requests": "100", "used_requests": "99", "resets_in_us": 9_000_000});
    assert_eq!((&event["values"], &event["group"]), (&values, &json!("a")));
    assert!(event["text"].as_str().unwrap().contains("99 of 100 requests"), "{event}");
    let event = told(Kind::QuotaHigh, "a", quota(false));
    assert_eq!(event["values"], json!({"amount_ru": "50", "used_ru": "45", "resets_in_us": 9_000_000}));
    let event = told(Kind::More, "", Facts::More { left_out: 7 });
    assert_eq!((&event["values"], &event["group"]), (&json!({"left_out_alarms": 7}), &Value::Null));
    assert_eq!((&event["id"], &event["severity"]), (&json!("more"), &json!("warning")));
    assert!(event["text"].as_str().unwrap().starts_with("7 more alarms hold"), "{event}");
}

/// As docs/alarms.md lists them: receivers tell reasons apart by these.
#[test]
fn each_reason_has_the_word_that_receivers_know() {
    let text = String::new;
    for (why, said) in [
        (Why::Recovering, "recovering"),
        (Why::Quota(text()), "quota"),
        (Why::Debt, "debt"),
        (Why::WarmingUp(text()), "warming_up"),
        (Why::Rate, "rate"),
        (Why::Above(text()), "parent"),
        (Why::NoLease, "no_lease"),
        (Why::Renewing, "renewing"),
    ] {
        assert_eq!(word(&why), said);
    }
}
