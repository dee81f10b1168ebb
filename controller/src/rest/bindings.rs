//! `/v1/bindings` and `/v1/resolve`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Params};
use crate::bindings::Principal;
use crate::service::Service;
use crate::step::BindingText;

type Shared = Extension<Arc<Service>>;

/// A part of the list of bindings.
#[derive(Serialize, ToSchema)]
pub(super) struct BindingsAnswer {
    bindings: Vec<BindingText>,
    /// There are more after the last one.
    more: bool,
}

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
    responses((status = 200, body = BindingsAnswer), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn list(
    Extension(service): Shared,
    Params(params): Params<ListParams>,
) -> Result<Json<BindingsAnswer>, ApiError> {
    let from_start = params.after_tenant.is_empty() && params.after_user.is_empty();
    let after =
        if from_start { None } else { Some(Principal::parse(&params.after_tenant, &params.after_user)?) };
    let (bound, more) = service.bindings(&params.group, after.as_ref(), params.limit)?;
    let bindings = bound.iter().map(|bound| BindingText {
        tenant: bound.principal.tenant().to_owned(),
        user: bound.principal.user().to_owned(),
        group: bound.group.to_string(),
    });
    Ok(Json(BindingsAnswer { bindings: bindings.collect(), more }))
}

/// What binding did.
#[derive(Serialize, ToSchema)]
pub(super) struct BoundAnswer {
    /// The group bound before; empty for none.
    previous: String,
    /// The request changed something.
    changed: bool,
}

/// Binds a principal to a group, in place of what it was bound to.
#[utoipa::path(put, path = "/v1/bindings", request_body = BindingText,
    responses((status = 200, body = BoundAnswer), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn bind(
    Extension(service): Shared,
    By(actor): By,
    Body(b): Body<BindingText>,
) -> Result<Json<BoundAnswer>, ApiError> {
    let bound = blocking(service, move |service| service.bind(&actor, &b.tenant, &b.user, &b.group)).await?;
    let (previous, changed) = bound;
    Ok(Json(BoundAnswer { previous: previous.map(|name| name.to_string()).unwrap_or_default(), changed }))
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

/// What unbinding did.
#[derive(Serialize, ToSchema)]
pub(super) struct UnboundAnswer {
    /// There was a binding.
    removed: bool,
}

/// Removes a binding.
#[utoipa::path(delete, path = "/v1/bindings", params(PrincipalParams),
    responses((status = 200, body = UnboundAnswer), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn unbind(
    Extension(service): Shared,
    By(actor): By,
    Params(p): Params<PrincipalParams>,
) -> Result<Json<UnboundAnswer>, ApiError> {
    let removed = blocking(service, move |service| service.unbind(&actor, &p.tenant, &p.user)).await?;
    Ok(Json(UnboundAnswer { removed }))
}

/// The group of an operation.
#[derive(Serialize, ToSchema)]
pub(super) struct ResolvedAnswer {
    group: String,
    /// "user in tenant", "user", "tenant" or "default".
    matched: &'static str,
}

/// Finds the group that is charged for a user of a tenant.
#[utoipa::path(get, path = "/v1/resolve", params(PrincipalParams),
    responses((status = 200, body = ResolvedAnswer), (status = 400, body = ErrorBody)))]
pub(super) async fn resolve(
    Extension(service): Shared,
    Params(params): Params<PrincipalParams>,
) -> Result<Json<ResolvedAnswer>, ApiError> {
    let resolved = service.resolve(&params.tenant, &params.user)?;
    Ok(Json(ResolvedAnswer { group: resolved.group.to_string(), matched: resolved.matched.as_str() }))
}
