//! How often the kernel has switched the calling thread in, read from memory.
//!
//! A software event of `perf_event_open` that counts nothing, on the calling thread alone: whenever the thread comes
//! back to a processor, the kernel rewrites the event's page, and the page's sequence number (`lock` in struct
//! `perf_event_mmap_page` of linux/perf_event.h, odd while it is written) grows by two. It may also grow without a
//! switch, which does no harm. The processor's own conversion of cycles to nanoseconds in that page is not used: a
//! virtual machine seldom has it.
//!
//! The mapping keeps the event, so that its descriptor is closed at once. It takes a page of the memory that the user
//! may lock for such events (`perf_event_mlock_kb`). A forked child does not have the mapping; a word of memory that
//! the kernel wipes in the child shows this.

use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;
use rustix::thread::{SecureComputingMode, secure_computing_mode};

/// `PERF_TYPE_SOFTWARE`.
const SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_DUMMY`: an event that never happens.
const DUMMY: u64 = 9;
/// `exclude_kernel` and `exclude_hv`, so that anyone may open it.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_ATTR_SIZE_VER0`: what every kernel knows.
const ATTRIBUTES_BYTES: u32 = 64;

/// `struct perf_event_attr` of the first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// The first words of `struct perf_event_mmap_page`.
#[repr(C)]
struct Page {
    _version: u32,
    _compatible_version: u32,
    sequence: AtomicU32,
}

/// The page of the calling thread. Neither `Send` nor `Sync`: the kernel writes it when that thread is switched.
pub(crate) struct Switches {
    page: NonNull<Page>,
    /// Not zero in the process that mapped the page.
    here: &'static AtomicU32,
}

impl Switches {
    /// Watches the calling thread; `None` where the kernel does not show its switches.
    pub(crate) fn watch() -> Option<Self> {
        // A filter may end the process for a call that it does not know, and most refuse this one.
        if !matches!(secure_computing_mode(), Ok(SecureComputingMode::Disabled)) {
            return None;
        }
        let here = unforked().filter(|here| here.load(Ordering::Relaxed) != 0)?;
        let event = open()?;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let page =
            unsafe { mmap(null_mut(), page_size(), ProtFlags::READ, MapFlags::SHARED, event.as_fd(), 0) };
        let switches = Self { page: NonNull::new(page.ok()?.cast())?, here };
        // A page that was not written at once would not be later.
        switches.count().is_some_and(|count| count != 0).then_some(switches)
    }

    /// A number that is another one after each switch; `None` in a forked child.
    #[inline]
    pub(crate) fn count(&self) -> Option<u32> {
        if self.here.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // SAFETY: the page is mapped as long as `self` lives, in this process, as `here` shows; it is longer than
        // `Page` and aligned to more. The kernel writes the word whole, and it is only read here, as an atomic one.
        let page = unsafe { self.page.as_ref() };
        Some(page.sequence.load(Ordering::Acquire))
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        if self.here.load(Ordering::Relaxed) != 0 {
            // SAFETY: mapped by `watch` with this length in this process, and no other code has the address. A failure
            // leaves the page where it is until the process ends, which does no harm.
            let _ = unsafe { munmap(self.page.as_ptr().cast(), page_size()) };
        }
    }
}

/// The event on the calling thread, wherever it runs.
fn open() -> Option<OwnedFd> {
    let attributes = Attributes {
        kind: SOFTWARE,
        size: ATTRIBUTES_BYTES,
        config: DUMMY,
        flags: USER_ONLY,
        ..Attributes::default()
    };
    let this_thread: libc::pid_t = 0;
    let (any_processor, no_leader): (libc::c_int, libc::c_int) = (-1, -1);
    // SAFETY: the kernel reads `size` bytes of the attributes, which is what they have, and writes nothing.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_thread,
            any_processor,
            no_leader,
            CLOSE_ON_EXEC,
        )
    };
    let descriptor = i32::try_from(opened).ok().filter(|descriptor| *descriptor >= 0)?;
    // SAFETY: the call has just opened it, and no other code knows it.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A word that is not zero in this process, and zero in its forked children; `None` where the kernel cannot do that.
fn unforked() -> Option<&'static AtomicU32> {
    static WORD: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    *WORD.get_or_init(|| {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let page = unsafe { mmap_anonymous(null_mut(), page_size(), protection, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: the range is the mapping made above, and nothing is in it yet that could be wiped.
        unsafe { madvise(page, page_size(), Advice::LinuxWipeOnFork) }.ok()?;
        // SAFETY: the mapping is never undone, aligned to a page, zero (which is a valid number), and used as atomic
        // words only.
        let word: &'static AtomicU32 = unsafe { &*page.cast() };
        word.store(1, Ordering::Relaxed);
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::read_to_string;
    use std::thread;

    use super::*;

    /// How often the kernel has switched this thread, as `/proc` shows it.
    fn told() -> u64 {
        let status = read_to_string("/proc/thread-self/status").unwrap();
        let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
    }

    #[test]
    fn every_switch_is_seen() {
        let switches = Switches::watch().expect(
            "the kernel lets this thread open no event of perf_event_open: the clock works without, but this cannot be \
             tested; set kernel.perf_event_paranoid to 2 or lower, and run outside of a seccomp filter that refuses it",
        );
        let mut seen = 0;
        while seen < 100 {
            let (before, told_before) = (switches.count(), told());
            thread::spawn(|| ()).join().unwrap();
            if told() > told_before {
                assert_ne!(switches.count(), before);
                seen += 1;
            }
        }
    }
}
