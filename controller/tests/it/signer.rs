//! A provider of identity made by a test: its keys, and the JWTs that it signs.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac_of_ring::{HMAC_SHA256, Key, sign};
use ring::hmac as hmac_of_ring;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

/// A key of 2,048 bits that signs for these tests alone: ring makes none.
const RSA: &str = include_str!("rsa-of-tests.b64");

/// The key pairs of one provider.
pub(crate) struct Signer {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    random: SystemRandom,
}

/// Bytes as JWTs and JWKs have them.
pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    /// New key pairs, but for RSA.
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let curve = |by: &'static EcdsaSigningAlgorithm| {
            let key = EcdsaKeyPair::generate_pkcs8(by, &random).unwrap();
            EcdsaKeyPair::from_pkcs8(by, key.as_ref(), &random).unwrap()
        };
        let (p256, p384) = (curve(&ECDSA_P256_SHA256_FIXED_SIGNING), curve(&ECDSA_P384_SHA384_FIXED_SIGNING));
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let ed = Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap();
        let rsa = STANDARD.decode(RSA.replace('\n', "")).unwrap();
        Self { rsa: RsaKeyPair::from_pkcs8(&rsa).unwrap(), p256, p384, ed, random }
    }

    /// The public keys, under the names rsa, p256, p384 and ed.
    pub(crate) fn keys(&self) -> Vec<Value> {
        let parts = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        let point = |key: &EcdsaKeyPair, id: &str, curve: &str| {
            let point = &key.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            json!({"kty": "EC", "kid": id, "crv": curve, "x": b64(x), "y": b64(y), "use": "sig"})
        };
        vec![
            json!({"kty": "RSA", "kid": "rsa", "n": b64(parts.n), "e": b64(parts.e), "use": "sig"}),
            point(&self.p256, "p256", "P-256"),
            point(&self.p384, "p384", "P-384"),
            json!({"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": b64(self.ed.public_key())}),
        ]
    }

    /// Writes the public keys where the controller reads them.
    pub(crate) fn put_keys(&self, path: &Path) {
        std::fs::write(path, json!({"keys": self.keys()}).to_string()).unwrap();
    }

    /// A JWT by this algorithm and the key that fits it, under this key's name.
    pub(crate) fn sign(&self, alg: &str, id: &str, claims: &Value) -> String {
        self.sign_under(&json!({"alg": alg, "kid": id, "typ": "JWT"}), alg, claims)
    }

    /// The same under any header.
    pub(crate) fn sign_under(&self, head: &Value, alg: &str, claims: &Value) -> String {
        let message = format!("{}.{}", b64(head.to_string()), b64(claims.to_string()));
        let bytes = message.as_bytes();
        let rsa = |by: &'static dyn ring::signature::RsaEncoding| {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(by, &self.random, bytes, &mut signature).unwrap();
            signature
        };
        let signature = match alg {
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            "PS384" => rsa(&RSA_PSS_SHA384),
            "PS512" => rsa(&RSA_PSS_SHA512),
            "ES256" => self.p256.sign(&self.random, bytes).unwrap().as_ref().to_vec(),
            "ES384" => self.p384.sign(&self.random, bytes).unwrap().as_ref().to_vec(),
            "EdDSA" => self.ed.sign(bytes).as_ref().to_vec(),
            // What a verifier that believes the header would take the public key for.
            "HS256" => {
                let public = self.keys()[0]["n"].as_str().unwrap().to_owned();
                sign(&Key::new(HMAC_SHA256, public.as_bytes()), bytes).as_ref().to_vec()
            }
            _ => Vec::new(),
        };
        format!("{message}.{}", b64(signature))
    }
}
