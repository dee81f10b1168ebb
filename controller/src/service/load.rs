//! Building the service from what the store holds, after a first, a clean or an unclean start.
//!
//! A clean start takes up the saved leases under the same epoch, if the mark of the stop is good for this very file: a
//! copy of it is not clean. An unclean one raises the epoch and recovers until
//! every lease that may be out has ended. The clean mark is removed before anything is granted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tidegate_core::GroupError;
use tidegate_core::engine::Engine;
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Span, Time};
use tidegate_core::view::Snapshot;
use tokio::sync::{broadcast, watch as flag};

use super::meta::{Meta, countable, possible};
use crate::accounts::Accounts;
use crate::clock::Clock;
use crate::definitions::audit::Audit;
use crate::definitions::bindings::{Bindings, Principal};
use crate::definitions::catalog::Catalog;
use crate::definitions::cost_tables::CostTables;
use crate::definitions::definition::Definition;
use crate::leasing::clients::Clients;
use crate::leasing::fence::Fence;
use crate::leasing::lag::Shed;
use crate::leasing::lineage::Lineage;
use crate::leasing::longest::Longest;
use crate::leasing::proof::{KEY_BYTES, Prover};
use crate::leasing::rivals::Rivals;
use crate::limits::WATCH_QUEUE;
use crate::metrics::Metrics;
use crate::name::GroupName;
use crate::service::{Service, ServiceConfig, State};
use crate::statements::{Convictions, Statements};
use crate::store::records::{
    META_CLEAN, META_COST_ROLES, META_EPOCH, META_FENCE, META_LINEAGE, META_LONGEST_TTL, META_NEXT_CLIENT,
    META_NEXT_GROUP, META_PROOF_KEY, META_REVISION, SavedLeases, StoredBinding, StoredGroup, bad, group_of,
    group_row, json, number, pair_of, put_json, put_number, tombstone_of, u64_of,
};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

impl Service {
    /// Loads the store, which must be open and of the right format. `clock` shows about zero.
    pub fn load(store: Arc<dyn Store>, config: ServiceConfig, clock: Clock) -> Result<Self, StoreError> {
        let now = clock.now();
        let meta = Meta::load(&*store)?;
        let first = meta.is_new()?;
        // Whatever follows, no other start will find it.
        let seal = store.break_seal()?;
        let clean = meta.saved()?.filter(|saved| saved.is_good(seal.as_deref(), clock.unix_ms()));
        let epoch = meta.number(META_EPOCH)?.unwrap_or(0) + u64::from(clean.is_none());
        let instance = rand::random::<u64>().max(1);
        let revision = meta.number(META_REVISION)?.unwrap_or(1);
        let mut lineage: Lineage =
            meta.get(META_LINEAGE).map_or_else(|| Ok(Lineage::default()), |row| json(Table::Meta, row))?;
        lineage.begin(instance, revision);

        let (key, fresh_key) = proof_key(&meta)?;
        let mut first_batch =
            vec![put_number(META_EPOCH, epoch), Write::Delete(Table::Meta, META_CLEAN.to_vec())];
        first_batch.push(put_json(Table::Meta, META_LINEAGE.to_vec(), &lineage)?);
        first_batch.extend(fresh_key);
        let (catalog, stored) = load_catalog(&*store, &meta, config, &mut first_batch)?;
        let costs = load_costs(&*store, &meta, first, &mut first_batch)?;
        let before = match &clean {
            Some(saved) => saved.longest(),
            None => meta.longest_ttl()?,
        };
        let longest_now = catalog.iter().map(|(_, definition)| definition.ttl).max().unwrap_or(Span(0));
        let longest_ttl = longest_now.max(before);
        first_batch.push(put_number(META_LONGEST_TTL, longest_ttl.0));
        let out = leases_out(&catalog, clean.as_ref(), &stored, before);
        for (id, definition) in catalog.iter() {
            let longest = out.get(&id).copied().unwrap_or(definition.ttl);
            if stored.get(&id) != Some(&longest) {
                first_batch.push(group_row(id, definition, longest)?);
            }
        }
        // After a clean stop no predecessor grants any more.
        let fence_before = if clean.is_none() { meta.fence()? } else { Span(0) };
        // Whoever starts after this one may have that predecessor, too: only a clean stop lets the stored fence shrink.
        let fence_stored = fence_before.max(config.fence.unwrap_or_default());
        first_batch.push(put_number(META_FENCE, fence_stored.0));

        let began_clean = clean.is_some();
        let mut engine = build_engine(now, config, &catalog)?;
        let ended = |ttl: Span| now.after(config.engine.longest_use(ttl + fence_before));
        let mut longest = Longest::default();
        longest.remember(GroupId::ROOT, longest_ttl, ended(longest_ttl));
        out.iter().for_each(|(id, ttl)| longest.remember(*id, *ttl, ended(*ttl)));
        match clean {
            Some(saved) => {
                let all = saved.recovery_of_all();
                engine.restore(now, &Snapshot::from(saved));
                if all > Span(0) {
                    engine.recover_until(now.after(all));
                }
            }
            None if first => {}
            None => {
                engine.recover_group_until(GroupId::ROOT, ended(longest_ttl));
                out.iter().for_each(|(id, ttl)| engine.recover_group_until(*id, ended(*ttl)));
            }
        }
        load_parts(now, &*store, &mut engine, &mut first_batch)?;
        let predecessor_until = match fence_before {
            Span(0) => now,
            span => now.after(config.engine.longest_use(span)),
        };
        store.commit(&first_batch)?;
        let state = State {
            active: engine_groups(&catalog, &engine),
            engine,
            bindings: Arc::new(load_bindings(&*store, &catalog)?),
            accounts: Accounts::load(now, clock.unix_ms() / 1_000, &*store, &catalog)?,
            convictions: Convictions::load(&*store, &meta, &catalog)?,
            catalog,
            costs: Arc::new(costs),
            clients: load_clients(&*store, &meta, clock.unix_ms())?,
            sessions: BTreeMap::new(),
            next_session: 0,
            unstored: BTreeMap::new(),
            audit: Audit::new(next_audit_id(&*store)?),
            revision,
            epoch,
            lineage,
            rivals: Rivals::new(instance, clock.unix_ms()),
            is_new: first,
            began_clean,
            set_back: None,
            longest_ttl,
            shed: Shed::default(),
            longest,
            fence: Fence::new(now, config.fence, fence_stored, predecessor_until),
        };
        tracing::info!(epoch, first, recovery = %state.recovery(&clock), "store loaded");
        Ok(Self::assemble(store, clock, instance, Prover::new(&key), state))
    }

    fn assemble(store: Arc<dyn Store>, clock: Clock, instance: u64, prover: Prover, state: State) -> Self {
        let metrics = Arc::new(Metrics::new());
        metrics.epoch.set(i64::try_from(state.epoch).unwrap_or(i64::MAX));
        let statements = Statements::new(clock.unix_ms());
        let service = Self {
            state: Mutex::new(state),
            changes: Mutex::new(()),
            flushing: Mutex::default(),
            backing_up: Mutex::new(()),
            pruned: Mutex::default(),
            store,
            clock,
            prover,
            instance,
            events: broadcast::Sender::new(WATCH_QUEUE),
            rules: flag::Sender::new(0),
            statistics: Mutex::new(statements),
            metrics,
        };
        service.definitions().count_definitions(&service.lock());
        service
    }
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

fn load_catalog(
    store: &dyn Store,
    meta: &Meta,
    config: ServiceConfig,
    first_batch: &mut Batch,
) -> Result<(Catalog, BTreeMap<GroupId, Span>), StoreError> {
    let next_id = meta.number(META_NEXT_GROUP)?.unwrap_or(0);
    let next_id =
        u32::try_from(next_id).map_err(|_| bad(Table::Meta, "the next group id is out of range"))?;
    let mut definitions: Vec<(GroupId, Definition)> = Vec::new();
    let mut longest = BTreeMap::new();
    let default = Definition::default_group();
    each(store, Table::Groups, |key, value| {
        let (id, stored): (GroupId, StoredGroup) =
            (group_of(Table::Groups, key)?, json(Table::Groups, value)?);
        let definition =
            Definition::parse(&stored.group).map_err(|error| bad(Table::Groups, &error.to_string()))?;
        let name = &definition.name;
        if stored.id != id.0 || id == GroupId::ROOT || (id == GroupId::DEFAULT) != (*name == default.name) {
            return Err(bad(Table::Groups, &format!("group {name} has the id of another")));
        }
        if let Some(us) = stored.longest_ttl_us {
            longest.insert(id, possible(Table::Groups, us, "a lease")?);
        }
        definitions.push((id, definition));
        Ok(())
    })?;
    if definitions.iter().all(|(id, _)| *id != GroupId::DEFAULT) {
        first_batch.push(group_row(GroupId::DEFAULT, &default, default.ttl)?);
        longest.insert(GroupId::DEFAULT, default.ttl);
        definitions.push((GroupId::DEFAULT, default));
    }
    let catalog = Catalog::load(config.capacity, next_id, definitions);
    Ok((catalog.map_err(|reason| bad(Table::Groups, &reason))?, longest))
}

/// How long leases may be out at a start, by group. `before` counts for groups of which an earlier version has not
/// stored it.
fn leases_out(
    catalog: &Catalog,
    clean: Option<&SavedLeases>,
    stored: &BTreeMap<GroupId, Span>,
    before: Span,
) -> BTreeMap<GroupId, Span> {
    let left = clean.map(|saved| (saved.left(), saved.recovery_of_all()));
    let out = catalog.iter().map(|(id, definition)| {
        let out = match &left {
            Some((left, all)) => left.get(&id).copied().unwrap_or_default().max(*all),
            None => stored.get(&id).copied().unwrap_or(before),
        };
        (id, out.max(definition.ttl))
    });
    out.collect()
}

fn load_costs(
    store: &dyn Store,
    meta: &Meta,
    first: bool,
    first_batch: &mut Batch,
) -> Result<CostTables, StoreError> {
    let mut tables = Vec::new();
    each(store, Table::CostTables, |_, value| {
        tables.push(json(Table::CostTables, value)?);
        Ok(())
    })?;
    if first && tables.is_empty() {
        let costs = CostTables::first();
        for table in costs.all() {
            first_batch.push(put_json(Table::CostTables, table.to_string().into_bytes(), table)?);
        }
        first_batch.push(put_json(Table::Meta, META_COST_ROLES.to_vec(), costs.roles())?);
        return Ok(costs);
    }
    let roles = meta.get(META_COST_ROLES);
    let roles = roles.ok_or_else(|| bad(Table::Meta, "which cost table is in use is missing"))?;
    let costs = CostTables::load(tables, json(Table::Meta, roles)?);
    costs.ok_or_else(|| bad(Table::CostTables, "the table that is in use is missing"))
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
    if placed != catalog.len() {
        return Err(bad(Table::Groups, "some groups are above themselves"));
    }
    Ok(engine)
}

/// Puts a group into the engine, and then those below it; how many.
fn place(now: Time, engine: &mut Engine, catalog: &Catalog, id: GroupId) -> Result<usize, GroupError> {
    let Some(definition) = catalog.get(id) else { return Ok(0) };
    engine.put_group(now, id, definition.spec(catalog.parent(id)))?;
    catalog.children(id).try_fold(1, |placed, child| Ok(placed + place(now, engine, catalog, child)?))
}

/// Parts of fallbacks that nodes may be using. Those of groups that are gone go, too.
fn load_parts(
    now: Time,
    store: &dyn Store,
    engine: &mut Engine,
    first_batch: &mut Batch,
) -> Result<(), StoreError> {
    each(store, Table::Parts, |key, value| {
        let ((client, group), rate) = (pair_of(Table::Parts, key)?, number(value)?);
        let rate = i64::try_from(rate).ok().map(Rate).filter(|rate| *rate <= Rate::MAX);
        let rate = rate.ok_or_else(|| bad(Table::Parts, "the part is more than any can be"))?;
        if engine.group_view(group).is_some() {
            engine.load_part(now, group, ClientId(client), rate);
        } else {
            first_batch.push(Write::Delete(Table::Parts, key.to_vec()));
        }
        Ok(())
    })
}

/// Groups with restored leases.
fn engine_groups(catalog: &Catalog, engine: &Engine) -> BTreeSet<GroupId> {
    let leased = |id: &GroupId| engine.group_view(*id).is_some_and(|view| view.leases > 0);
    catalog.iter().map(|(id, _)| id).filter(leased).collect()
}

fn load_bindings(store: &dyn Store, catalog: &Catalog) -> Result<Bindings, StoreError> {
    let mut bindings = Bindings::default();
    each(store, Table::Bindings, |key, value| {
        let stored: StoredBinding = json(Table::Bindings, value)?;
        let (tenant, user) = (stored.principal.tenant(), stored.principal.user());
        if stored.principal.key() != key
            || !Principal::parse(tenant, user).is_ok_and(|p| p == stored.principal)
        {
            return Err(bad(
                Table::Bindings,
                &format!("the binding of {} has the key of another", stored.principal),
            ));
        }
        let group =
            GroupName::parse(&stored.group).map_err(|error| bad(Table::Bindings, &error.to_string()))?;
        if catalog.id(&group).is_none() {
            return Err(bad(
                Table::Bindings,
                &format!("{} is bound to {group}, which is missing", stored.principal),
            ));
        }
        bindings.bind(stored.principal, group);
        Ok(())
    })?;
    Ok(bindings)
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

fn next_audit_id(store: &dyn Store) -> Result<u64, StoreError> {
    let mut newest = 0;
    each(store, Table::Audit, |key, _| {
        newest = countable(Table::Audit, u64_of(Table::Audit, key)?)?;
        Ok(())
    })?;
    Ok(newest + 1)
}
