//! A part of a state, shared between the states that have it in common, with its hash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// A value that is copied only when it changes.
#[derive(Debug)]
pub(super) struct Shared<T> {
    value: Arc<T>,
    print: u128,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), print: self.print }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Clone + Hash> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        let print = fingerprint(&value);
        Self { value: Arc::new(value), print }
    }

    /// Changes a copy of the value and keeps that.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut value = T::clone(&self.value);
        let result = change(&mut value);
        *self = Self::new(value);
        result
    }

    pub(super) fn print(&self) -> u128 {
        self.print
    }
}

/// Keeps one copy of equal values, so that states that came about in different ways share their parts.
#[derive(Debug)]
pub(super) struct Store<T>(HashMap<u128, Weak<T>, BuildHasherDefault<Low>>);

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T> Store<T> {
    /// Replaces a value by the copy that is kept.
    pub(super) fn unite(&mut self, shared: &mut Shared<T>) {
        match self.0.get(&shared.print).and_then(Weak::upgrade) {
            Some(kept) => shared.value = kept,
            None => {
                self.0.insert(shared.print, Arc::downgrade(&shared.value));
            }
        }
    }

    /// Drops what no state holds any more.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|_, kept| kept.strong_count() > 0);
    }
}

/// Takes the low half of a fingerprint for its hash.
#[derive(Default)]
pub(super) struct Low(u64);

impl Hasher for Low {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(0, |low| u64::from_le_bytes(*low));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// 128 bits that tell values apart: two lanes of 64, each multiplied with every word and folded.
/// Source: the mixing step of wyhash (Wang Yi, 2019).
pub(super) fn fingerprint(value: &impl Hash) -> u128 {
    let mut lanes = Lanes([0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]);
    value.hash(&mut lanes);
    let [high, low] = lanes.0;
    u128::from(high) << 64 | u128::from(low)
}

struct Lanes([u64; 2]);

/// Odd factors without small patterns, one for each lane.
const FACTORS: [u64; 2] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let low = u64::try_from(product & u128::from(u64::MAX)).unwrap_or_default();
    low ^ u64::try_from(product >> 64).unwrap_or_default()
}

impl Hasher for Lanes {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.write_u64(chunk.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let word = rest.iter().fold(rest.len() as u64, |word, byte| word << 8 | u64::from(*byte));
            self.write_u64(word);
        }
    }

    fn write_u64(&mut self, word: u64) {
        for (lane, factor) in self.0.iter_mut().zip(FACTORS) {
            // The rotation keeps a word that equals the lane from wiping out what came before.
            *lane = fold(*lane ^ word, factor) ^ lane.rotate_left(23);
        }
    }

    fn finish(&self) -> u64 {
        let [first, second] = self.0;
        fold(first, second)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_change_leaves_the_other_holders_alone_and_renews_the_hash() {
        let one = Shared::new(vec![1, 2]);
        let mut other = one.clone();
        other.change(|list| list.push(3));
        assert_eq!((one.len(), other.len()), (2, 3));
        assert_ne!(one.print(), other.print());
        other.change(|list| list.pop());
        assert_eq!(one.print(), other.print());
    }

    #[test]
    fn a_million_like_values_have_different_halves() {
        let halves = |value: u128| (value >> 64, value << 64 >> 64);
        let prints: Vec<_> = (0..1_000_000_i64)
            .map(|n| halves(fingerprint(&(n / 1_000, Some(n % 1_000), [0_i64; 4]))))
            .collect();
        let different =
            |half: fn(&(u128, u128)) -> u128| prints.iter().map(half).collect::<HashSet<_>>().len();
        assert_eq!((different(|p| p.0), different(|p| p.1)), (prints.len(), prints.len()));
    }
}
