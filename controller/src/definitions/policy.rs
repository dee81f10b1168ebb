//! The policy of a group as text: `token_bucket`, `paced`, or `warm_up(10s, 3)`.

use tidegate_core::group::Policy;
use tidegate_core::policy::setting::COLDEST;
use tidegate_core::units::Span;

use crate::error::AdminError;
use crate::quantity::{cut, parse_span};

/// Sentinel's and Guava's defaults.
const PERIOD: Span = Span::secs(10);
const FACTOR: u32 = 3;
/// Shortest and longest warm-up of a group. Within less than a second, leases that nodes renew once a second follow no
/// curve; a cache that is cold for more than an hour needs a lower limit.
const PERIODS: (Span, Span) = (Span::secs(1), Span::secs(3_600));
const REMEDY: &str = "write \"token_bucket\", \"paced\" or \"warm_up(10s, 3)\"";

/// Reads a policy; an empty text is a token bucket.
///
/// # Errors
/// The text is none, or the period or the cold factor is out of its range.
pub(super) fn parse(text: &str) -> Result<Policy, AdminError> {
    let words = text.trim().to_ascii_lowercase();
    let invalid = |message: String| AdminError::invalid("policy", message);
    let unknown = || invalid(format!("{:?} is no policy; {REMEDY}", cut(text)));
    match words.as_str() {
        "" | "token_bucket" => return Ok(Policy::TokenBucket),
        "paced" => return Ok(Policy::Paced),
        "warm_up" => return Ok(Policy::WarmUp { period: PERIOD, factor: FACTOR }),
        _ => {}
    }
    let inside = words.strip_prefix("warm_up").map(str::trim_start).and_then(|rest| rest.strip_prefix('('));
    let inside = inside.and_then(|rest| rest.strip_suffix(')')).ok_or_else(unknown)?;
    let (period, factor) = match inside.split_once(',') {
        Some((period, factor)) => (period, Some(factor.trim())),
        None => (inside, None),
    };
    let period =
        parse_span(period).map_err(|error| invalid(format!("the period of {:?}: {error}", cut(text))))?;
    let (shortest, longest) = PERIODS;
    if period < shortest || longest < period {
        let message = format!("a period of {period} is out of range: {shortest} to {longest}");
        return Err(invalid(message));
    }
    let factor = match factor {
        None => FACTOR,
        Some(factor) => {
            factor.parse().ok().filter(|factor| (2..=COLDEST).contains(factor)).ok_or_else(|| {
                let message = "is out of range: a whole number from 2 to";
                invalid(format!("a cold factor of {:?} {message} {COLDEST}, such as {FACTOR}", cut(factor)))
            })?
        }
    };
    Ok(Policy::WarmUp { period, factor })
}

/// The policy as `parse` reads it.
pub(super) fn text(policy: Policy) -> String {
    match policy {
        Policy::TokenBucket => "token_bucket".to_owned(),
        Policy::Paced => "paced".to_owned(),
        Policy::WarmUp { period, factor } => format!("warm_up({period}, {factor})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_is_written_and_has_guavas_defaults() {
        let warm_up = |seconds, factor| Policy::WarmUp { period: Span::secs(seconds), factor };
        for (said, policy, written) in [
            ("", Policy::TokenBucket, "token_bucket"),
            (" Paced ", Policy::Paced, "paced"),
            ("warm_up", warm_up(10, 3), "warm_up(10s, 3)"),
            ("WARM_UP(1m)", warm_up(60, 3), "warm_up(60s, 3)"),
            ("warm_up ( 1h , 100 )", warm_up(3_600, 100), "warm_up(3600s, 100)"),
            (
                "warm_up(1.5s,2)",
                Policy::WarmUp { period: Span::millis(1_500), factor: 2 },
                "warm_up(1.5s, 2)",
            ),
        ] {
            assert_eq!(parse(said).unwrap(), policy, "{said}");
            assert_eq!(text(policy), written);
            assert_eq!(parse(written).unwrap(), policy);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_range() {
        for (said, named) in [
            ("leaky", "\"leaky\" is no policy; write \"token_bucket\", \"paced\" or \"warm_up(10s, 3)\""),
            ("warm_up(10s, 3", "is no policy"),
            ("warm_up(10)", "the period of \"warm_up(10)\""),
            ("warm_up()", "the period of"),
            ("warm_up(999ms, 3)", "a period of 999ms is out of range: 1s to 3600s"),
            ("warm_up(61m)", "a period of 3660s is out of range"),
            ("warm_up(10s, 1)", "a cold factor of \"1\" is out of range: a whole number from 2 to 100"),
            ("warm_up(10s, 101)", "a cold factor of \"101\""),
            ("warm_up(10s, 2.5)", "a cold factor of \"2.5\""),
            ("warm_up(10s, 3, 4)", "a cold factor of \"3, 4\""),
        ] {
            let error = parse(said).unwrap_err();
            assert_eq!(error.field(), Some("policy"));
            assert!(error.to_string().contains(named), "{error} of {said:?}");
        }
    }
}
