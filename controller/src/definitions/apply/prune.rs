//! Deletions: groups that a step deletes, and all that no step names.

use std::collections::BTreeSet;

use tidegate_core::group::GroupId;
use tidegate_proto::v1::Prune;

use super::draft::Draft;
use super::wanted::Wanted;
use super::{Done, Outcome};
use crate::definitions::audit::Change;
use crate::definitions::bindings::Principal;
use crate::definitions::deletion::moved_watch;
use crate::definitions::groups::json;
use crate::error::{AdminError, InField};
use crate::limits::MAX_STEPS;
use crate::name::GroupName;
use crate::statements::query_limit::Matching;
use crate::statements::watches::Watch;

/// The scope of pruning.
enum Scope {
    All,
    Under(GroupId),
}

/// Everything that is pruned because no step names it.
#[derive(Default)]
pub(crate) struct Pruned {
    pub(crate) groups: Vec<GroupId>,
    pub(crate) bindings: Vec<Principal>,
    pub(crate) watches: Vec<u64>,
}

impl Draft<'_> {
    /// Everything in the scope of `prune` that no step names.
    pub(crate) fn unnamed(&self, prune: &Prune, steps: &[(String, Wanted)]) -> Result<Pruned, AdminError> {
        let mut pruned = Pruned::default();
        let scope = self.scope(&prune.under)?;
        if !(prune.groups || prune.bindings || prune.watches) {
            if prune.under.is_empty() {
                return Ok(pruned);
            }
            let message = "is where nothing is pruned; say what is: groups, bindings, watches";
            return Err(AdminError::invalid("prune.under", message));
        }
        let named: Named = Named::of(steps);
        if prune.bindings {
            let live = self
                .state
                .definitions
                .bindings
                .iter()
                .filter(|(principal, _)| self.bound(principal).is_some());
            let unnamed = live.filter(|(principal, group)| {
                !named.principals.contains(principal) && self.covers(&scope, group)
            });
            pruned.bindings = unnamed.map(|(principal, _)| principal.clone()).take(MAX_STEPS + 1).collect();
        }
        if prune.watches {
            let unnamed = self.all_watches().filter(|watch| {
                watch.is_manual()
                    && !named.watches.contains(&watch.id)
                    && !named.statements.contains(&statement(watch))
                    && self.covers(&scope, &watch.group)
            });
            pruned.watches = unnamed.map(|watch| watch.id).take(MAX_STEPS + 1).collect();
        }
        if prune.groups {
            let catalog = &self.state.definitions.catalog;
            let unnamed = catalog.iter().filter(|(id, group)| {
                *id != GroupId::DEFAULT && !named.groups.contains(&group.name) && self.is_below(&scope, *id)
            });
            pruned.groups = unnamed.map(|(id, _)| id).take(MAX_STEPS + 1).collect();
        }
        let count = pruned.groups.len() + pruned.bindings.len() + pruned.watches.len();
        if count + steps.len() > MAX_STEPS {
            let message = format!(
                "{count} or more are not named, and with {} steps that is above the {MAX_STEPS} of one change; prune a \
                 smaller part, with `under`",
                steps.len()
            );
            return Err(AdminError::invalid("prune", message));
        }
        Ok(pruned)
    }

    fn scope(&self, under: &str) -> Result<Scope, AdminError> {
        if under.is_empty() {
            return Ok(Scope::All);
        }
        let name = GroupName::parse(under).in_field("prune.under")?;
        let missing = || AdminError::invalid("prune.under", format!("group {name} does not exist"));
        Ok(Scope::Under(self.state.definitions.catalog.id(&name).ok_or_else(missing)?))
    }

    /// Whether a group is below the group of the scope.
    fn is_below(&self, scope: &Scope, id: GroupId) -> bool {
        match scope {
            Scope::All => true,
            Scope::Under(top) => id != *top && self.state.definitions.catalog.path(id).contains(top),
        }
    }

    /// Whether something that belongs to a group is in scope.
    fn covers(&self, scope: &Scope, group: &GroupName) -> bool {
        let id = self.state.definitions.catalog.id(group);
        match scope {
            Scope::All => true,
            Scope::Under(top) => id.is_some_and(|id| self.state.definitions.catalog.path(id).contains(top)),
        }
    }

    /// Removes a group, and moves its users to `force_to`. Groups below it are removed already.
    pub(crate) fn delete_group(
        &mut self,
        id: GroupId,
        force_to: Option<&GroupName>,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, AdminError> {
        let Some(definition) = self.state.definitions.catalog.get(id) else {
            return Err(AdminError::Internal(format!("group id {} has no definition", id.0)));
        };
        let (name, before) = (definition.name.clone(), json(definition));
        if id == GroupId::DEFAULT {
            let message = "group default cannot be deleted; alter it instead".to_owned();
            return Err(AdminError::Refused { message });
        }
        if let Some(watch) = self.watches.values().flatten().find(|watch| watch.group == name) {
            let message = format!("watch {} of group {name} would stay; leave it out", watch.digest);
            return Err(AdminError::Refused { message });
        }
        let users = self.users(id, &name);
        if users.count() > 0 {
            let Some(target) = force_to else {
                let users = users.names(&self.state.definitions.catalog).join(", ");
                return Err(AdminError::InUse { name, users });
            };
            let to = self.state.checked_target(id, &name, target, &users)?;
            if users.principals.len() + users.children.len() > 0 {
                warnings.extend(self.state.definitions.generosity(id, &name, to, target));
            }
            for (other, definition) in self.state.redefined(&users, target)? {
                self.altered.extend(self.state.alteration(other, &definition));
                self.put(other, definition);
            }
            self.bindings.extend(users.principals.into_iter().map(|user| (user, Some(target.clone()))));
            for watch in &users.watches {
                let (watch, change) = moved_watch(watch, target);
                self.altered.push(change);
                self.watches.insert(watch.id, Some(watch));
            }
        }
        self.remove(id);
        let after = force_to.map(|target| format!("{{\"moved_to\":\"{target}\"}}")).unwrap_or_default();
        let change = Change { action: "delete group", subject: name.to_string(), before, after };
        Ok(Outcome { kind: "group", name: name.to_string(), done: Done::Deleted, change })
    }

    /// Sorts groups, deepest first, so that those below a group come before it.
    pub(crate) fn leaves_first(&self, groups: &mut [GroupId]) {
        groups.sort_by_cached_key(|id| {
            (std::cmp::Reverse(self.state.definitions.catalog.path(*id).len()), *id)
        });
    }
}

/// Everything that steps name.
#[derive(Default)]
struct Named {
    groups: BTreeSet<GroupName>,
    principals: BTreeSet<Principal>,
    watches: BTreeSet<u64>,
    statements: BTreeSet<Statement>,
}

pub(super) type Statement = (GroupName, Matching, Box<str>);

pub(super) fn statement(watch: &Watch) -> Statement {
    (watch.group.clone(), watch.matching, watch.digest.clone())
}

impl Named {
    fn of(steps: &[(String, Wanted)]) -> Self {
        let mut named = Self::default();
        for (_, wanted) in steps {
            match wanted {
                Wanted::Group { definition, .. } => drop(named.groups.insert(definition.name.clone())),
                Wanted::DeleteGroup { name, .. } => drop(named.groups.insert(name.clone())),
                Wanted::Binding(principal, _) | Wanted::DeleteBinding(principal) => {
                    named.principals.insert(principal.clone());
                }
                Wanted::DeleteWatch(id) => drop(named.watches.insert(*id)),
                Wanted::Watch(watch) => drop(named.statements.insert(statement(watch))),
                Wanted::CostTable(..) => {}
            }
        }
        named
    }
}
