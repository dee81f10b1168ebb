//! Deleting groups, and moving their users.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_core::group::GroupId;

use crate::definitions::audit::{Actor, Change};
use crate::definitions::bindings::Principal;
use crate::definitions::catalog::Catalog;
use crate::definitions::change::{Edit, Plan};
use crate::definitions::definition::Definition;
use crate::definitions::groups::json;
use crate::definitions::quota_rules::with_quota;
use crate::definitions::{DefinitionCalls, Definitions};
use crate::error::{AdminError, InField};
use crate::limits::MAX_NAMES_LISTED;
use crate::name::GroupName;
use crate::service::State;
use crate::statements::query_limit::Action;
use crate::statements::watches::Watch;

/// The result of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Bindings, children, rules and watches that were moved; cut to a readable number.
    pub moved: Vec<String>,
    /// Number of things moved.
    pub moved_count: usize,
    /// Warnings about what gets a higher limit.
    pub warnings: Vec<String>,
    /// Whether the group existed.
    pub existed: bool,
}

impl DefinitionCalls<'_> {
    /// Deletes a group. A used group is deleted only with `force_to`, the group that takes over its bindings, its
    /// children, the runaways switched to it and the work demoted to it.
    pub fn delete_group(
        &self,
        actor: &Actor,
        name: &str,
        force_to: &str,
        expected_revision: u64,
        if_exists: bool,
    ) -> Result<Deleted, AdminError> {
        let name = GroupName::parse(name).in_field("name")?;
        let target =
            (!force_to.is_empty()).then(|| GroupName::parse(force_to).in_field("force_to")).transpose()?;
        // No flush may store a watch of the group after this.
        let _alone = self.service.flushing();
        self.change(actor, |state| {
            let Some(id) = state.definitions.catalog.id(&name) else {
                return if if_exists {
                    Ok(Plan::nothing(Deleted::default()))
                } else {
                    Err(AdminError::NoGroup { name: name.clone() })
                };
            };
            if id == GroupId::DEFAULT {
                let message = "group default cannot be deleted; alter it instead".to_owned();
                return Err(AdminError::Refused { message });
            }
            state.definitions.expect_revision(id, expected_revision)?;
            state.deletion(id, &name, target.as_ref())
        })
    }
}

/// The users of a group that is to be deleted.
pub(crate) struct Users {
    pub(crate) principals: Vec<Principal>,
    pub(crate) children: BTreeSet<GroupId>,
    /// Groups that switch their runaways to it.
    pub(crate) switching: BTreeSet<GroupId>,
    /// Groups that demote to it.
    pub(crate) demoting: BTreeSet<GroupId>,
    /// Watches that switch to it themselves; none is of it, since no watch switches to its own group.
    pub(crate) watches: Vec<Arc<Watch>>,
}

impl Users {
    pub(crate) fn count(&self) -> usize {
        let groups = self.children.len() + self.switching.len() + self.demoting.len();
        self.principals.len() + groups + self.watches.len()
    }

    /// The first users, for people.
    pub(crate) fn names(&self, catalog: &Catalog) -> Vec<String> {
        let name = |id: &GroupId| catalog.name(*id).map(ToString::to_string).unwrap_or_default();
        let principals = self.principals.iter().map(ToString::to_string);
        let children = self.children.iter().map(|child| format!("group {}", name(child)));
        let switching =
            self.switching.iter().map(|group| format!("the query_limit of group {}", name(group)));
        let watches = self.watches.iter().map(|watch| format!("watch {} of group {}", watch.id, watch.group));
        let demoting = self.demoting.iter().map(|group| format!("the demote_to of group {}", name(group)));
        let all = principals.chain(children).chain(switching).chain(demoting).chain(watches);
        let mut names: Vec<String> = all.take(MAX_NAMES_LISTED).collect();
        if self.count() > names.len() {
            names.push(format!("and {} more", self.count() - names.len()));
        }
        names
    }
}

impl State {
    fn deletion(
        &self,
        id: GroupId,
        name: &GroupName,
        target: Option<&GroupName>,
    ) -> Result<Plan<Deleted>, AdminError> {
        let users = self.users(id, name);
        let (moved, moved_count) = (users.names(&self.definitions.catalog), users.count());
        let (mut edits, mut changes) = (Vec::new(), Vec::new());
        let mut warnings = Vec::new();
        match target {
            None if moved_count > 0 => {
                return Err(AdminError::InUse { name: name.clone(), users: moved.join(", ") });
            }
            None => {}
            Some(target) => {
                let to = self.checked_target(id, name, target, &users)?;
                if users.principals.len() + users.children.len() > 0 {
                    warnings.extend(self.definitions.generosity(id, name, to, target));
                }
                let redefined = self.redefined(&users, target)?;
                changes = redefined.iter().filter_map(|(id, after)| self.alteration(*id, after)).collect();
                let put = |(id, definition)| Edit::PutGroup(id, Box::new(definition));
                edits.extend(redefined.into_iter().map(put));
                let principals = users.principals.into_iter();
                edits.extend(principals.map(|principal| Edit::Bind(principal, target.clone())));
                for watch in &users.watches {
                    let (watch, change) = moved_watch(watch, target);
                    changes.push(change);
                    edits.push(Edit::PutWatch(Box::new(watch)));
                }
            }
        }
        edits.push(Edit::RemoveGroup(id));
        let before = self.definitions.catalog.get(id).map(json).unwrap_or_default();
        let after = target.map(|target| format!("{{\"moved_to\":\"{target}\"}}")).unwrap_or_default();
        changes.push(Change { action: "delete group", subject: name.to_string(), before, after });
        Ok(Plan { edits, changes, reply: Deleted { moved, moved_count, warnings, existed: true } })
    }

    /// What the log says of a group that is redefined because another one goes.
    pub(crate) fn alteration(&self, id: GroupId, after: &Definition) -> Option<Change> {
        let before = self.definitions.catalog.get(id).map(json)?;
        Some(Change { action: "alter group", subject: after.name.to_string(), before, after: json(after) })
    }

    fn users(&self, id: GroupId, name: &GroupName) -> Users {
        let switches = |watch: &&Arc<Watch>| watch.switch_group() == Some(name);
        Users {
            principals: self.definitions.bindings.of_group(name).cloned().collect(),
            children: self.definitions.catalog.children(id).collect(),
            switching: self.definitions.catalog.limited().switching_to(name).collect(),
            demoting: self.definitions.catalog.demoting.to(name).collect(),
            watches: self.convictions.watches().iter().filter(switches).cloned().collect(),
        }
    }

    /// Checks the group that takes over: it exists, is not the deleted one, and is not below it.
    pub(crate) fn checked_target(
        &self,
        id: GroupId,
        name: &GroupName,
        target: &GroupName,
        users: &Users,
    ) -> Result<GroupId, AdminError> {
        let to = self.definitions.catalog.id(target).ok_or_else(|| {
            AdminError::invalid("force_to", format!("group {target} does not exist; create it first"))
        })?;
        if to == id {
            return Err(AdminError::invalid(
                "force_to",
                format!("{target} is the group to be deleted; name another"),
            ));
        }
        if self.definitions.catalog.path(to).contains(&id) {
            let message =
                format!("{target} is below {name} and would be moved itself; name a group outside it");
            return Err(AdminError::invalid("force_to", message));
        }
        if users.switching.contains(&to) || users.watches.iter().any(|watch| watch.group == *target) {
            let message = format!(
                "{target} switches its own runaways to {name}, by its query_limit or a watch, and cannot to itself; \
                 alter or remove that first, or name another group"
            );
            return Err(AdminError::invalid("force_to", message));
        }
        Ok(to)
    }

    /// Children with their new parent, and rules and demotions with their new target.
    pub(crate) fn redefined(
        &self,
        users: &Users,
        target: &GroupName,
    ) -> Result<Vec<(GroupId, Definition)>, AdminError> {
        let named: BTreeSet<GroupId> = users.switching.union(&users.demoting).copied().collect();
        let redefined = users.children.union(&named).filter_map(|id| {
            let mut definition = self.definitions.catalog.get(*id)?.clone();
            if users.children.contains(id) {
                definition.parent = Some(target.clone());
            }
            if users.switching.contains(id)
                && let Some(limit) = &mut definition.query_limit
            {
                Arc::make_mut(limit).action = Action::SwitchGroup(target.clone());
            }
            if users.demoting.contains(id) {
                definition.demote_to = Some(target.clone());
            }
            definition.revision = self.definitions.revision + 1;
            Some((*id, definition))
        });
        let checked = redefined.map(|(id, definition)| {
            self.definitions.check(&self.leasing, id, &definition)?;
            Ok((id, definition))
        });
        checked.collect()
    }
}

/// A watch that switches to another group because its own goes, and what the log says of it.
pub(crate) fn moved_watch(before: &Watch, target: &GroupName) -> (Watch, Change) {
    let json = |watch: &Watch| serde_json::to_string(&watch.text()).unwrap_or_default();
    let after = Watch { action: Some(Action::SwitchGroup(target.clone())), ..before.clone() };
    let change = Change {
        action: "alter watch",
        subject: format!("{} of group {}", after.id, after.group),
        before: json(before),
        after: json(&after),
    };
    (after, change)
}

impl Definitions {
    /// Warnings if what is moved gets a higher limit, or none, or leaves a quota.
    pub(crate) fn generosity(
        &self,
        from: GroupId,
        name: &GroupName,
        to: GroupId,
        target: &GroupName,
    ) -> Vec<String> {
        let (before, after) = (with_quota(&self.catalog, from), with_quota(&self.catalog, to));
        let left = before.filter(|quota| after != Some(*quota)).map(|quota| {
            format!(
                "what moved from {name} to {target} does not count in the quota of group {quota} any more"
            )
        });
        self.raised(from, name, to, target).into_iter().chain(left).collect()
    }

    /// A warning if the limit of what is moved is higher.
    fn raised(&self, from: GroupId, name: &GroupName, to: GroupId, target: &GroupName) -> Option<String> {
        let before = self.catalog.effective_limit(from)?;
        match self.catalog.effective_limit(to) {
            Some(after) if after <= before => None,
            Some(after) => {
                Some(format!("what moved from {name} to {target} is limited to {after} now, not {before}"))
            }
            None => Some(format!(
                "what moved from {name} to {target} is not limited any more; it was to {before}"
            )),
        }
    }
}
