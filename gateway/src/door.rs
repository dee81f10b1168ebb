//! Where the clients of one upstream come in.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::clock;
use crate::keepalive::Keepalive;
use crate::metrics::Metrics;
use crate::seats::{Seat, Seats};
use crate::stream::Stream;
use crate::workers::Workers;

/// Connections beyond the sessions that are told so; more wait in the kernel's queue.
const MAX_REFUSED: usize = 64;
/// How long each of them may take to say that it speaks the protocol.
const REFUSAL: Duration = Duration::from_secs(3);
/// After an accept that failed, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) workers: Arc<Workers>,
    /// Over all doors.
    pub(crate) seats: Arc<Seats>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) keepalive: Keepalive,
}

impl Door {
    /// Accepts until aborted, and has each connection served by one of the threads: with its seat, or with the reason
    /// why there is none.
    pub(crate) async fn accept<F, S>(self, serve: F)
    where
        F: Fn(Stream, Result<Arc<Seat>, String>) -> S + Clone + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        let refused = Arc::new(Semaphore::new(MAX_REFUSED));
        loop {
            let tcp = match self.listener.accept().await {
                Ok((tcp, _)) => tcp,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Without nodelay a small answer waits for the acknowledgement of the one before.
            let ready = tcp.set_nodelay(true).and_then(|()| self.keepalive.set(&tcp));
            let tcp = match ready.and_then(|()| tcp.into_std()) {
                Ok(tcp) => tcp,
                Err(error) => {
                    tracing::debug!(%error, "a connection went away at once");
                    continue;
                }
            };
            let serve = serve.clone();
            if let Some((seat, gave_way)) = self.seats.enter() {
                if gave_way {
                    self.metrics.turned_away.inc();
                }
                let seat = Arc::new(seat);
                self.workers.serve(tcp, move |tcp| async move {
                    let served = serve(Stream::Tcp(tcp), Ok(Arc::clone(&seat)));
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
                clock::within(REFUSAL, serve(Stream::Tcp(tcp), Err(reason))).await;
                drop(turn);
            });
        }
    }
}
