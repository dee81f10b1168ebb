//! The claims that every JWT has: who issued it, for whom, and when.
//!
//! Times are Unix seconds, and may have a fraction, which is cut: an end is never later than it says.

use serde_json::Value;

use super::error::JwtError;
use crate::quantity::cut;

/// Judges time and audience; returns when the JWT is over, in Unix milliseconds.
pub(super) fn judge(
    claims: &Value,
    audiences: &[String],
    skew_ms: u64,
    unix_ms: u64,
) -> Result<u64, JwtError> {
    judge_audience(claims, audiences)?;
    let end = time(claims, "exp")?.ok_or(JwtError::Claim("exp"))?.saturating_add(skew_ms);
    if end <= unix_ms {
        return Err(JwtError::Expired {
            seconds: unix_ms.saturating_sub(end.saturating_sub(skew_ms)) / 1_000,
        });
    }
    for claim in ["nbf", "iat"] {
        let Some(begin) = time(claims, claim)? else { continue };
        let ahead = begin.saturating_sub(unix_ms);
        if ahead > skew_ms {
            return Err(JwtError::Early { claim, seconds: ahead.div_ceil(1_000) });
        }
    }
    Ok(end)
}

fn judge_audience(claims: &Value, audiences: &[String]) -> Result<(), JwtError> {
    let found: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => return Err(JwtError::Claim("aud")),
    };
    if found.iter().any(|of| audiences.iter().any(|ours| ours == of)) {
        return Ok(());
    }
    let quoted = |text: &str| format!("{:?}", cut(text));
    Err(JwtError::Audience {
        found: cut(&found.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ")),
        expected: cut(&audiences.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" or ")),
    })
}

/// A time in milliseconds; `None` without the claim.
fn time(claims: &Value, claim: &'static str) -> Result<Option<u64>, JwtError> {
    match claims.get(claim) {
        None => Ok(None),
        Some(Value::Number(number)) => {
            let text = number.to_string();
            // Written with an exponent it is far beyond any time, or nearly zero, and its first digits are no seconds.
            let whole = text.split('.').next().filter(|_| !text.contains('e')).unwrap_or_default();
            let seconds: u64 = whole.parse().map_err(|_| JwtError::Claim(claim))?;
            Ok(Some(seconds.saturating_mul(1_000)))
        }
        Some(_) => Err(JwtError::Claim(claim)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ends_and_beginnings_count_within_the_skew() {
        let ours = ["t".to_owned()];
        let judged = |claims: Value, skew, at| judge(&claims, &ours, skew, at);
        let claims = json!({"aud": ["x", "t"], "exp": 100, "nbf": 50, "iat": 50.9});
        assert_eq!(judged(claims.clone(), 0, 99_999), Ok(100_000));
        assert_eq!(judged(claims.clone(), 0, 100_000), Err(JwtError::Expired { seconds: 0 }));
        assert_eq!(judged(claims.clone(), 60_000, 159_999), Ok(160_000));
        assert_eq!(judged(claims.clone(), 60_000, 160_000), Err(JwtError::Expired { seconds: 60 }));
        assert_eq!(judged(claims.clone(), 0, 50_000), Ok(100_000));
        assert_eq!(judged(claims, 1_000, 48_999), Err(JwtError::Early { claim: "nbf", seconds: 2 }));
        let early = json!({"aud": "t", "exp": 100, "iat": 50});
        assert_eq!(judged(early, 0, 49_000), Err(JwtError::Early { claim: "iat", seconds: 1 }));
    }

    #[test]
    fn a_claim_of_another_shape_is_refused_and_never_skipped() {
        let ours = ["t".to_owned()];
        let good = json!({"aud": "t", "exp": 100, "nbf": 1, "iat": 1});
        assert!(judge(&good, &ours, 0, 5_000).is_ok());
        for (claim, value) in [
            ("exp", json!("100")),
            ("exp", json!(-1)),
            ("exp", json!(1e300)),
            ("exp", json!(1.5e-7)),
            ("nbf", json!(1.5e300)),
            ("iat", json!(1.5e16)),
            ("exp", json!(null)),
            ("exp", json!([100])),
            ("nbf", json!("1")),
            ("nbf", json!(-5)),
            ("iat", json!(true)),
            ("aud", json!(5)),
            ("aud", json!({})),
            ("aud", json!(null)),
        ] {
            let mut wrong = good.clone();
            wrong[claim] = value.clone();
            assert_eq!(judge(&wrong, &ours, 0, 5_000), Err(JwtError::Claim(claim)), "{claim} {value}");
        }
        for claim in ["exp", "aud"] {
            let mut less = good.clone();
            less.as_object_mut().unwrap().remove(claim);
            assert_eq!(judge(&less, &ours, 0, 5_000), Err(JwtError::Claim(claim)));
        }
        for other in [json!("T"), json!([]), json!([5, "u"]), json!("tt"), json!([["t"]])] {
            let mut wrong = good.clone();
            wrong["aud"] = other;
            assert!(matches!(judge(&wrong, &ours, 0, 5_000), Err(JwtError::Audience { .. })));
        }
    }
}
