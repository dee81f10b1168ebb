//! The shipped binary beside this one, in processes of their own.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use tidegate_tests::process::child::Process;

use super::error::{BenchError, failed};

/// Between two looks whether a port is served.
const LOOK: Duration = Duration::from_millis(20);
/// Looks before it is given up.
const LOOKS: u32 = 1_000;

/// Where it is.
pub(super) fn tidegate() -> Result<PathBuf, BenchError> {
    let own = std::env::current_exe().map_err(failed("find this binary"))?;
    let tidegate = own.with_file_name("tidegate");
    if tidegate.exists() {
        return Ok(tidegate);
    }
    let problem = format!("{} is not built; run `cargo build --release -p tidegate-cli`", tidegate.display());
    Err(BenchError::Wrong(problem))
}

/// Runs a program and waits until it serves this port; what it prints is kept in the folder.
pub(super) fn serving(command: Command, name: &str, folder: &Path, port: u16) -> Result<Process, BenchError> {
    let process = Process::start(command, name, folder).map_err(failed("run a process"))?;
    for _ in 0..LOOKS {
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(process);
        }
        thread::park_timeout(LOOK);
    }
    Err(BenchError::Wrong(format!("{name} does not listen; {}", process.tail())))
}

/// Bytes of a process in memory.
pub(super) fn resident(process: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).map_err(failed(format!("read {path}")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let kilobytes = kilobytes.ok_or_else(|| BenchError::Wrong("VmRSS is not told".to_owned()))?;
    Ok(kilobytes * 1_024)
}
