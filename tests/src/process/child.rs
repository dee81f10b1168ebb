//! One process under test: killed, stopped, continued, asked to end; its output is kept in a file.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, kill_process, prlimit, waitid,
};
use tidegate_test_servers::said;

use super::error::{ClusterError, PATIENCE, io as io_error};

/// Lines of a log that an error quotes.
const QUOTED: usize = 5;

/// A running process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    output: PathBuf,
    child: Child,
}

impl Process {
    /// Runs a command; what it prints is appended to `<folder>/<name>.out`.
    ///
    /// # Errors
    /// The file or the process cannot be made.
    pub fn start(mut command: Command, name: &str, folder: &Path) -> Result<Self, ClusterError> {
        let output = output_of(folder, name);
        let file =
            OpenOptions::new().create(true).append(true).open(&output).map_err(io_error("open a log"))?;
        let copy = file.try_clone().map_err(io_error("open a log"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(file))
            .stderr(Stdio::from(copy))
            .spawn()
            .map_err(io_error(format!("start {name}")))?;
        Ok(Self { name: name.to_owned(), output, child })
    }

    /// The last lines it wrote.
    pub fn tail(&self) -> String {
        tail(&self.output)
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time of all its threads since its start.
    ///
    /// # Errors
    /// The kernel says nothing of it.
    pub fn processor_time(&self) -> Result<Duration, ClusterError> {
        processor_time(self.id())
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// An error that says how it ended.
    pub fn unexpected(&self, status: ExitStatus) -> ClusterError {
        ClusterError::Ended { what: self.name.clone(), status: status.to_string(), log: self.tail() }
    }

    /// `kill -9`, also of a stopped process; back when it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Stops it; back when no thread of it runs any more. False when it ended meanwhile.
    ///
    /// # Errors
    /// It does not stop.
    pub async fn stop(&mut self) -> Result<bool, ClusterError> {
        self.signal(Signal::STOP);
        let stopped = async {
            loop {
                if self.ended().is_some() {
                    return false;
                }
                if self.stands_still() {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let late = tokio::time::timeout(PATIENCE, stopped).await;
        late.map_err(|_| ClusterError::TooLate { what: format!("stopping {}", self.name), log: self.tail() })
    }

    /// Whether all its threads stand still. Anyone on the machine may let a stopped process go on.
    pub fn stands_still(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.pid().is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))))
    }

    /// Takes away, or gives back, the right to write to files, which a process started with [`Disk::Failing`] sees
    /// as a disk that refuses every write; its standard output and error are files, too.
    ///
    /// # Errors
    /// The limit cannot be set.
    ///
    /// [`Disk::Failing`]: super::cluster::Disk::Failing
    pub fn writes(&self, allowed: bool) -> Result<(), ClusterError> {
        let own = getrlimit(Resource::Fsize);
        let current = if allowed { own.current } else { Some(0) };
        let limit = Rlimit { current, maximum: own.maximum };
        let set = prlimit(self.pid(), Resource::Fsize, limit).map_err(io::Error::from);
        set.map(drop).map_err(io_error(format!("limit what {} writes", self.name)))
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// It does not end in time; it is killed then.
    pub async fn end_within(&mut self, limit: Duration) -> Result<ExitStatus, ClusterError> {
        let ended = async {
            loop {
                if let Some(status) = self.ended() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        match tokio::time::timeout(limit, ended).await {
            Ok(status) => Ok(status),
            Err(_) => {
                self.end();
                Err(ClusterError::TooLate { what: format!("the end of {}", self.name), log: self.tail() })
            }
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Processor time of all threads of a process since its start.
///
/// # Errors
/// The kernel says nothing of it.
pub fn processor_time(process: u32) -> Result<Duration, ClusterError> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).map_err(io_error(format!("read {path}")))?;
    // Behind the name, which may hold anything, come the state and then ten numbers before user and system time.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second()))
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        said::keep_file(&self.output);
    }
}

/// Where a process's output is kept.
pub(crate) fn output_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.out"))
}

/// The last lines of a file.
pub(crate) fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(QUOTED)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_stopped_continued_and_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do date +%s%N; done"]);
        let mut process = Process::start(command, "clock", folder.path()).unwrap();
        let path = output_of(folder.path(), "clock");
        let length = || fs::metadata(&path).unwrap().len();
        let grown = async |from: u64| {
            while length() <= from {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        grown(0).await;
        assert!(!process.stands_still());
        assert!(process.stop().await.unwrap());
        assert!(process.ended().is_none() && process.stands_still());
        process.go_on();
        grown(length()).await;
        assert!(!process.stands_still());
        process.terminate();
        assert!(!process.end_within(PATIENCE).await.unwrap().success());
        assert!(process.tail().lines().count() > 1);
    }
}
