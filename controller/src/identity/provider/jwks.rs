//! The keys of a provider, as a JWK set.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Keys of one provider. Large ones show ten or so; with twice of it a wrong document would be kept.
const MAX_KEYS: usize = 100;

/// A key that verifies.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Its name among the provider's keys.
    pub(super) id: Option<String>,
    /// The one algorithm that it is for, if it says so.
    only: Option<Algorithm>,
    curve: Option<EllipticCurve>,
    pub(super) key: DecodingKey,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl Key {
    /// Whether it may verify a signature by this algorithm: a key is for one kind of them.
    pub(super) fn serves(&self, algorithm: Algorithm) -> bool {
        let fits = match (algorithm, &self.curve) {
            (Algorithm::ES256, Some(EllipticCurve::P256))
            | (Algorithm::ES384, Some(EllipticCurve::P384))
            | (Algorithm::EdDSA, Some(EllipticCurve::Ed25519)) => true,
            (_, None) => algorithm.family() == AlgorithmFamily::Rsa,
            _ => false,
        };
        fits && algorithm.family() == self.key.family() && self.only.is_none_or(|only| only == algorithm)
    }
}

/// The keys of a document. Those of other kinds and for other uses are left out.
///
/// # Errors
/// It is no JWK set, or no key in it can verify.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Key>, String> {
    let set: Set = serde_json::from_slice(bytes).map_err(|error| {
        format!("what came is no JWK set ({:?} at line {})", error.classify(), error.line())
    })?;
    if set.keys.len() > MAX_KEYS {
        return Err(format!("it has {} keys, and at most {MAX_KEYS} are read", set.keys.len()));
    }
    let count = set.keys.len();
    let keys: Vec<Key> = set.keys.into_iter().filter_map(key).collect();
    if keys.is_empty() {
        return Err(format!("none of its {count} keys is a public key that can verify a signature"));
    }
    Ok(keys)
}

fn key(value: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let is_to_verify = match (&jwk.common.public_key_use, &jwk.common.key_operations) {
        (Some(use_), _) if *use_ != PublicKeyUse::Signature => false,
        (_, Some(operations)) => operations.contains(&KeyOperations::Verify),
        _ => true,
    };
    let only = jwk.common.key_algorithm.map(Algorithm::try_from).transpose().ok()?;
    let curve = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => None,
        AlgorithmParameters::EllipticCurve(key) => Some(key.curve.clone()),
        AlgorithmParameters::OctetKeyPair(key) => Some(key.curve.clone()),
        // A secret is none of a provider's to show, and whoever read it could sign.
        _ => return None,
    };
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    is_to_verify.then_some(Key { id: jwk.common.key_id, only, curve, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: &str = r#"{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB"}"#;
    const EC: &str = r#"{"kty":"EC","kid":"e","crv":"P-256","x":"AA","y":"AA","use":"sig"}"#;
    const ED: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"AA","alg":"EdDSA","key_ops":["verify"]}"#;

    fn set(keys: &[&str]) -> String {
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    #[test]
    fn a_key_is_for_one_kind_of_algorithm() {
        let keys = read(set(&[RSA, EC, ED]).as_bytes()).unwrap();
        let all = [
            Algorithm::RS256,
            Algorithm::PS512,
            Algorithm::ES256,
            Algorithm::ES384,
            Algorithm::EdDSA,
            Algorithm::HS256,
        ];
        let of = |key: &Key| all.map(|algorithm| key.serves(algorithm));
        assert_eq!(of(&keys[0]), [true, true, false, false, false, false]);
        assert_eq!(of(&keys[1]), [false, false, true, false, false, false]);
        assert_eq!(of(&keys[2]), [false, false, false, false, true, false]);
        let only = RSA.replace("\"r\"", "\"r\",\"alg\":\"RS512\"");
        let keys = read(set(&[&only]).as_bytes()).unwrap();
        assert!(keys[0].serves(Algorithm::RS512) && !keys[0].serves(Algorithm::RS256));
    }

    #[test]
    fn keys_of_other_kinds_are_left_out_and_none_at_all_is_an_error() {
        let secret = r#"{"kty":"oct","kid":"s","k":"AAAA"}"#;
        let encrypts = RSA.replace("\"r\"", "\"r\",\"use\":\"enc\"");
        let signs = RSA.replace("\"r\"", "\"r\",\"key_ops\":[\"sign\"]");
        let odd = RSA.replace("\"r\"", "\"r\",\"alg\":\"XX\"");
        for other in [secret, &encrypts, &signs, &odd, "5", "{}", r#"{"kty":"EC","crv":"P-1"}"#, "null"] {
            assert_eq!(read(set(&[other, RSA]).as_bytes()).map(|keys| keys.len()), Ok(1), "{other}");
            assert!(read(set(&[other]).as_bytes()).unwrap_err().contains("none of its 1 keys"), "{other}");
        }
        let many = vec![RSA; MAX_KEYS + 1];
        for broken in ["", "{", "[]", "<html>", r#"{"keys":5}"#, "{\"keys\":[]}", &set(&many)] {
            assert!(read(broken.as_bytes()).is_err(), "{broken}");
        }
        assert!(read(set(&many[1..]).as_bytes()).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_shortly(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..99)) {
            if let Err(error) = read(&bytes) {
                proptest::prop_assert!(error.len() < 200);
            }
        }
    }
}
