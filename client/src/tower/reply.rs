//! How a refusal and a charge look to the caller, in HTTP and in gRPC.
//!
//! | refusal | HTTP | gRPC |
//! |---|---|---|
//! | throttled, queue full | 429 | RESOURCE_EXHAUSTED |
//! | no lease, shutting down | 503 | UNAVAILABLE |
//! | never fits | 422 | OUT_OF_RANGE |
//! | unknown group | 403 | PERMISSION_DENIED |
//! | malformed tenant or user | 400 | INVALID_ARGUMENT |
//! | estimate out of range | 500 | INTERNAL |
//!
//! `retry-after` is in seconds, rounded up; gRPC also gets `retry-after-ms`. RU are decimals such as `1.5`.

use std::io::Write as _;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tidegate_core::units::Ru;
use tonic::{Code, Status};

use super::body::GovernedBody;
use crate::group::{Group, GroupError};
use crate::refused::Refused;

/// RU charged, as far as known when the headers are sent.
pub const X_RU_CHARGE: HeaderName = HeaderName::from_static("x-ru-charge");
/// RU left in this node's bucket of the group; absent when the group is not throttled.
pub const X_RU_REMAINING: HeaderName = HeaderName::from_static("x-ru-remaining");
/// When to try again, in milliseconds (gRPC).
pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Why a request was not served.
#[derive(Debug)]
pub(super) enum Denied {
    /// The group did not admit it.
    Refused(Refused),
    /// There is no group to ask.
    NoGroup(GroupError),
    /// The request has no valid subject.
    NoSubject,
}

impl Denied {
    fn codes(&self) -> (StatusCode, Code) {
        match self {
            Self::Refused(
                Refused::Throttled { .. } | Refused::QuotaUsedUp { .. } | Refused::TooManyWaiters { .. },
            ) => (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
            Self::Refused(Refused::NeverFits { .. }) => (StatusCode::UNPROCESSABLE_ENTITY, Code::OutOfRange),
            Self::Refused(Refused::UnknownGroup { .. }) | Self::NoGroup(GroupError::UnknownGroup { .. }) => {
                (StatusCode::FORBIDDEN, Code::PermissionDenied)
            }
            Self::NoSubject => (StatusCode::BAD_REQUEST, Code::InvalidArgument),
            Self::Refused(Refused::InvalidCost { .. }) => (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
            Self::Refused(Refused::Unavailable { .. } | Refused::ShutDown { .. }) | Self::NoGroup(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable)
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Refused(refused) => refused.to_string(),
            Self::NoGroup(error) => error.to_string(),
            Self::NoSubject => {
                "the headers do not say who the request is for; send x-tenant and x-user once each, in visible ASCII, \
                 or leave them out"
                    .to_owned()
            }
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refused) => refused.retry_after(),
            Self::NoGroup(_) | Self::NoSubject => None,
        }
    }
}

/// The whole response to a request that was not served.
pub(super) fn denied<B>(denied: &Denied, group: Option<&Group>, grpc: bool) -> Response<GovernedBody<B>> {
    let (status, code) = denied.codes();
    let text = denied.text();
    let mut response = if grpc {
        let mut response = Response::new(GovernedBody::refused(String::new()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if Status::new(code, text).add_header(response.headers_mut()).is_err() {
            // The message could not be a header; the code alone can.
            response.headers_mut().insert("grpc-status", HeaderValue::from(i32::from(code)));
        }
        response
    } else {
        let mut response = Response::new(GovernedBody::refused(text));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    let headers = response.headers_mut();
    if let Some(pause) = denied.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(whole(pause, 1_000_000_000)));
        if grpc {
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(whole(pause, 1_000_000)));
        }
    }
    charge(headers, Ru::ZERO, group.and_then(Group::remaining));
    response
}

/// Writes what was charged and what is left.
pub(super) fn charge(headers: &mut HeaderMap, charge: Ru, remaining: Option<Ru>) {
    headers.insert(X_RU_CHARGE, decimal(charge));
    if let Some(remaining) = remaining {
        headers.insert(X_RU_REMAINING, decimal(remaining));
    }
}

/// RU without their unit.
fn decimal(ru: Ru) -> HeaderValue {
    /// A sign, 13 digits, the point and 6 digits.
    const LONGEST: usize = 21;
    let mut text = [0; LONGEST];
    let mut rest = text.as_mut_slice();
    // No amount is longer; the digits of one that were would be missing at its end.
    let _ = write!(rest, "{}", ru.number());
    let length = LONGEST.saturating_sub(rest.len());
    let text = text.get(..length).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// A pause in units of this many nanoseconds, rounded up, at least one.
pub(super) fn whole(pause: Duration, unit_ns: u128) -> u64 {
    u64::try_from(pause.as_nanos().div_ceil(unit_ns)).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body::Body as _;
    use http_body_util::Empty;
    use tidegate_core::quota::Unit;

    use super::*;
    use crate::names::GroupName;

    fn denials() -> Vec<(Denied, u16, i32, Option<&'static str>)> {
        let group = GroupName::new("g").unwrap();
        let retry_after = Duration::from_millis(1_001);
        let refused = [
            (Refused::Throttled { group: group.clone(), retry_after }, 429, 8, Some("2")),
            (Refused::Unavailable { group: group.clone(), retry_after: Duration::ZERO }, 503, 14, Some("1")),
            (
                Refused::QuotaUsedUp { group: group.clone(), unit: Unit::Requests, resets_in: retry_after },
                429,
                8,
                Some("2"),
            ),
            (Refused::TooManyWaiters { group: group.clone(), limit: 5 }, 429, 8, Some("1")),
            (Refused::NeverFits { group: group.clone(), cost: Ru(2), max: Ru(1) }, 422, 11, None),
            (Refused::UnknownGroup { group: group.clone() }, 403, 7, None),
            (Refused::InvalidCost { group: group.clone(), cost: Ru(-1) }, 500, 13, None),
            (Refused::ShutDown { group: group.clone() }, 503, 14, None),
        ];
        let no_group = [
            (GroupError::UnknownGroup { group: group.clone() }, 403, 7),
            (GroupError::TooMany { group: group.clone(), limit: 5 }, 503, 14),
            (GroupError::ShutDown { group }, 503, 14),
        ];
        let refused =
            refused.map(|(refused, http, grpc, pause)| (Denied::Refused(refused), http, grpc, pause));
        let no_group = no_group.map(|(error, http, grpc)| (Denied::NoGroup(error), http, grpc, None));
        refused.into_iter().chain(no_group).chain([(Denied::NoSubject, 400, 3, None)]).collect()
    }

    #[test]
    fn refusals_have_their_codes_and_pauses() {
        for (reason, status, code, seconds) in denials() {
            let header = |response: &Response<GovernedBody<Empty<Bytes>>>, name: &str| {
                response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
            };
            let http = denied::<Empty<Bytes>>(&reason, None, false);
            assert_eq!(http.status(), status, "{reason:?}");
            assert_eq!(header(&http, "retry-after").as_deref(), seconds);
            assert_eq!(header(&http, "x-ru-charge").as_deref(), Some("0"));
            assert_eq!(header(&http, "content-type").as_deref(), Some("text/plain; charset=utf-8"));
            assert_eq!(header(&http, "retry-after-ms"), None);
            assert!(!http.body().is_end_stream());
            assert_eq!(http.body().size_hint().exact(), Some(reason.text().len() as u64));
            let grpc = denied::<Empty<Bytes>>(&reason, None, true);
            assert_eq!(grpc.status(), 200);
            assert_eq!(header(&grpc, "content-type").as_deref(), Some("application/grpc"));
            // A response of headers alone.
            assert!(grpc.body().is_end_stream());
            assert_eq!(grpc.body().size_hint().exact(), Some(0));
            assert_eq!(header(&grpc, "grpc-status"), Some(code.to_string()));
            assert_eq!(Status::from_header_map(grpc.headers()).unwrap().message(), reason.text());
            assert_eq!(header(&grpc, "retry-after-ms").is_some(), seconds.is_some());
        }
    }

    #[test]
    fn pauses_round_up_and_charges_are_decimals() {
        assert_eq!(whole(Duration::from_millis(1), 1_000_000_000), 1);
        assert_eq!(whole(Duration::from_millis(2_000), 1_000_000_000), 2);
        assert_eq!(whole(Duration::from_micros(1_500), 1_000_000), 2);
        for ru in [0, 1, -1, 10, 999_999, 1_000_000, 1_500_000, -20_000_010, i64::MAX, i64::MIN] {
            assert_eq!(format!("{} RU", decimal(Ru(ru)).to_str().unwrap()), Ru(ru).to_string());
        }
    }
}
