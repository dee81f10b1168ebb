//! The record of who changed what and when.
//!
//! An entry is stored in the same transaction as the change it describes. Ids grow by one without gaps, so a page is a
//! range of keys, and beyond [`MAX_AUDIT`] entries the oldest are deleted. Time is Unix milliseconds.
//!
//! Which entries are of which group is kept in memory, so that a page of a group's entries reads those alone.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Deserialize;
use tidegate_proto::v1::AuditEntry;

use crate::answers::{one_group, page_limit};
use crate::definitions::DefinitionCalls;
use crate::error::AdminError;
use crate::identity::{Identity, Kind};
use crate::limits::{MAX_ACTOR, MAX_AUDIT, MAX_AUDIT_PAGE, MAX_AUDIT_TEXT};
use crate::name::GroupName;
use crate::service::meta::countable;
use crate::store::records::{bad, json, put_json, u64_key, u64_of};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

/// The author of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// How entries name it in one text.
    text: String,
    /// What it proved; `None` while authentication is off.
    identity: Option<Identity>,
    peer: String,
    /// What it says of itself.
    stated: String,
}

impl Actor {
    /// One that proved nothing: from the caller's own statement and its address. Odd characters are replaced and the length is bounded, so that
    /// the log stays readable whatever a caller states.
    pub fn new(stated: Option<&str>, peer: &str) -> Self {
        let readable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        let stated: String = stated.unwrap_or_default().chars().take(MAX_ACTOR).map(readable).collect();
        let stated = stated.trim();
        let text = if stated.is_empty() { peer.to_owned() } else { format!("{stated} ({peer})") };
        Self { text, identity: None, peer: peer.to_owned(), stated: stated.to_owned() }
    }

    /// A caller with this identity: what it says of itself is a comment beside the name that it proved.
    pub fn of(identity: Option<&Identity>, stated: Option<&str>, peer: &str) -> Self {
        let unproven = Self::new(stated, peer);
        match identity {
            Some(identity) if identity.kind != Kind::Anonymous => Self {
                text: format!("{} ({peer})", identity.name),
                identity: Some(identity.clone()),
                ..unproven
            },
            anonymous => Self { identity: anonymous.cloned(), ..unproven },
        }
    }

    /// The text that is stored.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The author's part of an entry.
    fn entry(&self) -> AuditEntry {
        let identity = self.identity.as_ref();
        AuditEntry {
            actor: self.text.clone(),
            kind: identity.map_or(&Kind::Anonymous, |identity| &identity.kind).word(),
            identity: identity.map(|identity| identity.name.clone()).unwrap_or_default(),
            role: identity.map(|identity| identity.role.to_string()).unwrap_or_default(),
            peer: self.peer.clone(),
            comment: self.stated.clone(),
            ..AuditEntry::default()
        }
    }
}

/// One change of one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Such as "create group".
    pub action: &'static str,
    /// The thing changed.
    pub subject: String,
    /// The state before as JSON; empty when there was none.
    pub before: String,
    /// The state after as JSON; empty when there is none.
    pub after: String,
}

impl Change {
    /// The group whose definition it changed, if that is what it did.
    fn group(&self) -> Option<&str> {
        is_of_group(self.action).then_some(self.subject.as_str())
    }
}

/// Whether an action makes, alters or deletes a group.
pub(crate) fn is_of_group(action: &str) -> bool {
    ["create group", "alter group", "delete group"].contains(&action)
}

/// Entries by the group whose definition they changed, as many as the log has: with 100,000 entries of as many groups
/// some 20 MB, and 3 MB with those of a hundred.
#[derive(Debug, Default, PartialEq, Eq)]
struct ByGroup {
    /// Ids of each group's entries, in order.
    ids: BTreeMap<Arc<str>, VecDeque<u64>>,
    /// The same in order of the ids.
    all: VecDeque<(u64, Arc<str>)>,
}

impl ByGroup {
    fn add(&mut self, id: u64, group: &str) {
        let known = self.ids.get_key_value(group).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| Arc::from(group));
        self.ids.entry(Arc::clone(&name)).or_default().push_back(id);
        self.all.push_back((id, name));
    }

    /// Forgets entries that the log no longer has.
    fn forget_below(&mut self, oldest: u64) {
        while let Some((_, name)) = self.all.pop_front_if(|(id, _)| *id < oldest) {
            if let Some(ids) = self.ids.get_mut(&name) {
                ids.pop_front();
                if ids.is_empty() {
                    self.ids.remove(&name);
                }
            }
        }
    }

    /// Ids of a group's entries before one, newest first.
    fn before(&self, group: &str, before: u64, limit: usize) -> Vec<u64> {
        let Some(ids) = self.ids.get(group) else { return Vec::new() };
        let end = ids.partition_point(|id| *id < before);
        ids.range(..end).rev().take(limit).copied().collect()
    }
}

/// The next id of the audit log, and which entries are of which group.
#[derive(Debug, PartialEq, Eq)]
pub struct Audit {
    next_id: u64,
    groups: ByGroup,
}

impl Audit {
    /// A log whose next entry has this id.
    pub fn new(next_id: u64) -> Self {
        Self { next_id: next_id.max(1), groups: ByGroup::default() }
    }

    /// The log of a store.
    pub(crate) fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let mut audit = Self::new(1);
        each(store, Table::Audit, |key, value| audit.take(key, value))?;
        Ok(audit)
    }

    /// Takes in the next row.
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        /// What says of which group an entry is.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Brief {
            action: String,
            subject: String,
        }
        let id = countable(Table::Audit, u64_of(Table::Audit, key)?)?;
        let Brief { action, subject } = json(Table::Audit, value)?;
        if is_of_group(&action) {
            self.groups.add(id, &subject);
        }
        self.next_id = id + 1;
        Ok(())
    }

    /// Takes in a batch that was committed.
    ///
    /// # Errors
    /// A row, or what the batch does to rows, is nothing that a controller stores. Then this is of no use any more.
    pub(crate) fn change(&mut self, batch: &[Write]) -> Result<(), StoreError> {
        for write in batch.iter().filter(|write| write.table() == Table::Audit) {
            match write {
                Write::Put(table, key, _) if u64_of(*table, key)? < self.next_id => {
                    return Err(bad(*table, "an entry is stored again, or after a later one"));
                }
                Write::Put(_, key, value) => self.take(key, value)?,
                Write::DeleteBelow(table, key) => self.groups.forget_below(u64_of(*table, key)?),
                Write::Delete(table, _) => return Err(bad(*table, "the oldest entries go together")),
            }
        }
        Ok(())
    }

    /// The id of the next entry.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Adds the entries of one change to its batch, and deletes those that are too old. The ids count as used once
    /// `advance` is called, after the batch is stored.
    pub fn record(
        &self,
        batch: &mut Batch,
        unix_ms: u64,
        actor: &Actor,
        changes: Vec<Change>,
    ) -> Result<(), StoreError> {
        let mut last = self.next_id;
        for (id, change) in (self.next_id..).zip(changes) {
            let entry = AuditEntry {
                id,
                unix_ms,
                action: change.action.to_owned(),
                subject: change.subject,
                before: bounded(change.before),
                after: bounded(change.after),
                change: self.next_id,
                ..actor.entry()
            };
            batch.push(put_json(Table::Audit, u64_key(id), &entry)?);
            last = id;
        }
        if let Some(oldest) = last.checked_sub(MAX_AUDIT) {
            batch.push(Write::DeleteBelow(Table::Audit, u64_key(oldest.saturating_add(1))));
        }
        Ok(())
    }

    /// Notes that the entries of these changes were stored.
    pub fn advance(&mut self, changes: &[Change]) {
        for change in changes {
            if let Some(group) = change.group() {
                self.groups.add(self.next_id, group);
            }
            self.next_id = self.next_id.saturating_add(1);
        }
        self.groups.forget_below(self.next_id.saturating_sub(MAX_AUDIT));
    }
}

fn bounded(text: String) -> String {
    if text.len() <= MAX_AUDIT_TEXT { text } else { text.chars().take(MAX_AUDIT_TEXT).collect() }
}

/// Entries in an answer when the request names no limit.
const AUDIT_PAGE: u32 = 100;

impl DefinitionCalls<'_> {
    /// Entries of the audit log before `before_id` (0: the newest), newest first; of all, or with the name of a group
    /// those that changed its definition. No more are read than are returned.
    ///
    /// # Errors
    /// A name that no group can have, a limit out of range, or a store that fails.
    pub fn audit_log(&self, group: &str, before_id: u64, limit: u32) -> Result<Vec<AuditEntry>, AdminError> {
        let limit = page_limit(limit, AUDIT_PAGE, MAX_AUDIT_PAGE)?;
        let group = one_group(group)?;
        let (before, ids) = {
            let state = self.service.lock();
            let audit = &state.definitions.audit;
            let before = if before_id == 0 { audit.next_id() } else { before_id.min(audit.next_id()) };
            (before, group.map(|group: GroupName| audit.groups.before(group.as_str(), before, limit)))
        };
        match ids {
            Some(ids) => self.entries(&ids),
            None => self.entries_before(before, limit),
        }
    }

    /// The entries with these ids, but for those that went meanwhile.
    fn entries(&self, ids: &[u64]) -> Result<Vec<AuditEntry>, AdminError> {
        let keys: Vec<_> = ids.iter().map(|id| u64_key(*id)).collect();
        let rows = self.service.store().get(Table::Audit, &keys)?;
        let entries = rows.iter().flatten().map(|value| json(Table::Audit, value));
        Ok(entries.collect::<Result<_, StoreError>>()?)
    }

    fn entries_before(&self, before: u64, limit: usize) -> Result<Vec<AuditEntry>, AdminError> {
        let first = before.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX));
        let mut entries: Vec<AuditEntry> = Vec::new();
        self.service.store().scan(Table::Audit, &u64_key(first), &mut |_, value| {
            let entry: AuditEntry = json(Table::Audit, value)?;
            if entry.id >= before {
                return Ok(ControlFlow::Break(()));
            }
            entries.push(entry);
            Ok(ControlFlow::Continue(()))
        })?;
        entries.reverse();
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_bounded_and_readable() {
        assert_eq!(Actor::new(None, "1.2.3.4:5").as_str(), "1.2.3.4:5");
        assert_eq!(Actor::new(Some(" "), "peer").as_str(), "peer");
        assert_eq!(Actor::new(Some("ann\n\u{1b}[2J"), "peer").as_str(), "ann??[2J (peer)");
        assert!(Actor::new(Some(&"x".repeat(10_000)), "peer").as_str().len() < MAX_ACTOR + 10);
    }

    #[test]
    fn old_entries_are_dropped() {
        let mut batch = Batch::new();
        let actor = Actor::new(None, "p");
        Audit::new(1).record(&mut batch, 0, &actor, vec![Change::default()]).unwrap();
        assert_eq!(batch.len(), 1);
        Audit::new(MAX_AUDIT + 5).record(&mut batch, 0, &actor, vec![Change::default()]).unwrap();
        assert_eq!(batch.last(), Some(&Write::DeleteBelow(Table::Audit, u64_key(6))));
    }

    #[test]
    fn texts_are_cut_by_characters_and_short_ones_stay() {
        let kept = |text: String| {
            let mut batch = Batch::new();
            let change = Change { before: text.clone(), after: text, ..Change::default() };
            Audit::new(1).record(&mut batch, 0, &Actor::new(None, "p"), vec![change]).unwrap();
            let [Write::Put(_, _, value)] = &batch[..] else { panic!("{batch:?}") };
            let entry: AuditEntry = serde_json::from_slice(value).unwrap();
            assert_eq!(entry.before, entry.after);
            entry.before
        };
        for letter in ["x", "\u{e4}", "\u{1f30a}"] {
            let longest = letter.repeat(MAX_AUDIT_TEXT);
            assert_eq!(kept(format!("{longest}{letter}")), longest);
            assert_eq!(kept(longest.clone()), longest);
        }
    }

    #[test]
    fn what_no_controller_does_to_the_log_is_refused() {
        let row = |id: u64| put_json(Table::Audit, u64_key(id), &AuditEntry::default()).unwrap();
        let mut audit = Audit::new(1);
        audit.change(&[row(1), row(2), Write::DeleteBelow(Table::Audit, u64_key(2))]).unwrap();
        assert_eq!(audit.next_id(), 3);
        let refused = |audit: &mut Audit, write| audit.change(&[write]).unwrap_err().to_string();
        let one = refused(&mut audit, Write::Delete(Table::Audit, u64_key(2)));
        assert!(one.contains("the oldest entries go together"), "{one}");
        let again = refused(&mut audit, row(2));
        assert!(again.contains("stored again, or after a later one"), "{again}");
        // Rows of other tables are none of its own.
        audit.change(&[Write::Delete(Table::Clients, u64_key(2))]).unwrap();
        assert_eq!(audit.next_id(), 3);
    }

    #[test]
    fn entries_of_a_group_are_known_as_long_as_the_log_has_them() {
        let change = |action, subject: &str| Change { action, subject: subject.into(), ..Change::default() };
        let mut audit = Audit::new(1);
        audit.advance(&[change("create group", "a"), change("bind", "a"), change("alter group", "a")]);
        audit.advance(&[change("create group", "b")]);
        audit.advance(&[change("delete group", "a")]);
        let of = |audit: &Audit, group: &str, before| audit.groups.before(group, before, 2);
        assert_eq!(of(&audit, "a", u64::MAX), [5, 3], "newest first, and no more than asked for");
        assert_eq!((of(&audit, "a", 5), of(&audit, "a", 1)), (vec![3, 1], vec![]));
        assert_eq!((of(&audit, "b", 99), of(&audit, "c", 99)), (vec![4], vec![]));
        let others: Vec<Change> = (0..MAX_AUDIT - 3).map(|_| change("bind", "x")).collect();
        audit.advance(&others);
        // The log has the newest 100,000 of 100,002: ids 3 and later.
        assert_eq!((audit.next_id(), of(&audit, "a", u64::MAX)), (MAX_AUDIT + 3, vec![5, 3]));
        audit.advance(&others);
        assert!(audit.groups.ids.is_empty() && audit.groups.all.is_empty(), "{:?}", audit.groups);
    }
}
