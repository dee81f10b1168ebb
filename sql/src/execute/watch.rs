//! The watch list, and the count of statements.

use tidegate_proto::v1;

use crate::answer::{Answer, Column, Kind, Table, Value};
use crate::context::Context;
use crate::controller::{Controller, missing};
use crate::error::SqlError;
use crate::statement::WatchedText;

/// What `QUERY WATCH ADD` says.
pub(super) struct Asked<'s> {
    pub(super) group: Option<&'s str>,
    pub(super) action: &'s str,
    pub(super) switch_group: &'s str,
    pub(super) watched: &'s WatchedText,
    pub(super) watch_us: Option<u64>,
}

/// Adds a watch and shows its number, as TiDB does.
pub(super) async fn add(
    controller: &Controller,
    asked: Asked<'_>,
    context: &Context,
) -> Result<Table, SqlError> {
    let group = asked.group.unwrap_or(&context.group);
    // The controller counts from its own clock; one of an earlier build knows this end only. A watch that lasts less
    // than a millisecond still ends after its start.
    let end_unix_ms = asked.watch_us.map_or(0, |us| context.now_unix_ms.saturating_add(us.div_ceil(1_000)));
    let watch = v1::Watch {
        group: group.to_owned(),
        r#match: asked.watched.matching.to_owned(),
        digest: asked.watched.digest.clone(),
        text: asked.watched.template.clone(),
        action: asked.action.to_owned(),
        switch_group: asked.switch_group.to_owned(),
        end_unix_ms,
        ..v1::Watch::default()
    };
    let request = v1::AddWatchRequest { watch: Some(watch), watch_us: asked.watch_us.unwrap_or_default() };
    let reply = controller.statements().add_watch(request).await?.into_inner();
    let id = reply.watch.ok_or_else(|| missing("the watch"))?.id;
    let mut notes = Vec::new();
    if asked.group.is_none() {
        notes.push(format!("note: watched in {group}, the group of this session"));
    }
    Ok(Table {
        columns: vec![Column { name: "WATCH_ID".to_owned(), kind: Kind::Int }],
        rows: vec![vec![Value::Int(i64::try_from(id).unwrap_or(i64::MAX))]],
        notes,
    })
}

/// Removes one.
pub(super) async fn remove(controller: &Controller, id: u64) -> Result<Answer, SqlError> {
    let request = v1::RemoveWatchRequest { id, group: String::new() };
    let removed = controller.statements().remove_watch(request).await?.into_inner().removed;
    if removed == 0 {
        let message =
            format!("watch {id} does not exist; information_schema.runaway_watches lists those that do");
        return Err(SqlError::Unknown(message));
    }
    Ok(Answer::done(removed))
}

/// Removes all of a group.
pub(super) async fn remove_all(controller: &Controller, group: &str) -> Result<Answer, SqlError> {
    let request = v1::RemoveWatchRequest { id: 0, group: group.to_owned() };
    let removed = controller.statements().remove_watch(request).await?.into_inner().removed;
    if removed == 0 {
        return Ok(Answer::note(format!("note: no statement is watched in group {group}")));
    }
    Ok(Answer::done(removed))
}

/// Resets the counts of statements.
pub(super) async fn reset_statements(controller: &Controller) -> Result<Answer, SqlError> {
    let request = v1::ResetStatementsRequest { group: String::new() };
    let removed = controller.statements().reset_statements(request).await?.into_inner().removed;
    Ok(Answer::done(removed))
}
