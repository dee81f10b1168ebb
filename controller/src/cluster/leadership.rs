//! What goes on beside the service while a controller leads: beats, which keep its fence open, and checkpoints of the log.
//!
//! Both run on threads of their own, so that nothing that the service does holds up a beat.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, park_timeout};
use std::time::Duration;

use tidegate_core::units::{Span, Time};
use tokio::sync::watch as flag;
use tokio::task::spawn_blocking;

use super::strict::Gate;
use crate::clock::{Clock, duration};
use crate::leasing::fence::beaten;
use crate::service::{Service, Silence};
use crate::store::StoreError;
use crate::store::replicated::ReplicatedStore;

/// Beats within a fence. With half as many, two that are late end the right to speak; twice as many would only load
/// etcd.
const BEATS: u64 = 5;
/// Between two looks whether a checkpoint is due: the log does not grow much meanwhile.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// The threads of a controller that leads.
pub(super) struct Leadership {
    ending: Arc<AtomicBool>,
    kept: Arc<Kept>,
    threads: Vec<JoinHandle<()>>,
}

impl Leadership {
    /// Begins to write beats, before the service is loaded. `over` shows true when the log has another owner.
    ///
    /// # Errors
    /// The system gives no threads.
    pub(super) fn begin(
        store: &Arc<ReplicatedStore>,
        clock: Clock,
        fence: Span,
        is_strict: bool,
        over: flag::Sender<bool>,
    ) -> std::io::Result<Self> {
        let kept = Arc::new(Kept::new(is_strict.then_some(fence)));
        let mut this = Self { ending: Arc::default(), kept, threads: Vec::new() };
        let beats = Beats::new(Arc::clone(store), clock, fence, Arc::clone(&this.kept), over);
        let ending = Arc::clone(&this.ending);
        this.threads.push(Builder::new().name("beats".to_owned()).spawn(move || beats.go_on(&ending))?);
        let (store, ending) = (Arc::clone(store), Arc::clone(&this.ending));
        let checkpoints = Builder::new().name("checkpoints".to_owned());
        this.threads.push(checkpoints.spawn(move || keep_short(&store, &ending))?);
        Ok(this)
    }

    /// From now on, beats keep the fence of this service open.
    pub(super) fn keeps_open(&self, service: &Arc<Service>) {
        self.kept.open(service);
    }

    /// Ends the threads, and waits until they have let go of the store.
    pub(super) async fn end(self) {
        self.ending.store(true, Ordering::Release);
        let joined = spawn_blocking(move || {
            for thread in self.threads {
                thread.thread().unpark();
                if thread.join().is_err() {
                    tracing::error!("a thread of the leadership panicked");
                }
            }
        });
        // Nothing is left to do where it was cut off.
        let _ = joined.await;
    }
}

/// Leaves the log in order, so that the next owner waits for nobody; but not while a predecessor may still speak, for
/// which the next owner then waits as this one did.
///
/// # Errors
/// The log has another owner, or nobody answered.
pub(super) fn leave(store: &ReplicatedStore, service: &Service) -> Result<(), StoreError> {
    if let Some(silence @ Silence::Predecessor(_)) = service.silence() {
        tracing::warn!("the log is left as after a crash: {silence}");
        return Ok(());
    }
    store.leave()
}

/// What beats keep open: the fence of the service, once that is loaded, and the gate of its answers.
pub(super) struct Kept {
    service: Mutex<(Option<Arc<Service>>, Option<Time>)>,
    /// `None`: answers wait for no beat.
    gate: Option<Arc<Gate>>,
}

impl Kept {
    /// With a fence, answers wait for beats.
    pub(super) fn new(strict: Option<Span>) -> Self {
        Self { service: Mutex::default(), gate: strict.map(|fence| Arc::new(Gate::new(fence))) }
    }

    /// From now on, beats keep the fence of this service open; so does the newest that is stored already.
    pub(super) fn open(&self, service: &Arc<Service>) {
        let mut kept = self.lock();
        if let Some(gate) = &self.gate {
            // It was loaded a moment ago, and has none yet.
            let _ = service.beside().gate.set(Arc::clone(gate));
        }
        if let Some(sent) = kept.1 {
            beaten(service, sent);
        }
        kept.0 = Some(Arc::clone(service));
    }

    /// Notes that the beat that was sent then is stored.
    fn stored(&self, sent: Time) {
        let mut kept = self.lock();
        if let Some(service) = &kept.0 {
            beaten(service, sent);
        }
        kept.1 = Some(sent);
        if let Some(gate) = &self.gate {
            gate.stored(sent);
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Arc<Service>>, Option<Time>)> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beats of a controller that leads.
pub(super) struct Beats {
    store: Arc<ReplicatedStore>,
    clock: Clock,
    pause: Span,
    kept: Arc<Kept>,
    over: flag::Sender<bool>,
    /// The last one was not stored.
    is_failing: bool,
}

impl Beats {
    pub(super) fn new(
        store: Arc<ReplicatedStore>,
        clock: Clock,
        fence: Span,
        kept: Arc<Kept>,
        over: flag::Sender<bool>,
    ) -> Self {
        Self { store, clock, pause: Span(fence.0 / BEATS), kept, over, is_failing: false }
    }

    fn go_on(mut self, ending: &AtomicBool) {
        while !ending.load(Ordering::Acquire) {
            let Some(pause) = self.step() else { return };
            match &self.kept.gate {
                Some(gate) => gate.rest(&self.clock, pause, ending),
                None => park_timeout(duration(pause)),
            }
        }
    }

    /// Writes one beat. Returns when the next is due; `None`: the log has another owner.
    pub(super) fn step(&mut self) -> Option<Span> {
        if let Some(gate) = &self.kept.gate {
            gate.sending();
        }
        let sent = self.clock.now();
        match self.store.beat() {
            Ok(()) => {
                self.kept.stored(sent);
                if self.is_failing {
                    tracing::info!("beats are stored again");
                }
                self.is_failing = false;
            }
            Err(_) if self.store.has_ended() => {
                self.over.send_replace(true);
                return None;
            }
            Err(error) => {
                if let Some(gate) = &self.kept.gate {
                    gate.not_stored();
                }
                if !self.is_failing {
                    tracing::warn!(%error, "a beat was not stored");
                }
                self.is_failing = true;
            }
        }
        let took = self.clock.now().since(sent);
        Some(Span(self.pause.0.saturating_sub(took.0)))
    }
}

/// Writes checkpoints, so that the log stays short.
fn keep_short(store: &ReplicatedStore, ending: &AtomicBool) {
    // Not at once: then the service is loaded, for which nodes wait.
    park_timeout(CHECKPOINT_EVERY);
    while !ending.load(Ordering::Acquire) {
        match store.checkpoint_if_due() {
            Ok(true) => tracing::debug!("a checkpoint of the log is written"),
            Ok(false) => {}
            Err(_) if store.has_ended() => return,
            Err(error) => tracing::warn!(%error, "no checkpoint of the log could be written"),
        }
        park_timeout(CHECKPOINT_EVERY);
    }
}

#[cfg(test)]
mod tests;
