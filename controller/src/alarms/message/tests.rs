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
