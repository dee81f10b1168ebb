//! An axum service governed by a controller on port 7420:
//! `cargo run -p tidegate-client --example axum`, then `curl -i -H 'x-tenant: acme' localhost:8080/`.

use axum::routing::get;
use axum::{Extension, Router};
use tidegate_client::tower::{GovernLayer, UsageRecorder};
use tidegate_client::{Client, Usage};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect(["http://127.0.0.1:7420"], "axum-example").await?;
    let routes = Router::new().route("/", get(hello)).layer(GovernLayer::new(client.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
    for left in client.shutdown().await.unconfirmed {
        eprintln!("{} of group {} not confirmed", left.ru, left.group);
    }
    Ok(())
}

/// CPU and response bytes are metered by the layer; what was read elsewhere the handler adds.
async fn hello(Extension(recorder): Extension<UsageRecorder>) -> &'static str {
    recorder.add(&Usage { read_requests: 1, read_bytes: 4_096, ..Usage::default() });
    "hello\n"
}
