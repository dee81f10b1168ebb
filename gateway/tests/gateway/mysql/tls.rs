//! TLS between client and gateway, gateway and MariaDB, both, and none.

use std::path::PathBuf;
use std::process::Command;

use mysql_async::prelude::Queryable as _;
use tempfile::TempDir;
use tidegate_controller::Running;
use tidegate_gateway::{Config, Gateway, Policy, Principals};
use tidegate_test_servers::{Certificates, GATEWAY, MariaDb, ROOT};
use tokio::task::{block_in_place, spawn_blocking};

use super::stage::{login, value};
use crate::common::{self, eventually, says};
use crate::ways::{self, OTHER_NAME, PLAIN, TLS, VERIFIED};

/// A server with a certificate for `localhost`, and a gateway before it.
struct Stage {
    server: MariaDb,
    gateway: Gateway,
    controller: Running,
    certificates: Certificates,
    _folder: TempDir,
}

fn config(controller: &Running, server: &MariaDb, own: &Certificates, authorities: PathBuf) -> Config {
    let upstream = server.upstream();
    let (login, _) = upstream.split_once('@').unwrap();
    let policy = Policy { admins: Principals::parse([ROOT.0]).unwrap(), ..Policy::default() };
    ways::config(controller, (&format!("{login}@"), server.port()), policy, own, authorities)
}

impl Stage {
    async fn new() -> Self {
        let certificates = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
        let options = [
            format!("--ssl-cert={}", certificates.certificate().display()),
            format!("--ssl-key={}", certificates.key().display()),
            format!("--ssl-ca={}", certificates.authority().display()),
        ];
        let server = spawn_blocking(move || MariaDb::start(&options.each_ref().map(String::as_str)));
        let server = server.await.unwrap().unwrap();
        server.root("create database shop; create user ann identified by 'ann'").unwrap();
        server.root("grant all on shop.* to ann").unwrap();
        let (controller, folder) = common::controller().await;
        let settings = config(&controller, &server, &certificates, certificates.authority());
        let gateway = Gateway::start(settings).await.unwrap();
        Self { server, gateway, controller, certificates, _folder: folder }
    }

    /// The client `mariadb` as ann; over TLS it looks at the gateway's certificate.
    fn client(&self, port: u16, tls: bool) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-hlocalhost", "--protocol=tcp", "-uann", "-pann", "-N", "--force"]);
        client.arg(format!("-P{port}")).args(["--max-allowed-packet=64M", "shop"]);
        if tls {
            let authority = self.certificates.authority();
            client.args(["--ssl-verify-server-cert".to_owned(), format!("--ssl-ca={}", authority.display())]);
        } else {
            client.arg("--skip-ssl");
        }
        client
    }

    /// What it says to a script.
    fn says(&self, port: u16, tls: bool, script: &str) -> String {
        let said = block_in_place(|| says(&mut self.client(port, tls), script.as_bytes()));
        String::from_utf8_lossy(&said).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn either_side_may_be_under_tls() {
    let stage = Stage::new().await;
    let cipher = "show session status like 'Ssl_cipher';";
    let script = format!(
        "{cipher} select seq, repeat('x', 100) from seq_1_to_20000; select repeat('0123456789', 2000000);
         prepare s from 'select ? + 1'; set @a = 41; execute s using @a; selec;"
    );
    let port = stage.gateway.addresses[PLAIN].port();
    eventually("the first lease is there", async || stage.says(port, false, "select 7;") == "7\n").await;
    let direct = stage.says(stage.server.port(), false, &script);
    let rest = |said: &str| said[said.find('\n').unwrap()..].to_owned();
    assert!(direct.len() > 20_000_000, "{}", &direct[..direct.len().min(500)]);
    for way in [PLAIN, TLS, VERIFIED] {
        for tls in [false, true] {
            let port = stage.gateway.addresses[way].port();
            let said = stage.says(port, tls, &script);
            // What the server sees of its own side.
            let first = said.lines().next().unwrap();
            assert_eq!(first.starts_with("Ssl_cipher\tTLS_"), way != PLAIN, "{way} {tls}: {first}");
            assert!(rest(&said) == rest(&direct), "{way} {tls}: the results differ");
            // And the client of its own.
            let status = stage.says(port, tls, "\\s");
            let line = status.lines().find(|line| line.starts_with("SSL:")).unwrap();
            assert_eq!(line.contains("Cipher in use"), tls, "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_prove_itself_gets_no_login() {
    let stage = Stage::new().await;
    let refused = |port: u16, tls: bool| {
        let told = stage.says(port, tls, "select 7;");
        assert!(told.starts_with("ERROR") && !told.contains("7\n"), "{told}");
    };
    refused(stage.gateway.addresses[OTHER_NAME].port(), false);
    let stranger = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
    let settings = config(&stage.controller, &stage.server, &stage.certificates, stranger.authority());
    let other = Gateway::start(Config { identity: "other".to_owned(), ..settings }).await.unwrap();
    for tls in [false, true] {
        refused(other.addresses[VERIFIED].port(), tls);
    }
    // Without a look at the certificate it is let in.
    let port = other.addresses[TLS].port();
    eventually("it is let in", async || stage.says(port, true, "select 7;") == "7\n").await;
    // A server without TLS is not talked to in the clear.
    let plain = spawn_blocking(|| MariaDb::start(&["--skip-ssl"])).await.unwrap().unwrap();
    let settings = config(&stage.controller, &plain, &stage.certificates, stranger.authority());
    let third = Gateway::start(Config { identity: "third".to_owned(), ..settings }).await.unwrap();
    let told = stage.says(third.addresses[TLS].port(), false, "select 7;");
    assert!(told.contains("TLS"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_s_own_connection_is_under_tls_too() {
    let stage = Stage::new().await;
    stage.server.root(&format!("alter user '{}'@'%' require ssl", GATEWAY.0)).unwrap();
    // The authority of the server's certificate comes later, for these connections as for those of clients.
    let trusted = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
    let settings = config(&stage.controller, &stage.server, &stage.certificates, trusted.authority());
    let gateway = Gateway::start(Config { identity: "own".to_owned(), ..settings }).await.unwrap();
    let port = gateway.addresses[VERIFIED].port();
    assert!(stage.says(port, false, "select 7;").starts_with("ERROR"));
    block_in_place(|| std::fs::copy(stage.certificates.authority(), trusted.authority()).unwrap());
    eventually("the server is trusted", async || stage.says(port, false, "select 7;") == "7\n").await;
    let mut admin = login(port, "shop", ROOT).await;
    let rule = "query_limit = (exec_elapsed = '200ms', action = kill)";
    admin.query_drop(format!("create resource group strict ru_per_sec = 100000 {rule}")).await.unwrap();
    admin.query_drop("alter user ann resource group strict").await.unwrap();
    // Its counters are found, and its statement is killed, over a connection that has to be under TLS.
    let mut ann = login(port, "shop", ("ann", "ann")).await;
    eventually("the counters are found", async || {
        let told: Vec<(String, f64, String)> = ann.query("explain ru select 1").await.unwrap();
        told.last().unwrap().2.contains("counted by the kernel")
    })
    .await;
    eventually("a runaway is killed", async || {
        let told = ann.query_drop("select sleep(3)").await;
        told.is_err_and(|error| error.to_string().contains("8253"))
    })
    .await;
    assert_eq!(value::<u32>(&mut ann, "select 42").await, 42);
}
