//! A bounded, thread-safe map from 64-bit keys to small values, made of independent sets of eight.
//!
//! In: keys that are already hashes. A key belongs to one set; a set keeps its eight most recently used entries
//! and has its own mutex, so that threads rarely meet. Memory is bounded by construction, a hit costs one lock and
//! a walk over at most eight keys, and evictions are counted. *Source*: the set-associative caches of processors.
//! It differs from a full LRU in that a set can evict while others have room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mix::{GOLDEN, fold, random_seed};

/// Entries per set. More make a hit slower, fewer evict earlier.
const WAYS: usize = 8;

/// Entries, the most recently used first.
type Set<V> = Vec<(u64, V)>;

pub(crate) struct Ways<V> {
    sets: Box<[Mutex<Set<V>>]>,
    /// Spreads keys over sets, unknown outside, so that a chosen set cannot be flooded.
    seed: u64,
    evicted: AtomicU64,
}

impl<V> Ways<V> {
    /// Room for `capacity` entries, rounded up to a power-of-two number of sets.
    pub(crate) fn new(capacity: usize) -> Self {
        let sets = capacity.div_ceil(WAYS).max(1).next_power_of_two();
        let set = || Mutex::new(Vec::with_capacity(WAYS));
        Self {
            sets: std::iter::repeat_with(set).take(sets).collect(),
            seed: random_seed(),
            evicted: AtomicU64::new(0),
        }
    }

    /// Applies `read` to the entry of `key`, which becomes the most recently used of its set.
    pub(crate) fn get<R>(&self, key: u64, read: impl FnOnce(&mut V) -> R) -> Option<R> {
        let mut set = self.set(key)?;
        let place = set.iter().position(|(held, _)| *held == key)?;
        set.get_mut(..=place)?.rotate_right(1);
        set.first_mut().map(|(_, value)| read(value))
    }

    /// Applies `read` to the entry of `key`, made by `make` when there was none. May evict the least recently used
    /// entry of the set.
    pub(crate) fn get_or_insert<R>(
        &self,
        key: u64,
        make: impl FnOnce() -> V,
        read: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let mut set = self.set(key)?;
        if let Some(place) = set.iter().position(|(held, _)| *held == key) {
            set.get_mut(..=place)?.rotate_right(1);
        } else {
            if set.len() == WAYS {
                set.pop();
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            set.insert(0, (key, make()));
        }
        set.first_mut().map(|(_, value)| read(value))
    }

    /// Entries held.
    pub(crate) fn len(&self) -> usize {
        self.sets.iter().map(|set| lock(set).len()).sum()
    }

    /// Most entries that can be held.
    pub(crate) fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Entries given up for others since the start.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// The set of `key`; there always is one.
    fn set(&self, key: u64) -> Option<MutexGuard<'_, Set<V>>> {
        let mask = u64::try_from(self.sets.len().saturating_sub(1)).unwrap_or_default();
        let index = usize::try_from(fold(key ^ self.seed, GOLDEN) & mask).unwrap_or_default();
        self.sets.get(index).map(lock)
    }
}

/// A panic elsewhere cannot leave a set half changed, so its poison means nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_the_recently_used() {
        let ways = Ways::new(1);
        assert_eq!(ways.capacity(), 8);
        for key in 0..8 {
            assert_eq!(ways.get_or_insert(key, || key * 10, |value| *value), Some(key * 10));
        }
        assert_eq!(ways.get(0, |value| *value), Some(0));
        ways.get_or_insert(8, || 80, |_| ());
        assert_eq!((ways.len(), ways.evicted()), (8, 1));
        assert_eq!(ways.get(1, |value| *value), None, "the least recently used goes");
        assert_eq!(ways.get(0, |value| *value), Some(0), "the one touched last stays");
        assert_eq!(ways.get_or_insert(8, || 0, |value| *value), Some(80), "what is there stays");
        for key in 2..8 {
            assert_eq!(
                ways.get_or_insert(key, || 0, |value| *value),
                Some(key * 10),
                "and is told from others"
            );
        }
    }

    /// What is observed again and again, but never asked for, is as recent as what is looked up.
    #[test]
    fn what_is_only_ever_added_to_outlives_what_comes_once() {
        let ways = Ways::new(1);
        for key in 1..100 {
            ways.get_or_insert(0, || 0, |seen| *seen += 1);
            ways.get_or_insert(key, || 0, |_| ());
        }
        assert_eq!(ways.get(0, |seen| *seen), Some(99), "all that was learnt");
    }

    #[test]
    fn capacity_rounds_up_to_whole_sets() {
        for (asked, held) in [(0, 8), (1, 8), (9, 16), (17, 32), (4_096, 4_096)] {
            assert_eq!(Ways::<()>::new(asked).capacity(), held);
        }
    }
}
