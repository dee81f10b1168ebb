//! What a receiver is sent: JSON, and its signature; docs/alarms.md describes both.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tidegate_console::why::Why;
use tidegate_core::quota::Unit;

use super::book::Event;
use super::kind::{Facts, Kind};
use crate::quantity::{amount_text, rate_text};

/// The version of the shape: it grows when a field changes its meaning or goes.
const VERSION: u32 = 1;

/// The message that all alarms from before are void, and those that hold follow.
pub(super) fn started(unix_ms: u64) -> Value {
    json!({"event": "started", "at_unix_ms": unix_ms})
}

/// The message of a test of a webhook.
pub(super) fn test(unix_ms: u64, webhook: &str) -> Value {
    json!({"event": "test", "at_unix_ms": unix_ms, "text": format!("a test of the webhook {webhook}: nothing happened")})
}

/// The message of what happened to an alarm, with the reason why operations wait where there is one.
pub(super) fn changed(event: &Event, why: Option<&Why>) -> Value {
    let key = &event.key;
    let mut values = values(&event.facts);
    if let (Some(values), Some(why)) = (values.as_object_mut(), why) {
        values.insert("reason".to_owned(), word(why).into());
        values.insert("reason_text".to_owned(), why.to_string().into());
    }
    json!({
        "event": event.change.as_str(),
        "id": key.id(),
        "kind": key.kind.as_str(),
        "severity": key.kind.severity(),
        "group": (!key.group.is_empty()).then_some(&key.group),
        "since_unix_ms": event.since_unix_ms,
        "at_unix_ms": event.unix_ms,
        "text": text(key.kind, &key.group, &event.facts),
        "values": values,
    })
}

/// The body of a delivery.
pub(super) fn body(delivery: &str, controller: &Value, events: Vec<Value>) -> Vec<u8> {
    let body = json!({"version": VERSION, "delivery": delivery, "controller": controller, "events": events});
    body.to_string().into_bytes()
}

/// The header that proves who sent a body, and when.
pub(super) fn signature(secret: &[u8], unix_s: u64, body: &[u8]) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    mac.update(unix_s.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("t={unix_s},v1={hex}"))
}

/// A line for people.
pub(super) fn text(kind: Kind, group: &str, facts: &Facts) -> String {
    match facts {
        Facts::Waiting { waiting, .. } => {
            format!("group {group}: operations wait or are refused ({waiting} wait)")
        }
        Facts::Quota { unit, amount, used, resets_in, rolls } => {
            let more = if *rolls { "some of it returns" } else { "the next window begins" };
            let word = if kind == Kind::QuotaSpent { "is used up" } else { "is nearly used up" };
            let (used, amount, unit) = (used.number(), amount.number(), unit.as_str());
            format!("group {group}: its quota {word} ({used} of {amount} {unit}; {more} in {resets_in})")
        }
        Facts::Recovery { left } => format!("the controller recovers from an unclean stop for up to {left}"),
        Facts::Guarantees { sum, limit } if group.is_empty() => {
            format!("the rates of the top groups add up to {sum}, above the server's capacity of {limit}")
        }
        Facts::Guarantees { sum, limit } => {
            format!("the rates of the groups below {group} add up to {sum}, above its limit of {limit}")
        }
        Facts::More { left_out } => {
            format!("{left_out} more alarms hold than can be open; look at the console")
        }
    }
}

fn values(facts: &Facts) -> Value {
    match facts {
        Facts::Waiting { waiting, backlog, debt, refused, demand, leased } => json!({
            "waiting_operations": waiting,
            "backlog_ru": amount_text(*backlog),
            "debt_ru": amount_text(*debt),
            "refused_operations": u64::try_from(*refused).unwrap_or(u64::MAX),
            "demand_ru_per_sec": rate_text(*demand),
            "leased_ru_per_sec": rate_text(*leased),
        }),
        Facts::Quota { unit: Unit::Ru, amount, used, resets_in, .. } => json!({
            "amount_ru": amount_text(*amount),
            "used_ru": amount_text(*used),
            "resets_in_us": resets_in.0,
        }),
        Facts::Quota { unit: Unit::Requests, amount, used, resets_in, .. } => json!({
            "amount_requests": amount_text(*amount),
            "used_requests": amount_text(*used),
            "resets_in_us": resets_in.0,
        }),
        Facts::Recovery { left } => json!({"left_us": left.0}),
        Facts::Guarantees { sum, limit } => {
            json!({"guaranteed_ru_per_sec": rate_text(*sum), "limit_ru_per_sec": rate_text(*limit)})
        }
        Facts::More { left_out } => json!({"left_out_alarms": left_out}),
    }
}

fn word(why: &Why) -> &'static str {
    match why {
        Why::Recovering => "recovering",
        Why::Quota(_) => "quota",
        Why::Debt => "debt",
        Why::WarmingUp(_) => "warming_up",
        Why::Rate => "rate",
        Why::Above(_) => "parent",
        Why::NoLease => "no_lease",
        Why::Renewing => "renewing",
    }
}

#[cfg(test)]
mod tests;
