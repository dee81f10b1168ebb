//! The time that an answer takes, and the time that the node waits for one.
//!
//! Units: microseconds on the node's own clock. Method: smoothed round trip and mean deviation in scaled integers,
//! after Jacobson and Karels, "Congestion Avoidance and Control" (1988). Three things differ. Every answer is measured,
//! late ones included, because its number names the renewal that it answers. The wait doubles at most twice, since a
//! late answer gives the true round trip. No wait is longer than a lease, after which the answer is worth nothing.

use super::NodeConfig;
use crate::units::{Span, Time};

/// How often waits without an answer double the next one. With one doubling less, an answer that takes longer than the
/// first waits together would not be recognised; with one more, a node is without a lease for that much longer when the
/// answer was lost, not late.
const DOUBLINGS: u32 = 2;
/// Renewals before the newest whose late answers are still recognised: those of all the first waits.
const EARLIER: usize = 4;

/// The smoothed round trip with its variation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoundTrip {
    /// Eight times the smoothed round trip; zero before the first.
    smoothed: u64,
    /// Four times the smoothed deviation from it.
    variation: u64,
}

impl RoundTrip {
    /// Takes one more sample.
    pub fn measured(&mut self, sample: Span) {
        // An hour is longer than any lease, and larger samples would overflow the scaling.
        let sample = sample.0.clamp(1, Span::secs(3_600).0);
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (sample.saturating_mul(8), sample.saturating_mul(2));
            return;
        }
        let expected = self.smoothed / 8;
        let deviation = expected.abs_diff(sample);
        self.smoothed = (self.smoothed - expected).saturating_add(sample).max(8);
        // An answer that comes much sooner than expected must not lengthen later waits.
        let surprise = if sample < expected { deviation / 8 } else { deviation };
        self.variation = (self.variation - self.variation / 4).saturating_add(surprise);
    }

    /// The smoothed round trip; `None` before the first.
    pub fn smoothed(&self) -> Option<Span> {
        (self.smoothed > 0).then(|| Span((self.smoothed / 8).max(1)))
    }

    /// The smoothed deviation from it.
    pub fn variation(&self) -> Span {
        Span(self.variation / 4)
    }

    /// The time within which nearly every answer comes; zero before the first. It allows half a round trip more even if
    /// all were alike: a wait that is too short costs an answer; one that is too long only costs time when the answer
    /// was lost.
    pub fn nearly_all(&self) -> Span {
        let half = self.smoothed / 16;
        self.smoothed().unwrap_or_default() + Span(self.variation.max(half))
    }
}

/// The waits for answers about one group.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Patience {
    round_trip: RoundTrip,
    /// Waits in a row that ended without an answer, up to [`DOUBLINGS`].
    in_vain: u32,
    /// The length of the newest lease.
    ttl: Option<Span>,
    /// Renewals before the newest that may still be answered, and when they were sent; newest first.
    earlier: [Option<(u64, Time)>; EARLIER],
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { round_trip: RoundTrip::default(), in_vain: 0, ttl: None, earlier: [None; EARLIER] }
    }

    pub(super) fn round_trip(&self) -> RoundTrip {
        self.round_trip
    }

    /// Takes over what other groups measured to the same controller, before the first own measurement.
    pub(super) fn expect(&mut self, round_trip: RoundTrip) {
        if self.round_trip == RoundTrip::default() {
            self.round_trip = round_trip;
        }
    }

    /// How long an answer takes at most, as a rule. An operation without an answer by then goes on without one, as far
    /// as it may.
    pub(super) fn usual(&self, config: &NodeConfig) -> Span {
        self.round_trip.nearly_all().max(config.reply_timeout).min(config.longest_wait)
    }

    /// How long the node waits for the answer to a renewal before it sends another.
    pub(super) fn wait(&self, config: &NodeConfig) -> Span {
        let grown = Span(self.usual(config).0.saturating_mul(1 << self.in_vain));
        grown
            .min(self.ttl.map_or(config.longest_wait, |ttl| ttl.max(config.reply_timeout)))
            .min(config.longest_wait)
    }

    /// Notes that another renewal goes out while `seq` has no answer; `in_vain`: the wait for it has ended.
    pub(super) fn superseded(&mut self, seq: u64, sent: Time, in_vain: bool) {
        self.earlier.rotate_right(1);
        if let Some(place) = self.earlier.first_mut() {
            *place = Some((seq, sent));
        }
        if in_vain {
            self.in_vain = (self.in_vain + 1).min(DOUBLINGS);
        }
    }

    /// Returns when the earlier renewal was sent whose answer has come, and forgets it.
    pub(super) fn earlier(&mut self, seq: u64) -> Option<Time> {
        let place = self.earlier.iter_mut().find(|place| place.is_some_and(|(sent, _)| sent == seq))?;
        place.take().map(|(_, sent)| sent)
    }

    /// Notes an answer, and the length of the lease in it, which counts whether or not the answer came in time: a node
    /// whose answers all came late would wait for a lost one as long as for the slowest.
    pub(super) fn answered(&mut self, sent: Time, now: Time, ttl: Option<Span>, config: &NodeConfig) {
        self.in_vain = 0;
        self.ttl = ttl.or(self.ttl);
        // A fixed wait learns nothing.
        if config.longest_wait > config.reply_timeout {
            self.round_trip.measured(now.since(sent));
        }
    }

    /// Forgets earlier renewals: their answers come no more, or bring nothing new.
    pub(super) fn forget_earlier(&mut self) {
        self.earlier = [None; EARLIER];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Span {
        Span::millis(ms)
    }

    #[test]
    fn even_round_trips_are_told_as_they_are() {
        let mut trips = RoundTrip::default();
        assert_eq!((trips.smoothed(), trips.nearly_all()), (None, Span(0)));
        for _ in 0..100 {
            trips.measured(ms(80));
        }
        assert_eq!(trips.smoothed(), Some(ms(80)));
        assert!(trips.variation() < ms(1), "{trips:?}");
        assert_eq!(trips.nearly_all(), ms(120));
    }

    #[test]
    fn a_tenfold_change_is_followed_by_the_next_answer_up_and_within_a_second_of_answers_down() {
        let mut trips = RoundTrip::default();
        (0..50).for_each(|_| trips.measured(ms(100)));
        trips.measured(ms(1_000));
        assert!(trips.nearly_all() > ms(1_000), "{trips:?}");
        (0..20).for_each(|_| trips.measured(ms(1_000)));
        assert!(trips.smoothed() > Some(ms(900)), "{trips:?}");
        let before = trips.nearly_all();
        trips.measured(ms(100));
        assert!(trips.nearly_all() <= before, "one that comes sooner makes nobody wait longer: {trips:?}");
        (0..9).for_each(|_| trips.measured(ms(100)));
        assert!(trips.smoothed() < Some(ms(400)), "{trips:?}");
    }

    #[test]
    fn an_answer_that_comes_sooner_counts_an_eighth_of_one_that_comes_as_much_later() {
        let mut even = RoundTrip::default();
        (0..100).for_each(|_| even.measured(ms(80)));
        for (sample, grows) in [(80, Span(0)), (160, ms(20)), (40, Span(1_250))] {
            let mut trips = even;
            trips.measured(ms(sample));
            let variation = trips.variation() - even.variation();
            assert_eq!(variation, grows, "a quarter of the deviation: {sample} ms after 80");
        }
    }

    #[test]
    fn measurements_stay_in_range() {
        let mut trips = RoundTrip::default();
        for sample in [0, u64::MAX, 0, u64::MAX, u64::MAX] {
            trips.measured(Span(sample));
        }
        assert!(trips.nearly_all() < Span::secs(4 * 3_600), "{trips:?}");
        (0..1_000).for_each(|_| trips.measured(Span(0)));
        assert_eq!(trips.smoothed(), Some(Span(1)));
    }

    #[test]
    fn waits_in_vain_double_twice_and_end_with_the_lease() {
        let config = NodeConfig::default();
        let mut patience = Patience::new();
        let mut waits = Vec::new();
        for seq in 1..5 {
            waits.push(patience.wait(&config));
            patience.superseded(seq, Time(seq), true);
        }
        assert_eq!(waits, [Span::secs(1), Span::secs(2), Span::secs(4), Span::secs(4)]);
        patience.answered(Time(0), Time(5_000), None, &config);
        assert_eq!(patience.wait(&config), Span::secs(1), "an answer ends the doubling");
        patience.answered(Time(0), Time(5_000_000), Some(Span::secs(3)), &config);
        assert_eq!(patience.wait(&config), Span::secs(3));
        patience.answered(Time(0), Time(5_000_000), None, &config);
        assert_eq!(patience.wait(&config), Span::secs(3), "an answer without a lease changes nothing of it");
        for seconds in [2, 4] {
            patience.answered(Time(0), Time(5_000_000), Some(Span::secs(seconds)), &config);
            assert_eq!(patience.wait(&config), Span::secs(seconds), "the newest lease");
        }
    }

    #[test]
    fn an_earlier_renewal_is_known_once_and_not_for_ever() {
        let mut patience = Patience::new();
        (1..=6).for_each(|seq| patience.superseded(seq, Time(seq * 10), false));
        assert_eq!(patience.earlier(2), None, "four are known");
        assert_eq!(patience.earlier(3), Some(Time(30)));
        assert_eq!(patience.earlier(3), None);
        patience.forget_earlier();
        assert_eq!(patience.earlier(6), None);
    }
}
