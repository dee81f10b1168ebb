//! The controllers of a cluster, each with a record of its own in the shared store. Who owns the log is not in them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_consensus::{Consensus, ConsensusError, Guard, Row, Step, Transaction};

use super::super::StoreError;
use super::calls::{Calls, Settings};

/// Records that are read at once: twice as many as the controllers of any cluster.
const MOST: usize = 64;

/// What a controller says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its name.
    pub controller: String,
    /// Which start of its process: random.
    pub instance: u64,
    /// Where it can be reached.
    pub addresses: Vec<String>,
    /// Its version.
    pub version: String,
    /// Its wall clock when it wrote this, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// What came of writing a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// It is there, as of this revision.
    Done(u64),
    /// The name has another record than was seen; `None`: it has none.
    Other(Option<(MemberRecord, u64)>),
}

/// The records below a prefix.
#[derive(Clone, Debug)]
pub struct Members(Calls);

impl Members {
    /// Those below `prefix`.
    ///
    /// # Errors
    /// The prefix is none.
    pub fn new(consensus: Arc<dyn Consensus>, prefix: &str, settings: Settings) -> Result<Self, StoreError> {
        Ok(Self(Calls::new(consensus, prefix, settings)?))
    }

    /// Writes a record over the one that was last changed at revision `seen`, or where none is at 0; in one attempt.
    ///
    /// # Errors
    /// Nobody answered, or the record that is there does not read.
    pub fn write(&self, record: &MemberRecord, seen: u64) -> Result<Wrote, StoreError> {
        let key = self.0.keys.member(&record.controller);
        // Texts and numbers always encode.
        let value = serde_json::to_vec(record).unwrap_or_default();
        let transaction = Transaction {
            when: vec![Guard::Changed(key.clone(), seen)],
            then: vec![Step::Put(key.clone(), value)],
            otherwise: vec![Step::Get(key)],
        };
        let outcome = self.0.once(&transaction).map_err(failed("show that this controller runs"))?;
        if outcome.held {
            return Ok(Wrote::Done(outcome.revision));
        }
        Ok(Wrote::Other(outcome.found.into_iter().next().flatten().map(|row| read(&row))))
    }

    /// What all keys of the cluster begin with.
    pub fn prefix(&self) -> &str {
        self.0.keys.prefix()
    }

    /// Removes a record that was last changed at revision `seen`; returns whether it was there as it was seen.
    ///
    /// # Errors
    /// Nobody answered.
    pub fn remove(&self, name: &str, seen: u64) -> Result<bool, StoreError> {
        let key = self.0.keys.member(name);
        let behind = [key.as_slice(), b"\0"].concat();
        let transaction = Transaction {
            when: vec![Guard::Changed(key.clone(), seen)],
            then: vec![Step::Delete(key, behind)],
            otherwise: Vec::new(),
        };
        let outcome =
            self.0.once(&transaction).map_err(failed("remove a record of the list of controllers"))?;
        // A key that is absent has revision 0, which no record has.
        Ok(outcome.held && seen > 0)
    }

    /// All records, each with the revision at which it was last changed.
    ///
    /// # Errors
    /// Nobody answered.
    pub fn all(&self) -> Result<Vec<(MemberRecord, u64)>, StoreError> {
        let read_all = self.0.rows(&self.0.keys.members(), MOST);
        let page = read_all.map_err(|error| error.told("list the controllers"))?;
        Ok(page.rows.iter().map(read).collect())
    }

    /// Which log it is, as it was drawn at its beginning; `None`: it has not begun.
    ///
    /// # Errors
    /// Nobody answered.
    pub fn cluster(&self) -> Result<Option<String>, StoreError> {
        let found =
            self.0.get(&[self.0.keys.cluster()]).map_err(|error| error.told("read which log it is"))?;
        let row = found.found.into_iter().next().flatten();
        Ok(row.map(|row| String::from_utf8_lossy(&row.value).into_owned()))
    }
}

fn failed(operation: &'static str) -> impl Fn(ConsensusError) -> StoreError {
    move |error| StoreError::Shared { operation, reason: error.to_string() }
}

/// A record that does not read is one of another version, of which the key has the name.
fn read(row: &Row) -> (MemberRecord, u64) {
    let name =
        || row.key.rsplit(|byte| *byte == b'/').next().map(String::from_utf8_lossy).unwrap_or_default();
    let record = serde_json::from_slice(&row.value).unwrap_or_else(|_| MemberRecord {
        controller: name().into_owned(),
        instance: 0,
        addresses: Vec::new(),
        version: "unknown".to_owned(),
        unix_ms: 0,
    });
    (record, row.changed)
}
