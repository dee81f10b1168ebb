//! Authorities that a client trusts for long: their file may be renewed while the process runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;

use crate::files::{Material, TlsError};
use crate::kept::{Change, Expiry, Kept, Watched};
use crate::provider;
use crate::server::roots_in;

/// The authorities of a file, for connections too many for the file to be read by each.
#[derive(Debug)]
pub struct Trust {
    path: PathBuf,
    kept: Kept<Trusted, Material>,
}

/// What is trusted.
#[derive(Debug)]
pub struct Trusted {
    /// How to connect by it, without a certificate of the client.
    pub config: Arc<ClientConfig>,
    /// The authorities as their file has them.
    pub pem: Vec<u8>,
    expiry: Option<Expiry>,
}

impl Trust {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn load(path: &Path) -> Result<Arc<Self>, TlsError> {
        let file = Material::read(path)?;
        let trusted = trusted(&file)?;
        Ok(Arc::new(Self { path: path.into(), kept: Kept::new(file, trusted) }))
    }

    /// What is in force: another one after each renewal.
    pub fn in_force(&self) -> Arc<Trusted> {
        Arc::clone(&self.kept.in_force())
    }
}

impl Watched for Trust {
    fn look(&self) -> Change {
        self.kept.look(Material::read(&self.path), trusted)
    }

    fn expiries(&self) -> Vec<Expiry> {
        self.kept.in_force().expiry.iter().cloned().collect()
    }
}

fn trusted(file: &Material) -> Result<Trusted, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| file.unusable(error.to_string()))?
        .with_root_certificates(roots_in(file)?)
        .with_no_client_auth();
    let expiry = Expiry::soonest("upstream_ca", file)?;
    Ok(Trusted { config: Arc::new(config), pem: file.bytes().to_vec(), expiry })
}
