//! What metering needs of the kernel: CPU time without system calls, bytes of a thread, and of a database's processes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::Finding;

const AREA: &str = "metering";
/// Processes that are looked at; a machine with more has other tools.
const MAX_PROCESSES: usize = 100_000;
/// `perf_event_paranoid` up to which a process may watch its own threads.
const PARANOID: i64 = 2;

/// What is known about metering.
#[derive(Clone, Debug)]
pub(crate) struct MeterFacts {
    /// `kernel.perf_event_paranoid`; `None` where there are no such events.
    pub(crate) paranoid: Option<i64>,
    /// Why `/proc/thread-self/io` is not read, if so.
    pub(crate) own_io: Result<(), String>,
    /// Servers of databases that run here, one of each name.
    pub(crate) servers: Vec<Server>,
}

/// A server of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) user: u32,
    /// Its counters of bytes can be read.
    pub(crate) readable: bool,
}

pub(crate) fn gather() -> MeterFacts {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let own = fs::read_to_string("/proc/thread-self/io");
    MeterFacts {
        paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
        own_io: own.map(drop).map_err(|error| error.to_string()),
        servers: servers(Path::new("/proc")),
    }
}

fn servers(proc: &Path) -> Vec<Server> {
    let mut found: Vec<Server> = Vec::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten().take(MAX_PROCESSES) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim().to_owned();
        let known = ["postgres", "mysqld", "mariadbd"].contains(&name.as_str());
        if !known || found.iter().any(|server| server.name == name) {
            continue;
        }
        let user = fs::metadata(entry.path()).map(|folder| folder.uid()).unwrap_or_default();
        let readable = fs::read_to_string(entry.path().join("io")).is_ok();
        found.push(Server { name, pid, user, readable });
    }
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    found
}

pub(crate) fn judge(facts: &MeterFacts) -> Vec<Finding> {
    let mut findings = vec![match facts.paranoid {
        Some(level) if level <= PARANOID => {
            Finding::ok(AREA, format!("CPU time without system calls: kernel.perf_event_paranoid is {level}"))
        }
        Some(level) => Finding::warning(
            AREA,
            format!("each reading of CPU time is a system call: kernel.perf_event_paranoid is {level}"),
            "sysctl -w kernel.perf_event_paranoid=2",
        ),
        None => Finding::warning(
            AREA,
            "each reading of CPU time is a system call: this kernel has no perf events",
            "nothing needs to be done; it costs a few hundred nanoseconds for each operation",
        ),
    }];
    findings.push(match &facts.own_io {
        Ok(()) => Finding::ok(AREA, "bytes read and written of each thread: /proc/thread-self/io"),
        Err(error) => Finding::warning(
            AREA,
            format!("only logical bytes are counted: /proc/thread-self/io: {error}"),
            "let the process see /proc: without hidepid, and with task I/O accounting in the kernel",
        ),
    });
    findings.extend(facts.servers.iter().map(|server| {
        let Server { name, pid, user, readable } = server;
        if *readable {
            Finding::ok(AREA, format!("{name} (process {pid}): its bytes can be counted by a gateway of this user"))
        } else {
            Finding::warning(
                AREA,
                format!("{name} (process {pid}, user {user}): a gateway of this user counts bytes on the wire only"),
                "run the gateway as the server's user or as root",
            )
        }
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn what_metering_lacks_is_named() {
        let server = |readable| Server { name: "postgres".into(), pid: 7, user: 26, readable };
        let verdicts = |paranoid, own_io, servers| -> Vec<Verdict> {
            let facts = MeterFacts { paranoid, own_io, servers };
            judge(&facts).iter().map(|finding| finding.verdict).collect()
        };
        assert_eq!(verdicts(Some(2), Ok(()), vec![server(true)]), [Verdict::Ok; 3]);
        assert_eq!(verdicts(Some(3), Err("no".into()), vec![server(false)]), [Verdict::Warning; 3]);
        assert_eq!(verdicts(None, Ok(()), Vec::new()), [Verdict::Warning, Verdict::Ok]);
    }

    #[test]
    fn servers_are_found_by_their_names() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, name, io) in [("12", "mysqld\n", true), ("13", "bash\n", true), ("14", "postgres\n", false)]
        {
            let folder = proc.path().join(pid);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("comm"), name).unwrap();
            if io {
                fs::write(folder.join("io"), "rchar: 1\n").unwrap();
            }
        }
        fs::create_dir(proc.path().join("sys")).unwrap();
        let found = servers(proc.path());
        let found: Vec<_> =
            found.iter().map(|server| (server.name.as_str(), server.pid, server.readable)).collect();
        assert_eq!(found, [("mysqld", 12, true), ("postgres", 14, false)]);
    }
}
