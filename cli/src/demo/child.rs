//! Child processes of the demo. None outlives it: each ends in order with its standard input, is killed when its handle
//! is dropped, and by the kernel when the demo is killed itself.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdout, Command};

use crate::error::CliError;
use crate::stop;

/// How long a child may take to say that it is ready, and to end when asked.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);

/// A running child.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    /// Where its standard error goes.
    log: PathBuf,
}

impl Child {
    /// Starts this executable with other arguments, its standard error going to `log`.
    pub(crate) fn start(
        name: &str,
        log: &Path,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Self, CliError> {
        let executable = std::env::current_exe().map_err(|error| CliError::Process {
            what: format!("cannot start {name}"),
            reason: error.to_string(),
        })?;
        Self::start_program(name, &executable, log, arguments)
    }

    /// Starts another program, its standard error going to `log`.
    pub(crate) fn start_program(
        name: &str,
        program: &Path,
        log: &Path,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Self, CliError> {
        let failed = |reason: String| CliError::Process { what: format!("cannot start {name}"), reason };
        let errors = File::create(log).map_err(CliError::file("create", log))?;
        let mut process = Command::new(program)
            .args(arguments.into_iter().map(Into::into))
            .env(stop::PARENT, std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            // Ctrl-C in a terminal goes to the demo, which ends its children in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let stdout = process.stdout.take().ok_or_else(|| failed("it has no standard output".to_owned()))?;
        Ok(Self {
            name: name.to_owned(),
            process,
            lines: BufReader::new(stdout).lines(),
            log: log.to_owned(),
        })
    }

    fn failed(&self, reason: impl std::fmt::Display) -> CliError {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().last().map(|line| format!(" (it said: {line})")).unwrap_or_default();
        CliError::Process { what: self.name.clone(), reason: format!("{reason}{last}") }
    }

    /// The next line of its output; `None` at the end.
    pub(crate) async fn line(&mut self) -> Result<Option<String>, CliError> {
        self.lines.next_line().await.map_err(|error| self.failed(error))
    }

    /// Waits for a line that begins with `prefix`, and returns the rest of it.
    pub(crate) async fn expect(&mut self, prefix: &str) -> Result<String, CliError> {
        let found = tokio::time::timeout(WITHIN, async {
            while let Some(line) = self.line().await? {
                if let Some(rest) = line.strip_prefix(prefix) {
                    return Ok(rest.trim().to_owned());
                }
            }
            Err(self.failed(format!("it ended without saying {prefix:?}")))
        });
        match found.await {
            Ok(found) => found,
            Err(_) => Err(self.failed(format!("it did not say {prefix:?} within {WITHIN:?}"))),
        }
    }

    /// Asks it to end, by closing its standard input.
    pub(crate) fn end(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Kills it as `kill -9` does.
    pub(crate) async fn kill(mut self) -> Result<(), CliError> {
        self.process.kill().await.map_err(|error| self.failed(error))
    }

    /// Asks it to end and waits until it has ended well.
    pub(crate) async fn stop(mut self) -> Result<(), CliError> {
        self.end();
        let ended = tokio::time::timeout(WITHIN, self.process.wait()).await;
        match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(self.failed(format!("it ended with {status}"))),
            Ok(Err(error)) => Err(self.failed(error)),
            Err(_) => Err(self.failed(format!("it did not end within {WITHIN:?}"))),
        }
    }
}
