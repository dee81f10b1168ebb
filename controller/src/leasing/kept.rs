//! State of nodes in the store: signs of life, how far their reports are on disk, and the parts of fallbacks that they
//! may use.

use std::collections::BTreeMap;

use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Rate, Time};

use super::Leasing;
use super::clients::StoredClient;
use super::quotas::Taken as Quotas;
use crate::limits::HEARD_EVERY_MS;
use crate::store::records::{META_NEXT_CLIENT, ledger_key, put_json, put_number, u64_key};
use crate::store::{Batch, StoreError, Table, Write};

/// Changes that are being stored.
pub(crate) struct Taken {
    seqs: BTreeMap<ClientId, (u64, u64)>,
    clients: Vec<(ClientId, StoredClient)>,
    next_client: u64,
    /// Zero removes the row.
    parts: Vec<(ClientId, GroupId, Rate)>,
    quotas: Quotas,
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.seqs.is_empty() && self.parts.is_empty() && self.quotas.is_empty()
    }

    pub(crate) fn rows(&self, batch: &mut Batch) -> Result<(), StoreError> {
        for (client, stored) in &self.clients {
            batch.push(put_json(Table::Clients, u64_key(client.0), stored)?);
        }
        if !self.clients.is_empty() {
            batch.push(put_number(META_NEXT_CLIENT, self.next_client));
        }
        batch.extend(self.parts.iter().map(|(client, group, rate)| match ledger_key(*client, *group) {
            key if *rate == Rate::ZERO => Write::Delete(Table::Parts, key),
            key => Write::Put(Table::Parts, key, rate.0.to_string().into_bytes()),
        }));
        self.quotas.rows(batch)
    }
}

impl Leasing {
    /// Returns the changes to store.
    pub(crate) fn take(&mut self, now: Time, unix_us: u64) -> Taken {
        let quotas = self.quotas.take(&mut self.engine, now, unix_us);
        let seqs = std::mem::take(&mut self.unstored);
        let clients = seqs.keys().filter_map(|id| {
            let client = self.clients.get(*id)?;
            let fresh = client
                .stored_unix_ms
                .is_some_and(|stored| client.heard_unix_ms.saturating_sub(stored) < HEARD_EVERY_MS);
            (!fresh).then(|| (*id, client.stored()))
        });
        let leaving = self.clients.leaving().map(|(id, stored)| (id, stored.clone()));
        Taken {
            clients: clients.chain(leaving).collect(),
            next_client: self.clients.next_id(),
            seqs,
            parts: self.engine.take_parts(now),
            quotas,
        }
    }

    /// Notes that changes are on disk.
    pub(crate) fn stored(&mut self, taken: Taken) {
        self.engine.parts_taken(&taken.parts, true);
        self.quotas.stored(&mut self.engine, taken.quotas);
        for (id, (session, seq)) in taken.seqs {
            if self.is_current(id, session)
                && let Some(client) = self.clients.get_mut(id)
            {
                client.durable_seq = client.durable_seq.max(seq);
            }
        }
        for (id, stored) in taken.clients {
            match self.clients.get_mut(id) {
                Some(client) => client.stored_unix_ms = Some(stored.heard_unix_ms),
                None => self.clients.stored_leaving(id),
            }
        }
    }

    /// Takes changes back that could not be stored; the next call of `take` returns them.
    pub(crate) fn not_stored(&mut self, taken: Taken) {
        self.engine.parts_taken(&taken.parts, false);
        self.quotas.not_stored(taken.quotas);
        for (id, seq) in taken.seqs {
            // What was counted since then is newer.
            self.unstored.entry(id).or_insert(seq);
        }
    }
}
