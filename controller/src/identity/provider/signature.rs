//! Signatures of JWTs, verified by ring.
//!
//! `jsonwebtoken` asks the process for its cryptography; this is installed before the first JWT is read. Nothing signs.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{Error as Wrong, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature as by;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` verify by ring.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    // Another one that a process of several parts has installed before verifies, too.
    ONCE.call_once(|| {
        let _ = PROVIDER.install_default();
    });
}

struct ByRing {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != algorithm.family() || key.family() == AlgorithmFamily::Hmac {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(ByRing { algorithm: *algorithm, key: key.clone() }))
}

impl JwtVerifier for ByRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for ByRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Wrong> {
        let plain = |by: &'static dyn by::VerificationAlgorithm| {
            let key = self.key.try_get_as_bytes().map_err(|_| Wrong::new())?;
            by::UnparsedPublicKey::new(by, key).verify(message, signature).map_err(|_| Wrong::new())
        };
        let rsa = |by: &'static by::RsaParameters| match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                by::RsaPublicKeyComponents { n, e }.verify(by, message, signature).map_err(|_| Wrong::new())
            }
            DecodingKeyKind::SecretOrDer(_) => Err(Wrong::new()),
        };
        match self.algorithm {
            Algorithm::RS256 => rsa(&by::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&by::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&by::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&by::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&by::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&by::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => plain(&by::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => plain(&by::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => plain(&by::ED25519),
            _ => Err(Wrong::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who takes a key by its name alone would let everybody sign by what all can read.
    #[test]
    fn a_key_verifies_nothing_by_an_algorithm_of_another_kind() {
        let rsa = DecodingKey::from_rsa_components("AQAB", "AQAB").unwrap();
        let ec = DecodingKey::from_ec_components("AA", "AA").unwrap();
        let ed = DecodingKey::from_ed_components("AA").unwrap();
        let secret = DecodingKey::from_secret(b"shared");
        for (algorithm, fits) in [
            (Algorithm::RS256, [true, false, false, false]),
            (Algorithm::PS512, [true, false, false, false]),
            (Algorithm::ES256, [false, true, false, false]),
            (Algorithm::ES384, [false, true, false, false]),
            (Algorithm::EdDSA, [false, false, true, false]),
            (Algorithm::HS256, [false; 4]),
            (Algorithm::HS512, [false; 4]),
        ] {
            let taken = [&rsa, &ec, &ed, &secret].map(|key| verifier(&algorithm, key).is_ok());
            assert_eq!(taken, fits, "{algorithm:?}");
        }
    }
}
