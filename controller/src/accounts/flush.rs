//! Bringing consumption to disk: rows of the ledger, history and signs of life in one transaction, and with them what
//! gateways convicted.
//!
//! Rows are cumulative and history amounts absolute, so that a failed commit is simply tried again with newer values. A
//! renewal's number becomes durable when everything that was counted up to it is stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Rate, Time};
use tidegate_core::usage::Total;

use crate::accounts::AccountCalls;
use crate::accounts::history::Bucket;
use crate::leasing::LeasingCalls;
use crate::leasing::clients::StoredClient;
use crate::limits::HEARD_EVERY_MS;
use crate::service::State;
use crate::statements::runaways::Runaway;
use crate::statements::watches::Watch;
use crate::store::records::{
    META_NEXT_CLIENT, META_NEXT_WATCH, consumption_bytes, ledger_key, pair_key, put_json, put_number, u64_key,
};
use crate::store::{Batch, StoreError, Table, Write};

/// What is on its way to disk.
#[derive(Default)]
struct Taken {
    rows: Vec<(ClientId, GroupId, Total)>,
    /// What is counted apart of rows.
    apart: Vec<(ClientId, GroupId, Total)>,
    history: BTreeMap<Bucket, Total>,
    seqs: BTreeMap<ClientId, (u64, u64)>,
    clients: Vec<(ClientId, StoredClient)>,
    next_client: u64,
    /// `None` is to be removed.
    watches: BTreeMap<u64, Option<Arc<Watch>>>,
    next_watch: u64,
    runaways: BTreeMap<u64, Option<Arc<Runaway>>>,
    /// Zero is to be removed.
    parts: Vec<(ClientId, GroupId, Rate)>,
}

impl AccountCalls<'_> {
    /// Stores everything counted so far. An error leaves it to the next call.
    pub fn flush(&self) -> Result<(), StoreError> {
        // One at a time: a later commit must not be overtaken by an earlier one.
        let _alone = self.service.flushing();
        let flushed = self.flush_alone();
        self.service.leasing().tell_silence();
        flushed.and_then(|()| self.service.leasing().forget_longer())
    }

    /// The same, for callers that hold `flushing`.
    pub(crate) fn flush_alone(&self) -> Result<(), StoreError> {
        let (taken, beat) = {
            let mut state = self.service.lock();
            (state.take_unstored(self.service.clock().now()), state.fence.beat())
        };
        if taken.is_empty() && beat.is_none() {
            return Ok(());
        }
        let result = taken.batch().and_then(|mut batch| {
            batch.extend(beat);
            if batch.is_empty() { Ok(()) } else { self.service.commit(&batch) }
        });
        let mut state = self.service.lock();
        match &result {
            Ok(()) => state.stored(taken),
            Err(_) => state.not_stored(taken),
        }
        result
    }

    /// Drops history that is too old and folds incarnations that are silent for long.
    pub fn tidy(&self) -> Result<(), StoreError> {
        self.service.lock().tidy_idle(&self.service.clock());
        let old = {
            let mut pruned = self.service.pruned();
            self.prune(&mut pruned)?
        };
        self.service.commit(&old)?;
        self.fold()
    }
}

impl Taken {
    fn is_empty(&self) -> bool {
        self.seqs.is_empty()
            && self.rows.is_empty()
            && self.history.is_empty()
            && self.watches.is_empty()
            && self.runaways.is_empty()
            && self.parts.is_empty()
    }

    fn batch(&self) -> Result<Batch, StoreError> {
        let mut batch = Batch::new();
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
        for (client, stored) in &self.clients {
            batch.push(put_json(Table::Clients, u64_key(client.0), stored)?);
        }
        if !self.clients.is_empty() {
            batch.push(put_number(META_NEXT_CLIENT, self.next_client));
        }
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
        batch.extend(self.parts.iter().map(|(client, group, rate)| match ledger_key(*client, *group) {
            key if *rate == Rate::ZERO => Write::Delete(Table::Parts, key),
            key => Write::Put(Table::Parts, key, rate.0.to_string().into_bytes()),
        }));
        Ok(batch)
    }
}

fn put_or_delete<T: Serialize>(table: Table, id: u64, row: Option<&T>) -> Result<Write, StoreError> {
    row.map_or_else(|| Ok(Write::Delete(table, u64_key(id))), |row| put_json(table, u64_key(id), row))
}

impl State {
    fn take_unstored(&mut self, now: Time) -> Taken {
        let seqs = std::mem::take(&mut self.unstored);
        let clients = seqs.keys().filter_map(|id| {
            let client = self.clients.get(*id)?;
            let fresh = client
                .stored_unix_ms
                .is_some_and(|stored| client.heard_unix_ms.saturating_sub(stored) < HEARD_EVERY_MS);
            (!fresh).then(|| (*id, client.stored()))
        });
        let clients = clients.collect();
        // In the order of the keys, so that neighbours go to the same page.
        let mut rows = self.ledger.take_dirty();
        rows.sort_unstable_by_key(|(client, group, _)| (*client, *group));
        let apart = rows.iter().filter_map(|(client, group, _)| {
            Some((*client, *group, *self.ledger.apart_of(*client, *group)?))
        });
        Taken {
            apart: apart.collect(),
            clients,
            rows,
            history: self.history.take_dirty(),
            next_client: self.clients.next_id(),
            seqs,
            watches: self.watches.take_dirty(),
            next_watch: self.watches.next_id(),
            runaways: self.runaways.take_dirty(),
            parts: self.engine.take_parts(now),
        }
    }

    fn stored(&mut self, taken: Taken) {
        self.engine.parts_taken(&taken.parts, true);
        for (id, (session, seq)) in taken.seqs {
            if LeasingCalls::is_current(self, id, session)
                && let Some(client) = self.clients.get_mut(id)
            {
                client.durable_seq = client.durable_seq.max(seq);
            }
        }
        for (id, stored) in taken.clients {
            if let Some(client) = self.clients.get_mut(id) {
                client.stored_unix_ms = Some(stored.heard_unix_ms);
            }
        }
    }

    fn not_stored(&mut self, taken: Taken) {
        self.engine.parts_taken(&taken.parts, false);
        self.ledger.mark_dirty(taken.rows.iter().map(|(client, group, _)| (*client, *group)));
        self.history.mark_dirty(taken.history);
        self.watches.mark_dirty(taken.watches.into_keys());
        self.runaways.mark_dirty(taken.runaways.into_keys());
        for (id, seq) in taken.seqs {
            let newest = self.unstored.entry(id).or_insert(seq);
            *newest = seq.max(*newest);
        }
    }
}
