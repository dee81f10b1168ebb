//! When a process that serves should end: Ctrl-C, SIGTERM, or the end of the standard input.
//!
//! The end of the standard input is how a parent ends its children, and how they notice that it died.

use std::io::{self, Read as _};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::CliError;

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
