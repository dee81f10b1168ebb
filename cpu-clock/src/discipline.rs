//! How the kernel keeps the wall clock in step, as `adjtimex` reports it. It sets nothing, so that it needs no right.

/// What the kernel knows about its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discipline {
    /// Somebody keeps it in step with a source of time.
    pub synchronised: bool,
    /// How much faster it is made to run than the machine's own oscillator, in parts per billion.
    pub frequency_ppb: i64,
    /// How wrong it may be, in microseconds.
    pub max_error_us: i64,
}

/// The clock's state; `None` where the kernel does not say.
#[cfg(target_os = "linux")]
pub fn discipline() -> Option<Discipline> {
    // SAFETY: `timex` is plain numbers, of which all may be zero.
    let mut told: libc::timex = unsafe { std::mem::zeroed() };
    told.modes = 0;
    // SAFETY: the pointer is to a `timex` that lives through the call, and without modes the kernel only writes to it.
    let state = unsafe { libc::adjtimex(&raw mut told) };
    (state >= 0).then(|| Discipline {
        synchronised: state != libc::TIME_ERROR && told.status & libc::STA_UNSYNC == 0,
        // The kernel counts in 2^-16 ppm.
        frequency_ppb: told.freq.saturating_mul(1_000) / 65_536,
        max_error_us: told.maxerror,
    })
}

/// The clock's state; `None` where the kernel does not say.
#[cfg(not(target_os = "linux"))]
pub fn discipline() -> Option<Discipline> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_describes_its_clock_and_stays_within_what_it_may_do() {
        // A filter of system calls may refuse the question.
        let Some(told) = discipline() else { return };
        assert!(told.frequency_ppb.abs() <= 500_000, "{told:?}");
        assert!(told.max_error_us >= 0, "{told:?}");
    }
}
