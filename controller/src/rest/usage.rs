//! `/v1/usage`, `/v1/clients` and `/v1/leases`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{By, Caller, Named, Params};
use super::shapes::{ConsumptionShape, UsageRowShape};
use crate::message;
use crate::service::Service;
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageParams {
    /// Only this group.
    group: String,
    /// Also one row per node.
    per_client: bool,
}

/// Consumption of groups.
#[derive(Serialize, ToSchema)]
pub(super) struct UsageAnswer {
    rows: Vec<UsageRowShape>,
    /// There are more rows than fit an answer.
    truncated: bool,
}

/// Reads what groups consumed.
#[utoipa::path(get, path = "/v1/usage", params(UsageParams),
    responses((status = 200, body = UsageAnswer), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn usage(
    Extension(service): Shared,
    Caller(caller): Caller,
    Params(params): Params<UsageParams>,
) -> Result<Json<UsageAnswer>, ApiError> {
    let seen = service.accounts().seen_by(caller.as_deref());
    let (rows, truncated) = seen.usage(&params.group, params.per_client)?;
    Ok(Json(UsageAnswer { rows: rows.into_iter().map(UsageRowShape::from).collect(), truncated }))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryParams {
    /// "minute" (kept 24 h) or "hour" (kept 90 days). Left out, "minute".
    resolution: String,
    /// Seconds since the Unix epoch; left out, all that is kept.
    from_unix_s: u64,
    /// Seconds since the Unix epoch; left out, now.
    to_unix_s: u64,
}

/// Consumption over time.
#[derive(Serialize, ToSchema)]
pub(super) struct HistoryAnswer {
    points: Vec<HistoryPoint>,
}

/// Consumption within one minute or hour.
#[derive(Serialize, ToSchema)]
pub(super) struct HistoryPoint {
    /// Its start.
    start_unix_s: u64,
    amount: ConsumptionShape,
}

/// Reads what a group consumed over time.
#[utoipa::path(get, path = "/v1/usage/{group}/history", params(("group" = String, Path), HistoryParams),
    responses((status = 200, body = HistoryAnswer), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn history(
    Extension(service): Shared,
    Caller(caller): Caller,
    Named(group): Named,
    Params(p): Params<HistoryParams>,
) -> Result<Json<HistoryAnswer>, ApiError> {
    let points = blocking(service, move |service| {
        let seen = service.accounts().seen_by(caller.as_deref());
        seen.usage_history(&group, &p.resolution, p.from_unix_s, p.to_unix_s)
    });
    let points = points
        .await?
        .into_iter()
        .map(|(start_unix_s, amount)| HistoryPoint { start_unix_s, amount: ConsumptionShape::from(&amount) });
    Ok(Json(HistoryAnswer { points: points.collect() }))
}

/// Lists nodes, newest first.
#[utoipa::path(get, path = "/v1/clients", responses((status = 200, body = v1::ListClientsReply)))]
pub(super) async fn clients(Extension(service): Shared) -> Json<v1::ListClientsReply> {
    Json(message::clients_reply(service.leasing().clients()))
}

/// Forgets a node that is silent for a minute and has no lease. What it was charged stays counted.
#[utoipa::path(delete, path = "/v1/clients/{name}", params(("name" = String, Path)),
    responses((status = 200, body = v1::ForgetClientReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn forget(
    Extension(service): Shared,
    By(actor): By,
    Named(name): Named,
) -> Result<Json<v1::ForgetClientReply>, ApiError> {
    let counts = blocking(service, move |service| service.accounts().forget_clients(&actor, &[name])).await?;
    Ok(Json(message::forget_reply(&counts)))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LeaseParams {
    /// Only this group.
    group: String,
}

/// Lists leases.
#[utoipa::path(get, path = "/v1/leases", params(LeaseParams),
    responses((status = 200, body = v1::ListLeasesReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn leases(
    Extension(service): Shared,
    Caller(caller): Caller,
    Params(params): Params<LeaseParams>,
) -> Result<Json<v1::ListLeasesReply>, ApiError> {
    let table = service.leasing().seen_by(caller.as_deref()).leases(&params.group)?;
    Ok(Json(message::leases_reply(table)))
}
