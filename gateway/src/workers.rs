//! The threads that serve sessions. A session stays on the thread it began on, with an event loop of its own: no
//! statement has to wake another thread, which costs more than all that the gateway itself does for a short one.

use std::io;
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The threads; dropping them ends their sessions.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    sessions: Arc<AtomicUsize>,
    _lives: oneshot::Sender<()>,
}

/// Counts a session as long as it lives, however it ends.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts so many threads; one for each core by default.
    pub(crate) fn start(threads: Option<NonZeroUsize>) -> io::Result<Self> {
        let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let workers = (0..threads).map(|number| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (lives, ends) = oneshot::channel::<()>();
            let handle = runtime.handle().clone();
            thread::Builder::new().name(format!("sessions-{number}")).spawn(move || {
                // An error says that the sender is gone, which is what is waited for.
                drop(runtime.block_on(ends));
            })?;
            Ok(Worker { runtime: handle, sessions: Arc::default(), _lives: lives })
        });
        Ok(Self { workers: workers.collect::<io::Result<_>>()? })
    }

    /// Has the thread with the fewest sessions serve this connection.
    pub(crate) fn serve<F, S>(&self, tcp: TcpStream, session: F)
    where
        F: FnOnce(tokio::net::TcpStream) -> S + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        let fewest = self.workers.iter().min_by_key(|worker| worker.sessions.load(Ordering::Relaxed));
        let Some(worker) = fewest else { return };
        worker.sessions.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&worker.sessions));
        worker.runtime.spawn(async move {
            match tokio::net::TcpStream::from_std(tcp) {
                Ok(tcp) => session(tcp).await,
                Err(error) => tracing::warn!(%error, "a connection cannot be served"),
            }
            drop(counted);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn sessions_are_spread_and_end_with_their_threads() {
        let workers = Workers::start(NonZeroUsize::new(2)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (seen, mut threads) = mpsc::unbounded_channel();
        for _ in 0..4 {
            let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            tcp.set_nonblocking(true).unwrap();
            let seen = seen.clone();
            workers.serve(tcp, move |_tcp| async move {
                seen.send(thread::current().name().map(str::to_owned)).unwrap();
                std::future::pending::<()>().await;
                drop(seen);
            });
        }
        drop(seen);
        let mut names = BTreeSet::new();
        for _ in 0..4 {
            names.insert(threads.recv().await.unwrap().unwrap());
        }
        assert_eq!(names, BTreeSet::from(["sessions-0".to_owned(), "sessions-1".to_owned()]));
        let counts: Vec<usize> =
            workers.workers.iter().map(|worker| worker.sessions.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [2, 2]);
        drop(workers);
        assert_eq!(threads.recv().await, None, "no session is left");
    }

    #[tokio::test]
    async fn a_session_that_has_ended_counts_no_more() {
        let workers = Workers::start(NonZeroUsize::new(1)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let sessions = || workers.workers[0].sessions.load(Ordering::Relaxed);
        let (end, ends) = oneshot::channel::<()>();
        workers.serve(tcp, |_tcp| async move { ends.await.unwrap() });
        assert_eq!(sessions(), 1);
        end.send(()).unwrap();
        while sessions() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn there_is_a_thread_for_each_core_by_default() {
        let cores = thread::available_parallelism().unwrap();
        assert_eq!(Workers::start(None).unwrap().workers.len(), cores.get());
    }
}
