//! Consumption in the store: loading it, and collecting changes to write.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::{empty, once};
use std::ops::ControlFlow;

use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::ledger::Ledger;
use tidegate_core::units::Time;
use tidegate_core::usage::Total;

use super::Accounts;
use super::history::{Bucket, History, Resolution};
use super::recent::Recent;
use super::waited::RecentWaits;
use crate::definitions::catalog::Catalog;
use crate::name::GroupName;
use crate::store::records::{
    NOBODY, bad, consumption, consumption_bytes, group_of, ledger_key, pair_key, pair_of, retired_key,
    retired_of,
};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

/// Changes that are being stored.
#[derive(Default)]
pub(crate) struct Taken {
    rows: Vec<(ClientId, GroupId, Total)>,
    /// Parts of rows that are counted apart.
    apart: Vec<(ClientId, GroupId, Total)>,
    history: BTreeMap<Bucket, Total>,
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.history.is_empty()
    }

    pub(crate) fn rows(&self, batch: &mut Batch) {
        for (client, group, total) in &self.rows {
            batch.push(Write::Put(Table::Ledger, ledger_key(*client, *group), consumption_bytes(total)));
        }
        for (client, group, apart) in &self.apart {
            batch.push(Write::Put(Table::Apart, ledger_key(*client, *group), consumption_bytes(apart)));
        }
        for (bucket, amount) in &self.history {
            let key = pair_key(bucket.start_unix_s, bucket.group);
            batch.push(Write::Put(bucket.resolution.table(), key, consumption_bytes(amount)));
        }
    }
}

impl Accounts {
    /// Loads consumption from the store.
    pub(crate) fn load(
        now: Time,
        unix_s: u64,
        store: &dyn Store,
        catalog: &Catalog,
    ) -> Result<Self, StoreError> {
        let (ledger, charged) = load_ledger(now, store, catalog)?;
        let (history, recent) = load_history(store, unix_s)?;
        Ok(Self {
            ledger,
            charged,
            live: BTreeMap::new(),
            live_clients: BTreeMap::new(),
            history,
            recent,
            waits: RecentWaits::default(),
            said_apart: None,
        })
    }

    /// Returns the changes to store.
    pub(crate) fn take(&mut self, unix_s: u64) -> Taken {
        // In the order of the keys, so that neighbours go to the same page.
        let mut rows = self.ledger.take_dirty();
        rows.sort_unstable_by_key(|(client, group, _)| (*client, *group));
        let apart = rows.iter().filter_map(|(client, group, _)| {
            Some((*client, *group, *self.ledger.apart_of(*client, *group)?))
        });
        let apart = apart.collect();
        let history = self.history.take_dirty();
        self.recent.see(unix_s, &history);
        Taken { apart, rows, history }
    }

    /// Takes changes back that could not be stored; the next call of `take` returns them.
    pub(crate) fn not_stored(&mut self, taken: Taken) {
        self.ledger.mark_dirty(taken.rows.iter().map(|(client, group, _)| (*client, *group)));
        self.history.mark_dirty(taken.history);
    }

    /// Writes how far each client of a removed group was counted, in place of its rows; returns these clients. Writes
    /// to a table stand together: the store opens it once for all of them.
    pub(crate) fn retire(&self, id: GroupId, name: &GroupName, batch: &mut Batch) -> Vec<ClientId> {
        let reported = || self.ledger.reported(id);
        batch.extend(reported().map(|(client, _)| Write::Delete(Table::Ledger, ledger_key(client, id))));
        // The folded part of it has no client.
        let apart = once(NOBODY).chain(reported().map(|(client, _)| client));
        batch.extend(apart.map(|client| Write::Delete(Table::Apart, ledger_key(client, id))));
        batch.extend(reported().map(|(client, total)| {
            Write::Put(Table::Retired, retired_key(name, client), consumption_bytes(total))
        }));
        reported().map(|(client, _)| client).collect()
    }
}

/// Loads the ledger, and the groups in it.
fn load_ledger(
    now: Time,
    store: &dyn Store,
    catalog: &Catalog,
) -> Result<(Ledger, BTreeSet<GroupId>), StoreError> {
    let mut folded: Vec<(GroupId, Total)> = Vec::new();
    each(store, Table::Folded, |key, value| {
        let (group, total) = (group_of(Table::Folded, key)?, consumption(Table::Folded, value)?);
        if catalog.get(group).is_some() {
            folded.push((group, total));
        }
        Ok(())
    })?;
    let mut before: Vec<(ClientId, GroupId, Total)> = Vec::new();
    each(store, Table::Retired, |key, value| {
        let ((name, client), total) = (retired_of(key)?, consumption(Table::Retired, value)?);
        before.extend(catalog.id(&name).map(|group| (client, group, total)));
        Ok(())
    })?;
    let less = |_| bad(Table::Ledger, "a row has less than was counted before its group");
    let mut ledger = Ledger::load(now, folded.into_iter(), before.into_iter(), empty()).map_err(less)?;
    each(store, Table::Ledger, |key, value| {
        let ((client, group), total) = (pair_of(Table::Ledger, key)?, consumption(Table::Ledger, value)?);
        // Rows of other groups were stored while their group was being deleted.
        match catalog.get(group) {
            Some(_) => ledger.load_row(now, ClientId(client), group, &total).map_err(less),
            None => Ok(()),
        }
    })?;
    let charged = ledger.groups().collect();
    each(store, Table::Apart, |key, value| {
        let ((client, group), apart) = (pair_of(Table::Apart, key)?, consumption(Table::Apart, value)?);
        let client = Some(ClientId(client)).filter(|client| *client != NOBODY);
        if catalog.get(group).is_none() {
            return Ok(());
        }
        let loaded = ledger.load_apart(client, group, &apart);
        loaded.map_err(|_| bad(Table::Apart, "a row has more than was reported"))
    })?;
    Ok((ledger, charged))
}

/// Loads the buckets that are still open.
fn load_history(store: &dyn Store, unix_s: u64) -> Result<(History, Recent), StoreError> {
    let (mut history, mut recent) = (History::default(), Recent::default());
    for resolution in Resolution::ALL {
        let table = resolution.table();
        let from = pair_key(resolution.start(unix_s), GroupId::ROOT);
        let mut visit = |key: &[u8], value: &[u8]| {
            let (start_unix_s, group) = pair_of(table, key)?;
            let bucket = Bucket { resolution, start_unix_s, group };
            let amount = consumption(table, value)?;
            recent.resume(&bucket, &amount);
            history.resume(bucket, amount);
            Ok(ControlFlow::Continue(()))
        };
        store.scan(table, &from, &mut visit)?;
    }
    Ok((history, recent))
}
