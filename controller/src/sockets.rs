//! The sockets on which a controller listens, which stay open while its role changes: who connects meanwhile waits.

use std::io;
use std::net::SocketAddr;

use tidegate_listener::BACKLOG;
use tokio::net::TcpListener;

use crate::config::Config;
use crate::server::StartError;

/// Both of them.
#[derive(Debug)]
pub(crate) struct Sockets {
    grpc: Socket,
    http: Socket,
}

#[derive(Debug)]
struct Socket {
    /// The setting.
    key: &'static str,
    address: SocketAddr,
    socket: std::net::TcpListener,
}

impl Sockets {
    /// Listens where the settings say.
    ///
    /// # Errors
    /// A port is in use, or the address is none of this machine.
    pub(crate) fn open(config: &Config) -> Result<Self, StartError> {
        let grpc = Socket::open("grpc_listen", config.grpc_listen)?;
        Ok(Self { grpc, http: Socket::open("http_listen", config.http_listen)? })
    }

    /// Where they listen: for gRPC and for REST.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        [self.grpc.address, self.http.address]
    }

    /// Listeners on them, for one role. What connects after their end waits for the next ones.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub(crate) fn listeners(&self) -> Result<[TcpListener; 2], StartError> {
        Ok([self.grpc.listener()?, self.http.listener()?])
    }
}

impl Socket {
    fn open(key: &'static str, address: SocketAddr) -> Result<Self, StartError> {
        let failed = |reason: io::Error| StartError::Listen { key, address, reason };
        let socket = tidegate_listener::open(address, BACKLOG).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self { key, address, socket: socket.into_std().map_err(failed)? })
    }

    fn listener(&self) -> Result<TcpListener, StartError> {
        let listener = self.socket.try_clone().and_then(TcpListener::from_std);
        listener.map_err(|reason| StartError::Listen { key: self.key, address: self.address, reason })
    }
}
