//! Proof of a lease: lets a node keep spending across an unclean restart of the controller.
//!
//! Every grant carries its terms in clear (rate, cap, lump, end on the wall clock, epoch) and an HMAC-SHA256 over them
//! and the identity of node and group, cut to 16 bytes. The key is created at the first start, lives in the store and
//! is never shown. In recovery the controller believes a node up to the terms of a valid, unexpired proof.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tidegate_core::exchange::Held;
use tidegate_core::group::GroupId;
use tidegate_core::units::{Rate, Ru};

use crate::service::Service;

/// Bytes of the key: one block of the hash.
pub const KEY_BYTES: usize = 64;
const VERSION: u8 = 1;
const CLEAR_BYTES: usize = 1 + 5 * 8;
/// Bytes of a code.
pub const MAC_BYTES: usize = 16;

/// Signs and checks proofs.
pub struct Prover {
    mac: Hmac<Sha256>,
}

/// The holder of a lease: the node and the group.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    /// Identity of the node.
    pub client: &'a str,
    /// Its incarnation.
    pub incarnation: u64,
    /// The group.
    pub group: GroupId,
}

/// The content of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What the node may spend.
    pub held: Held,
    /// End of the lease on the wall clock, in microseconds since the Unix epoch.
    pub ends_unix_us: u64,
    /// Epoch in which it was granted.
    pub epoch: u64,
}

/// A key of this controller's store for another purpose than proofs: the same from start to start.
pub(crate) fn key_for(service: &Service, purpose: &str) -> [u8; 32] {
    service.lock().leasing.prover.key_for(purpose)
}

impl Prover {
    /// Uses the key of this store.
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self { mac: Hmac::<Sha256>::new(key.into()) }
    }

    /// A key for another purpose, which says nothing of this one. No claim has the form of a purpose.
    fn key_for(&self, purpose: &str) -> [u8; 32] {
        let mut mac = self.mac.clone();
        mac.update(b"key for ");
        mac.update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// Signs a claim.
    pub fn sign(&self, holder: Holder<'_>, claim: &Claim) -> Vec<u8> {
        let mut proof = Vec::with_capacity(CLEAR_BYTES + MAC_BYTES);
        proof.push(VERSION);
        for number in [claim.held.rate.0, claim.held.cap.0, claim.held.lump.0] {
            proof.extend_from_slice(&number.to_be_bytes());
        }
        for number in [claim.ends_unix_us, claim.epoch] {
            proof.extend_from_slice(&number.to_be_bytes());
        }
        let code = self.over(holder, &proof).finalize().into_bytes();
        proof.extend(code.iter().take(MAC_BYTES));
        proof
    }

    /// The claim of a genuine proof of this holder; `None` for anything else.
    pub fn verify(&self, holder: Holder<'_>, proof: &[u8]) -> Option<Claim> {
        let (clear, code) = proof.split_at_checked(CLEAR_BYTES)?;
        let (version, rest) = clear.split_first()?;
        if *version != VERSION || code.len() != MAC_BYTES {
            return None;
        }
        self.over(holder, clear).verify_truncated_left(code).ok()?;
        let (words, _) = rest.as_chunks::<8>();
        let [rate, cap, lump, ends, epoch] = words else {
            return None;
        };
        let held = Held {
            rate: Rate(i64::from_be_bytes(*rate)),
            cap: Ru(i64::from_be_bytes(*cap)),
            lump: Ru(i64::from_be_bytes(*lump)),
        };
        Some(Claim { held, ends_unix_us: u64::from_be_bytes(*ends), epoch: u64::from_be_bytes(*epoch) })
    }

    /// The code over bytes without a holder.
    pub fn code(&self, clear: &[u8]) -> [u8; MAC_BYTES] {
        let mut mac = self.mac.clone();
        mac.update(clear);
        let mut code = [0; MAC_BYTES];
        code.iter_mut().zip(mac.finalize().into_bytes()).for_each(|(byte, of)| *byte = of);
        code
    }

    /// Whether `code` belongs to `clear`, in a time that reveals nothing.
    pub fn checks(&self, clear: &[u8], code: &[u8]) -> bool {
        let mut mac = self.mac.clone();
        mac.update(clear);
        code.len() == MAC_BYTES && mac.verify_truncated_left(code).is_ok()
    }

    /// The code over the holder and the clear part. The name comes last, so that no two holders yield the same bytes.
    fn over(&self, holder: Holder<'_>, clear: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(clear);
        mac.update(&holder.incarnation.to_be_bytes());
        mac.update(&holder.group.0.to_be_bytes());
        mac.update(holder.client.as_bytes());
        mac
    }
}

/// The provable holding of a node that asks in recovery: at most the claim, and at most what the node itself reports.
pub fn proven(claim: &Claim, asked: Held, epoch: u64, unix_us: u64) -> Option<Held> {
    if claim.epoch >= epoch || claim.ends_unix_us <= unix_us {
        return None;
    }
    Some(Held {
        rate: claim.held.rate.min(asked.rate),
        cap: claim.held.cap.min(asked.cap),
        lump: claim.held.lump.min(asked.lump),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDER: Holder<'_> = Holder { client: "node-1", incarnation: 5, group: GroupId(7) };

    fn claim() -> Claim {
        let held = Held { rate: Rate(100), cap: Ru(20), lump: Ru(3) };
        Claim { held, ends_unix_us: 1_000, epoch: 2 }
    }

    #[test]
    fn a_proof_is_good_for_its_holder_only() {
        let prover = Prover::new(&[7; KEY_BYTES]);
        let proof = prover.sign(HOLDER, &claim());
        assert_eq!(prover.verify(HOLDER, &proof), Some(claim()));
        for other in [
            Holder { client: "node-2", ..HOLDER },
            Holder { incarnation: 6, ..HOLDER },
            Holder { group: GroupId(8), ..HOLDER },
        ] {
            assert_eq!(prover.verify(other, &proof), None);
        }
        assert_eq!(Prover::new(&[8; KEY_BYTES]).verify(HOLDER, &proof), None);
        for at in 0..proof.len() {
            let mut forged = proof.clone();
            forged[at] ^= 1;
            assert_eq!(prover.verify(HOLDER, &forged), None, "{at}");
            assert_eq!(prover.verify(HOLDER, &proof[..at]), None);
        }
    }

    #[test]
    fn a_claim_counts_before_its_end_in_a_later_epoch_and_never_above_the_ask() {
        let asked = Held { rate: Rate(60), cap: Ru(50), lump: Ru(0) };
        let held = Held { rate: Rate(60), cap: Ru(20), lump: Ru(0) };
        assert_eq!(proven(&claim(), asked, 3, 999), Some(held));
        let all = Held { rate: Rate(1_000), cap: Ru(1_000), lump: Ru(1_000) };
        assert_eq!(proven(&claim(), all, 3, 999), Some(claim().held));
        let nothing = Held::default();
        assert_eq!(proven(&claim(), nothing, 3, 999), Some(nothing));
        assert_eq!(proven(&claim(), asked, 3, 1_000), None);
        assert_eq!(proven(&claim(), asked, 2, 999), None);
    }
}
