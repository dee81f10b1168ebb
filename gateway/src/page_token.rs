//! The token that callers of the page of metrics show, from a file for its owner only. Only its hash is kept, and what
//! is shown is compared in constant time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tidegate_client::{Token, TokenError};

/// Characters of a token at least: 128 bits in hexadecimal digits. Half of it can be guessed by those who try long
/// enough; twice of it refuses what people make by `openssl rand -hex 16`.
const LEAST: usize = 32;

/// Why a file has no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageTokenError {
    /// It cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] TokenError),
    /// What is there can be guessed, or not be sent.
    #[error(
        "{} holds {length} characters; a token for the page of metrics has {LEAST} or more, in one line and without \
         blanks, as `openssl rand -hex 32` makes it", path.display()
    )]
    Weak {
        /// The file.
        path: PathBuf,
        /// Its characters.
        length: usize,
    },
}

type Hash = [u8; 32];

/// The token of a file.
pub(crate) struct PageToken {
    path: PathBuf,
    in_force: ArcSwap<Hash>,
    /// Why the file could not be used at the last look, so that it is said once.
    said: Mutex<Option<PageTokenError>>,
}

impl fmt::Debug for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageToken").field("path", &self.path).finish_non_exhaustive()
    }
}

impl PageToken {
    /// Reads the file.
    pub(crate) fn load(path: &Path) -> Result<Self, PageTokenError> {
        let in_force = ArcSwap::from_pointee(read(path)?);
        Ok(Self { path: path.into(), in_force, said: Mutex::default() })
    }

    /// Reads the file again, which blocks. What cannot be used leaves the last good token in force.
    pub(crate) fn look(&self) {
        let read = read(&self.path);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(hash) if hash != **self.in_force.load() => {
                self.in_force.store(hash.into());
                tracing::info!(file = %self.path.display(), "another token of the page of metrics is in force");
                *said = None;
            }
            Ok(_) => *said = None,
            Err(error) if said.as_ref() != Some(&error) => {
                tracing::error!(%error, "the token of the page of metrics cannot be used; the last good one stays in force");
                *said = Some(error);
            }
            Err(_) => {}
        }
    }

    /// Whether a caller that shows this has it.
    pub(crate) fn is(&self, shown: &str) -> bool {
        Sha256::digest(shown.as_bytes()).as_slice().ct_eq(self.in_force.load().as_slice()).into()
    }
}

fn read(path: &Path) -> Result<Hash, PageTokenError> {
    let text = Token::text_in(path)?;
    let text = text.trim();
    if text.len() < LEAST || !text.chars().all(|character| character.is_ascii_graphic()) {
        return Err(PageTokenError::Weak { path: path.into(), length: text.chars().count() });
    }
    Ok(Sha256::digest(text.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_token_of_the_file_counts_and_a_file_that_breaks_leaves_it_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.token");
        let put = |text: &str, mode: u32| {
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let (first, second) = ("a".repeat(32), "b".repeat(64));
        for (text, mode, expected) in [
            (first.as_str(), 0o644, "others can read the token; run: chmod 600"),
            ("canary", 0o600, "holds 6 characters; a token for the page of metrics has 32 or more"),
            ("", 0o600, "holds 0 characters"),
            ("canary canary canary canary canary canary", 0o600, "without blanks"),
        ] {
            put(text, mode);
            let refused = PageToken::load(&path).unwrap_err().to_string();
            assert!(refused.contains(expected) && !refused.contains("canary"), "{refused}");
        }
        put(&format!("{first}\n"), 0o600);
        let token = PageToken::load(&path).unwrap();
        let others = [String::new(), first.to_uppercase(), first[1..].to_owned(), format!("{first}a")];
        assert!(token.is(&first) && others.iter().all(|other| !token.is(other)));
        assert!(!format!("{token:?}").contains(&first));
        put(&second, 0o600);
        assert!(token.is(&first), "until somebody looks");
        token.look();
        assert!(token.is(&second) && !token.is(&first));
        put("canary", 0o600);
        token.look();
        assert!(token.is(&second) && !token.is("canary"), "the last good one");
        assert!(matches!(*token.said.lock().unwrap(), Some(PageTokenError::Weak { length: 6, .. })));
        // It is said again when it breaks again, whatever token came between.
        for good in [&second, &first] {
            put(good, 0o600);
            token.look();
            assert!(token.is(good) && token.said.lock().unwrap().is_none());
            put("canary", 0o600);
            token.look();
            assert!(token.said.lock().unwrap().is_some());
        }
    }
}
