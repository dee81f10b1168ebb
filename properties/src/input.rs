//! Choices read from bytes: how an input of a fuzz engine becomes numbers, picks and texts.
//!
//! Reading past the end gives zeros, so every input means something and a shorter one means less. One byte decides
//! how a number is written, so that a changed byte reaches both small values and the edges of a type.

use tidegate_core::units::{Rate, Ru};

/// Values at which something may tip over.
const EDGES: [i64; 16] = [
    0,
    1,
    -1,
    i64::MAX,
    i64::MIN,
    Ru::MAX.0,
    Ru::MAX.0 + 1,
    Rate::MAX.0,
    Rate::MAX.0 + 1,
    -Rate::MAX.0,
    i64::MAX / 2,
    i64::MAX - 1,
    1_000_000,
    999_999,
    1 << 32,
    1 << 53,
];

/// The unread rest of an input.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything has been read.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    pub(super) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// Up to `count` bytes; fewer at the end.
    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = tail;
        head
    }

    /// Below `n`, which is 1 to 256.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    /// Yes or no.
    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Any number: small, medium, a power of two, or eight bytes as they are.
    pub(super) fn number(&mut self) -> u64 {
        let first = self.byte();
        let low = u64::from(first & 0x3f);
        match first >> 6 {
            0 => low,
            1 => low << 16 | u64::from(self.byte()) << 8 | u64::from(self.byte()),
            2 => (1 << low) | u64::from(self.byte()),
            _ => self.take(8).iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
        }
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = high.saturating_sub(low).saturating_add(1);
        low + self.number() % width
    }

    /// Micro-units in the range that the wire lets through: 0 to `most`.
    pub(super) fn amount(&mut self, most: i64) -> i64 {
        i64::try_from(self.between(0, most.unsigned_abs())).unwrap_or(most)
    }

    /// Any integer, most often one at an edge.
    pub(super) fn hostile(&mut self) -> i64 {
        let choice = self.below(EDGES.len() + 8);
        EDGES.get(choice).copied().unwrap_or_else(|| self.number().cast_signed())
    }

    /// One of `choices`; the first at the end of the input.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let index = self.below(choices.len());
        choices.get(index).copied()
    }

    /// Bytes with their length in front: one byte, or two more when the first is 255.
    pub(super) fn piece(&mut self) -> &'a [u8] {
        let length = match self.byte() {
            255 => usize::from(self.byte()) << 8 | usize::from(self.byte()),
            short => usize::from(short),
        };
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_can_be_read_to_its_end_and_beyond() {
        let bytes: Vec<u8> = (0..=255).collect();
        for start in 0..bytes.len() {
            let mut input = Input::new(&bytes[start..]);
            while !input.is_empty() {
                input.number();
                assert!(input.between(3, 9) >= 3);
                assert!(input.amount(Ru::MAX.0) >= 0);
                input.hostile();
                input.piece();
            }
            assert_eq!((input.byte(), input.number(), input.between(5, u64::MAX)), (0, 0, 5));
        }
    }

    #[test]
    fn edges_and_raw_numbers_are_within_reach() {
        let reached: Vec<i64> = (0..16).map(|byte| Input::new(&[byte]).hostile()).collect();
        assert_eq!(reached, EDGES);
        let mut raw = Input::new(&[0xff; 9]);
        assert_eq!(raw.number(), u64::MAX);
    }
}
