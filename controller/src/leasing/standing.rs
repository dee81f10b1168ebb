//! A controller's statement about itself, for nodes to keep and to bring to the next controller.
//!
//! A standing names the start of a controller (its instance, a random number), the epoch it leads, the longest lease
//! that may be out, when it began, how long it has run, and the other controllers that nodes reported to it. It is
//! signed with the key of the store, which every copy of a store has. So a controller on a copy can believe what nodes
//! bring of starts it does not know, and no node can invent a start.

use tidegate_core::units::Span;

use crate::leasing::proof::Prover;

/// Differs from the version of lease proofs, which are signed with the same key and begin with 1, and from that of
/// standings without rivals.
const VERSION: u8 = 3;
/// Numbers in a standing, before those of its rivals.
const WORDS: usize = 5;
/// Version, and number of rivals.
const HEAD_BYTES: usize = 2;
/// Length of the longest standing that is read.
pub const MAX_STANDING_BYTES: usize = 256;
/// Most rivals in a standing. With half of it, two pairs of copies could hide each other; twice of it would leave no
/// spare room in [`MAX_STANDING_BYTES`].
pub const MAX_RIVALS: usize = 4;

/// Another controller that was reported to this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rival {
    /// Its start.
    pub instance: u64,
    /// The latest moment on its own clock, in microseconds, that this controller has heard of.
    pub at_us: u64,
}

/// A controller's statement about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its start; never 0.
    pub instance: u64,
    /// The epoch it leads.
    pub epoch: u64,
    /// Its longest lease that may be out.
    pub longest_ttl: Span,
    /// When it began, in milliseconds since the Unix epoch.
    pub began_unix_ms: u64,
    /// The moment of the statement, in microseconds of its own clock.
    pub at_us: u64,
    /// The controllers reported to it, at most [`MAX_RIVALS`].
    pub rivals: Vec<Rival>,
}

/// A standing that a node brings, by whether a controller with this store's key signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is signed with the key of this store.
    Signed(Standing),
    /// It belongs to another cluster or to a store that is lost, or is made up.
    Foreign(Standing),
}

impl Standing {
    /// The signed form, which nodes keep.
    pub fn sign(&self, prover: &Prover) -> Vec<u8> {
        let rivals = self.rivals.iter().take(MAX_RIVALS);
        let mut bytes = Vec::with_capacity(MAX_STANDING_BYTES);
        bytes.extend([VERSION, u8::try_from(rivals.len()).unwrap_or_default()]);
        let words = [self.instance, self.epoch, self.longest_ttl.0, self.began_unix_ms, self.at_us];
        for word in words.into_iter().chain(rivals.flat_map(|rival| [rival.instance, rival.at_us])) {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        let code = prover.code(&bytes);
        bytes.extend_from_slice(&code);
        bytes
    }

    /// Whether a node needs no update from `other` to this in the middle of a stream: it gets the rest with the next
    /// `Hello`.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let word = |standing: &Self| (standing.instance, standing.epoch, standing.longest_ttl);
        word(self) == word(other)
    }
}

impl Told {
    /// Reads what a node brings; `None` when no controller can have written it.
    pub fn read(prover: &Prover, bytes: &[u8]) -> Option<Self> {
        let [VERSION, count, ..] = bytes else { return None };
        let count = usize::from(*count);
        if count > MAX_RIVALS || bytes.len() > MAX_STANDING_BYTES {
            return None;
        }
        let (clear, code) = bytes.split_at_checked(HEAD_BYTES + (WORDS + 2 * count) * 8)?;
        let (words, _) = clear.get(HEAD_BYTES..)?.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_be_bytes(*word));
        let mut standing = Standing {
            instance: words.next()?,
            epoch: words.next()?,
            longest_ttl: Span(words.next()?),
            began_unix_ms: words.next()?,
            at_us: words.next()?,
            rivals: Vec::with_capacity(count),
        };
        while let (Some(instance), Some(at_us)) = (words.next(), words.next()) {
            standing.rivals.push(Rival { instance, at_us });
        }
        Some(if prover.checks(clear, code) { Self::Signed(standing) } else { Self::Foreign(standing) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leasing::proof::KEY_BYTES;

    fn standing() -> Standing {
        let rivals = vec![Rival { instance: 9, at_us: 4 }, Rival { instance: 8, at_us: 6 }];
        Standing { instance: 7, epoch: 3, longest_ttl: Span::secs(5), began_unix_ms: 2, at_us: 1, rivals }
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
        let crowd = Standing { rivals: vec![Rival::default(); 99], ..standing() }.sign(&own);
        assert!(crowd.len() <= MAX_STANDING_BYTES);
        let Some(Told::Signed(read)) = Told::read(&own, &crowd) else { panic!("it is signed") };
        assert_eq!(read.rivals.len(), MAX_RIVALS);
        assert!(standing().says_the_same(&Standing { at_us: 99, rivals: Vec::new(), ..standing() }));
        assert!(!standing().says_the_same(&Standing { epoch: 4, ..standing() }));
    }
}
