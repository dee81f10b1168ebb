//! The sockets: who may connect, for how long, and how many sent bytes are held before the sender is known.
//!
//! All listeners work alike, plain or under TLS. A connection must send something soon, in the listener's protocol; a
//! request's head, its body and its answer have a time each, and so has a connection without requests. Connections and
//! the bytes of bodies have budgets. What exceeds a limit is answered in its protocol if possible, closed, and counted
//! by its reason. Without free file descriptors, accepting pauses instead of spinning.
//!
//! Every process with a listener has a page of metrics: [`exposition`] is its format, [`Process`] what it says of the
//! process. [`Upkeep`] keeps its certificates as their files are.

mod bodies;
mod connection;
pub mod exposition;
mod failures;
mod hosts;
mod opening;
mod process;
mod refusal;
#[cfg(test)]
mod served;
mod upkeep;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::Extensions;
use tidegate_tls::{Certificate, Server};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch as flag;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub use bodies::{Bodies, BodyError};
pub use connection::Connection;
pub use failures::Failures;
pub use hosts::Hosts;
pub use process::Process;
pub use upkeep::{TlsMetrics, Upkeep, every, warning};

/// What a client and a listener agree on in a handshake of TLS. A gRPC listener answers HTTP/1.1, too: that it is one.
pub const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Connections that the system may hold until they are accepted; `net.core.somaxconn` caps it. With half of it, a burst
/// of a thousand nodes waits for a retransmission; twice of it is useless beside the cap.
pub const BACKLOG: u32 = 4_096;
/// One address may take one part in this many of all connections, so that others find room: a half, since all nodes may
/// come from behind one address.
const PART_OF_ONE_PEER: usize = 2;
/// Pause after an accept that failed for lack of descriptors or memory. Half of it polls for nothing; with twice of it,
/// a freed descriptor waits noticeably.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between log lines about that.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// The protocol that a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// gRPC, over HTTP/2.
    Grpc,
    /// REST, over HTTP/1.1 or HTTP/2.
    Rest,
}

impl Surface {
    /// The label in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Rest => "rest",
        }
    }
}

/// The metrics of a listener.
pub trait Tally: Send + Sync {
    /// Counts a connection or a request that was closed or refused.
    fn turned_away(&self, surface: Surface, reason: &'static str);
    /// Counts a request, with its outcome: `ok`, `refused` or `failed`.
    fn requested(&self, surface: Surface, outcome: &'static str);
}

/// Opens a listening socket in whose queue `backlog` connections may wait; the standard library's has 128.
pub fn open(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A process that starts again takes its port while connections of the last one linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// What handlers are given of a connection's peer: made once per connection, from the certificate that the handshake
/// verified, if the peer showed one, and from the peer's address.
pub type Greeting = dyn Fn(Option<&Certificate>, SocketAddr) -> Extensions + Send + Sync;

/// A listener, with everything its connections share.
pub struct Door {
    /// The protocol.
    pub surface: Surface,
    /// The handlers.
    pub router: Router,
    /// The counters.
    pub tally: Arc<dyn Tally>,
    /// The budget of bodies, which listeners may share.
    pub bodies: Arc<Bodies>,
    /// Accepted host names.
    pub hosts: Hosts,
    /// Limit of connections at a time.
    pub most: usize,
    /// Address of the controller's other listener, for misdirected callers.
    pub other: Option<SocketAddr>,
    /// TLS, without which no connection is served if it is there; for the other listener, too.
    pub tls: Option<Arc<Server>>,
    /// Who keeps failing to prove who they are; listeners of one process share it.
    pub failures: Arc<Failures>,
    /// What handlers are given of each peer, beyond its address.
    pub greeting: Option<Arc<Greeting>>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("surface", &self.surface)
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

/// Number of connections, in all and from each address.
#[derive(Debug, Default)]
struct Open {
    all: usize,
    peers: BTreeMap<IpAddr, usize>,
}

/// A connection's place among the open ones.
struct Place {
    open: Arc<Mutex<Open>>,
    peer: IpAddr,
}

impl Place {
    fn take(open: &Arc<Mutex<Open>>, peer: IpAddr, most: usize) -> Option<Self> {
        let mut counts = open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = counts.peers.get(&peer).copied().unwrap_or_default();
        if counts.all >= most || of_peer >= most.div_ceil(PART_OF_ONE_PEER) {
            return None;
        }
        counts.all += 1;
        counts.peers.insert(peer, of_peer + 1);
        Some(Self { open: Arc::clone(open), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all = counts.all.saturating_sub(1);
        if let Some(of_peer) = counts.peers.get_mut(&self.peer) {
            *of_peer = of_peer.saturating_sub(1);
            if *of_peer == 0 {
                counts.peers.remove(&self.peer);
            }
        }
    }
}

impl Door {
    /// Address of the other listener, as a URL.
    fn other(&self) -> Option<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.other.map(|address| format!("{scheme}://{address}"))
    }

    /// Serves until `stopped` shows true, and then until every connection has ended.
    pub async fn serve(self, listener: TcpListener, mut stopped: flag::Receiver<bool>) {
        let door = Arc::new(self);
        let (open, mut connections) = (Arc::default(), JoinSet::new());
        let until = stopped.clone();
        let mut starved = Starved::default();
        loop {
            let accepted = tokio::select! {
                // An error means that the sender is gone, which is a stop, too.
                _ = stopped.wait_for(|stopped| *stopped) => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => door.admit(stream, peer, &open, &mut connections, &until),
                Err(error) => door.pause(&error, &mut starved).await,
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    fn admit(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        open: &Arc<Mutex<Open>>,
        connections: &mut JoinSet<()>,
        until: &flag::Receiver<bool>,
    ) {
        if self.failures.is_closed_to(peer.ip()) {
            return self.tally.turned_away(self.surface, "failing");
        }
        let Some(place) = Place::take(open, peer.ip().to_canonical(), self.most) else {
            self.tally.turned_away(self.surface, "full");
            if self.tls.is_none() {
                refusal::full(self.surface, &stream);
            }
            return;
        };
        let (door, until) = (Arc::clone(self), until.clone());
        connections.spawn(async move {
            connection::serve(&door, stream, peer, until).await;
            drop(place);
        });
    }

    async fn pause(&self, error: &io::Error, starved: &mut Starved) {
        // The next accept need not wait for a peer that went away before it was accepted.
        let of_the_peer = [
            io::ErrorKind::ConnectionAborted,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::ConnectionRefused,
        ];
        if of_the_peer.contains(&error.kind()) {
            return;
        }
        self.tally.turned_away(self.surface, "not_accepted");
        starved.pause(self.surface.name(), error).await;
    }
}

/// A listener that can accept nothing, as for want of descriptors: it pauses instead of spinning, and says so now and
/// then.
#[derive(Debug, Default)]
pub struct Starved {
    said: Option<Instant>,
}

impl Starved {
    /// Waits a moment after an accept that failed so.
    pub async fn pause(&mut self, surface: &str, error: &io::Error) {
        let now = Instant::now();
        if self.said.is_none_or(|said| now.duration_since(said) >= SAY_EVERY) {
            self.said = Some(now);
            tracing::error!(
                surface, %error,
                "no connection can be accepted; raise the limit of open files (ulimit -n, LimitNOFILE=) if it is too small"
            );
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_half_of_the_places_and_all_take_no_more_than_there_are() {
        let open = Arc::default();
        let peer = |last| IpAddr::from([10, 0, 0, last]);
        let own: Vec<_> = (0..9).filter_map(|_| Place::take(&open, peer(1), 10)).collect();
        assert_eq!(own.len(), 5);
        let others: Vec<_> = (2..20).filter_map(|last| Place::take(&open, peer(last), 10)).collect();
        assert_eq!(others.len(), 5);
        drop(others);
        assert!(Place::take(&open, peer(1), 10).is_none() && Place::take(&open, peer(2), 10).is_some());
        drop(own);
        let counts = open.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(counts.all == 0 && counts.peers.is_empty());
    }
}
