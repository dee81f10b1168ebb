//! The lineage of a store: the starts on it, and the starts on copies of it that nodes reported.
//!
//! Each start has an instance, a random number that is stored before anything is granted. Equal revisions of
//! definitions mean the same only along one line of starts: a store that was set back counts on from the revision of
//! the copy, and reaches numbers again that nodes know with another meaning. The oldest entries are dropped first; a
//! dropped one counts as unknown, which costs a snapshot or a recovery and is never wrong.

use serde::{Deserialize, Serialize};

/// Starts kept of each kind. With fewer, a node that was away over so many starts gets a needless snapshot; a row with
/// twice as many would still be a few kilobytes.
const KEPT: usize = 64;

/// A start on this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Start {
    instance: u64,
    /// Revision of the definitions at the start.
    revision: u64,
}

/// A start on a copy of this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Other {
    instance: u64,
    /// The highest epoch that it was reported to lead.
    epoch: u64,
}

/// Starts, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lineage {
    own: Vec<Start>,
    others: Vec<Other>,
}

impl Lineage {
    /// Adds the start of this controller.
    pub(crate) fn begin(&mut self, instance: u64, revision: u64) {
        self.own.push(Start { instance, revision });
        self.own.drain(..self.own.len().saturating_sub(KEPT));
    }

    /// Whether `instance` is a start on this store.
    pub(crate) fn is_own(&self, instance: u64) -> bool {
        self.own.iter().any(|start| start.instance == instance)
    }

    /// Whether a start on a copy of this store is known, with this epoch or a later one.
    pub(crate) fn has_heard(&self, instance: u64, epoch: u64) -> bool {
        self.others.iter().any(|other| other.instance == instance && other.epoch >= epoch)
    }

    /// Notes a start on a copy.
    pub(crate) fn hear(&mut self, instance: u64, epoch: u64) {
        self.others.retain(|other| other.instance != instance);
        self.others.push(Other { instance, epoch });
        self.others.drain(..self.others.len().saturating_sub(KEPT));
    }

    /// Whether the definitions of revision `have`, sent by `instance`, are those of revision `now`. Instance 0 is a
    /// node that does not say.
    pub(crate) fn is_current(&self, instance: u64, have: u64, now: u64) -> bool {
        if have == 0 || have != now {
            return false;
        }
        let Some(place) = self.own.iter().position(|start| start.instance == instance) else {
            return instance == 0;
        };
        // Revisions beyond the one that the next start found were set back with the store.
        self.own.get(place.saturating_add(1)).is_none_or(|next| have <= next.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_counts_along_one_line_of_starts_only() {
        let mut lineage = Lineage::default();
        lineage.begin(7, 1);
        // The first start goes on to revision 15; the copy on which the next one starts has 10.
        lineage.begin(8, 10);
        assert!(lineage.is_current(8, 15, 15));
        assert!(lineage.is_current(7, 10, 10));
        assert!(!lineage.is_current(7, 15, 15), "another 15 than that of this store");
        assert!(!lineage.is_current(9, 15, 15), "nobody here ever started so");
        assert!(!lineage.is_current(8, 14, 15) && !lineage.is_current(8, 0, 0));
        assert!(lineage.is_current(0, 15, 15), "an older node does not say");
        // The second one goes on to revision 20.
        lineage.begin(9, 20);
        assert!(lineage.is_current(8, 20, 20) && lineage.is_current(9, 20, 20));
        assert!(!lineage.is_current(7, 20, 20), "what the next start found counts, not what the newest did");
    }

    #[test]
    fn a_start_on_a_copy_is_news_once_for_each_epoch() {
        let mut lineage = Lineage::default();
        assert!(!lineage.has_heard(3, 1));
        lineage.hear(3, 5);
        assert!(lineage.has_heard(3, 4) && lineage.has_heard(3, 5) && !lineage.has_heard(3, 6));
        for instance in 100..300 {
            lineage.hear(instance, 1);
            lineage.begin(instance, 1);
        }
        assert_eq!((lineage.own.len(), lineage.others.len()), (KEPT, KEPT));
    }
}
