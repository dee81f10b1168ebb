//! The kernel's own counters of the server process or thread behind one connection.
//!
//! In: a process id, and for a threaded server a thread id. Out: what it used since the last look: CPU in ns from
//! `schedstat` (readable by anyone), bytes through `read` and `write` calls from `io` (readable by the same user and
//! by root). The files stay open: a look is a `pread` each, 0.3 and 0.7 µs. Differences of cumulative counters are
//! charged, so that nothing is lost: what a server does after its answer is seen with the next statement.
//!
//! PostgreSQL's parallel workers are processes of their own. They are found among the postmaster's children while a
//! statement runs for long ([`Backend::find_workers`]); what one does after the last look before its exit is not seen.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tidegate_client::Usage;

/// Workers of one statement that are followed; PostgreSQL's `max_parallel_workers` is 8 unless raised.
const MAX_WORKERS: usize = 64;
/// Longest content of the files read; both are shorter by far.
const MAX_TEXT: usize = 512;

/// Counters of one process or thread.
#[derive(Debug)]
struct Counted {
    schedstat: File,
    io: Option<File>,
    last: Usage,
}

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
    own: Counted,
    pid: u32,
    postmaster: Option<PathBuf>,
    workers: BTreeMap<u32, Counted>,
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
        let postmaster = parent.map(|parent| process(parent).join(format!("task/{parent}/children")));
        Some(Self { own: Counted::open(&process(pid))?, pid, postmaster, workers: BTreeMap::new() })
    }

    /// The thread `tid` of a server in one process, provided that it is a thread of the process that listens.
    pub(crate) fn thread(pid: u32, tid: u32) -> Option<Self> {
        let own = Counted::open(&process(pid).join(format!("task/{tid}")))?;
        Some(Self { own, pid, postmaster: None, workers: BTreeMap::new() })
    }

    /// What was used since the last look.
    pub(crate) fn take(&mut self) -> Usage {
        let mut used = self.own.take().unwrap_or_default();
        self.workers.retain(|_, worker| match worker.take() {
            Some(more) => {
                used = used.plus(&more);
                true
            }
            None => false,
        });
        used
    }

    /// Looks for parallel workers that began since the last look. Costs tens of microseconds.
    pub(crate) fn find_workers(&mut self) {
        let Some(children) = self.postmaster.as_ref().and_then(|path| std::fs::read_to_string(path).ok())
        else {
            return;
        };
        let mark = format!("parallel worker for PID {}", self.pid);
        for pid in children.split_whitespace().filter_map(|text| text.parse::<u32>().ok()) {
            if pid == self.pid || self.workers.contains_key(&pid) || self.workers.len() >= MAX_WORKERS {
                continue;
            }
            let title = std::fs::read(process(pid).join("cmdline")).unwrap_or_default();
            // The title is padded with zero bytes or spaces.
            let title = String::from_utf8_lossy(&title);
            if title.trim_end_matches(['\0', ' ']).ends_with(&mark)
                && let Some(mut worker) = Counted::open(&process(pid))
            {
                // All a worker did is the statement's.
                worker.last = Usage::default();
                self.workers.insert(pid, worker);
            }
        }
    }
}

impl Counted {
    /// Opens the counters of a process or thread and starts from where they stand.
    fn open(folder: &Path) -> Option<Self> {
        let schedstat = File::open(folder.join("schedstat")).ok()?;
        let io = File::open(folder.join("io")).ok();
        let mut counted = Self { schedstat, io, last: Usage::default() };
        counted.take()?;
        Some(counted)
    }

    /// What was used since the last time; `None` when it has ended.
    fn take(&mut self) -> Option<Usage> {
        let mut text = [0_u8; MAX_TEXT];
        let read = self.schedstat.read_at(&mut text, 0).ok()?;
        let cpu_ns = number(text.get(..read)?)?;
        let mut now = Usage { cpu_ns, ..self.last };
        if let Some(io) = &self.io {
            match io.read_at(&mut text, 0).ok().and_then(|read| bytes(text.get(..read)?)) {
                Some((read_bytes, write_bytes)) => now = Usage { read_bytes, write_bytes, ..now },
                // Not ours to see.
                None => self.io = None,
            }
        }
        let used = now.minus(&self.last).unwrap_or_default();
        self.last = now;
        Some(used)
    }
}

fn process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The parent of a process: the fourth field of `stat`, behind the name in parentheses.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(process(pid).join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The number a text starts with.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let mut digits = digits.map(|digit| u64::from(digit - b'0')).peekable();
    digits.peek()?;
    digits.try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(digit))
}

/// `rchar` and `wchar`, the first two lines of `io`.
fn bytes(text: &[u8]) -> Option<(u64, u64)> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let mut field = |name: &[u8]| number(lines.next()?.strip_prefix(name)?);
    Some((field(b"rchar: ")?, field(b"wchar: ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_thread_grow_with_what_it_does() {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        let mut own = Counted::open(&Path::new("/proc").join(own)).unwrap();
        let mut sum = 0_u64;
        let mut used = Usage::default();
        while used.cpu_ns < 1_000_000 {
            sum = (0..10_000).fold(sum, |sum: u64, next| sum.wrapping_mul(31).wrapping_add(next));
            used = used.plus(&own.take().unwrap());
        }
        assert!(!std::fs::read("/proc/self/cmdline").unwrap().is_empty());
        assert!(sum != 1 && own.take().unwrap().read_bytes > 0);
    }

    #[test]
    fn a_process_that_is_no_server_is_not_metered() {
        for proof in [None, Some(Proof::Port(1)), Some(Proof::Postmaster(1))] {
            assert!(Backend::postgres(std::process::id(), proof).is_none());
            assert!(Backend::postgres(u32::MAX, proof).is_none());
        }
        assert!(Backend::thread(std::process::id(), u32::MAX).is_none());
    }

    #[test]
    fn the_kernel_s_text_is_read() {
        assert_eq!(number(b"48738554 1 2\n"), Some(48_738_554));
        assert_eq!((number(b""), number(b"x"), number(b"99999999999999999999")), (None, None, None));
        assert_eq!(bytes(b"rchar: 12\nwchar: 7\nsyscr: 1\n"), Some((12, 7)));
        assert_eq!(bytes(b"wchar: 7\n"), None);
    }
}
