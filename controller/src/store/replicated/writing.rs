//! Writing a checkpoint, and removing what it makes needless.
//!
//! The order is what makes it safe to be cut off anywhere: pages of a generation of its own, then the checkpoint that
//! names them, then the removal. Segments stay back to the checkpoint before, so that a follower which has just built
//! on that one finds its way.

use std::ops::ControlFlow;

use tidegate_consensus::{Guard, Step, Transaction};

use super::super::records::META_APPLIED;
use super::super::{Store, StoreError};
use super::applied::Applied;
use super::calls::{Calls, Put, Unwritten, unfit};
use super::checkpoint::{Checkpoint, Pager};
use super::keys::shown;
use super::owner::named;
use super::scope;

/// A checkpoint that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) checkpoint: Checkpoint,
    /// The last segment of the one before; 0 without one.
    older: u64,
    /// The revision of the store when it was written.
    pub(super) revision: u64,
}

/// Writes the state of `local` as the owner of this epoch. Its place in the log is `at`, or what `local` says. What is
/// committed there after `begun` was called is not in it.
pub(super) fn write(
    calls: &Calls,
    epoch: u64,
    local: &dyn Store,
    at: Option<Applied>,
    begun: &mut dyn FnMut(),
) -> Result<Written, StoreError> {
    let key = calls.keys.checkpoint();
    let read = calls.get(std::slice::from_ref(&key)).map_err(|error| error.told("read the checkpoint"))?;
    let generation = read.revision;
    let older = read.found.into_iter().next().flatten();
    let seen = older.as_ref().map_or(0, |row| row.changed);
    let older = older.map(|row| Checkpoint::decode(&row.value)).transpose();
    let older = older.map_err(|reason| unfit(&key, reason))?.map_or(0, |older| older.n);

    let mut pager = Pager::new(generation, calls.settings.segment, |i, page: Vec<u8>| {
        let key = calls.keys.page(generation, i);
        let put = Put { value: &page, seen: 0, head: None, leaves: None };
        calls.put(epoch, &key, &put).map(drop).map_err(|error| unwritten(&key, error))
    });
    let mut applied = at;
    local.copy(&mut |table, key, value| {
        begun();
        if !scope::is_local(table, key) {
            pager.row(table, key, value)?;
        } else if at.is_none() && key == META_APPLIED {
            applied = Some(Applied::parse(value)?);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let content = pager.finish()?;
    let Applied { n, epoch: of, logged } = applied.unwrap_or_default();
    let checkpoint = Checkpoint { generation, n, epoch: of, logged, content };
    // The first one, of which the log has nothing, takes a number of its own.
    let put = Put { value: &checkpoint.encode(), seen, head: at.map(|at| at.n), leaves: None };
    let revision = calls.put(epoch, &key, &put).map_err(|error| unwritten(&key, error))?;
    Ok(Written { checkpoint, older, revision })
}

/// Removes older pages, and the segments that the checkpoint before contains.
pub(super) fn remove(calls: &Calls, epoch: u64, written: &Written) -> Result<(), StoreError> {
    let keys = &calls.keys;
    let (first, behind) = (keys.segment(0), keys.segment(written.older.saturating_add(1)));
    let (from, to) = keys.pages_before(written.checkpoint.generation);
    let transaction = Transaction {
        when: vec![Guard::Changed(keys.own(), epoch)],
        then: vec![Step::Delete(first, behind), Step::Delete(from, to)],
        otherwise: vec![Step::Get(keys.own())],
    };
    let outcome =
        calls.transact(&transaction).map_err(|error| error.told("remove what is in a checkpoint"))?;
    if outcome.held {
        return Ok(());
    }
    Err(StoreError::Deposed { by: named(outcome.found.into_iter().next().flatten().as_ref()) })
}

fn unwritten(key: &[u8], error: Unwritten) -> StoreError {
    match error {
        Unwritten::Deposed(own) => StoreError::Deposed { by: named(own.as_ref()) },
        Unwritten::Failed(error) => error.told("write a checkpoint"),
        Unwritten::Other(_) => StoreError::Shared {
            operation: "write a checkpoint",
            reason: format!("an earlier attempt has written {}; the next one goes on", shown(key)),
        },
    }
}
