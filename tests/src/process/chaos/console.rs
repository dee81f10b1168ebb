//! The real command line, as an operator uses it while things fail.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Longer than the command line itself waits.
const LIMIT: Duration = Duration::from_secs(30);

/// What the command line says when it is not known whether the change was made: no answer, or none of etcd.
const LOST: [&str; 3] = ["cannot reach the controller", "the shared store failed", "is in the log"];
/// What it says when it was not made: nobody leads, or another one than was asked.
const UNDONE: [&str; 3] = ["is a standby", "may have a successor", "has taken the log over"];

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The controller has acknowledged it.
    Done,
    /// No answer: it may have been done or not.
    Lost,
    /// Nobody could do it now, and it was not done.
    Undone,
    /// The controller said no.
    Refused(String),
}

/// Where commands are run.
#[derive(Clone, Debug)]
pub struct Console {
    /// The binary.
    pub tidegate: PathBuf,
    /// The controller; several are separated by commas.
    pub endpoint: String,
}

impl Console {
    /// Runs one command to its end.
    pub async fn run(&self, args: &[&str]) -> Reply {
        let run = Command::new(&self.tidegate)
            .args(args)
            .args(["--endpoint", &self.endpoint])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = match tokio::time::timeout(LIMIT, run).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Reply::Refused(format!("{}: {error}", self.tidegate.display())),
            Err(_) => return Reply::Lost,
        };
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Reply::Done
        } else if LOST.iter().any(|words| said.contains(words)) {
            Reply::Lost
        } else if UNDONE.iter().any(|words| said.contains(words)) {
            Reply::Undone
        } else {
            Reply::Refused(format!("{} {}: {}", args.join(" "), output.status, said.trim()))
        }
    }
}
