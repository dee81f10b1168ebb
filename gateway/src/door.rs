//! Where the clients of one upstream come in.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;
use crate::stream::Stream;
use crate::workers::Workers;

/// Connections beyond the sessions that are told so; more wait in the kernel's queue.
const MAX_REFUSED: usize = 64;
/// After an accept that failed, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) workers: Arc<Workers>,
    /// Places that are free, over all doors.
    pub(crate) sessions: Arc<Semaphore>,
    /// All places.
    pub(crate) max_sessions: usize,
    pub(crate) metrics: Arc<Metrics>,
}

impl Door {
    /// Accepts until aborted, and has each connection served by one of the threads.
    pub(crate) async fn accept<F, S>(self, serve: F)
    where
        F: Fn(Stream, Option<String>) -> S + Clone + Send + 'static,
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
            let tcp = match tcp.set_nodelay(true).and_then(|()| tcp.into_std()) {
                Ok(tcp) => tcp,
                Err(error) => {
                    tracing::debug!(%error, "a connection went away at once");
                    continue;
                }
            };
            let place: OwnedSemaphorePermit;
            let mut reason = None;
            match Arc::clone(&self.sessions).try_acquire_owned() {
                Ok(permit) => place = permit,
                Err(_) => {
                    self.metrics.turned_away.inc();
                    let max = self.max_sessions;
                    reason = Some(format!(
                        "the gateway serves {max} sessions already; close some, or raise max_sessions"
                    ));
                    let Ok(permit) = Arc::clone(&refused).acquire_owned().await else { return };
                    place = permit;
                }
            }
            let serve = serve.clone();
            self.workers.serve(tcp, move |tcp| async move {
                serve(Stream::Tcp(tcp), reason).await;
                drop(place);
            });
        }
    }
}
