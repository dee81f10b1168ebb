//! Bytes that sessions of one server wrote and that their own work does not explain, until another session's work does.
//! What is left is charged to no session: the work of background processes, of sessions that do not come through the
//! gateway, or of unknown origin.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;

/// Bytes that came in without an owner, and bytes that a statement took since. Both only grow.
#[derive(Debug, Default)]
pub(crate) struct Unowned {
    given: AtomicU64,
    taken: AtomicU64,
    /// The same of all servers, for metrics.
    given_in_all: Counter,
    taken_in_all: Counter,
}

impl Unowned {
    /// The account of one more server, with the counters over all servers.
    pub(crate) fn counted_by(given_in_all: Counter, taken_in_all: Counter) -> Self {
        Self { given_in_all, taken_in_all, ..Self::default() }
    }

    /// All that was ever given.
    pub(super) fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// Adds bytes that were written for others.
    pub(super) fn give(&self, bytes: u64) {
        if bytes > 0 {
            self.given.fetch_add(bytes, Ordering::Relaxed);
            self.given_in_all.inc_by(bytes);
        }
    }

    /// Takes at most `bytes` that others wrote for a session whose work began when `since` had been given; returns how
    /// many there were.
    pub(super) fn take(&self, bytes: u64, since: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let given = self.given();
        let most = |taken: u64| bytes.min(given.saturating_sub(taken)).min(given.saturating_sub(since));
        let more = |taken: u64| Some(taken.saturating_add(most(taken)));
        let Ok(before) = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) else {
            return 0;
        };
        self.taken_in_all.inc_by(most(before));
        most(before)
    }

    /// The bytes of no session so far.
    #[cfg(test)]
    pub(super) fn left(&self) -> u64 {
        self.given() - self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_has_two_owners_and_the_page_counts_all_of_them() {
        let (given, taken) = (Counter::default(), Counter::default());
        let servers = [(); 2].map(|()| Unowned::counted_by(given.clone(), taken.clone()));
        servers[0].give(100);
        servers[0].give(0);
        servers[1].give(7);
        assert_eq!(servers[0].take(0, 0), 0);
        assert_eq!((servers[0].take(80, 0), servers[0].take(80, 0), servers[0].take(80, 0)), (80, 20, 0));
        servers[0].give(10);
        // What came in before its work began is not its own.
        assert_eq!((servers[0].take(80, 104), servers[0].take(80, 0)), (6, 4));
        assert_eq!(servers.map(|server| server.left()), [0, 7]);
        assert_eq!((given.get(), taken.get()), (117, 110));
    }
}
