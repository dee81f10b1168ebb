//! Loading definitions from the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::group::GroupId;
use tidegate_core::units::{Rate, Span};

use super::Definitions;
use super::audit::Audit;
use super::bindings::{Bindings, Principal};
use super::catalog::Catalog;
use super::cost_tables::CostTables;
use super::proposals::Proposals;
use super::rows::Groups;
use crate::name::GroupName;
use crate::service::meta::Meta;
use crate::store::records::{
    META_COST_ROLES, META_NEXT_GROUP, META_REVISION, StoredBinding, bad, json, put_json,
};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

/// What a standby keeps of definitions as they are loaded, beside the rows: what grows with groups and with their history.
#[derive(Debug, PartialEq)]
pub(crate) struct Kept {
    groups: Groups,
    audit: Audit,
}

impl Kept {
    /// Reads all rows.
    ///
    /// # Errors
    /// A row, or what rows say together, is nothing that a controller stores.
    pub(crate) fn read(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self { groups: Groups::read(store)?, audit: Audit::load(store)? })
    }

    /// Number of groups.
    pub(crate) fn count(&self) -> usize {
        self.groups.count()
    }

    /// Whether this is what a store says, unless it has too many groups to compare: for assertions.
    pub(crate) fn is_of(&self, store: &dyn Store) -> bool {
        self.groups.has_many() || Self::read(store).is_ok_and(|read| read == *self)
    }

    /// Takes in a batch that was committed.
    ///
    /// # Errors
    /// As of [`Self::read`], or it does more than a controller does. Then this is of no use any more.
    pub(crate) fn change(&mut self, batch: &[Write]) -> Result<(), StoreError> {
        self.groups.change(batch)?;
        self.audit.change(batch)
    }
}

/// Groups and cost tables, and the longest lease that may be out in each group, from the store.
pub(crate) struct Loaded {
    pub(crate) catalog: Catalog,
    pub(crate) longest: BTreeMap<GroupId, Span>,
    costs: CostTables,
    /// The audit log, if it was kept.
    audit: Option<Audit>,
}

impl Loaded {
    /// Reads what must be known before anything is stored, and the groups unless they were kept. What a new store lacks
    /// joins the first batch.
    pub(crate) fn read(
        store: &dyn Store,
        meta: &Meta,
        capacity: Option<Rate>,
        kept: Option<Kept>,
        first_batch: &mut Batch,
    ) -> Result<Self, StoreError> {
        let next_id = next_group(meta)?;
        let (groups, audit) = kept.map(|kept| (kept.groups, kept.audit)).unzip();
        let groups = groups.map_or_else(|| Groups::read(store), Ok)?;
        let (catalog, longest) = groups.of_server(capacity, next_id, first_batch)?;
        let costs = load_costs(store, meta, first_batch)?;
        Ok(Self { catalog, longest, costs, audit })
    }
}

impl Definitions {
    /// Reads the rest.
    pub(crate) fn load(store: &dyn Store, meta: &Meta, loaded: Loaded) -> Result<Self, StoreError> {
        Ok(Self {
            bindings: Arc::new(load_bindings(store, &loaded.catalog)?),
            proposals: Proposals::load(store, &loaded.catalog)?,
            catalog: loaded.catalog,
            costs: Arc::new(loaded.costs),
            revision: stored_revision(meta)?,
            audit: loaded.audit.map_or_else(|| Audit::load(store), Ok)?,
        })
    }
}

/// The revision of a store, which begins with 1.
pub(crate) fn stored_revision(meta: &Meta) -> Result<u64, StoreError> {
    Ok(meta.number(META_REVISION)?.unwrap_or(1))
}

fn next_group(meta: &Meta) -> Result<u32, StoreError> {
    let next_id = meta.number(META_NEXT_GROUP)?.unwrap_or(0);
    u32::try_from(next_id).map_err(|_| bad(Table::Meta, "the next group id is out of range"))
}

fn load_costs(store: &dyn Store, meta: &Meta, first_batch: &mut Batch) -> Result<CostTables, StoreError> {
    let mut tables = Vec::new();
    each(store, Table::CostTables, |_, value| {
        tables.push(json(Table::CostTables, value)?);
        Ok(())
    })?;
    if meta.is_new()? && tables.is_empty() {
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
