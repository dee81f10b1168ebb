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
    /// "second" (kept 10 minutes in memory), "minute" or "hour" (kept 90 days). Left out, "minute".
    resolution: String,
    /// Seconds since the Unix epoch; left out, the last 10 minutes, day or 90 days, by resolution. At most 10080
    /// points.
    from_unix_s: u64,
    /// Seconds since the Unix epoch; left out, now.
    to_unix_s: u64,
    /// Together with what groups below consumed, at most 50. Counts as a replay: two run at once.
    below: bool,
}

/// Consumption over time.
#[derive(Serialize, ToSchema)]
pub(super) struct HistoryAnswer {
    points: Vec<HistoryPoint>,
    /// Whose consumption it is together: the group, and with `below` those below it.
    groups: usize,
}

/// Consumption within one minute, one hour or some seconds.
#[derive(Serialize, ToSchema)]
pub(super) struct HistoryPoint {
    /// Its start.
    start_unix_s: u64,
    /// Its length, in seconds.
    length_s: u64,
    amount: ConsumptionShape,
}

/// Reads what a group consumed over time.
#[utoipa::path(get, path = "/v1/usage/{group}/history", params(("group" = String, Path), HistoryParams),
    responses((status = 200, body = HistoryAnswer), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn history(
    Extension(service): Shared,
    Caller(caller): Caller,
    Named(group): Named,
    Params(p): Params<HistoryParams>,
) -> Result<Json<HistoryAnswer>, ApiError> {
    let wish = v1::UsageHistoryRequest {
        group,
        resolution: p.resolution,
        from_unix_s: p.from_unix_s,
        to_unix_s: p.to_unix_s,
        below: p.below,
    };
    let answer =
        blocking(service, move |service| service.accounts().seen_by(caller.as_deref()).history_of(&wish));
    let point = |(start_unix_s, length_s, amount)| HistoryPoint {
        start_unix_s,
        length_s,
        amount: ConsumptionShape::from(&amount),
    };
    let (points, groups) = answer.await?;
    Ok(Json(HistoryAnswer { points: points.into_iter().map(point).collect(), groups }))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WhatIfParams {
    /// The proposed rate; left out, the group's own.
    ru_per_sec: String,
    /// The proposed burst, or "default"; left out, the group's own.
    burst: String,
    /// "token_bucket" or "paced"; left out, the group's own.
    policy: String,
    /// The proposed quota, or "none"; left out, the group's own.
    quota: String,
    /// "second", "minute" or "hour": which samples are replayed. Left out, "minute".
    resolution: String,
    /// Seconds since the Unix epoch; left out, the last 10 minutes, day or 90 days, by resolution.
    from_unix_s: u64,
    /// Seconds since the Unix epoch; left out, now.
    to_unix_s: u64,
    /// How long operations wait before they are refused; left out, the group's longest wait, or 1 s.
    patience_us: u64,
    /// The wait that 99 of 100 parts of the RU may have under the cheapest rate; left out, 100 ms.
    p99_wait_us: u64,
}

/// Replays what a group consumed under proposed settings. Changes nothing.
#[utoipa::path(get, path = "/v1/groups/{name}/what-if", params(("name" = String, Path), WhatIfParams),
    responses((status = 200, body = v1::WhatIfReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn what_if(
    Extension(service): Shared,
    Caller(caller): Caller,
    Named(group): Named,
    Params(p): Params<WhatIfParams>,
) -> Result<Json<v1::WhatIfReply>, ApiError> {
    let wish = v1::WhatIfRequest {
        group,
        ru_per_sec: p.ru_per_sec,
        burst: p.burst,
        policy: p.policy,
        resolution: p.resolution,
        from_unix_s: p.from_unix_s,
        to_unix_s: p.to_unix_s,
        patience_us: p.patience_us,
        p99_wait_us: p.p99_wait_us,
        quota: p.quota,
    };
    let answer =
        blocking(service, move |service| service.accounts().seen_by(caller.as_deref()).what_if(&wish));
    answer.await.map(Json)
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
