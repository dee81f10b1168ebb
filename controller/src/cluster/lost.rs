//! What a file of a controller has that a log lacks which was set back.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tidegate_core::group::GroupId;
use tidegate_core::units::RuTotal;
use tidegate_proto::v1::AuditEntry;

use crate::definitions::audit::Audit;
use crate::store::records::{StoredGroup, consumption, group_of, json, pair_of, u64_key};
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

/// How many entries of the audit log a file has more, and the newest of them.
fn changes(file: &dyn Store, log: &dyn Store) -> Result<(u64, Vec<AuditEntry>), StoreError> {
    let (next, end) = (Audit::load(log)?.next_id(), Audit::load(file)?.next_id());
    let count = end.saturating_sub(next);
    let first = end.saturating_sub(count.min(LISTED as u64));
    let mut newest = Vec::new();
    file.scan(Table::Audit, &u64_key(first), &mut |_, value| {
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
