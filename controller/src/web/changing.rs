//! What is changed by a button: deleting a group, bindings, the watch list. Each is one call of a room.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tidegate_console::frame::Place;
use tidegate_console::link::Link;
use tidegate_console::removal::removal;
use tidegate_console::statement;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use super::pages::blocking;
use super::visitor::Visitor;
use super::{Web, reply};
use crate::error::{AdminError, ErrorKind};
use crate::limits::WATCH_RANGE;

/// What the form counts a watch's length in.
const HOUR: Span = Span::secs(3_600);

/// A form with nothing but its key.
#[derive(Deserialize)]
pub(super) struct Key {
    pub(super) form_key: String,
}

/// The form that deletes a group.
pub(super) async fn doomed(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let group = web.service.definitions().group(&name)?.group;
        Ok(reply::page(removal(&group.name, group.revision, "", None, &visitor.viewer)))
    })
    .await
}

/// A group that goes.
#[derive(Deserialize)]
pub(super) struct Doomed {
    form_key: String,
    expected_revision: u64,
    #[serde(default)]
    force_to: String,
}

/// Deletes a group.
pub(super) async fn delete(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(name): Path<String>,
    Form(form): Form<Doomed>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        visitor.sent(&form.form_key)?;
        let (calls, to) = (web.service.definitions(), form.force_to.trim());
        match calls.delete_group(&visitor.actor(), &name, to, form.expected_revision, false) {
            Ok(_) => Ok(reply::on_to(Place::Groups.link())),
            Err(error) if error.kind() == ErrorKind::NotFound && to.is_empty() => Err(error),
            Err(error) => {
                // At the revision that is there now: to delete it all the same is a decision.
                let revision = calls.group(&name)?.group.revision;
                let page = removal(&name, revision, to, Some(&error.to_string()), &visitor.viewer);
                Ok((reply::status_of_form(&error, StatusCode::CONFLICT), reply::page(page)).into_response())
            }
        }
    })
    .await
}

/// Who is charged to a group.
#[derive(Deserialize)]
pub(super) struct Bound {
    form_key: String,
    group: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    user: String,
}

/// Binds a tenant, a user, or a user of a tenant to a group.
pub(super) async fn bind(State(web): State<Arc<Web>>, visitor: Visitor, Form(form): Form<Bound>) -> Response {
    blocking(web, visitor, move |web, visitor| {
        visitor.sent(&form.form_key)?;
        let (tenant, user) = (form.tenant.trim(), form.user.trim());
        web.service.definitions().bind(&visitor.actor(), tenant, user, &form.group)?;
        Ok(reply::on_to(Link::group(&form.group)))
    })
    .await
}

/// Takes a binding away, unless it leads elsewhere by now: the visitor has not seen that.
pub(super) async fn unbind(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Form(form): Form<Bound>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        visitor.sent(&form.form_key)?;
        let calls = web.service.definitions();
        calls.unbind(&visitor.actor(), &form.tenant, &form.user, Some(&form.group))?;
        Ok(reply::on_to(Link::group(&form.group)))
    })
    .await
}

/// A statement to watch.
#[derive(Deserialize)]
pub(super) struct Watched {
    form_key: String,
    group: String,
    digest: String,
    text: String,
    action: String,
    hours: u64,
}

/// Puts a statement on the watch list, by its template.
pub(super) async fn watch(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Form(form): Form<Watched>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        visitor.sent(&form.form_key)?;
        let length = form.hours.checked_mul(HOUR.0).map(Span).filter(|length| *length <= WATCH_RANGE.1);
        let lasts = length.ok_or_else(|| {
            let most = WATCH_RANGE.1.0 / HOUR.0;
            AdminError::invalid(
                "hours",
                format!("{} is out of range: up to {most}, or 0 for ever", form.hours),
            )
        })?;
        let link = statement::link(&form.group, &form.digest);
        let watch = v1::Watch {
            group: form.group,
            r#match: "similar".to_owned(),
            digest: form.digest,
            text: form.text,
            action: form.action,
            ..v1::Watch::default()
        };
        web.service.statements().add_watch_for(&visitor.actor(), &watch, lasts)?;
        Ok(reply::on_to(link))
    })
    .await
}

/// A watch that ends.
#[derive(Deserialize)]
pub(super) struct Ended {
    form_key: String,
    id: u64,
}

/// Ends a watch.
pub(super) async fn unwatch(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Form(form): Form<Ended>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        visitor.sent(&form.form_key)?;
        web.service.statements().remove_watch(&visitor.actor(), form.id, "")?;
        Ok(reply::on_to(Place::Statements.link()))
    })
    .await
}
