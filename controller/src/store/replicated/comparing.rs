//! Whether a follower's rows are the owner's: by the hash of a checkpoint.
//!
//! The owner marks the place in the log of which it makes a checkpoint. A follower that comes by there hashes its own
//! rows as of that place, beside all else, and compares when the checkpoint is there. So an increment that was counted
//! wrongly is found within a checkpoint, and stops the follower, which has a wrong copy, not the owner.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use super::super::{Store, StoreError};
use super::checkpoint::{Checkpoint, Content, Pager};
use super::scope;

/// A hash that is being made.
#[derive(Debug)]
pub(super) struct Comparing {
    /// The place that the owner marked.
    n: u64,
    thread: Option<JoinHandle<Result<Content, StoreError>>>,
    content: Option<Content>,
    ends: Arc<AtomicBool>,
}

/// What a comparison came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// It goes on.
    NotYet,
    /// The rows are the owner's, or nobody will ever know.
    Over,
    /// They are others.
    Differs,
}

impl Comparing {
    /// Begins to hash the rows of `local`, which has the log up to number `n`. What is committed there later does not
    /// matter.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn begin(local: Arc<dyn Store>, n: u64, page: usize) -> io::Result<Self> {
        let (begun, has_begun) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let hash = move || {
            let mut begun = Some(begun);
            let mut pager = Pager::new(0, page, |_, _| Ok(()));
            local.copy(&mut |table, key, value| {
                begun.take();
                if is_over.load(Ordering::Relaxed) {
                    return Ok(ControlFlow::Break(()));
                }
                if !scope::is_local(table, key) {
                    pager.row(table, key, value)?;
                }
                Ok(ControlFlow::Continue(()))
            })?;
            pager.finish()
        };
        let thread = Builder::new().name("comparing".to_owned()).spawn(hash)?;
        // Its end of the channel is dropped when it has begun to read, or never will.
        let _: Result<(), _> = has_begun.recv();
        Ok(Self { n, thread: Some(thread), content: None, ends })
    }

    /// Whether there is a hash by now, and the newest checkpoint is to be looked at.
    /// Where it is waited for, it has the time that it takes.
    pub(super) fn is_ready(&mut self, waits: bool) -> Result<bool, StoreError> {
        if !waits && self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(false);
        }
        if let Some(thread) = self.thread.take() {
            let failed = |_| StoreError::Failed {
                operation: "compare it with a checkpoint",
                reason: "the thread for that panicked".to_owned(),
            };
            self.content = Some(thread.join().map_err(failed)??);
        }
        Ok(true)
    }

    /// Compares the hash with that of a checkpoint.
    pub(super) fn with(&self, newest: Option<&Checkpoint>) -> Compared {
        match newest {
            Some(newest) if newest.n == self.n => match &self.content {
                Some(content)
                    if (content.size, content.hash) == (newest.content.size, newest.content.hash) =>
                {
                    Compared::Over
                }
                _ => Compared::Differs,
            },
            Some(newest) if newest.n > self.n => Compared::Over,
            _ => Compared::NotYet,
        }
    }
}

impl Drop for Comparing {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}
