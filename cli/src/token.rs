//! A token or a JWT to show the controller: from a file or the environment, and never from a flag, which other users of the
//! machine can read.

use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Uri;

use crate::error::CliError;

/// The environment variable with a token.
const VARIABLE: &str = "TIDEGATE_TOKEN";
/// Bytes of a file that are read: as many as the controller reads of a JWT, and a line's end.
const MOST_BYTES: u64 = (8 << 10) + 2;

/// The metadata that shows the token of this file, or of the environment without one. It shows itself to nobody.
pub(crate) fn bearer(file: Option<&Path>) -> Result<Option<MetadataValue<Ascii>>, CliError> {
    let text = match file {
        Some(path) => Some(read(path)?),
        None => set(),
    };
    let Some(text) = text else { return Ok(None) };
    let text = text.trim();
    if !(text.starts_with("tdg_") || is_jwt(text)) || text.chars().any(|c| !c.is_ascii_graphic()) {
        let from = file.map_or_else(|| VARIABLE.to_owned(), |path| path.display().to_string());
        return Err(CliError::Usage(format!(
            "{from} holds no token of tidegate, which begins with tdg_, and no JWT of a provider; make a token with \
             `tidegate token create`"
        )));
    }
    let unreadable = |_| CliError::Usage("the token cannot be sent".to_owned());
    let mut value = MetadataValue::try_from(format!("Bearer {text}")).map_err(unreadable)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Whether a text has the three parts of a JWT.
fn is_jwt(text: &str) -> bool {
    text.starts_with("ey") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

fn set() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())
}

/// Whether the environment holds a token.
pub(crate) fn is_set() -> bool {
    set().is_some()
}

/// Refuses to show a token where others can read it.
pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), CliError> {
    let uri: Option<Uri> = endpoint.parse().ok();
    let is_secure = uri.as_ref().is_some_and(|uri| uri.scheme_str() == Some("https"));
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    if is_secure || host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "a token is not sent to {endpoint} without TLS, where others can read it: write https://, or leave the token out"
    )))
}

fn read(path: &Path) -> Result<String, CliError> {
    let failed = || CliError::file("read", path);
    let mut file = std::fs::File::open(path).map_err(failed())?;
    let mode = file.metadata().map_err(failed())?.permissions().mode();
    if mode & 0o077 != 0 {
        let (path, mode) = (path.display(), mode & 0o7777);
        let message = format!("{path} has mode {mode:04o}: others can read the token; run: chmod 600 {path}");
        return Err(CliError::Refused(message));
    }
    let mut text = String::new();
    file.by_ref().take(MOST_BYTES).read_to_string(&mut text).map_err(failed())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_under_tls_or_to_this_machine() {
        for endpoint in
            ["https://rates.example:7420", "http://127.0.0.1:7420", "http://localhost:1", "http://[::1]:7420"]
        {
            assert!(check_endpoint(endpoint).is_ok(), "{endpoint}");
        }
        for endpoint in
            ["http://rates.example:7420", "http://10.0.0.1", "http://localhost.example", "nonsense", ""]
        {
            assert!(check_endpoint(endpoint).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_that_holds_no_token_is_refused_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let put = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        put("tdg_1.abc\n", 0o644);
        let refused = bearer(Some(&path)).unwrap_err().to_string();
        assert!(refused.contains("chmod 600") && !refused.contains("tdg_1"), "{refused}");
        put("hunter2", 0o600);
        let refused = bearer(Some(&path)).unwrap_err().to_string();
        assert!(refused.contains("holds no token") && !refused.contains("hunter2"), "{refused}");
        put("eyJh.eyJi.c", 0o600);
        assert_eq!(bearer(Some(&path)).unwrap().unwrap().to_str().unwrap(), "Bearer eyJh.eyJi.c");
        put("tdg_1.abc\n", 0o600);
        let value = bearer(Some(&path)).unwrap().unwrap();
        assert_eq!(value.to_str().unwrap(), "Bearer tdg_1.abc");
        assert!(!format!("{value:?}").contains("abc"), "{value:?}");
    }
}
