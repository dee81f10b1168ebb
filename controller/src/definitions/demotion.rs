//! The rules between a group and the one in which its operations go on that are over its rate or its quota, and an index
//! of who demotes to whom.
//!
//! A demotion is one step to a lower priority, under a limit that is in force: no rate ends in work without bound. The
//! rules hold at both ends and between the groups above them, so each change is judged by what it leaves.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::MAX_DEPTH;
use tidegate_core::group::{GroupId, Priority};

use crate::definitions::catalog::Catalog;
use crate::definitions::definition::Definition;
use crate::error::AdminError;
use crate::name::GroupName;

/// The field that names the target.
const FIELD: &str = "demote_to";

/// Groups that demote, by their target.
#[derive(Debug, Default, PartialEq)]
pub struct Demoting(BTreeMap<GroupName, BTreeSet<GroupId>>);

impl Demoting {
    /// Adds a definition.
    pub(super) fn insert(&mut self, id: GroupId, definition: &Definition) {
        if let Some(target) = &definition.demote_to {
            self.0.entry(target.clone()).or_default().insert(id);
        }
    }

    /// Removes a definition.
    pub(super) fn remove(&mut self, id: GroupId, definition: &Definition) {
        let Some(target) = &definition.demote_to else { return };
        if let Some(sources) = self.0.get_mut(target) {
            sources.remove(&id);
            if sources.is_empty() {
                self.0.remove(target);
            }
        }
    }

    /// Whether no group demotes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Groups that demote to this one.
    pub fn to(&self, target: &GroupName) -> impl Iterator<Item = GroupId> {
        self.0.get(target).into_iter().flatten().copied()
    }
}

/// Checks `definition` for group `id`, which may be new, once its place is checked: its own demotion, and all that it bears
/// on. `before` is what it is to replace, which a draft may have replaced already.
pub(super) fn check(
    catalog: &Catalog,
    id: GroupId,
    definition: &Definition,
    before: Option<&Definition>,
) -> Result<(), AdminError> {
    let parent = definition.parent.as_ref().and_then(|parent| catalog.id(parent));
    let is_new = before.is_none_or(|before| before.demote_to != definition.demote_to);
    let after = After { catalog, id, definition, parent, is_new };
    if let Some(target) = &definition.demote_to {
        after.check_own(target)?;
    } else if catalog.demoting.is_empty() {
        return Ok(());
    }
    let mut unseen = vec![id];
    while let Some(group) = unseen.pop() {
        let Some(of_group) = after.get(group) else { continue };
        if let Some(target) = of_group.demote_to.as_ref().and_then(|target| catalog.id(target)) {
            after.check_pair(group, target)?;
        }
        for source in catalog.demoting.to(&of_group.name).filter(|source| *source != id) {
            after.check_pair(source, group)?;
        }
        unseen.extend(catalog.children(group).filter(|child| *child != id));
    }
    Ok(())
}

/// The catalog as a change would leave it.
struct After<'a> {
    catalog: &'a Catalog,
    id: GroupId,
    definition: &'a Definition,
    parent: Option<GroupId>,
    /// Whether the group did not demote there before.
    is_new: bool,
}

impl<'a> After<'a> {
    fn get(&self, id: GroupId) -> Option<&'a Definition> {
        if id == self.id { Some(self.definition) } else { self.catalog.get(id) }
    }

    /// A group and those above it.
    fn path(&self, id: GroupId) -> impl Iterator<Item = GroupId> {
        let above = |id: &GroupId| if *id == self.id { self.parent } else { self.catalog.parent(*id) };
        std::iter::successors(Some(id), above).take(MAX_DEPTH + 1)
    }

    /// The target that the definition names.
    fn check_own(&self, target: &GroupName) -> Result<(), AdminError> {
        let (name, refuse) = (&self.definition.name, |message| Err(AdminError::invalid(FIELD, message)));
        if target == name {
            return refuse(format!("{target} is the group itself; name another, or \"/\" for none"));
        }
        let Some(below) = self.catalog.id(target).and_then(|id| self.catalog.get(id)) else {
            return refuse(format!("group {target} does not exist; create it first"));
        };
        if let Some(further) = &below.demote_to {
            return refuse(format!(
                "group {target} demotes to group {further} itself, and work is demoted once; name group {further}, or take \
                 the demotion of group {target} away with \"/\""
            ));
        }
        let mut sources = self.catalog.demoting.to(name).filter(|source| *source != self.id);
        match sources.next().and_then(|source| self.catalog.name(source)) {
            Some(source) => refuse(format!(
                "group {source} demotes to group {name}, and work is demoted once; take one of both away with \"/\""
            )),
            None => Ok(()),
        }
    }

    /// The rules that hold between a group and its target.
    fn check_pair(&self, source: GroupId, target: GroupId) -> Result<(), AdminError> {
        let (Some(from), Some(to)) = (self.get(source), self.get(target)) else { return Ok(()) };
        let (group, name) = (&from.name, &to.name);
        let related = match () {
            () if self.path(source).any(|step| step == target) => Some("above"),
            () if self.path(target).any(|step| step == source) => Some("below"),
            () => None,
        };
        if let Some(place) = related {
            return self.refuse(source, "parent", format!(
                "group {name}, to which group {group} demotes, would be {place} it, and one would count in the other; demote \
                 to a group beside it, or take the demotion away with \"/\""
            ));
        }
        if to.priority >= from.priority {
            let (of_target, of_group) = (word(to.priority), word(from.priority));
            return self.refuse(source, "priority", format!(
                "group {group} has priority {of_group} and demotes to group {name}, whose priority {of_target} is not lower; \
                 give group {name} a lower one, or group {group} a higher one"
            ));
        }
        if let Some(shadow) = self.path(target).filter_map(|step| self.get(step)).find(|step| step.shadow) {
            return self.refuse(source, "enforcement", format!(
                "group {group} demotes to group {name}, and with enforcement \"shadow\" of group {} nothing would limit what \
                 is demoted; write \"on\", or take the demotion away with \"/\"",
                shadow.name
            ));
        }
        let limits = |step: &Definition| step.limit().is_some() || step.quota.is_some();
        if self.catalog.capacity().is_none()
            && !self.path(target).filter_map(|step| self.get(step)).any(limits)
        {
            return self.refuse(source, "ru_per_sec", format!(
                "group {group} demotes to group {name}, and nothing would limit what is demoted: neither group {name} nor one \
                 above it has a limit; give it a rate, or take the demotion away with \"/\""
            ));
        }
        Ok(())
    }

    /// An error of what this change says: of its own demotion if that is new, or else of `field`.
    fn refuse(&self, source: GroupId, field: &str, message: String) -> Result<(), AdminError> {
        let field = if source == self.id && self.is_new { FIELD } else { field };
        Err(AdminError::invalid(field, message))
    }
}

/// A priority as it is written.
fn word(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "low",
        Priority::Medium => "medium",
        Priority::High => "high",
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Rate;
    use tidegate_proto::v1;

    use super::*;

    /// Name, parent, rate, priority and target; an empty rate is none.
    fn definition([name, parent, rate, priority, target]: [&str; 5]) -> Definition {
        let text = v1::Group {
            name: name.into(),
            parent: parent.into(),
            ru_per_sec: rate.into(),
            priority: priority.into(),
            demote_to: target.into(),
            ..v1::Group::default()
        };
        Definition::parse(&text).unwrap()
    }

    fn put(catalog: &mut Catalog, definition: Definition) {
        let id = catalog.id(&definition.name).unwrap_or_else(|| catalog.next_id().unwrap());
        catalog.check(id, &definition).unwrap();
        catalog.put(id, definition);
    }

    /// `shop` demotes to `spill`, which is below `low`; `other` is beside both.
    fn catalog() -> Catalog {
        let mut catalog = Catalog::new(None, 0);
        catalog.put(GroupId::DEFAULT, Definition::default_group());
        for group in [
            ["low", "", "50", "low", ""],
            ["spill", "low", "10", "low", ""],
            ["top", "", "500", "", ""],
            ["shop", "top", "100", "high", "spill"],
            ["other", "", "7", "", ""],
        ] {
            put(&mut catalog, definition(group));
        }
        catalog
    }

    fn refused(catalog: &Catalog, definition: &Definition, field: &str, words: &[&str]) {
        let id = catalog.id(&definition.name).unwrap_or_else(|| catalog.next_id().unwrap());
        let error = catalog.check(id, definition).unwrap_err();
        assert_eq!(error.field(), Some(field), "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn a_target_is_another_limited_group_of_lower_priority_beside_it() {
        let mut catalog = catalog();
        let shop = |priority, target| definition(["shop", "top", "100", priority, target]);
        refused(&catalog, &shop("high", "shop"), "demote_to", &["shop is the group itself", "\"/\""]);
        refused(&catalog, &shop("high", "nobody"), "demote_to", &["nobody does not exist", "create it"]);
        refused(&catalog, &shop("high", "top"), "demote_to", &["group top", "group shop", "above", "\"/\""]);
        refused(
            &catalog,
            &definition(["top", "", "500", "high", "shop"]),
            "demote_to",
            &["group shop demotes to group spill"],
        );
        put(&mut catalog, definition(["below", "shop", "5", "low", ""]));
        refused(&catalog, &shop("high", "below"), "demote_to", &["below", "group shop"]);
        for priority in ["low", "medium"] {
            let other = definition(["other", "", "7", priority, ""]);
            put(&mut catalog, other);
            let equal = shop(priority, "other");
            refused(&catalog, &equal, "demote_to", &["group shop", "group other", priority, "not lower"]);
        }
        refused(&catalog, &definition(["new", "", "5", "", "default"]), "demote_to", &["priority medium"]);
        put(&mut catalog, definition(["free", "", "", "low", ""]));
        refused(&catalog, &shop("high", "free"), "demote_to", &["group free", "nothing would limit", "rate"]);
        let shadow = Definition { shadow: true, ..definition(["tried", "", "5", "low", ""]) };
        put(&mut catalog, shadow);
        refused(&catalog, &shop("high", "tried"), "demote_to", &["group tried", "shadow"]);
        // A limit above it is one, and so are a quota and what the server has.
        put(&mut catalog, definition(["child", "low", "", "low", ""]));
        put(&mut catalog, shop("high", "child"));
        let text = v1::Group {
            name: "daily".into(),
            priority: "low".into(),
            quota: "5 per day".into(),
            ..v1::Group::default()
        };
        put(&mut catalog, Definition::parse(&text).unwrap());
        put(&mut catalog, shop("medium", "daily"));
        let mut bounded = Catalog::new(Some(Rate::whole(9)), 0);
        put(&mut bounded, definition(["free", "", "", "low", ""]));
        put(&mut bounded, definition(["shop", "", "5", "", "free"]));
    }

    #[test]
    fn work_is_demoted_once() {
        let catalog = catalog();
        let further = ["group shop demotes to group spill", "\"/\""];
        refused(&catalog, &definition(["spill", "low", "10", "medium", "other"]), "demote_to", &further);
        refused(&catalog, &definition(["new", "", "5", "high", "shop"]), "demote_to", &further);
        refused(&catalog, &definition(["spill", "low", "10", "low", "shop"]), "demote_to", &further);
    }

    #[test]
    fn a_change_of_either_end_or_of_a_group_above_keeps_the_rules() {
        let mut catalog = catalog();
        let both = ["group shop", "group spill"];
        for priority in ["high", "medium"] {
            let shop = definition(["shop", "top", "100", "medium", "spill"]);
            put(&mut catalog, definition(["shop", "top", "100", priority, "spill"]));
            refused(&catalog, &definition(["spill", "low", "10", priority, ""]), "priority", &both);
            put(&mut catalog, shop);
        }
        refused(&catalog, &definition(["shop", "top", "100", "low", "spill"]), "priority", &both);
        refused(&catalog, &definition(["spill", "shop", "10", "low", ""]), "parent", &both);
        refused(&catalog, &definition(["low", "shop", "50", "low", ""]), "parent", &both);
        refused(&catalog, &definition(["top", "spill", "500", "", ""]), "parent", &both);
        // The target's own limit may go while one above it stays, and the other way round.
        put(&mut catalog, definition(["low", "", "", "low", ""]));
        refused(&catalog, &definition(["spill", "low", "", "low", ""]), "ru_per_sec", &both);
        put(&mut catalog, definition(["low", "", "50", "low", ""]));
        put(&mut catalog, definition(["spill", "low", "", "low", ""]));
        refused(&catalog, &definition(["low", "", "", "low", ""]), "ru_per_sec", &both);
        refused(&catalog, &definition(["spill", "", "", "low", ""]), "ru_per_sec", &both);
        let tried = Definition { shadow: true, ..definition(["low", "", "50", "low", ""]) };
        refused(&catalog, &tried, "enforcement", &["group spill", "group low", "shadow"]);
        put(&mut catalog, definition(["shop", "top", "100", "medium", "/"]));
        put(&mut catalog, tried);
        put(&mut catalog, definition(["spill", "shop", "", "high", ""]));
    }

    #[test]
    fn who_demotes_to_whom_is_known_and_a_store_without_the_target_is_refused() {
        let mut catalog = catalog();
        let name = |text: &str| GroupName::parse(text).unwrap();
        let shop = catalog.id(&name("shop")).unwrap();
        assert_eq!(catalog.demoting.to(&name("spill")).collect::<Vec<_>>(), [shop]);
        let all: Vec<_> = catalog.iter().map(|(id, definition)| (id, definition.clone())).collect();
        let loaded = Catalog::load(None, 0, all.clone()).unwrap();
        assert_eq!(loaded.demoting.to(&name("spill")).collect::<Vec<_>>(), [shop]);
        let dangling = all.into_iter().filter(|(_, definition)| definition.name != name("spill")).collect();
        assert!(Catalog::load(None, 0, dangling).unwrap_err().contains("demote_to spill of shop is missing"));
        put(&mut catalog, definition(["shop", "top", "100", "high", "/"]));
        assert!(catalog.demoting.is_empty());
    }
}
