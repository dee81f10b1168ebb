//! What is said of files, names and handshakes that are wrong, and that nothing else comes of them.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use rustls_native_certs::CertificateResult;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};
use tower::ServiceExt as _;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use super::client::of_the_machine;
use super::tests::{SERVER, Site, load};
use super::*;

fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn an_authority_does_not_sign_with_the_key_of_another() {
    let (site, other) = (Site::new(), Site::new());
    let said = Authority::read(&site.path("ca.pem"), &other.path("ca-key.pem")).unwrap_err().to_string();
    assert!(said.contains("ca-key.pem does not belong to the certificate"), "{said}");
    assert!(said.contains(site.path("ca.pem").to_str().unwrap()), "{said}");
    assert!(Authority::read(&site.path("ca.pem"), &site.path("ca-key.pem")).is_ok());
}

#[test]
fn a_file_with_more_bytes_than_are_read_is_refused_as_a_whole() {
    let site = Site::new();
    let path = site.path("large.pem");
    let text = fs::read_to_string(site.path("ca.pem")).unwrap();
    // What is cut off would be whole lines, of which nothing is missed.
    let padded = |bytes: usize| {
        format!("{text}{}", "#\n".repeat((bytes - text.len()).div_ceil(2)))[..bytes].to_owned()
    };
    fs::write(&path, padded(1 << 20)).unwrap();
    assert_eq!(trusted(Some(&path)).unwrap().len(), 1);
    fs::write(&path, padded((1 << 20) + 1)).unwrap();
    let said = trusted(Some(&path)).unwrap_err().to_string();
    assert!(said.contains("large.pem cannot be used: it has more than the 1 MiB"), "{said}");
}

#[test]
fn what_is_no_key_or_no_certificate_is_told_with_its_file() {
    let site = Site::new();
    let good = site.server("good");
    let path = site.path("x-key.pem");
    let refused = |text: &str| {
        put(&path, text);
        load((good.0.clone(), path.clone()), Clients::Anonymous).unwrap_err().to_string()
    };
    let junk = authority::pem("PRIVATE KEY", b"junk");
    let said = refused(&junk);
    assert!(said.contains("x-key.pem cannot be used") && said.contains("give a key of RSA, ECDSA"), "{said}");
    let shown = ClientFiles { identity: Some((good.0.clone(), path.clone())), ..site.trust() };
    assert!(shown.load().unwrap_err().to_string().contains("x-key.pem cannot be used"));
    let said = site.authority.renew(&site.certificate("good"), &path, 1).unwrap_err().to_string();
    assert!(said.contains("x-key.pem is no key in PKCS #8; issue a new"), "{said}");
    let said = refused(&fs::read_to_string(&good.0).unwrap());
    assert!(said.contains("x-key.pem holds no private key in PEM"), "{said}");
    let said = refused(&junk.replace("anVuaw==", "an!uaw=="));
    assert!(said.contains("x-key.pem is no PEM: base64"), "{said}");
    let junk = site.path("junk.pem");
    put(&junk, &authority::pem("CERTIFICATE", b"junk"));
    let said = load((junk, good.1.clone()), Clients::Anonymous).unwrap_err().to_string();
    assert!(
        said.contains("junk.pem cannot be used: no certificate: ") && said.contains("write it again"),
        "{said}"
    );
}

#[test]
fn authorities_are_of_use_while_one_of_them_lasts() {
    let site = Site::new();
    let text = |name: &str| fs::read_to_string(site.path(name)).unwrap();
    site.lasting("old", -9, -2);
    site.lasting("older", -9, -5);
    let both = site.path("both.pem");
    for (first, second) in [("old.pem", "ca.pem"), ("ca.pem", "old.pem")] {
        put(&both, &(text(first) + &text(second)));
        assert_eq!(trusted(Some(&both)).unwrap().len(), 2, "{first} {second}");
    }
    put(&both, &(text("older.pem") + &text("old.pem")));
    let said = trusted(Some(&both)).unwrap_err().to_string();
    let end = Material::read(&site.path("old.pem")).unwrap().certificates().unwrap().remove(0).not_after;
    assert!(said.contains("both.pem expired on ") && said.contains(&date(end)), "{said}");
}

/// A connection uses what was in force when it began.
#[test]
fn what_is_trusted_for_long_is_renewed_with_its_file_and_ends_with_the_first_of_it() {
    let site = Site::new();
    let text = |name: &str| fs::read_to_string(site.path(name)).unwrap();
    site.lasting("soon", -1, 3);
    let end =
        |name: &str| Material::read(&site.path(name)).unwrap().certificates().unwrap().remove(0).not_after;
    let path = site.path("trusted.pem");
    put(&path, &text("ca.pem"));
    let trust = Trust::load(&path).unwrap();
    let before = trust.in_force();
    assert_eq!((trust.look(), before.pem.as_slice()), (Change::None, text("ca.pem").as_bytes()));
    for both in [text("ca.pem") + &text("soon.pem"), text("soon.pem") + &text("ca.pem")] {
        put(&path, &both);
        assert_eq!((trust.look(), trust.look()), (Change::Renewed, Change::None));
        let after = trust.in_force();
        assert_eq!(after.pem.as_slice(), both.as_bytes());
        assert!(!Arc::ptr_eq(&before.config, &after.config));
        let (certificate, key) = site.server("own");
        let clients = Clients::Optional(path.clone());
        let server = load((certificate, key), clients).unwrap();
        for (role, expiries) in [("upstream_ca", trust.expiries()), ("client_ca", server.expiries())] {
            let found: Vec<_> = expiries.into_iter().filter(|one| one.role == role).collect();
            let [expiry] = found.as_slice() else { panic!("{role}: {found:?}") };
            assert_eq!((&expiry.path, expiry.not_after), (&path, end("soon.pem")), "{role}");
        }
    }
    fs::write(&path, "").unwrap();
    assert_eq!(trust.look(), Change::None);
    assert!(matches!(trust.look(), Change::Broken(TlsError::Empty { .. })));
    assert_eq!(trust.expiries()[0].not_after, end("soon.pem"), "the last good ones stay in force");
}

#[test]
fn two_authorities_without_a_name_have_two() {
    let name = |made: Issued| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        put(&path, &made.certificate);
        Material::read(&path).unwrap().valid_now().unwrap().subject
    };
    let own = || name(Authority::create(None, 9).unwrap());
    let (one, other) = (own(), own());
    assert!(one.starts_with("CN=tidegate authority ") && one != other, "{one} {other}");
    assert_eq!(name(Authority::create(Some("mine"), 9).unwrap()), "CN=mine");
}

#[tokio::test]
async fn a_request_of_a_server_names_all_of_its_address_but_the_scheme() {
    let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = there.local_addr().unwrap();
    for (asked, target) in [("", "/"), ("/a/b?key=s&x=1", "/a/b?key=s&x=1"), ("?key=s", "/?key=s")] {
        let uri = format!("http://{place}{asked}").parse().unwrap();
        let request = http::Request::post("/other").header("x-own", "7");
        let within = ("trace_ca", Duration::from_secs(60));
        let sending = outgoing::send(&uri, ClientFiles::default(), within, request, "body".into());
        let answering = async {
            let (mut peer, _) = there.accept().await.unwrap();
            let (mut all, mut part) = (Vec::new(), [0; 1_024]);
            while !all.ends_with(b"body") && !all.ends_with(b"gone") {
                let read = peer.read(&mut part).await.unwrap();
                all.extend_from_slice(if read == 0 { b"gone" } else { &part[..read] });
            }
            let _ = peer.write_all(b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n").await;
            (String::from_utf8(all).unwrap().to_ascii_lowercase(), peer)
        };
        let (answer, (heard, _peer)) = tokio::join!(sending, answering);
        assert_eq!(answer.unwrap().response.status(), 302, "no redirect is followed");
        let (first, fields) = heard.split_once("\r\n").unwrap();
        assert_eq!(first, format!("post {target} http/1.1"));
        for field in
            [&*format!("host: {place}\r\n"), "x-own: 7\r\n", "content-length: 4\r\n", "user-agent: tidegate/"]
        {
            assert_eq!(fields.matches(field).count(), 1, "{field} in {heard}");
        }
    }
}

#[tokio::test]
async fn a_request_to_whom_nobody_trusts_is_told_with_its_own_setting() {
    let (site, other) = (Site::new(), Site::new());
    let (certificate, key) = site.server("own");
    let files = ServerFiles { certificate, key, clients: Clients::Anonymous, revoked: None };
    let server = Server::load(files, &[b"http/1.1"]).unwrap();
    let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("https://localhost:{}/s3cret", there.local_addr().unwrap().port()).parse().unwrap();
    let within = ("ca in [[webhook]]", Duration::from_secs(60));
    let sending = outgoing::send(&uri, other.trust(), within, http::Request::get("/"), "".into());
    let answering = async { server.acceptor().accept(there.accept().await.unwrap().0).await.is_ok() };
    let (answer, _) = tokio::join!(sending, answering);
    let said = answer.unwrap_err();
    assert!(
        said.contains("(ca in [[webhook]])") && !said.contains("--ca") && !said.contains("s3cret"),
        "{said}"
    );
}

#[test]
fn this_machine_is_loopback_by_any_notation() {
    for (host, expected) in [
        ("localhost", true),
        ("127.0.0.1:9", true),
        ("127.9.9.9", true),
        ("[::1]:9", true),
        ("[::ffff:127.0.0.1]", true),
        ("localhost.example", false),
        ("127.0.0.1.example", false),
        ("10.0.0.1", false),
        ("0.0.0.0", false),
        ("[::]", false),
        ("[fd00::1]", false),
    ] {
        assert_eq!(outgoing::is_here(&format!("http://{host}/").parse().unwrap()), expected, "{host}");
    }
}

#[test]
fn a_machine_without_authorities_says_why() {
    let said = of_the_machine(CertificateResult::default()).unwrap_err().to_string();
    assert!(said.contains("trusts no authority (none found); name the file"), "{said}");
    let mut some = CertificateResult::default();
    let site = Site::new();
    some.certs = Material::read(&site.path("ca.pem")).unwrap().chain().unwrap();
    assert_eq!(of_the_machine(some).unwrap().len(), 1);
}

#[test]
fn names_that_no_certificate_has_are_refused() {
    let site = Site::new();
    for name in [Name::Dns("b\u{fc}cher".to_owned()), Name::Uri("spiffe://b\u{fc}cher".to_owned())] {
        let request = Request { subject: "x".to_owned(), names: vec![name], purpose: SERVER, days: 1 };
        let said = site.authority.issue(&request).unwrap_err().to_string();
        assert!(said.contains("b\u{fc}cher") && said.contains("write ASCII"), "{said}");
    }
    let (_, key) = site.client("a");
    for name in ["a.example", "IP:a.example", "MAIL:ann@example"] {
        let old = Certificate { names: vec![name.to_owned()], ..site.certificate("a") };
        let said = site.authority.renew(&old, &key, 1).unwrap_err().to_string();
        assert!(said.starts_with(name) && said.contains("issue a new certificate"), "{said}");
    }
}

#[test]
fn a_list_keeps_when_each_was_revoked_and_is_of_one_authority() {
    let site = Site::new();
    let (path, at) = (site.path("crl.pem"), OffsetDateTime::from_unix_timestamp(1_577_836_800).unwrap());
    let old = CertificateRevocationListParams {
        this_update: at,
        next_update: at + time::Duration::days(1),
        crl_number: SerialNumber::from(41),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(7),
            revocation_time: at,
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let old = authority::pem("X509 CRL", old.signed_by(site.authority.issuer()).unwrap().der());
    put(&path, &old);
    site.client("a");
    let (text, count) = site.authority.revoke(&path, &[site.certificate("a")]).unwrap();
    assert_eq!(count, 2);
    let der = x509_parser::pem::parse_x509_pem(text.as_bytes()).unwrap().1.contents;
    let (_, list) = CertificateRevocationList::from_der(&der).unwrap();
    assert_eq!(list.crl_number().map(ToString::to_string).as_deref(), Some("42"));
    let dates: Vec<i64> =
        list.iter_revoked_certificates().map(|one| one.revocation_date.timestamp()).collect();
    let serials: Vec<&[u8]> = list
        .iter_revoked_certificates()
        .map(x509_parser::revocation_list::RevokedCertificate::raw_serial)
        .collect();
    assert!(
        dates[0] == at.unix_timestamp() && dates[1] > dates[0] && serials[0] == [7],
        "{dates:?} {serials:?}"
    );
    assert!(list.next_update().unwrap().timestamp() == site.authority.certificate().not_after);

    put(&path, &format!("{old}{text}"));
    let said = site.authority.revoke(&path, &[]).unwrap_err().to_string();
    assert!(said.contains("crl.pem cannot be used: it has several lists"), "{said}");
    put(&path, &authority::pem("X509 CRL", b"junk"));
    let said = site.authority.revoke(&path, &[]).unwrap_err().to_string();
    assert!(said.contains("crl.pem cannot be used: no list of revoked certificates"), "{said}");
    let (certificate, key) = site.server("own");
    let clients = Clients::Required(site.path("ca.pem"));
    let files = ServerFiles { certificate, key, clients, revoked: Some(path) };
    let said = Server::load(files, &[b"h2"]).unwrap_err().to_string();
    assert!(said.contains("crl.pem cannot be used: no list of revoked certificates"), "{said}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_what_an_interrupted_run_left_is_no_hindrance() {
    let folder = tempfile::tempdir().unwrap();
    let said = write(&folder.path().join("none/key.pem"), "x", true, true).unwrap_err().to_string();
    assert!(said.contains("cannot write ") && said.contains("none/key.pem: "), "{said}");
    let path = folder.path().join("key.pem");
    fs::write(folder.path().join("key.pem.new"), "half").unwrap();
    write(&path, "whole", true, false).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode), ("whole", 0o600));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn each_error_of_a_handshake_says_what_to_do() {
    let certificate =
        |fault| explain(&io::Error::other(Error::InvalidCertificate(fault)), "db:1", client::HTTP2).unwrap();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(1_577_836_800));
    let name = || ServerName::try_from("db").unwrap();
    for (fault, expected) in [
        (
            CertificateError::NotValidForNameContext { expected: name(), presented: Vec::new() },
            "is for no name; ask for one of these names, or issue it with the name db:1",
        ),
        (
            CertificateError::NotValidForNameContext {
                expected: name(),
                presented: vec!["DnsName(\"a.example\")".to_owned(), "IpAddress(10.0.0.1)".to_owned()],
            },
            "is for a.example, 10.0.0.1; ask",
        ),
        (
            CertificateError::NotValidYetContext { time, not_before: time },
            "of db:1 is valid from 2020-01-01 00:00:00 UTC only; check the clocks",
        ),
        (CertificateError::BadEncoding, "of db:1 cannot be trusted: "),
        (CertificateError::BadSignature, "another authority of the same name"),
    ] {
        let said = certificate(fault);
        assert!(said.contains(expected), "{said}");
    }
    let alert =
        |alert| explain(&io::Error::other(Error::AlertReceived(alert)), "db:1", client::HTTP2).unwrap();
    for (received, expected) in [
        (
            AlertDescription::CertificateExpired,
            "db:1 says that this side's certificate expired or is not valid yet",
        ),
        (
            AlertDescription::UnknownCA,
            "db:1 does not trust the authority of this side's certificate, or has no list of revoked certificates in \
             force for it; show one of an authority that it trusts, or renew the list there",
        ),
        (AlertDescription::ProtocolVersion, "db:1 speaks neither TLS 1.2 nor TLS 1.3"),
        (AlertDescription::NoApplicationProtocol, "db:1 speaks no HTTP/2 on this port"),
        (AlertDescription::InternalError, "db:1 ended the handshake of TLS: InternalError"),
        (AlertDescription::AccessDenied, "db:1 refuses this side's certificate (AccessDenied)"),
    ] {
        let said = alert(received);
        assert!(said.contains(expected), "{said}");
    }
    let said = explain(&io::Error::other(Error::DecryptError), "db:1", client::HTTP2).unwrap();
    assert!(said.starts_with("TLS with db:1 failed: "), "{said}");
    assert!(
        explain(&io::ErrorKind::ConnectionReset.into(), "db:1", client::HTTP2)
            .unwrap()
            .contains("closed the connection")
    );
    for other in [io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut] {
        assert_eq!(explain(&other.into(), "db:1", client::HTTP2), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_end_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = silent.local_addr().unwrap();
    let (site, began) = (Site::new(), Instant::now());
    let dial = Dial::new(site.trust(), Duration::from_secs(5));
    let error = dial.oneshot(format!("https://{place}").parse().unwrap()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("no connection to {place}"));
    assert_eq!(root_cause(&error), "timed out");
    let took = began.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn an_address_that_no_certificate_can_be_for_is_told_as_such() {
    let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = there.local_addr().unwrap().port();
    let site = Site::new();
    // The resolver takes it for 127.0.0.1.
    let dial = Dial::new(site.trust(), Duration::from_secs(5));
    let said = dial.oneshot(format!("https://127.1:{port}").parse().unwrap()).await.unwrap_err().to_string();
    assert!(said.starts_with(&format!("127.1:{port} is no name that a certificate can have")), "{said}");
}
