//! Proxies that copy bytes: the floor of any proxy written like the gateway, and that of any which meters statements by
//! the kernel's counters.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::error::{BenchError, failed};

/// Connections that may wait to be accepted.
const QUEUE: u32 = 4096;

/// One that runs until it is dropped.
pub(super) struct CopyProxy {
    pub(super) port: u16,
    _runtime: Runtime,
}

impl CopyProxy {
    /// How a table calls one that does nothing else.
    pub(super) const NAME: &str = "proxy that only copies";
    /// And one that reads counters.
    pub(super) const METERING: &str = "the same, reading two counters at each answer";

    /// Starts one in front of this port.
    pub(super) fn start(server: u16) -> Result<Self, BenchError> {
        Self::with(server, Vec::new())
    }

    /// One that reads `schedstat` and `io` whenever the server has sent something: those of the first thread of this
    /// process, as dear as any thread's.
    pub(super) fn metering(server: u16, pid: u32) -> Result<Self, BenchError> {
        let open = |name| File::open(format!("/proc/{pid}/task/{pid}/{name}"));
        let counters = ["schedstat", "io"].into_iter().map(open).collect::<Result<_, _>>();
        Self::with(server, counters.map_err(failed("open the counters of a server; is this root?"))?)
    }

    fn with(server: u16, counters: Vec<File>) -> Result<Self, BenchError> {
        let runtime = Builder::new_multi_thread().enable_all().build().map_err(failed("start a runtime"))?;
        let listener = runtime.block_on(async { listen() }).map_err(failed("listen"))?;
        let port = listener.local_addr().map_err(failed("listen"))?.port();
        let counters: Arc<[File]> = counters.into();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let counters = Arc::clone(&counters);
                // The side that closes first ends the other.
                tokio::spawn(async move { drop(copy(client, server, counters).await) });
            }
        });
        Ok(Self { port, _runtime: runtime })
    }
}

/// With room for all that connect at once, as the gateway has: of those that a full queue drops some hear nothing for
/// ever, where the kernel answered with a SYN cookie and it is the server that speaks first.
fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    socket.listen(QUEUE)
}

async fn copy(mut client: TcpStream, server: u16, counters: Arc<[File]>) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut Answering { server, counters }).await?;
    Ok(())
}

/// The server's side, with counters that are read with every answer.
struct Answering {
    server: TcpStream,
    counters: Arc<[File]>,
}

impl Answering {
    fn server(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().server)
    }
}

impl AsyncRead for Answering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.as_mut().server().poll_read(cx, buf))?;
        for counter in self.counters.iter() {
            counter.read_at(&mut [0; 512], 0)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Answering {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.server().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.server().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.server().poll_shutdown(cx)
    }
}
