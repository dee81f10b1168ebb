//! Certificates of one's own: an authority, and a server's certificate and key signed by it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{ServerError, give, installed, io_error};

/// Files in a folder of their own, readable by servers.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// A new authority, and a certificate of it for these names, such as `DNS:localhost`.
    ///
    /// # Errors
    /// `openssl` is not installed, or fails.
    pub fn new(names: &str) -> Result<Self, ServerError> {
        let made =
            tempfile::Builder::new().prefix("tidegate-tls").tempdir().map_err(io_error("make a folder"))?;
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(made.path(), open).map_err(io_error("open a folder"))?;
        let own = Self { folder: made };
        let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let authority = ["req", "-x509", "-subj", "/CN=authority", "-days", "2", "-out", "ca.pem", "-keyout"];
        own.openssl(authority.into_iter().chain(["ca-key.pem"]).chain(new_key))?;
        let request = ["req", "-subj", "/CN=server", "-out", "request.pem", "-keyout", "key.pem"];
        own.openssl(request.into_iter().chain(new_key))?;
        std::fs::write(own.path("names"), format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n"))
            .map_err(io_error("write a file"))?;
        let sign = ["x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem"];
        let rest = ["-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "cert.pem"];
        own.openssl(sign.into_iter().chain(rest))?;
        // PostgreSQL takes no key that others can read.
        let secret = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(own.key(), secret).map_err(io_error("close a file"))?;
        give(&own.key())?;
        Ok(own)
    }

    /// The authority.
    pub fn authority(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.path("cert.pem")
    }

    /// Its key.
    pub fn key(&self) -> PathBuf {
        self.path("key.pem")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<(), ServerError> {
        let mut openssl = Command::new("openssl");
        openssl.args(arguments).current_dir(self.folder.path());
        installed(&mut openssl, "openssl", "openssl").map(drop)
    }
}
