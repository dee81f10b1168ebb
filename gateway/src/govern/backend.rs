//! The server process or thread behind one connection, as far as it is on this machine: what it uses, by the kernel's
//! own counters.
//!
//! Differences of cumulative counters are charged, so that nothing is lost: what a server does after its answer is seen
//! with the next statement. PostgreSQL's parallel workers are counted with it ([`Workers`]).

use std::path::PathBuf;
use std::task::Context;

use tidegate_client::Usage;
use tokio::time::Instant;

use super::counters::Counters;
use super::parallel::Workers;

/// What tells PostgreSQL's process for one connection from others of the same number on other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The gateway's end of a TCP connection has this port, which stands in the process's title.
    Port(u16),
    /// At the Unix socket listens this process, whose child it is.
    Postmaster(u32),
}

/// The server's side of a connection, on this machine.
#[derive(Debug)]
pub(crate) struct Backend {
    own: Counters,
    workers: Option<Workers>,
}

impl Backend {
    /// The PostgreSQL server process `pid`, provided that it is one, and that it serves this connection: a process of
    /// the same number on this machine proves nothing when the database is elsewhere.
    pub(crate) fn postgres(pid: u32, proof: Option<Proof>) -> Option<Self> {
        let title = std::fs::read(process(pid).join("cmdline")).ok()?;
        let title = String::from_utf8_lossy(&title);
        let parent = parent(pid);
        let serves = match proof? {
            Proof::Port(port) => title.contains(&format!("({port})")),
            Proof::Postmaster(postmaster) => title.contains("[local]") && parent == Some(postmaster),
        };
        if !title.starts_with("postgres") || !serves {
            return None;
        }
        let workers = parent.map(|postmaster| Workers::of(pid, postmaster));
        Some(Self { own: Counters::from_here(&process(pid))?, workers })
    }

    /// The thread `tid` of a server in one process, provided that it is a thread of the process that listens.
    pub(crate) fn thread(pid: u32, tid: u32) -> Option<Self> {
        Some(Self { own: Counters::from_here(&process(pid).join(format!("task/{tid}")))?, workers: None })
    }

    /// Keeps up with what works for it, while a statement runs that began then.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, began: Instant) {
        if let Some(workers) = &mut self.workers {
            workers.poll(cx, began);
        }
    }

    /// What was used since the last look.
    pub(crate) fn take(&mut self) -> Usage {
        let used = self.own.take().unwrap_or_default();
        self.workers.as_mut().map_or(used, |workers| used.plus(&workers.take()))
    }

    /// The same when a statement has ended.
    pub(crate) fn end(&mut self) -> Usage {
        let used = self.own.take().unwrap_or_default();
        self.workers.as_mut().map_or(used, |workers| used.plus(&workers.end()))
    }
}

/// Where the kernel tells of a process.
pub(super) fn process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The parent of a process: the fourth field of `stat`, behind the name in parentheses.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(process(pid).join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_no_server_is_not_metered() {
        for proof in [None, Some(Proof::Port(1)), Some(Proof::Postmaster(1))] {
            assert!(Backend::postgres(std::process::id(), proof).is_none());
            assert!(Backend::postgres(u32::MAX, proof).is_none());
        }
        assert!(Backend::thread(std::process::id(), u32::MAX).is_none());
    }
}
