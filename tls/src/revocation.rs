//! Lists of revoked certificates: of others, read from a file, and of the private authority, written by it.

use std::path::Path;

use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::CertificateRevocationListDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::authority::{Authority, IssueError, now, pem};
use crate::certificate::Certificate;
use crate::files::{Material, TlsError};

/// The lists in a file: at least one, each of which is signed by the authority that it names, if `authorities` has that.
///
/// # Errors
/// There is none, or one cannot be used.
pub(crate) fn lists(
    file: &Material,
    authorities: &Material,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let lists = file.lists()?;
    let known = authorities.chain()?;
    let known: Vec<X509Certificate<'_>> =
        known.iter().filter_map(|der| Some(X509Certificate::from_der(der).ok()?.1)).collect();
    for der in &lists {
        let list = parsed(der).map_err(|reason| file.unusable(reason))?;
        let mut signers = known.iter().filter(|one| one.subject() == list.issuer()).peekable();
        if signers.peek().is_some() && !signers.any(|one| list.verify_signature(one.public_key()).is_ok()) {
            let reason = format!(
                "its list of {} is not signed by that authority in {}; write the list again",
                list.issuer(),
                authorities.path().display()
            );
            return Err(file.unusable(reason));
        }
    }
    Ok(lists)
}

fn parsed<'d>(der: &'d CertificateRevocationListDer<'_>) -> Result<CertificateRevocationList<'d>, String> {
    let (_, list) = CertificateRevocationList::from_der(der)
        .map_err(|error| format!("no list of revoked certificates: {error}; write it again"))?;
    Ok(list)
}

impl Authority {
    /// The list in this file, if it is there, with these certificates, too, in PEM. How many it has then.
    ///
    /// # Errors
    /// Another authority signed one of the certificates or the list, or the file cannot be read.
    pub fn revoke(&self, list: &Path, certificates: &[Certificate]) -> Result<(String, usize), IssueError> {
        let own = self.certificate();
        for certificate in certificates {
            if certificate.issuer != own.subject {
                return Err(IssueError::Request(format!(
                    "{} was signed by {}, and this authority is {}; name the folder of the one that signed it",
                    certificate.subject, certificate.issuer, own.subject
                )));
            }
            if certificate.usages.contains(&"authority") {
                return Err(IssueError::Request(format!(
                    "{} is an authority: take it out of the files of those who trust it",
                    certificate.subject
                )));
            }
        }
        let (mut revoked, number) = if list.exists() { self.before(list)? } else { (Vec::new(), 0) };
        for certificate in certificates {
            if revoked.iter().all(|entry| *entry.serial_number.as_ref() != certificate.serial) {
                revoked.push(entry(&certificate.serial, now()));
            }
        }
        let count = revoked.len();
        let params = CertificateRevocationListParams {
            this_update: now(),
            next_update: OffsetDateTime::from_unix_timestamp(own.not_after).unwrap_or_else(|_| now()),
            crl_number: SerialNumber::from(number.saturating_add(1)),
            issuing_distribution_point: None,
            revoked_certs: revoked,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok((pem("X509 CRL", params.signed_by(self.issuer())?.der()), count))
    }

    /// What its list in this file has, and the list's number.
    fn before(&self, path: &Path) -> Result<(Vec<RevokedCertParams>, u64), IssueError> {
        let file = Material::read(path)?;
        let lists = file.lists()?;
        let [der] = lists.as_slice() else {
            let reason = "it has several lists; name the file of this authority's alone".to_owned();
            return Err(file.unusable(reason).into());
        };
        let list = parsed(der).map_err(|reason| file.unusable(reason))?;
        if list.issuer().to_string() != self.certificate().subject {
            let reason = format!("it is the list of {}; name another file", list.issuer());
            return Err(file.unusable(reason).into());
        }
        let revoked = list.iter_revoked_certificates().map(|one| {
            let at = OffsetDateTime::from_unix_timestamp(one.revocation_date.timestamp());
            entry(one.raw_serial(), at.unwrap_or_else(|_| now()))
        });
        let number = list.crl_number().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        Ok((revoked.collect(), number))
    }
}

fn entry(serial: &[u8], at: OffsetDateTime) -> RevokedCertParams {
    RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: at,
        reason_code: None,
        invalidity_date: None,
    }
}

impl Material {
    /// The lists of revoked certificates in it, at least one.
    fn lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        const WHAT: &str = "list of revoked certificates";
        let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(self.bytes()).collect();
        match lists.map_err(|error| self.malformed(WHAT, &error))? {
            lists if lists.is_empty() => Err(self.empty(WHAT)),
            lists => Ok(lists),
        }
    }
}
