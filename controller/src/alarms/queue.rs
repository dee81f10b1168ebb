//! What one webhook has still to be told: bounded, in order, a batch at a time, with a time for the next try. Pure.
//!
//! When it is full, what is of no use any more goes first: the oldest alarm of which both the beginning and the end wait,
//! then the oldest repetition. What is left then is one end and one beginning of each alarm at most, which fits, as
//! the number of open alarms is bounded.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use tidegate_core::units::{Span, Time};

use super::book::{Change, MOST_OPEN};

/// Messages that wait for one webhook: an end and a beginning for each alarm that can be open and for the one about the
/// rest, and the message of the start. Half of it would lose alarms that hold; twice of it only what is over.
pub(super) const MOST_QUEUED: usize = 2 * (MOST_OPEN + 1) + 1;
/// Messages in one delivery: some tens of kilobytes. Half of it doubles the requests of a storm; a receiver that takes
/// twice of it is rare.
const BATCH: usize = 100;
/// Time after which a message is not worth its delivery, a day: alarms that hold are repeated. Half of it loses a
/// night at a receiver that fails; twice of it tells of what is forgotten.
pub(super) const MOST_AGE: Span = Span::secs(24 * 3_600);
/// The pause after the first failure, twice as long after each further one.
const FIRST_PAUSE: Span = Span::secs(1);
/// The longest pause: with twice of it, a receiver that is back waits long; with half of it, one that is gone for a
/// night is asked for nothing.
const LONGEST_PAUSE: Span = Span::secs(300);
/// Doublings of a pause that are looked at: more reach the longest anyway.
const MOST_DOUBLINGS: u32 = 16;

/// A message of one event.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) at: Time,
    /// What happened to which alarm; `None` for the message of a start.
    pub(super) of: Option<(Change, String)>,
    pub(super) json: Value,
}

/// A delivery, which is the same at each try.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// Its number, which no other delivery of this queue has.
    pub(super) number: u64,
    pub(super) entries: Vec<Entry>,
    /// When it may be tried.
    pub(super) due: Time,
    failures: u32,
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Entry>,
    flight: Option<Batch>,
    numbered: u64,
}

impl Queue {
    /// Adds a message; returns how many were dropped for it.
    pub(super) fn push(&mut self, entry: Entry) -> usize {
        self.waiting.push_back(entry);
        let before = self.waiting.len();
        if before > MOST_QUEUED {
            self.make_room();
        }
        before - self.waiting.len()
    }

    /// Messages that are not delivered yet.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.flight.as_ref().map_or(0, |batch| batch.entries.len())
    }

    /// The delivery to try next, and how many messages were too old for it.
    pub(super) fn next(&mut self, now: Time) -> (Option<Batch>, usize) {
        let is_old = |entry: &Entry| now.since(entry.at) > MOST_AGE;
        let before = self.len();
        // A delivery keeps what it has: what is told twice has to be the same. So all of it is given up, and what of it
        // is not old goes into the next one.
        if let Some(batch) = self.flight.take_if(|batch| batch.entries.first().is_some_and(is_old)) {
            let young = batch.entries.into_iter().filter(|entry| !is_old(entry));
            young.rev().for_each(|entry| self.waiting.push_front(entry));
        }
        while self.waiting.front().is_some_and(is_old) {
            self.waiting.pop_front();
        }
        let expired = before - self.len();
        if self.flight.is_none() && !self.waiting.is_empty() {
            self.numbered += 1;
            let entries = self.waiting.drain(..BATCH.min(self.waiting.len())).collect();
            self.flight = Some(Batch { number: self.numbered, entries, due: now, failures: 0 });
        }
        (self.flight.clone(), expired)
    }

    /// The delivery is over: it arrived, or nobody wants it.
    pub(super) fn done(&mut self) {
        self.flight = None;
    }

    /// The delivery failed; it is tried again after half to all of a pause that doubles, as `random` says.
    pub(super) fn failed(&mut self, now: Time, random: u32) {
        if let Some(batch) = &mut self.flight {
            let pause = Span(FIRST_PAUSE.0 << batch.failures.min(MOST_DOUBLINGS)).min(LONGEST_PAUSE);
            let half = pause.0 / 2;
            batch.due = now.after(Span(half + half * u64::from(random) / u64::from(u32::MAX)));
            batch.failures = batch.failures.saturating_add(1);
        }
    }

    fn make_room(&mut self) {
        let mut raised: BTreeMap<&str, usize> = BTreeMap::new();
        let mut pair: Option<(usize, usize)> = None;
        for (at, entry) in self.waiting.iter().enumerate() {
            match &entry.of {
                Some((Change::Raised, id)) => drop(raised.insert(id, at)),
                Some((Change::Resolved, id)) => {
                    let found = raised.remove(id.as_str()).map(|from| (from, at));
                    pair = [pair, found].into_iter().flatten().min();
                }
                _ => {}
            }
        }
        if let Some((from, to)) = pair {
            // What was repeated between them is void, too.
            let id = self.waiting.get(from).and_then(|entry| entry.of.as_ref()).map(|(_, id)| id.clone());
            let is_of = |entry: &Entry| entry.of.as_ref().map(|(_, id)| id) == id.as_ref();
            let mut at = 0..;
            self.waiting.retain(|entry| {
                let at = at.next().unwrap_or_default();
                !((from..=to).contains(&at) && is_of(entry))
            });
            return;
        }
        let is_still = |entry: &Entry| matches!(entry.of, Some((Change::Still, _)));
        let still = self.waiting.iter().position(is_still);
        self.waiting.remove(still.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests;
