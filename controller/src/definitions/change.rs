//! Changing definitions: plan under the lock, store, put in force.
//!
//! A plan is a list of edits, each of which is both stored rows and a step in memory. Revision, counters and the audit
//! entry join the same transaction. If the store fails, nothing is in force and the caller gets the error.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Span, Time};
use tidegate_core::usage::Total;

use crate::definitions::DefinitionCalls;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::bindings::Principal;
use crate::definitions::cost_tables::CostTables;
use crate::definitions::definition::Definition;
use crate::definitions::proposals::Proposal;
use crate::error::AdminError;
use crate::identity::tokens::StoredToken;
use crate::limits::{MAX_EVENT_PARTS, MAX_NAMES_LISTED};
use crate::name::GroupName;
use crate::service::{Event, EventKind, Rebound, State};
use crate::statements::watches::Watch;
use crate::store::records::{
    META_COST_ROLES, META_LONGEST_TTL, META_NEXT_CLIENT, META_NEXT_GROUP, META_NEXT_TOKEN, META_NEXT_WATCH,
    META_REVISION, StoredBinding, consumption, group_key, group_row, put_json, put_number, retired_keys,
    retired_of, u64_key,
};
use crate::store::{Batch, StoreError, Table, Write};

/// One step of a change.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    PutGroup(GroupId, Box<Definition>),
    RemoveGroup(GroupId),
    Bind(Principal, GroupName),
    Unbind(Principal),
    Costs(Arc<CostTables>),
    PutWatch(Box<Watch>),
    RemoveWatches(Vec<u64>),
    PutProposal(GroupId, Box<Proposal>),
    RemoveProposal(GroupId),
    PutToken(Box<StoredToken>),
    RemoveToken(u64),
    /// Nothing but the audit entry.
    Note,
}

impl Edit {
    /// The group that the edit defines.
    fn puts(&self) -> Option<(GroupId, &Definition)> {
        match self {
            Self::PutGroup(id, definition) => Some((*id, definition)),
            _ => None,
        }
    }

    /// The group that the edit removes.
    fn removes(&self) -> Option<GroupId> {
        match self {
            Self::RemoveGroup(id) => Some(*id),
            _ => None,
        }
    }
}

/// A planned request: edits, audit entries and the reply. Without edits nothing changes.
pub(crate) struct Plan<T> {
    pub(crate) edits: Vec<Edit>,
    pub(crate) changes: Vec<Change>,
    pub(crate) reply: T,
}

impl<T> Plan<T> {
    /// A plan without edits.
    pub(crate) fn nothing(reply: T) -> Self {
        Self { edits: Vec::new(), changes: Vec::new(), reply }
    }
}

impl DefinitionCalls<'_> {
    /// Plans, stores and applies one change.
    pub(crate) fn change<T>(
        &self,
        actor: &Actor,
        plan: impl FnOnce(&mut State) -> Result<Plan<T>, AdminError>,
    ) -> Result<T, AdminError> {
        let _in_order = self.service.in_order();
        let (plan, batch, created) = {
            let mut state = self.service.lock();
            let mut plan = plan(&mut state)?;
            if plan.edits.is_empty() {
                return Ok(plan.reply);
            }
            let again = state.definitions.begun_again(&plan.edits, self.service.clock().unix_ms() / 1_000);
            plan.edits.extend(again);
            let batch = self.batch(&state, &plan, actor)?;
            let created = state.created(&plan.edits);
            (plan, batch, created)
        };
        let before = self.counted_before(&created)?;
        self.service.commit(&batch)?;
        // The audit log has all of them.
        for change in plan.changes.iter().take(MAX_NAMES_LISTED) {
            tracing::info!(
                actor = actor.as_str(), action = change.action, subject = %change.subject, "definitions changed"
            );
        }
        if let Some(more) = plan.changes.len().checked_sub(MAX_NAMES_LISTED).filter(|more| *more > 0) {
            tracing::info!(actor = actor.as_str(), more, "definitions changed in the same change");
        }
        let now = self.service.clock().now();
        let mut state = self.service.lock();
        state.definitions.audit.advance(&plan.changes);
        state.definitions.revision += 1;
        let event = Event { revision: state.definitions.revision, kinds: kinds(&state, &plan.edits) };
        let rules_change = plan.edits.iter().any(|edit| state.changes_rules(edit));
        let removed = plan.edits.iter().filter_map(|edit| match edit {
            Edit::RemoveGroup(id) => Some((*id, state.definitions.catalog.name(*id)?.clone())),
            _ => None,
        });
        let removed: BTreeMap<GroupId, GroupName> = removed.collect();
        let evicted = state.convictions.watches().evicted();
        for edit in plan.edits {
            state.apply(now, edit)?;
        }
        self.service.metrics.watches_evicted.inc_by(state.convictions.watches().evicted() - evicted);
        state.leasing.roll_quotas(now, self.service.clock().unix_us());
        for (client, group, total) in before {
            // An incarnation folded meanwhile reports no more.
            if state.leasing.clients().get(client).is_some() {
                state.accounts.begin_at(now, client, group, total);
            }
        }
        self.service.metrics.changes.inc();
        self.count_definitions(&state);
        // An error only means that nobody watches.
        let _ = self.service.events().send(Arc::new(event));
        self.service.leasing().push_lowers(&mut state, &removed);
        drop(state);
        if rules_change {
            self.service.statements().rules_changed();
        }
        for group in removed.values() {
            self.service.statistics().reset(Some(group), 0);
        }
        Ok(plan.reply)
    }

    fn batch<T>(&self, state: &State, plan: &Plan<T>, actor: &Actor) -> Result<Batch, AdminError> {
        let mut batch = Batch::new();
        for edit in &plan.edits {
            state.rows(edit, &mut batch)?;
        }
        batch.extend(state.heirs(&plan.edits)?);
        batch.extend(state.counters(&plan.edits));
        batch.push(put_number(META_REVISION, state.definitions.revision + 1));
        state.definitions.audit.record(
            &mut batch,
            self.service.clock().unix_ms(),
            actor,
            plan.changes.clone(),
        )?;
        Ok(batch)
    }

    /// Consumption that was counted for earlier groups with the names of these new ones.
    fn counted_before(
        &self,
        created: &[(GroupId, GroupName)],
    ) -> Result<Vec<(ClientId, GroupId, Total)>, StoreError> {
        let mut before = Vec::new();
        for (id, name) in created {
            let mut visit = |key: &[u8], value: &[u8]| {
                let (other, client) = retired_of(key)?;
                if other != *name {
                    return Ok(ControlFlow::Break(()));
                }
                before.push((client, *id, consumption(Table::Retired, value)?));
                Ok(ControlFlow::Continue(()))
            };
            self.service.store().scan(Table::Retired, &retired_keys(name), &mut visit)?;
        }
        Ok(before)
    }

    pub(crate) fn count_definitions(&self, state: &State) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.service.metrics.groups.set(count(state.definitions.catalog.count()));
        self.service.metrics.bindings.set(count(state.definitions.bindings.len()));
    }
}

impl State {
    /// Groups that exist after these edits and not before.
    fn created(&self, edits: &[Edit]) -> Vec<(GroupId, GroupName)> {
        let created = edits.iter().filter_map(|edit| match edit {
            Edit::PutGroup(id, definition) if self.definitions.catalog.get(*id).is_none() => {
                Some((*id, definition.name.clone()))
            }
            _ => None,
        });
        created.collect()
    }

    /// The rows of one edit, without those that several edits share.
    fn rows(&self, edit: &Edit, batch: &mut Batch) -> Result<(), StoreError> {
        match edit {
            Edit::PutGroup(id, definition) => {
                let longest = self.longest_of(*id).unwrap_or_default().max(definition.ttl);
                batch.push(group_row(*id, definition, longest)?);
            }
            Edit::RemoveGroup(id) => {
                batch.push(Write::Delete(Table::Groups, group_key(*id)));
                batch.push(Write::Delete(Table::Folded, group_key(*id)));
                // Most groups have none, and most stores no such table.
                if self.definitions.proposals.get(*id).is_some() {
                    batch.push(Write::Delete(Table::Proposals, group_key(*id)));
                }
                let Some(name) = self.definitions.catalog.name(*id) else { return Ok(()) };
                self.retire(*id, name, batch)?;
                let watches = self.convictions.watches().of_group(name);
                batch.extend(watches.map(|watch| Write::Delete(Table::Watches, u64_key(watch.id))));
            }
            Edit::Bind(principal, group) => {
                let stored = StoredBinding { principal: principal.clone(), group: group.to_string() };
                batch.push(put_json(Table::Bindings, principal.key(), &stored)?);
            }
            Edit::Unbind(principal) => batch.push(Write::Delete(Table::Bindings, principal.key())),
            Edit::Costs(tables) => {
                for table in tables.all() {
                    batch.push(put_json(Table::CostTables, table.to_string().into_bytes(), table)?);
                }
                batch.push(put_json(Table::Meta, META_COST_ROLES.to_vec(), tables.roles())?);
            }
            Edit::PutWatch(watch) => {
                batch.push(put_json(Table::Watches, u64_key(watch.id), &watch.text())?);
            }
            Edit::RemoveWatches(ids) => {
                batch.extend(ids.iter().map(|id| Write::Delete(Table::Watches, u64_key(*id))));
            }
            Edit::PutProposal(id, proposal) => {
                batch.push(put_json(Table::Proposals, group_key(*id), proposal.message())?);
            }
            Edit::RemoveProposal(id) => batch.push(Write::Delete(Table::Proposals, group_key(*id))),
            Edit::PutToken(token) => {
                batch.push(put_json(Table::Tokens, u64_key(token.id()), token)?);
                let next = self.tokens.next_id().max(token.id().saturating_add(1));
                batch.push(put_number(META_NEXT_TOKEN, next));
            }
            Edit::RemoveToken(id) => batch.push(Write::Delete(Table::Tokens, u64_key(*id))),
            Edit::Note => {}
        }
        Ok(())
    }

    /// The longest lease that may be out in a group.
    fn longest_of(&self, id: GroupId) -> Option<Span> {
        self.definitions.catalog.get(id).map(|definition| self.leasing.longest_of(id, definition.ttl))
    }

    /// The leases of removed groups count in the nearest ancestor that stays after all edits: the rows of those.
    fn heirs(&self, edits: &[Edit]) -> Result<Batch, StoreError> {
        let removed: BTreeSet<GroupId> = edits.iter().filter_map(Edit::removes).collect();
        let mut heirs: BTreeMap<GroupId, Span> = BTreeMap::new();
        for id in &removed {
            let above = self.definitions.catalog.path(*id).into_iter().find(|step| !removed.contains(step));
            let Some(heir) = above else { continue };
            let longest = heirs.entry(heir).or_default();
            *longest = self.longest_of(*id).unwrap_or_default().max(*longest);
        }
        if heirs.is_empty() {
            return Ok(Batch::new());
        }
        let redefined: BTreeMap<GroupId, &Definition> = edits.iter().filter_map(Edit::puts).collect();
        let row = |(heir, longest): (GroupId, Span)| {
            let definition = redefined.get(&heir).copied().or_else(|| self.definitions.catalog.get(heir))?;
            let out = [longest, self.longest_of(heir).unwrap_or_default()];
            Some(group_row(heir, definition, out.into_iter().fold(definition.ttl, Span::max)))
        };
        heirs.into_iter().filter_map(row).collect()
    }

    /// The counters that are stored with these edits.
    fn counters(&self, edits: &[Edit]) -> Batch {
        let puts = || edits.iter().filter_map(Edit::puts);
        let mut batch = Batch::new();
        if let Some(last) =
            puts().map(|(id, _)| id).filter(|id| self.definitions.catalog.get(*id).is_none()).max()
        {
            batch.push(put_number(META_NEXT_GROUP, u64::from(last.0) + 1));
        }
        if let Some(longest) = puts().map(|(_, definition)| definition.ttl).max() {
            batch.push(put_number(META_LONGEST_TTL, self.leasing.longest_of_all().max(longest).0));
        }
        if edits.iter().any(|edit| matches!(edit, Edit::PutWatch(_))) {
            // Who plans a new watch has reserved its id.
            batch.push(put_number(META_NEXT_WATCH, self.convictions.watches().next_id()));
        }
        batch
    }

    /// Writes how far each client of a removed group was counted, in place of its rows.
    fn retire(&self, id: GroupId, name: &GroupName, batch: &mut Batch) -> Result<(), StoreError> {
        // A node that no flush has stored yet would get another id after a crash.
        let fresh = self.accounts.retire(id, name, batch).into_iter().filter_map(|client| {
            let stored = self.leasing.clients().unstored(client)?;
            Some(put_json(Table::Clients, u64_key(client.0), &stored))
        });
        let fresh: Batch = fresh.collect::<Result<_, _>>()?;
        if !fresh.is_empty() {
            batch.extend(fresh);
            batch.push(put_number(META_NEXT_CLIENT, self.leasing.clients().next_id()));
        }
        Ok(())
    }

    /// Whether gateways must learn of the edit; called before it is applied.
    fn changes_rules(&self, edit: &Edit) -> bool {
        match edit {
            Edit::PutGroup(id, definition) => match self.definitions.catalog.get(*id) {
                Some(before) => {
                    before.query_limit != definition.query_limit || before.max_wait != definition.max_wait
                }
                None => definition.rules_gateways(),
            },
            Edit::RemoveGroup(id) => {
                let name = self.definitions.catalog.name(*id);
                let told = self.definitions.catalog.get(*id).is_some_and(Definition::rules_gateways);
                told || name.is_some_and(|name| self.convictions.watches().of_group(name).next().is_some())
            }
            Edit::PutWatch(_) | Edit::RemoveWatches(_) => true,
            Edit::Bind(..) | Edit::Unbind(_) | Edit::Costs(_) => false,
            Edit::PutProposal(..) | Edit::RemoveProposal(_) => false,
            Edit::PutToken(_) | Edit::RemoveToken(_) | Edit::Note => false,
        }
    }

    /// Whether leases of a group depend on what a definition changes in it; called before it is applied.
    fn moves_leases(&self, id: GroupId, definition: &Definition) -> bool {
        !self.definitions.catalog.get(id).is_some_and(|before| before.is_enforced_as(definition))
    }

    /// Whether nodes must learn of a definition; called before it is applied.
    fn concerns_nodes(&self, id: GroupId, definition: &Definition) -> bool {
        let same = |before: &Definition| before.demote_to == definition.demote_to;
        self.moves_leases(id, definition) || !self.definitions.catalog.get(id).is_some_and(same)
    }

    /// Puts a stored edit in force.
    pub(crate) fn apply(&mut self, now: Time, edit: Edit) -> Result<(), AdminError> {
        let refused =
            |error| AdminError::Internal(format!("the grant engine refused a checked definition: {error:?}"));
        match edit {
            Edit::PutGroup(id, definition) => {
                let enforced = self.moves_leases(id, &definition);
                let before = self.definitions.catalog.get(id).map(|before| before.ttl);
                let parent =
                    definition.parent.as_ref().and_then(|parent| self.definitions.catalog.id(parent));
                let spec = definition.spec(parent);
                self.definitions.catalog.put(id, *definition);
                let quota = self.definitions.catalog.get(id).and_then(|group| group.quota.as_ref());
                self.leasing.define_quota(id, quota);
                if enforced {
                    self.leasing.put_group(now, id, spec, before).map_err(refused)?;
                }
            }
            Edit::RemoveGroup(id) => {
                let before = self.definitions.catalog.get(id).map(|before| before.ttl);
                let above = self.definitions.catalog.parent(id).unwrap_or(GroupId::ROOT);
                if let Some(name) = self.definitions.catalog.name(id) {
                    self.convictions.forget_group(name);
                }
                self.definitions.catalog.remove(id);
                self.definitions.proposals.remove(id);
                self.accounts.forget_group(id);
                self.leasing.remove_group(now, id, above, before).map_err(refused)?;
            }
            Edit::Bind(principal, group) => {
                Arc::make_mut(&mut self.definitions.bindings).bind(principal, group);
            }
            Edit::Unbind(principal) => {
                Arc::make_mut(&mut self.definitions.bindings).unbind(&principal);
            }
            Edit::Costs(tables) => self.definitions.costs = tables,
            Edit::PutWatch(watch) => self.convictions.put(*watch),
            Edit::RemoveWatches(ids) => ids.into_iter().for_each(|id| self.convictions.remove(id)),
            Edit::PutProposal(id, proposal) => self.definitions.proposals.put(id, *proposal),
            Edit::RemoveProposal(id) => self.definitions.proposals.remove(id),
            Edit::PutToken(token) => self.tokens.put(*token).map_err(AdminError::Internal)?,
            Edit::RemoveToken(id) => self.tokens.remove(id),
            Edit::Note => {}
        }
        Ok(())
    }
}

/// The events of the edits for watchers; called before they are applied, while removed groups still have names.
fn kinds(state: &State, edits: &[Edit]) -> Vec<EventKind> {
    if edits.len() > MAX_EVENT_PARTS {
        return vec![EventKind::Resync];
    }
    let mut kinds = Vec::new();
    let mut groups = Vec::new();
    let bound = |principal: &_, after: Option<&_>| {
        EventKind::Bound(Rebound::from(&state.definitions.bindings, principal, after))
    };
    for edit in edits {
        match edit {
            Edit::PutGroup(id, definition) if state.concerns_nodes(*id, definition) => {
                groups.push(definition.name.clone());
            }
            // Nodes have nothing to learn of it.
            Edit::PutGroup(..) => {}
            Edit::RemoveGroup(id) => groups.extend(state.definitions.catalog.name(*id).cloned()),
            Edit::Bind(principal, group) => kinds.push(bound(principal, Some(group))),
            Edit::Unbind(principal) => kinds.push(bound(principal, None)),
            Edit::Costs(tables) => kinds.push(EventKind::Costs(Arc::clone(tables))),
            // Gateways get these by the rules' stream.
            Edit::PutWatch(_) | Edit::RemoveWatches(_) => {}
            // Nor does anybody learn of these.
            Edit::PutProposal(..) | Edit::RemoveProposal(_) => {}
            Edit::PutToken(_) | Edit::RemoveToken(_) | Edit::Note => {}
        }
    }
    if !groups.is_empty() {
        kinds.push(EventKind::Groups(groups));
    }
    kinds
}
