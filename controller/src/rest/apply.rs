//! `/v1/apply`.

use std::sync::Arc;

use axum::{Extension, Json};
use tidegate_proto::v1;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By};
use crate::message;
use crate::service::Service;

type Shared = Extension<Arc<Service>>;

/// Makes many definitions true in one change, or none.
#[utoipa::path(post, path = "/v1/apply", request_body = v1::ApplyRequest,
    responses((status = 200, body = v1::ApplyReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 412, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn apply(
    Extension(service): Shared,
    By(actor): By,
    Body(wish): Body<v1::ApplyRequest>,
) -> Result<Json<v1::ApplyReply>, ApiError> {
    let applied = blocking(service, move |service| service.definitions().apply(&actor, &wish)).await?;
    Ok(Json(message::apply_reply(applied)))
}
