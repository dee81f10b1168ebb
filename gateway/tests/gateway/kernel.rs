//! Bytes written, as the kernel and the gateway's own page count them, beside what was charged.

use std::fmt::Display;

use tidegate_gateway::Gateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes through `write` calls of a process or thread until now.
pub(crate) fn written(process: impl Display) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse().unwrap()
}

/// The first number that `EXPLAIN RU` shows for a part.
pub(crate) fn bytes(used: &str) -> u64 {
    used.split_once(" bytes").unwrap().0.parse().unwrap()
}

/// Bytes that sessions of this gateway wrote so far and that are charged to no session.
pub(crate) async fn unowned(gateway: &Gateway) -> u64 {
    let mut page = TcpStream::connect(gateway.metrics_address.unwrap()).await.unwrap();
    page.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    page.read_to_string(&mut text).await.unwrap();
    let count = |name: &str| -> u64 {
        let name = format!("tidegate_gateway_written_{name}_others_bytes_total ");
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    };
    count("for") - count("by")
}
