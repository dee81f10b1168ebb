//! The identity of a statement's exact text.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// SHA-256 of `text`, as 64 hexadecimal digits. White space and semicolons around it do not count, since clients
/// differ in whether they send them.
pub fn exact_digest(text: &str) -> String {
    let bare = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == ';');
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(bare.as_bytes()) {
        // Writing into a text does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
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
    }
}
