//! Bodies, queries, names in paths and callers, with errors in the API's own shape.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use tidegate_listener::BodyError;

use super::decode;
use super::error::ApiError;
use crate::definitions::audit::Actor;
use crate::grpc::ACTOR_HEADER;
use crate::identity::{Identity, guard};
use crate::limits::MAX_MESSAGE_BYTES;

/// Characters of a decoder's message in an error: enough for the names of all fields and one error.
const LONGEST_MESSAGE: usize = 600;

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            let message = "send the body with content-type: application/json";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", message));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection: BytesRejection| {
            let status = rejection.status();
            match BodyError::below(&rejection) {
                Some(error @ BodyError::Full) => {
                    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.to_string())
                }
                Some(error @ BodyError::Slow) => {
                    ApiError::new(StatusCode::REQUEST_TIMEOUT, "slow", error.to_string())
                }
                None if status == StatusCode::PAYLOAD_TOO_LARGE => {
                    let message = format!("the body is larger than {MAX_MESSAGE_BYTES} bytes");
                    ApiError::new(status, "too_large", message)
                }
                None => malformed(&rejection.body_text()),
            }
        })?;
        Ok(Self(decode::json(&bytes)?))
    }
}

/// Whether the content type is `application/json`, or another that is JSON by its name.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Query parameters; unknown ones are errors.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        let Query(params) =
            query.map_err(|rejection: QueryRejection| decode::parameter(&rejection.body_text()))?;
        Ok(Self(params))
    }
}

/// The variable part of a path.
pub(super) struct Named(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|rejection: PathRejection| malformed(&rejection.body_text()))?;
        Ok(Self(name))
    }
}

/// The error of a request that does not decode. The decoder's message may repeat all of a field, so it is cut.
pub(super) fn malformed(message: &str) -> ApiError {
    let shown: String = message.chars().take(LONGEST_MESSAGE).collect();
    ApiError::new(StatusCode::BAD_REQUEST, "invalid", shown)
}

/// The proven identity of a request's caller; `None` while authentication is off.
pub(super) struct Caller(pub(super) Option<Arc<Identity>>);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(guard::caller(&parts.extensions)))
    }
}

/// The author of a request.
pub(super) struct By(pub(super) Actor);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let stated = parts.headers.get(ACTOR_HEADER).and_then(|value| value.to_str().ok());
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or_else(|| "unknown address".to_owned(), |ConnectInfo(peer)| peer.to_string());
        Ok(Self(Actor::of(guard::of(&parts.extensions), stated, &peer)))
    }
}
