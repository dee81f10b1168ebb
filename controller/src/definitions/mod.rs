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
pub mod demotion;
pub(crate) mod events;
pub mod group_fields;
pub(crate) mod groups;
pub mod limited;
pub(crate) mod load;
mod policy;
pub(crate) mod proposals;
pub mod quota;
mod quota_rules;
pub(crate) mod rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_core::group::GroupId;

use crate::error::AdminError;
use crate::identity::{Identity, Seen, Sight};
use crate::name::GroupName;
use crate::service::Service;
use audit::Audit;
use bindings::Bindings;
use catalog::Catalog;
use cost_tables::CostTables;
use definition::Definition;
use proposals::Proposals;

/// All definitions that are in force.
pub(crate) struct Definitions {
    catalog: Catalog,
    bindings: Arc<Bindings>,
    costs: Arc<CostTables>,
    revision: u64,
    audit: Audit,
    proposals: Proposals,
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

    /// The groups that are seen.
    pub(crate) fn seen(&self, sight: Sight<'_>) -> Seen {
        sight.groups(&self.bindings)
    }

    /// A group that is seen.
    pub(crate) fn require(&self, sight: Sight<'_>, name: &GroupName) -> Result<GroupId, AdminError> {
        self.seen(sight).require(name)?;
        self.catalog.require(name)
    }

    /// The definition of a group that is seen.
    pub(crate) fn in_force(&self, sight: Sight<'_>, name: &GroupName) -> Result<&Definition, AdminError> {
        let id = self.require(sight, name)?;
        self.catalog.get(id).ok_or_else(|| AdminError::NoGroup { name: name.clone() })
    }

    /// One group, or all of `these` and `those` in order, as far as they are seen.
    pub(crate) fn chosen<'a>(
        &'a self,
        sight: Sight<'_>,
        one: Option<&GroupName>,
        these: &'a BTreeSet<GroupId>,
        those: &'a BTreeSet<GroupId>,
    ) -> Result<impl Iterator<Item = (GroupId, &'a GroupName)>, AdminError> {
        let seen = self.seen(sight);
        let ids: Box<dyn Iterator<Item = GroupId>> = match (one, seen.names()) {
            (Some(name), _) => Box::new(std::iter::once(self.require(sight, name)?)),
            (None, None) => Box::new(these.union(those).copied()),
            (None, Some(names)) => {
                let ids = names.iter().filter_map(|name| self.catalog.id(name));
                Box::new(
                    ids.filter(|id| these.contains(id) || those.contains(id)).collect::<Vec<_>>().into_iter(),
                )
            }
        };
        Ok(ids.filter_map(|id| Some((id, self.catalog.name(id)?))))
    }
}

/// The calls of adapters.
#[derive(Clone, Copy)]
pub struct DefinitionCalls<'s> {
    service: &'s Service,
    sight: Sight<'s>,
}

impl<'s> DefinitionCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service, sight: Sight::default() }
    }

    /// The same, with answers of what this caller sees.
    pub fn seen_by(self, identity: Option<&'s Identity>) -> Self {
        Self { sight: Sight::of(identity), ..self }
    }
}

#[cfg(test)]
mod tests;
