//! The gateway's certificate for its clients, renewed under open sessions.

use std::net::SocketAddr;

use tidegate_gateway::MetricsPage;
use tidegate_test_servers::Certificates;
use tokio::task::{block_in_place, spawn_blocking};
use tokio_postgres::{Client, NoTls};
use tokio_rustls::TlsConnector;

use super::stage::value;
use super::tls::{Stage, trusting};
use crate::common::eventually;
use crate::page::{answer, get};
use crate::ways::{TLS, VERIFIED};

/// A session of ann under TLS, which looks at the gateway's certificate.
async fn session(address: SocketAddr, trusted: &Certificates) -> Client {
    let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(trusting(&trusted.authority(), &["postgresql"]));
    let tls = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
    let mut login = tokio_postgres::Config::new();
    login.user("ann").password("ann").dbname("shop");
    let (client, connection) = login.connect_raw(tls, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Puts other files in the place of a certificate and its key.
fn put(from: &Certificates, to: &Certificates) {
    std::fs::copy(from.certificate(), to.certificate()).unwrap();
    std::fs::copy(from.key(), to.key()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_files_are_in_force_for_new_sessions_and_open_ones_go_on() {
    let served = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
    let next = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
    // The gateway has files of its own, so that the server's stay as they are.
    let files = tidegate_gateway::Certificate { chain: served.certificate(), key: served.key() };
    let page = MetricsPage::at("127.0.0.1:0".parse().unwrap());
    let stage = Stage::with(|config| (config.certificate, config.metrics) = (Some(files), Some(page))).await;
    let first = std::fs::read(served.authority()).unwrap();
    let address = stage.gateway.addresses[TLS];
    let metrics = stage.gateway.metrics_address.unwrap();
    let page = async || answer(metrics, &get("/metrics", "host: localhost\r\n")).await;
    let open = session(address, &served).await;
    assert!(
        page().await.contains(
            "\ntidegate_gateway_tls_certificate_expiry_timestamp_seconds{certificate=\"server\"} 1"
        )
    );

    block_in_place(|| put(&next, &served));
    let renewed = "tidegate_gateway_tls_reloads_total{outcome=\"renewed\"} 1";
    eventually("renewed files are in force", async || page().await.contains(renewed)).await;
    // psql trusts one authority and refuses the other.
    let says = |authority: &Certificates| {
        let mut psql = stage.psql_trusting(address.port(), &authority.authority());
        String::from_utf8_lossy(&block_in_place(|| crate::common::says(&mut psql, b"select 7;"))).into_owned()
    };
    assert_eq!(says(&next), "7\n");
    assert_eq!(std::fs::read(served.authority()).unwrap(), first, "the former authority is as it was");
    let refused = says(&served);
    assert!(refused.contains("certificate verify failed"), "{refused}");
    assert_eq!(value(&open, "select 8").await, "8", "the session from before goes on");

    // A certificate without its key, and then what is no certificate: the last good one stays in force.
    for wrong in [std::fs::read(stage.certificates.certificate()).unwrap(), b"no PEM".to_vec()] {
        std::fs::write(served.certificate(), wrong).unwrap();
        let before = broken(&page().await);
        eventually("broken files are counted", async || broken(&page().await) > before).await;
        assert_eq!(says(&next), "7\n");
    }
    assert_eq!(value(&open, "select 9").await, "9");
}

/// How often broken files were counted.
fn broken(page: &str) -> u64 {
    let found = page.lines().find_map(|line| {
        line.strip_prefix("tidegate_gateway_tls_reloads_total{outcome=\"broken\"} ")?.trim().parse().ok()
    });
    found.unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_authorities_of_databases_are_in_force_for_new_connections() {
    // The gateway begins with an authority that the server's certificate is not of.
    let trusted = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
    let page = MetricsPage::at("127.0.0.1:0".parse().unwrap());
    let authorities = trusted.authority();
    let stage =
        Stage::with(|config| (config.authorities, config.metrics) = (Some(authorities), Some(page))).await;
    let metrics = stage.gateway.metrics_address.unwrap();
    let page = async || answer(metrics, &get("/metrics", "host: localhost\r\n")).await;
    let says = || stage.says(stage.gateway.addresses[VERIFIED].port(), true, "select 7;");
    let refused = "cannot reach the database";
    assert!(says().contains(refused));
    assert!(page().await.contains("expiry_timestamp_seconds{certificate=\"upstream_ca\"} 1"));

    block_in_place(|| std::fs::copy(stage.certificates.authority(), trusted.authority()).unwrap());
    eventually("the server is trusted", async || says() == "7\n").await;
    block_in_place(|| std::fs::write(trusted.authority(), "no PEM").unwrap());
    let broken = "tidegate_gateway_tls_reloads_total{outcome=\"broken\"} 1";
    eventually("it is said what is broken", async || page().await.contains(broken)).await;
    assert_eq!(says(), "7\n", "the last good authority stays in force");
    let stranger = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
    block_in_place(|| std::fs::copy(stranger.authority(), trusted.authority()).unwrap());
    eventually("the former authority is trusted no more", async || says().contains(refused)).await;
}
