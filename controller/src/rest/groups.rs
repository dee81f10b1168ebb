//! `/v1/groups`.

#![expect(unused_qualifications, reason = "the path macro writes the names of parameter types in full")]

use std::sync::Arc;

use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::IntoParams;

use super::error::{ApiError, ErrorBody};
use super::extract::{Body, By, Caller, Named, Params};
use super::{blocking, decode};
use crate::error::AdminError;
use crate::message;
use crate::quantity::cut;
use crate::service::{GroupReply, Service};
use tidegate_proto::v1;

type Shared = Extension<Arc<Service>>;

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[derive(Default)]
pub(super) struct ListParams {
    /// Continue after this name.
    after: String,
    /// 1 to 1000; 0 is 1000.
    limit: u32,
}

/// Lists groups by name.
#[utoipa::path(get, path = "/v1/groups", params(ListParams),
    responses((status = 200, body = v1::ListGroupsReply), (status = 400, body = ErrorBody)))]
pub(super) async fn list(
    Extension(service): Shared,
    Caller(caller): Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<v1::ListGroupsReply>, ApiError> {
    let page = service.definitions().seen_by(caller.as_deref()).groups(&params.after, params.limit)?;
    Ok(Json(message::groups_reply(page)))
}

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[derive(Default)]
pub(super) struct CreateParams {
    /// An identical group that is there already is success.
    if_not_exists: bool,
}

/// Creates a group.
#[utoipa::path(post, path = "/v1/groups", params(CreateParams), request_body = v1::Group,
    responses((status = 200, body = v1::GroupReply), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn create(
    Extension(service): Shared,
    By(actor): By,
    Params(params): Params<CreateParams>,
    Body(fields): Body<Map<String, Value>>,
) -> Result<Json<v1::GroupReply>, ApiError> {
    refuse_empty(&fields, "parent", "the group above, or \"/\" for none")?;
    refuse_empty_limit(&fields)?;
    let group: v1::Group = decode::of(Value::Object(fields))?;
    let created = blocking(service, move |service| {
        service.definitions().create_group(&actor, &group, params.if_not_exists)
    });
    Ok(answer(created.await?))
}

/// Reads a group.
#[utoipa::path(get, path = "/v1/groups/{name}", params(("name" = String, Path)),
    responses((status = 200, body = v1::GroupReply), (status = 404, body = ErrorBody)))]
pub(super) async fn read(
    Extension(service): Shared,
    Caller(caller): Caller,
    Named(name): Named,
) -> Result<Json<v1::GroupReply>, ApiError> {
    Ok(answer(service.definitions().seen_by(caller.as_deref()).group(&name)?))
}

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[derive(Default)]
pub(super) struct AlterParams {
    /// Refuse unless the group is still at this revision; 0 does not check.
    pub(super) expected_revision: u64,
}

/// Changes the fields that the body holds.
#[utoipa::path(patch, path = "/v1/groups/{name}", params(("name" = String, Path), AlterParams), request_body = v1::Group,
    responses((status = 200, body = v1::GroupReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 412, body = ErrorBody), (status = 413, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn alter(
    Extension(service): Shared,
    By(actor): By,
    Named(name): Named,
    Params(params): Params<AlterParams>,
    Body(fields): Body<Map<String, Value>>,
) -> Result<Json<v1::GroupReply>, ApiError> {
    let (group, mask) = masked(name, fields)?;
    let altered = blocking(service, move |service| {
        service.definitions().alter_group(&actor, &group, &mask, params.expected_revision)
    });
    Ok(answer(altered.await?))
}

/// Fields of the group of the path, and which they are.
pub(super) fn masked(
    name: String,
    mut fields: Map<String, Value>,
) -> Result<(v1::Group, Vec<String>), ApiError> {
    // The path has the name, so another one in the body would be ignored; the controller sets the revision.
    if let Some(other) = fields.remove("name")
        && !other.as_str().is_some_and(|other| other.eq_ignore_ascii_case(&name))
    {
        let message = format!(
            "{} is not the group of the path, {name}; a group keeps its name",
            cut(&other.to_string())
        );
        return Err(AdminError::invalid("name", message).into());
    }
    fields.remove("revision");
    refuse_empty_limit(&fields)?;
    let mask: Vec<String> = fields.keys().cloned().collect();
    fields.insert("name".to_owned(), Value::String(name));
    Ok((decode::of(Value::Object(fields))?, mask))
}

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[derive(Default)]
pub(super) struct DeleteParams {
    /// Move bindings and children to this group first; what switches to the deleted group switches to it.
    force_to: String,
    /// Refuse unless the group is still at this revision; 0 does not check.
    expected_revision: u64,
    /// A missing group is success.
    if_exists: bool,
}

/// Deletes a group.
#[utoipa::path(delete, path = "/v1/groups/{name}", params(("name" = String, Path), DeleteParams),
    responses((status = 200, body = v1::DeleteGroupReply), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 412, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn delete(
    Extension(service): Shared,
    By(actor): By,
    Named(name): Named,
    Params(params): Params<DeleteParams>,
) -> Result<Json<v1::DeleteGroupReply>, ApiError> {
    let deleted = blocking(service, move |service| {
        service.definitions().delete_group(
            &actor,
            &name,
            &params.force_to,
            params.expected_revision,
            params.if_exists,
        )
    });
    Ok(Json(message::deleted(deleted.await?)))
}

/// Refuses an empty field, since a variable that was never set is empty, too: it must not move a group out from under
/// another.
fn refuse_empty(fields: &Map<String, Value>, field: &str, instead: &str) -> Result<(), AdminError> {
    match fields.get(field) {
        Some(Value::String(text)) if text.trim().is_empty() => {
            Err(AdminError::invalid(field, format!("is empty; write {instead}, or leave it out")))
        }
        _ => Ok(()),
    }
}

/// The same for a limit of a rule.
fn refuse_empty_limit(fields: &Map<String, Value>) -> Result<(), AdminError> {
    let rule = fields.get("query_limit").and_then(Value::as_object);
    let empty = rule.and_then(|rule| refuse_empty(rule, "ru", "an amount such as \"500 RU\"").err());
    empty.map_or(Ok(()), |_| {
        Err(AdminError::invalid(
            "query_limit.ru",
            "is empty; write an amount such as \"500 RU\", or leave it out",
        ))
    })
}

pub(super) fn answer(reply: GroupReply) -> Json<v1::GroupReply> {
    Json(message::group_reply(reply))
}
