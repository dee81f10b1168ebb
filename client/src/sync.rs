//! The locks and flags of the admission path: the standard library's and tokio's, or under `--cfg shuttle` those of the
//! scheduler that tries out orders of threads.
//!
//! The scheduler does not know tokio's types, which never block a thread. `Notify` is given a place where it may switch
//! threads; a channel's end is read only where a task begins to run, or under a lock.

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{
    sync::{
        Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64},
    },
    thread_local,
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64},
    },
    thread_local,
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use tokio::sync::Notify;

/// Lets others go on, because one of them is waited for.
#[cfg(not(all(test, shuttle)))]
pub(crate) fn pause() {
    std::thread::yield_now();
}

#[cfg(all(test, shuttle))]
pub(crate) fn pause() {
    shuttle::thread::yield_now();
}

/// Tokio's, with a switch of threads before every call.
#[cfg(all(test, shuttle))]
#[derive(Debug, Default)]
pub(crate) struct Notify {
    inner: tokio::sync::Notify,
    switch: AtomicBool,
}

#[cfg(all(test, shuttle))]
impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn inner(&self) -> &tokio::sync::Notify {
        // Any operation of the scheduler's types is a place to switch.
        self.switch.load(std::sync::atomic::Ordering::SeqCst);
        &self.inner
    }

    pub(crate) fn notify_one(&self) {
        self.inner().notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        self.inner().notify_waiters();
    }

    pub(crate) fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.inner().notified()
    }
}
