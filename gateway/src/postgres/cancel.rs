//! Cancelling statements by the key of the server's process, over a connection of its own.
//!
//! A statement that waits for admission has not reached the server; the request goes to its session instead.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::io::AsyncReadExt as _;

use super::key::Key;
use crate::clock;
use crate::stream::Stream;

/// Longest wait for the server to take a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// The code of a request to cancel, between its length and the key.
pub(super) const CODE: u32 = 80_877_102;

/// Sessions by the key that cancels their statements.
#[derive(Debug, Default)]
pub(crate) struct Cancels(Mutex<HashMap<Key, Arc<Request>, RandomState>>);

/// Whether a request asks to cancel a session's statement that waits for admission.
#[derive(Debug, Default)]
pub(super) struct Request {
    wanted: AtomicBool,
    /// The server has acted on it.
    done: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Cancels {
    pub(super) fn enter(&self, key: Key, request: &Arc<Request>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(request));
    }

    pub(super) fn leave(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Passes the request to the session of this key, if it is one of this gateway.
    pub(super) fn tell(&self, key: &Key) {
        self.mark(key, |request| &request.wanted);
    }

    /// The server has acted on the request.
    pub(super) fn done(&self, key: &Key) {
        self.mark(key, |request| &request.done);
    }

    fn mark(&self, key: &Key, what: impl FnOnce(&Request) -> &AtomicBool) {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if let Some(request) = found {
            what(&request).store(true, Ordering::Release);
            let waker = request.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Request {
    /// Whether it was wanted since the last time; else the task is woken when it is.
    pub(super) fn poll(&self, cx: &Context<'_>) -> bool {
        self.heed(&self.wanted, cx)
    }

    /// The same for one that the server has acted on.
    pub(super) fn poll_done(&self, cx: &Context<'_>) -> bool {
        self.heed(&self.done, cx)
    }

    fn heed(&self, what: &AtomicBool, cx: &Context<'_>) -> bool {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        what.swap(false, Ordering::AcqRel)
    }

    /// Forgets a request that came too early.
    pub(super) fn forget(&self) {
        self.wanted.store(false, Ordering::Release);
        self.done.store(false, Ordering::Release);
    }
}

/// The packet that asks for it.
pub(super) fn packet(key: &Key) -> Vec<u8> {
    let length = u32::try_from(key.bytes().len() + 8).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), &CODE.to_be_bytes(), key.bytes()].concat()
}

/// Sends a request and waits until the server has acted on it, which it shows by closing the connection.
pub(super) async fn send(mut stream: Stream, packet: &[u8]) -> io::Result<()> {
    let sent = async {
        stream.send(packet).await?;
        let mut ignored = [0; 64];
        while stream.read(&mut ignored).await? > 0 {}
        Ok(())
    };
    clock::within(PATIENCE, sent).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicU32;
    use std::task::{Poll, Wake};

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::UnixStream;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_request_wakes_the_session_of_its_key_and_is_heeded_once() {
        let key = |process: u8| Key::read(&[0, 0, 0, process, 1, 2, 3, 4]).unwrap();
        let (cancels, request, woken) = (Cancels::default(), Arc::default(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let cx = Context::from_waker(&waker);
        let poll = |request: &Arc<Request>| (request.poll(&cx), woken.0.load(Ordering::Relaxed));
        cancels.enter(key(7), &request);
        assert_eq!(poll(&request), (false, 0));
        cancels.tell(&key(8));
        assert_eq!(poll(&request), (false, 0), "another session's");
        cancels.tell(&key(7));
        assert_eq!(poll(&request), (true, 1));
        assert_eq!(poll(&request), (false, 1));
        cancels.done(&key(7));
        assert_eq!(poll(&request), (false, 2), "that the server has acted on it is another matter");
        assert!(request.poll_done(&cx) && !request.poll_done(&cx));
        cancels.tell(&key(7));
        cancels.done(&key(7));
        request.forget();
        assert_eq!(poll(&request), (false, 3), "it came too early");
        assert!(!request.poll_done(&cx));
        cancels.leave(&key(7));
        cancels.tell(&key(7));
        assert_eq!(poll(&request), (false, 3));
        assert_eq!(Arc::strong_count(&request), 1, "nothing is kept of it");
    }

    /// A statement may just have begun to wait.
    #[test]
    fn a_request_that_comes_before_the_session_looks_is_heeded_when_it_does() {
        let (cancels, request) = (Cancels::default(), Arc::default());
        let key = Key::read(&[0, 0, 0, 7, 1, 2, 3, 4]).unwrap();
        cancels.enter(key.clone(), &request);
        cancels.tell(&key);
        let cx = Context::from_waker(Waker::noop());
        assert!(request.poll(&cx) && !request.poll(&cx));
    }

    #[tokio::test]
    async fn a_request_is_sent_whole_and_done_when_the_server_closes() {
        let (near, mut server) = UnixStream::pair().unwrap();
        let packet = packet(&Key::read(&[0, 0, 0, 7, 1, 2, 3, 4]).unwrap());
        let mut sending = pin!(send(Stream::Unix(near), &packet));
        let mut pending = async || {
            tokio::task::yield_now().await;
            poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx).is_pending())).await
        };
        assert!(pending().await);
        let mut got = vec![0; packet.len()];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(got, packet);
        // Words that no server says.
        server.write_all(&[0; 100]).await.unwrap();
        assert!(pending().await && pending().await, "the server has not acted on it");
        drop(server);
        sending.await.unwrap();
    }
}
