//! The page of metrics, as scrapers and others ask for it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tidegate_gateway::{Certificate, Config, Gateway, Listener, MetricsPage, StartError, Upstream};
use tidegate_test_servers::Certificates;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;

use crate::common::eventually;
use crate::postgres::tls::trusting;

/// The whole of an answer.
pub(crate) async fn answer(address: SocketAddr, request: &str) -> String {
    said(TcpStream::connect(address).await.unwrap(), request).await
}

async fn said(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

pub(crate) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n")
}

/// A gateway with this page: neither a controller nor a database is needed for it.
fn config(page: MetricsPage) -> Config {
    let nowhere = Upstream::parse("postgres://127.0.0.1:1").unwrap();
    Config {
        endpoints: vec!["http://127.0.0.1:1".to_owned()],
        identity: "gw".to_owned(),
        listeners: vec![Listener { listen: "127.0.0.1:0".parse().unwrap(), upstream: nowhere }],
        metrics: Some(page),
        ..Config::default()
    }
}

#[tokio::test]
async fn the_page_has_the_format_that_is_asked_for_and_answers_to_names_of_its_machine() {
    let gateway = Gateway::start(config(MetricsPage::at("127.0.0.1:0".parse().unwrap()))).await.unwrap();
    let address = gateway.metrics_address.unwrap();

    let classic = answer(address, &get("/metrics", "host: localhost\r\n")).await;
    assert!(classic.contains("content-type: text/plain; version=0.0.4"), "{classic}");
    assert!(classic.contains("# TYPE tidegate_gateway_statements_total counter\n"), "{classic}");
    assert!(classic.contains("\nprocess_cpu_seconds_total ") && !classic.contains("# EOF"), "{classic}");
    let accept = "host: 127.0.0.1\r\naccept: application/openmetrics-text;version=1.0.0,text/plain\r\n";
    let open = answer(address, &get("/metrics", accept)).await;
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.contains("# TYPE tidegate_gateway_statements counter\n"), "{open}");
    assert!(open.contains("tidegate_gateway_page_requests_total{outcome=\"ok\"} 1"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");

    let foreign = answer(address, &get("/metrics", "host: evil.example\r\n")).await;
    assert!(
        foreign.starts_with("HTTP/1.1 421 ") && foreign.contains("evil.example is not a name"),
        "{foreign}"
    );
    let absent = answer(address, &get("/", "host: localhost\r\n")).await;
    assert!(absent.starts_with("HTTP/1.1 404 ") && absent.contains("see /metrics"), "{absent}");
    let tls = answer(address, "\u{16}\u{3}\u{1}").await;
    assert!(tls.contains("does not speak TLS"), "{tls}");
    let counted = answer(address, &get("/metrics", "host: localhost\r\n")).await;
    for line in [
        "tidegate_gateway_page_requests_total{outcome=\"refused\"} 2",
        "tidegate_gateway_page_turned_away_total{reason=\"wrong_protocol\"} 1",
    ] {
        assert!(counted.contains(line), "{line}: {counted}");
    }
    gateway.shutdown().await;
}

/// Writes a token, for its owner only.
fn put(path: &Path, token: &str) {
    fs::write(path, token).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn the_page_may_be_under_tls_and_for_those_who_show_a_token() {
    let certificates = spawn_blocking(|| Certificates::new("DNS:localhost").unwrap()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (token, first, second) = (folder.path().join("page.token"), "1".repeat(32), "2".repeat(32));
    put(&token, &first);
    let page = MetricsPage {
        certificate: Some(Certificate { chain: certificates.certificate(), key: certificates.key() }),
        token: Some(token.clone()),
        ..MetricsPage::at("0.0.0.0:0".parse().unwrap())
    };
    let gateway = Gateway::start(config(page)).await.unwrap();
    let address: SocketAddr = ([127, 0, 0, 1], gateway.metrics_address.unwrap().port()).into();
    let connector = TlsConnector::from(trusting(&certificates.authority(), &["http/1.1"]));
    let ask = async |authorization: &str| {
        let tcp = TcpStream::connect(address).await.unwrap();
        let tls = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
        said(tls, &get("/metrics", &format!("host: gw.example\r\n{authorization}"))).await
    };
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    let served = ask(&bearer(&first)).await;
    let ends = "\ntidegate_gateway_tls_certificate_expiry_timestamp_seconds{certificate=\"page\"} 1";
    assert!(served.starts_with("HTTP/1.1 200 ") && served.contains(ends), "{served}");
    let basic = format!("authorization: Basic {first}\r\n");
    for wrong in ["", &bearer(&second), &bearer(""), &basic] {
        let refused = ask(wrong).await;
        assert!(
            refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: Bearer"),
            "{refused}"
        );
        assert!(
            refused.contains("metrics_token_file") && !refused.contains("tidegate_gateway_"),
            "{refused}"
        );
    }
    let plain = answer(address, &get("/metrics", "host: localhost\r\n")).await;
    assert!(plain.contains(tidegate_tls::ONLY_TLS), "{plain}");
    // Another token in the file counts, and the former one does not.
    put(&token, &second);
    eventually("the new token counts", async || ask(&bearer(&second)).await.starts_with("HTTP/1.1 200 "))
        .await;
    assert!(ask(&bearer(&first)).await.starts_with("HTTP/1.1 401 "));
    let counted = ask(&bearer(&second)).await;
    let reason = |reason: &str| format!("tidegate_gateway_page_turned_away_total{{reason=\"{reason}\"}} ");
    assert!(counted.contains(&(reason("unauthenticated") + "1")), "{counted}");
    assert!(
        counted.contains(&reason("bad_token")) && counted.contains(&(reason("wrong_protocol") + "1")),
        "{counted}"
    );
    gateway.shutdown().await;
}

#[tokio::test]
async fn beyond_the_own_machine_the_page_lacks_nothing_that_nobody_gave_up() {
    let (certificate, token) = (Certificate { chain: "c".into(), key: "k".into() }, "t");
    for (tls, proof, plain, open) in
        (0..16).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0, bits & 8 > 0))
    {
        let page = MetricsPage {
            certificate: tls.then(|| certificate.clone()),
            token: proof.then(|| token.into()),
            plaintext_off_loopback: plain,
            anonymous_off_loopback: open,
            ..MetricsPage::at("0.0.0.0:0".parse().unwrap())
        };
        // What clients of the database may do says nothing of the page.
        let config = Config { allow_remote: true, ..config(page.clone()) };
        let said: Vec<String> = config.exposed().map(|error| error.to_string()).collect();
        let said = said.join("\n");
        assert_eq!(said.contains("metrics_tls_cert"), !tls && !plain, "{page:?}: {said}");
        assert_eq!(said.contains("metrics_token_file"), !proof && !open, "{page:?}: {said}");
        let own = MetricsPage { listen: "127.0.0.2:0".parse().unwrap(), ..page };
        assert_eq!(self::config(own).exposed().count(), 0);
    }
    let error = Gateway::start(config(MetricsPage::at("0.0.0.0:0".parse().unwrap()))).await.err().unwrap();
    assert!(matches!(error, StartError::Page { .. }), "{error}");
}
