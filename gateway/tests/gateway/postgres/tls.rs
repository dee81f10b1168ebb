//! TLS between client and gateway, gateway and server, both, and none.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_controller::Running;
use tidegate_gateway::{Config, Gateway};
use tidegate_test_servers::{Certificates, Postgres, ROOT, ServerError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{block_in_place, spawn_blocking};
use tokio_postgres::{Client, NoTls};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::stage::{login, policy, value};
use crate::common::{self, eventually, says};
use crate::ways::{self, OTHER_NAME, PLAIN, TLS, VERIFIED};

/// A server with a certificate for `localhost`; a gateway before it.
pub(super) struct Stage {
    pub(super) postgres: Postgres,
    pub(super) gateway: Gateway,
    controller: Running,
    pub(super) certificates: Certificates,
    _folder: TempDir,
}

fn config(controller: &Running, port: u16, own: &Certificates, authorities: PathBuf) -> Config {
    ways::config(controller, ("postgres://", port), policy(), own, authorities)
}

impl Stage {
    async fn new() -> Self {
        Self::of(Postgres::start).await
    }

    /// With a server of one's own choice, begun with these settings.
    pub(super) async fn of(start: fn(&[&str]) -> Result<Postgres, ServerError>) -> Self {
        Self::made(start, |_| {}).await
    }

    /// With other settings of the gateway.
    pub(super) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::made(Postgres::start, change).await
    }

    async fn made(
        start: fn(&[&str]) -> Result<Postgres, ServerError>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let certificates = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
        let setting = |name: &str, file: PathBuf| format!("{name}={}", file.display());
        let settings = [
            "ssl=on".to_owned(),
            setting("ssl_cert_file", certificates.certificate()),
            setting("ssl_key_file", certificates.key()),
        ];
        let postgres = spawn_blocking(move || start(&settings.each_ref().map(String::as_str)));
        let postgres = postgres.await.unwrap().unwrap();
        let root = login(postgres.port(), "postgres", ROOT).await;
        root.batch_execute("create user ann password 'ann'").await.unwrap();
        root.batch_execute("create database shop owner ann").await.unwrap();
        let (controller, folder) = common::controller().await;
        let mut settings = config(&controller, postgres.port(), &certificates, certificates.authority());
        settings.kill_abandoned = true;
        change(&mut settings);
        let gateway = Gateway::start(settings).await.unwrap();
        Self { postgres, gateway, controller, certificates, _folder: folder }
    }

    async fn root(&self) -> Client {
        login(self.postgres.port(), "postgres", ROOT).await
    }

    /// `psql` as ann; over TLS it looks at the gateway's certificate.
    fn psql(&self, port: u16, tls: bool) -> Command {
        let mode = if tls { "verify-full" } else { "disable" };
        self.psql_by(port, mode, &self.certificates.authority())
    }

    /// Over TLS, and trusting this authority.
    pub(super) fn psql_trusting(&self, port: u16, authority: &Path) -> Command {
        self.psql_by(port, "verify-full", authority)
    }

    fn psql_by(&self, port: u16, mode: &str, authority: &Path) -> Command {
        let mut psql = self.postgres.program("psql");
        // Channel binding needs one TLS from end to end.
        let to = format!(
            "host=localhost hostaddr=127.0.0.1 port={port} user=ann password=ann dbname=shop \
             channel_binding=disable sslmode={mode} sslrootcert={}",
            authority.display()
        );
        psql.args(["-X", "-A", "-t", "-d", &to]);
        psql
    }

    /// What it says to a script.
    pub(super) fn says(&self, port: u16, tls: bool, script: &str) -> String {
        String::from_utf8_lossy(&block_in_place(|| says(&mut self.psql(port, tls), script.as_bytes())))
            .into_owned()
    }
}

/// What a client does that trusts this authority and offers these protocols.
pub(crate) fn trusting(authority: &Path, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

#[tokio::test(flavor = "multi_thread")]
async fn either_side_may_be_under_tls() {
    let stage = Stage::new().await;
    // Whether the server's side is under TLS, as the server sees it; and a result of many records of TLS.
    let script = "select ssl from pg_stat_ssl where pid = pg_backend_pid();\n\
                  select g, repeat('x', 100) from generate_series(1, 20000) g;\n\
                  create temporary table t (a text);\ncopy t from stdin;\none\ntwo\n\\.\ntable t;\n\
                  select repeat('0123456789', 300000);\n\\conninfo\n";
    let direct = stage.says(stage.postgres.port(), false, script);
    let rest = |said: &str| {
        let from = said.find("\n1|x").unwrap_or_else(|| panic!("{}", &said[..said.len().min(500)]));
        said[from..said.find("You are connected").unwrap()].to_owned()
    };
    for way in [PLAIN, TLS, VERIFIED] {
        for tls in [false, true] {
            let said = stage.says(stage.gateway.addresses[way].port(), tls, script);
            let server = if way == PLAIN { "f\n" } else { "t\n" };
            assert!(said.starts_with(server), "{way} {tls}: {}", &said[..said.len().min(500)]);
            assert_eq!(said.contains("SSL connection (protocol: TLSv1.3"), tls, "{way} {tls}");
            assert!(rest(&said) == rest(&direct), "{way} {tls}: the results differ");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_prove_itself_gets_no_login() {
    let stage = Stage::new().await;
    let told = stage.says(stage.gateway.addresses[OTHER_NAME].port(), false, "select 1;");
    assert!(told.contains("cannot reach the database") && told.contains("certificate"), "{told}");
    let stranger = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
    let port = stage.postgres.port();
    let settings = config(&stage.controller, port, &stage.certificates, stranger.authority());
    let other = Gateway::start(Config { identity: "other".to_owned(), ..settings }).await.unwrap();
    for way in [VERIFIED, OTHER_NAME] {
        let told = stage.says(other.addresses[way].port(), true, "select 1;");
        assert!(told.contains("cannot reach the database") && told.contains("certificate"), "{told}");
    }
    // Without a look at the certificate it is let in.
    assert_eq!(stage.says(other.addresses[TLS].port(), true, "select 1;"), "1\n");
    // A server without TLS is not talked to in the clear.
    let plain = spawn_blocking(|| Postgres::start(&[])).await.unwrap().unwrap();
    let settings = config(&stage.controller, plain.port(), &stage.certificates, stranger.authority());
    let third = Gateway::start(Config { identity: "third".to_owned(), ..settings }).await.unwrap();
    let told = stage.says(third.addresses[TLS].port(), false, "select 1;");
    assert!(told.contains("the server does not offer TLS"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_cancelled_and_killed_under_tls() {
    let stage = Stage::new().await;
    let root = stage.root().await;
    let port = stage.gateway.addresses[VERIFIED].port();
    let active = "select count(*) from pg_stat_activity where usename = 'ann' and state = 'active'";
    // As people interrupt: psql asks for it over a connection of its own.
    let mut psql = stage.psql(port, true);
    psql.args(["-c", "select pg_sleep(60)"]).stderr(std::process::Stdio::piped());
    let child = psql.spawn().unwrap();
    eventually("it runs", async || value(&root, active).await == "1").await;
    block_in_place(|| Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap());
    let output = block_in_place(|| child.wait_with_output().unwrap());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("canceling statement due to user request"), "{told}");
    // A client that is gone, whose statement the gateway cancels over a connection under TLS.
    let mut psql = stage.psql(port, true);
    let mut child =
        psql.args(["-c", "select count(*) from generate_series(1, 10000000000)"]).spawn().unwrap();
    eventually("it runs", async || value(&root, active).await == "1").await;
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("it is gone", async || value(&root, active).await == "0").await;
    // And a runaway.
    let admin = login(stage.gateway.addresses[PLAIN].port(), "postgres", ROOT).await;
    let rule = "query_limit = (exec_elapsed = '200ms', action = kill)";
    admin.batch_execute(&format!("create resource group strict ru_per_sec = 100000 {rule}")).await.unwrap();
    admin.batch_execute("alter user ann resource group strict").await.unwrap();
    eventually("a runaway is killed", async || {
        stage.says(port, true, "select pg_sleep(3);").contains("runaway of resource group strict")
    })
    .await;
}

/// As `sslnegotiation=direct` of libpq 17 has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_begin_with_tls() {
    let stage = Stage::new().await;
    let address = stage.gateway.addresses[TLS];
    let begin = async |names: &[&str]| {
        let tcp = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(trusting(&stage.certificates.authority(), names));
        let tls = connector.connect("localhost".try_into().unwrap(), tcp).await?;
        let mut login = tokio_postgres::Config::new();
        login.user("ann").password("ann").dbname("shop");
        let (client, connection) = login.connect_raw(tls, NoTls).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        Ok::<_, std::io::Error>(value(&client, "select 7").await)
    };
    assert_eq!(begin(&["postgresql"]).await.unwrap(), "7");
    for other in [&["http/1.1"][..], &[]] {
        assert!(begin(other).await.is_err(), "{other:?}");
    }
    // Where the gateway has no certificate, such a client is let go.
    let settings =
        config(&stage.controller, stage.postgres.port(), &stage.certificates, stage.certificates.authority());
    let bare = Config { identity: "bare".to_owned(), certificate: None, ..settings };
    let bare = Gateway::start(bare).await.unwrap();
    let mut stream = TcpStream::connect(bare.addresses[TLS]).await.unwrap();
    stream.write_all(&[22, 3, 1, 0, 200]).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_tls_ends_alone() {
    let stage = Stage::new().await;
    let port = stage.gateway.addresses[TLS].port();
    let ssl_request = [0, 0, 0, 8, 4, 210, 22, 47];
    for garbage in [&b"no TLS at all, and more than five bytes"[..], &[22, 3, 1, 255, 255, 1], &ssl_request] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(&ssl_request).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'S');
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "{garbage:?}");
    }
    assert_eq!(stage.says(port, true, "select 1;"), "1\n");
}
