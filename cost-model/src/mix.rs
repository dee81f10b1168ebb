//! The mixing step of the keyed hashes here: a 64 by 64 bit product folded to 64 bits.
//!
//! In: two words. Out: one in which every bit depends on all bits of both. *Source*: the multiply-and-fold step of
//! the wyhash family; one multiplication, about a nanosecond. A keyed hash that starts from an unknown seed cannot
//! be made to collide on purpose from outside.

use std::hash::{BuildHasher, RandomState};

/// An odd constant without structure: the fractional part of the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The high and the low half of `a * b`, folded together.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of the product are what is wanted")]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product >> 64) as u64 ^ product as u64
}

/// A seed that differs from process to process and from call to call.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().hash_one(GOLDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a seed that is known, statements that share a key could be prepared outside.
    #[test]
    fn a_seed_cannot_be_known_from_another_one() {
        let seeds: std::collections::BTreeSet<u64> = (0..100).map(|_| random_seed()).collect();
        assert_eq!(seeds.len(), 100);
    }
}
