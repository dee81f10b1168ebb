//! A proxy that copies bytes and does nothing else: the floor of any proxy written like the gateway.

use std::net::Ipv4Addr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::bench::error::{BenchError, failed};

/// One that runs until it is dropped.
pub(super) struct CopyProxy {
    pub(super) port: u16,
    _runtime: Runtime,
}

impl CopyProxy {
    /// How a table calls it.
    pub(super) const NAME: &str = "proxy that only copies";

    /// In front of this port.
    pub(super) fn start(server: u16) -> Result<Self, BenchError> {
        let runtime = Builder::new_multi_thread().enable_all().build().map_err(failed("start a runtime"))?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.map_err(failed("listen"))?;
        let port = listener.local_addr().map_err(failed("listen"))?.port();
        runtime.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else {
                        return;
                    };
                    if client.set_nodelay(true).is_ok() && server.set_nodelay(true).is_ok() {
                        // Whoever closes first ends the other.
                        drop(copy_bidirectional(&mut client, &mut server).await);
                    }
                });
            }
        });
        Ok(Self { port, _runtime: runtime })
    }
}
