//! Loads the contents of tables from the controller, page by page and bounded.
//!
//! A note says what is left out. Rows are as they were at the moment of each page.

use std::collections::BTreeSet;

use tidegate_proto::v1;

use super::rows::{self, Row};
use super::schema::VirtualTable;
use crate::controller::Controller;
use crate::error::SqlError;

/// Rows of a table that are loaded; the rest is left out, with a note. 100,000 rows are about 30 MB.
const MAX_ROWS: usize = 100_000;
/// Rows of a page, the most that the controller gives.
const PAGE: u32 = 1_000;
/// Ways to order statements. Each gives the first of its own, so that the top of any order is complete.
const ORDERS: [&str; 9] =
    ["ru", "average_ru", "max_ru", "calls", "rows", "elapsed", "waited", "errors", "throttled"];

/// A table with its rows.
pub(crate) struct Contents {
    pub(crate) table: VirtualTable,
    pub(crate) rows: Vec<Row>,
}

/// The contents of `tables`, and notes about what was left out.
pub(crate) async fn load(
    controller: &Controller,
    tables: &[VirtualTable],
) -> Result<(Vec<Contents>, Vec<String>), SqlError> {
    let mut notes = Vec::new();
    let mut contents = Vec::new();
    for table in tables {
        let rows = match table {
            VirtualTable::ResourceGroups => groups(controller, &mut notes).await?,
            VirtualTable::RunawayWatches => watches(controller, &mut notes).await?,
            VirtualTable::Statements => statements(controller, &mut notes).await?,
            VirtualTable::Usage => usage(controller, &mut notes).await?,
            VirtualTable::Runaways => runaways(controller, &mut notes).await?,
            VirtualTable::Bindings => bindings(controller, &mut notes).await?,
            VirtualTable::Clients => clients(controller, &mut notes).await?,
            VirtualTable::Proposals => proposals(controller).await?,
        };
        contents.push(Contents { table: *table, rows });
    }
    Ok((contents, notes))
}

async fn groups(controller: &Controller, notes: &mut Vec<String>) -> Result<Vec<Row>, SqlError> {
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let request = v1::ListGroupsRequest { after: after.clone(), limit: PAGE };
        let page = controller.admin().list_groups(request).await?.into_inner();
        found.extend(page.groups.iter().map(rows::group));
        // A page that does not move on would be asked for again for ever.
        if page.next_after.is_empty() || page.next_after <= after {
            return Ok(found);
        }
        if found.len() >= MAX_ROWS {
            notes.push(left_out(VirtualTable::ResourceGroups, "the first by name"));
            return Ok(found);
        }
        after = page.next_after;
    }
}

async fn bindings(controller: &Controller, notes: &mut Vec<String>) -> Result<Vec<Row>, SqlError> {
    let mut found = Vec::new();
    let (mut after_tenant, mut after_user) = (String::new(), String::new());
    loop {
        let request = v1::ListBindingsRequest { group: String::new(), after_tenant, after_user, limit: PAGE };
        let page = controller.admin().list_bindings(request).await?.into_inner();
        let Some(last) = page.bindings.last() else { return Ok(found) };
        (after_tenant, after_user) = (last.tenant.clone(), last.user.clone());
        found.extend(page.bindings.iter().map(rows::binding));
        if !page.more {
            return Ok(found);
        }
        if found.len() >= MAX_ROWS {
            notes.push(left_out(VirtualTable::Bindings, "the first by tenant and user"));
            return Ok(found);
        }
    }
}

async fn statements(controller: &Controller, notes: &mut Vec<String>) -> Result<Vec<Row>, SqlError> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for order in ORDERS {
        let request =
            v1::ListStatementsRequest { order: order.to_owned(), limit: PAGE, ..Default::default() };
        let page = controller.statements().list_statements(request).await?.into_inner();
        for row in &page.rows {
            if known.insert((row.group.clone(), row.fingerprint.clone())) {
                found.push(rows::statement(row));
            }
        }
        if page.evicted > 0 && order == "ru" {
            notes.push(format!(
                "note: tidegate.statements made room for {} statements, which are not counted any more",
                page.evicted
            ));
        }
        if u64::try_from(found.len()).is_ok_and(|found| found >= page.total) {
            return Ok(found);
        }
        if order == "throttled" {
            notes.push(format!(
                "note: tidegate.statements has {} rows, of which these {} were looked at: the {PAGE} with the most \
                 RU, average, maximum, calls, rows, time, waiting, errors and refusals",
                page.total,
                found.len()
            ));
        }
    }
    Ok(found)
}

async fn usage(controller: &Controller, notes: &mut Vec<String>) -> Result<Vec<Row>, SqlError> {
    let request = v1::UsageRequest { group: String::new(), per_client: true };
    let reply = controller.admin().usage(request).await?.into_inner();
    if reply.truncated {
        notes.push(left_out(VirtualTable::Usage, "those that the controller names first"));
    }
    Ok(reply.rows.iter().take(MAX_ROWS).map(rows::usage).collect())
}

async fn clients(controller: &Controller, notes: &mut Vec<String>) -> Result<Vec<Row>, SqlError> {
    let reply = controller.admin().list_clients(v1::ListClientsRequest {}).await?.into_inner();
    if reply.truncated {
        notes.push(left_out(VirtualTable::Clients, "those that the controller names first"));
    }
    Ok(reply.clients.iter().take(MAX_ROWS).map(rows::client).collect())
}

/// All of them; the controller keeps a hundred at most.
async fn proposals(controller: &Controller) -> Result<Vec<Row>, SqlError> {
    let reply = controller.admin().list_proposals(v1::ListProposalsRequest {}).await?.into_inner();
    Ok(reply.proposals.iter().map(rows::proposal).collect())
}

async fn watches(controller: &Controller, notes: &mut Vec<String>) -> Result<Vec<Row>, SqlError> {
    let request = v1::ListWatchesRequest { group: String::new() };
    let reply = controller.statements().list_watches(request).await?.into_inner();
    if reply.watches.len() > MAX_ROWS {
        notes.push(left_out(VirtualTable::RunawayWatches, "the first"));
    }
    Ok(reply.watches.iter().take(MAX_ROWS).map(rows::watch).collect())
}

async fn runaways(controller: &Controller, notes: &mut Vec<String>) -> Result<Vec<Row>, SqlError> {
    let request = v1::ListRunawaysRequest { group: String::new(), limit: PAGE };
    let reply = controller.statements().list_runaways(request).await?.into_inner();
    if reply.more {
        notes.push(left_out(VirtualTable::Runaways, "the newest"));
    }
    Ok(reply.runaways.iter().map(rows::runaway).collect())
}

fn left_out(table: VirtualTable, kept: &str) -> String {
    format!("note: {} has more rows than were looked at; these are {kept}", table.full_name())
}
