//! Making and changing groups by a form: what is typed is checked as a dry run, and saved against the revision that the
//! viewer saw.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidegate_console::form::{Beside, CHECK, Effect, Form as Page, PROPOSE, REVISION, Values};
use tidegate_console::frame::FORM_KEY;
use tidegate_console::link::Link;
use tidegate_console::present::limit;
use tidegate_console::what_if::{self, Past};
use tidegate_console::{command, proposal};
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;

use super::pages::blocking;
use super::visitor::Visitor;
use super::{Web, replaying, reply, typed};
use crate::error::AdminError;
use crate::limits::MOST_BELOW;
use crate::quantity::cut;

/// Seconds that are looked back at: those whose minutes are kept in full.
const BACK_S: u64 = 24 * 3_600;

/// What a new group has unless something else is typed.
fn fresh() -> v1::Group {
    v1::Group {
        parent: "/".to_owned(),
        burst: "default".to_owned(),
        burstable: "off".to_owned(),
        burst_ru_per_sec: "default".to_owned(),
        priority: "medium".to_owned(),
        fallback: "stop".to_owned(),
        fallback_total: "none".to_owned(),
        max_debt: "default".to_owned(),
        enforcement: "on".to_owned(),
        policy: "token_bucket".to_owned(),
        quota: "none".to_owned(),
        demote_to: "/".to_owned(),
        ..v1::Group::default()
    }
}

/// The form of a new group.
pub(super) async fn empty(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Query(of): Query<BTreeMap<String, String>>,
) -> Response {
    blocking(web, visitor, move |_, visitor| {
        let mut values = typed::values(&fresh());
        values.extend(of.get("parent").map(|parent| ("parent".to_owned(), parent.clone())));
        Ok(form(visitor, None, &values, 0, &Beside::default()))
    })
    .await
}

/// The form of a group that is there.
pub(super) async fn filled(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let group = web.service.definitions().group(&name)?.group;
        Ok(form(visitor, Some(&group.name), &typed::values(&group), group.revision, &Beside::default()))
    })
    .await
}

fn form(
    visitor: &Visitor,
    group: Option<&str>,
    values: &Values,
    revision: u64,
    beside: &Beside<'_>,
) -> Response {
    let inputs = typed::inputs();
    let page = Page { group, inputs: &inputs, values, revision, beside };
    reply::page(page.page(&visitor.viewer))
}

/// What stood in a form that was sent.
pub(super) struct Sent {
    pub(super) values: Values,
    revision: u64,
    button: Button,
    /// The time that a replay is of.
    pub(super) past: Past,
}

/// What is done with what was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Button {
    Save,
    Check,
    Replay,
    Propose,
}

impl Sent {
    pub(super) fn of(visitor: &Visitor, mut values: Values) -> Result<Self, AdminError> {
        visitor.sent(&values.remove(FORM_KEY).unwrap_or_default())?;
        let revision = values.remove(REVISION).unwrap_or_default();
        let revision = revision
            .parse()
            .map_err(|_| AdminError::invalid(REVISION, "is no number; load the page again"))?;
        let past = values.remove(what_if::PAST).unwrap_or_default();
        let past = Past::parse(&past).ok_or_else(|| {
            let message = format!("{:?} is no time that can be replayed; write 10m, 1h or 24h", cut(&past));
            AdminError::invalid(what_if::PAST, message)
        })?;
        let buttons = [(CHECK, Button::Check), (what_if::ASK, Button::Replay), (PROPOSE, Button::Propose)];
        let pressed: Vec<_> =
            buttons.into_iter().filter(|(name, _)| values.remove(*name).is_some()).collect();
        let button = pressed.first().map_or(Button::Save, |(_, button)| *button);
        Ok(Self { revision, button, past, values })
    }

    /// The name of the group.
    pub(super) fn name(&self) -> &str {
        self.values.get("name").map(|name| name.trim()).unwrap_or_default()
    }

    /// The form again, with this beside it.
    fn page(&self, visitor: &Visitor, group: Option<&str>, revision: u64, beside: Beside<'_>) -> Response {
        form(visitor, group, &self.values, revision, &Beside { past: self.past, ..beside })
    }
}

/// Makes the group that was typed.
pub(super) async fn create(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Form(values): Form<Values>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let sent = Sent::of(visitor, values)?;
        let base = v1::Group { name: sent.name().to_owned(), ..v1::Group::default() };
        let group = match typed::definition(&base, &sent.values) {
            Ok(group) => group,
            Err(faults) => return Ok(misspelt(visitor, None, &sent, faults)),
        };
        if sent.button != Button::Save {
            let effect = effect(web, visitor, None, &group, 0);
            let beside = Beside { effect: Some(&effect), ..Beside::default() };
            return Ok(sent.page(visitor, None, sent.revision, beside));
        }
        match web.service.definitions().create_group(&visitor.actor(), &group, false) {
            Ok(made) => Ok(reply::on_to(Link::group(&made.group.name))),
            Err(error) => Ok(unsaved(visitor, None, &sent, &error)),
        }
    })
    .await
}

/// Changes a group to what was typed.
pub(super) async fn alter(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(name): Path<String>,
    Form(values): Form<Values>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let sent = Sent::of(visitor, values)?;
        let before = web.service.definitions().group(&name)?.group;
        let name = before.name.as_str();
        let group = match typed::definition(&before, &sent.values) {
            Ok(group) => group,
            Err(faults) => return Ok(misspelt(visitor, Some(name), &sent, faults)),
        };
        if let Button::Check | Button::Replay = sent.button {
            let effect = effect(web, visitor, Some(&before), &group, sent.revision);
            let replays = sent.button == Button::Replay;
            let replay = replays.then(|| replaying::replay(web, visitor, &group, sent.past));
            let beside = Beside { effect: Some(&effect), replay: replay.as_ref(), ..Beside::default() };
            return Ok(sent.page(visitor, Some(name), sent.revision, beside));
        }
        let mask: Vec<String> =
            typed::changed(&before, &group).into_iter().map(|changed| changed.field).collect();
        let definitions = web.service.definitions();
        let done = if sent.button == Button::Propose {
            definitions
                .put_proposal(&visitor.actor(), &group, &mask, sent.revision)
                .map(|_| proposal::link(name))
        } else if mask.is_empty() {
            Ok(Link::group(name))
        } else {
            definitions.alter_group(&visitor.actor(), &group, &mask, sent.revision).map(|_| Link::group(name))
        };
        match done {
            Ok(link) => Ok(reply::on_to(link)),
            Err(AdminError::Revision { .. }) => Ok(conflict(web, visitor, &before, &group, &sent)),
            Err(error) => Ok(unsaved(visitor, Some(name), &sent, &error)),
        }
    })
    .await
}

/// The form again, with what was typed and why it was not saved.
fn unsaved(visitor: &Visitor, group: Option<&str>, sent: &Sent, error: &AdminError) -> Response {
    let status = reply::status_of_form(error, StatusCode::BAD_REQUEST);
    (status, with_faults(visitor, group, sent, typed::faults(error))).into_response()
}

/// The form again, with what was typed and what of it cannot be read.
fn misspelt(visitor: &Visitor, group: Option<&str>, sent: &Sent, faults: Vec<(String, String)>) -> Response {
    (StatusCode::BAD_REQUEST, with_faults(visitor, group, sent, faults)).into_response()
}

fn with_faults(
    visitor: &Visitor,
    group: Option<&str>,
    sent: &Sent,
    faults: Vec<(String, String)>,
) -> Response {
    let effect = Effect { faults, ..Effect::default() };
    sent.page(visitor, group, sent.revision, Beside { effect: Some(&effect), ..Beside::default() })
}

/// The form again after somebody else has changed the group: with what was typed, at the revision that is there now, so
/// that saving it once more is a decision.
fn conflict(web: &Web, visitor: &Visitor, now: &v1::Group, group: &v1::Group, sent: &Sent) -> Response {
    let changes = web.changes(visitor, &now.name).unwrap_or_default();
    let by = changes.0.first().map_or_else(String::new, |last| format!(" by {}", last.entry.actor));
    let text = format!(
        "{} was changed{by} while you were typing, and nothing was saved. Beside the form stands what your values would \
         change now; save once more if you mean it.",
        now.name
    );
    let effect = effect(web, visitor, Some(now), group, now.revision);
    let beside = Beside { effect: Some(&effect), conflict: Some(&text), ..Beside::default() };
    let page = sent.page(visitor, Some(&now.name), now.revision, beside);
    (StatusCode::CONFLICT, page).into_response()
}

/// What saving would do, as one types.
pub(super) async fn check(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Form(values): Form<Values>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let sent = Sent::of(visitor, values)?;
        let name = sent.name();
        // A group of revision 0 is a new one.
        let before =
            if sent.revision == 0 { None } else { Some(web.service.definitions().group(name)?.group) };
        let base =
            before.clone().unwrap_or_else(|| v1::Group { name: name.to_owned(), ..v1::Group::default() });
        let effect = match typed::definition(&base, &sent.values) {
            Ok(group) => effect(web, visitor, before.as_ref(), &group, sent.revision),
            Err(faults) => Effect { faults, ..Effect::default() },
        };
        Ok(reply::page(effect.markup()))
    })
    .await
}

/// What a definition would change, judged by the controller as a dry run.
fn effect(
    web: &Web,
    visitor: &Visitor,
    before: Option<&v1::Group>,
    group: &v1::Group,
    revision: u64,
) -> Effect {
    let step = v1::Step { kind: Some(Kind::Group(Box::new(group.clone()))) };
    let wish = v1::ApplyRequest { steps: vec![step], dry_run: true, ..v1::ApplyRequest::default() };
    let applied = match web.service.definitions().apply(&visitor.actor(), &wish) {
        Ok(applied) => applied,
        Err(error) => return Effect { faults: typed::faults(&error), ..Effect::default() },
    };
    if before.is_none() && web.service.definitions().group(&group.name).is_ok() {
        let there = format!("{:?} is there already; write another name, or change that group", group.name);
        return Effect { faults: vec![("name".to_owned(), there)], ..Effect::default() };
    }
    let nothing = v1::Group::default();
    let changed = typed::changed(before.unwrap_or(&nothing), group);
    let verb = if before.is_some() { "alter" } else { "create" };
    let is_empty = changed.is_empty();
    let words = |text: String| if is_empty { String::new() } else { text };
    // A new group's defaults need not be said.
    let said: Vec<_> = match before {
        Some(_) => changed.clone(),
        None => changed
            .iter()
            .filter(|of| !of.after.is_empty() && Some(&of.after) != typed::values(&fresh()).get(&of.field))
            .cloned()
            .collect(),
    };
    Effect {
        faults: typed::of_steps(&applied.faults),
        warnings: applied.warnings,
        above: before.and_then(|before| above(web, visitor, before, group)),
        command: words(command::shell(verb, &group.name, &said, revision)),
        sql: words(command::sql(&verb.to_uppercase(), &group.name, &said)),
        changed,
    }
}

/// In how many minutes of the last day the group and those below it used more than a limit that is to be lower, and of
/// how many in which they used anything.
fn above(web: &Web, visitor: &Visitor, before: &v1::Group, after: &v1::Group) -> Option<(usize, usize)> {
    let lower = limit(after).filter(|after| limit(before).is_none_or(|before| *after < before))?;
    let since = (web.service.clock().unix_ms() / 1_000).saturating_sub(BACK_S);
    let accounts = web.service.accounts().seen_by(visitor.identity());
    let (minutes, _) =
        accounts.minutes_of_all(&before.name, since).ok().filter(|(_, of)| *of <= MOST_BELOW)?;
    let most = u128::from(lower.0.unsigned_abs()) * 60;
    Some((minutes.iter().filter(|(.., used)| used.ru().0 > most).count(), minutes.len()))
}
