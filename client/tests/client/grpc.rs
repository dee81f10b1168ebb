//! Over real sockets.

use std::time::Duration;

use tidegate_client::{Client, ClientFiles, ConnectError, Ru, Usage};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;

use crate::fake::{Fake, eventually, listen};

const PATIENT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_node_works_over_grpc_and_moves_to_the_next_endpoint() {
    let (first, second) = (Fake::new(), Fake::new());
    for fake in [&first, &second] {
        fake.group("g", GroupSpec::capped(Rate::whole(1_000)));
    }
    second.state().epoch = 2;
    let endpoints = [listen(&first).await, listen(&second).await];
    let client = Client::connect(endpoints.clone(), "node-1").await.unwrap();
    assert_eq!(client.stats().link.endpoint, endpoints[0]);
    let group = client.group("g").await.unwrap();
    let permit = group.acquire(Ru::whole(1), PATIENT).await.unwrap();
    let charge = permit.settle(&Usage { cpu_ns: 3_000_000, ..Usage::default() }).total();
    first.until("reported", |state| state.total("g") == charge).await;

    first.go_down();
    eventually("moved", || client.stats().link.connected && client.stats().link.endpoint == endpoints[1])
        .await;
    drop(group.acquire(Ru::whole(1), PATIENT).await.unwrap());
    assert_eq!(client.shutdown().await.unconfirmed, []);
    assert_eq!(second.total("g"), charge + Ru::whole(1));
    assert_eq!(second.state().hellos[0].agent, concat!("tidegate-client/", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn a_client_that_cannot_be_made_says_why() {
    // A port that was free a moment ago and has no listener.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let builder = Client::builder([format!("http://{free}")], "node-1").patience(Duration::from_millis(200));
    let error = builder.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    let said = format!("no controller answered within 200ms (http://{free}: Unavailable: ");
    assert!(error.to_string().starts_with(&said), "{error}");
    let none: [String; 0] = [];
    assert!(matches!(Client::builder(none, "node-1").start(), Err(ConnectError::NoEndpoint)));
    assert!(matches!(Client::builder(["http://a"], "no de").start(), Err(ConnectError::Identity(_))));
    for endpoint in ["", "localhost:7420", "http://[", "ftp://x"] {
        let error = Client::builder([endpoint], "node-1").start().unwrap_err();
        assert!(matches!(error, ConnectError::Endpoint { .. }), "{endpoint}: {error}");
    }
    let files = ClientFiles { authorities: Some("/nowhere/ca.pem".into()), identity: None };
    let plain = Client::builder(["http://a"], "node-1").tls(files.clone());
    assert!(plain.start().is_ok(), "nothing needs the files");
    let error = Client::builder(["http://b", "https://a"], "node-1").tls(files).start().unwrap_err();
    assert!(
        matches!(error, ConnectError::Tls(_)) && error.to_string().contains("/nowhere/ca.pem"),
        "{error}"
    );
    let outside = std::thread::spawn(|| Client::builder(["http://127.0.0.1:1"], "node-1").start());
    assert!(matches!(outside.join().unwrap(), Err(ConnectError::NoRuntime)));
}
