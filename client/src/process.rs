//! Totals of this process from the operating system, to compare with what was metered.
//!
//! CPU in nanoseconds (millisecond resolution), memory in bytes. Read at most once per [`EVERY`]: a reading costs
//! some 13 us.

use std::sync::{Mutex, PoisonError};

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};
use tidegate_core::units::{Span, Time};

/// How old a reading may be.
pub(crate) const EVERY: Span = Span::secs(5);

/// CPU and memory of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTotals {
    /// CPU time since the process started, in nanoseconds; resolution is a millisecond.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
}

/// Reads the totals, seldom.
pub(crate) struct ProcessSampler(Mutex<Sampler>);

struct Sampler {
    source: Source,
    last: Option<(Time, ProcessTotals)>,
}

/// Reads the totals of now; `None` where that cannot be done.
type Source = Box<dyn FnMut() -> Option<ProcessTotals> + Send>;

impl std::fmt::Debug for ProcessSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProcessSampler")
    }
}

impl ProcessSampler {
    pub(crate) fn new() -> Self {
        let mut system = System::new().ok().zip(get_current_pid().ok());
        Self::of(Box::new(move || system.as_mut().and_then(|(system, pid)| read(system, *pid))))
    }

    fn of(source: Source) -> Self {
        Self(Mutex::new(Sampler { source, last: None }))
    }

    /// The totals, at most [`EVERY`] old. `None` where they cannot be read.
    pub(crate) fn read(&self, now: Time) -> Option<ProcessTotals> {
        let mut sampler = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, totals)) = sampler.last
            && now.since(at) < EVERY
        {
            return Some(totals);
        }
        let totals = (sampler.source)()?;
        sampler.last = Some((now, totals));
        Some(totals)
    }
}

fn read(system: &mut System, pid: Pid) -> Option<ProcessTotals> {
    let wanted = ProcessRefreshKind::nothing().with_cpu().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, wanted);
    let process = system.process(pid)?;
    Some(ProcessTotals {
        cpu_ns: process.accumulated_cpu_time().saturating_mul(1_000_000),
        resident_bytes: process.memory(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_seen_at_most_every_five_seconds() {
        let mut readings = 0;
        let sampler = ProcessSampler::of(Box::new(move || {
            readings += 1;
            Some(ProcessTotals { cpu_ns: readings, resident_bytes: 7 })
        }));
        let seen = |at| sampler.read(Time(at)).unwrap().cpu_ns;
        assert_eq!([0, 4_999_999, 5_000_000, 9_999_999, 10_000_000].map(seen), [1, 1, 2, 2, 3]);
    }

    #[test]
    fn a_reading_that_failed_is_tried_again() {
        let mut readings = 0;
        let sampler = ProcessSampler::of(Box::new(move || {
            readings += 1;
            (readings > 1).then(ProcessTotals::default)
        }));
        assert_eq!([0, 0].map(|at| sampler.read(Time(at))), [None, Some(ProcessTotals::default())]);
    }

    #[test]
    fn what_this_process_took_is_what_the_system_says() {
        let (sampler, mut spent) = (ProcessSampler::new(), 0_u64);
        let totals = sampler.read(Time(0)).unwrap();
        assert!(totals.resident_bytes > 1_000_000, "{totals:?}");
        // CPU time of a process only grows, whatever its other threads do.
        let mut at = Time(0);
        while sampler.read(at).unwrap().cpu_ns == totals.cpu_ns {
            spent = std::hint::black_box(spent).wrapping_add(1);
            at = at.after(EVERY);
        }
    }
}
