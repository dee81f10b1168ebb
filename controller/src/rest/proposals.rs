//! `/v1/groups/{name}/proposal` and `/v1/proposals`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::IntoParams;

use super::blocking;
use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Named, Params};
use super::groups::{AlterParams, answer, masked};
use crate::accounts::proposed::begun;
use crate::service::Service;
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

/// Proposes a change of a group: the fields that the body holds.
#[utoipa::path(put, path = "/v1/groups/{name}/proposal", params(("name" = String, Path), AlterParams),
    request_body = v1::Group,
    responses((status = 200, body = v1::ProposalReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 412, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn propose(
    Extension(service): Shared,
    By(actor): By,
    Named(name): Named,
    Params(params): Params<AlterParams>,
    Body(fields): Body<Map<String, Value>>,
) -> Result<Json<v1::ProposalReply>, ApiError> {
    let (group, mask) = masked(name, fields)?;
    let proposed = blocking(service, move |service| {
        service.definitions().put_proposal(&actor, &group, &mask, params.expected_revision)
    });
    Ok(Json(begun(proposed.await?)))
}

/// Reads the proposal of a group, with what was recorded since under both settings.
#[utoipa::path(get, path = "/v1/groups/{name}/proposal", params(("name" = String, Path)),
    responses((status = 200, body = v1::ProposalReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn proposal(
    Extension(service): Shared,
    Named(name): Named,
) -> Result<Json<v1::ProposalReply>, ApiError> {
    blocking(service, move |service| service.accounts().proposal(&name)).await.map(Json)
}

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[derive(Default)]
pub(super) struct ApplyParams {
    /// Refuse unless the proposal is still this one; 0 does not check.
    expected_id: u64,
}

/// Alters a group as it is proposed, unless it was changed since, and withdraws the proposal.
#[utoipa::path(post, path = "/v1/groups/{name}/proposal/apply", params(("name" = String, Path), ApplyParams),
    responses((status = 200, body = v1::GroupReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn apply(
    Extension(service): Shared,
    By(actor): By,
    Named(name): Named,
    Params(params): Params<ApplyParams>,
) -> Result<Json<v1::GroupReply>, ApiError> {
    let altered = blocking(service, move |service| {
        service.definitions().apply_proposal(&actor, &name, params.expected_id)
    });
    Ok(answer(altered.await?))
}

/// Withdraws the proposal of a group.
#[utoipa::path(delete, path = "/v1/groups/{name}/proposal", params(("name" = String, Path)),
    responses((status = 200, body = v1::DeleteProposalReply), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn withdraw(
    Extension(service): Shared,
    By(actor): By,
    Named(name): Named,
) -> Result<Json<v1::DeleteProposalReply>, ApiError> {
    let deleted = blocking(service, move |service| service.definitions().delete_proposal(&actor, &name));
    Ok(Json(v1::DeleteProposalReply { deleted: deleted.await? }))
}

/// Lists proposals by the names of their groups.
#[utoipa::path(get, path = "/v1/proposals", responses((status = 200, body = v1::ListProposalsReply)))]
pub(super) async fn list(Extension(service): Shared) -> Json<v1::ListProposalsReply> {
    Json(v1::ListProposalsReply { proposals: service.definitions().proposals() })
}
