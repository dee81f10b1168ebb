//! Lists of revoked certificates where several authorities are in play: one that signs for another, and two of a name.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
};
use time::OffsetDateTime;

use super::tests::{Site, told};
use super::*;

/// An authority that another one signed, so that it is in no file of those who trust the other.
struct Between {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Between {
    fn of(above: &Site) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut of = CertificateParams::default();
        of.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        of.distinguished_name.push(DnType::CommonName, "between");
        of.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let signed = of.signed_by(&key, above.authority.issuer()).unwrap();
        let certificate = authority::pem("CERTIFICATE", signed.der());
        Self { certificate, issuer: Issuer::new(of, key) }
    }

    /// Writes a client's certificate, with this one behind it, and its key.
    fn client(&self, site: &Site, serial: u64) -> (PathBuf, PathBuf) {
        let files = site.client(&format!("below-{serial}"));
        let key = KeyPair::generate().unwrap();
        let mut of = CertificateParams::default();
        of.serial_number = Some(serial.into());
        of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let own = authority::pem("CERTIFICATE", of.signed_by(&key, &self.issuer).unwrap().der());
        write(&files.0, &(own + &self.certificate), false, true).unwrap();
        write(&files.1, &authority::pem("PRIVATE KEY", key.serialized_der()), true, true).unwrap();
        files
    }

    fn list(&self, revoked: &[u64]) -> String {
        let at = OffsetDateTime::from_unix_timestamp(clock::unix_seconds()).unwrap();
        let entry = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: at,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: at,
            next_update: at + time::Duration::days(1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        authority::pem("X509 CRL", list.signed_by(&self.issuer).unwrap().der())
    }
}

#[tokio::test]
async fn who_was_let_in_is_judged_again_by_renewed_lists_with_all_that_was_shown() {
    let site = Site::new();
    let (between, list) = (Between::of(&site), site.path("crl.pem"));
    let above = site.authority.revoke(&site.path("none"), &[]).unwrap().0;
    fs::write(&list, above.clone() + &between.list(&[])).unwrap();
    let (certificate, key) = site.server("own");
    let clients = Clients::Required(site.path("ca.pem"));
    let server =
        Server::load(ServerFiles { certificate, key, clients, revoked: Some(list.clone()) }, &[b"h2"])
            .unwrap();
    let held = [between.client(&site, 7), between.client(&site, 8), site.client("direct")];
    for files in &held {
        let shown = ClientFiles { identity: Some(files.clone()), ..site.trust() };
        assert_eq!(told(Arc::clone(&server), shown, "localhost").await.as_deref(), Ok("hello"));
    }
    let direct = [site.certificate("direct")];
    let own_list = site.authority.revoke(&site.path("none"), &direct).unwrap().0;
    for (lists, expected) in [
        (above.clone() + &between.list(&[7]), [true, false, false]),
        // What is in doubt was accepted once, and is no more than in doubt.
        (above.clone(), [false; 3]),
        (between.list(&[8]) + &own_list, [false, true, true]),
    ] {
        let waiting = server.renewals().unwrap();
        fs::write(&list, lists).unwrap();
        assert_eq!(server.look(), Change::Renewed);
        for (files, expected) in held.iter().zip(expected) {
            let chain = Material::read(&files.0).unwrap().chain().unwrap();
            let is_over = tokio::select! {
                biased;
                () = server.revoked(waiting.clone(), &chain) => true,
                () = std::future::ready(()) => false,
            };
            assert_eq!(is_over, expected, "{}", files.0.display());
        }
    }
}

#[test]
fn of_authorities_with_one_name_any_may_have_signed_the_list() {
    let site = Site::new();
    let name = site.authority.certificate().subject.trim_start_matches("CN=").to_owned();
    let next = Authority::create(Some(&name), 9).unwrap().certificate;
    let old = fs::read_to_string(site.path("ca.pem")).unwrap();
    let list = site.path("crl.pem");
    fs::write(&list, site.authority.revoke(&list, &[]).unwrap().0).unwrap();
    let both = site.path("both.pem");
    for text in [old.clone() + &next, next.clone() + &old] {
        fs::write(&both, text).unwrap();
        let (certificate, key) = site.server("own");
        let clients = Clients::Required(both.clone());
        let files = ServerFiles { certificate, key, clients, revoked: Some(list.clone()) };
        assert!(Server::load(files, &[b"h2"]).is_ok());
    }
}
