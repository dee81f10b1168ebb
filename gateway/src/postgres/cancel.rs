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
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if let Some(request) = found {
            request.wanted.store(true, Ordering::Release);
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
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// Forgets a request that came too early.
    pub(super) fn forget(&self) {
        self.wanted.store(false, Ordering::Release);
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
