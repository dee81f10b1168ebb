//! How far a clock that time servers adjust runs off one that nobody adjusts.
//!
//! Leases are counted on a clock that NTP may slew: chrony by up to 83,333 ppm. The shell reads that clock beside the
//! machine's raw clock now and then; their difference over a window is the slew, within the raw clock's own error (100
//! ppm is much for a crystal). In: microseconds of both clocks, read together. Out: ppm, the worst of the last minute
//! or two, since a lease that began in a slew is as long as a minute.

use crate::exchange::{Allowance, Grant, LeaseTerms};
use crate::units::{MICRO, Span, Time};

/// Readings closer than this are ignored. At a tenth of it, a delay between two readings would look like a slew of
/// thousands of ppm; at ten times, ten seconds of a slew pass unseen.
const WINDOW: Span = Span::secs(1);
/// The part of a difference that may come from reading the two clocks at different moments, in microseconds; the shell
/// stays within it. At ten times this, a slew of 2,000 ppm would pass.
pub const READING: Span = Span(100);
/// The part of a slew that a measurement may miss: both readings of a window, 200 ppm of it, and the raw clock's own
/// error.
const UNSURE_PPM: u32 = 300;
/// A slew counts for at least this long, and at most twice as long: the longest lease.
const KEPT: Span = Span::secs(60);
/// The largest slew that is believed, which leaves half of a lease. A clock that is set, not slewed, may show any
/// number.
const MOST_PPM: u64 = 500_000;

/// Compares two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slew {
    /// The last reading of both clocks.
    from: Option<(Time, Time)>,
    /// The worst slew since `turned`, and in the period before.
    worst: [u32; 2],
    turned: Time,
}

impl Slew {
    /// Takes one reading of both clocks: the used one and the raw one.
    pub fn look(&mut self, used: Time, raw: Time) {
        let (from_used, from_raw) = *self.from.get_or_insert((used, raw));
        let (by_used, by_raw) = (used.since(from_used), raw.since(from_raw));
        if by_raw < WINDOW {
            return;
        }
        self.from = Some((used, raw));
        let off = by_used.0.abs_diff(by_raw.0).saturating_sub(2 * READING.0);
        let ppm = u128::from(off) * u128::from(MICRO.unsigned_abs()) / u128::from(by_raw.0);
        let ppm = u32::try_from(ppm.min(MOST_PPM.into())).unwrap_or_default();
        if raw.since(self.turned) >= KEPT {
            self.worst = [0, self.worst[0]];
            self.turned = raw;
        }
        self.worst[0] = self.worst[0].max(ppm);
    }

    /// How far the used clock may run off, in ppm, if more than `allowed` was seen.
    pub fn beyond(&self, allowed: u32) -> Option<u32> {
        let seen = self.worst.into_iter().max().filter(|worst| *worst > allowed);
        seen.map(|worst| worst.saturating_add(UNSURE_PPM))
    }
}

impl Grant {
    /// The grant as a clock that is off by `ppm` must count it: a slow clock would use it for longer than it lasts.
    #[must_use]
    pub fn on_slewed_clock(self, ppm: u32) -> Self {
        let shorter = |ttl: Span| {
            let left = MICRO.unsigned_abs().saturating_sub(ppm.into());
            Span(
                ttl.0 / MICRO.unsigned_abs() * left
                    + ttl.0 % MICRO.unsigned_abs() * left / MICRO.unsigned_abs(),
            )
        };
        match self {
            Self::Leased(terms) => {
                // No right ends when something returns to a window that rolls.
                let until = |share: Allowance| match share.rolls {
                    true => share,
                    false => Allowance { resets_in: shorter(share.resets_in), ..share },
                };
                let allowance = terms.allowance.map(until);
                Self::Leased(LeaseTerms { ttl: shorter(terms.ttl), allowance, ..terms })
            }
            Self::Unlimited { ttl, renew_after, fallback } => {
                Self::Unlimited { ttl: shorter(ttl), renew_after, fallback }
            }
            Self::UnknownGroup | Self::Recovering { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Fallback;

    /// Reads both clocks each second of true time, of which the used one runs `ppm` fast.
    fn run(slew: &mut Slew, used: &mut u64, seconds: std::ops::Range<u64>, ppm: i64) {
        for second in seconds {
            *used = used.saturating_add_signed(MICRO + ppm);
            slew.look(Time(*used), Time((second + 1) * 1_000_000));
        }
    }

    #[test]
    fn a_slew_is_noticed_within_a_second_and_kept_for_a_minute() {
        for ppm in [83_333, -83_333, 2_000, -2_000] {
            let (mut slew, mut used) = (Slew::default(), 5_000_000);
            run(&mut slew, &mut used, 0..10, 40);
            assert_eq!(slew.beyond(1_000), None, "what discipline does");
            run(&mut slew, &mut used, 10..11, ppm);
            let noticed = slew.beyond(1_000).unwrap();
            let truly: u32 = ppm.unsigned_abs().try_into().unwrap();
            assert!((truly..truly + 400).contains(&noticed), "{ppm}: {noticed}");
            run(&mut slew, &mut used, 11..71, 0);
            assert_eq!(slew.beyond(1_000), Some(noticed), "a lease of a minute began in it");
            run(&mut slew, &mut used, 71..140, 0);
            assert_eq!(slew.beyond(1_000), None);
        }
    }

    #[test]
    fn readings_that_are_close_or_apart_a_little_are_no_slew() {
        let mut slew = Slew::default();
        let mut true_time = 0;
        for step in [1, 10, 1_000, 900_000, 1_000_000, 1_000_000, 60_000_000] {
            true_time += step;
            slew.look(Time(true_time + 90), Time(true_time));
            slew.look(Time(true_time), Time(true_time));
        }
        assert_eq!(slew.beyond(0), None);
        // A clock that is set has no rate: the largest slew is taken, and nothing overflows.
        slew.look(Time(u64::MAX), Time(true_time + 2_000_000));
        slew.look(Time(0), Time(u64::MAX));
        assert_eq!(slew.beyond(0), Some(500_300));
    }

    #[test]
    fn both_readings_of_a_window_may_be_as_far_apart_as_the_shell_lets_them() {
        let mut slew = Slew::default();
        for second in 1..10 {
            let raw = second * 1_000_000;
            slew.look(Time(if second % 2 == 0 { raw + READING.0 } else { raw - READING.0 }), Time(raw));
        }
        assert_eq!(slew.beyond(0), None);
        slew.look(Time(10_000_000 - READING.0 - 1), Time(10_000_000));
        assert_eq!(slew.beyond(0), None, "the clock is back");
        slew.look(Time(11_000_000 + READING.0), Time(11_000_000));
        assert_eq!(slew.beyond(0), Some(301), "one microsecond more in a second");
    }

    #[test]
    fn a_lease_of_either_kind_is_shorter_by_what_the_clock_may_be_slow() {
        let leased = |ttl| Grant::Leased(LeaseTerms { ttl, ..LeaseTerms::default() });
        let unlimited =
            |ttl| Grant::Unlimited { ttl, renew_after: Span::secs(1), fallback: Fallback::Unlimited };
        for (ppm, ttl, left) in [(80_000, 5_000_000, 4_600_000), (500_000, 3, 1), (0, 7, 7)] {
            assert_eq!(leased(Span(ttl)).on_slewed_clock(ppm), leased(Span(left)));
            assert_eq!(unlimited(Span(ttl)).on_slewed_clock(ppm), unlimited(Span(left)));
        }
    }

    #[test]
    fn a_quota_window_ends_sooner_by_what_the_clock_may_be_slow_unless_it_rolls() {
        let share = |resets_in, rolls| {
            let allowance =
                Allowance { window: 1, resets_in: Span(resets_in), rolls, ..Allowance::default() };
            Grant::Leased(LeaseTerms { allowance: Some(allowance), ..LeaseTerms::default() })
        };
        for (ppm, resets_in, left) in [(80_000, 5_000_000, 4_600_000), (500_000, 3, 1), (0, 7, 7)] {
            assert_eq!(share(resets_in, false).on_slewed_clock(ppm), share(left, false));
            assert_eq!(share(resets_in, true).on_slewed_clock(ppm), share(resets_in, true));
        }
    }
}
