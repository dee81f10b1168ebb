//! What a controller says of itself, for nodes to keep and to tell the next controller.
//!
//! A standing names the start of a controller (its instance, a random number), the epoch it leads, and the longest lease
//! that may be out. It is signed with the key of the store, which every copy of a store has. So whoever starts on a copy
//! can believe what nodes bring of starts it does not know, and no node can make up a start that never was.

use tidegate_core::units::Span;

use crate::proof::Prover;

/// Apart from proofs of leases, which are signed with the same key and begin with 1.
const VERSION: u8 = 2;
/// Numbers in a standing.
const WORDS: usize = 3;
const CLEAR_BYTES: usize = 1 + WORDS * 8;
/// Bytes of the longest standing that is looked at.
pub const MAX_STANDING_BYTES: usize = 256;

/// What a controller says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Which start of which controller; never 0.
    pub instance: u64,
    /// The epoch it leads.
    pub epoch: u64,
    /// The longest lease of it that may be out.
    pub longest_ttl: Span,
}

/// A standing that a node brings, and whether a controller with this store's key has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is signed with the key of this store.
    Signed(Standing),
    /// It is of another cluster, of a store that is lost, or made up.
    Foreign(Standing),
}

impl Standing {
    /// As nodes keep it.
    pub fn sign(&self, prover: &Prover) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_STANDING_BYTES);
        bytes.push(VERSION);
        for word in [self.instance, self.epoch, self.longest_ttl.0] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        let code = prover.code(&bytes);
        bytes.extend_from_slice(&code);
        bytes
    }
}

impl Told {
    /// Reads what a node brings; `None` when it is nothing that any controller says.
    pub fn read(prover: &Prover, bytes: &[u8]) -> Option<Self> {
        let (clear, code) = bytes.split_at_checked(CLEAR_BYTES)?;
        let (version, rest) = clear.split_first()?;
        if *version != VERSION || code.len() > MAX_STANDING_BYTES {
            return None;
        }
        let (words, _) = rest.as_chunks::<8>();
        let [instance, epoch, longest_ttl] = words else {
            return None;
        };
        let number = |word: &[u8; 8]| u64::from_be_bytes(*word);
        let standing = Standing {
            instance: number(instance),
            epoch: number(epoch),
            longest_ttl: Span(number(longest_ttl)),
        };
        Some(if prover.checks(clear, code) { Self::Signed(standing) } else { Self::Foreign(standing) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::KEY_BYTES;

    fn standing() -> Standing {
        Standing { instance: 7, epoch: 3, longest_ttl: Span::secs(5) }
    }

    #[test]
    fn only_who_has_the_key_can_make_a_standing_up() {
        let (own, other) = (Prover::new(&[1; KEY_BYTES]), Prover::new(&[2; KEY_BYTES]));
        let bytes = standing().sign(&own);
        assert_eq!(Told::read(&own, &bytes), Some(Told::Signed(standing())));
        assert_eq!(Told::read(&other, &bytes), Some(Told::Foreign(standing())));
        for at in 1..bytes.len() {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            assert!(!matches!(Told::read(&own, &forged), Some(Told::Signed(_))), "{at}");
            assert!(!matches!(Told::read(&own, &bytes[..at]), Some(Told::Signed(_))), "{at}");
        }
        assert_eq!(Told::read(&own, &[0; 65]), None);
    }
}
