//! Pages that are read: those that follow the present, and the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, Query, RawQuery, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tidegate_console::audit::{self as log, Log};
use tidegate_console::history::Bucket;
use tidegate_console::paging::PAGE;
use tidegate_console::prices::Prices;
use tidegate_console::statement::Statement;
use tidegate_console::statements::{self, ORDERS, RANGES, Statements};
use tidegate_console::{assets, login as form};
use tidegate_core::usage::{RuParts, Usage};
use tidegate_cost_model::Field;
use tidegate_proto::v1;

use super::view::{Part, Shown, View, left_out};
use super::visitor::Visitor;
use super::{Web, reply};
use crate::error::AdminError;
use crate::grpc::statement_row;
use crate::limits::MAX_STATEMENTS;
use crate::statements::{Range, Sums};

/// Entries of the log in a CSV.
const CSV_ENTRIES: u32 = 1_000;
/// Verdicts that are listed.
const RUNAWAYS: u32 = 50;

/// Runs what waits for the disk on a thread that may block, and shows its error as a page.
pub(super) async fn blocking(
    web: Arc<Web>,
    visitor: Visitor,
    call: impl FnOnce(&Web, &Visitor) -> Result<Response, AdminError> + Send + 'static,
) -> Response {
    let viewer = visitor.viewer.clone();
    let done = tokio::task::spawn_blocking(move || call(&web, &visitor)).await;
    let done =
        done.unwrap_or_else(|error| Err(AdminError::Internal(format!("the page was not made: {error}"))));
    done.unwrap_or_else(|error| reply::refused(&error, &viewer))
}

/// A page that follows the present.
pub(super) async fn viewed(State(web): State<Arc<Web>>, visitor: Visitor, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default().to_owned();
    let part = if is_csv(&query) { Part::Csv } else { Part::Page };
    let Some(view) = View::parse(uri.path(), &query) else {
        let error = AdminError::NotFound { what: "a page of this address".to_owned() };
        return reply::refused(&error, &visitor.viewer);
    };
    blocking(web, visitor, move |web, visitor| {
        Ok(match view.show(web, visitor, part)? {
            Shown::Markup(markup) => reply::page(markup),
            Shown::Csv(name, text) => reply::csv(name, text),
        })
    })
    .await
}

fn is_csv(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(key, value)| key == "as" && value == "csv")
}

/// Parameters of the list of statements.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    group: String,
    q: String,
    sort: String,
    last: String,
    skip: usize,
    r#as: String,
}

/// The word of a time that is none of those there are is that of all.
fn known_range(word: &str) -> &'static str {
    RANGES.iter().find(|(of, _)| *of == word).map_or("", |(of, _)| of)
}

/// The list of statements.
pub(super) async fn statements(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Query(choice): Query<Choice>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let group = choice.group.trim();
        let order = ORDERS.iter().find(|(order, _)| *order == choice.sort).map_or("ru", |(order, _)| order);
        let last = known_range(&choice.last);
        let calls = web.service.statements().seen_by(visitor.identity());
        let wish = v1::ListStatementsRequest {
            group: group.to_owned(),
            order: order.to_owned(),
            limit: 0,
            last: last.to_owned(),
        };
        let as_csv = choice.r#as == "csv";
        let page = if as_csv { (0, MAX_STATEMENTS) } else { (choice.skip, PAGE) };
        let list = calls.find_statements(&wish, &choice.q, page)?;
        let rows: Vec<_> = list.rows.iter().map(statement_row).collect();
        if as_csv {
            return Ok(reply::csv("statements", statements::csv(&rows)));
        }
        let sees = visitor.viewer.may_see_all;
        let watches = if sees { calls.watches(group)? } else { Vec::new() };
        let runaways = if sees { calls.runaways(group, RUNAWAYS)? } else { Vec::new() };
        let page = Statements {
            rows: &rows,
            total: list.total,
            skip: choice.skip,
            since_unix_ms: list.since_unix_ms,
            group,
            filter: &choice.q,
            order,
            last,
            watches: &watches,
            runaways: &runaways,
        };
        Ok(reply::page(page.page(&visitor.viewer)))
    })
    .await
}

/// Parameters of a statement's page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct When {
    last: String,
    hide: String,
}

/// A statement.
pub(super) async fn statement(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path((group, fingerprint)): Path<(String, String)>,
    Query(when): Query<When>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let last = known_range(&when.last);
        let calls = web.service.statements().seen_by(visitor.identity());
        let (row, history) = calls.statement(&group, &fingerprint, Range::parse(last)?)?;
        let row = statement_row(&row);
        let history: Vec<_> = history.iter().map(bucket).collect();
        let (mut watches, mut runaways) = (Vec::new(), Vec::new());
        if visitor.viewer.may_see_all {
            watches = calls.watches(&row.group)?;
            watches.retain(|watch| watch.digest == row.fingerprint);
            runaways = calls.runaways(&row.group, CSV_ENTRIES)?;
            runaways.retain(|record| {
                record.conviction.as_ref().is_some_and(|of| of.fingerprint == row.fingerprint)
            });
        }
        let unix_s = web.service.clock().unix_ms() / 1_000;
        let page = Statement {
            row: &row,
            last,
            history: &history,
            unix_s,
            hidden: &left_out(&when.hide),
            watches: &watches,
            runaways: &runaways,
        };
        Ok(reply::page(page.page(&visitor.viewer)))
    })
    .await
}

fn bucket((start_ms, sums): &(u64, Sums)) -> Bucket {
    let RuParts { cpu, read, write, network, flat } = sums.charged;
    Bucket { start_s: start_ms / 1_000, parts: [cpu, read, write, network, flat].map(|ru| ru.0.into()) }
}

/// The cost tables, and what usage costs by them.
pub(super) async fn prices(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Response {
    let typed: BTreeMap<String, String> =
        form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect();
    let (mut usage, mut faults) = (Usage::default(), Vec::new());
    for field in Field::ALL {
        let Some(text) = typed.get(field.name()).map(|text| text.trim()).filter(|text| !text.is_empty())
        else {
            continue;
        };
        match text.parse() {
            Ok(amount) => *field.of_mut(&mut usage) = amount,
            Err(_) => faults.push((field, crate::quantity::cut(text))),
        }
    }
    let costs = web.service.definitions().cost_tables();
    let stored: Vec<String> = costs.all().map(ToString::to_string).collect();
    let page =
        Prices { active: costs.active(), shadow: costs.shadow(), stored: &stored, usage, faults: &faults };
    reply::page(page.page(&visitor.viewer))
}

/// The part of the log that is asked for.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Before {
    before: u64,
    group: String,
    r#as: String,
}

/// The audit log.
pub(super) async fn audit(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Query(of): Query<Before>,
) -> Response {
    blocking(web, visitor, move |web, visitor| {
        let group = of.group.trim();
        if of.r#as == "csv" {
            let entries = web.service.definitions().audit_log(group, of.before, CSV_ENTRIES)?;
            return Ok(reply::csv("audit", log::csv(&entries)));
        }
        let (entries, more) = web.log(group, of.before, log::PAGE)?;
        let page = Log { entries: &entries, more, before: of.before, group };
        Ok(reply::page(page.page(&visitor.viewer)))
    })
    .await
}

/// Where the login leads.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Next {
    next: String,
}

/// The login.
pub(super) async fn login(Query(of): Query<Next>) -> Response {
    reply::page(form::login(&of.next, None))
}

/// The script, the styles and the icon.
pub(super) async fn asset(Path(file): Path<String>) -> Response {
    let Some(asset) = assets::named(&file) else {
        return (StatusCode::NOT_FOUND, "no such file; load the page again").into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        // The name changes with the content.
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    (headers, asset.content).into_response()
}
