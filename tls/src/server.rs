//! The server's side: a configuration that is in force, and files that may be renewed.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch as flag;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{CertificateError, Error, InconsistentKeys, RootCertStore, ServerConfig};

use crate::files::{Material, TlsError};
use crate::kept::{Change, Expiry, Kept, Read, Watched};
use crate::provider;
use crate::revocation;

/// What clients show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Nothing; certificates are not asked for.
    #[default]
    Anonymous,
    /// A certificate of an authority in this file, or none.
    Optional(PathBuf),
    /// A certificate of an authority in this file.
    Required(PathBuf),
}

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate, and those that lead from it to an authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// What clients show.
    pub clients: Clients,
    /// Lists of revoked certificates of clients. With it, the issuer of each client's certificate needs one.
    pub revoked: Option<PathBuf>,
}

/// A server's certificate, key and trust. What is in force is replaced as a whole, so that a connection never sees a
/// half of it, and tickets of former sessions end with the trust that they were given by.
#[derive(Debug)]
pub struct Server {
    files: ServerFiles,
    protocols: Vec<Vec<u8>>,
    kept: Kept<InForce, Vec<Material>>,
    /// How often renewed files were put in force.
    renewals: flag::Sender<u64>,
}

#[derive(Debug)]
struct InForce {
    config: Arc<ServerConfig>,
    /// What judges certificates of clients, where lists of revoked ones are given.
    judge: Option<Arc<dyn ClientCertVerifier>>,
    expiries: Vec<Expiry>,
}

impl Server {
    /// Reads the files. `protocols` are offered to clients by ALPN.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn load(files: ServerFiles, protocols: &[&[u8]]) -> Result<Arc<Self>, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        let read = files.read()?;
        let in_force = files.configured(&read, &protocols)?;
        let kept = Kept::new(read, in_force);
        Ok(Arc::new(Self { files, protocols, kept, renewals: flag::Sender::new(0) }))
    }

    /// What a new connection is accepted by.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.kept.in_force().config))
    }

    /// Changes with each renewal that is put in force; `None` without lists of revoked certificates. Who takes it before a
    /// handshake misses none after it.
    pub fn renewals(&self) -> Option<flag::Receiver<u64>> {
        self.files.revoked.is_some().then(|| self.renewals.subscribe())
    }

    /// Waits until renewed lists say that this certificate, which a handshake has accepted, is revoked; the first of the
    /// chain is its holder's.
    pub async fn revoked(&self, mut renewals: flag::Receiver<u64>, chain: &[CertificateDer<'_>]) {
        // No error is possible: `self` holds the sender.
        while renewals.changed().await.is_err() || !self.revokes(chain) {}
    }

    /// Whether a list in force has this certificate.
    fn revokes(&self, chain: &[CertificateDer<'_>]) -> bool {
        let in_force = self.kept.in_force();
        let (Some(judge), Some((own, above))) = (&in_force.judge, chain.split_first()) else { return false };
        let judged = judge.verify_client_cert(own, above, UnixTime::now());
        matches!(judged, Err(Error::InvalidCertificate(CertificateError::Revoked)))
    }
}

impl Watched for Server {
    fn look(&self) -> Change {
        let change = self.kept.look(self.files.read(), |read| self.files.configured(read, &self.protocols));
        if change == Change::Renewed {
            self.renewals.send_modify(|renewals| *renewals = renewals.wrapping_add(1));
        }
        change
    }

    fn expiries(&self) -> Vec<Expiry> {
        self.kept.in_force().expiries.clone()
    }
}

impl ServerFiles {
    /// The certificate, the key, and the authorities of clients if there are any.
    fn read(&self) -> Read<Vec<Material>> {
        let mut read = vec![Material::read(&self.certificate)?, Material::read_key(&self.key)?];
        match &self.clients {
            Clients::Anonymous => {}
            Clients::Optional(path) | Clients::Required(path) => {
                read.push(Material::read(path)?);
                if let Some(path) = &self.revoked {
                    read.push(Material::read(path)?);
                }
            }
        }
        Ok(read)
    }

    fn configured(&self, read: &[Material], protocols: &[Vec<u8>]) -> Result<InForce, TlsError> {
        let [certificate, key, authorities @ ..] = read else {
            return Err(TlsError::Empty { path: self.certificate.clone(), what: "certificate" });
        };
        let own = certificate.valid_now()?;
        let mut expiries = vec![Expiry::of("server", certificate, own)];
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| certificate.unusable(error.to_string()))?;
        let mut judge = None;
        let builder = match authorities.first() {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(roots_in(file)?);
                expiries.extend(Expiry::soonest("client_ca", file)?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                if matches!(self.clients, Clients::Optional(_)) {
                    verifier = verifier.allow_unauthenticated();
                }
                let lists = authorities.get(1);
                if let Some(lists) = lists {
                    verifier = verifier.with_crls(revocation::lists(lists, file)?);
                }
                let verifier = verifier.build().map_err(|error| file.unusable(error.to_string()))?;
                judge = lists.map(|_| Arc::clone(&verifier));
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificate.chain()?, key.key()?)
            .map_err(|error| unpaired(certificate, key, &error))?;
        config.alpn_protocols = protocols.to_vec();
        Ok(InForce { config: Arc::new(config), judge, expiries })
    }
}

/// Why a certificate and a key cannot be used together.
pub(crate) fn unpaired(certificate: &Material, key: &Material, error: &Error) -> TlsError {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::Mismatch { certificate: certificate.path().into(), key: key.path().into() }
        }
        Error::General(_) => {
            key.unusable(format!("{error}; give a key of RSA, ECDSA (P-256, P-384) or Ed25519"))
        }
        _ => certificate.unusable(error.to_string()),
    }
}

/// The authorities in a file, of which at least one is still valid.
pub(crate) fn roots_in(file: &Material) -> Result<RootCertStore, TlsError> {
    let all = file.certificates()?;
    let last = all.iter().max_by_key(|authority| authority.not_after);
    if let Some(last) = last.filter(|last| last.days_left() < 0) {
        let (path, subject, at) = (file.path().into(), last.subject.clone(), last.not_after);
        return Err(TlsError::Expired { path, subject, at });
    }
    let mut roots = RootCertStore::empty();
    for authority in file.chain()? {
        roots.add(authority).map_err(|error| file.unusable(error.to_string()))?;
    }
    Ok(roots)
}
