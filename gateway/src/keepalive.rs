//! Whether a peer that says nothing is still there: the kernel asks it, and ends the connection of one that is gone.
//!
//! A machine that loses its power or its network says no goodbye; its session would be held for ever, with its place
//! and the server's. A silent peer is asked after a while, and is gone after [`PROBES`] questions without an answer:
//! twice that while in all. While bytes are on their way the kernel's own limit for their acknowledgement holds instead
//! (`tcp_retries2`, some 15 minutes).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};

/// Questions without an answer after which a peer is gone.
const PROBES: u32 = 4;
/// The kernel counts in seconds, and takes no more than this (`MAX_TCP_KEEPIDLE`).
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(32_767);

/// How long a peer may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keepalive {
    silence: Duration,
}

impl Keepalive {
    /// Asks a peer after so much silence.
    pub(crate) fn after(silence: Duration) -> Self {
        Self { silence: silence.clamp(SHORTEST, LONGEST) }
    }

    /// How long a peer may be silent.
    pub(crate) fn silence(self) -> Duration {
        self.silence
    }

    /// Between two questions.
    pub(crate) fn interval(self) -> Duration {
        (self.silence / PROBES).max(SHORTEST)
    }

    /// Has the kernel do so for all connections that are accepted from this listener, and send what is written to them at
    /// once: else a small answer waits for the acknowledgement of the one before. They take both over from their
    /// listener, which saves each five system calls.
    pub(crate) fn set_for_all(self, listener: impl AsFd) -> io::Result<()> {
        set_tcp_nodelay(&listener, true)?;
        self.set(listener)
    }

    /// Has the kernel do so for this connection.
    pub(crate) fn set(self, tcp: impl AsFd) -> io::Result<()> {
        set_tcp_keepidle(&tcp, self.silence)?;
        set_tcp_keepintvl(&tcp, self.interval())?;
        set_tcp_keepcnt(&tcp, PROBES)?;
        Ok(set_socket_keepalive(&tcp, true)?)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl};

    use super::*;

    #[test]
    fn the_kernel_is_told_when_to_ask_and_takes_any_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!socket_keepalive(&tcp).unwrap());
        for (given, silence, interval) in [(60, 60, 15), (0, 1, 1), (2, 2, 1), (u64::MAX, 32_767, 8_192)] {
            Keepalive::after(Duration::from_secs(given)).set(&tcp).unwrap();
            assert!(socket_keepalive(&tcp).unwrap());
            assert_eq!(tcp_keepidle(&tcp).unwrap(), Duration::from_secs(silence));
            assert_eq!(
                (tcp_keepintvl(&tcp).unwrap().as_secs(), tcp_keepcnt(&tcp).unwrap()),
                (interval, PROBES)
            );
        }
    }

    #[test]
    fn connections_take_over_what_their_listener_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Keepalive::after(Duration::from_secs(60)).set_for_all(&listener).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (tcp, _) = listener.accept().unwrap();
        assert!(socket_keepalive(&tcp).unwrap() && tcp.nodelay().unwrap());
        assert_eq!(tcp_keepidle(&tcp).unwrap(), Duration::from_secs(60));
        assert_eq!((tcp_keepintvl(&tcp).unwrap().as_secs(), tcp_keepcnt(&tcp).unwrap()), (15, PROBES));
    }
}
