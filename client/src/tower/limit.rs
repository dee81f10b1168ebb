//! The fields `RateLimit-Policy` and `RateLimit`: what a caller may use of its group's quota, and until when.
//!
//! By draft-ietf-httpapi-ratelimit-headers-11: each is a List of structured fields (RFC 9651) with one String, the name
//! of the group, and parameters. `q` is the quota, `qu` its unit, `w` the length of the window, `r` what is left and `t`
//! the time to the next window. Amounts are whole RU or requests, rounded down; times are seconds, rounded up, so that who
//! comes back after `t` is not early. Where the window rolls, `t` is the time until something returns to it.
//!
//! What differs: the draft's registry has requests, its unit where `qu` is absent, and no request units, so `qu` says
//! "request-units" all the same. A group with a rate alone has no fields: a node is leased a part of the rate, which
//! changes by the second, and does not know the rate itself, so that any `q` and `r` would be made up.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_core::node::QuotaLeft;
use tidegate_core::quota::Unit;
use tidegate_core::units::{MICRO, Ru, Span};

use super::reply::whole;
use crate::names::GroupName;

/// The quota of the group that pays: `"shop";q=1000;qu="request-units";w=60`.
pub const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// What is left of it, and the time to the next window: `"shop";r=250;t=17`.
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Adds both fields, beside those that the service itself may have written: they are lists.
///
/// A pause that ends before the window does is for another reason than the quota. The draft wants no `t` beyond it, so
/// there is none.
pub(super) fn write(
    headers: &mut HeaderMap,
    group: &GroupName,
    quota: &QuotaLeft,
    retry_after: Option<Duration>,
) {
    let QuotaLeft { unit, amount, left, resets_in, length, rolls } = *quota;
    let (amount, left, resets_in) = (whole_units(amount), whole_units(left), seconds(resets_in));
    let unit = match unit {
        Unit::Ru => "request-units",
        Unit::Requests => "requests",
    };
    let mut policy = format!("\"{group}\";q={amount};qu=\"{unit}\"");
    if length > Span(0) {
        policy.push_str(&format!(";w={}", seconds(length)));
    }
    let mut limit = format!("\"{group}\";r={left}");
    // Something has returned to a window that rolls, and how much was not said yet.
    let is_over = rolls && resets_in == 0;
    if !is_over && retry_after.is_none_or(|pause| resets_in <= whole(pause, NS)) {
        limit.push_str(&format!(";t={resets_in}"));
    }
    for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, limit)] {
        // Names of groups have no character that a String of structured fields or a header lacks.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.append(name, value);
        }
    }
}

/// Nanoseconds in a second.
const NS: u128 = 1_000_000_000;

fn whole_units(amount: Ru) -> i64 {
    amount.or_zero().0 / MICRO
}

fn seconds(span: Span) -> u64 {
    span.0.div_ceil(MICRO.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(quota: &QuotaLeft, retry_after: Option<Duration>) -> [String; 2] {
        let mut headers = HeaderMap::new();
        write(&mut headers, &GroupName::new("a.b-c_9").unwrap(), quota, retry_after);
        [RATE_LIMIT_POLICY, RATE_LIMIT].map(|name| headers[name].to_str().unwrap().to_owned())
    }

    #[test]
    fn amounts_round_down_and_times_up() {
        let second = Span::secs(1);
        let quota = QuotaLeft {
            amount: Ru(7_999_999),
            left: Ru(999_999),
            resets_in: Span(2_000_001),
            length: second,
            ..QuotaLeft::default()
        };
        let [policy, limit] = written(&quota, None);
        assert_eq!(policy, r#""a.b-c_9";q=7;qu="request-units";w=1"#);
        assert_eq!(limit, r#""a.b-c_9";r=0;t=3"#);
        let requests = QuotaLeft { unit: Unit::Requests, ..quota };
        assert_eq!(written(&requests, None)[0], r#""a.b-c_9";q=7;qu="requests";w=1"#);
        let most = QuotaLeft { amount: Ru::MAX, left: Ru::MAX, ..quota };
        let digits = written(&most, None).map(|field| field.matches(char::is_numeric).count());
        assert!(digits.iter().all(|digits| *digits <= 1 + 15 + 1), "an Integer has 15 digits: {digits:?}");
        let beyond = QuotaLeft { left: Ru(-1), length: Span(0), ..quota };
        let [policy, limit] = written(&beyond, None);
        assert_eq!(
            policy, r#""a.b-c_9";q=7;qu="request-units""#,
            "an earlier controller does not say how long"
        );
        assert_eq!(limit, r#""a.b-c_9";r=0;t=3"#);
    }

    #[test]
    fn a_time_that_is_over_is_told_of_a_fixed_window_and_not_of_one_that_rolls() {
        for (rolls, resets_in, told) in
            [(true, 0, false), (true, 1, true), (false, 0, true), (false, 1, true)]
        {
            let quota = QuotaLeft { rolls, resets_in: Span(resets_in), ..QuotaLeft::default() };
            let [_, limit] = written(&quota, None);
            assert_eq!(limit.contains(";t="), told, "rolls: {rolls}, {resets_in}: {limit}");
        }
    }

    #[test]
    fn a_pause_that_ends_before_the_window_leaves_the_window_out() {
        let quota = QuotaLeft { resets_in: Span::secs(30), ..QuotaLeft::default() };
        for (pause_ms, has_window) in [(1, false), (29_000, false), (29_001, true), (30_000, true)] {
            let [_, limit] = written(&quota, Some(Duration::from_millis(pause_ms)));
            assert_eq!(limit.contains(";t=30"), has_window, "{pause_ms} ms: {limit}");
        }
    }
}
