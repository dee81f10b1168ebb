//! A tonic service (gRPC health checks) governed by a controller on port 7420:
//! `cargo run -p tidegate-client --example tonic`.

use tidegate_client::Client;
use tidegate_client::tower::GovernLayer;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect(["http://127.0.0.1:7420"], "tonic-example").await?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Server::builder()
        .layer(GovernLayer::new(client.clone()))
        .add_service(health)
        .serve_with_shutdown("127.0.0.1:50051".parse()?, stop)
        .await?;
    for left in client.shutdown().await.unconfirmed {
        eprintln!("{} of group {} not confirmed", left.ru, left.group);
    }
    Ok(())
}
