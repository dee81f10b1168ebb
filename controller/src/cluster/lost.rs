//! What a file of a controller has that a log lacks which was set back.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use tidegate_core::group::GroupId;
use tidegate_core::units::RuTotal;
use tidegate_proto::v1::AuditEntry;

use crate::definitions::audit::Audit;
use crate::store::records::{StoredGroup, consumption, group_of, json, pair_of, u64_key, u64_of};
use crate::store::{Store, StoreError, Table, each};

/// Changes, and groups, that are listed: a screen or two. The file has all of them.
const LISTED: usize = 50;
/// Entries that are compared at a time: some hundred kilobytes, and a hundredth of what a call for each would take.
const COMPARED: usize = 256;

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
    let first = parted(file, log, next.min(end))?;
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

/// The first entry before `end` that is another one in the log, or `end`.
fn parted(file: &dyn Store, log: &dyn Store, end: u64) -> Result<u64, StoreError> {
    let mut from = 0;
    loop {
        let theirs = entries(file, from..end)?;
        let keys: Vec<_> = theirs.iter().map(|(id, _)| u64_key(*id)).collect();
        let ours = log.get(Table::Audit, &keys)?;
        // The log has none that are too old.
        let differs =
            |theirs: &[u8], ours: &Option<Vec<u8>>| ours.as_ref().is_some_and(|ours| ours != theirs);
        let other = theirs.iter().zip(&ours).find(|((_, theirs), ours)| differs(theirs, ours));
        match (other, theirs.last()) {
            (Some(((id, _), _)), _) => return Ok(*id),
            (None, Some((last, _))) => from = last + 1,
            (None, None) => return Ok(end),
        }
    }
}

/// Entries with these ids, as many as are compared at a time.
fn entries(store: &dyn Store, ids: Range<u64>) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
    let mut entries = Vec::new();
    store.scan(Table::Audit, &u64_key(ids.start), &mut |key, value| {
        let id = u64_of(Table::Audit, key)?;
        if id >= ids.end || entries.len() == COMPARED {
            return Ok(ControlFlow::Break(()));
        }
        entries.push((id, value.to_vec()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(entries)
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
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tidegate_core::group::ClientId;
    use tidegate_core::units::Ru;
    use tidegate_core::usage::{Consumption, RuParts, Total};
    use tidegate_proto::v1;

    use super::*;
    use crate::definitions::definition::Definition;
    use crate::store::overheard::{Call, Overheard};
    use crate::store::records::{consumption_bytes, group_key, group_row, ledger_key, put_json};
    use crate::store::{RedbStore, Write};

    #[test]
    fn changes_are_lost_from_the_first_one_that_the_log_has_otherwise_and_are_compared_many_at_a_time() {
        const LAST: u64 = 3 * COMPARED as u64;
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| RedbStore::open(&folder.path().join(name)).unwrap();
        let asked = AtomicUsize::new(0);
        let counts = |call| {
            asked.fetch_add(usize::from(call != Call::Commit), Relaxed);
            Ok(())
        };
        let (file, log) = (open("file"), Overheard(open("log"), counts));
        let entry = |id: u64, action: &str| {
            let entry = AuditEntry { id, action: action.to_owned(), ..AuditEntry::default() };
            put_json(Table::Audit, u64_key(id), &entry).unwrap()
        };
        let lost = || changes(&file, &log).unwrap().0;
        assert_eq!(lost(), 0);
        file.commit(&(1..=LAST).map(|id| entry(id, "change")).collect::<Vec<_>>()).unwrap();
        // The log has removed the oldest, and went on behind the last of the file.
        log.commit(&(9..=LAST + 5).map(|id| entry(id, "change")).collect::<Vec<_>>()).unwrap();
        asked.store(0, Relaxed);
        assert_eq!(lost(), 0);
        let asked = asked.load(Relaxed);
        assert!(asked < 10, "{asked} calls for {LAST} entries");
        for first in [LAST, LAST - 1, COMPARED as u64 + 1, COMPARED as u64, COMPARED as u64 - 1, 9] {
            log.commit(&[entry(first, "another change")]).unwrap();
            assert_eq!(lost(), LAST + 1 - first, "{first}");
        }
    }

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
