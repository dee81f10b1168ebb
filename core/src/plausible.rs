//! The most that a report may add: what a process can have used since it was last heard.
//!
//! Leases bound what is admitted, not what is charged: the true cost of an operation is known after it ran, and
//! `charge` asks nobody. So the bound is the speed of the fastest possible process. It works like a token bucket: the
//! time that passes pays, at 10^9 RU/s, for everything counted in a row, and a row may owe [`UNSEEN`] of it, for use
//! that nobody saw: before the first report, while reports were late, or while the controller was away.
//!
//! In: totals, and microseconds of the controller's clock.

use crate::units::{MICRO, Rate, Span, Time};
use crate::usage::Total;

/// The most that one process can use of a group in a microsecond: 10^9 micro-RU, which is [`Rate::MAX`], the largest
/// rate of a definition. The same for any other counter: 10^15 a second are a million processors or a petabyte. Half of
/// it could reject a process that uses all of the largest rate; with twice, a false claim may be twice as large.
const FASTEST_PER_US: u128 = Rate::MAX.0.unsigned_abs() as u128 / MICRO.unsigned_abs() as u128;
/// The time that a process may have worked unseen: a quarter of an hour at 10^9 RU/s, ten days at 10^6 RU/s, 9 * 10^11
/// RU in each. Half would give a process of 10^6 RU/s five days; twice would accept 10^12 RU in a second.
const UNSEEN: Span = Span::secs(900);

/// The time up to which what was counted of a row is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paid(Time);

impl Paid {
    /// A row of which nothing was counted yet.
    pub(crate) fn since(now: Time) -> Self {
        Self(now)
    }

    /// Counts `new`. False: no process can have used so much, and nothing is counted.
    pub(crate) fn take(&mut self, now: Time, new: &Total) -> bool {
        let counters = new.to_words().into_iter().chain([new.ru().0]);
        let took = counters.max().unwrap_or_default().div_ceil(FASTEST_PER_US);
        let until = u64::try_from(took).map_or(Time(u64::MAX), |took| self.0.after(Span(took)));
        if until > now.after(UNSEEN) {
            return false;
        }
        self.0 = until.max(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Ru, RuTotal};
    use crate::usage::{Consumption, RuParts};

    fn ru(ru: i64) -> Total {
        Consumption { charged: RuParts::flat(Ru::whole(ru)), ..Consumption::default() }.into()
    }

    #[test]
    fn the_fastest_process_passes_however_late_it_is_heard() {
        let (mut paid, mut now) = (Paid::since(Time(7)), Time(7));
        for seconds in [1, 900, 3, 86_400, 31_536_000, 1] {
            now = now.after(Span::secs(seconds));
            assert!(paid.take(now, &ru(1_000_000_000 * i64::try_from(seconds).unwrap())), "{seconds}");
        }
        // The next report contains what was late.
        now = now.after(Span::secs(1));
        assert!(paid.take(now, &ru(0)) && paid.take(now, &ru(900_000_000_000)));
        assert!(!paid.take(now, &ru(1)), "a second time in the same moment");
    }

    #[test]
    fn what_no_process_can_use_is_not_taken_up() {
        let now = Time(5);
        let mut paid = Paid::since(now);
        assert!(!paid.take(now, &ru(1_000_000_000_000)), "10^12 RU at once");
        let parts = RuParts { cpu: Ru::whole(500_000_000_000), ..RuParts::flat(Ru::whole(500_000_000_000)) };
        assert!(
            !paid.take(now, &Consumption { charged: parts, ..Consumption::default() }.into()),
            "in parts"
        );
        for place in 0..Total::WORDS {
            let mut words = [0; Total::WORDS];
            words[place] = Total::LIMIT - 1;
            assert!(!paid.take(now, &Total::from_words(words)), "word {place}");
        }
        let half = Total { shadow: RuTotal(450_000_000_000_000_000), ..Total::default() };
        assert!(paid.take(now, &half) && paid.take(now, &half), "a lie costs an honest report nothing");
        assert!(!paid.take(now, &half));
        assert!(paid.take(now.after(Span::secs(450)), &half), "time pays");
    }
}
