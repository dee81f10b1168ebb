//! `/v1/cost-tables`.

use std::sync::Arc;

use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Named};
use crate::cost_tables::{CostTables, TableShape, shape};
use crate::service::Service;

type Shared = Extension<Arc<Service>>;

/// All cost tables.
#[derive(Serialize, ToSchema)]
pub(super) struct CostTablesAnswer {
    /// Priced and charged.
    active: Option<TableShape>,
    /// Priced beside it, reported, not charged.
    shadow: Option<TableShape>,
    /// Every version stored.
    all: Vec<TableShape>,
}

fn answer(costs: &CostTables) -> Json<CostTablesAnswer> {
    let all = costs.all().map(shape).collect();
    Json(CostTablesAnswer { active: costs.active().map(shape), shadow: costs.shadow().map(shape), all })
}

/// Reads all cost tables.
#[utoipa::path(get, path = "/v1/cost-tables", responses((status = 200, body = CostTablesAnswer)))]
pub(super) async fn list(Extension(service): Shared) -> Json<CostTablesAnswer> {
    answer(&service.cost_tables())
}

/// Stores a version and makes it active or the shadow.
#[utoipa::path(put, path = "/v1/cost-tables/{role}", params(("role" = String, Path, description = "active or shadow")),
    request_body = TableShape,
    responses((status = 200, body = CostTablesAnswer), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn put(
    Extension(service): Shared,
    By(actor): By,
    Named(role): Named,
    Body(table): Body<TableShape>,
) -> Result<Json<CostTablesAnswer>, ApiError> {
    let costs = blocking(service, move |service| service.put_cost_table(&actor, &role, Some(table))).await?;
    Ok(answer(&costs))
}

/// Prices no table in parallel any more. Only the shadow can go.
#[utoipa::path(delete, path = "/v1/cost-tables/{role}", params(("role" = String, Path, description = "shadow")),
    responses((status = 200, body = CostTablesAnswer), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn drop_role(
    Extension(service): Shared,
    By(actor): By,
    Named(role): Named,
) -> Result<Json<CostTablesAnswer>, ApiError> {
    let costs = blocking(service, move |service| service.put_cost_table(&actor, &role, None)).await?;
    Ok(answer(&costs))
}
