//! `/v1/cost-tables`.

use std::sync::Arc;

use axum::{Extension, Json};
use tidegate_proto::v1;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Named};
use crate::definitions::cost_tables::CostTables;
use crate::message;
use crate::service::Service;

type Shared = Extension<Arc<Service>>;

fn answer(costs: &CostTables) -> Json<v1::CostTablesReply> {
    Json(message::cost_tables_reply(costs))
}

/// Reads all cost tables.
#[utoipa::path(get, path = "/v1/cost-tables", responses((status = 200, body = v1::CostTablesReply)))]
pub(super) async fn list(Extension(service): Shared) -> Json<v1::CostTablesReply> {
    answer(&service.definitions().cost_tables())
}

/// Stores a version and makes it active or the shadow.
#[utoipa::path(put, path = "/v1/cost-tables/{role}", params(("role" = String, Path, description = "active or shadow")),
    request_body = v1::CostTable,
    responses((status = 200, body = v1::CostTablesReply), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn put(
    Extension(service): Shared,
    By(actor): By,
    Named(role): Named,
    Body(table): Body<v1::CostTable>,
) -> Result<Json<v1::CostTablesReply>, ApiError> {
    let costs =
        blocking(service, move |service| service.definitions().put_cost_table(&actor, &role, Some(table)))
            .await?;
    Ok(answer(&costs))
}

/// Prices no table in parallel any more. Only the shadow can go.
#[utoipa::path(delete, path = "/v1/cost-tables/{role}", params(("role" = String, Path, description = "shadow")),
    responses((status = 200, body = v1::CostTablesReply), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn drop_role(
    Extension(service): Shared,
    By(actor): By,
    Named(role): Named,
) -> Result<Json<v1::CostTablesReply>, ApiError> {
    let costs =
        blocking(service, move |service| service.definitions().put_cost_table(&actor, &role, None)).await?;
    Ok(answer(&costs))
}
