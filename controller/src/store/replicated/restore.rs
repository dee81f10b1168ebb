//! Building a local store from the newest checkpoint.

use std::sync::Arc;

use super::super::opening::format_row;
use super::super::{Row, Store, StoreError, Write};
use super::applied::{Applied, cluster_row};
use super::calls::{Calls, unfit};
use super::checkpoint::{Checkpoint, Unpager};
use super::place::{Fresh, Place};

/// Pages that one read brings: with 256 KiB each they stay below what a message may have.
const PAGES: usize = 8;
/// Checkpoints that may replace each other while one is read: a reader so slow that it meets more never ends.
const TRIES: usize = 5;

/// The newest checkpoint, and the revision of its key.
pub(super) fn newest(calls: &Calls) -> Result<Option<(Checkpoint, u64)>, StoreError> {
    let key = calls.keys.checkpoint();
    let read = calls.get(std::slice::from_ref(&key)).map_err(|error| error.told("read the checkpoint"))?;
    let Some(row) = read.found.into_iter().next().flatten() else { return Ok(None) };
    let checkpoint = Checkpoint::decode(&row.value).map_err(|reason| unfit(&key, reason))?;
    Ok(Some((checkpoint, row.changed)))
}

/// A store in `place` that has the newest checkpoint, which must reach number `least`; without a checkpoint, an empty
/// one. With `aside`, what was there is kept beside it.
pub(super) fn rebuild(
    calls: &Calls,
    place: &dyn Place,
    cluster: &str,
    least: u64,
    aside: bool,
) -> Result<(Arc<dyn Store>, Applied), StoreError> {
    for _ in 0..TRIES {
        let newest = newest(calls)?.map(|(checkpoint, _)| checkpoint);
        let applied = newest.map_or_else(Applied::default, |of| Applied {
            n: of.n,
            epoch: of.epoch,
            logged: of.logged,
        });
        if applied.n < least {
            let reason = format!("segments up to {least} are gone, and no checkpoint has them");
            return Err(unfit(&calls.keys.segment(least), reason));
        }
        tracing::info!(place = place.name(), n = applied.n, "the local store is built from the checkpoint");
        let mut fresh = place.fresh()?;
        if let Some(checkpoint) = newest
            && !pages(calls, checkpoint, &mut *fresh)?
        {
            tracing::info!("a newer checkpoint has replaced the one that was being read");
            continue;
        }
        let marks = [format_row(), cluster_row(cluster), applied.row()];
        let row = |write| match write {
            Write::Put(table, key, value) => Some((table, key, value)),
            Write::Delete(..) | Write::DeleteBelow(..) => None,
        };
        fresh.put(&marks.into_iter().filter_map(row).collect::<Vec<Row>>())?;
        fresh.finish(aside)?;
        tracing::info!(place = place.name(), "the local store is built");
        return Ok((place.open()?, applied));
    }
    Err(unfit(&calls.keys.checkpoint(), "its pages are missing"))
}

/// Reads all pages; returns whether they are still there.
fn pages(calls: &Calls, checkpoint: Checkpoint, fresh: &mut dyn Fresh) -> Result<bool, StoreError> {
    let (mut unpager, mut tenths) = (Unpager::new(checkpoint), 0);
    while let Some(first) = unpager.next() {
        let range = calls.keys.pages(checkpoint.generation, first);
        let read = calls.rows(&range, PAGES).map_err(|error| error.told("read a checkpoint"))?;
        if read.rows.is_empty() {
            return Ok(false);
        }
        for row in read.rows {
            let Some(i) = unpager.next() else { break };
            if row.key != calls.keys.page(checkpoint.generation, i) {
                return Ok(false);
            }
            let rows = unpager.page(&row.value).map_err(|reason| unfit(&row.key, reason))?;
            fresh.put(&rows)?;
        }
        let (read, all) = (unpager.next().unwrap_or(checkpoint.content.pages), checkpoint.content.pages);
        if read * 10 / all.max(1) > tenths {
            tenths = read * 10 / all.max(1);
            tracing::info!(read, all, "pages of the checkpoint");
        }
    }
    unpager.finish().map_err(|reason| unfit(&calls.keys.checkpoint(), reason))?;
    Ok(true)
}
