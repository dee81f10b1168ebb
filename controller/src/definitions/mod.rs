//! Groups, bindings and cost tables, and changing them.

pub(crate) mod apply;
pub mod audit;
pub(crate) mod binding;
pub mod bindings;
pub mod catalog;
pub(crate) mod change;
pub mod cost_tables;
mod costing;
pub mod definition;
pub(crate) mod deletion;
pub(crate) mod events;
pub mod group_fields;
pub(crate) mod groups;
pub mod limited;
pub(crate) mod load;

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_core::group::GroupId;

use crate::error::AdminError;
use crate::name::GroupName;
use crate::service::Service;
use audit::Audit;
use bindings::Bindings;
use catalog::Catalog;
use cost_tables::CostTables;

/// All definitions that are in force.
pub(crate) struct Definitions {
    catalog: Catalog,
    bindings: Arc<Bindings>,
    costs: Arc<CostTables>,
    revision: u64,
    audit: Audit,
}

impl Definitions {
    /// The groups.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Number of bindings.
    pub(crate) fn bound(&self) -> usize {
        self.bindings.len()
    }

    /// Grows with every change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// One group, or all of `these`.
    pub(crate) fn chosen<'a>(
        &'a self,
        one: Option<&GroupName>,
        these: &'a BTreeSet<GroupId>,
    ) -> Result<impl Iterator<Item = (GroupId, &'a GroupName)>, AdminError> {
        let one = one.map(|name| self.catalog.require(name)).transpose()?;
        let all = one.is_none().then_some(these).into_iter().flatten().copied();
        Ok(one.into_iter().chain(all).filter_map(|id| Some((id, self.catalog.name(id)?))))
    }
}

/// The calls of adapters.
#[derive(Clone, Copy)]
pub struct DefinitionCalls<'s> {
    service: &'s Service,
}

impl<'s> DefinitionCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service }
    }
}
