//! A queue that can be searched: keys come in ascending order and leave in any, mostly the first.
//!
//! A value that leaves from the middle leaves a hole, which is skipped later, so that leaving costs no walk through the
//! queue.

use std::collections::VecDeque;

/// Holes up to which the queue is not compacted.
const HOLES: usize = 64;

/// Values in the order of their keys, which is the order of arrival.
#[derive(Clone, Debug, Hash)]
pub struct Ranks<K, V> {
    /// `None` is a hole; the first place never is.
    places: VecDeque<(K, Option<V>)>,
    len: usize,
}

impl<K, V> Default for Ranks<K, V> {
    fn default() -> Self {
        Self { places: VecDeque::new(), len: 0 }
    }
}

impl<K: Copy + Ord, V> Ranks<K, V> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `key` comes after all keys that may still be there.
    pub fn is_next(&self, key: K) -> bool {
        self.places.back().is_none_or(|(last, _)| *last < key)
    }

    /// Appends a value; its key must be next.
    pub fn join(&mut self, key: K, value: V) {
        debug_assert!(self.is_next(key), "keys come in ascending order");
        self.len += 1;
        self.places.push_back((key, Some(value)));
    }

    /// Removes a value.
    pub fn leave(&mut self, key: K) -> Option<V> {
        let value = match self.places.front() {
            Some((first, _)) if *first == key => self.places.pop_front()?.1?,
            _ => {
                let place = self.places.binary_search_by_key(&key, |(key, _)| *key).ok()?;
                self.places.get_mut(place)?.1.take()?
            }
        };
        self.len -= 1;
        while self.places.front().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_front();
        }
        if self.places.len() > 2 * self.len + HOLES {
            self.places.retain(|(_, value)| value.is_some());
        }
        Some(value)
    }

    /// The first value, with its key.
    pub fn first(&self) -> Option<(K, &V)> {
        self.places.front().and_then(|(key, value)| Some((*key, value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    proptest::proptest! {
        /// Compares with a map: which value leaves and which is first; holes do not pile up.
        #[test]
        fn any_order_of_leaving(steps in proptest::collection::vec((0_u8..4, 0_u64..500), 0..600)) {
            let (mut ranks, mut all) = (Ranks::default(), BTreeMap::new());
            for (next, (kind, number)) in (0..).zip(steps) {
                let leaver = match kind {
                    0 | 1 => None,
                    2 => ranks.first().map(|(key, _)| key),
                    _ => Some(number),
                };
                if let Some(key) = leaver {
                    assert_eq!(ranks.leave(key), all.remove(&key));
                } else {
                    ranks.join(next, number);
                    all.insert(next, number);
                }
                assert!(ranks.is_next(next + 1) && (all.is_empty() || !ranks.is_next(0)));
                assert_eq!(ranks.first(), all.first_key_value().map(|(key, value)| (*key, value)));
                assert_eq!((ranks.len(), ranks.is_empty()), (all.len(), all.is_empty()));
                assert!(ranks.places.len() <= 2 * all.len() + HOLES);
            }
        }
    }
}
