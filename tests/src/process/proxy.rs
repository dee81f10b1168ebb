//! A TCP proxy between one node and the controller that behaves like a bad network.
//!
//! Each way can be late, slow or cut. Bytes sent into a cut way are kept and delivered when the cut ends, as TCP
//! retransmits them, unless the connections are dropped before. Both ways of all connections share one weather.
//!
//! A cut holds for every byte that is forwarded after [`Proxy::set`] has returned, on old and new connections.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::error::{ClusterError, io};

/// Bytes read at once.
const CHUNK: usize = 16 * 1024;
/// Chunks on their way; more and the sender is held up, as by a full socket.
const IN_FLIGHT: usize = 64;
/// Pieces a slow way forwards per second.
const PIECES_PER_S: u32 = 20;

/// One way of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Added to every byte.
    pub delay: Duration,
    /// Bytes per second; `None` is as fast as it goes.
    pub bytes_per_s: Option<u32>,
    /// Nothing passes.
    pub cut: bool,
    /// Grows with every half-close: what is open then forwards an end and nothing more.
    pub closed: u64,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// The way from the node to the controller.
    pub up: Way,
    /// The way from the controller to the node.
    pub down: Way,
    /// Grows whenever all connections are dropped.
    pub dropped: u64,
}

/// The link of one node. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of the loopback and forwards to `upstream`.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(upstream: SocketAddr) -> Result<Self, ClusterError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io("open a proxy's listener"))?;
        let address = listener.local_addr().map_err(io("open a proxy's listener"))?;
        let weather = watch::Sender::new(Weather::default());
        let seen = weather.subscribe();
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(connection(near, upstream, seen.clone()));
            }
        });
        Ok(Self { address, weather, task })
    }

    /// Where the node connects to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The weather now.
    pub fn weather(&self) -> Weather {
        *self.weather.borrow()
    }

    /// Changes the weather.
    pub fn set(&self, change: impl FnOnce(&mut Weather)) {
        self.weather.send_modify(change);
    }

    /// Closes all connections at once.
    pub fn drop_all(&self) {
        self.set(|weather| weather.dropped += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.drop_all();
    }
}

/// Which way of the weather a pump obeys.
type Select = fn(&Weather) -> Way;

async fn connection(near: TcpStream, upstream: SocketAddr, mut weather: watch::Receiver<Weather>) {
    let dropped = weather.borrow().dropped;
    let pumps = weather.clone();
    let serve = async {
        let Ok(far) = TcpStream::connect(upstream).await else {
            return;
        };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let (near_in, near_out) = near.into_split();
        let (far_in, far_out) = far.into_split();
        let (up, down): (Select, Select) = (|weather| weather.up, |weather| weather.down);
        tokio::join!(pump(near_in, far_out, pumps.clone(), up), pump(far_in, near_out, pumps, down));
    };
    tokio::select! {
        () = serve => {}
        // An error means that the proxy is gone.
        _ = weather.wait_for(|weather| weather.dropped != dropped) => {}
    }
}

/// Forwards one way until its source ends.
async fn pump(from: OwnedReadHalf, to: OwnedWriteHalf, weather: watch::Receiver<Weather>, way: Select) {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    tokio::join!(read(from, sender, weather.clone(), way), write(to, receiver, weather, way));
}

/// Notes when each chunk is to arrive. Goes on reading when the peer writes no more, as a half-closed peer does.
async fn read(
    mut from: OwnedReadHalf,
    sender: mpsc::Sender<(Instant, Vec<u8>)>,
    weather: watch::Receiver<Weather>,
    way: Select,
) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let at = Instant::now() + way(&weather.borrow()).delay;
        let chunk = buffer.get(..length).unwrap_or_default().to_vec();
        let _ = sender.send((at, chunk)).await;
    }
}

async fn write(
    mut to: OwnedWriteHalf,
    mut receiver: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut weather: watch::Receiver<Weather>,
    way: Select,
) {
    let closed = way(&weather.borrow()).closed;
    let mut closing = weather.clone();
    let forward = async {
        while let Some((at, chunk)) = receiver.recv().await {
            sleep_until(at).await;
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                if weather.wait_for(|weather| !way(weather).cut).await.is_err() {
                    return;
                }
                let speed = way(&weather.borrow()).bytes_per_s;
                let piece = speed.map_or(rest.len(), |bytes| piece_of(bytes).min(rest.len()));
                let (now, later) = rest.split_at(piece);
                if to.write_all(now).await.is_err() {
                    return;
                }
                rest = later;
                if speed.is_some() {
                    sleep(Duration::from_secs(1) / PIECES_PER_S).await;
                }
            }
        }
        // The source has ended; that, too, does not pass a cut.
        let _ = weather.wait_for(|weather| !way(weather).cut).await;
    };
    tokio::select! {
        () = forward => {}
        _ = closing.wait_for(|weather| way(weather).closed != closed) => {}
    }
    let _ = to.shutdown().await;
}

/// Bytes in one piece of a slow way.
fn piece_of(bytes_per_s: u32) -> usize {
    usize::try_from(bytes_per_s / PIECES_PER_S).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that echoes, and a connection to it through a proxy.
    async fn echo() -> (Proxy, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        let stream = TcpStream::connect(proxy.address()).await.unwrap();
        (proxy, stream)
    }

    async fn say(stream: &mut TcpStream, text: &[u8]) {
        stream.write_all(text).await.unwrap();
    }

    async fn hear(stream: &mut TcpStream, length: usize) -> Vec<u8> {
        let mut heard = vec![0; length];
        stream.read_exact(&mut heard).await.unwrap();
        heard
    }

    async fn silent(stream: &mut TcpStream) -> bool {
        let mut byte = [0];
        tokio::time::timeout(Duration::from_millis(100), stream.read(&mut byte)).await.is_err()
    }

    #[tokio::test]
    async fn either_way_can_be_cut_and_delivers_when_the_cut_ends() {
        let cuts: [fn(&mut Weather) -> &mut bool; 2] = [|w| &mut w.up.cut, |w| &mut w.down.cut];
        let (proxy, mut stream) = echo().await;
        for cut in cuts {
            say(&mut stream, b"one").await;
            assert_eq!(hear(&mut stream, 3).await, b"one");
            proxy.set(|weather| *cut(weather) = true);
            say(&mut stream, b"two").await;
            assert!(silent(&mut stream).await);
            proxy.set(|weather| *cut(weather) = false);
            assert_eq!(hear(&mut stream, 3).await, b"two");
        }
    }

    #[tokio::test]
    async fn a_cut_holds_for_new_connections() {
        let (proxy, _) = echo().await;
        proxy.set(|weather| weather.up.cut = true);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        say(&mut stream, b"new").await;
        assert!(silent(&mut stream).await);
        proxy.set(|weather| *weather = Weather::default());
        assert_eq!(hear(&mut stream, 3).await, b"new");
    }

    #[tokio::test]
    async fn a_late_or_slow_way_takes_its_time_and_keeps_the_order() {
        let (proxy, mut stream) = echo().await;
        proxy.set(|weather| {
            weather.up.delay = Duration::from_millis(80);
            weather.down.bytes_per_s = Some(200);
        });
        let sent = Instant::now();
        say(&mut stream, b"a text of thirty characters...").await;
        assert_eq!(hear(&mut stream, 30).await, b"a text of thirty characters...");
        // Three pieces of ten bytes, with two pauses between.
        assert!(sent.elapsed() >= Duration::from_millis(80 + 100), "{:?}", sent.elapsed());
    }

    #[tokio::test]
    async fn a_half_close_ends_one_way_only() {
        let (proxy, mut stream) = echo().await;
        say(&mut stream, b"in").await;
        assert_eq!(hear(&mut stream, 2).await, b"in");
        proxy.set(|weather| weather.down.closed += 1);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
        // Later connections are whole, and the way up of this one still takes what it is given.
        say(&mut stream, &vec![0; 100_000]).await;
        let mut fresh = TcpStream::connect(proxy.address()).await.unwrap();
        say(&mut fresh, b"new").await;
        assert_eq!(hear(&mut fresh, 3).await, b"new");
    }

    #[tokio::test]
    async fn dropped_connections_end_and_new_ones_work() {
        let (proxy, mut stream) = echo().await;
        say(&mut stream, b"in").await;
        assert_eq!(hear(&mut stream, 2).await, b"in");
        proxy.drop_all();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
        let mut fresh = TcpStream::connect(proxy.address()).await.unwrap();
        say(&mut fresh, b"new").await;
        assert_eq!(hear(&mut fresh, 3).await, b"new");
    }
}
