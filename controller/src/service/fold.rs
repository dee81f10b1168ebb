//! Folding: the consumption of incarnations that are silent for long joins the totals of their groups.
//!
//! The tombstone goes into memory first, so that nothing more is counted for a folded incarnation; what was counted is
//! flushed; then rows, totals and tombstone change in one transaction. A failed transaction is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::PoisonError;

use tidegate_core::group::{ClientId, GroupId};

use super::Service;
use super::load::each;
use crate::store::records::{
    consumption, consumption_bytes, group_key, ledger_key, pair_key, pair_of, put_number_in, retired_of,
    u64_key,
};
use crate::store::{Batch, StoreError, Table, Write};

/// Incarnations that report no more and whose rows are still apart.
#[derive(Debug, Default)]
pub(super) struct Folding {
    tombstones: BTreeMap<String, u64>,
    clients: BTreeSet<ClientId>,
}

impl Service {
    /// Folds at most one batch of incarnations.
    pub(super) fn fold(&self) -> Result<(), StoreError> {
        let mut folding = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.lock();
            for id in state.clients.foldable(self.clock.unix_ms()) {
                if let Some((name, oldest, ids)) = state.clients.fold(id) {
                    folding.tombstones.insert(name, oldest);
                    folding.clients.extend(ids);
                }
            }
        }
        if folding.clients.is_empty() {
            return Ok(());
        }
        self.flush_alone()?;
        let batch = self.folded(&folding)?;
        self.commit(&batch)?;
        let folded = std::mem::take(&mut *folding);
        tracing::info!(incarnations = folded.clients.len(), "folded the consumption of silent nodes");
        self.lock().ledger.forget(&folded.clients);
        Ok(())
    }

    /// The transaction that folds.
    fn folded(&self, folding: &Folding) -> Result<Batch, StoreError> {
        let mut batch = Batch::new();
        for client in &folding.clients {
            let mut visit = |key: &[u8], _: &[u8]| {
                let (holder, group) = pair_of(Table::Ledger, key)?;
                if holder != client.0 {
                    return Ok(ControlFlow::Break(()));
                }
                batch.push(Write::Delete(Table::Ledger, ledger_key(*client, group)));
                Ok(ControlFlow::Continue(()))
            };
            self.store.scan(Table::Ledger, &pair_key(client.0, GroupId::ROOT), &mut visit)?;
            batch.push(Write::Delete(Table::Clients, u64_key(client.0)));
        }
        each(&*self.store, Table::Retired, |key, _| {
            let (_, client) = retired_of(key)?;
            if folding.clients.contains(&client) {
                batch.push(Write::Delete(Table::Retired, key.to_vec()));
            }
            Ok(())
        })?;
        // Everything they reported is stored: what is in memory is what is on disk.
        let sums = self.lock().ledger.charged_by(&folding.clients);
        let keys: Vec<_> = sums.keys().map(|group| group_key(*group)).collect();
        let before = self.store.get(Table::Folded, &keys)?;
        for ((group, sum), before) in sums.into_iter().zip(before) {
            let before = before.map(|bytes| consumption(Table::Folded, &bytes)).transpose()?;
            let after = before.unwrap_or_default().plus(&sum);
            batch.push(Write::Put(Table::Folded, group_key(group), consumption_bytes(&after)));
        }
        for (name, oldest) in &folding.tombstones {
            batch.push(put_number_in(Table::Tombstones, name.as_bytes(), *oldest));
        }
        Ok(batch)
    }
}
