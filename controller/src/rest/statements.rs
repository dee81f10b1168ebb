//! `/v1/statements`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{By, Caller, Params};
use super::shapes::UsageShape;
use crate::message;
use crate::quantity::amount_text;
use crate::service::Service;
use crate::statements::StatementRow;
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Only of this group.
    group: String,
    /// "ru", "average_ru", "max_ru", "calls", "rows", "elapsed", "waited", "errors" or "throttled"; most first. Left
    /// out, "ru".
    order: String,
    /// 1 to 1000; 0 is 100.
    limit: u32,
    /// "5m", "1h" or "24h": only what gateways reported in this time, by whole minutes, or hours for a day. Left out, all
    /// since the controller started or the last reset.
    last: String,
}

/// Statements by what they cost.
#[derive(Serialize, ToSchema)]
pub(super) struct StatementsAnswer {
    rows: Vec<StatementShape>,
    /// Rows there are of the groups asked for.
    total: usize,
    /// Rows that made room for others, here and at gateways.
    evicted: u64,
    /// Counting since, in milliseconds since the Unix epoch: at most a minute, or an hour for a day, before the time that
    /// was asked for, and later where older counts were forgotten.
    since_unix_ms: u64,
}

/// One template in one group.
#[derive(Serialize, ToSchema)]
#[schema(as = Statement)]
struct StatementShape {
    group: String,
    /// Sixteen hexadecimal digits.
    fingerprint: String,
    /// "select", "insert" and so on.
    kind: String,
    /// Literals replaced by "?"; cut in long lists.
    template: String,
    calls: u64,
    /// RU charged: the sum of the parts.
    ru: String,
    cpu_ru: String,
    read_ru: String,
    write_ru: String,
    network_ru: String,
    /// One call on average, and the most one was charged.
    average_ru: String,
    max_ru: String,
    /// Rows sent to the client or affected.
    rows: u64,
    /// Time from admission to the end, and time waiting for admission.
    elapsed_us: u64,
    waited_us: u64,
    /// Calls that ended in an error of the server.
    errors: u64,
    /// Calls that were not admitted; not among the calls.
    throttled: u64,
    /// Calls whose cost was estimated, because the server's own counters could not be read.
    estimated: u64,
    first_unix_ms: u64,
    last_unix_ms: u64,
    usage: UsageShape,
}

impl From<&StatementRow> for StatementShape {
    fn from(row: &StatementRow) -> Self {
        let sums = &row.sums;
        Self {
            group: row.group.to_string(),
            fingerprint: row.fingerprint.to_string(),
            kind: row.kind.name().to_owned(),
            template: row.template.to_string(),
            calls: sums.calls,
            ru: amount_text(sums.charged.total()),
            cpu_ru: amount_text(sums.charged.cpu),
            read_ru: amount_text(sums.charged.read),
            write_ru: amount_text(sums.charged.write),
            network_ru: amount_text(sums.charged.network),
            average_ru: amount_text(sums.average()),
            max_ru: amount_text(sums.max),
            rows: sums.rows,
            elapsed_us: sums.elapsed_us,
            waited_us: sums.waited_us,
            errors: sums.errors,
            throttled: sums.throttled,
            estimated: sums.estimated,
            first_unix_ms: sums.first_unix_ms,
            last_unix_ms: sums.last_unix_ms,
            usage: UsageShape::from(&sums.usage),
        }
    }
}

/// Lists statements by what they cost, over all gateways.
#[utoipa::path(get, path = "/v1/statements", params(ListParams),
    responses((status = 200, body = StatementsAnswer), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn list(
    Extension(service): Shared,
    Caller(caller): Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<StatementsAnswer>, ApiError> {
    let seen = service.statements().seen_by(caller.as_deref());
    let ListParams { group, order, limit, last } = params;
    let list = seen.list_statements(&v1::ListStatementsRequest { group, order, limit, last })?;
    Ok(Json(StatementsAnswer {
        rows: list.rows.iter().map(StatementShape::from).collect(),
        total: list.total,
        evicted: list.evicted,
        since_unix_ms: list.since_unix_ms,
    }))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ResetParams {
    /// Only of this group.
    group: String,
}

/// Starts counting statements from zero.
#[utoipa::path(delete, path = "/v1/statements", params(ResetParams),
    responses((status = 200, body = v1::ResetStatementsReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn reset(
    Extension(service): Shared,
    By(actor): By,
    Params(params): Params<ResetParams>,
) -> Result<Json<v1::ResetStatementsReply>, ApiError> {
    let removed =
        blocking(service, move |service| service.statements().reset_statements(&actor, &params.group))
            .await?;
    Ok(Json(message::reset_statements_reply(removed)))
}
