//! Key pairs that sign for this target alone, and how a provider shows them.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};
use ring::{hmac, signature};
use serde_json::{Value, json};

use crate::input::Input;

/// A key of 2,048 bits that signs for tests alone: ring makes none.
const RSA: &str = include_str!("../../../../controller/tests/it/rsa-of-tests.b64");
/// How many pairs there are.
pub(super) const PAIRS: usize = 6;
/// Names of keys.
pub(super) const KIDS: [Option<&str>; 4] = [Some("1"), Some("2"), None, Some("")];

enum Pair {
    Rsa(RsaKeyPair),
    Curve(EcdsaKeyPair, &'static str),
    Edwards(Ed25519KeyPair),
}

/// Two of each kind that is made here, and the one of RSA.
fn pair(index: usize) -> &'static Pair {
    static ALL: OnceLock<Vec<Pair>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let random = SystemRandom::new();
        let curve = |by: &'static EcdsaSigningAlgorithm, name| {
            let key = EcdsaKeyPair::generate_pkcs8(by, &random).expect("random bits");
            Pair::Curve(EcdsaKeyPair::from_pkcs8(by, key.as_ref(), &random).expect("a key"), name)
        };
        let edwards = |seed| {
            Pair::Edwards(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed of 32 bytes"))
        };
        let rsa = STANDARD.decode(RSA.replace('\n', "")).expect("base64");
        vec![
            edwards(1),
            edwards(2),
            curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            curve(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            Pair::Rsa(RsaKeyPair::from_pkcs8(&rsa).expect("a key of RSA")),
        ]
    });
    all.get(index % PAIRS).expect("an index below its length")
}

/// Bytes as JWTs and JWKs have them.
pub(super) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The public key, as a JWK without a name.
pub(super) fn public(index: usize) -> Value {
    match pair(index) {
        Pair::Rsa(key) => {
            let parts = RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
            json!({"kty": "RSA", "n": b64(parts.n), "e": b64(parts.e)})
        }
        Pair::Curve(key, name) => {
            let point = key.public_key().as_ref().get(1..).unwrap_or_default();
            let (x, y) = point.split_at(point.len() / 2);
            json!({"kty": "EC", "crv": name, "x": b64(x), "y": b64(y)})
        }
        Pair::Edwards(key) => json!({"kty": "OKP", "crv": "Ed25519", "x": b64(key.public_key())}),
    }
}

/// The algorithms by which a pair signs here.
pub(super) fn algorithms(index: usize) -> &'static [&'static str] {
    match pair(index) {
        Pair::Rsa(_) => &["RS256", "RS512", "PS256"],
        Pair::Curve(_, "P-256") => &["ES256"],
        Pair::Curve(..) => &["ES384"],
        Pair::Edwards(_) => &["EdDSA"],
    }
}

/// Whether a key of this pair can be meant by the word of an algorithm.
fn is_kind(index: usize, word: &str) -> bool {
    match pair(index) {
        Pair::Rsa(_) => ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].contains(&word),
        _ => algorithms(index).contains(&word),
    }
}

/// A signature by this pair and one of its algorithms.
pub(super) fn sign(index: usize, algorithm: &str, message: &[u8]) -> Vec<u8> {
    let random = SystemRandom::new();
    match pair(index) {
        Pair::Rsa(key) => {
            let by: &dyn signature::RsaEncoding = match algorithm {
                "RS256" => &RSA_PKCS1_SHA256,
                "RS512" => &RSA_PKCS1_SHA512,
                _ => &RSA_PSS_SHA256,
            };
            let mut bytes = vec![0; key.public().modulus_len()];
            key.sign(by, &random, message, &mut bytes).expect("a signature");
            bytes
        }
        Pair::Curve(key, _) => key.sign(&random, message).expect("a signature").as_ref().to_vec(),
        Pair::Edwards(key) => key.sign(message).as_ref().to_vec(),
    }
}

/// What a verifier that takes a public key for a secret would believe.
pub(super) fn sign_by_public(index: usize, message: &[u8]) -> Vec<u8> {
    let public = public(index);
    let text = public.get("n").or_else(|| public.get("x")).and_then(Value::as_str).unwrap_or_default();
    let secret = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), message).as_ref().to_vec()
}

/// A key as a provider shows it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) pair: usize,
    pub(super) kid: Option<&'static str>,
    only: Option<&'static str>,
    purpose: Option<&'static str>,
    operation: Option<&'static str>,
}

impl Shown {
    pub(super) fn draw(input: &mut Input<'_>) -> Self {
        let (pair, bits) = (input.below(PAIRS), input.byte());
        let rare = |bit: u8, of: Option<&'static str>| if bits >> bit & 1 == 1 { of } else { None };
        let only = input.pick(&["EdDSA", "ES256", "RS256", "PS256", "HS256", "XX"]);
        let purpose = input.pick(&["sig", "enc"]);
        let operation = input.pick(&["verify", "sign"]);
        Self {
            pair,
            kid: input.pick(&KIDS).flatten(),
            only: rare(0, only),
            purpose: rare(1, purpose),
            operation: rare(2, operation),
        }
    }

    /// The key of this pair under this name, for all that it can do.
    pub(super) fn plain(pair: usize, kid: Option<&'static str>) -> Self {
        Self { pair, kid, only: None, purpose: None, operation: None }
    }

    /// As a JWK.
    pub(super) fn jwk(&self) -> Value {
        let mut jwk = public(self.pair);
        for (name, text) in [("kid", self.kid), ("alg", self.only), ("use", self.purpose)] {
            if let (Some(text), Some(fields)) = (text, jwk.as_object_mut()) {
                fields.insert(name.to_owned(), json!(text));
            }
        }
        if let (Some(operation), Some(fields)) = (self.operation, jwk.as_object_mut()) {
            fields.insert("key_ops".to_owned(), json!([operation]));
        }
        jwk
    }

    /// Whether it may verify at all.
    pub(super) fn verifies(&self) -> bool {
        algorithms(self.pair).iter().any(|word| self.serves(word))
    }

    /// Whether it may verify by this algorithm.
    pub(super) fn serves(&self, word: &str) -> bool {
        is_kind(self.pair, word)
            && self.only.is_none_or(|only| only == word)
            && self.purpose != Some("enc")
            && self.operation != Some("sign")
    }
}
