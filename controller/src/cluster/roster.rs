//! Which controllers of a cluster run, as this one sees it, and whether it leaves the lead to them.
//!
//! Each writes a record about once a second; one whose record has not changed for three, on this controller's own clock,
//! is gone. Wall clocks are compared by how far a record was ahead of this one's when it was first seen: the most of the
//! last two minutes, since a record is only ever seen late.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::units::{Span, Time};
use tokio::sync::watch as flag;

use crate::clock::Clock;
use crate::store::StoreError;
use crate::store::replicated::{MemberRecord, Members};

/// A controller whose record has not changed for this time is gone: three records. With two, one that is late would be
/// a controller that is gone; with six, a drain could wait for one that died that long ago.
pub(super) const GONE: Span = Span::secs(3);
/// Records by which clocks are compared: two minutes of them. One of so many is seen within some hundredths of a second;
/// of a quarter of them, within a tenth, which is more than clocks may differ by.
const SAMPLES: usize = 120;

/// The controllers of a cluster.
#[derive(Debug)]
pub(crate) struct Roster {
    /// The name of this one.
    pub(crate) name: String,
    /// Their records in the shared store.
    pub(crate) members: Members,
    clock: Clock,
    known: Mutex<Known>,
    /// How long this controller is to leave the lead to others from now on.
    drained: flag::Sender<Option<Span>>,
}

#[derive(Debug, Default)]
struct Known {
    cluster: String,
    members: BTreeMap<String, Member>,
    rests_until: Time,
}

#[derive(Debug)]
struct Member {
    record: MemberRecord,
    /// The revision of its record, and when it was first seen.
    changed: u64,
    since: Time,
    /// Whether its record was seen to change.
    moves: bool,
    /// By how many milliseconds records were ahead of this one's wall clock.
    ahead: VecDeque<i64>,
}

/// A controller, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) record: MemberRecord,
    /// Since its record was written.
    pub(crate) age: Span,
    /// By how many milliseconds its wall clock is ahead of this one's.
    pub(crate) ahead_ms: i64,
}

/// A record, and for how long this controller has seen it unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The revision at which it was last changed.
    pub(super) changed: u64,
    pub(super) still: Span,
}

impl Roster {
    pub(crate) fn new(name: &str, members: Members, clock: Clock) -> Self {
        let (known, drained) = (Mutex::default(), flag::Sender::new(None));
        Self { name: name.to_owned(), members, clock, known, drained }
    }

    /// What all keys of the cluster begin with.
    pub(crate) fn prefix(&self) -> &str {
        self.members.prefix()
    }

    /// Takes in all records, and which log it is.
    pub(super) fn saw(&self, cluster: Option<String>, records: Vec<(MemberRecord, u64)>) {
        let (now, unix_ms) = (self.clock.now(), self.clock.unix_ms());
        let mut known = self.lock();
        if let Some(cluster) = cluster {
            known.cluster = cluster;
        }
        let mut before = std::mem::take(&mut known.members);
        for (record, changed) in records {
            let name = record.controller.clone();
            let member = match before.remove(&name) {
                Some(member) if member.changed == changed => member,
                Some(Member { mut ahead, .. }) => {
                    if ahead.len() >= SAMPLES {
                        ahead.pop_front();
                    }
                    ahead.push_back(record.unix_ms.cast_signed().saturating_sub(unix_ms.cast_signed()));
                    Member { record, changed, since: now, moves: true, ahead }
                }
                // When it was written is not known.
                None => Member { record, changed, since: now, moves: false, ahead: VecDeque::new() },
            };
            known.members.insert(name, member);
        }
    }

    /// Which log it is.
    pub(crate) fn cluster(&self) -> String {
        self.lock().cluster.clone()
    }

    /// All controllers that have a record.
    pub(crate) fn all(&self) -> Vec<Seen> {
        let (now, unix_ms) = (self.clock.now(), self.clock.unix_ms());
        let seen = |member: &Member| {
            let ahead_ms = member.ahead.iter().copied().max().unwrap_or_default();
            let by_its_clock = Span(unix_ms.saturating_sub(member.record.unix_ms).saturating_mul(1_000));
            let age = if member.moves { now.since(member.since) } else { by_its_clock };
            Seen { record: member.record.clone(), age, ahead_ms }
        };
        self.lock().members.values().map(seen).collect()
    }

    /// The names of others that run.
    pub(crate) fn others(&self) -> Vec<String> {
        let now = self.clock.now();
        let known = self.lock();
        let runs = |(name, member): &(&String, &Member)| {
            **name != self.name && member.moves && now.since(member.since) < GONE
        };
        known.members.iter().filter(runs).map(|(name, _)| name.clone()).collect()
    }

    /// The record of another controller, if it has one.
    pub(super) fn record_of(&self, name: &str) -> Option<Record> {
        let now = self.clock.now();
        let known = self.lock();
        let record = |member: &Member| Record { changed: member.changed, still: now.since(member.since) };
        known.members.get(name).map(record)
    }

    /// Removes a record that was last changed at this revision; returns whether it was there as it was seen.
    ///
    /// # Errors
    /// Nobody answered.
    pub(super) fn remove(&self, name: &str, changed: u64) -> Result<bool, StoreError> {
        let held = self.members.remove(name, changed)?;
        if held {
            self.lock().members.retain(|of, member| of != name || member.changed != changed);
        }
        Ok(held)
    }

    /// Lets this controller, which leads, leave the lead to others for a time.
    pub(crate) fn drain(&self, rest: Span) {
        self.lock().rests_until = self.clock.now().after(rest);
        self.drained.send_replace(Some(rest));
    }

    /// Shows when this controller is drained. A drain before does not count.
    pub(super) fn drains(&self) -> flag::Receiver<Option<Span>> {
        self.drained.send_replace(None);
        self.drained.subscribe()
    }

    /// Whether this controller leaves the lead to others, of which one runs.
    pub(super) fn rests(&self) -> bool {
        let until = self.lock().rests_until;
        self.clock.now() < until && !self.others().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
