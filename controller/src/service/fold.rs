//! Folding: the consumption of incarnations that are silent for long joins the totals of their groups.
//!
//! The tombstone goes into memory first, so that nothing more is counted for a folded incarnation; what was counted is
//! flushed; then rows, totals and tombstone change in one transaction. A failed transaction is tried again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::PoisonError;

use tidegate_core::group::{ClientId, GroupId};

use super::Service;
use super::load::each;
use crate::clients::Tombstone;
use crate::store::records::{
    consumption, consumption_bytes, group_key, ledger_key, pair_key, pair_of, put_tombstone, retired_of,
    u64_key,
};
use crate::store::{Batch, StoreError, Table, Write};

/// Incarnations that report no more and whose rows are still apart.
#[derive(Debug, Default)]
pub(super) struct Folding {
    tombstones: BTreeSet<(String, Tombstone)>,
    clients: BTreeSet<ClientId>,
}

impl Service {
    /// Folds at most one batch of incarnations.
    pub(super) fn fold(&self) -> Result<(), StoreError> {
        let mut folding = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.lock();
            let unix_ms = self.clock.unix_ms();
            for id in state.clients.foldable(unix_ms) {
                if let Some((name, tombstone, ids)) = state.clients.fold(id, unix_ms) {
                    folding.tombstones.insert((name, tombstone));
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
        // In their order, the highest below which all were folded comes last.
        batch.extend(folding.tombstones.iter().map(|(name, tombstone)| put_tombstone(name, *tombstone)));
        Ok(batch)
    }
}
