//! The server's thread behind a connection, when it runs on this machine.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::control::Thread;
use crate::govern::{Backend, Server, Unowned};

/// Names of the server's process.
const SERVERS: [&str; 3] = ["mariadbd", "mysqld", "mysqld-debug"];

/// The process of one server, from the first thread of it that was seen: to find out what a thread belongs to takes six
/// times as long as to look among those of a process that is known.
#[derive(Debug, Default)]
pub(super) struct Home(Mutex<Option<Arc<Process>>>);

/// A database server's process on this machine.
#[derive(Debug)]
struct Process {
    /// Its folder in `/proc`, which is empty from its end on, whatever process has its number then.
    folder: File,
    /// What the server says that its machine is called.
    host: String,
}

impl Home {
    /// Counters of `thread`, provided that it belongs to a database server on this machine: a thread of the same number
    /// proves nothing when the database is elsewhere.
    pub(super) fn backend(&self, thread: &Thread, server: Server, unowned: &Arc<Unowned>) -> Option<Backend> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |process: &Process| Backend::thread(&process.folder, thread.tid, server, unowned);
        if let Some(known) = known.filter(|known| known.host == thread.host)
            && let Some(backend) = of(&known)
        {
            return Some(backend);
        }
        let found = Arc::new(Process::of(thread)?);
        let backend = of(&found)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Some(backend)
    }
}

impl Process {
    /// The process of this thread, if it is a server's.
    fn of(thread: &Thread) -> Option<Self> {
        let here = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        if here.trim_end() != thread.host {
            return None;
        }
        let folder = Path::new("/proc").join(thread.tid.to_string());
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let pid: u32 = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        let folder = Path::new("/proc").join(pid.to_string());
        // Opened before its name is read: behind the folder is one process only.
        let process = Self { folder: File::open(&folder).ok()?, host: thread.host.clone() };
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        SERVERS.contains(&name.trim_end()).then_some(process)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that is called as a database server is, until its input ends.
    fn server() -> Child {
        let named = "printf mysqld >/proc/self/comm && echo ready && read -r line";
        let mut shell = Command::new("sh");
        let mut server =
            shell.args(["-c", named]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        server
    }

    #[test]
    fn threads_of_a_server_that_was_started_again_are_metered() {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim_end().to_owned();
        let home = Home::default();
        let known = || home.0.lock().unwrap().clone().unwrap();
        let counted = |tid| {
            let thread = Thread { tid, host: host.clone() };
            home.backend(&thread, Server::MySql, &Arc::default()).is_some()
        };
        for start in ["first", "second", "third"] {
            let mut server = server();
            let tid = server.id();
            assert!(counted(tid), "the {start} time");
            let before = known();
            assert!(counted(tid));
            assert!(Arc::ptr_eq(&before, &known()), "it is not looked for again");
            // Its input ends.
            server.wait().unwrap();
            assert!(!counted(tid), "it has ended");
        }
    }

    #[test]
    fn a_thread_of_another_machine_or_program_is_not_metered() {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim_end().to_owned();
        let own = Thread { tid: std::process::id(), host: host.clone() };
        let home = Home::default();
        let counted = |thread: &Thread| home.backend(thread, Server::MySql, &Arc::default()).is_some();
        assert!(!counted(&own), "a test is no server");
        assert!(!counted(&Thread { host: "elsewhere".into(), ..own }));
        // As if it were one: its threads are found, on its machine, and no others.
        let process = Process { folder: File::open("/proc/self").unwrap(), host };
        *home.0.lock().unwrap() = Some(Arc::new(process));
        assert!(counted(&own));
        assert!(!counted(&Thread { tid: u32::MAX, ..own.clone() }));
        assert!(!counted(&Thread { host: "elsewhere".into(), ..own.clone() }));
        // Of a process that has ended nothing is found, and who it is now is found out again.
        let mut ended = Command::new("true").spawn().unwrap();
        let folder = File::open(format!("/proc/{}", ended.id())).unwrap();
        ended.wait().unwrap();
        *home.0.lock().unwrap() = Some(Arc::new(Process { folder, host: own.host.clone() }));
        assert!(!counted(&own));
    }
}
