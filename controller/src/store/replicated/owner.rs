//! Who owns the log: the record in the shared store, and what a follower sees of it.

use serde::{Deserialize, Serialize};
use tidegate_consensus::Row;

/// A controller, as the record of the log's owner names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its name.
    pub controller: String,
    /// The number of its start.
    pub instance: u64,
    /// Where it can be reached.
    pub addresses: Vec<String>,
    /// Its fence: how long it may speak after its last beat, in milliseconds.
    pub fence_ms: u64,
    /// Whether it has stopped in order, and speaks no more.
    pub clean: bool,
}

/// The record: the owner, and which of its attempts to take the log it was.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    owner: Owner,
    /// Random, so that an attempt knows its own record from that of an earlier one.
    claim: u64,
}

impl Owner {
    /// The value of the record.
    pub(super) fn record(&self, claim: u64) -> Vec<u8> {
        // Strings and numbers always encode.
        serde_json::to_vec(&Record { owner: self.clone(), claim }).unwrap_or_default()
    }

    /// Reads what [`Self::record`] wrote.
    pub(super) fn read(value: &[u8]) -> Result<Self, String> {
        let record: Result<Record, _> = serde_json::from_slice(value);
        record.map(|record| record.owner).map_err(|error| error.to_string())
    }
}

/// The owner of a record, in words.
pub(super) fn named(row: Option<&Row>) -> String {
    match row.map(|row| Owner::read(&row.value)) {
        None => "nobody, because its record was removed,".to_owned(),
        Some(Ok(owner)) => format!("the controller {} (instance {})", owner.controller, owner.instance),
        Some(Err(reason)) => format!("an owner whose record does not read ({reason})"),
    }
}

/// What a follower sees of the owner, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The owner; `None`: there has been none.
    pub owner: Option<Owner>,
    /// The revision at which it took the log; 0 without an owner.
    pub own: u64,
    /// The revision of its newest beat; 0 if there is none.
    pub beat: u64,
    /// Whether that beat says that the owner is about to leave the log.
    pub leaves: bool,
}

/// The end of a beat of an owner that is about to leave the log.
const LEAVES: &str = " leaves";

/// The value of a beat.
pub(super) fn beat_value(count: u64, leaves: bool) -> Vec<u8> {
    let end = if leaves { LEAVES } else { "" };
    format!("{count}{end}").into_bytes()
}

/// Whether a beat says that its owner is about to leave the log.
pub(super) fn says_leave(beat: &[u8]) -> bool {
    beat.ends_with(LEAVES.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_says_whether_its_owner_is_about_to_leave() {
        for count in [0, 17, u64::MAX] {
            assert!(says_leave(&beat_value(count, true)) && !says_leave(&beat_value(count, false)));
        }
        assert!(!says_leave(b""));
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_anything_else_is_named() {
        let owner = Owner {
            controller: "north".to_owned(),
            instance: 7,
            addresses: vec!["north:7001".to_owned()],
            fence_ms: 1_000,
            clean: false,
        };
        assert_eq!(Owner::read(&owner.record(3)).unwrap(), owner);
        assert_ne!(owner.record(3), owner.record(4));
        let row = |value| Row { key: Vec::new(), value, created: 1, changed: 1 };
        assert!(named(Some(&row(owner.record(3)))).contains("north"));
        assert!(named(Some(&row(b"x".to_vec()))).contains("does not read"));
        assert!(named(None).contains("removed"));
    }
}
