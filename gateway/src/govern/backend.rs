//! The server process or thread behind one connection, as far as it is on this machine: what it uses, by the kernel's
//! own counters.
//!
//! Differences of cumulative counters are charged, so that nothing is lost: what a server does after its answer is seen
//! with the next statement. PostgreSQL's parallel workers are counted with it ([`Workers`]). Of what it wrote its own
//! [`Share`] is charged.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Context;

use rustix::fs::CWD;
use tidegate_client::Usage;
use tokio::time::Instant;

use super::counters::Counters;
use super::parallel::Workers;
use super::share::{Server, Share, Work};
use super::spills::Spills;
use super::unowned::Unowned;

/// Bytes written from which on temporary files are looked for: few that spill write less.
const SPILLS: u64 = 65_536;

/// Distinguishes PostgreSQL's process for one connection from processes of the same number on other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The gateway's end of a TCP connection has this port, which stands in the process's title.
    Port(u16),
    /// A process that listens at the Unix socket and whose child it is.
    Postmaster(u32),
}

/// The server's side of a connection, on this machine.
#[derive(Debug)]
pub(crate) struct Backend {
    own: Counters,
    /// PostgreSQL's process, its workers and their temporary files.
    process: Option<(u32, Workers)>,
    spills: Spills,
    share: Share,
    unowned: Arc<Unowned>,
}

impl Backend {
    /// The PostgreSQL server process `pid`, provided that it is one, and that it serves this connection: a process of
    /// the same number on this machine proves nothing when the database is elsewhere.
    pub(crate) fn postgres(pid: u32, proof: Option<Proof>, unowned: &Arc<Unowned>) -> Option<Self> {
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
        let process = parent.map(|postmaster| (pid, Workers::of(pid, postmaster)));
        let own = Counters::from_here(CWD, &self::process(pid))?;
        Some(Self { process, ..Self::of(own, Server::Postgres, unowned) })
    }

    /// The thread `tid` of the server whose folder in `/proc` this is.
    pub(crate) fn thread(server: &File, tid: u32, kind: Server, unowned: &Arc<Unowned>) -> Option<Self> {
        let own = Counters::from_here(server, Path::new(&format!("task/{tid}")))?;
        Some(Self::of(own, kind, unowned))
    }

    fn of(own: Counters, server: Server, unowned: &Arc<Unowned>) -> Self {
        let (share, unowned) = (Share::new(server), Arc::clone(unowned));
        Self { own, process: None, spills: Spills::default(), share, unowned }
    }

    /// Keeps up with what works for it, while a statement runs that began then.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, began: Instant) {
        self.share.runs(&self.unowned);
        if let Some((_, workers)) = &mut self.process
            && workers.poll(cx, began)
        {
            self.count();
        }
    }

    /// The usage since the last look of a statement that has done `work`.
    pub(crate) fn take(&mut self, work: &Work) -> Usage {
        self.count();
        self.share.so_far(work, self.spills.grown())
    }

    /// The same when it has ended; `goes_on` when its transaction does.
    pub(crate) fn end(&mut self, work: &Work, goes_on: bool) -> Usage {
        if let Some((_, workers)) = &mut self.process {
            self.share.add(&workers.end());
        }
        self.share.add(&self.own.take().unwrap_or_default());
        let used = self.share.end(work, self.spills.grown(), goes_on, &self.unowned);
        self.spills.end();
        used
    }

    /// Counts first and looks at files then, so that the files hold what was counted.
    fn count(&mut self) {
        self.share.add(&self.own.take().unwrap_or_default());
        if let Some((pid, workers)) = &mut self.process {
            self.share.add(&workers.take());
            if self.share.unexplained(self.spills.grown()) >= SPILLS {
                self.spills.find(*pid);
                workers.processes().for_each(|worker| self.spills.find(worker));
            }
            self.share.looked();
        }
    }
}

/// Where the kernel describes a process.
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
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_is_no_server_is_not_metered() {
        let unowned = Arc::default();
        for proof in [None, Some(Proof::Port(1)), Some(Proof::Postmaster(1))] {
            assert!(Backend::postgres(std::process::id(), proof, &unowned).is_none());
            assert!(Backend::postgres(u32::MAX, proof, &unowned).is_none());
        }
        let own = File::open("/proc/self").unwrap();
        assert!(Backend::thread(&own, u32::MAX, Server::MySql, &unowned).is_none());
    }

    /// A process of this title, until it is dropped.
    struct Called(Child);

    impl Drop for Called {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    /// A server elsewhere may have given the number of a process here, of whatever kind.
    #[tokio::test]
    async fn a_process_is_metered_where_its_title_and_its_parent_are_those_of_the_connection_s() {
        let own = std::process::id();
        let (right, wrong) = (Proof::Postmaster(own), Proof::Postmaster(own + 1));
        for (title, proof, metered) in [
            ("postgres: ann shop 127.0.0.1(5555) idle", Proof::Port(5_555), true),
            ("postgres: ann shop 127.0.0.1(5555) idle", Proof::Port(555), false),
            ("proxy 127.0.0.1(5555)", Proof::Port(5_555), false),
            ("postgres: ann shop [local] idle", right, true),
            ("postgres: ann shop [local] idle", wrong, false),
            ("postgres: ann shop 127.0.0.1(5555) idle", right, false),
            ("shell [local]", right, false),
        ] {
            let child = Command::new("cat").arg0(title).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
            let called = Called(child.unwrap());
            // Until then it bears this process's title.
            while std::fs::read(process(called.0.id()).join("cmdline")).unwrap()
                != [title.as_bytes(), &[0]].concat()
            {
                std::thread::yield_now();
            }
            assert_eq!(parent(called.0.id()), Some(own));
            let found = Backend::postgres(called.0.id(), Some(proof), &Arc::default());
            assert_eq!(found.is_some(), metered, "{title} {proof:?}");
            assert!(Backend::postgres(called.0.id(), None, &Arc::default()).is_none(), "{title}");
        }
    }
}
