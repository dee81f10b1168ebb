//! Files that cannot be used, renewed files, and what a client is told, over real sockets.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::authority::EARLIER;
use super::*;

pub(super) const DAY: i64 = 86_400;

/// An authority in a folder, and certificates of it.
pub(super) struct Site {
    folder: TempDir,
    pub(super) authority: Authority,
}

impl Site {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = Authority::create(None, 100).unwrap();
        let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca-key.pem"));
        write(&certificate, &made.certificate, false, false).unwrap();
        write(&key, &made.key, true, false).unwrap();
        let authority = Authority::read(&certificate, &key).unwrap();
        Self { folder, authority }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate and its key, and returns where they are.
    pub(super) fn issue(&self, name: &str, names: Vec<Name>, purpose: Purpose) -> (PathBuf, PathBuf) {
        let request = Request { subject: name.to_owned(), names, purpose, days: 10 };
        let made = self.authority.issue(&request).unwrap();
        let files = (self.path(&format!("{name}.pem")), self.path(&format!("{name}-key.pem")));
        write(&files.0, &made.certificate, false, true).unwrap();
        write(&files.1, &made.key, true, true).unwrap();
        files
    }

    pub(super) fn server(&self, name: &str) -> (PathBuf, PathBuf) {
        self.issue(name, vec![Name::Dns("localhost".to_owned())], SERVER)
    }

    pub(super) fn client(&self, name: &str) -> (PathBuf, PathBuf) {
        self.issue(name, vec![Name::Uri("spiffe://tidegate/node/a".to_owned())], CLIENT)
    }

    /// What the certificate of this name says.
    pub(super) fn certificate(&self, name: &str) -> Certificate {
        Material::read(&self.path(&format!("{name}.pem"))).unwrap().valid_now().unwrap()
    }

    /// The same for a time that begins and ends so many days from now.
    pub(super) fn lasting(&self, name: &str, from: i64, to: i64) -> (PathBuf, PathBuf) {
        let files = self.server(name);
        let key = KeyPair::generate().unwrap();
        let mut of = CertificateParams::default();
        let at = |days: i64| {
            OffsetDateTime::from_unix_timestamp(clock::unix_seconds() + days * DAY + DAY / 2).unwrap()
        };
        (of.not_before, of.not_after) = (at(from), at(to));
        of.subject_alt_names = vec![SanType::DnsName("localhost".try_into().unwrap())];
        of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let ca = Material::read(&self.path("ca.pem")).unwrap().chain().unwrap();
        let ca_key = Material::read_key(&self.path("ca-key.pem")).unwrap().key().unwrap();
        let issuer = Issuer::from_ca_cert_der(&ca[0], KeyPair::try_from(&ca_key).unwrap()).unwrap();
        let signed = of.signed_by(&key, &issuer).unwrap();
        write(&files.0, &authority::pem("CERTIFICATE", signed.der()), false, true).unwrap();
        write(&files.1, &authority::pem("PRIVATE KEY", key.serialized_der()), true, true).unwrap();
        files
    }

    pub(super) fn trust(&self) -> ClientFiles {
        ClientFiles { authorities: Some(self.path("ca.pem")), identity: None }
    }
}

pub(super) const SERVER: Purpose = Purpose { server: true, client: false };
pub(super) const CLIENT: Purpose = Purpose { server: false, client: true };

pub(super) fn load(
    (certificate, key): (PathBuf, PathBuf),
    clients: Clients,
) -> Result<Arc<Server>, TlsError> {
    Server::load(ServerFiles { certificate, key, clients, revoked: None }, &[b"h2"])
}

fn cut(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, &text[..text.len() / 2]).unwrap();
}

#[test]
fn files_that_cannot_be_used_are_named_with_what_to_do() {
    let site = Site::new();
    let refused = |files, clients| load(files, clients).unwrap_err().to_string();
    let good = site.server("good");
    let other = site.server("other");
    assert!(load(good.clone(), Clients::Anonymous).is_ok());

    let said = refused((site.path("none.pem"), good.1.clone()), Clients::Anonymous);
    assert!(said.contains("cannot read") && said.contains("none.pem") && said.contains("PEM file"), "{said}");
    let said = refused((good.1.clone(), good.1.clone()), Clients::Anonymous);
    assert!(said.contains("good-key.pem holds no certificate"), "{said}");
    let said = refused((good.0.clone(), good.0.clone()), Clients::Anonymous);
    assert!(said.contains("mode 0644") && said.contains("chmod 600") && said.contains("good.pem"), "{said}");
    let said = refused((good.0.clone(), other.1.clone()), Clients::Anonymous);
    assert!(said.contains("other-key.pem does not belong") && said.contains("good.pem"), "{said}");
    let said = refused(site.lasting("old", -9, -2), Clients::Anonymous);
    let on = |days: i64| date(clock::unix_seconds() + days * DAY + DAY / 2);
    let day = |days| on(days).split(' ').next().unwrap().to_owned();
    assert!(said.contains(&format!("old.pem expired on {}", day(-2))), "{said}");
    assert!(said.contains("CN=rcgen self signed cert in ") && said.contains("tidegate cert renew"), "{said}");
    let said = refused(site.lasting("early", 2, 9), Clients::Anonymous);
    assert!(said.contains(&format!("early.pem is valid from {}", day(2))), "{said}");
    assert!(said.contains("CN=rcgen self signed cert in ") && said.contains("clock"), "{said}");
    let cuts = site.server("cut");
    cut(&cuts.0);
    let said = refused(cuts, Clients::Anonymous);
    assert!(said.contains("cut.pem is no PEM") && said.contains("write it again"), "{said}");
    let cuts = site.server("cut");
    cut(&cuts.1);
    let said = refused(cuts, Clients::Anonymous);
    assert!(said.contains("cut-key.pem is no PEM"), "{said}");
    fs::write(site.path("empty.pem"), "").unwrap();
    for clients in [Clients::Optional, Clients::Required] {
        let said = refused(good.clone(), clients(site.path("empty.pem")));
        assert!(said.contains("empty.pem holds no certificate"), "{said}");
    }
    let empty = ClientFiles { authorities: Some(site.path("empty.pem")), identity: None };
    assert!(empty.load().unwrap_err().to_string().contains("empty.pem holds no certificate"));
    fs::set_permissions(&good.1, fs::Permissions::from_mode(0o604)).unwrap();
    let shown = ClientFiles { identity: Some(good.clone()), ..site.trust() };
    assert!(shown.load().unwrap_err().to_string().contains("mode 0604"));
    assert!(refused(good.clone(), Clients::Anonymous).contains("mode 0604"));
    // As secrets are mounted: a link, of whose own mode nothing depends.
    let link = site.path("link-key.pem");
    std::os::unix::fs::symlink(&good.1, &link).unwrap();
    let linked = || load((good.0.clone(), link.clone()), Clients::Anonymous);
    assert!(linked().unwrap_err().to_string().contains("link-key.pem has mode 0604"));
    fs::set_permissions(&good.1, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(linked().is_ok());
    fs::set_permissions(&good.1, fs::Permissions::from_mode(0o440)).unwrap();
    let is_roots = fs::metadata(&good.1).unwrap().uid() == 0;
    assert_eq!(linked().is_ok(), is_roots, "a group may read what belongs to root alone");
}

#[test]
fn renewed_files_are_in_force_and_broken_ones_are_told_once() {
    let site = Site::new();
    let files = site.lasting("own", -1, 5);
    let server = load(files.clone(), Clients::Required(site.path("ca.pem"))).unwrap();
    let left = |server: &Server| {
        let own = server.expiries().into_iter().find(|expiry| expiry.role == "server").unwrap();
        days_left(own.not_after)
    };
    assert_eq!((server.look(), left(&server)), (Change::None, 5));
    let shown: Vec<_> = server.expiries().into_iter().map(|expiry| (expiry.role, expiry.path)).collect();
    assert_eq!(shown, [("server", files.0.clone()), ("client_ca", site.path("ca.pem"))]);
    site.lasting("own", -1, 7);
    assert_eq!((server.look(), left(&server)), (Change::Renewed, 7));
    assert_eq!(server.look(), Change::None);
    // Half of a renewal is no fault.
    let key = fs::read(&files.1).unwrap();
    site.lasting("own", -1, 8);
    let new = fs::read(&files.1).unwrap();
    fs::write(&files.1, key).unwrap();
    assert_eq!(server.look(), Change::None);
    fs::write(&files.1, new).unwrap();
    assert_eq!((server.look(), left(&server)), (Change::Renewed, 8));
    let good = fs::read(&files.0).unwrap();
    cut(&files.0);
    assert_eq!(server.look(), Change::None);
    assert!(matches!(server.look(), Change::Broken(TlsError::Malformed { .. })));
    assert_eq!((server.look(), left(&server)), (Change::None, 8));
    // What was in force is so again without a word of trouble.
    fs::write(&files.0, good).unwrap();
    assert_eq!((server.look(), left(&server)), (Change::Renewed, 8));
    fs::remove_file(site.path("ca.pem")).unwrap();
    assert_eq!(server.look(), Change::None);
    assert!(matches!(server.look(), Change::Broken(TlsError::Unreadable { .. })));
}

/// What a client with these files is told by a server with those, at its address by `host`.
pub(super) async fn told(server: Arc<Server>, files: ClientFiles, host: &str) -> Result<String, String> {
    told_by(&Dial::new(files, Duration::from_secs(5)), server, host).await
}

/// The same by a client that may have connected before.
async fn told_by(dial: &Dial, server: Arc<Server>, host: &str) -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut stream = match server.acceptor().accept(tcp).into_fallible().await {
            Ok(stream) => stream,
            Err((_, mut tcp)) => {
                // Bytes that are unread when a socket is closed take the alert with them.
                let _ = tcp.shutdown().await;
                let _ = tcp.read_to_end(&mut Vec::new()).await;
                return;
            }
        };
        // Clients of gRPC in some languages end a connection on which no protocol was agreed.
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let connected = dial.clone().oneshot(format!("https://{host}:{port}").parse().unwrap()).await;
    let heard = match connected {
        Err(error) => Err(root_cause(&error)),
        Ok(stream) => {
            let (mut stream, mut text) = (stream.into_inner(), String::new());
            let read = stream.read_to_string(&mut text).await;
            drop(stream);
            assert_eq!(read.is_err(), dial.refused().is_some());
            read.map(|_| text).map_err(|error| error.to_string())
        }
    };
    serving.await.unwrap();
    heard
}

#[tokio::test]
async fn a_client_is_told_why_there_is_no_tls() {
    let (site, other) = (Site::new(), Site::new());
    let anyone = |files| load(files, Clients::Anonymous).unwrap();
    let own = site.server("own");
    assert_eq!(told(anyone(own.clone()), site.trust(), "localhost").await.unwrap(), "hello");

    let said = told(anyone(own.clone()), other.trust(), "localhost").await.unwrap_err();
    assert!(said.contains("no authority that this side trusts") && said.contains("--ca"), "{said}");
    let said = told(anyone(own.clone()), site.trust(), "127.0.0.1").await.unwrap_err();
    assert!(said.contains("is for localhost; ask for one of these names"), "{said}");
    let wrong = site.issue("wrong", vec![Name::Dns("localhost".to_owned())], CLIENT);
    let said = told(anyone(wrong), site.trust(), "localhost").await.unwrap_err();
    assert!(said.contains("is not for servers"), "{said}");

    let dial = Dial::new(site.trust(), Duration::from_secs(5)).speaking_http1();
    let said = told_by(&dial, anyone(own.clone()), "localhost").await.unwrap_err();
    assert!(said.ends_with(" speaks no HTTP/1.1 on this port; check the port"), "{said}");

    let required = || load(own.clone(), Clients::Required(site.path("ca.pem"))).unwrap();
    let said = told(required(), site.trust(), "localhost").await.unwrap_err();
    assert!(said.contains("demands a certificate") && said.contains("--cert"), "{said}");
    let shown = |identity| ClientFiles { identity: Some(identity), ..site.trust() };
    assert_eq!(told(required(), shown(site.client("a")), "localhost").await.unwrap(), "hello");
    let said = told(required(), shown(other.client("a")), "localhost").await.unwrap_err();
    assert!(said.contains("does not trust the authority"), "{said}");
    let said = told(required(), shown(site.server("b")), "localhost").await.unwrap_err();
    assert!(said.contains("refuses this side's certificate"), "{said}");
    let said = told(required(), shown(site.lasting("c", -9, -2)), "localhost").await.unwrap_err();
    assert!(said.contains("c.pem expired on"), "{said}");
    let optional = || load(own.clone(), Clients::Optional(site.path("ca.pem"))).unwrap();
    assert_eq!(told(optional(), site.trust(), "localhost").await.unwrap(), "hello");
    assert!(told(optional(), shown(other.client("a")), "localhost").await.is_err());
}

#[tokio::test]
async fn a_client_forgets_why_it_was_refused_once_a_server_takes_it() {
    let (site, other) = (Site::new(), Site::new());
    let required = || load(site.server("own"), Clients::Required(site.path("ca.pem"))).unwrap();
    let (certificate, key) = other.client("a");
    let identity = Some((certificate.clone(), key.clone()));
    let dial = Dial::new(ClientFiles { identity, ..site.trust() }, Duration::from_secs(5));
    assert!(told_by(&dial, required(), "localhost").await.is_err());
    assert!(dial.refused().is_some_and(|said| said.contains("does not trust the authority")));
    let renewed = site.client("a");
    fs::copy(renewed.0, certificate).unwrap();
    fs::copy(renewed.1, key).unwrap();
    assert_eq!(told_by(&dial, required(), "localhost").await.as_deref(), Ok("hello"));
    assert_eq!(dial.refused(), None);
}

#[tokio::test]
async fn lists_of_revoked_certificates_decide_and_have_to_be_of_the_authority() {
    let (site, other) = (Site::new(), Site::new());
    let (own, list) = (site.server("own"), site.path("crl.pem"));
    let holder = |files: &(PathBuf, PathBuf)| Material::read(&files.0).unwrap().valid_now().unwrap();
    let put = |revoked: &[Certificate]| {
        let (text, count) = site.authority.revoke(&list, revoked).unwrap();
        write(&list, &text, false, true).unwrap();
        count
    };
    let load = || {
        let (certificate, key) = own.clone();
        let clients = Clients::Required(site.path("ca.pem"));
        Server::load(ServerFiles { certificate, key, clients, revoked: Some(list.clone()) }, &[b"h2"])
    };
    let shown = |identity| ClientFiles { identity: Some(identity), ..site.trust() };
    assert!(load().unwrap_err().to_string().contains("cannot read"));
    let (a, b) = (site.client("a"), site.client("b"));
    assert_eq!((put(&[]), put(&[holder(&a)]), put(&[holder(&a)])), (0, 1, 1));
    let said = told(load().unwrap(), shown(a.clone()), "localhost").await.unwrap_err();
    assert!(said.contains("is revoked; issue another"), "{said}");
    assert_eq!(told(load().unwrap(), shown(b.clone()), "localhost").await.unwrap(), "hello");
    assert_eq!(put(&[holder(&b)]), 2, "what was revoked stays so");
    assert!(told(load().unwrap(), shown(a.clone()), "localhost").await.is_err());

    // Of another authority: of another name, and of the same.
    let stranger = site.authority.revoke(&list, &[holder(&other.client("a"))]).unwrap_err().to_string();
    assert!(stranger.contains("was signed by") && stranger.contains("name the folder"), "{stranger}");
    let authority = site.authority.revoke(&list, &[site.authority.certificate().clone()]).unwrap_err();
    assert!(authority.to_string().contains("is an authority"), "{authority}");
    let foreign = other.authority.revoke(&list, &[]).unwrap_err().to_string();
    assert!(foreign.contains("it is the list of"), "{foreign}");
    let name = site.authority.certificate().subject.trim_start_matches("CN=").to_owned();
    let forged = Authority::create(Some(&name), 9).unwrap();
    write(&other.path("forged.pem"), &forged.certificate, false, false).unwrap();
    write(&other.path("forged-key.pem"), &forged.key, true, false).unwrap();
    let forger = Authority::read(&other.path("forged.pem"), &other.path("forged-key.pem")).unwrap();
    let good = fs::read_to_string(&list).unwrap();
    fs::write(&list, forger.revoke(&other.path("none"), &[]).unwrap().0).unwrap();
    let said = load().unwrap_err().to_string();
    assert!(said.contains("crl.pem") && said.contains("is not signed by that authority"), "{said}");
    // Without the list of its authority, no certificate is believed.
    fs::write(&list, other.authority.revoke(&other.path("none"), &[]).unwrap().0).unwrap();
    assert!(told(load().unwrap(), shown(site.client("c")), "localhost").await.is_err());
    fs::write(&list, &good[..good.len() / 2]).unwrap();
    assert!(load().unwrap_err().to_string().contains("cut off"));
    fs::write(&list, "").unwrap();
    assert!(load().unwrap_err().to_string().contains("holds no list of revoked certificates"));
}

#[tokio::test]
async fn an_expired_server_is_told_as_such() {
    let site = Site::new();
    let files = site.lasting("own", -9, 2);
    let server = load(files.clone(), Clients::Anonymous).unwrap();
    assert!(told(server, site.trust(), "localhost").await.is_ok());
    // No server starts so; one that runs on may end so.
    let (chain, key) = site.lasting("own", -9, -2);
    let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            Material::read(&chain).unwrap().chain().unwrap(),
            Material::read_key(&key).unwrap().key().unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let serving =
        tokio::spawn(async move { acceptor.accept(listener.accept().await.unwrap().0).await.is_ok() });
    let dial = Dial::new(site.trust(), Duration::from_secs(5));
    let said =
        dial.oneshot(format!("https://localhost:{port}").parse().unwrap()).await.unwrap_err().to_string();
    assert!(said.contains("expired on ") && said.contains("renew it there"), "{said}");
    assert!(!serving.await.unwrap());
}

#[tokio::test]
async fn a_port_of_the_other_kind_is_told_as_such() {
    for (answer, scheme, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "https", "does not speak TLS on this port; write http://"),
        (b"", "https", "closed the connection during the handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "http", "speaks TLS on this port; write https://"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\nthis listener speaks TLS; use https://",
            "http",
            "; write https://",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            tcp.read_u8().await.unwrap();
            tcp.write_all(answer).await.unwrap();
            let _ = tcp.shutdown().await;
            let _ = tcp.read_to_end(&mut Vec::new()).await;
        });
        let site = Site::new();
        let dial = Dial::new(site.trust(), Duration::from_secs(5));
        let said = match dial.oneshot(format!("{scheme}://127.0.0.1:{port}").parse().unwrap()).await {
            Err(error) => root_cause(&error),
            Ok(stream) => {
                let mut stream = stream.into_inner();
                stream.write_all(b"PRI").await.unwrap();
                stream.read(&mut [0; 99]).await.unwrap_err().to_string()
            }
        };
        assert!(said.contains(expected), "{said}");
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn of_several_places_the_first_that_answers_is_taken() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let places = [gone, there.local_addr().unwrap()].map(|place| format!("http://{place}").parse().unwrap());
    let none = Dial::new(ClientFiles::default(), Duration::from_secs(5))
        .over(vec!["http://127.0.0.1:2".parse().unwrap(), "http://127.0.0.1:1".parse().unwrap()]);
    let said = none.oneshot("http://asked".parse().unwrap()).await.unwrap_err();
    assert_eq!(said.to_string(), "no connection to 127.0.0.1:1");
    let dial = Dial::new(ClientFiles::default(), Duration::from_secs(5)).over(places.to_vec());
    let (connected, accepted) = tokio::join!(dial.oneshot("http://asked".parse().unwrap()), there.accept());
    assert!(connected.is_ok() && accepted.is_ok());
    // Nor does one answer with which there is no TLS.
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let places = [("https", &deaf), ("http", &there)]
        .map(|(scheme, at)| format!("{scheme}://{}", at.local_addr().unwrap()).parse().unwrap());
    let site = Site::new();
    let dial = Dial::new(site.trust(), Duration::from_secs(5)).over(places.to_vec());
    let refuses = async { drop(deaf.accept().await.unwrap()) };
    let (connected, ()) = tokio::join!(dial.oneshot("http://asked".parse().unwrap()), refuses);
    assert!(connected.is_ok());
}

#[test]
fn a_certificate_is_renewed_for_the_same_names_and_key_and_within_its_authority() {
    let site = Site::new();
    let names = vec![
        Name::Dns("a.example".to_owned()),
        Name::Ip([10, 0, 0, 1].into()),
        Name::Ip("fd00::1".parse().unwrap()),
        Name::Uri("spiffe://tidegate/gateway/g".to_owned()),
    ];
    let (path, key) = site.issue("g", names, Purpose { server: true, client: true });
    let read = || Material::read(&path).unwrap().valid_now().unwrap();
    let old = read();
    assert_eq!(old.names, ["DNS:a.example", "IP:10.0.0.1", "IP:fd00::1", "URI:spiffe://tidegate/gateway/g"]);
    let lifetime = old.not_after - old.not_before - EARLIER.whole_seconds();
    assert_eq!((old.usages.clone(), lifetime), (vec!["server", "client"], 10 * DAY));
    let renewed = site.authority.renew(&old, &key, 1_000).unwrap();
    write(&path, &renewed, false, true).unwrap();
    let new = read();
    assert_eq!((&new.names, &new.usages, &new.subject), (&old.names, &old.usages, &old.subject));
    assert_eq!(new.not_after, site.authority.certificate().not_after);
    assert!(new.fingerprint != old.fingerprint && load((path, key.clone()), Clients::Anonymous).is_ok());
    let refused = |old: &Certificate| site.authority.renew(old, &key, 1).unwrap_err().to_string();
    assert!(refused(&Certificate { issuer: "CN=x".to_owned(), ..old }).contains("was signed by CN=x"));
    assert!(refused(site.authority.certificate()).contains("is an authority"));
    let said = Authority::read(&site.server("s").0, &site.path("s-key.pem")).unwrap_err().to_string();
    assert!(said.contains("CN=s is no authority"), "{said}");
}

#[test]
fn files_are_written_as_a_whole_and_not_over_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    write(&path, "one", true, false).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    let error = write(&path, "two", true, false).unwrap_err();
    assert!(matches!(error, Unwritable::Exists(_)) && error.to_string().contains("--force"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "one");
    write(&path, "two", true, true).unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("two", 0o600));
    for (text, private, expected) in [("three", false, 0o644), ("four", true, 0o600)] {
        write(&path, text, private, true).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), (text, expected));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_client_knows_the_name_of_the_node_that_its_certificate_is_for() {
    let site = Site::new();
    let named = |uri: &str| {
        let names = vec![Name::Dns("a.example".to_owned()), Name::Uri(uri.to_owned())];
        let files = site.issue("it", names, CLIENT);
        // Those above it have names of their own.
        let other = site.issue("other", vec![Name::Uri("spiffe://tidegate/node/other".to_owned())], CLIENT);
        let chain = fs::read_to_string(&files.0).unwrap() + &fs::read_to_string(other.0).unwrap();
        fs::write(&files.0, chain).unwrap();
        ClientFiles { identity: Some(files), ..ClientFiles::default() }.own_name()
    };
    assert_eq!(named("spiffe://tidegate/node/till").as_deref(), Some("till"));
    assert_eq!(named("spiffe://tidegate/gateway/gw-1").as_deref(), Some("gw-1"));
    for other in
        ["spiffe://tidegate/operator/ann", "spiffe://prod/node/till", "spiffe://tidegate.x/node/till"]
    {
        assert_eq!(named(other), None, "{other}");
    }
    let gone = Some((site.path("none.pem"), site.path("none-key.pem")));
    assert_eq!(ClientFiles { identity: gone, ..ClientFiles::default() }.own_name(), None);
    assert_eq!(ClientFiles::default().own_name(), None);
}
