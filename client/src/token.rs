//! A token, or the JWT of a provider of identity, to show to controllers, in place of a certificate: from a file or the environment, and never from a flag,
//! which other users of the machine can read.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use http::Uri;
use tonic::metadata::{Ascii, MetadataValue};

/// What a token begins with.
const PREFIX: &str = "tdg_";
/// Bytes of a file that are read: as many as a controller reads of a JWT, and a line's end. A token is far shorter.
const MOST_BYTES: u64 = (8 << 10) + 2;
/// Names it in errors where no file does.
const NO_FILE: &str = "the token that was given";

/// Why no token can be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The file is not there, or is not for this process.
    #[error("cannot read the token in {}: {reason}; name a file that this process may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// Others can read it.
    #[error("{} has mode {mode:04o}: others can read the token; run: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// What is there is no token.
    #[error(
        "{from} holds no token of tidegate, which begins with {PREFIX}, and no JWT of a provider; make a token with \
         `tidegate token create`"
    )]
    NoToken {
        /// Where it was looked for.
        from: String,
    },
    /// Others could read it on its way.
    #[error(
        "a token is not sent to {endpoint} without TLS, where others can read it: write https://, or leave the token out"
    )]
    Plain {
        /// The endpoint.
        endpoint: String,
    },
}

/// A token, or where it is. It shows itself to nobody but the controller.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Text(String),
}

impl Token {
    /// The token in this file, for its owner only. It is read again for each connection, so that another one counts from
    /// the next one on.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }

    /// This token.
    pub fn text(text: impl Into<String>) -> Self {
        Self(Source::Text(text.into()))
    }

    /// Refuses an endpoint on whose way others can read a token.
    ///
    /// # Errors
    /// It is on another machine, and not behind TLS.
    pub fn check_endpoint(endpoint: &str) -> Result<(), TokenError> {
        let uri: Option<Uri> = endpoint.parse().ok();
        let is_secure = uri.as_ref().is_some_and(|uri| uri.scheme_str() == Some("https"));
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let address: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        if is_secure || host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return Ok(());
        }
        Err(TokenError::Plain { endpoint: endpoint.to_owned() })
    }

    /// The text of a file with a token, for its owner only. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or others can read it.
    pub fn text_in(path: &Path) -> Result<String, TokenError> {
        read(path)
    }

    /// What shows it with a call, under the key `authorization`. Reads the file, which blocks.
    ///
    /// # Errors
    /// The file cannot be read, others can read it, or there is no token.
    pub fn bearer(&self) -> Result<MetadataValue<Ascii>, TokenError> {
        let (text, from) = match &self.0 {
            Source::File(path) => (read(path)?, path.display().to_string()),
            Source::Text(text) => (text.clone(), NO_FILE.to_owned()),
        };
        let text = text.trim();
        let is_token =
            (text.starts_with(PREFIX) || is_jwt(text)) && text.chars().all(|c| c.is_ascii_graphic());
        let value = MetadataValue::try_from(format!("Bearer {text}")).ok().filter(|_| is_token);
        let mut value = value.ok_or(TokenError::NoToken { from })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Whether a text has the three parts of a JWT.
fn is_jwt(text: &str) -> bool {
    text.starts_with("ey") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl fmt::Debug for Token {
    /// Without its text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::File(path) => f.debug_tuple("Token").field(path).finish(),
            Source::Text(_) => f.write_str("Token(redacted)"),
        }
    }
}

/// What belongs to root may be for a group, as secrets that an orchestrator mounts are.
fn read(path: &Path) -> Result<String, TokenError> {
    let unreadable =
        |error: std::io::Error| TokenError::Unreadable { path: path.into(), reason: error.to_string() };
    let file = File::open(path).map_err(unreadable)?;
    let meta = file.metadata().map_err(unreadable)?;
    let (shared, mode) = (if meta.uid() == 0 { 0o007 } else { 0o077 }, meta.mode() & 0o7777);
    if mode & shared != 0 {
        return Err(TokenError::Exposed { path: path.into(), mode });
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_sent_under_tls_or_to_this_machine() {
        for endpoint in
            ["https://rates.example:7420", "http://127.0.0.1:7420", "http://localhost:1", "http://[::1]:7420"]
        {
            assert!(Token::check_endpoint(endpoint).is_ok(), "{endpoint}");
        }
        for endpoint in [
            "http://rates.example:7420",
            "http://10.0.0.1",
            "http://localhost.example",
            "http://notlocalhost",
            "nonsense",
            "",
        ] {
            assert!(Token::check_endpoint(endpoint).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_no_token_is_refused_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::file(&path);
        let missing = token.bearer().unwrap_err().to_string();
        let expected = format!("cannot read the token in {}: No such file", path.display());
        assert!(missing.starts_with(&expected), "{missing}");
        let put = |text: &str, mode: u32| {
            write(&path, text).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        put("tdg_1.abc\n", 0o644);
        let refused = token.bearer().unwrap_err().to_string();
        let path_shown = path.display();
        let expected =
            format!("{path_shown} has mode 0644: others can read the token; run: chmod 600 {path_shown}");
        assert_eq!(refused, expected);
        let no_tokens = [
            "hunter2",
            "",
            "tdg_1.hunter2\ntdg_2",
            "tdg_\u{7f}hunter2",
            "tdg_1. hunter2",
            "a.hunter2.b",
            "eyhunter2",
            "eyhunter2.b",
            "eya.b.c.hunter2",
        ];
        for wrong in no_tokens {
            put(wrong, 0o600);
            let refused = token.bearer().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{path_shown} holds no token")), "{refused}");
            let given = Token::text(wrong).bearer().unwrap_err().to_string();
            assert!(given.starts_with("the token that was given holds no token"), "{given}");
            assert!(!refused.contains("hunter2") && !given.contains("hunter2"), "{refused}, {given}");
        }
        put("eyJh.eyJi.c", 0o600);
        assert_eq!(token.bearer().unwrap().to_str().unwrap(), "Bearer eyJh.eyJi.c");
        put("tdg_1.abc\n", 0o600);
        let value = token.bearer().unwrap();
        assert_eq!(value.to_str().unwrap(), "Bearer tdg_1.abc");
        // Another one in its place is read.
        put("tdg_2.abc\n", 0o600);
        assert_eq!(token.bearer(), Token::text("tdg_2.abc").bearer());
        let shown = format!("{value:?} {token:?} {:?}", Token::text("tdg_1.abc"));
        assert!(!shown.contains("abc") && shown.contains("redacted"), "{shown}");
    }

    #[test]
    fn a_file_of_root_may_be_for_a_group_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        write(&path, "tdg_1.abc").unwrap();
        let is_root = std::fs::metadata(&path).unwrap().uid() == 0;
        let mode = |mode| {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::text_in(&path)
        };
        if is_root {
            assert!(mode(0o640).is_ok());
            assert!(matches!(mode(0o644), Err(TokenError::Exposed { mode: 0o644, .. })));
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        }
        assert!(matches!(mode(0o640), Err(TokenError::Exposed { mode: 0o640, .. })));
        assert!(mode(0o600).is_ok());
    }
}
