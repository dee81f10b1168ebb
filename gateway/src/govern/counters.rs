//! The kernel's own counters of one process or thread: CPU in ns from `schedstat` (readable by anyone), bytes through
//! `read` and `write` calls, and the number of the latter, from `io` (readable by the same user and by root). The files
//! stay open: a look is a `pread` each, 0.3 and 0.7 µs.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};

use super::share::Counted;

/// The part of the files that is read: four numbers of 20 digits with their names.
const MAX_TEXT: usize = 128;

/// The open files of one process or thread.
#[derive(Debug)]
pub(super) struct Counters {
    schedstat: File,
    io: Option<File>,
    last: Counted,
}

impl Counters {
    /// Those of the process or thread with this folder, which may be relative to another; all it has done since it began
    /// is new.
    pub(super) fn whole(of: impl AsFd, folder: &Path) -> Option<Self> {
        let open =
            |name| openat(&of, folder.join(name), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let schedstat = File::from(open("schedstat")?);
        let io = open("io").map(File::from);
        Some(Self { schedstat, io, last: Counted::default() })
    }

    /// The same, and only what it does from here on is new.
    pub(super) fn from_here(of: impl AsFd, folder: &Path) -> Option<Self> {
        let mut counters = Self::whole(of, folder)?;
        counters.take()?;
        Some(counters)
    }

    /// The usage since the last time; `None` when it has ended.
    pub(super) fn take(&mut self) -> Option<Counted> {
        let mut text = [0_u8; MAX_TEXT];
        let read = self.schedstat.read_at(&mut text, 0).ok()?;
        let cpu_ns = number(text.get(..read)?)?;
        let mut now = Counted { cpu_ns, ..self.last };
        if let Some(io) = &self.io {
            match io.read_at(&mut text, 0).ok().and_then(|read| calls(text.get(..read)?)) {
                Some(calls) => now = Counted { cpu_ns, ..calls },
                // Not ours to see.
                None => self.io = None,
            }
        }
        Some(self.came_to(now))
    }

    /// The usage since the last time, from all that it used until it ended.
    pub(super) fn end(mut self, all: Counted) -> Counted {
        // The kernel reports bytes of ended tasks in whole KiB.
        self.came_to(all.at_least(&self.last))
    }

    fn came_to(&mut self, now: Counted) -> Counted {
        let used = now.since(&self.last);
        self.last = now;
        used
    }
}

/// The number a text starts with.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

/// `rchar`, `wchar` and `syscw`, of the first four lines of `io`.
fn calls(text: &[u8]) -> Option<Counted> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let mut value = |name: &[u8]| lines.next()?.strip_prefix(name).and_then(number);
    let (read, written) = (value(b"rchar: ")?, value(b"wchar: ")?);
    value(b"syscr: ")?;
    Some(Counted { cpu_ns: 0, read, written, writes: value(b"syscw: ")? })
}

#[cfg(test)]
mod tests {
    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn the_counters_of_a_thread_grow_with_what_it_does() {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        let mut own = Counters::from_here(CWD, &Path::new("/proc").join(own)).unwrap();
        let mut sum = 0_u64;
        let mut used = Counted::default();
        while used.cpu_ns < 1_000_000 {
            sum = (0..10_000).fold(sum, |sum: u64, next| sum.wrapping_mul(31).wrapping_add(next));
            used = used.plus(&own.take().unwrap());
        }
        assert!(!std::fs::read("/proc/self/cmdline").unwrap().is_empty());
        assert!(sum != 1 && own.take().unwrap().read > 0);
    }

    #[test]
    fn what_has_ended_used_at_least_what_was_seen() {
        let seen = |cpu_ns, read| Counted { cpu_ns, read, ..Counted::default() };
        let mut counters = Counters::whole(CWD, Path::new("/proc/self")).unwrap();
        counters.last = seen(1_000, 5_000);
        assert_eq!(counters.end(seen(1_500, 4_096)), seen(500, 0));
    }

    #[test]
    fn the_kernel_s_text_is_read() {
        assert_eq!(number(b"48738554 1 2\n"), Some(48_738_554));
        assert_eq!((number(b""), number(b"x"), number(b"99999999999999999999")), (None, None, None));
        let told = Counted { cpu_ns: 0, read: 12, written: 7, writes: 2 };
        assert_eq!(calls(b"rchar: 12\nwchar: 7\nsyscr: 1\nsyscw: 2\nread_bytes: 0\n"), Some(told));
        assert_eq!((calls(b"wchar: 7\n"), calls(b"rchar: 12\nwchar: 7\n")), (None, None));
        // As much as is read of the longest.
        let most = u64::MAX;
        let longest =
            format!("rchar: {most}\nwchar: {most}\nsyscr: {most}\nsyscw: {most}\nread_bytes: {most}\n");
        let told = Counted { cpu_ns: 0, read: most, written: most, writes: most };
        assert_eq!(calls(&longest.as_bytes()[..MAX_TEXT]), Some(told));
    }

    #[test]
    fn each_use_is_counted_once_and_none_from_before() {
        let all = |n| Counted { cpu_ns: n, read: 2 * n, written: 3 * n, writes: 4 * n };
        let mut counters = Counters::whole(CWD, Path::new("/proc/self")).unwrap();
        assert_eq!(
            (counters.came_to(all(10)), counters.came_to(all(10)), counters.came_to(all(17))),
            (all(10), all(0), all(7))
        );
        assert_eq!(counters.end(all(20)), all(3));
        // What this thread reads before it is followed is not new.
        let own = Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0; 1 << 20]).unwrap();
        let read = || assert_eq!(std::fs::read(file.path()).unwrap().len(), 1 << 20);
        read();
        let mut counters = Counters::from_here(CWD, &own).unwrap();
        assert!(counters.take().unwrap().read < 1 << 20);
        read();
        assert!((1 << 20..2 << 20).contains(&counters.take().unwrap().read));
        assert!(counters.take().unwrap().read < 1 << 20);
    }
}
