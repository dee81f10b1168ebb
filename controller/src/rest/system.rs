//! `/v1/status` and `/v1/audit`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::Params;
use crate::message;
use crate::service::Service;
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

/// Reads the controller's state at a glance.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = v1::StatusReply)))]
pub(super) async fn status(Extension(service): Shared) -> Json<v1::StatusReply> {
    Json(message::status(service.status()))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditParams {
    /// Only entries before this id; 0 for the newest.
    before_id: u64,
    /// 1 to 1000; 0 is 100.
    limit: u32,
    /// Only those that made, altered or deleted the group of this name, whether it is still there.
    group: String,
}

/// Reads who changed what.
#[utoipa::path(get, path = "/v1/audit", params(AuditParams),
    responses((status = 200, body = v1::AuditLogReply), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn audit(
    Extension(service): Shared,
    Params(params): Params<AuditParams>,
) -> Result<Json<v1::AuditLogReply>, ApiError> {
    let entries = blocking(service, move |service| {
        service.definitions().audit_log(&params.group, params.before_id, params.limit)
    });
    let entries = entries.await?;
    Ok(Json(v1::AuditLogReply { entries }))
}
