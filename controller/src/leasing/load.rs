//! Leasing after a first, a clean or an unclean start.
//!
//! A clean start resumes the saved leases under the same epoch, if the mark of the stop is valid for this very file: a
//! copy of it is not clean. An unclean one raises the epoch and recovers until every lease that may be out has ended.
//! The clean mark is removed before anything is granted.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::GroupError;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Span, Time};
use tidegate_core::view::Snapshot;

use super::Leasing;
use super::clients::Clients;
use super::fence::Fence;
use super::lag::Shed;
use super::lineage::Lineage;
use super::longest::Longest;
use super::proof::{KEY_BYTES, Prover};
use super::quotas::Quotas;
use super::rivals::Rivals;
use super::succession::Lead;
use crate::clock::Clock;
use crate::definitions::catalog::Catalog;
use crate::definitions::load::Loaded;
use crate::service::meta::{Meta, countable};
use crate::service::{ServiceConfig, Succession};
use crate::store::records::{
    Left, META_CLEAN, META_EPOCH, META_FENCE, META_LINEAGE, META_LONGEST_TTL, META_NEXT_CLIENT,
    META_PROOF_KEY, SavedLeases, bad, group_row, json, number, pair_of, put_json, put_number, tombstone_of,
    u64_of,
};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

/// The input of a start.
pub(crate) struct Start<'a> {
    pub(crate) now: Time,
    pub(crate) store: &'a dyn Store,
    pub(crate) meta: &'a Meta,
    pub(crate) config: ServiceConfig,
    /// The state that the last controller saved, if it stopped cleanly.
    pub(crate) clean: Option<SavedLeases>,
    pub(crate) loaded: &'a Loaded,
    pub(crate) revision: u64,
}

/// A start that is planned: what must be stored before anything is granted is known, and the engine is not built yet.
pub(crate) struct Planned<'a> {
    start: Start<'a>,
    lead: Lead,
    before: Before,
    /// What the store asks of the controller after this one.
    fence_stored: Span,
    parts: Vec<(ClientId, GroupId, Rate)>,
    key: [u8; KEY_BYTES],
}

/// How long earlier leases may be out, and an earlier controller may grant.
struct Before {
    longest_ttl: Span,
    /// By group.
    out: BTreeMap<GroupId, Span>,
    fence: Span,
}

impl<'a> Planned<'a> {
    /// Plans a start; what must be stored before anything is granted joins the first batch.
    pub(crate) fn read(start: Start<'a>, clock: &Clock, first_batch: &mut Batch) -> Result<Self, StoreError> {
        let Start { store, meta, config, loaded, revision, ref clean, .. } = start;
        let instance = config.instance.unwrap_or_else(rand::random).max(1);
        let lead = lead(meta, instance, revision, clean.is_some(), clock)?;
        first_batch.push(put_number(META_EPOCH, lead.epoch));
        first_batch.push(Write::Delete(Table::Meta, META_CLEAN.to_vec()));
        first_batch.push(put_json(Table::Meta, META_LINEAGE.to_vec(), &lead.lineage)?);
        let (key, fresh_key) = proof_key(meta)?;
        first_batch.extend(fresh_key);
        let mut before = before(meta, clean.as_ref(), loaded, config.engine, first_batch)?;
        if config.succession == (Succession::Cluster { silent: true }) {
            before.fence = Span(0);
        }
        // The next controller may have that predecessor, too: only a clean stop lets the stored fence shrink.
        let fence_stored = before.fence.max(config.fence.unwrap_or_default());
        first_batch.push(put_number(META_FENCE, fence_stored.0));
        let parts = parts(store, &loaded.catalog, first_batch)?;
        Ok(Self { start, lead, before, fence_stored, parts, key })
    }

    /// The leases and leadership to begin with.
    pub(crate) fn begin(self, clock: &Clock) -> Result<Leasing, StoreError> {
        let Self { start, lead, before, fence_stored, parts, key } = self;
        let Start { now, store, config, clean, loaded, .. } = start;
        let mut engine = build_engine(now, config, &loaded.catalog)?;
        let ended = |ttl: Span| now.after(config.engine.longest_use(ttl + before.fence));
        let mut longest = Longest::default();
        longest.remember(GroupId::ROOT, before.longest_ttl, ended(before.longest_ttl));
        before.out.iter().for_each(|(id, ttl)| longest.remember(*id, *ttl, ended(*ttl)));
        match clean {
            Some(saved) => {
                let (all, away) = (saved.recovery_of_all(), saved.closed_for(clock.unix_ms()));
                engine.restore(now, &Snapshot { away, ..Snapshot::from(saved) });
                if all > Span(0) {
                    engine.recover_until(now.after(all));
                }
            }
            None if lead.is_new => {}
            None => {
                engine.recover_group_until(GroupId::ROOT, ended(before.longest_ttl));
                before.out.iter().for_each(|(id, ttl)| engine.recover_group_until(*id, ended(*ttl)));
            }
        }
        parts.iter().for_each(|(client, group, rate)| engine.load_part(now, *group, *client, *rate));
        let leased = (now, ended(before.longest_ttl));
        let quotas = Quotas::load(leased, clock.unix_us(), store, &loaded.catalog, &mut engine)?;
        let predecessor_until = match before.fence {
            Span(0) => now,
            span => now.after(config.engine.longest_use(span)),
        };
        let fence = Fence::new(now, config.fence, fence_stored, predecessor_until);
        let fence = if config.succession == Succession::Alone { fence } else { fence.beaten() };
        Ok(Leasing {
            active: engine_groups(&loaded.catalog, &engine),
            engine,
            quotas,
            clients: Clients::default(),
            sessions: BTreeMap::new(),
            next_session: 0,
            unstored: BTreeMap::new(),
            longest_ttl: before.longest_ttl,
            longest,
            lead,
            prover: Prover::new(&key),
            fence,
            shed: Shed::default(),
            uncounted: Shed::default(),
        })
    }
}

impl Leasing {
    /// Loads the known nodes.
    pub(crate) fn load_clients(
        &mut self,
        store: &dyn Store,
        meta: &Meta,
        unix_ms: u64,
    ) -> Result<(), StoreError> {
        self.clients = load_clients(store, meta, unix_ms)?;
        Ok(())
    }
}

fn lead(
    meta: &Meta,
    instance: u64,
    revision: u64,
    began_clean: bool,
    clock: &Clock,
) -> Result<Lead, StoreError> {
    let epoch = meta.number(META_EPOCH)?.unwrap_or(0) + u64::from(!began_clean);
    let mut lineage: Lineage =
        meta.get(META_LINEAGE).map_or_else(|| Ok(Lineage::default()), |row| json(Table::Meta, row))?;
    lineage.begin(instance, revision);
    let rivals = Rivals::new(instance, clock.unix_ms());
    Ok(Lead { instance, epoch, lineage, rivals, is_new: meta.is_new()?, began_clean, set_back: None })
}

fn before(
    meta: &Meta,
    clean: Option<&SavedLeases>,
    loaded: &Loaded,
    clocks: EngineConfig,
    first_batch: &mut Batch,
) -> Result<Before, StoreError> {
    let (catalog, stored) = (&loaded.catalog, &loaded.longest);
    let left = clean.map(SavedLeases::left);
    let before = match &left {
        Some(left) => clocks.length_in_use_for(left.longest()),
        None => meta.longest_ttl()?,
    };
    let longest_now = catalog.iter().map(|(_, definition)| definition.ttl).max().unwrap_or(Span(0));
    let longest_ttl = longest_now.max(before);
    first_batch.push(put_number(META_LONGEST_TTL, longest_ttl.0));
    let out = leases_out(catalog, left.as_ref(), stored, before, clocks);
    for (id, definition) in catalog.iter() {
        let longest = out.get(&id).copied().unwrap_or(definition.ttl);
        if stored.get(&id) != Some(&longest) {
            first_batch.push(group_row(id, definition, longest)?);
        }
    }
    // After a clean stop no predecessor grants any more.
    let fence = if clean.is_none() { meta.fence()? } else { Span(0) };
    Ok(Before { longest_ttl, out, fence })
}

fn proof_key(meta: &Meta) -> Result<([u8; KEY_BYTES], Option<Write>), StoreError> {
    match meta.get(META_PROOF_KEY) {
        Some(stored) => {
            let key = stored
                .as_slice()
                .try_into()
                .map_err(|_| bad(Table::Meta, "the proof key has a wrong length"))?;
            Ok((key, None))
        }
        None => {
            let mut key = [0; KEY_BYTES];
            rand::fill(&mut key);
            Ok((key, Some(Write::Put(Table::Meta, META_PROOF_KEY.to_vec(), key.to_vec()))))
        }
    }
}

/// How long leases may be out at a start, by group. `before` applies to groups without a stored length, from an earlier
/// version.
fn leases_out(
    catalog: &Catalog,
    left: Option<&Left>,
    stored: &BTreeMap<GroupId, Span>,
    before: Span,
    clocks: EngineConfig,
) -> BTreeMap<GroupId, Span> {
    let out = catalog.iter().map(|(id, definition)| {
        let out = match left {
            // As lengths of leases, for which all that may be out is in use: what clocks add to them is added again.
            Some(left) => clocks.length_in_use_for(left.of(id)),
            None => stored.get(&id).copied().unwrap_or(before),
        };
        (id, out.max(definition.ttl))
    });
    out.collect()
}

fn build_engine(now: Time, config: ServiceConfig, catalog: &Catalog) -> Result<Engine, StoreError> {
    let refused = |error| bad(Table::Groups, &format!("the grant engine refused a definition: {error:?}"));
    let mut engine = Engine::new(now, config.engine);
    let root = config.capacity.map_or_else(GroupSpec::unlimited, GroupSpec::capped);
    engine.put_group(now, GroupId::ROOT, root).map_err(refused)?;
    let mut placed = 0;
    for (id, _) in catalog.iter().filter(|(id, _)| catalog.parent(*id).is_none()) {
        placed += place(now, &mut engine, catalog, id).map_err(refused)?;
    }
    if placed != catalog.count() {
        return Err(bad(Table::Groups, "some groups are above themselves"));
    }
    Ok(engine)
}

/// Puts a group into the engine, and then the groups below it; returns their number.
fn place(now: Time, engine: &mut Engine, catalog: &Catalog, id: GroupId) -> Result<usize, GroupError> {
    let Some(definition) = catalog.get(id) else { return Ok(0) };
    engine.put_group(now, id, definition.spec(catalog.parent(id)))?;
    catalog.children(id).try_fold(1, |placed, child| Ok(placed + place(now, engine, catalog, child)?))
}

/// The parts of fallbacks that nodes may be using; those of groups that are gone are removed.
fn parts(
    store: &dyn Store,
    catalog: &Catalog,
    first_batch: &mut Batch,
) -> Result<Vec<(ClientId, GroupId, Rate)>, StoreError> {
    let mut parts = Vec::new();
    each(store, Table::Parts, |key, value| {
        let ((client, group), rate) = (pair_of(Table::Parts, key)?, number(value)?);
        let rate = i64::try_from(rate).ok().map(Rate).filter(|rate| *rate <= Rate::MAX);
        let rate = rate.ok_or_else(|| bad(Table::Parts, "the part is more than any can be"))?;
        if catalog.get(group).is_some() {
            parts.push((ClientId(client), group, rate));
        } else {
            first_batch.push(Write::Delete(Table::Parts, key.to_vec()));
        }
        Ok(())
    })?;
    Ok(parts)
}

/// Groups with restored leases.
fn engine_groups(catalog: &Catalog, engine: &Engine) -> BTreeSet<GroupId> {
    let leased = |id: &GroupId| engine.leases(*id).next().is_some();
    catalog.iter().map(|(id, _)| id).filter(leased).collect()
}

fn load_clients(store: &dyn Store, meta: &Meta, unix_ms: u64) -> Result<Clients, StoreError> {
    let mut clients = Clients::new(meta.number(META_NEXT_CLIENT)?.unwrap_or(1));
    each(store, Table::Clients, |key, value| {
        let id = countable(Table::Clients, u64_of(Table::Clients, key)?)?;
        clients.load(ClientId(id), json(Table::Clients, value)?);
        Ok(())
    })?;
    each(store, Table::Tombstones, |key, value| {
        let (name, tombstone) = tombstone_of(key, value)?;
        clients.load_tombstone(name, tombstone, unix_ms);
        Ok(())
    })?;
    Ok(clients)
}
