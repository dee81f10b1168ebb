//! What a file of a controller has that a log lacks which was set back.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tidegate_core::group::GroupId;
use tidegate_core::units::RuTotal;
use tidegate_proto::v1::AuditEntry;

use crate::definitions::audit::Audit;
use crate::store::records::{StoredGroup, consumption, group_of, json, pair_of, u64_key, u64_of};
use crate::store::{Store, StoreError, Table, each};

/// Changes, and groups, that are listed: a screen or two. The file has all of them.
const LISTED: usize = 50;

/// What is lost with a log that was set back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// RU that were counted for all groups since.
    pub ru: RuTotal,
    /// Groups for which RU were counted, most first, at most 50.
    pub groups: Vec<(String, RuTotal)>,
    /// How many changes were made since.
    pub changes: u64,
    /// The newest of them, newest first, at most 50.
    pub newest: Vec<AuditEntry>,
}

impl Lost {
    /// What `file` has more than `log`.
    pub(super) fn between(file: &dyn Store, log: &dyn Store) -> Result<Self, StoreError> {
        let (changes, newest) = changes(file, log)?;
        let (mut had, has) = (counted(file)?, counted(log)?);
        for (id, ru) in &mut had {
            *ru = RuTotal(ru.0.saturating_sub(has.get(id).map_or(0, |has| has.0)));
        }
        had.retain(|_, ru| ru.0 > 0);
        let ru = had.values().copied().sum();
        let mut groups = Vec::new();
        each(file, Table::Groups, |_, value| {
            let group: StoredGroup = json(Table::Groups, value)?;
            groups.extend(had.get(&GroupId(group.id)).map(|ru| (group.group.name, *ru)));
            Ok(())
        })?;
        groups.sort_by_key(|(_, ru)| std::cmp::Reverse(*ru));
        groups.truncate(LISTED);
        Ok(Self { ru, groups, changes, newest })
    }
}

/// How many entries of its audit log a file has that the log lacks, and the newest of them. A log that went on may have
/// others with the same ids.
fn changes(file: &dyn Store, log: &dyn Store) -> Result<(u64, Vec<AuditEntry>), StoreError> {
    let (next, end) = (Audit::load(log)?.next_id(), Audit::load(file)?.next_id());
    let mut first = next.min(end);
    file.scan(Table::Audit, &u64_key(0), &mut |key, value| {
        let id = u64_of(Table::Audit, key)?;
        if id >= first {
            return Ok(ControlFlow::Break(()));
        }
        // The log has none that are too old.
        let ours = log.get(Table::Audit, &[key.to_vec()])?.into_iter().next().flatten();
        if ours.is_some_and(|ours| ours != value) {
            first = id;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let count = end.saturating_sub(first);
    let from = end.saturating_sub(count.min(LISTED as u64));
    let mut newest = Vec::new();
    file.scan(Table::Audit, &u64_key(from), &mut |_, value| {
        newest.push(json(Table::Audit, value)?);
        Ok(ControlFlow::Continue(()))
    })?;
    newest.reverse();
    Ok((count, newest))
}

/// RU of each group.
fn counted(store: &dyn Store) -> Result<BTreeMap<GroupId, RuTotal>, StoreError> {
    let mut counted: BTreeMap<GroupId, RuTotal> = BTreeMap::new();
    each(store, Table::Ledger, |key, value| {
        let (_, group) = pair_of(Table::Ledger, key)?;
        *counted.entry(group).or_default() += consumption(Table::Ledger, value)?.ru();
        Ok(())
    })?;
    each(store, Table::Folded, |key, value| {
        let group = group_of(Table::Folded, key)?;
        *counted.entry(group).or_default() += consumption(Table::Folded, value)?.ru();
        Ok(())
    })?;
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use tidegate_core::group::ClientId;
    use tidegate_core::units::Ru;
    use tidegate_core::usage::{Consumption, RuParts, Total};
    use tidegate_proto::v1;

    use super::*;
    use crate::definitions::definition::Definition;
    use crate::store::records::{consumption_bytes, group_key, group_row, ledger_key, put_json};
    use crate::store::{RedbStore, Write};

    fn bytes(ru: i64) -> Vec<u8> {
        let mut total = Total::default();
        total.count(&Consumption { charged: RuParts::flat(Ru(ru)), ..Consumption::default() });
        consumption_bytes(&total)
    }

    /// Has a node charge this much to each of two groups, and as much be folded.
    fn put(store: &RedbStore, node: u64, charged: [i64; 2], folded: [i64; 2]) {
        let row = |of: u32, at: usize| {
            let (key, group) = (ledger_key(ClientId(node), GroupId(of)), group_key(GroupId(of)));
            let folded = Write::Put(Table::Folded, group, bytes(folded[at]));
            [Write::Put(Table::Ledger, key, bytes(charged[at])), folded]
        };
        store.commit(&[row(5, 0), row(6, 1)].concat()).unwrap();
    }

    #[test]
    fn what_was_counted_since_is_of_nodes_that_are_known_and_of_those_that_were_folded() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| RedbStore::open(&folder.path().join(name)).unwrap();
        let (file, log) = (open("file"), open("log"));
        for store in [&file, &log] {
            for (id, name) in [(5, "five"), (6, "six")] {
                let group = v1::Group { name: name.into(), ru_per_sec: "1".into(), ..v1::Group::default() };
                let definition = Definition::parse(&group).unwrap();
                let row = group_row(GroupId(id), &definition, definition.ttl).unwrap();
                store.commit(&[row]).unwrap();
            }
        }
        put(&log, 1, [10, 100], [1_000, 10_000]);
        put(&file, 1, [10, 100], [1_000, 10_000]);
        assert_eq!(Lost::between(&file, &log).unwrap(), Lost::default());
        // Of the one more was charged, of the other a node was folded.
        put(&file, 1, [15, 0], [1_000, 10_500]);
        let lost = Lost::between(&file, &log).unwrap();
        let groups = vec![("six".to_owned(), RuTotal(400)), ("five".to_owned(), RuTotal(5))];
        assert_eq!((lost.ru, lost.groups), (RuTotal(405), groups));
        put(&file, 2, [7, 0], [1_000, 10_500]);
        assert_eq!(Lost::between(&file, &log).unwrap().ru, RuTotal(412));
        assert_eq!(Lost::between(&log, &file).unwrap().ru, RuTotal(0), "the other way nothing is lost");
    }

    #[test]
    fn the_newest_changes_and_the_groups_with_most_are_listed_and_all_of_them_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| RedbStore::open(&folder.path().join(name)).unwrap();
        let (file, log) = (open("file"), open("log"));
        let entry = |id| {
            let entry = AuditEntry { id, action: format!("change {id}"), ..AuditEntry::default() };
            put_json(Table::Audit, u64_key(id), &entry).unwrap()
        };
        log.commit(&(1..=10).map(entry).collect::<Vec<_>>()).unwrap();
        file.commit(&(1..=80).map(entry).collect::<Vec<_>>()).unwrap();
        for id in 10..80 {
            let group = v1::Group { name: format!("g{id}"), ru_per_sec: "1".into(), ..v1::Group::default() };
            let definition = Definition::parse(&group).unwrap();
            let key = ledger_key(ClientId(1), GroupId(id));
            let row = group_row(GroupId(id), &definition, definition.ttl).unwrap();
            file.commit(&[row, Write::Put(Table::Ledger, key, bytes(id.into()))]).unwrap();
        }
        let lost = Lost::between(&file, &log).unwrap();
        assert_eq!((lost.changes, lost.ru), (70, RuTotal((10..80).sum())));
        let newest: Vec<u64> = lost.newest.iter().map(|entry| entry.id).collect();
        assert_eq!(newest, (31..=80).rev().collect::<Vec<_>>());
        let most = (30..80).rev().map(|id: u32| (format!("g{id}"), RuTotal(id.into())));
        assert_eq!(lost.groups, most.collect::<Vec<_>>());
    }
}
