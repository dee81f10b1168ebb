//! Bytes that are no request.

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Lab, PATIENCE};

#[tokio::test]
async fn random_bytes_harm_nobody() {
    let lab = Lab::start().await;
    let mut random = StdRng::seed_from_u64(7);
    for round in 0..60 {
        let address = if round % 2 == 0 { lab.running.grpc_addr } else { lab.running.rest_addr };
        let mut bytes: Vec<u8> = (0..random.random_range(1..2_000)).map(|_| random.random()).collect();
        if round % 4 == 0 {
            bytes.splice(0..0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".iter().copied());
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The other side may hang up at any byte.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
    }
    for _ in 0..40 {
        let body: Vec<u8> = (0..random.random_range(1..500)).map(|_| random.random()).collect();
        let (status, _) = lab.http_text("POST", "/v1/groups", "application/json", &body).await;
        assert_eq!(status, 400);
    }
    assert_eq!(lab.http("GET", "/v1/status", None).await.0, 200);
    lab.group("still-works", "5").await;
}
