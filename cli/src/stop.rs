//! When a process that serves should end: Ctrl-C, SIGTERM, or the end of the standard input.
//!
//! The end of the standard input is how a parent ends its children, and how they notice that it died.

use std::io::{self, Read as _};
use std::num::NonZeroI32;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::CliError;

/// Names the process without which this one is of no use, to a child of the demo.
pub(crate) const PARENT: &str = "TIDEGATE_KILLED_WITH";

/// Has the kernel kill this process with the parent that says so: one that is killed cannot end its children, and
/// theirs would wait for a controller that ends with them. The parent starts children on its main thread, which lives
/// as long as it.
pub(crate) fn with_parent() -> Result<(), CliError> {
    let Some(parent) = std::env::var(PARENT).ok().and_then(|text| text.parse().ok()) else {
        return Ok(());
    };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| CliError::Process {
        what: "end with the parent".to_owned(),
        reason: error.to_string(),
    })?;
    // It may have died before that.
    if getppid().map(Pid::as_raw_nonzero).map(NonZeroI32::get) == Some(parent) {
        return Ok(());
    }
    Err(CliError::Process { what: "parent".to_owned(), reason: "it has ended".to_owned() })
}

/// Completes when the process should end. With `parent`, Ctrl-C is the parent's to handle and the standard input
/// counts instead.
pub(crate) async fn requested(parent: bool) -> Result<(), CliError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Output)?;
    if parent {
        let ended = stdin_ended();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = ended => {}
        }
        return Ok(());
    }
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(CliError::Output),
    }
}

/// Completes at the end of the standard input. A thread of its own reads, since a read cannot be cancelled.
fn stdin_ended() -> oneshot::Receiver<()> {
    let (sender, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let mut ignored = [0_u8; 256];
        let mut input = io::stdin().lock();
        while !matches!(input.read(&mut ignored), Ok(0) | Err(_)) {}
        // The receiver is gone when the process ends for another reason.
        let _ = sender.send(());
    });
    ended
}
