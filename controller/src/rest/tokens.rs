//! `/v1/tokens`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Named, Params};
use crate::error::AdminError;
use crate::quantity::cut;
use crate::service::Service;
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Continue after the token of this number.
    after: u64,
    /// 1 to 1000; 0 is 1000.
    limit: u32,
}

/// Lists tokens by number, without their texts.
#[utoipa::path(get, path = "/v1/tokens", params(ListParams),
    responses((status = 200, body = v1::ListTokensReply), (status = 400, body = ErrorBody)))]
pub(super) async fn list(
    Extension(service): Shared,
    Params(params): Params<ListParams>,
) -> Result<Json<v1::ListTokensReply>, ApiError> {
    Ok(Json(service.tokens().list(params.after, params.limit)?))
}

/// Makes a token. Its text is in this answer only: the controller keeps a hash.
#[utoipa::path(post, path = "/v1/tokens", request_body = v1::CreateTokenRequest,
    responses((status = 200, body = v1::CreateTokenReply), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn create(
    Extension(service): Shared,
    By(actor): By,
    Body(wish): Body<v1::CreateTokenRequest>,
) -> Result<Json<v1::CreateTokenReply>, ApiError> {
    let made = blocking(service, move |service| service.tokens().create(&actor, &wish)).await?;
    let (token, secret) = made;
    Ok(Json(v1::CreateTokenReply { token: Some(token.message()), secret: secret.reveal().to_owned() }))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RevokeParams {
    /// Revoke the last token of an admin, too.
    force: bool,
}

/// Ends a token: calls and streams under it are refused and ended within a second.
#[utoipa::path(delete, path = "/v1/tokens/{id}", params(("id" = u64, Path), RevokeParams),
    responses((status = 200, body = v1::RevokeTokenReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn revoke(
    Extension(service): Shared,
    By(actor): By,
    Named(id): Named,
    Params(params): Params<RevokeParams>,
) -> Result<Json<v1::RevokeTokenReply>, ApiError> {
    let number: u64 = id.parse().map_err(|_| {
        AdminError::invalid("id", format!("{:?} is no number of a token; GET /v1/tokens has them", cut(&id)))
    })?;
    let token =
        blocking(service, move |service| service.tokens().revoke(&actor, number, params.force)).await?;
    Ok(Json(v1::RevokeTokenReply { token: Some(token.message()) }))
}
