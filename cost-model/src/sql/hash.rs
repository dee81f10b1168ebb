//! The cache key of a statement: a seeded 64-bit hash of its tokens.
//!
//! In: tokens from the scanner. Out: 64 bits, equal for texts with equal tokens. Words are folded to lower case,
//! eight bytes at a time. Each token ends in its kind and length, so that `ab c` and `a bc` differ. The seed is
//! random, so a caller cannot prepare two statements that share a key; between honest statements 64 bits make a
//! clash in a cache of thousands a matter of 10^-15. The key never leaves the process.

use super::token::{Literal, Sink, Token};
use crate::mix::{GOLDEN, fold};

/// Bytes hashed at a time.
const CHUNK: usize = size_of::<u64>();

pub(super) struct TokenHash {
    state: u64,
    key: u64,
}

impl TokenHash {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: fold(seed, GOLDEN), key: seed | 1 }
    }

    pub(super) const fn finish(&self) -> u64 {
        fold(self.state ^ GOLDEN, self.key)
    }

    /// Takes in eight bytes and what they are.
    fn mix(&mut self, word: u64, tag: u64) {
        self.state = fold(self.state ^ word, self.key ^ tag).wrapping_add(word);
    }

    /// Bytes, lowered if `lower`; the last of them with the kind of token and the length.
    fn bytes(&mut self, kind: u64, mut bytes: &[u8], lower: bool) {
        let tag = u64::try_from(bytes.len()).unwrap_or(u64::MAX) << 8 | kind;
        while let Some((chunk, rest)) = bytes.split_first_chunk::<CHUNK>()
            && !rest.is_empty()
        {
            let chunk = u64::from_le_bytes(*chunk);
            self.mix(if lower { lowered(chunk) } else { chunk }, 0);
            bytes = rest;
        }
        let chunk = load(bytes);
        self.mix(if lower { lowered(chunk) } else { chunk }, tag);
    }
}

impl Sink for TokenHash {
    type Mark = u64;

    fn token(&mut self, token: Token<'_>) {
        match token {
            Token::Word(word) => self.bytes(1, word, true),
            Token::Quoted(name) => self.bytes(2, name, false),
            Token::Symbol(symbol) => self.bytes(8, symbol, false),
            Token::Literal(Literal::Number) => self.mix(0, 3),
            Token::Literal(Literal::String) => self.mix(0, 4),
            Token::Literal(Literal::Placeholder) => self.mix(0, 5),
            Token::HintOpen => self.mix(0, 6),
            Token::HintClose => self.mix(0, 7),
        }
    }

    fn mark(&self) -> u64 {
        self.state
    }

    fn rewind(&mut self, mark: u64) {
        self.state = mark;
    }
}

/// The first eight bytes, or fewer and zeros, lowered.
pub(super) const fn head(bytes: &[u8]) -> u64 {
    lowered(load(bytes))
}

/// The first eight bytes, or fewer and zeros, as a little-endian number.
///
/// Shorter texts are read as two overlapping halves, whose common bytes are equal: most words are short, and a loop
/// over their bytes would be the slowest part of a scan.
const fn load(bytes: &[u8]) -> u64 {
    // `as` widens here; `u64::from` is not const.
    if let Some(chunk) = bytes.first_chunk() {
        return u64::from_le_bytes(*chunk);
    }
    if let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let shift = 8 * bytes.len().saturating_sub(4);
        return u32::from_le_bytes(*low) as u64 | (u32::from_le_bytes(*high) as u64) << shift;
    }
    if let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let shift = 8 * bytes.len().saturating_sub(2);
        return u16::from_le_bytes(*low) as u64 | (u16::from_le_bytes(*high) as u64) << shift;
    }
    match bytes {
        [byte] => *byte as u64,
        _ => 0,
    }
}

/// ASCII capitals to small letters in each of eight bytes, all else untouched.
const fn lowered(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let low_bits = word & (0x7f * EACH);
    let above_z = low_bits + (0x7f - b'Z' as u64) * EACH;
    let from_a = low_bits + (0x80 - b'A' as u64) * EACH;
    let ascii = !word & (0x80 * EACH);
    word | (ascii & (above_z ^ from_a)) >> 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lowering_is_that_of_std(bytes in any::<[u8; 8]>()) {
            let expected = u64::from_le_bytes(bytes.map(|byte| byte.to_ascii_lowercase()));
            prop_assert_eq!(lowered(u64::from_le_bytes(bytes)), expected);
        }

        #[test]
        fn loading_pads_with_zeros(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut padded = [0; 8];
            for (slot, byte) in padded.iter_mut().zip(&bytes) {
                *slot = *byte;
            }
            prop_assert_eq!(load(&bytes), u64::from_le_bytes(padded));
        }
    }
}
