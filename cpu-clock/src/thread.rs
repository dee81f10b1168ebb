//! What a thread remembers of its clock: the kernel's last answer and the moment of it.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel;
use crate::switches::Switches;

/// How long an answer of the kernel is added to: 0.04 % of the time goes into asking, and so little is all that may be
/// counted wrongly.
const LONGEST_NS: u64 = 1_000_000;
/// System calls before the thread gets what it needs to do without: some 20 us and a page of memory, not worth it for a
/// thread that meters now and then.
const FIRST_READINGS: u32 = 512;

thread_local! {
    pub(crate) static THREAD: Thread = const { Thread::new() };
}

/// The clock of one thread.
pub(crate) struct Thread {
    /// Unlike that of any other thread; 0 before the first reading.
    number: Cell<u64>,
    readings: Cell<u32>,
    /// `None` where switches cannot be seen.
    switches: OnceCell<Option<Switches>>,
    answer: Cell<Option<Answer>>,
    /// What was read last.
    last: Cell<u64>,
}

/// The kernel's answer.
#[derive(Clone, Copy)]
struct Answer {
    cpu_ns: u64,
    /// The reading of the monotonic clock.
    at_ns: u64,
    /// How often the thread had been switched.
    switches: u32,
}

impl Thread {
    const fn new() -> Self {
        Self {
            number: Cell::new(0),
            readings: Cell::new(0),
            switches: OnceCell::new(),
            answer: Cell::new(None),
            last: Cell::new(0),
        }
    }

    /// Unlike that of any other thread, once the clock was read.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    /// CPU time since the thread started.
    #[inline]
    pub(crate) fn cpu_ns(&self) -> u64 {
        match self.switches.get() {
            Some(Some(switches)) => self.between_switches(switches),
            Some(None) => kernel::thread_cpu_ns(),
            None => self.first_readings(),
        }
    }

    #[inline]
    fn between_switches(&self, switches: &Switches) -> u64 {
        let now = kernel::monotonic_ns();
        // Read after the time: unless the thread was switched up to here, it was not until then.
        let Some(count) = switches.count() else {
            // A forked child, whose CPU time begins at zero.
            return kernel::thread_cpu_ns();
        };
        let since = |answer: Answer| {
            let gone = now.saturating_sub(answer.at_ns);
            (answer.switches == count && gone < LONGEST_NS).then(|| answer.cpu_ns.saturating_add(gone))
        };
        let cpu_ns = self.answer.get().and_then(since).unwrap_or_else(|| self.ask(switches));
        // The kernel may have left out what was counted here meanwhile.
        let cpu_ns = cpu_ns.max(self.last.get());
        self.last.set(cpu_ns);
        cpu_ns
    }

    #[inline(never)]
    fn ask(&self, switches: &Switches) -> u64 {
        let before = switches.count();
        let cpu_ns = kernel::thread_cpu_ns();
        let at_ns = kernel::monotonic_ns();
        let answer = before.filter(|before| switches.count() == Some(*before));
        self.answer.set(answer.map(|switches| Answer { cpu_ns, at_ns, switches }));
        cpu_ns
    }

    #[inline(never)]
    fn first_readings(&self) -> u64 {
        /// The last number given to a thread.
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        if self.number.get() == 0 {
            self.number.set(NUMBERS.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        }
        let readings = self.readings.get().saturating_add(1);
        self.readings.set(readings);
        if readings > FIRST_READINGS {
            self.switches.get_or_init(Switches::watch);
        }
        kernel::thread_cpu_ns()
    }
}
