//! Runs the real binary, and a controller of its own on free ports.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_test_servers::said;
use tokio::time::Instant;

/// The binary with an environment of its own.
pub(crate) fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for name in [
        "TIDEGATE_ENDPOINT",
        "TIDEGATE_LOG",
        "TIDEGATE_CA",
        "TIDEGATE_CERT",
        "TIDEGATE_KEY",
        "TIDEGATE_CONTEXT",
        "TIDEGATE_TOKEN",
        "TIDEGATE_TOKEN_FILE",
    ] {
        command.env_remove(name);
    }
    // No user of this machine has a part in it.
    command.env("USER", "tester").env("TIDEGATE_CONTEXTS", "/nonexistent/contexts.toml");
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    tidegate().args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The standard output as text.
pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The standard error as text.
pub(crate) fn err(output: &Output) -> String {
    said::keep(&output.stderr);
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A controller process in a directory of its own; killed when dropped.
pub(crate) struct Controller {
    process: Child,
    pub(crate) endpoint: String,
    pub(crate) rest: String,
    data: TempDir,
}

impl Controller {
    /// Starts one and waits for its addresses.
    pub(crate) fn start() -> Self {
        Self::logging_to(said::log())
    }

    /// The same with more arguments.
    pub(crate) fn with(more: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = command(data.path(), more);
        command.stderr(said::log());
        Self::begun(command, data)
    }

    /// The same, with its log going there.
    pub(crate) fn logging_to(log: Stdio) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = command(data.path(), &[]);
        command.stderr(log);
        Self::begun(command, data)
    }

    /// The same, with a log of this level in its directory.
    pub(crate) fn logging(level: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = command(data.path(), &[]);
        command.stderr(File::create(data.path().join("log")).unwrap()).env("TIDEGATE_LOG", level);
        Self::begun(command, data)
    }

    /// The same with more arguments, and a log of everything in its directory.
    pub(crate) fn talkative(more: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = command(data.path(), more);
        command.stderr(File::create(data.path().join("log")).unwrap()).env("TIDEGATE_LOG", "trace");
        Self::begun(command, data)
    }

    /// The same with at most so many file descriptors, and a log in its directory.
    pub(crate) fn with_descriptors(most: u32) -> Self {
        Self::limited(&format!("ulimit -n {most}"))
    }

    /// The same with limits as bash sets them, and a log in its directory.
    pub(crate) fn limited(limits: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let inner = command(data.path(), &[]);
        let mut command = Command::new("bash");
        command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(inner.get_program());
        command.args(inner.get_args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stderr(File::create(data.path().join("log")).unwrap());
        Self::begun(command, data)
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.data.path().join("log")).unwrap()
    }

    /// A file of its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.data.path().join(name)
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn begun(mut command: Command, data: TempDir) -> Self {
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut address = |prefix: &str| {
            let line = lines.next().unwrap().unwrap();
            line.strip_prefix(prefix).unwrap_or_else(|| panic!("{prefix}: {line}")).to_owned()
        };
        let (endpoint, rest) = (address("grpc "), address("rest "));
        Self { process, endpoint, rest, data }
    }

    /// Kills it at once (`kill -9`).
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops it in order, to be started again.
    pub(crate) fn halt(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert!(self.process.wait().unwrap().success());
    }

    /// Stops it in whatever it does, or lets it go on.
    pub(crate) fn hold(&self, held: bool) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, if held { Signal::STOP } else { Signal::CONT }).unwrap();
    }

    /// Starts it again where it was.
    pub(crate) fn again(&mut self) {
        let listen = self.endpoint.strip_prefix("http://").unwrap();
        let mut process = listening(self.data.path(), listen).stderr(said::log()).spawn().unwrap();
        // It listens once it says so, and says all of it.
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let lines: Vec<String> = lines.take(2).map(Result::unwrap).collect();
        assert_eq!(lines.iter().filter(|line| line.contains("http://")).count(), 2);
        lines[1].strip_prefix("rest ").unwrap().clone_into(&mut self.rest);
        self.process = process;
    }

    /// Its directory.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Runs a command against it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        tidegate().args(["--endpoint", &self.endpoint]).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", err(&output));
        out(&output)
    }

    /// Runs a command that must succeed, and returns its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--output", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// Runs a command that must be refused, and returns what it says.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", out(&output));
        err(&output)
    }

    /// Runs a command that is called wrongly, and returns what it says.
    pub(crate) fn wrong(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", out(&output));
        err(&output)
    }

    /// Ends it as a parent does, and returns its exit status.
    pub(crate) fn stop(mut self) -> Option<i32> {
        drop(self.process.stdin.take());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        said::keep_file(&self.data.path().join("log"));
    }
}

/// Starts a controller process on free ports with more arguments.
pub(crate) fn spawn(data: &Path, more: &[&str]) -> Child {
    command(data, more).stderr(said::log()).spawn().unwrap()
}

fn command(data: &Path, more: &[&str]) -> Command {
    let mut command = listening(data, "127.0.0.1:0");
    command.args(more);
    command
}

fn listening(data: &Path, address: &str) -> Command {
    let mut command = tidegate();
    command
        .args(["controller", "--listen", address, "--http", "127.0.0.1:0", "--until-stdin-ends", "--data"])
        .arg(data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Tries until it is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let began = Instant::now();
    while !check() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        thread::park_timeout(Duration::from_millis(100));
    }
}
