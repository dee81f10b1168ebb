//! Proposals: changes of groups that are compared with what is in force, and are not in force themselves.
//!
//! A group has one at most, which goes with it. When the group is changed, what was recorded before is no comparison any
//! more, so that it begins again. What is compared is the group's history; nodes know nothing of proposals.

use std::collections::BTreeMap;

use tidegate_core::group::GroupId;
use tidegate_proto::v1;

use super::catalog::Catalog;
use super::definition::Definition;
use super::group_fields::merged;
use super::groups::{GroupReply, refuse_emptied};
use crate::accounts::what_if::Asked;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::definitions::{DefinitionCalls, Definitions};
use crate::error::{AdminError, InField};
use crate::limits::MAX_PROPOSALS;
use crate::name::GroupName;
use crate::quantity::cut;
use crate::store::records::{bad, group_of, json};
use crate::store::{Store, StoreError, Table, each};

/// The fields that a replay can judge.
const FIELDS: [&str; 7] =
    ["ru_per_sec", "burst", "burstable", "burst_ru_per_sec", "policy", "quota", "max_wait_us"];

/// A proposed change of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// Whose.
    group: GroupName,
    /// As it is stored and answered.
    said: v1::Proposal,
}

impl Proposal {
    /// As it is stored and answered.
    pub(crate) fn message(&self) -> &v1::Proposal {
        &self.said
    }

    fn load(said: v1::Proposal) -> Result<Self, String> {
        let name = said.group.as_ref().map(|group| group.name.as_str()).unwrap_or_default();
        let group = GroupName::parse(name).map_err(|error| error.to_string())?;
        if let Some(other) = said.fields.iter().find(|field| !FIELDS.contains(&field.as_str())) {
            return Err(format!("{other:?} is no field of a proposal"));
        }
        Ok(Self { group, said })
    }

    /// Reads a row of the store; `None` without its group: a build that knows no proposals has deleted that.
    pub(crate) fn row<'n>(
        key: &[u8],
        value: &[u8],
        name: impl FnOnce(GroupId) -> Option<&'n GroupName>,
    ) -> Result<Option<(GroupId, Self)>, StoreError> {
        let table = Table::Proposals;
        let id = group_of(table, key)?;
        let proposal = Self::load(json(table, value)?).map_err(|reason| bad(table, &reason))?;
        match name(id) {
            Some(name) if *name == proposal.group => Ok(Some((id, proposal))),
            Some(_) => Err(bad(table, &format!("that of {} has the key of another", proposal.group))),
            None => Ok(None),
        }
    }

    /// The group as it would be.
    pub(crate) fn changed(&self, live: &Definition) -> Result<Definition, AdminError> {
        let changes = self.said.group.clone().unwrap_or_default();
        Definition::parse(&with(&live.text(), &changes, &self.said.fields)?)
    }

    /// The group as it would be, or as it is said to be where that does not fit what the group has become.
    fn wanted(&self, live: &Definition) -> v1::Group {
        let said = || with(&live.text(), &self.said.group.clone().unwrap_or_default(), &self.said.fields);
        self.changed(live).map(|changed| changed.text()).or_else(|_| said()).unwrap_or_else(|_| live.text())
    }

    /// What people must know to read the comparison.
    pub(crate) fn notes(&self) -> Vec<String> {
        let v1::Proposal { revision, live_revision, .. } = self.said;
        if live_revision == revision {
            return Vec::new();
        }
        vec![format!(
            "group {} was changed since this was proposed: it was at revision {revision} then, and is at {live_revision} \
             since the comparison began again; look at both before you apply it",
            self.group
        )]
    }
}

/// All of them, by group.
#[derive(Debug, Default)]
pub(crate) struct Proposals(BTreeMap<GroupId, Proposal>);

impl Proposals {
    /// Reads them from the store.
    pub(super) fn load(store: &dyn Store, catalog: &Catalog) -> Result<Self, StoreError> {
        let mut all = BTreeMap::new();
        each(store, Table::Proposals, |key, value| {
            all.extend(Proposal::row(key, value, |id| catalog.name(id))?);
            Ok(())
        })?;
        Ok(Self(all))
    }

    pub(super) fn put(&mut self, id: GroupId, proposal: Proposal) {
        self.0.insert(id, proposal);
    }

    pub(super) fn remove(&mut self, id: GroupId) {
        self.0.remove(&id);
    }

    /// That of a group.
    pub(crate) fn get(&self, id: GroupId) -> Option<&Proposal> {
        self.0.get(&id)
    }
}

impl Definitions {
    /// Proposals of groups that these edits change, unless they end them: their comparisons begin again.
    pub(super) fn begun_again(&self, edits: &[Edit], unix_s: u64) -> Vec<Edit> {
        let ends = |group: &GroupId| {
            edits.iter().any(|edit| matches!(edit, Edit::RemoveProposal(id) if id == group))
        };
        let again = edits.iter().filter_map(|edit| {
            let Edit::PutGroup(id, definition) = edit else { return None };
            let before = self.proposals.get(*id).filter(|_| !ends(id))?;
            let mut after = before.clone();
            (after.said.since_unix_s, after.said.live_revision) = (unix_s, definition.revision);
            Some(Edit::PutProposal(*id, Box::new(after)))
        });
        again.collect()
    }

    /// The proposal of a group.
    pub(crate) fn proposal(&self, id: GroupId, name: &GroupName) -> Result<&Proposal, AdminError> {
        self.proposals.get(id).ok_or_else(|| {
            let message = format!("nothing is proposed for group {name}; propose a change of it first");
            AdminError::Refused { message }
        })
    }
}

impl DefinitionCalls<'_> {
    /// Proposes a change of a group, in place of an earlier proposal; returns the proposal.
    pub fn put_proposal(
        &self,
        actor: &Actor,
        changes: &v1::Group,
        mask: &[String],
        expected_revision: u64,
    ) -> Result<v1::Proposal, AdminError> {
        let name = GroupName::parse(&changes.name).in_field("name")?;
        let fields = fields(mask)?;
        let unix_s = self.service.clock().unix_ms() / 1_000;
        self.change(actor, |state| {
            let definitions = &state.definitions;
            let id = definitions.catalog.require(&name)?;
            let live = definitions.expect_revision(id, expected_revision)?;
            let blank = v1::Group { name: name.to_string(), ..v1::Group::default() };
            let said = v1::Proposal {
                group: Some(with(&blank, changes, &fields)?),
                fields,
                revision: live.revision,
                proposed_unix_s: unix_s,
                since_unix_s: unix_s,
                live_revision: live.revision,
                id: definitions.revision + 1,
            };
            let proposal = Proposal { group: name.clone(), said };
            let changed = proposal.changed(live)?;
            refuse_emptied(&changed.text(), &live.text())?;
            definitions.check(&state.leasing, id, &changed)?;
            if changed == *live {
                let message = format!("changes nothing of group {name}; propose another value");
                return Err(AdminError::invalid("update_mask", message));
            }
            Asked::between(live, &changed, None, None)?;
            let before = definitions.proposals.get(id);
            if before.is_none() && definitions.proposals.0.len() >= MAX_PROPOSALS {
                return Err(AdminError::Full { what: "proposals", limit: MAX_PROPOSALS });
            }
            let change = Change {
                action: "propose",
                subject: name.to_string(),
                before: before.map(text).unwrap_or_default(),
                after: text(&proposal),
            };
            let reply = proposal.said.clone();
            Ok(Plan { edits: vec![Edit::PutProposal(id, Box::new(proposal))], changes: vec![change], reply })
        })
    }

    /// Alters a group as it is proposed, and ends the proposal, in one change. What was changed since it was proposed is
    /// not altered unseen.
    pub fn apply_proposal(
        &self,
        actor: &Actor,
        group: &str,
        expected_id: u64,
    ) -> Result<GroupReply, AdminError> {
        let name = GroupName::parse(group).in_field("group")?;
        self.change(actor, |state| {
            let id = state.definitions.catalog.require(&name)?;
            let proposal = state.definitions.proposal(id, &name)?;
            let v1::Proposal { revision, live_revision, fields, group, id: number, .. } = proposal.message();
            if expected_id != 0 && expected_id != *number {
                let message = format!(
                    "what is proposed for group {name} is number {number}, and not {expected_id} any more: look at it again"
                );
                return Err(AdminError::Refused { message });
            }
            if live_revision != revision {
                let message = format!(
                    "group {name} was changed since this was proposed, at revision {revision}, and is at {live_revision}: \
                     propose it again, and look at the comparison"
                );
                return Err(AdminError::Refused { message });
            }
            let changes = group.clone().unwrap_or_default();
            let mut plan = state.altering(&name, &changes, fields, *revision)?;
            plan.edits.push(Edit::RemoveProposal(id));
            plan.changes.push(withdrawn(&name, proposal));
            Ok(plan)
        })
    }

    /// Removes the proposal of a group; returns whether there was one.
    pub fn delete_proposal(&self, actor: &Actor, group: &str) -> Result<bool, AdminError> {
        let name = GroupName::parse(group).in_field("group")?;
        self.change(actor, |state| {
            let id = state.definitions.catalog.require(&name)?;
            let Some(before) = state.definitions.proposals.get(id) else { return Ok(Plan::nothing(false)) };
            Ok(Plan {
                edits: vec![Edit::RemoveProposal(id)],
                changes: vec![withdrawn(&name, before)],
                reply: true,
            })
        })
    }

    /// The proposal of a group without its comparison, and the group as it is proposed; nothing if nothing is.
    pub fn proposed(&self, group: &str) -> Result<Option<(v1::Proposal, v1::Group)>, AdminError> {
        let name = GroupName::parse(group).in_field("group")?;
        let state = self.service.lock();
        let id = state.definitions.catalog.require(&name)?;
        let Some(proposal) = state.definitions.proposals.get(id) else { return Ok(None) };
        let live = state.definitions.expect_revision(id, 0)?;
        Ok(Some((proposal.said.clone(), proposal.wanted(live))))
    }

    /// All of them, by the names of their groups.
    pub fn proposals(&self) -> Vec<v1::Proposal> {
        let state = self.service.lock();
        let mut all: Vec<&Proposal> = state.definitions.proposals.0.values().collect();
        all.sort_by_key(|proposal| &proposal.group);
        all.into_iter().map(|proposal| proposal.said.clone()).collect()
    }
}

/// The fields that are proposed, each once.
fn fields(mask: &[String]) -> Result<Vec<String>, AdminError> {
    let known = FIELDS.join(", ");
    if mask.is_empty() {
        return Err(AdminError::invalid("update_mask", format!("names no field; propose some of: {known}")));
    }
    if let Some(other) = mask.iter().find(|field| !FIELDS.contains(&field.as_str())) {
        let message = format!("{:?} cannot be judged by a replay; these can: {known}", cut(other));
        return Err(AdminError::invalid("update_mask", message));
    }
    let proposed = FIELDS.iter().filter(|field| mask.iter().any(|named| named == *field));
    Ok(proposed.map(|field| (*field).to_owned()).collect())
}

/// A text with these fields of another.
fn with(text: &v1::Group, changes: &v1::Group, fields: &[String]) -> Result<v1::Group, AdminError> {
    merged(text, changes, fields)
        .map_err(|field| AdminError::invalid("update_mask", format!("{field:?} is no field")))
}

/// The end of a proposal, for the audit log.
fn withdrawn(name: &GroupName, proposal: &Proposal) -> Change {
    Change {
        action: "withdraw proposal",
        subject: name.to_string(),
        before: text(proposal),
        after: String::new(),
    }
}

/// As the audit log has it.
fn text(proposal: &Proposal) -> String {
    serde_json::to_string(proposal.message()).unwrap_or_default()
}
