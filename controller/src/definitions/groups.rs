//! Creating, altering and reading groups.

use tidegate_core::group::GroupId;
use tidegate_proto::v1;

use crate::answers::page_limit;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::definitions::definition::Definition;
use crate::definitions::group_fields::{alterable, differing, emptied, merged};
use crate::definitions::{DefinitionCalls, Definitions};
use crate::error::{AdminError, InField};
use crate::leasing::Leasing;
use crate::limits::MAX_PAGE;
use crate::name::GroupName;
use crate::quantity::cut;
use crate::service::State;

/// A group, with warnings for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReply {
    /// The definition.
    pub group: v1::Group,
    /// Warnings.
    pub warnings: Vec<String>,
    /// Whether the request changed something.
    pub changed: bool,
}

/// A part of the list of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In order of their names.
    pub groups: Vec<v1::Group>,
    /// The name to continue after; empty at the end.
    pub next_after: String,
    /// Warnings about the groups of this page.
    pub warnings: Vec<String>,
}

impl DefinitionCalls<'_> {
    /// Creates a group.
    pub fn create_group(
        &self,
        actor: &Actor,
        text: &v1::Group,
        if_not_exists: bool,
    ) -> Result<GroupReply, AdminError> {
        let mut definition = Definition::parse(text)?;
        // A group without a cap must be asked for by name, since a variable that was never set is empty, too.
        refuse_emptied(text, &v1::Group { ru_per_sec: "unlimited".to_owned(), ..v1::Group::default() })?;
        self.change(actor, |state| {
            if let Some(id) = state.definitions.catalog.id(&definition.name) {
                return existing(state, id, &definition, if_not_exists);
            }
            let id = state.definitions.catalog.next_id()?;
            state.definitions.check(&state.leasing, id, &definition)?;
            definition.revision = state.definitions.revision + 1;
            Ok(state.definitions.put_plan(&state.leasing, "create group", id, definition, None))
        })
    }

    /// Changes the fields of a group that `mask` names.
    pub fn alter_group(
        &self,
        actor: &Actor,
        text: &v1::Group,
        mask: &[String],
        expected_revision: u64,
    ) -> Result<GroupReply, AdminError> {
        let name = GroupName::parse(&text.name).in_field("name")?;
        if mask.is_empty() {
            let message = format!("names no field; name those to change: {}", names());
            return Err(AdminError::invalid("update_mask", message));
        }
        self.change(actor, |state| state.altering(&name, text, mask, expected_revision))
    }

    /// One group.
    pub fn group(&self, name: &str) -> Result<GroupReply, AdminError> {
        let name = GroupName::parse(name).in_field("name")?;
        let state = self.service.lock();
        let id = state.definitions.require(self.sight, &name)?;
        let definition = state.definitions.catalog.get(id).ok_or(AdminError::NoGroup { name })?;
        let warnings = self.warnings(&state, id, definition);
        let group = state.definitions.seen(self.sight).text(definition);
        Ok(GroupReply { group, warnings, changed: false })
    }

    /// Groups by name after `after`, at most `limit`; 0 means as many as a page may have.
    pub fn groups(&self, after: &str, limit: u32) -> Result<Page, AdminError> {
        let after = (!after.is_empty()).then(|| GroupName::parse(after).in_field("after")).transpose()?;
        let limit = page_limit(limit, MAX_PAGE, MAX_PAGE)?;
        let state = self.service.lock();
        let seen = state.definitions.seen(self.sight);
        let mut definitions = seen.page(&state.definitions.catalog, after.as_ref()).peekable();
        let mut page = Page::default();
        for definition in definitions.by_ref().take(limit) {
            if let Some(id) = state.definitions.catalog.id(&definition.name) {
                page.warnings.extend(self.warnings(&state, id, definition));
            }
            page.groups.push(seen.text(definition));
        }
        if definitions.peek().is_some() {
            page.next_after = page.groups.last().map(|group| group.name.clone()).unwrap_or_default();
        }
        Ok(page)
    }

    /// What an operator is warned of; it names other groups, which a tenant does not see.
    fn warnings(&self, state: &State, id: GroupId, definition: &Definition) -> Vec<String> {
        match self.sight.tenant() {
            None => state.definitions.warnings(&state.leasing, id, definition),
            Some(_) => Vec::new(),
        }
    }
}

impl State {
    /// The change of the fields of a group that `mask` names.
    pub(super) fn altering(
        &self,
        name: &GroupName,
        text: &v1::Group,
        mask: &[String],
        expected_revision: u64,
    ) -> Result<Plan<GroupReply>, AdminError> {
        let id = self.definitions.catalog.require(name)?;
        let before = self.definitions.expect_revision(id, expected_revision)?;
        let merged = merged(&before.text(), text, mask).map_err(|field| {
            let message = format!("{:?} cannot be altered; these can: {}", cut(field), names());
            AdminError::invalid("update_mask", message)
        })?;
        refuse_emptied(&merged, &before.text())?;
        let mut definition = Definition::parse(&merged)?;
        self.definitions.check(&self.leasing, id, &definition)?;
        if definition == *before {
            let warnings = self.definitions.warnings(&self.leasing, id, &definition);
            return Ok(Plan::nothing(GroupReply { group: definition.text(), warnings, changed: false }));
        }
        definition.revision = self.definitions.revision + 1;
        Ok(self.definitions.put_plan(&self.leasing, "alter group", id, definition, Some(before)))
    }
}

/// The fields that an alteration may name.
fn names() -> String {
    alterable().collect::<Vec<_>>().join(", ")
}

/// Refuses an empty text where `before` has one.
pub(crate) fn refuse_emptied(text: &v1::Group, before: &v1::Group) -> Result<(), AdminError> {
    match emptied(text, before).next() {
        Some((field, write)) => Err(AdminError::invalid(field, format!("is empty; write {write}"))),
        None => Ok(()),
    }
}

/// The reply for a group that is to be created and exists already.
fn existing(
    state: &State,
    id: GroupId,
    wanted: &Definition,
    if_not_exists: bool,
) -> Result<Plan<GroupReply>, AdminError> {
    let known = state.definitions.catalog.get(id).map(Definition::text).unwrap_or_default();
    let fields = differing(&known, &wanted.text());
    if if_not_exists && fields.is_empty() {
        let warnings = state.definitions.warnings(&state.leasing, id, wanted);
        return Ok(Plan::nothing(GroupReply { group: known, warnings, changed: false }));
    }
    let difference = if fields.is_empty() {
        "as asked for; say if_not_exists to make that a success".to_owned()
    } else {
        format!("with another {}; alter it, or create it under another name", fields.join(", "))
    };
    Err(AdminError::AlreadyExists { what: format!("group {}", wanted.name), difference })
}

impl Definitions {
    /// Checks a definition for group `id`, in the catalog and in the grant engine.
    pub(crate) fn check(
        &self,
        leasing: &Leasing,
        id: GroupId,
        definition: &Definition,
    ) -> Result<(), AdminError> {
        let parent = self.catalog.check(id, definition)?;
        self.check_room(leasing, id, parent)
    }

    /// Checks its place, in both.
    pub(crate) fn check_place(
        &self,
        leasing: &Leasing,
        id: GroupId,
        definition: &Definition,
    ) -> Result<(), AdminError> {
        let parent = self.catalog.check_place(id, definition)?;
        self.check_room(leasing, id, parent)
    }

    fn check_room(&self, leasing: &Leasing, id: GroupId, parent: Option<GroupId>) -> Result<(), AdminError> {
        let Some(parent) = parent else { return Ok(()) };
        self.catalog.check_room(id, parent, |group| leasing.removed_below(group))
    }

    /// The definition, if it still has the revision that the caller read.
    pub(crate) fn expect_revision(&self, id: GroupId, expected: u64) -> Result<&Definition, AdminError> {
        let missing = || AdminError::Internal(format!("group id {} has no definition", id.0));
        let definition = self.catalog.get(id).ok_or_else(missing)?;
        if expected != 0 && expected != definition.revision {
            let (name, actual) = (definition.name.clone(), definition.revision);
            return Err(AdminError::Revision { name, expected, actual });
        }
        Ok(definition)
    }

    pub(crate) fn warnings(&self, leasing: &Leasing, id: GroupId, definition: &Definition) -> Vec<String> {
        self.catalog.warnings(id, definition, leasing.clients().connected())
    }

    fn put_plan(
        &self,
        leasing: &Leasing,
        action: &'static str,
        id: GroupId,
        definition: Definition,
        before: Option<&Definition>,
    ) -> Plan<GroupReply> {
        let change = Change {
            action,
            subject: definition.name.to_string(),
            before: before.map(json).unwrap_or_default(),
            after: json(&definition),
        };
        let warnings = self.warnings(leasing, id, &definition);
        let reply = GroupReply { group: definition.text(), warnings, changed: true };
        Plan { edits: vec![Edit::PutGroup(id, Box::new(definition))], changes: vec![change], reply }
    }
}

pub(crate) fn json(definition: &Definition) -> String {
    serde_json::to_string(&definition.text()).unwrap_or_default()
}
