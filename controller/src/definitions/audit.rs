//! The record of who changed what and when.
//!
//! An entry is stored in the same transaction as the change it describes. Ids grow by one without gaps, so a page is a
//! range of keys, and beyond [`MAX_AUDIT`] entries the oldest are deleted. Time is Unix milliseconds.

use std::ops::ControlFlow;

use tidegate_proto::v1::AuditEntry;

use crate::answers::page_limit;
use crate::definitions::DefinitionCalls;
use crate::error::AdminError;
use crate::identity::{Identity, Kind};
use crate::limits::{MAX_ACTOR, MAX_AUDIT, MAX_AUDIT_PAGE, MAX_AUDIT_TEXT};
use crate::store::records::{json, put_json, u64_key};
use crate::store::{Batch, StoreError, Table, Write};

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

/// The next id of the audit log.
#[derive(Debug)]
pub struct Audit {
    next_id: u64,
}

impl Audit {
    /// A log whose next entry has this id.
    pub fn new(next_id: u64) -> Self {
        Self { next_id: next_id.max(1) }
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

    /// Notes that this many entries were stored.
    pub fn advance(&mut self, entries: usize) {
        self.next_id = self.next_id.saturating_add(u64::try_from(entries).unwrap_or(u64::MAX));
    }
}

fn bounded(text: String) -> String {
    if text.len() <= MAX_AUDIT_TEXT { text } else { text.chars().take(MAX_AUDIT_TEXT).collect() }
}

/// Entries in an answer when the request names no limit.
const AUDIT_PAGE: u32 = 100;

impl DefinitionCalls<'_> {
    /// Entries of the audit log before `before_id` (0: the newest), newest first.
    pub fn audit_log(&self, before_id: u64, limit: u32) -> Result<Vec<AuditEntry>, AdminError> {
        let limit = page_limit(limit, AUDIT_PAGE, MAX_AUDIT_PAGE)?;
        let next = self.service.lock().definitions.audit.next_id();
        let before = if before_id == 0 { next } else { before_id.min(next) };
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
}
