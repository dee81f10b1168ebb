//! Groups as the rows of a store say them: read at once by a start, or kept beside the rows by a standby, so that a
//! takeover reads none of them. One code reads a row for both, and what is kept equals what is read.
//!
//! Rows that no controller stores are not kept: the caller gives up what it keeps, and the next start names what is wrong
//! with them.

use std::collections::BTreeMap;

use tidegate_core::group::GroupId;
use tidegate_core::units::{Rate, Span};

use super::catalog::Catalog;
use super::definition::Definition;
use crate::name::GroupName;
use crate::service::meta::possible;
use crate::store::records::{StoredGroup, bad, group_of, group_row, json};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

/// Groups that an assertion compares: with more, a takeover of a debug build would take more than a tenth of a second
/// longer.
const MOST_COMPARED: usize = 1_000;

/// All groups of a store, and the longest lease that may be out in each.
#[derive(Debug, PartialEq)]
pub(crate) struct Groups {
    catalog: Catalog,
    longest: BTreeMap<GroupId, Span>,
}

/// One row.
struct Row {
    id: GroupId,
    definition: Definition,
    /// `None` in rows of earlier versions.
    longest: Option<Span>,
}

impl Row {
    fn read(key: &[u8], value: &[u8]) -> Result<Self, StoreError> {
        let (id, stored): (_, StoredGroup) = (group_of(Table::Groups, key)?, json(Table::Groups, value)?);
        let mut definition =
            Definition::parse(&stored.group).map_err(|error| bad(Table::Groups, &error.to_string()))?;
        let is_default = definition.name == GroupName::default_group();
        if stored.id != id.0 || id == GroupId::ROOT || (id == GroupId::DEFAULT) != is_default {
            return Err(bad(Table::Groups, &format!("group {} has the id of another", definition.name)));
        }
        if is_default {
            // Earlier versions stored it without one.
            definition.revision = definition.revision.max(1);
        }
        let longest = stored.longest_ttl_us.map(|us| possible(Table::Groups, us, "a lease")).transpose()?;
        Ok(Self { id, definition, longest })
    }
}

impl Groups {
    /// Reads all rows.
    ///
    /// # Errors
    /// A row, or what rows say together, is nothing that a controller stores.
    pub(crate) fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut definitions = Vec::new();
        let mut longest = BTreeMap::new();
        each(store, Table::Groups, |key, value| {
            let row = Row::read(key, value)?;
            longest.extend(row.longest.map(|span| (row.id, span)));
            definitions.push((row.id, row.definition));
            Ok(())
        })?;
        let catalog = Catalog::load(None, 0, definitions).map_err(|reason| bad(Table::Groups, &reason))?;
        Ok(Self { catalog, longest })
    }

    /// Number of groups.
    pub(crate) fn count(&self) -> usize {
        self.catalog.count()
    }

    /// Whether there are too many to compare them with those of a store.
    pub(crate) fn has_many(&self) -> bool {
        self.count() > MOST_COMPARED
    }

    /// Takes in a batch that was committed, by what it leaves of each row.
    ///
    /// # Errors
    /// As of [`Self::read`], or it does more than a controller does to groups. Then this is of no use any more.
    pub(crate) fn change(&mut self, batch: &[Write]) -> Result<(), StoreError> {
        let mut rows = BTreeMap::new();
        for write in batch.iter().filter(|write| write.table() == Table::Groups) {
            match write {
                Write::Put(table, key, value) => {
                    rows.insert(group_of(*table, key)?, Some(Row::read(key, value)?))
                }
                Write::Delete(table, key) => rows.insert(group_of(*table, key)?, None),
                Write::DeleteBelow(table, _) => return Err(bad(*table, "groups are removed one by one")),
            };
        }
        let gone: Vec<GroupId> = rows.iter().filter(|(_, row)| row.is_none()).map(|(id, _)| *id).collect();
        let names: Vec<GroupName> = gone.iter().filter_map(|id| self.catalog.name(*id).cloned()).collect();
        for id in &gone {
            self.catalog.remove(*id);
            self.longest.remove(id);
        }
        self.put(rows.into_values().flatten().collect(), gone.is_empty())?;
        // Others that named them may have changed in the same batch.
        if gone.iter().any(|id| self.catalog.children(*id).next().is_some())
            || names.iter().any(|name| self.catalog.id(name).is_none() && self.is_named(name))
        {
            return Err(bad(Table::Groups, "a group that others name is removed"));
        }
        // The id behind the last, as after reading all.
        self.catalog.begin(None, 0);
        Ok(())
    }

    /// Whether a group has this one as a target.
    fn is_named(&self, name: &GroupName) -> bool {
        let switches = self.catalog.limited().switching_to(name).next().is_some();
        switches || self.catalog.demoting.to(name).next().is_some()
    }

    /// Puts rows. Those that say what is known are passed over, unless their parents may be new.
    fn put(&mut self, rows: Vec<Row>, same_parents: bool) -> Result<(), StoreError> {
        let refuse =
            |of: &Definition, reason| Err(bad(Table::Groups, &format!("group {} {reason}", of.name)));
        let mut changed = Vec::new();
        for Row { id, definition, longest } in rows {
            match longest {
                Some(longest) => self.longest.insert(id, longest),
                None => self.longest.remove(&id),
            };
            match self.catalog.get(id) {
                Some(known) if same_parents && *known == definition => continue,
                Some(known) if known.name != definition.name => {
                    return refuse(&definition, "had another name");
                }
                _ => changed.push((id, definition)),
            }
        }
        let ids: Vec<GroupId> = changed.iter().map(|(id, _)| *id).collect();
        // A parent may come with its children, in any order of their ids.
        while !changed.is_empty() {
            let before = changed.len();
            for (id, definition) in std::mem::take(&mut changed) {
                let parent = definition.parent.as_ref();
                match parent.is_none_or(|parent| self.catalog.id(parent).is_some()) {
                    true if self.has_other(id, &definition) => return refuse(&definition, "is there twice"),
                    true => self.catalog.put(id, definition),
                    false => changed.push((id, definition)),
                }
            }
            if changed.len() == before {
                return Err(bad(Table::Groups, "the parent of a group is missing"));
            }
        }
        for definition in ids.iter().filter_map(|id| self.catalog.get(*id)) {
            let targets = [definition.switch_group(), definition.demote_to.as_ref()];
            if targets.into_iter().flatten().any(|target| self.catalog.id(target).is_none()) {
                return refuse(definition, "names a target that is missing");
            }
        }
        Ok(())
    }

    fn has_other(&self, id: GroupId, definition: &Definition) -> bool {
        self.catalog.id(&definition.name).is_some_and(|other| other != id)
    }

    /// The groups of a server with this capacity. The default group of a new store joins the first batch.
    ///
    /// # Errors
    /// The default group cannot be encoded.
    pub(crate) fn of_server(
        self,
        capacity: Option<Rate>,
        next_id: u32,
        first_batch: &mut Batch,
    ) -> Result<(Catalog, BTreeMap<GroupId, Span>), StoreError> {
        let Self { mut catalog, mut longest } = self;
        if catalog.get(GroupId::DEFAULT).is_none() {
            let default = Definition::default_group();
            first_batch.push(group_row(GroupId::DEFAULT, &default, default.ttl)?);
            longest.insert(GroupId::DEFAULT, default.ttl);
            catalog.put(GroupId::DEFAULT, default);
        }
        catalog.begin(capacity, next_id);
        Ok((catalog, longest))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};
    use tidegate_proto::v1;

    use super::*;
    use crate::store::RedbStore;
    use crate::store::records::group_key;

    fn definition(name: &str, parent: &str, rate: usize, target: &str) -> Definition {
        let text = v1::Group {
            name: name.to_owned(),
            parent: parent.to_owned(),
            ru_per_sec: if rate == 0 { "unlimited".to_owned() } else { rate.to_string() },
            demote_to: target.to_owned(),
            ..v1::Group::default()
        };
        Definition::parse(&text).unwrap()
    }

    fn put(id: u32, definition: &Definition, longest_s: u64) -> Write {
        group_row(GroupId(id), definition, Span::secs(longest_s)).unwrap()
    }

    fn delete(id: u32) -> Write {
        Write::Delete(Table::Groups, group_key(GroupId(id)))
    }

    fn store() -> (tempfile::TempDir, RedbStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&folder.path().join("store")).unwrap();
        store.commit(&[put(1, &Definition::default_group(), 5)]).unwrap();
        (folder, store)
    }

    #[test]
    fn the_default_group_has_a_revision_though_an_earlier_version_stored_it_without() {
        let (_folder, store) = store();
        let stored = |revision| put(1, &Definition { revision, ..Definition::default_group() }, 5);
        for (revision, read) in [(0, 1), (1, 1), (7, 7)] {
            store.commit(&[stored(revision)]).unwrap();
            let groups = Groups::read(&store).unwrap();
            assert_eq!(groups.catalog.get(GroupId::DEFAULT).unwrap().revision, read);
        }
    }

    /// A leader of groups that a seed draws: as much of one as makes rows.
    struct Leader {
        random: StdRng,
        next: u32,
        groups: BTreeMap<u32, Definition>,
    }

    impl Leader {
        fn any(&mut self) -> Option<u32> {
            let at = self.random.random_range(0..self.groups.len().max(1));
            self.groups.keys().nth(at).copied()
        }

        fn is_free(&self, name: &GroupName) -> bool {
            let names = |of: &Definition| {
                of.name == *name || of.parent.as_ref() == Some(name) || of.demote_to.as_ref() == Some(name)
            };
            self.groups.values().filter(|of| names(of)).count() <= 1
        }

        /// The name of a group, now and then of none; never of one below `not`, whose id is lower.
        fn name_of_another(&mut self, not: Option<u32>) -> String {
            let other = self.any().filter(|other| not.is_none_or(|not| *other < not));
            other
                .filter(|_| self.random.random_range(0..3) > 0)
                .map_or_else(String::new, |other| self.groups[&other].name.as_str().to_owned())
        }

        fn write(&mut self) -> Write {
            let known = self.any();
            let (parent, target) = (self.name_of_another(known), self.name_of_another(known));
            let (rate, longest) = (self.random.random_range(0..9), 1 + self.random.random_range(0..9));
            match (self.random.random_range(0..5), known) {
                (0 | 1, Some(id)) if self.is_free(&self.groups[&id].name) => {
                    self.groups.remove(&id);
                    delete(id)
                }
                (2, Some(id)) => put(id, &self.groups[&id], longest),
                (3, Some(id)) => {
                    let name = self.groups[&id].name.as_str().to_owned();
                    let changed = definition(&name, &parent, rate, &target);
                    self.groups.insert(id, changed.clone());
                    put(id, &changed, longest)
                }
                _ => {
                    let name = format!("g{}", self.random.random_range(0..12));
                    if self.groups.values().any(|of| of.name.as_str() == name) {
                        return delete(9_999);
                    }
                    let (parent, target) = (self.name_of_another(None), self.name_of_another(None));
                    let made = definition(&name, &parent, rate, &target);
                    self.next += 1;
                    self.groups.insert(self.next, made.clone());
                    put(self.next, &made, longest)
                }
            }
        }
    }

    #[test]
    fn what_is_kept_of_any_log_is_what_is_read_of_its_rows() {
        let (mut grown, mut deepest) = (0, 0);
        for seed in 0..40 {
            let (_folder, store) = store();
            let mut kept = Groups::read(&store).unwrap();
            let mut leader = Leader { random: StdRng::seed_from_u64(seed), next: 1, groups: BTreeMap::new() };
            for round in 0..40 {
                // What a follower applies at once may be several changes of one group.
                let writes = 1 + leader.random.random_range(0..6);
                let batch: Vec<Write> = (0..writes).map(|_| leader.write()).collect();
                store.commit(&batch).unwrap();
                kept.change(&batch).unwrap();
                assert_eq!(kept, Groups::read(&store).unwrap(), "seed {seed}, round {round}");
                grown = grown.max(kept.count());
                let paths = kept.catalog.iter().map(|(id, _)| kept.catalog.path(id).len());
                deepest = deepest.max(paths.max().unwrap());
            }
        }
        assert!(grown > 8 && deepest > 3, "{grown} groups, {deepest} deep: too few to say anything");
    }

    #[test]
    fn children_come_before_their_parents_and_a_name_comes_again_in_one_batch() {
        let (_folder, store) = store();
        let mut kept = Groups::read(&store).unwrap();
        let [a, b, c] =
            [("a", "b"), ("b", "c"), ("c", "")].map(|(name, above)| definition(name, above, 5, ""));
        let batches = [
            vec![put(2, &a, 5), put(3, &b, 5), put(4, &c, 5)],
            vec![delete(2), delete(3), put(5, &b, 5), put(6, &a, 5), put(4, &definition("c", "", 9, ""), 60)],
        ];
        for batch in batches {
            store.commit(&batch).unwrap();
            kept.change(&batch).unwrap();
            assert_eq!(kept, Groups::read(&store).unwrap());
        }
    }

    #[test]
    fn rows_that_no_controller_stores_are_not_kept() {
        let (_folder, store) = store();
        let below = definition("below", "above", 5, "");
        let demotes = definition("demotes", "", 5, "above");
        let above = definition("above", "", 5, "");
        let all = [put(2, &above, 5), put(3, &below, 5), put(4, &demotes, 5)];
        store.commit(&all).unwrap();
        let lost = |batch: &[Write]| Groups::read(&store).unwrap().change(batch).unwrap_err().to_string();
        assert!(lost(&[delete(2)]).contains("a group that others name is removed"));
        assert!(lost(&[delete(2), put(9, &above, 5)]).contains("a group that others name is removed"));
        assert!(lost(&[put(9, &above, 5)]).contains("group above is there twice"));
        assert!(lost(&[put(3, &above, 5)]).contains("group above had another name"));
        assert!(
            lost(&[put(9, &definition("x", "y", 5, ""), 5)]).contains("the parent of a group is missing")
        );
        assert!(lost(&[put(9, &definition("x", "", 5, "y"), 5)]).contains("group x names a target"));
        assert!(lost(&[Write::DeleteBelow(Table::Groups, vec![])]).contains("one by one"));
        assert!(
            lost(&[Write::Put(Table::Groups, group_key(GroupId(7)), b"1".to_vec())])
                .contains("does not decode")
        );
        assert!(lost(&[put(1, &above, 5)]).contains("has the id of another"));
    }
}
