//! The server's thread behind a connection, when it runs on this machine.

use std::path::Path;
use std::sync::Arc;

use super::control::Thread;
use crate::govern::{Backend, Server, Unowned};

/// Names of the server's process.
const SERVERS: [&str; 3] = ["mariadbd", "mysqld", "mysqld-debug"];

/// Counters of `thread`, provided that it belongs to a database server on this machine: a thread of the same number
/// proves nothing when the database is elsewhere.
pub(super) fn backend(thread: &Thread, server: Server, unowned: &Arc<Unowned>) -> Option<Backend> {
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    if here.trim_end() != thread.host {
        return None;
    }
    let folder = Path::new("/proc").join(thread.tid.to_string());
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let name = std::fs::read_to_string(Path::new("/proc").join(format!("{pid}/comm"))).ok()?;
    if !SERVERS.contains(&name.trim_end()) {
        return None;
    }
    Backend::thread(pid, thread.tid, server, unowned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_another_machine_or_program_is_not_metered() {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim_end().to_owned();
        let own = Thread { tid: std::process::id(), host };
        let counted = |thread: &Thread| backend(thread, Server::MySql, &Arc::default()).is_some();
        assert!(!counted(&own), "a test is no server");
        assert!(!counted(&Thread { host: "elsewhere".into(), ..own }));
    }
}
