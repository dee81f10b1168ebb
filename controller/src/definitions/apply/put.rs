//! Putting groups, bindings, cost tables and watches into the draft.

use std::sync::Arc;

use tidegate_cost_model::CostTable;
use tidegate_proto::v1;

use super::draft::Draft;
use super::wanted::Wanted;
use super::{Done, Faults, Outcome};
use crate::definitions::audit::Change;
use crate::definitions::bindings::Principal;
use crate::definitions::cost_tables::{CostTables, Role, shape};
use crate::definitions::definition::Definition;
use crate::definitions::group_fields::{differing, emptied};
use crate::definitions::groups::json;
use crate::error::AdminError;
use crate::limits::{MAX_BINDINGS, MAX_WATCHES};
use crate::name::GroupName;
use crate::statements::watches::Watch;

/// A group's name as JSON; names need no escapes.
fn quoted(group: &GroupName) -> String {
    format!("\"{group}\"")
}

fn table_json(table: &CostTable) -> String {
    serde_json::to_string(&shape(table)).unwrap_or_default()
}

impl Draft<'_> {
    /// Puts a group into the draft. Its place is checked once all groups are there.
    pub(crate) fn put_group(
        &mut self,
        place: &str,
        text: &v1::Group,
        definition: &Definition,
        faults: &mut Faults,
    ) -> Option<Outcome> {
        let catalog = &self.state.definitions.catalog;
        let id = catalog.id(&definition.name);
        let before = id.and_then(|id| catalog.get(id)).cloned();
        // A limit is lifted by name only, since a variable that was never set is empty, too; so a new group must name
        // its cap.
        let new = || v1::Group { ru_per_sec: "unlimited".to_owned(), ..v1::Group::default() };
        let said = before.as_ref().map_or_else(new, Definition::text);
        let lifted = differing(&said, &definition.text());
        let emptied = emptied(text, &said);
        let emptied: Vec<_> =
            emptied.filter(|(field, _)| *field == "ru_per_sec" || lifted.contains(field)).collect();
        for (field, write) in &emptied {
            faults.add(place, &AdminError::invalid(*field, format!("is empty; write {write}")));
        }
        if !emptied.is_empty() {
            return None;
        }
        let id = match id.map_or_else(|| catalog.next_id(), Ok) {
            Ok(id) => id,
            Err(error) => {
                faults.add(place, &error);
                return None;
            }
        };
        let name = definition.name.to_string();
        let revision = self.state.definitions.revision + 1;
        let mut after = definition.clone();
        after.revision = before.as_ref().map_or(revision, |before| before.revision);
        if before.as_ref() == Some(&after) {
            // An unchanged group is checked again, too, because its surroundings may have changed.
            return Some(Outcome::unchanged("group", name));
        }
        after.revision = revision;
        let (action, done) = match before {
            Some(_) => ("alter group", Done::Altered),
            None => ("create group", Done::Created),
        };
        let before = before.as_ref().map(json).unwrap_or_default();
        let change = Change { action, subject: name.clone(), before, after: json(&after) };
        self.put(id, after);
        Some(Outcome { kind: "group", name, done, change })
    }

    /// Binds a principal.
    pub(crate) fn bind(&mut self, principal: &Principal, group: &GroupName) -> Result<Outcome, AdminError> {
        self.state.definitions.catalog.require(group)?;
        let (name, before) = (principal.to_string(), self.bound(principal).cloned());
        if before.as_ref() == Some(group) {
            return Ok(Outcome::unchanged("binding", name));
        }
        self.bindings.insert(principal.clone(), Some(group.clone()));
        let done = if before.is_some() { Done::Altered } else { Done::Created };
        let before = before.as_ref().map(quoted).unwrap_or_default();
        let change = Change { action: "bind", subject: name.clone(), before, after: quoted(group) };
        Ok(Outcome { kind: "binding", name, done, change })
    }

    /// Removes a binding, if there is one.
    pub(crate) fn unbind(&mut self, principal: &Principal) -> Outcome {
        let name = principal.to_string();
        let Some(group) = self.bound(principal) else { return Outcome::unchanged("binding", name) };
        let before = quoted(group);
        self.bindings.insert(principal.clone(), None);
        let change = Change { action: "unbind", subject: name.clone(), before, after: String::new() };
        Outcome { kind: "binding", name, done: Done::Deleted, change }
    }

    /// Gives a table its role.
    pub(crate) fn put_table(&mut self, role: Role, table: Option<&CostTable>) -> Result<Outcome, AdminError> {
        let costs: &CostTables = self.costs.as_ref().unwrap_or(&self.state.definitions.costs);
        let (action, before) = match role {
            Role::Active => ("activate cost table", costs.active()),
            Role::Shadow => ("shadow cost table", costs.shadow()),
        };
        let before = before.map(table_json).unwrap_or_default();
        let after = Arc::new(costs.with(role, table.cloned())?);
        let subject = table.map_or_else(|| "none".to_owned(), ToString::to_string);
        let name = format!("{} {subject}", if role == Role::Active { "active" } else { "shadow" });
        if after.roles() == costs.roles() {
            return Ok(Outcome::unchanged("cost_table", name));
        }
        let done = match table {
            None => Done::Deleted,
            Some(_) if before.is_empty() => Done::Created,
            Some(_) => Done::Altered,
        };
        self.costs = Some(after);
        let change = Change { action, subject, before, after: table.map(table_json).unwrap_or_default() };
        Ok(Outcome { kind: "cost_table", name, done, change })
    }

    /// Adds or replaces a watch.
    pub(crate) fn put_watch(&mut self, wanted: &Watch) -> Result<Outcome, AdminError> {
        let id = self.state.definitions.catalog.require(&wanted.group)?;
        if let Some(target) = wanted.switch_group() {
            self.state.definitions.catalog.check_switch("switch_group", &wanted.group, target)?;
        }
        let ruled = self.state.definitions.catalog.get(id).is_some_and(|group| group.query_limit.is_some());
        if wanted.action.is_none() && !ruled {
            let message =
                format!("is missing, and group {} has no query_limit that says it; write one", wanted.group);
            return Err(AdminError::invalid("action", message));
        }
        let known = self.same_watch(wanted).cloned();
        let name =
            |watch: &Watch| format!("{} {} of group {}", watch.matching.as_str(), watch.digest, watch.group);
        if let Some(known) = &known {
            let same = (&known.action, known.end_unix_ms, &known.text)
                == (&wanted.action, wanted.end_unix_ms, &wanted.text);
            if same && known.is_manual() {
                return Ok(Outcome::unchanged("watch", name(known)));
            }
        }
        let id = known.as_ref().map_or(self.next_watch, |known| known.id);
        self.next_watch = self.next_watch.max(id.saturating_add(1));
        let watch = Watch { id, ..wanted.clone() };
        let json = |watch: &Watch| serde_json::to_string(&watch.text()).unwrap_or_default();
        let done = if known.is_some() { Done::Altered } else { Done::Created };
        let change = Change {
            action: "add watch",
            subject: format!("{id} of group {}", watch.group),
            before: known.as_ref().map(json).unwrap_or_default(),
            after: json(&watch),
        };
        let name = name(&watch);
        self.watches.insert(id, Some(watch));
        Ok(Outcome { kind: "watch", name, done, change })
    }

    /// Ends a watch, if it exists.
    pub(crate) fn end_watch(&mut self, id: u64) -> Outcome {
        let Some(watch) = self.watch(id) else { return Outcome::unchanged("watch", id.to_string()) };
        let subject = format!("{id} of group {}", watch.group);
        let before = serde_json::to_string(&watch.text()).unwrap_or_default();
        let change =
            Change { action: "remove watch", subject: subject.clone(), before, after: String::new() };
        self.watches.insert(id, None);
        Outcome { kind: "watch", name: subject, done: Done::Deleted, change }
    }

    /// Whether there is room for all bindings and watches of operators as they are left: what goes makes room.
    pub(crate) fn check_room(&self) -> Result<(), AdminError> {
        let full = |what, limit| Err(AdminError::Full { what, limit });
        if self.binding_count() > MAX_BINDINGS.max(self.state.definitions.bindings.len()) {
            return full("bindings", MAX_BINDINGS);
        }
        let watches = self.all_watches().filter(|watch| watch.is_manual()).count();
        if watches > MAX_WATCHES { full("watches", MAX_WATCHES) } else { Ok(()) }
    }

    /// Puts everything but groups, once all groups are there.
    pub(crate) fn put_rest(&mut self, wanted: &Wanted) -> Option<Result<Outcome, AdminError>> {
        Some(match wanted {
            Wanted::Binding(principal, group) => self.bind(principal, group),
            Wanted::DeleteBinding(principal) => Ok(self.unbind(principal)),
            Wanted::CostTable(role, table) => self.put_table(*role, table.as_ref()),
            Wanted::Watch(watch) => self.put_watch(watch),
            Wanted::DeleteWatch(id) => Ok(self.end_watch(*id)),
            Wanted::Group { .. } | Wanted::DeleteGroup { .. } => return None,
        })
    }
}
