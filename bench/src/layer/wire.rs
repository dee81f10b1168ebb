//! A router behind HTTP on a loopback port, and connections that ask it as fast as it answers.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::TENANT;
use crate::clock::Stopwatch;
use crate::error::{BenchError, failed};

/// Connections, each with one request on its way.
const CONNECTIONS: u64 = 16;
/// What the handler's body is, after the headers.
const END: &[u8] = b"\r\n\r\nok";
/// More than a response takes.
const BUFFER: usize = 1_024;

/// Server and callers, each on a thread of its own.
pub(super) struct Wire {
    callers: Runtime,
    connections: Vec<TcpStream>,
    _server: Runtime,
}

impl Wire {
    pub(super) fn start(router: Router) -> Result<Self, BenchError> {
        let thread = || {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.map_err(failed("start a runtime"))
        };
        let (server, callers) = (thread()?, thread()?);
        let listener = server.block_on(TcpListener::bind("127.0.0.1:0")).map_err(failed("listen"))?;
        let address = listener.local_addr().map_err(failed("listen"))?;
        server.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("bench: the HTTP server ended: {error}");
            }
        });
        let connections = callers.block_on(connect(address))?;
        Ok(Self { callers, connections, _server: server })
    }

    /// `count` requests, shared by the connections.
    pub(super) fn requests(&mut self, count: u64) -> Result<Duration, BenchError> {
        let connections = self.connections.drain(..);
        let each = count.div_ceil(CONNECTIONS);
        let (back, took) = self.callers.block_on(async {
            let watch = Stopwatch::start();
            let mut running = JoinSet::new();
            for connection in connections {
                running.spawn(ask(connection, each));
            }
            let mut back = Vec::new();
            while let Some(ended) = running.join_next().await {
                back.push(ended.map_err(failed("run a connection"))??);
            }
            Ok::<_, BenchError>((back, watch.elapsed()))
        })?;
        self.connections = back;
        // The caller divides by what it asked for.
        let (asked, done) = (count, each * CONNECTIONS);
        let nanos = took.as_nanos() * u128::from(asked) / u128::from(done.max(1));
        Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

async fn connect(address: SocketAddr) -> Result<Vec<TcpStream>, BenchError> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = TcpStream::connect(address).await.map_err(failed("connect"))?;
        connection.set_nodelay(true).map_err(failed("connect"))?;
        connections.push(connection);
    }
    Ok(connections)
}

/// One request after another.
async fn ask(mut connection: TcpStream, count: u64) -> Result<TcpStream, BenchError> {
    let request = format!("GET / HTTP/1.1\r\nhost: bench\r\nx-tenant: {TENANT}\r\n\r\n");
    let mut buffer = [0_u8; BUFFER];
    for _ in 0..count {
        connection.write_all(request.as_bytes()).await.map_err(failed("send a request"))?;
        let mut length = 0;
        loop {
            let rest = buffer.get_mut(length..).unwrap_or_default();
            let read = connection.read(rest).await.map_err(failed("read a response"))?;
            length += read;
            let response = buffer.get(..length).unwrap_or_default();
            if response.ends_with(END) {
                if !response.starts_with(b"HTTP/1.1 200") {
                    return Err(unexpected(response));
                }
                break;
            }
            if read == 0 {
                return Err(unexpected(response));
            }
        }
    }
    Ok(connection)
}

fn unexpected(response: &[u8]) -> BenchError {
    BenchError::Wrong(format!("a request was answered {}", String::from_utf8_lossy(response)))
}
