//! A password under a server's RSA key, as `caching_sha2_password` wants it where there is no TLS.
//!
//! In: the password with its zero, the scramble, the key in PEM (`SubjectPublicKeyInfo`). Out: the password mixed with
//! the scramble, encrypted with RSA and OAEP (SHA-1). The peer that answers for the server can read the password: a
//! plain connection does not show who that is, with or without the gateway.
//!
//! *Source*: MySQL `sql/auth/sha2_password.cc`, RFC 8017, RFC 5280.

use mysql_common::crypto::rsa::{GetRandom, Pkcs1OaepPadding, PublicKey};
use num_bigint::BigUint;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// Bits of a key that is taken: a longer one only takes time.
const MIN_BITS: u64 = 1_024;
const MAX_BITS: u64 = 16_384;
/// Most bytes of a public exponent; all that are in use have three.
const MAX_EXPONENT: usize = 4;
/// Bytes of a block that OAEP takes for itself, and one that is always zero.
const OVERHEAD: usize = 2 * 20 + 2;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// Encrypts a password; `None` when the text holds no key, or a key too short for the password.
pub(super) fn encrypt(password: &[u8], scramble: &[u8], pem: &[u8]) -> Option<Vec<u8>> {
    let key = SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?;
    let (modulus, exponent) = numbers(&key)?;
    let room = usize::try_from(modulus.bits() / 8).ok()?;
    if scramble.is_empty() || password.len() > room.checked_sub(OVERHEAD)? {
        return None;
    }
    let mixed: Vec<u8> =
        password.iter().zip(scramble.iter().cycle()).map(|(one, other)| one ^ other).collect();
    Some(PublicKey::new(modulus, exponent).encrypt_block(mixed, Pkcs1OaepPadding::new(GetRandom)))
}

/// Modulus and exponent.
fn numbers(mut der: &[u8]) -> Option<(BigUint, BigUint)> {
    let mut info = element(SEQUENCE, &mut der)?;
    element(SEQUENCE, &mut info)?;
    let (unused, mut bits) = element(BIT_STRING, &mut info)?.split_first()?;
    let mut key = element(SEQUENCE, &mut bits)?;
    let (modulus, exponent) = (element(INTEGER, &mut key)?, element(INTEGER, &mut key)?);
    let modulus = BigUint::from_bytes_be(modulus);
    let fits = (MIN_BITS..=MAX_BITS).contains(&modulus.bits()) && modulus.bit(0);
    let small = exponent.len() <= MAX_EXPONENT && exponent.last().is_some_and(|last| last % 2 == 1);
    (*unused == 0 && fits && small).then(|| (modulus, BigUint::from_bytes_be(exponent)))
}

/// Takes the element at the front, if it has this tag.
fn element<'a>(tag: u8, der: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => rest.split_first().map(|(len, rest)| (usize::from(*len), rest))?,
        0x82 => {
            rest.split_first_chunk::<2>().map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest))?
        }
        _ => return None,
    };
    let content = rest.get(..len).filter(|_| found == tag)?;
    *der = rest.get(len..)?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key from `openssl genrsa 2048`, which is used for nothing else.
    const KEY: &str = include_str!("captured/key.pem");

    #[test]
    fn a_key_is_read_to_its_numbers() {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let (modulus, exponent) = numbers(&key).unwrap();
        assert_eq!((modulus.bits(), exponent), (2_048, BigUint::from(65_537_u32)));
        for len in 0..key.len() {
            assert_eq!(numbers(&key[..len]), None, "{len} bytes");
        }
        for at in 0..key.len() {
            let mut other = key.to_vec();
            other[at] ^= 0xff;
            let _ = numbers(&other);
        }
    }

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = match content.len() {
            short @ ..0x80 => vec![u8::try_from(short).unwrap()],
            long @ ..0x100 => vec![0x81, u8::try_from(long).unwrap()],
            longer => [&[0x82][..], &u16::try_from(longer).unwrap().to_be_bytes()].concat(),
        };
        [&[tag][..], &len, content].concat()
    }

    /// A key of these numbers, with these tags: of the whole, its bits, the key in them, its numbers.
    fn key(unused: u8, modulus: &[u8], exponent: &[u8], tags: [u8; 4]) -> Vec<u8> {
        let [whole, bits, key, number] = tags;
        let key = der(key, &[der(number, modulus), der(number, exponent)].concat());
        der(whole, &[der(SEQUENCE, &[]), der(bits, &[&[unused][..], &key].concat())].concat())
    }

    #[test]
    fn a_key_is_odd_and_of_a_length_that_is_in_use() {
        const TAGS: [u8; 4] = [SEQUENCE, BIT_STRING, SEQUENCE, INTEGER];
        let numbered = |first: u8, len: usize, last: u8| {
            let mut modulus = vec![0; len];
            (modulus[0], modulus[len - 1]) = (first, last);
            modulus
        };
        let good = numbered(0x80, 128, 1);
        let taken = |unused, modulus: &[u8], exponent: &[u8]| {
            numbers(&key(unused, modulus, exponent, TAGS)).is_some()
        };
        assert!(taken(0, &good, &[1, 0, 1]) && taken(0, &good, &[1, 0, 0, 1]));
        assert!(taken(0, &numbered(0x80, 2_048, 1), &[3]), "16384 bits");
        assert!(!taken(0, &good, &[1, 0, 0]) && !taken(0, &good, &[]) && !taken(0, &good, &[1, 0, 0, 0, 1]));
        assert!(!taken(0, &numbered(0x80, 128, 2), &[3]), "even");
        assert!(!taken(0, &numbered(0x7f, 128, 1), &[3]), "1023 bits");
        assert!(!taken(0, &numbered(1, 2_049, 1), &[3]), "16385 bits");
        assert!(!taken(1, &good, &[3]), "bits that are not used");
        for wrong in 0..4 {
            let mut tags = TAGS;
            tags[wrong] = 0x04;
            assert_eq!(numbers(&key(0, &good, &[3], tags)), None, "tag {wrong}");
        }
    }

    #[test]
    fn a_secret_is_as_long_as_the_key_and_never_the_same() {
        let secret = || encrypt(b"ann\0", &[7; 20], KEY.as_bytes()).unwrap();
        let (one, other) = (secret(), secret());
        assert_eq!((one.len(), other.len()), (256, 256));
        assert_ne!(one, other);
        assert!(encrypt(&[b'x'; 214], &[7; 20], KEY.as_bytes()).is_some());
        for (password, scramble, pem) in [
            (&[b'x'; 215][..], &[7; 20][..], KEY.as_bytes()),
            (b"ann\0", b"", KEY.as_bytes()),
            (b"ann\0", &[7; 20], b"-----BEGIN PUBLIC KEY-----\nMA==\n-----END PUBLIC KEY-----\n"),
            (b"ann\0", &[7; 20], b""),
        ] {
            assert_eq!(encrypt(password, scramble, pem), None);
        }
    }
}
