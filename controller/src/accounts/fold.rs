//! Folding: the consumption of incarnations that were silent for long, or that an operator forgets, joins the totals of
//! their groups.
//!
//! First the tombstone goes into memory, so that nothing more is counted for a folded incarnation. Then what was
//! counted is flushed. Then rows, totals and tombstone change in one transaction, which is repeated if it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Span, Time};
use tidegate_core::usage::Total;

use crate::accounts::{AccountCalls, Upkeep};
use crate::clock::Clock;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::error::{AdminError, InField};
use crate::leasing::Leasing;
use crate::leasing::clients::Tombstone;
use crate::limits::{HEARD_EVERY_MS, MAX_FOLDED_AHEAD, MAX_FORGOTTEN};
use crate::name::client_id;
use crate::store::records::{
    NOBODY, consumption, consumption_bytes, group_key, ledger_key, pair_key, pair_of, put_tombstone,
    retired_of, tombstone_of, u64_key,
};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

/// Silence after which a node may be forgotten: the longest possible lease. A node that runs renews more often; one
/// that is cut off for longer has no lease, and what it has not reported by then is refused when it comes back. At
/// half, a lease could still be in use; at twice, an operator would wait for nothing.
const FORGET_AFTER: Span = Span::secs(60);

/// Incarnations that report no more and whose rows are not folded yet.
#[derive(Debug, Default)]
pub(crate) struct Folding {
    tombstones: BTreeSet<(String, Tombstone)>,
    clients: BTreeSet<ClientId>,
}

impl AccountCalls<'_> {
    /// Forgets nodes, all or none: their charges join the totals, and their late reports are refused. Returns the
    /// number of incarnations of each.
    ///
    /// # Errors
    /// A node is connected, was heard within a minute, has a lease, or is not known.
    pub fn forget_clients(&self, actor: &Actor, names: &[String]) -> Result<Vec<usize>, AdminError> {
        if names.len() > MAX_FORGOTTEN {
            let many = format!("{} clients are too many at once: at most {MAX_FORGOTTEN}", names.len());
            return Err(AdminError::invalid("clients", many));
        }
        let field = if names.len() == 1 { "client" } else { "clients" };
        let names: Vec<String> =
            names.iter().map(|name| client_id(name).in_field(field)).collect::<Result<_, _>>()?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(AdminError::invalid("clients", format!("client {twice} is named twice")));
        }
        let counts = self.service.definitions().change(actor, |state| {
            let counts = all_may_forget(&state.leasing, &names, self.service.clock())?;
            let note = |(name, incarnations): (&String, &usize)| Change {
                action: "forget client",
                subject: format!("client {name}"),
                before: format!("{{\"incarnations\":{incarnations}}}"),
                ..Change::default()
            };
            let changes = names.iter().zip(&counts).map(note).collect();
            Ok(Plan { edits: vec![Edit::Note], changes, reply: counts })
        })?;
        let mut folding = self.service.flushing();
        {
            let mut state = self.service.lock();
            // Nodes may have come back, or have been folded, while the note was written.
            all_may_forget(&state.leasing, &names, self.service.clock())?;
            for name in names {
                let Some((tombstones, ids)) =
                    state.leasing.clients_mut().forget(&name, self.service.clock().unix_ms())
                else {
                    return Err(no_room(&name));
                };
                folding.tombstones.extend(tombstones.into_iter().map(|tombstone| (name.clone(), tombstone)));
                folding.clients.extend(ids);
            }
        }
        self.service.upkeep().settle(&mut folding)?;
        Ok(counts)
    }
}

impl Upkeep<'_> {
    /// Folds at most one batch of incarnations.
    pub(crate) fn fold(&self) -> Result<(), StoreError> {
        let mut folding = self.service.flushing();
        {
            let mut state = self.service.lock();
            let unix_ms = self.service.clock().unix_ms();
            for id in state.leasing.clients().foldable(unix_ms) {
                if let Some((name, tombstone, ids)) = state.leasing.clients_mut().fold(id, unix_ms) {
                    folding.tombstones.insert((name, tombstone));
                    folding.clients.extend(ids);
                }
            }
        }
        self.settle(&mut folding)
    }

    /// Stores what is being folded. The next call repeats what failed.
    fn settle(&self, folding: &mut Folding) -> Result<(), StoreError> {
        if folding.clients.is_empty() {
            return Ok(());
        }
        self.flush_alone()?;
        let batch = self.folded(folding)?;
        self.service.commit(&batch)?;
        let folded = std::mem::take(folding);
        tracing::info!(incarnations = folded.clients.len(), "folded the consumption of silent nodes");
        let mut state = self.service.lock();
        state.accounts.ledger.forget(&folded.clients);
        state.leasing.clients_mut().left(&folded.clients);
        Ok(())
    }

    /// Returns writes that add sums to rows of groups.
    fn add_to(
        &self,
        table: Table,
        key: impl Fn(GroupId) -> Vec<u8>,
        sums: BTreeMap<GroupId, Total>,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let keys: Vec<_> = sums.keys().map(|group| key(*group)).collect();
        let before = self.service.store().get(table, &keys)?;
        for ((group, sum), before) in sums.into_iter().zip(before) {
            let before = before.map(|bytes| consumption(table, &bytes)).transpose()?;
            let after = before.unwrap_or_default().plus(&sum);
            batch.push(Write::Put(table, key(group), consumption_bytes(&after)));
        }
        Ok(())
    }

    /// Returns the transaction that folds.
    fn folded(&self, folding: &Folding) -> Result<Batch, StoreError> {
        let (mut batch, mut apart) = (Batch::new(), Batch::new());
        // Those of a fold that was told to have failed, and is on disk, have no rows there: the sums have them.
        let mut counted = BTreeSet::new();
        for client in &folding.clients {
            let mut visit = |key: &[u8], _: &[u8]| {
                let (holder, group) = pair_of(Table::Ledger, key)?;
                if holder != client.0 {
                    return Ok(ControlFlow::Break(()));
                }
                counted.insert(*client);
                batch.push(Write::Delete(Table::Ledger, ledger_key(*client, group)));
                apart.push(Write::Delete(Table::Apart, ledger_key(*client, group)));
                Ok(ControlFlow::Continue(()))
            };
            self.service.store().scan(Table::Ledger, &pair_key(client.0, GroupId::ROOT), &mut visit)?;
            batch.push(Write::Delete(Table::Clients, u64_key(client.0)));
        }
        each(self.service.store(), Table::Retired, |key, _| {
            let (_, client) = retired_of(key)?;
            if folding.clients.contains(&client) {
                batch.push(Write::Delete(Table::Retired, key.to_vec()));
            }
            Ok(())
        })?;
        // All their reports are stored, so memory and disk have the same rows of these.
        let (sums, sums_apart) = {
            let ledger = &self.service.lock().accounts.ledger;
            (ledger.charged_by(&counted), ledger.apart_by(&counted))
        };
        self.add_to(Table::Folded, group_key, sums, &mut batch)?;
        batch.append(&mut apart);
        self.add_to(Table::Apart, |group| ledger_key(NOBODY, group), sums_apart, &mut batch)?;
        outdated(self.service.store(), folding, &mut batch)?;
        // In ascending order, so that the highest incarnation below which all are folded comes last.
        batch.extend(folding.tombstones.iter().map(|(name, tombstone)| put_tombstone(name, *tombstone)));
        Ok(batch)
    }
}

/// Removes tombstones of single incarnations that those of all below refuse, too.
fn outdated(store: &dyn Store, folding: &Folding, batch: &mut Batch) -> Result<(), StoreError> {
    for (name, tombstone) in &folding.tombstones {
        let Tombstone::Below(oldest) = tombstone else { continue };
        let from = [name.as_bytes(), b"\0"].concat();
        store.scan(Table::Tombstones, &from, &mut |key, value| {
            let (of, tombstone) = tombstone_of(key, value)?;
            let Tombstone::Only(number) = tombstone else { return Ok(ControlFlow::Break(())) };
            if of != *name || number >= *oldest {
                return Ok(ControlFlow::Break(()));
            }
            batch.push(Write::Delete(Table::Tombstones, key.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(())
}

fn no_room(name: &str) -> AdminError {
    let message = format!(
        "{MAX_FOLDED_AHEAD} starts of client {name} that were ahead of the clock are shut out already, which is the limit; \
         give the node another id"
    );
    AdminError::Refused { message }
}

/// Returns the number of incarnations of each node, if none of them may report any more.
fn all_may_forget(leasing: &Leasing, names: &[String], clock: &Clock) -> Result<Vec<usize>, AdminError> {
    let (now, unix_ms) = (clock.now(), clock.unix_ms());
    let wanted: BTreeSet<ClientId> =
        names.iter().flat_map(|name| leasing.clients().of(name)).map(|(id, _)| id).collect();
    let mut ends: BTreeMap<ClientId, Time> = BTreeMap::new();
    for lease in leasing.leases().filter(|lease| wanted.contains(&lease.client)) {
        let end = ends.entry(lease.client).or_default();
        *end = lease.expires.max(*end);
    }
    let of_node = |name: &String| {
        let mut count = 0;
        for (id, known) in leasing.clients().of(name) {
            count += 1;
            let silent = match known.heard {
                Some(heard) => now.since(heard),
                // This run of the controller has not heard it; the one before may have later than it wrote down.
                None => {
                    let stored = known.heard_unix_ms.saturating_add(HEARD_EVERY_MS);
                    Span(unix_ms.saturating_sub(stored).saturating_mul(1_000)).max(now.since(Time(0)))
                }
            };
            let lease = ends.get(&id).map(|end| end.since(now)).unwrap_or_default();
            may_forget(name, known.connected, silent, lease)?;
        }
        if count == 0 {
            return Err(AdminError::NotFound { what: format!("client {name}") });
        }
        if leasing.clients().has_room_to_forget(name, unix_ms) { Ok(count) } else { Err(no_room(name)) }
    };
    names.iter().map(of_node).collect()
}

/// Whether an incarnation may report no more, and has no lease.
fn may_forget(name: &str, connected: bool, silent: Span, lease: Span) -> Result<(), AdminError> {
    let refused = |message: String| Err(AdminError::Refused { message });
    if connected {
        return refused(format!("client {name} is connected; stop the node, and repeat this a minute later"));
    }
    let wait = Span(FORGET_AFTER.0.saturating_sub(silent.0)).max(lease);
    if wait > Span(0) {
        return refused(format!(
            "client {name} was heard {silent} ago and may still report or use a lease; stop the node, and repeat this in \
             {wait}"
        ));
    }
    Ok(())
}
