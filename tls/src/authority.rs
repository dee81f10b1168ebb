//! A private authority: its certificate and key, and the certificates that it signs. Keys are P-256.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::certificate::{Certificate, fingerprint, public_key};
use crate::clock::unix_seconds;
use crate::files::{Material, TlsError};

/// How long before its making a certificate begins, for clocks that are behind. Half of it is short for machines
/// without a time server; twice of it gains nothing.
pub(crate) const EARLIER: Duration = Duration::hours(1);
/// Bytes in a line of PEM.
const PEM_LINE: usize = 64;

/// A name in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A name of DNS.
    Dns(String),
    /// An address.
    Ip(IpAddr),
    /// A URI, such as a SPIFFE id.
    Uri(String),
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// Servers show it.
    pub server: bool,
    /// Clients show it.
    pub client: bool,
}

/// A certificate to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its common name.
    pub subject: String,
    /// Its other names, by which it is known.
    pub names: Vec<Name>,
    /// What it is for.
    pub purpose: Purpose,
    /// How long it is valid; no longer than its authority.
    pub days: u32,
}

/// A new certificate and its key, in PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").finish_non_exhaustive()
    }
}

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A file of the authority or of the certificate.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The authority or the request is wrong.
    #[error("{0}")]
    Request(String),
    /// The library cannot make it.
    #[error("the certificate cannot be made: {0}")]
    Making(#[from] rcgen::Error),
}

/// A file that is not written.
#[derive(Debug, thiserror::Error)]
pub enum Unwritable {
    /// It is there already.
    #[error("{} exists; name another file, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// The system refuses.
    #[error("cannot write {}: {reason}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        reason: io::Error,
    },
}

/// Signs certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl Authority {
    /// Makes a new one. Without a name it gets one of its own, so that certificates of two are not taken for those of one.
    ///
    /// # Errors
    /// The library cannot make it.
    pub fn create(subject: Option<&str>, days: u32) -> Result<Issued, IssueError> {
        let key = KeyPair::generate()?;
        let own = || {
            let print = fingerprint(key.public_key_raw());
            format!("tidegate authority {}", print.split(':').take(4).collect::<String>())
        };
        let now = now();
        let mut of = params(&subject.map_or_else(own, str::to_owned), now, now + Duration::days(days.into()));
        // Signs certificates of others, and none of further authorities.
        of.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        of.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Issued { certificate: pem("CERTIFICATE", of.self_signed(&key)?.der()), key: key_pem(&key) })
    }

    /// Reads one: its certificate and its key, which nobody else may read.
    ///
    /// # Errors
    /// A file cannot be used, the certificate is none of an authority, or the key is that of another one.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, IssueError> {
        let (file, pair) = (Material::read(certificate)?, key_pair(key)?);
        let own = file.valid_now()?;
        if !own.usages.contains(&"authority") {
            let reason = format!(
                "{}: {} is no authority; name the file that `tidegate cert init` wrote",
                certificate.display(),
                own.subject
            );
            return Err(IssueError::Request(reason));
        }
        let der = file.chain()?.into_iter().next().ok_or_else(|| file.empty("certificate"))?;
        if public_key(&der).as_deref() != Some(pair.public_key_raw()) {
            return Err(TlsError::Mismatch { certificate: certificate.into(), key: key.into() }.into());
        }
        Ok(Self { issuer: Issuer::from_ca_cert_der(&der, pair)?, certificate: own })
    }

    /// What signs for it.
    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// What its own certificate says.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// A new certificate with a new key.
    ///
    /// # Errors
    /// A name cannot be in a certificate.
    pub fn issue(&self, request: &Request) -> Result<Issued, IssueError> {
        let key = KeyPair::generate()?;
        Ok(Issued { certificate: self.sign(request, &key)?, key: key_pem(&key) })
    }

    /// The certificate of `old` again, for the key in this file and `days` from now.
    ///
    /// # Errors
    /// Another authority signed it, or the key cannot be read.
    pub fn renew(&self, old: &Certificate, key: &Path, days: u32) -> Result<String, IssueError> {
        if old.issuer != self.certificate.subject {
            return Err(IssueError::Request(format!(
                "{} was signed by {}, and this authority is {}; name the folder of the one that signed it",
                old.subject, old.issuer, self.certificate.subject
            )));
        }
        if old.usages.contains(&"authority") {
            return Err(IssueError::Request(format!(
                "{} is an authority: make another one in a folder of its own, let all trust both, then issue from it",
                old.subject
            )));
        }
        let subject = old.subject.strip_prefix("CN=").unwrap_or(&old.subject).to_owned();
        let has = |usage| old.usages.contains(&usage);
        let purpose = Purpose { server: has("server"), client: has("client") };
        let names = old.names.iter().map(|name| Name::parse(name)).collect::<Result<_, _>>()?;
        self.sign(&Request { subject, names, purpose, days }, &key_pair(key)?)
    }

    fn sign(&self, request: &Request, key: &KeyPair) -> Result<String, IssueError> {
        let now = now();
        let end = (now + Duration::days(request.days.into())).unix_timestamp();
        let end = end.min(self.certificate.not_after);
        let end = OffsetDateTime::from_unix_timestamp(end).unwrap_or(now);
        let mut of = params(&request.subject, now, end);
        of.subject_alt_names = request.names.iter().map(Name::alternative).collect::<Result<_, _>>()?;
        of.is_ca = IsCa::ExplicitNoCa;
        of.use_authority_key_identifier_extension = true;
        of.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let kinds = [
            (request.purpose.server, ExtendedKeyUsagePurpose::ServerAuth),
            (request.purpose.client, ExtendedKeyUsagePurpose::ClientAuth),
        ];
        of.extended_key_usages = kinds.into_iter().filter(|(has, _)| *has).map(|(_, kind)| kind).collect();
        Ok(pem("CERTIFICATE", of.signed_by(key, &self.issuer)?.der()))
    }
}

impl Name {
    /// Reads what [`Certificate::names`] has.
    fn parse(text: &str) -> Result<Self, IssueError> {
        let unknown =
            || IssueError::Request(format!("{text} is no name that can be renewed; issue a new certificate"));
        match text.split_once(':').ok_or_else(unknown)? {
            ("DNS", name) => Ok(Self::Dns(name.to_owned())),
            ("IP", address) => address.parse().map(Self::Ip).map_err(|_| unknown()),
            ("URI", uri) => Ok(Self::Uri(uri.to_owned())),
            _ => Err(unknown()),
        }
    }

    fn alternative(&self) -> Result<SanType, IssueError> {
        let wrong = |text: &str| {
            IssueError::Request(format!("{text:?} cannot be a name in a certificate: write ASCII"))
        };
        Ok(match self {
            Self::Dns(name) => SanType::DnsName(name.as_str().try_into().map_err(|_| wrong(name))?),
            Self::Ip(address) => SanType::IpAddress(*address),
            Self::Uri(uri) => SanType::URI(uri.as_str().try_into().map_err(|_| wrong(uri))?),
        })
    }
}

pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(unix_seconds()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn params(subject: &str, now: OffsetDateTime, end: OffsetDateTime) -> CertificateParams {
    let mut of = CertificateParams::default();
    of.distinguished_name = DistinguishedName::new();
    of.distinguished_name.push(DnType::CommonName, subject);
    of.not_before = now - EARLIER;
    of.not_after = end;
    of
}

fn key_pair(path: &Path) -> Result<KeyPair, IssueError> {
    let file = Material::read_key(path)?;
    let unusable =
        |_| IssueError::Request(format!("{} is no key in PKCS #8; issue a new certificate", path.display()));
    KeyPair::try_from(&file.key()?).map_err(unusable)
}

fn key_pem(key: &KeyPair) -> String {
    pem("PRIVATE KEY", key.serialized_der())
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(PEM_LINE));
        lines.push_str(line);
        lines.push('\n');
        rest = more;
    }
    lines + &format!("-----END {label}-----\n")
}

/// Writes a file as a whole, so that one who reads it at any time reads the old or the new one; one that exists is kept
/// unless it is to be replaced. A `private` file is for its owner only.
///
/// # Errors
/// It exists, or cannot be written.
pub fn write(path: &Path, text: &str, private: bool, replace: bool) -> Result<(), Unwritable> {
    let system = |reason| Unwritable::System { path: path.into(), reason };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // One that an interrupted run left behind.
    let _ = fs::remove_file(&beside);
    let mode = if private { 0o600 } else { 0o644 };
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside).map_err(system)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let moved =
        written.and_then(|()| if replace { fs::rename(&beside, path) } else { fs::hard_link(&beside, path) });
    if !replace || moved.is_err() {
        let _ = fs::remove_file(&beside);
    }
    moved.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Unwritable::Exists(path.into()),
        _ => system(error),
    })
}
