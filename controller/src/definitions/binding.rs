//! Binding principals to groups, and finding the group of an operation.

use crate::answers::page_limit;
use crate::definitions::DefinitionCalls;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::bindings::{Matched, Principal};
use crate::definitions::change::{Edit, Plan};
use crate::error::{AdminError, InField};
use crate::limits::{MAX_BINDINGS, MAX_PAGE};
use crate::name::GroupName;

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The principal.
    pub principal: Principal,
    /// The group that is charged.
    pub group: GroupName,
}

/// The group of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its name.
    pub group: GroupName,
    /// The kind of binding that decided.
    pub matched: Matched,
}

impl DefinitionCalls<'_> {
    /// Binds a principal; returns the group bound before, and whether anything changed.
    pub fn bind(
        &self,
        actor: &Actor,
        tenant: &str,
        user: &str,
        group: &str,
    ) -> Result<(Option<GroupName>, bool), AdminError> {
        let principal = Principal::parse(tenant, user)?;
        let group = GroupName::parse(group).in_field("group")?;
        self.change(actor, |state| {
            state.definitions.catalog.require(&group)?;
            let previous = state.definitions.bindings.get(&principal).cloned();
            if previous.as_ref() == Some(&group) {
                return Ok(Plan::nothing((previous, false)));
            }
            if previous.is_none() && state.definitions.bindings.len() >= MAX_BINDINGS {
                return Err(AdminError::Full { what: "bindings", limit: MAX_BINDINGS });
            }
            let change = Change {
                action: "bind",
                subject: principal.to_string(),
                before: previous.as_ref().map(quoted).unwrap_or_default(),
                after: quoted(&group),
            };
            Ok(Plan {
                edits: vec![Edit::Bind(principal.clone(), group.clone())],
                changes: vec![change],
                reply: (previous, true),
            })
        })
    }

    /// Removes a binding, only one to `from` if that is given; returns whether there was one.
    ///
    /// # Errors
    /// It leads to another group than `from`.
    pub fn unbind(
        &self,
        actor: &Actor,
        tenant: &str,
        user: &str,
        from: Option<&str>,
    ) -> Result<bool, AdminError> {
        let principal = Principal::parse(tenant, user)?;
        let from = from.map(|group| GroupName::parse(group).in_field("group")).transpose()?;
        self.change(actor, |state| {
            let Some(group) = state.definitions.bindings.get(&principal) else {
                return Ok(Plan::nothing(false));
            };
            if let Some(from) = from.filter(|from| from != group) {
                let message = format!(
                    "{principal} is bound to group {group} by now, not to {from}; to unbind it all the same, go to {group}"
                );
                return Err(AdminError::Refused { message });
            }
            let change = Change {
                action: "unbind",
                subject: principal.to_string(),
                before: quoted(group),
                after: String::new(),
            };
            Ok(Plan { edits: vec![Edit::Unbind(principal.clone())], changes: vec![change], reply: true })
        })
    }

    /// Bindings after the principal `after`, of one group or all; and whether there are more.
    pub fn bindings(
        &self,
        group: &str,
        after: Option<&Principal>,
        limit: u32,
    ) -> Result<(Vec<Bound>, bool), AdminError> {
        let limit = page_limit(limit, MAX_PAGE, MAX_PAGE)?;
        let group = (!group.is_empty()).then(|| GroupName::parse(group).in_field("group")).transpose()?;
        let (sight, state) = (self.sight, self.service.lock());
        if let Some(group) = &group {
            state.definitions.require(sight, group)?;
        }
        let behind = |principal: &Principal| after.is_none_or(|after| principal > after);
        let mut found: Vec<Bound> = match (&group, sight.tenant()) {
            (None, None) => state.definitions.bindings.after(after).take(limit + 1).map(bound).collect(),
            (None, Some(tenant)) => {
                let own = state.definitions.bindings.of_tenant(tenant);
                own.filter(|(principal, _)| behind(principal)).take(limit + 1).map(bound).collect()
            }
            (Some(group), _) => {
                let of_group = state
                    .definitions
                    .bindings
                    .of_group(group)
                    .filter(|principal| behind(principal) && sight.shows(principal));
                of_group.take(limit + 1).map(|principal| bound((principal, group))).collect()
            }
        };
        let more = found.len() > limit;
        found.truncate(limit);
        Ok((found, more))
    }

    /// The group that is charged for an operation of this user of this tenant; either may be empty.
    pub fn resolve(&self, tenant: &str, user: &str) -> Result<Resolved, AdminError> {
        if !(tenant.is_empty() && user.is_empty()) {
            Principal::parse(tenant, user)?;
        }
        let (group, matched) = self.service.lock().definitions.bindings.resolve(tenant, user);
        Ok(Resolved { group, matched })
    }
}

fn bound((principal, group): (&Principal, &GroupName)) -> Bound {
    Bound { principal: principal.clone(), group: group.clone() }
}

/// A name as JSON; names need no escapes.
fn quoted(group: &GroupName) -> String {
    format!("\"{group}\"")
}
