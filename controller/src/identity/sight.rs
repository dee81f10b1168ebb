//! What a caller sees of groups and bindings: all of them, or those of a tenant.
//!
//! A tenant sees the groups that it, or a user of it, is bound to, and its own bindings. All else answers as if it were
//! not there: the same errors, and neither rows nor counts.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use tidegate_proto::v1;

use super::{Identity, Role};
use crate::definitions::bindings::{Bindings, Principal};
use crate::definitions::catalog::Catalog;
use crate::definitions::definition::Definition;
use crate::error::AdminError;
use crate::name::GroupName;

/// Whose groups a caller sees; all of them by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight<'s>(Option<&'s str>);

/// The groups that a caller sees.
#[derive(Debug)]
pub(crate) struct Seen(Option<BTreeSet<GroupName>>);

impl<'s> Sight<'s> {
    /// The sight of this caller.
    pub(crate) fn of(identity: Option<&'s Identity>) -> Self {
        let viewer = identity.filter(|identity| identity.role == Role::Tenant);
        // No tenant has an empty name.
        Self(viewer.map(|viewer| viewer.tenant.as_deref().unwrap_or_default()))
    }

    /// The tenant whose bindings are seen; `None` for all of them.
    pub(crate) fn tenant(self) -> Option<&'s str> {
        self.0
    }

    /// Whether a binding of this principal is seen.
    pub(crate) fn shows(self, principal: &Principal) -> bool {
        self.0.is_none_or(|tenant| principal.tenant() == tenant)
    }

    /// The groups that are seen under these bindings.
    pub(crate) fn groups(self, bindings: &Bindings) -> Seen {
        Seen(self.0.map(|tenant| bindings.of_tenant(tenant).map(|(_, group)| group.clone()).collect()))
    }
}

impl Seen {
    /// Whether a group is seen.
    pub(crate) fn has(&self, group: &GroupName) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(group))
    }

    /// The names that are seen; `None` for all.
    pub(crate) fn names(&self) -> Option<&BTreeSet<GroupName>> {
        self.0.as_ref()
    }

    /// Refuses a group that is not seen as one that is not there.
    pub(crate) fn require(&self, group: &GroupName) -> Result<(), AdminError> {
        if self.has(group) { Ok(()) } else { Err(AdminError::NoGroup { name: group.clone() }) }
    }

    /// Definitions by name after `after`.
    pub(crate) fn page<'a>(
        &'a self,
        catalog: &'a Catalog,
        after: Option<&'a GroupName>,
    ) -> Box<dyn Iterator<Item = &'a Definition> + 'a> {
        match &self.0 {
            None => Box::new(catalog.page(after)),
            Some(names) => {
                let behind = names.range::<GroupName, _>((after.map_or(Unbounded, Excluded), Unbounded));
                Box::new(behind.filter_map(|name| catalog.get(catalog.id(name)?)))
            }
        }
    }

    /// A definition, without the names of groups that are not seen.
    pub(crate) fn text(&self, definition: &Definition) -> v1::Group {
        let mut text = definition.text();
        if self.0.is_some() {
            // It counts the changes of all.
            text.revision = 0;
        }
        let hide = |name: &mut String| {
            if GroupName::parse(name).is_ok_and(|name| !self.has(&name)) {
                name.clear();
            }
        };
        hide(&mut text.parent);
        hide(&mut text.demote_to);
        text.query_limit.iter_mut().for_each(|limit| hide(&mut limit.switch_group));
        text
    }
}

#[cfg(test)]
mod tests;
