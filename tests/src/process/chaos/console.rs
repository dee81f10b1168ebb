//! The real command line, as an operator uses it while things fail.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Longer than the command line itself waits.
const LIMIT: Duration = Duration::from_secs(30);

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The controller has acknowledged it.
    Done,
    /// No answer: it may have been done or not.
    Lost,
    /// The controller said no.
    Refused(String),
}

/// Where commands are run.
#[derive(Clone, Debug)]
pub struct Console {
    /// The binary.
    pub tidegate: PathBuf,
    /// The controller.
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
        } else if said.contains("cannot reach the controller") {
            Reply::Lost
        } else {
            Reply::Refused(format!("{} {}: {}", args.join(" "), output.status, said.trim()))
        }
    }
}
