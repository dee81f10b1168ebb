//! The page of metrics, as scrapers and others ask for it.

use std::net::SocketAddr;

use tidegate_gateway::{Config, Gateway, Listener, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The whole of an answer.
async fn answer(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\n{headers}connection: close\r\n\r\n")
}

#[tokio::test]
async fn the_page_has_the_format_that_is_asked_for_and_answers_to_names_of_its_machine() {
    // Neither a controller nor a database is needed for it.
    let nowhere = Upstream::parse("postgres://127.0.0.1:1").unwrap();
    let config = Config {
        endpoints: vec!["http://127.0.0.1:1".to_owned()],
        identity: "gw".to_owned(),
        listeners: vec![Listener { listen: "127.0.0.1:0".parse().unwrap(), upstream: nowhere }],
        metrics: Some("127.0.0.1:0".parse().unwrap()),
        ..Config::default()
    };
    let gateway = Gateway::start(config).await.unwrap();
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
