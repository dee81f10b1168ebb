//! Convicted statements in the store: the watch list and the records, loaded and collected for writing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::Convictions;
use super::runaways::{Runaway, Runaways};
use super::watches::{Watch, Watches};
use crate::definitions::catalog::Catalog;
use crate::name::GroupName;
use crate::service::meta::{Meta, countable};
use crate::store::records::{META_NEXT_WATCH, bad, json, put_json, put_number, u64_key, u64_of};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

/// Changes that are being stored.
#[derive(Default)]
pub(crate) struct Taken {
    /// `None` removes the row.
    watches: BTreeMap<u64, Option<Arc<Watch>>>,
    next_watch: u64,
    runaways: BTreeMap<u64, Option<Arc<Runaway>>>,
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.runaways.is_empty()
    }

    pub(crate) fn rows(&self, batch: &mut Batch) -> Result<(), StoreError> {
        if !self.watches.is_empty() {
            batch.push(put_number(META_NEXT_WATCH, self.next_watch));
        }
        for (id, watch) in &self.watches {
            let text = watch.as_ref().map(|watch| watch.text());
            batch.push(put_or_delete(Table::Watches, *id, text.as_ref())?);
        }
        for (id, record) in &self.runaways {
            let text = record.as_ref().map(|record| record.text());
            batch.push(put_or_delete(Table::Runaways, *id, text.as_ref())?);
        }
        Ok(())
    }
}

fn put_or_delete<T: Serialize>(table: Table, id: u64, row: Option<&T>) -> Result<Write, StoreError> {
    row.map_or_else(|| Ok(Write::Delete(table, u64_key(id))), |row| put_json(table, u64_key(id), row))
}

impl Convictions {
    /// Loads the watch list and the records from the store.
    pub(crate) fn load(store: &dyn Store, meta: &Meta, catalog: &Catalog) -> Result<Self, StoreError> {
        Ok(Self { watches: load_watches(store, meta, catalog)?, runaways: load_runaways(store)? })
    }

    /// Returns the changes to store.
    pub(crate) fn take(&mut self) -> Taken {
        Taken {
            watches: self.watches.take_dirty(),
            next_watch: self.watches.next_id(),
            runaways: self.runaways.take_dirty(),
        }
    }

    /// Takes changes back that could not be stored; the next call of `take` returns them.
    pub(crate) fn not_stored(&mut self, taken: Taken) {
        self.watches.mark_dirty(taken.watches.into_keys());
        self.runaways.mark_dirty(taken.runaways.into_keys());
    }

    /// The watch list.
    pub(crate) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Reserves all ids of watches below one.
    pub(crate) fn reserve_below(&mut self, next_watch: u64) {
        self.watches.reserve_below(next_watch);
    }

    /// Adds a watch that is stored.
    pub(crate) fn put(&mut self, watch: Watch) {
        self.watches.put(watch);
    }

    /// Removes a watch whose end is stored.
    pub(crate) fn remove(&mut self, id: u64) {
        self.watches.remove(id);
    }

    /// Removes the watches of a group that is gone.
    pub(crate) fn forget_group(&mut self, group: &GroupName) {
        self.watches.forget_group(group);
    }

    /// Ends watches whose time is over; returns whether there were any.
    pub(crate) fn expire(&mut self, unix_ms: u64) -> bool {
        self.watches.expire(unix_ms)
    }
}

/// Loads the watch list. The first expiry removes what ended meanwhile; a watch that covers no statement is removed at
/// once.
fn load_watches(store: &dyn Store, meta: &Meta, catalog: &Catalog) -> Result<Watches, StoreError> {
    let mut watches = Watches::new(meta.number(META_NEXT_WATCH)?.unwrap_or(1));
    each(store, Table::Watches, |key, value| {
        let id = countable(Table::Watches, u64_of(Table::Watches, key)?)?;
        let text = json(Table::Watches, value)?;
        let watch = Watch::load(&text).map_err(|error| bad(Table::Watches, &error.to_string()))?;
        if watch.id != id {
            return Err(bad(Table::Watches, &format!("watch {id} has the id {}", watch.id)));
        }
        let known = |group| catalog.id(group).is_some();
        if known(&watch.group) && watch.switch_group().is_none_or(known) && !watch.is_blank() {
            watches.put(watch);
        } else {
            // The statement was convicted while its group was being deleted, or by its text when that was empty.
            watches.mark_dirty([id]);
        }
        Ok(())
    })?;
    Ok(watches)
}

fn load_runaways(store: &dyn Store) -> Result<Runaways, StoreError> {
    let mut runaways = Runaways::default();
    each(store, Table::Runaways, |key, value| {
        let id = countable(Table::Runaways, u64_of(Table::Runaways, key)?)?;
        let text = json(Table::Runaways, value)?;
        let record = Runaway::load(&text).map_err(|error| bad(Table::Runaways, &error.to_string()))?;
        runaways.load(id, record);
        Ok(())
    })?;
    Ok(runaways)
}

#[cfg(test)]
mod tests;
