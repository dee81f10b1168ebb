//! Where the clients of one upstream come in.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_listener::Starved;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::clock;
use crate::complaints::{Complaints, Kind};
use crate::metrics::Metrics;
use crate::proxied::{self, Networks};
use crate::seats::{Seat, Seats};
use crate::stream::Stream;
use crate::workers::Workers;

/// Connections beyond the sessions that get this error at once; more wait in the kernel's queue.
const MAX_REFUSED: usize = 64;
/// How long each of them may take to say that it speaks the protocol.
const REFUSAL: Duration = Duration::from_secs(3);

/// Accepts the clients of one upstream and hands each to a worker.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) workers: Arc<Workers>,
    /// Over all doors.
    pub(crate) seats: Arc<Seats>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) porch: Arc<Porch>,
}

/// The demands on a connection before its protocol begins.
#[derive(Debug)]
pub(crate) struct Porch {
    /// Connections from here begin with a PROXY header.
    pub(crate) proxies: Networks,
    /// Longest time from the first byte to a login.
    pub(crate) login_timeout: Duration,
    pub(crate) complaints: Arc<Complaints>,
}

impl Door {
    /// Accepts until aborted, and has one of the threads serve each connection: with its seat, or with the reason why
    /// it has none.
    pub(crate) async fn accept<F, S>(self, serve: F)
    where
        F: Fn(Stream, SocketAddr, Result<Arc<Seat>, String>) -> S + Clone + Send + Sync + 'static,
        S: Future<Output = ()> + Send,
    {
        let refused = Arc::new(Semaphore::new(MAX_REFUSED));
        let mut starved = Starved::default();
        loop {
            let (tcp, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    starved.pause("sql", &error).await;
                    continue;
                }
            };
            let tcp = match tcp.into_std() {
                Ok(tcp) => tcp,
                Err(error) => {
                    tracing::debug!(%error, "a connection went away at once");
                    continue;
                }
            };
            let (serve, porch) = (serve.clone(), Arc::clone(&self.porch));
            if let Some((seat, gave_way)) = self.seats.enter() {
                if gave_way {
                    self.metrics.turned_away.inc();
                }
                let seat = Arc::new(seat);
                self.workers.serve(tcp, move |tcp| async move {
                    let served = async {
                        if let Some((tcp, client)) = porch.admit(tcp, peer).await {
                            serve(Stream::Tcp(tcp), client, Ok(Arc::clone(&seat))).await;
                        }
                    };
                    if seat.unless_lost(served).await.is_none() {
                        tracing::debug!("a connection that took long to log in gave way");
                    }
                });
                continue;
            }
            self.metrics.turned_away.inc();
            let max = self.seats.max();
            let reason =
                format!("the gateway serves {max} sessions already; close some, or raise max_sessions");
            let Ok(turn) = Arc::clone(&refused).acquire_owned().await else { return };
            self.workers.serve(tcp, move |tcp| async move {
                let refused = async {
                    if let Some((tcp, client)) = porch.admit(tcp, peer).await {
                        serve(Stream::Tcp(tcp), client, Err(reason)).await;
                    }
                };
                clock::within(REFUSAL, refused).await;
                drop(turn);
            });
        }
    }
}

impl Porch {
    /// The connection and its client's address, once a balancer in front of the gateway has sent that.
    async fn admit(&self, mut tcp: TcpStream, peer: SocketAddr) -> Option<(TcpStream, SocketAddr)> {
        if !self.proxies.contains(peer.ip()) {
            return Some((tcp, peer));
        }
        match clock::within(self.login_timeout, proxied::client(&mut tcp)).await {
            Some(Ok(client)) => Some((tcp, client.unwrap_or(peer))),
            // Balancers connect only to see whether the gateway is there.
            Some(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => None,
            Some(Err(error)) => {
                if let Some(left_out) = self.complaints.told(peer.ip(), Kind::Header) {
                    tracing::warn!(%peer, %error, left_out, "a connection of a balancer is closed");
                }
                None
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tidegate_test_servers::HaProxy;
    use tokio::io::AsyncWriteExt as _;
    use tokio::task::spawn_blocking;

    use super::*;
    use crate::govern::tests::eventually;

    /// Connections that are refused: how many came to it, how many are at it, and the most at once.
    #[derive(Default)]
    struct Counts {
        came: AtomicUsize,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    /// One of them, for as long as it lives.
    struct Held(Arc<Counts>);

    impl Held {
        fn new(counts: &Arc<Counts>) -> Self {
            let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
            counts.most.fetch_max(now, Ordering::SeqCst);
            counts.came.fetch_add(1, Ordering::SeqCst);
            Self(Arc::clone(counts))
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.now.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// They hold descriptors for as long as they say nothing.
    #[tokio::test(flavor = "multi_thread")]
    async fn so_many_connections_are_refused_at_once_and_each_of_the_others_when_one_has_gone() {
        const BEHIND: usize = 16;
        let seats = Arc::new(Seats::new(1));
        let (seat, _) = seats.enter().unwrap();
        seat.keep();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for _ in 0..MAX_REFUSED + BEHIND {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let metrics = Arc::new(Metrics::new(1, false));
        let workers = Arc::new(Workers::start(NonZeroUsize::new(2)).unwrap());
        let door =
            Door { listener, workers, seats, metrics: Arc::clone(&metrics), porch: Arc::new(porch(&[])) };
        let (counts, may_go) = (Arc::new(Counts::default()), Arc::new(Semaphore::new(0)));
        let (of_door, leave) = (Arc::clone(&counts), Arc::clone(&may_go));
        let accepting = tokio::spawn(door.accept(move |_, _, seat| {
            assert!(seat.is_err());
            let (held, leave) = (Held::new(&of_door), Arc::clone(&leave));
            async move {
                leave.acquire_owned().await.unwrap().forget();
                drop(held);
            }
        }));
        for gone in 0..=BEHIND {
            // Where more than three seconds pass, some have gone unasked.
            eventually("as many are refused", || counts.came.load(Ordering::SeqCst) >= MAX_REFUSED + gone)
                .await;
            may_go.add_permits(1);
        }
        let most = counts.most.load(Ordering::SeqCst);
        assert!(most <= MAX_REFUSED, "{most}");
        assert_eq!(metrics.turned_away.get(), u64::try_from(clients.len()).unwrap());
        accepting.abort();
    }

    fn porch(networks: &[&str]) -> Porch {
        let proxies = Networks::parse(networks.iter().copied()).unwrap();
        Porch { proxies, login_timeout: Duration::from_secs(60), complaints: Arc::default() }
    }

    #[tokio::test]
    async fn a_connection_is_its_clients_where_a_balancer_names_it() {
        for option in ["send-proxy", "send-proxy-v2"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let balancer = spawn_blocking(move || HaProxy::start(port, option).unwrap()).await.unwrap();
            let client = TcpStream::connect(("127.0.0.1", balancer.port())).await.unwrap();
            // Whether the balancer is up was asked with a connection, too.
            let found = async {
                loop {
                    let (tcp, peer) = listener.accept().await.unwrap();
                    let told = porch(&["::1", "127.0.0.0/8"]).admit(tcp, peer).await;
                    if told.is_some_and(|(_, told)| told == client.local_addr().unwrap()) {
                        return;
                    }
                }
            };
            clock::within(Duration::from_secs(60), found).await.expect(option);
        }
    }

    #[tokio::test]
    async fn who_may_not_tell_is_not_asked_and_who_must_and_does_not_is_sent_away() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (networks, said, admitted) in [
            (&["10.0.0.0/8"][..], &b"PROXY TCP4 10.9.9.9 127.0.0.1 9 9\r\n"[..], true),
            (&["127.0.0.1"], b"PROXY TCP4 10.9.9.9 127.0.0.1 9 9\r\n", true),
            (&["127.0.0.1"], b"\0\0\0\x08\x04\xd2\x16\x2f and more", false),
            (&["127.0.0.1"], b"", false),
        ] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            client.write_all(said).await.unwrap();
            client.shutdown().await.unwrap();
            let (tcp, peer) = listener.accept().await.unwrap();
            let told = porch(networks).admit(tcp, peer).await.map(|(_, told)| told);
            let may_tell = networks == ["127.0.0.1"];
            let expected = if may_tell { "10.9.9.9:9".parse().unwrap() } else { peer };
            assert_eq!(told, admitted.then_some(expected), "{said:?}");
        }
    }
}
