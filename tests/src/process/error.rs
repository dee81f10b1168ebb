//! Why processes cannot be run.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_test_servers::ServerError;

/// How long a process may take to come up, to stop or to end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Why a cluster cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A process, a socket or a file.
    #[error("cannot {what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the operating system said.
        error: io::Error,
    },
    /// No port for a controller.
    #[error("{0}")]
    Port(ServerError),
    /// The binary under test is not there.
    #[error("{0} is not built; run `cargo build -p tidegate-cli` first (with --release for a release run)")]
    NotBuilt(PathBuf),
    /// Nothing of PD is there.
    #[error("{0} is not there; `tests/pd/build` makes it of PD's sources")]
    NoPd(PathBuf),
    /// A process did not do in time what it should.
    #[error("{what} took longer than {PATIENCE:?}; {log}")]
    TooLate {
        /// What was waited for.
        what: String,
        /// The end of the process's log.
        log: String,
    },
    /// A process ended by itself, or otherwise than it was asked to.
    #[error("{what} ended with {status}; {log}")]
    Ended {
        /// The process.
        what: String,
        /// Its exit status.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// The controller refused what it should not.
    #[error("the controller refused to {what}: {reason}")]
    Refused {
        /// What was asked.
        what: String,
        /// What it said.
        reason: String,
    },
}

/// What is waited for, unless it takes too long.
pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = T>) -> Result<T, ClusterError> {
    let late = |_| ClusterError::TooLate { what: what.to_owned(), log: String::new() };
    tokio::time::timeout(PATIENCE, wait).await.map_err(late)
}

/// What was asked and refused.
pub(crate) fn refused(what: &str, reason: impl ToString) -> ClusterError {
    ClusterError::Refused { what: what.to_owned(), reason: reason.to_string() }
}

/// Attaches what was tried.
pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> ClusterError {
    let what = what.into();
    move |error| ClusterError::Io { what, error }
}
