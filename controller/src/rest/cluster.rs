//! `/v1/controllers`.

use std::sync::Arc;

use axum::{Extension, Json};

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Named};
use crate::service::Service;
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

/// Lists the controllers of the cluster, as the one that leads sees them.
#[utoipa::path(get, path = "/v1/controllers",
    responses((status = 200, body = v1::ListControllersReply), (status = 409, body = ErrorBody)))]
pub(super) async fn list(Extension(service): Shared) -> Result<Json<v1::ListControllersReply>, ApiError> {
    Ok(Json(service.cluster().list()?))
}

/// Lets the controller that leads hand the lead over to another one.
#[utoipa::path(post, path = "/v1/controllers/drain", request_body = v1::DrainControllerRequest,
    responses((status = 200, body = v1::DrainControllerReply), (status = 400, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn drain(
    Extension(service): Shared,
    By(actor): By,
    Body(wish): Body<v1::DrainControllerRequest>,
) -> Result<Json<v1::DrainControllerReply>, ApiError> {
    Ok(Json(blocking(service, move |service| service.cluster().drain(&actor, &wish)).await?))
}

/// Removes a controller that was killed for good from the list. Refused while it runs, and for the one that leads.
#[utoipa::path(delete, path = "/v1/controllers/{name}", params(("name" = String, Path)),
    responses((status = 200, body = v1::ForgetControllerReply), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn forget(
    Extension(service): Shared,
    By(actor): By,
    Named(name): Named,
) -> Result<Json<v1::ForgetControllerReply>, ApiError> {
    Ok(Json(blocking(service, move |service| service.cluster().forget(&actor, &name)).await?))
}
