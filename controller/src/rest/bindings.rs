//! `/v1/bindings` and `/v1/resolve`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Caller, Params};
use crate::definitions::bindings::Principal;
use crate::message;
use crate::service::Service;
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Only bindings to this group.
    group: String,
    /// Continue after the binding of this tenant and user.
    after_tenant: String,
    /// See `after_tenant`.
    after_user: String,
    /// 1 to 1000; 0 is 1000.
    limit: u32,
}

/// Lists bindings: tenants, then users, then users within tenants.
#[utoipa::path(get, path = "/v1/bindings", params(ListParams),
    responses((status = 200, body = v1::ListBindingsReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn list(
    Extension(service): Shared,
    Caller(caller): Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<v1::ListBindingsReply>, ApiError> {
    let from_start = params.after_tenant.is_empty() && params.after_user.is_empty();
    let after =
        if from_start { None } else { Some(Principal::parse(&params.after_tenant, &params.after_user)?) };
    let seen = service.definitions().seen_by(caller.as_deref());
    let (bound, more) = seen.bindings(&params.group, after.as_ref(), params.limit)?;
    Ok(Json(message::bindings_reply(&bound, more)))
}

/// Binds a principal to a group, in place of what it was bound to.
#[utoipa::path(put, path = "/v1/bindings", request_body = v1::Binding,
    responses((status = 200, body = v1::BindReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn bind(
    Extension(service): Shared,
    By(actor): By,
    Body(b): Body<v1::Binding>,
) -> Result<Json<v1::BindReply>, ApiError> {
    let bound =
        blocking(service, move |service| service.definitions().bind(&actor, &b.tenant, &b.user, &b.group))
            .await?;
    Ok(Json(message::bind_reply(bound)))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PrincipalParams {
    /// The tenant; may be left out.
    tenant: String,
    /// The user; may be left out.
    user: String,
}

/// Removes a binding.
#[utoipa::path(delete, path = "/v1/bindings", params(PrincipalParams),
    responses((status = 200, body = v1::UnbindReply), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn unbind(
    Extension(service): Shared,
    By(actor): By,
    Params(p): Params<PrincipalParams>,
) -> Result<Json<v1::UnbindReply>, ApiError> {
    let removed =
        blocking(service, move |service| service.definitions().unbind(&actor, &p.tenant, &p.user, None))
            .await?;
    Ok(Json(v1::UnbindReply { removed }))
}

/// Finds the group that is charged for a user of a tenant.
#[utoipa::path(get, path = "/v1/resolve", params(PrincipalParams),
    responses((status = 200, body = v1::ResolveReply), (status = 400, body = ErrorBody)))]
pub(super) async fn resolve(
    Extension(service): Shared,
    Params(params): Params<PrincipalParams>,
) -> Result<Json<v1::ResolveReply>, ApiError> {
    let resolved = service.definitions().resolve(&params.tenant, &params.user)?;
    Ok(Json(message::resolve_reply(resolved)))
}
