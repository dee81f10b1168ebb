//! The identity of a statement's exact text.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// SHA-256 of a statement's text. White space and semicolons around it do not count, since clients differ in whether
/// they send them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextDigest([u8; 32]);

impl TextDigest {
    /// Of `text`, which is whole. `None` when there is no statement in it, or when it is no UTF-8, as no SQL could name
    /// it then.
    pub fn of(text: &[u8]) -> Option<Self> {
        let bare = bare(std::str::from_utf8(text).ok()?);
        (!bare.is_empty()).then(|| Self(Sha256::digest(bare.as_bytes()).into()))
    }
}

impl fmt::Display for TextDigest {
    /// Sixty-four hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The digest of `text` as it is written, that of an empty one included.
pub fn exact_digest(text: &str) -> String {
    TextDigest(Sha256::digest(bare(text).as_bytes()).into()).to_string()
}

fn bare(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_whitespace() || c == ';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_text_without_its_ends() {
        let digest = exact_digest("select 1");
        assert_eq!(digest, "822ae07d4783158bc1912bb623e5107cc9002d519e1143a9c200ed6ee18b6d0f");
        assert_eq!(exact_digest("  select 1 ;\n"), digest);
        assert_ne!(exact_digest("select  1"), digest);
        assert_eq!(TextDigest::of(b" select 1;").map(|digest| digest.to_string()), Some(digest));
    }

    #[test]
    fn what_names_no_statement_has_no_digest() {
        for text in [&b""[..], b" ;\n;", b"select '\xff'"] {
            assert_eq!(TextDigest::of(text), None, "{text:?}");
        }
    }
}
