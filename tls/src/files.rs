//! Files of certificates and keys, in PEM.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate::{Certificate, date};
use crate::clock::unix_seconds;

/// Bytes of a file that are read: a bundle of several hundred authorities fits. Twice of it would only be held for a
/// wrong file.
const MOST_BYTES: u64 = 1 << 20;

/// Files that cannot be used for TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The file is not there, or is not for this process.
    #[error("cannot read {}: {reason}; name a PEM file that this process may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The file has none of what it is for.
    #[error("{} holds no {what} in PEM; name the file that has it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// The file is cut off or damaged.
    #[error("{} is no PEM: {reason}; it is cut off or damaged: write it again", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Others can read a key.
    #[error("{} has mode {mode:04o}: others can read the key; run: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Certificate and key are not a pair.
    #[error(
        "the key {} does not belong to the certificate {}; name the two files that were issued together",
        key.display(),
        certificate.display()
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The time of a certificate is over.
    #[error("the certificate of {subject} in {} expired on {}; renew it, as by `tidegate cert renew`", path.display(), date(*at))]
    Expired {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        subject: String,
        /// When, in seconds since 1970.
        at: i64,
    },
    /// The time of a certificate has not begun.
    #[error(
        "the certificate of {subject} in {} is valid from {} only; check the clock of this machine",
        path.display(),
        date(*from)
    )]
    NotYetValid {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        subject: String,
        /// From when, in seconds since 1970.
        from: i64,
    },
    /// A certificate that is in order as PEM and of no use.
    #[error("{} cannot be used: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The machine has no certificates of authorities.
    #[error(
        "this machine trusts no authority ({0}); name the file of the one that signed the server's certificate"
    )]
    NoAuthorities(String),
}

/// What a file held when it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Material {
    /// It may be a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Material {
    /// Reads a file of certificates.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        Self::opened(path, |_| Ok(()))
    }

    /// Reads a file with a key, which nobody else may read. What belongs to root may be for a group, as secrets that an
    /// orchestrator mounts are.
    ///
    /// # Errors
    /// It cannot be read, or others can read it.
    pub fn read_key(path: &Path) -> Result<Self, TlsError> {
        Self::opened(path, |meta| {
            let shared = if meta.uid() == 0 { 0o007 } else { 0o077 };
            let mode = meta.mode() & 0o7777;
            if mode & shared == 0 { Ok(()) } else { Err(TlsError::Exposed { path: path.into(), mode }) }
        })
    }

    fn opened(
        path: &Path,
        check: impl FnOnce(&std::fs::Metadata) -> Result<(), TlsError>,
    ) -> Result<Self, TlsError> {
        let unreadable =
            |error: std::io::Error| TlsError::Unreadable { path: path.into(), reason: error.to_string() };
        let file = File::open(path).map_err(unreadable)?;
        check(&file.metadata().map_err(unreadable)?)?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let is_whole = u64::try_from(bytes.len()).is_ok_and(|length| length <= MOST_BYTES);
        let read = Self { path: path.into(), bytes };
        // A part of it would be in force without those at its end.
        let limit =
            || format!("it has more than the {} MiB that are read; name another file", MOST_BYTES >> 20);
        if is_whole { Ok(read) } else { Err(read.unusable(limit())) }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of it, where it is neither a certificate nor a key in PEM.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The certificates in it, at least one.
    ///
    /// # Errors
    /// There is none, or the file is damaged.
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match chain.map_err(|error| self.malformed("certificate", &error))? {
            chain if chain.is_empty() => Err(self.empty("certificate")),
            chain => Ok(chain),
        }
    }

    /// The key in it.
    ///
    /// # Errors
    /// There is none, or the file is damaged.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| self.malformed("private key", &error))
    }

    /// What the certificates in it say.
    ///
    /// # Errors
    /// There is none, or one is damaged.
    pub fn certificates(&self) -> Result<Vec<Certificate>, TlsError> {
        let read = |der: &CertificateDer<'_>| {
            Certificate::of(der).map_err(|reason| self.unusable(format!("{reason}; write it again")))
        };
        self.chain()?.iter().map(read).collect()
    }

    /// The first certificate in it, which is valid now.
    ///
    /// # Errors
    /// There is none, or its time is over or has not begun.
    pub fn valid_now(&self) -> Result<Certificate, TlsError> {
        let certificate = self.certificates()?.into_iter().next().ok_or_else(|| self.empty("certificate"))?;
        let (now, path, subject) = (unix_seconds(), self.path.clone(), certificate.subject.clone());
        match (certificate.not_before, certificate.not_after) {
            (_, at) if at < now => Err(TlsError::Expired { path, subject, at }),
            (from, _) if from > now => Err(TlsError::NotYetValid { path, subject, from }),
            _ => Ok(certificate),
        }
    }

    pub(crate) fn malformed(&self, what: &'static str, error: &PemError) -> TlsError {
        let reason = match error {
            PemError::NoItemsFound => return self.empty(what),
            PemError::MissingSectionEnd { .. } => "the last line of a section is missing".to_owned(),
            other => other.to_string(),
        };
        TlsError::Malformed { path: self.path.clone(), reason }
    }

    pub(crate) fn empty(&self, what: &'static str) -> TlsError {
        TlsError::Empty { path: self.path.clone(), what }
    }

    pub(crate) fn unusable(&self, reason: String) -> TlsError {
        TlsError::Unusable { path: self.path.clone(), reason }
    }
}
