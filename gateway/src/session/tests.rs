//! What tests of sessions have in common: what they share with others, and connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Listening;
use crate::govern::tests::{PATIENCE, Stage};
use crate::keepalive::Keepalive;
use crate::upstream::Upstream;

/// Longer than the gateway takes for what it must not do yet, and than a peer gets for the last words.
pub(crate) const LATER: Duration = Duration::from_millis(500);

/// What sessions of this stage share, with a database at this place.
pub(crate) fn listening(stage: &Stage, upstream: &str, closing: watch::Receiver<bool>) -> Listening {
    Listening {
        governor: Arc::clone(&stage.governor),
        unowned: Arc::default(),
        upstream: Upstream::parse(upstream).unwrap(),
        acceptor: None,
        connector: None,
        login_timeout: PATIENCE,
        keepalive: Keepalive::after(PATIENCE),
        kills_abandoned: false,
        complaints: Arc::default(),
        closing,
    }
}

/// Within the patience of a test.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Both ends of a connection whose sockets hold little.
pub(crate) async fn narrow() -> (TcpStream, TcpStream) {
    let socket = || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4_096).unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        socket
    };
    let listening = socket();
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listening.listen(1).unwrap();
    let (near, far) = tokio::join!(socket().connect(listener.local_addr().unwrap()), listener.accept());
    (near.unwrap(), far.unwrap().0)
}
