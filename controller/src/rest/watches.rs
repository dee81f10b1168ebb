//! `/v1/watches` and `/v1/runaways`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::Deserialize;
use tidegate_core::units::Span;
use utoipa::IntoParams;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Params};
use crate::message;
use crate::service::Service;
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Only of this group.
    group: String,
}

/// Lists watched statements.
#[utoipa::path(get, path = "/v1/watches", params(ListParams),
    responses((status = 200, body = v1::ListWatchesReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn list(
    Extension(service): Shared,
    Params(params): Params<ListParams>,
) -> Result<Json<v1::ListWatchesReply>, ApiError> {
    Ok(Json(v1::ListWatchesReply { watches: service.statements().watches(&params.group)? }))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AddParams {
    /// How long it lasts by the controller's clock, up to 365 days, in place of `end_unix_ms`; 0 is until that.
    watch_us: u64,
}

/// Watches a statement, in place of a watch of the same.
#[utoipa::path(post, path = "/v1/watches", params(AddParams), request_body = v1::Watch,
    responses((status = 200, body = v1::AddWatchReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn add(
    Extension(service): Shared,
    By(actor): By,
    Params(params): Params<AddParams>,
    Body(watch): Body<v1::Watch>,
) -> Result<Json<v1::AddWatchReply>, ApiError> {
    let lasts = Span(params.watch_us);
    let added =
        blocking(service, move |service| service.statements().add_watch_for(&actor, &watch, lasts)).await?;
    Ok(Json(v1::AddWatchReply { watch: Some(added.text()) }))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemoveParams {
    /// One watch.
    id: u64,
    /// All of a group. Exactly one of both.
    group: String,
}

/// Ends watches.
#[utoipa::path(delete, path = "/v1/watches", params(RemoveParams),
    responses((status = 200, body = v1::RemoveWatchReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn remove(
    Extension(service): Shared,
    By(actor): By,
    Params(p): Params<RemoveParams>,
) -> Result<Json<v1::RemoveWatchReply>, ApiError> {
    let removed =
        blocking(service, move |service| service.statements().remove_watch(&actor, p.id, &p.group)).await?;
    Ok(Json(message::remove_watch_reply(removed)))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunawayParams {
    /// Only of this group, which may be gone.
    group: String,
    /// Newest first: 1 to 1000; 0 is 100.
    limit: u32,
}

/// Lists convicted statements.
#[utoipa::path(get, path = "/v1/runaways", params(RunawayParams),
    responses((status = 200, body = v1::ListRunawaysReply), (status = 400, body = ErrorBody)))]
pub(super) async fn runaways(
    Extension(service): Shared,
    Params(params): Params<RunawayParams>,
) -> Result<Json<v1::ListRunawaysReply>, ApiError> {
    Ok(Json(service.statements().list_runaways(&params.group, params.limit)?))
}
