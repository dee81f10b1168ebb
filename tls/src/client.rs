//! The client's side: whom it trusts, and what it shows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_native_certs::CertificateResult;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::files::{Material, TlsError};
use crate::provider;
use crate::server::{roots_in, unpaired};

/// What HTTP/2 is called in a handshake.
pub(crate) const HTTP2: &[u8] = b"h2";
/// What HTTP/1.1 is.
pub(crate) const HTTP1: &[u8] = b"http/1.1";

/// The files of a client. They are read for each connection, so that renewed ones count from the next one on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authorities that sign the certificates of servers; those the machine trusts when left out.
    pub authorities: Option<PathBuf>,
    /// The client's certificate and its key, for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ClientFiles {
    /// Reads the files, which blocks.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        self.load_speaking(HTTP2)
    }

    pub(crate) fn load_speaking(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>, TlsError> {
        let roots = trusted(self.authorities.as_deref())?;
        let general = |error: tokio_rustls::rustls::Error| TlsError::NoAuthorities(error.to_string());
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(general)?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (certificate, key) = (Material::read(certificate)?, Material::read_key(key)?);
                certificate.valid_now()?;
                builder
                    .with_client_auth_cert(certificate.chain()?, key.key()?)
                    .map_err(|error| unpaired(&certificate, &key, &error))?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    /// The name of the node or gateway that the certificate is for, if `tidegate cert issue` wrote one into it: the
    /// controller takes no other for its client id.
    pub fn own_name(&self) -> Option<String> {
        let (certificate, _) = self.identity.as_ref()?;
        let certificates = Material::read(certificate).and_then(|file| file.certificates()).ok()?;
        let names = certificates.into_iter().next()?.names;
        let own = |role| move |name: &String| Some(name.strip_prefix(role)?.to_owned());
        let of = |role| names.iter().find_map(own(role));
        of("URI:spiffe://tidegate/node/").or_else(|| of("URI:spiffe://tidegate/gateway/"))
    }
}

/// The authorities in this file, or those of the machine.
///
/// # Errors
/// The file cannot be used, or there are none.
pub fn trusted(authorities: Option<&Path>) -> Result<RootCertStore, TlsError> {
    match authorities {
        Some(path) => roots_in(&Material::read(path)?),
        None => of_the_machine(rustls_native_certs::load_native_certs()),
    }
}

pub(crate) fn of_the_machine(loaded: CertificateResult) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let reason = loaded.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(TlsError::NoAuthorities(reason));
    }
    Ok(roots)
}
