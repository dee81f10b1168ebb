//! Pauses between attempts to reach a controller: exponential with full jitter, 50 ms to 5 s. With several endpoints
//! there is one for each round of them: all but one refuse in a healthy cluster, which is no failure of theirs.
//!
//! *Source*: the AWS Architecture Blog, "Exponential Backoff And Jitter"; full jitter spreads a fleet that lost its
//! controller at one moment.

use std::time::Duration;

use tidegate_core::units::Span;

use crate::clock::duration;

/// Upper end of the first pause.
const FIRST: Duration = Duration::from_millis(50);
/// Upper end of every later pause.
const LONGEST: Duration = Duration::from_secs(5);
/// A stream that lasted so long was no failure. With five seconds, nodes whose controllers change every few seconds wait
/// longer and longer, until their leases end; with a tenth of a second, a controller that fails at each first renewal is
/// asked as fast as the first pauses allow.
const LASTED: Duration = Duration::from_secs(1);

/// Counts failures in a row.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    /// Attempts of a round.
    endpoints: u32,
}

impl Backoff {
    /// No failure yet, of so many endpoints.
    pub(crate) fn of(endpoints: usize) -> Self {
        Self { failures: 0, endpoints: u32::try_from(endpoints).unwrap_or(u32::MAX).max(1) }
    }

    /// The pause after one more failure.
    pub(crate) fn pause(&mut self) -> Duration {
        let (rounds, within) = (self.failures / self.endpoints, self.failures % self.endpoints);
        self.failures = self.failures.saturating_add(1);
        if within > 0 {
            return Duration::ZERO;
        }
        let ceiling = FIRST.saturating_mul(1_u32.checked_shl(rounds).unwrap_or(u32::MAX)).min(LONGEST);
        rand::random_range(Duration::ZERO..=ceiling)
    }

    /// A stream lasted this long. One that ends at once is a failure like any other.
    pub(crate) fn lasted(&mut self, time: Span) {
        if duration(time) >= LASTED {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_start_over_after_success() {
        let mut backoff = Backoff::of(1);
        for failure in 0..100 {
            let ceiling = FIRST.saturating_mul(1 << failure.min(16)).min(LONGEST);
            assert!(backoff.pause() <= ceiling);
        }
        backoff.lasted(Span::secs(1));
        assert!(backoff.pause() <= FIRST);
        backoff.lasted(Span::millis(999));
        assert_eq!(backoff.failures, 1);
    }

    #[test]
    fn a_round_of_endpoints_counts_as_one_failure() {
        let mut backoff = Backoff::of(3);
        let mut sum = Duration::ZERO;
        for attempt in 0..300_u32 {
            let ceiling = FIRST.saturating_mul(1 << (attempt / 3).min(16)).min(LONGEST);
            let pause = backoff.pause();
            assert!(
                pause <= ceiling && (attempt % 3 == 0 || pause.is_zero()),
                "attempt {attempt}: {pause:?}"
            );
            sum += pause;
        }
        assert!(sum > LONGEST, "rounds are apart: {sum:?}");
    }
}
