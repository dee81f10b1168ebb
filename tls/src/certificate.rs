//! What a certificate says.

use std::fmt::Write as _;
use std::net::IpAddr;

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::clock::unix_seconds;

const DAY: i64 = 86_400;

/// What a certificate says of its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its distinguished name, such as `CN=node-1`.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// Its number among those of its issuer, as big-endian bytes.
    pub serial: Vec<u8>,
    /// Its names: `DNS:`, `IP:` or `URI:` and the name.
    pub names: Vec<String>,
    /// What it may be used for: `server`, `client`, `authority`; empty where it does not say.
    pub usages: Vec<&'static str>,
    /// Its first second, since 1970.
    pub not_before: i64,
    /// Its last second, since 1970.
    pub not_after: i64,
    /// SHA-256 of the whole, as `openssl x509 -fingerprint -sha256` writes it.
    pub fingerprint: String,
}

impl Certificate {
    /// Reads one.
    ///
    /// # Errors
    /// It is none.
    pub fn of(der: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, read) = X509Certificate::from_der(der).map_err(|error| format!("no certificate: {error}"))?;
        let mut certificate = Self {
            subject: read.subject().to_string(),
            issuer: read.issuer().to_string(),
            serial: read.raw_serial().to_vec(),
            names: Vec::new(),
            usages: Vec::new(),
            not_before: read.validity().not_before.timestamp(),
            not_after: read.validity().not_after.timestamp(),
            fingerprint: fingerprint(der),
        };
        for extension in read.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => {
                    certificate.names = names.general_names.iter().filter_map(name).collect();
                }
                ParsedExtension::ExtendedKeyUsage(usage) => {
                    let kinds = [(usage.server_auth, "server"), (usage.client_auth, "client")];
                    certificate
                        .usages
                        .extend(kinds.into_iter().filter(|(has, _)| *has).map(|(_, kind)| kind));
                }
                ParsedExtension::BasicConstraints(basic) if basic.ca => certificate.usages.push("authority"),
                _ => {}
            }
        }
        Ok(certificate)
    }

    /// Whole days until its end; negative once it is over.
    pub fn days_left(&self) -> i64 {
        days_left(self.not_after)
    }
}

/// Whole days from now until this second since 1970.
pub fn days_left(end: i64) -> i64 {
    end.saturating_sub(unix_seconds()).div_euclid(DAY)
}

/// The day and time of a second since 1970, in UTC.
pub fn date(at: i64) -> String {
    time::OffsetDateTime::from_unix_timestamp(at).map_or_else(
        |_| format!("second {at}"),
        |at| {
            let (day, clock) = (at.date(), at.time());
            format!(
                "{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
                day.year(),
                u8::from(day.month()),
                day.day(),
                clock.hour(),
                clock.minute(),
                clock.second()
            )
        },
    )
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    Some(match name {
        GeneralName::DNSName(name) => format!("DNS:{name}"),
        GeneralName::URI(uri) => format!("URI:{uri}"),
        GeneralName::IPAddress(octets) => format!("IP:{}", address(octets)?),
        _ => return None,
    })
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// The public key of a certificate, without what kind it is of.
pub(crate) fn public_key(der: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, read) = X509Certificate::from_der(der).ok()?;
    Some(read.public_key().subject_public_key.data.to_vec())
}

/// SHA-256 of bytes, as pairs of digits with colons between.
pub(crate) fn fingerprint(bytes: &[u8]) -> String {
    let digest = sha256(bytes);
    let mut text = String::new();
    for (at, byte) in digest.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{byte:02X}", if at == 0 { "" } else { ":" });
    }
    text
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).to_vec()
}
