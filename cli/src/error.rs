//! Why a command failed: one line for people, an exit status for programs.
//!
//! Exit status 1 is a failure or a refusal, 2 is a mistake in how the command was called.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tidegate_client::ConnectError;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No controller answers.
    #[error(
        "cannot reach the controller at {endpoint}: {reason}; is it running? start it with `tidegate controller`, \
         or name another with --endpoint"
    )]
    Unreachable {
        /// Where it was looked for.
        endpoint: String,
        /// What the transport said.
        reason: String,
    },
    /// A controller answers, and there is no TLS with it.
    #[error("cannot speak to the controller at {endpoint}: {reason}")]
    Insecure {
        /// Where it is.
        endpoint: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The endpoint is no address.
    #[error("endpoint {endpoint:?} cannot be used: {reason}; write it like http://127.0.0.1:7420")]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The controller said no; its text says why and what to do.
    #[error("{0}")]
    Refused(String),
    /// The controller is there and cannot do it now, such as write to a full disk.
    #[error("{0}")]
    Unavailable(String),
    /// The request is invalid, whatever the controller's state; the text says why and what to write.
    #[error("{0}")]
    Invalid(String),
    /// The controller answered with something else than its protocol says.
    #[error(
        "the controller at {endpoint} left out {what}; check that it is the same version as this command"
    )]
    Answer {
        /// The address that answered.
        endpoint: String,
        /// What is missing.
        what: &'static str,
    },
    /// A file.
    #[error("cannot {action} {path}: {error}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
    /// A file that holds something else than expected.
    #[error("{path}: {message}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to write.
        message: String,
    },
    /// Files that define something.
    #[error(transparent)]
    Manifest(#[from] crate::manifest::Faults),
    /// The command was called wrongly in a way that the parser cannot see.
    #[error("{0}")]
    Usage(String),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    /// The database.
    #[error("database: {0}")]
    Database(#[from] rusqlite::Error),
    /// The node's session.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The node's group.
    #[error(transparent)]
    Group(#[from] tidegate_client::GroupError),
    /// The lab has no answer.
    #[error(transparent)]
    Lab(#[from] tidegate_lab::policies::LabError),
    /// A process or a thread could not be started or did not end well.
    #[error("{what}: {reason}")]
    Process {
        /// The process.
        what: String,
        /// What happened.
        reason: String,
    },
}

/// Errors in one text, a line each below their count.
pub(crate) fn listed(origin: &str, errors: &[impl fmt::Display]) -> String {
    let lines: Vec<String> = errors.iter().map(|error| format!("\n  {error}")).collect();
    let counted = if errors.len() == 1 { "1 error".to_owned() } else { format!("{} errors", errors.len()) };
    format!("{counted} in {origin}:{}", lines.concat())
}

impl CliError {
    /// No answer of the controller, for a reason that is the operating system's or one of TLS.
    pub(crate) fn away(endpoint: &str, reason: String) -> Self {
        let endpoint = endpoint.to_owned();
        // The reasons of TLS name their remedy.
        let of_tls =
            ["TLS", "certificate", "the key", "PEM", "https://"].iter().any(|word| reason.contains(word));
        if of_tls { Self::Insecure { endpoint, reason } } else { Self::Unreachable { endpoint, reason } }
    }

    /// Exit status of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Invalid(_) | Self::Endpoint { .. } => 2,
            Self::Connect(
                ConnectError::NoEndpoint | ConnectError::Endpoint { .. } | ConnectError::Identity(_),
            ) => 2,
            Self::Lab(error) if error.is_mistake() => 2,
            _ => 1,
        }
    }

    /// It may be gone at the next look, without anyone calling otherwise.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unavailable(_))
    }

    /// The reader of the output went away, as `head` does; nothing is wrong.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Attaches what was tried on which file.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { action, path, error }
    }
}
