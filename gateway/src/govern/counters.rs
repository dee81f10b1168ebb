//! The kernel's own counters of one process or thread: CPU in ns from `schedstat` (readable by anyone), bytes through
//! `read` and `write` calls from `io` (readable by the same user and by root). The files stay open: a look is a `pread`
//! each, 0.3 and 0.7 µs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use tidegate_client::Usage;

/// As much of the files as is looked at: two numbers of 20 digits with their names.
const MAX_TEXT: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Counters {
    schedstat: File,
    io: Option<File>,
    last: Usage,
}

impl Counters {
    /// Those of the process or thread with this folder in `/proc`; all it has done since it began is new.
    pub(super) fn whole(folder: &Path) -> Option<Self> {
        let schedstat = File::open(folder.join("schedstat")).ok()?;
        let io = File::open(folder.join("io")).ok();
        Some(Self { schedstat, io, last: Usage::default() })
    }

    /// The same, and only what it does from here on is new.
    pub(super) fn from_here(folder: &Path) -> Option<Self> {
        let mut counters = Self::whole(folder)?;
        counters.take()?;
        Some(counters)
    }

    /// What was used since the last time; `None` when it has ended.
    pub(super) fn take(&mut self) -> Option<Usage> {
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
        Some(self.came_to(now))
    }

    /// What was used since the last time, of all that it used until it ended.
    pub(super) fn end(mut self, all: Usage) -> Usage {
        let last = self.last;
        // The kernel tells bytes of what has ended in whole KiB.
        self.came_to(Usage {
            cpu_ns: all.cpu_ns.max(last.cpu_ns),
            read_bytes: all.read_bytes.max(last.read_bytes),
            write_bytes: all.write_bytes.max(last.write_bytes),
            ..last
        })
    }

    fn came_to(&mut self, now: Usage) -> Usage {
        let used = now.minus(&self.last).unwrap_or_default();
        self.last = now;
        used
    }
}

/// The number a text starts with.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

/// `rchar` and `wchar`, the first two lines of `io`.
fn bytes(text: &[u8]) -> Option<(u64, u64)> {
    let read = text.strip_prefix(b"rchar: ")?;
    let end = read.iter().position(|byte| *byte == b'\n')?;
    let written = read.get(end..)?.strip_prefix(b"\nwchar: ")?;
    Some((number(read)?, number(written)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_thread_grow_with_what_it_does() {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        let mut own = Counters::from_here(&Path::new("/proc").join(own)).unwrap();
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
    fn what_has_ended_used_at_least_what_was_seen() {
        let seen = |cpu_ns, read_bytes| Usage { cpu_ns, read_bytes, ..Usage::default() };
        let mut counters = Counters::whole(Path::new("/proc/self")).unwrap();
        counters.last = seen(1_000, 5_000);
        assert_eq!(counters.end(seen(1_500, 4_096)), seen(500, 0));
    }

    #[test]
    fn the_kernel_s_text_is_read() {
        assert_eq!(number(b"48738554 1 2\n"), Some(48_738_554));
        assert_eq!((number(b""), number(b"x"), number(b"99999999999999999999")), (None, None, None));
        assert_eq!(bytes(b"rchar: 12\nwchar: 7\nsyscr: 1\n"), Some((12, 7)));
        assert_eq!(bytes(b"wchar: 7\n"), None);
        // As much as is read of the longest.
        let longest = format!("rchar: {}\nwchar: {}\nsyscr: 1\n", u64::MAX, u64::MAX);
        assert_eq!(bytes(&longest.as_bytes()[..MAX_TEXT]), Some((u64::MAX, u64::MAX)));
    }
}
