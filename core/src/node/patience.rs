//! How long an answer takes, and how long it is waited for.
//!
//! Units: microseconds on the node's own clock. Method: smoothed round trip and mean deviation in scaled integers, after
//! Jacobson and Karels, "Congestion Avoidance and Control" (1988). It differs in three things: every answer is measured,
//! the late ones, too, because its number tells which renewal it answers; the wait doubles at most twice, as a late
//! answer tells the rest; and an answer is never waited for longer than a lease lasts, after which it is worth nothing.

use super::NodeConfig;
use crate::units::{Span, Time};

/// A wait without an answer doubles the next one so many times at most. One less, and an answer that takes longer than
/// the first waits together could not be told; one more, and a node is that much longer without a lease when the
/// answer was lost, not late.
const DOUBLINGS: u32 = 2;
/// Renewals sent before the newest whose answers are still known when they come: those of all the first waits.
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
    /// Takes one more into account.
    pub fn measured(&mut self, sample: Span) {
        // An hour is longer than any lease; more could not be scaled.
        let sample = sample.0.clamp(1, Span::secs(3_600).0);
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (sample.saturating_mul(8), sample.saturating_mul(2));
            return;
        }
        let expected = self.smoothed / 8;
        let deviation = expected.abs_diff(sample);
        self.smoothed = (self.smoothed - expected).saturating_add(sample).max(8);
        // One that comes much sooner than expected does not make the next ones later.
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

    /// Nearly every answer is there after this; zero before the first. Half a round trip more is allowed even where
    /// all were alike: a wait too short costs an answer, one too long costs time and only when it was lost.
    pub fn nearly_all(&self) -> Span {
        let half = self.smoothed / 16;
        self.smoothed().unwrap_or_default() + Span(self.variation.max(half))
    }
}

/// The waits for answers about one group.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Patience {
    round_trip: RoundTrip,
    /// Waits in a row that ended without an answer, as far as they count.
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

    /// What others have measured to the same controller; own measurements count more.
    pub(super) fn expect(&mut self, round_trip: RoundTrip) {
        if self.round_trip == RoundTrip::default() {
            self.round_trip = round_trip;
        }
    }

    /// How long an answer usually takes at most. Who is not answered by then goes on without one, as far as it may.
    pub(super) fn usual(&self, config: &NodeConfig) -> Span {
        self.round_trip.nearly_all().max(config.reply_timeout).min(config.longest_wait)
    }

    /// How long the answer to a renewal is waited for before another is sent.
    pub(super) fn wait(&self, config: &NodeConfig) -> Span {
        let grown = Span(self.usual(config).0.saturating_mul(1 << self.in_vain));
        grown
            .min(self.ttl.map_or(config.longest_wait, |ttl| ttl.max(config.reply_timeout)))
            .min(config.longest_wait)
    }

    /// Another renewal goes out, though this one has no answer. Whether its wait has ended.
    pub(super) fn superseded(&mut self, seq: u64, sent: Time, in_vain: bool) {
        self.earlier.rotate_right(1);
        if let Some(place) = self.earlier.first_mut() {
            *place = Some((seq, sent));
        }
        if in_vain {
            self.in_vain = (self.in_vain + 1).min(DOUBLINGS);
        }
    }

    /// When a renewal before the newest was sent, whose answer is here. It is not told twice.
    pub(super) fn earlier(&mut self, seq: u64) -> Option<Time> {
        let place = self.earlier.iter_mut().find(|place| place.is_some_and(|(sent, _)| sent == seq))?;
        place.take().map(|(_, sent)| sent)
    }

    /// An answer is here.
    pub(super) fn answered(&mut self, sent: Time, now: Time, config: &NodeConfig) {
        self.in_vain = 0;
        // Where the wait is fixed nothing is to be learnt.
        if config.longest_wait > config.reply_timeout {
            self.round_trip.measured(now.since(sent));
        }
    }

    /// The newest lease lasts so long.
    pub(super) fn leased(&mut self, ttl: Span) {
        self.ttl = Some(ttl);
    }

    /// Answers to what was sent before the newest will not come any more, or say nothing new.
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
        patience.leased(Span::secs(3));
        assert_eq!(patience.wait(&config), Span::secs(3));
        patience.answered(Time(0), Time(5_000), &config);
        assert_eq!(patience.wait(&config), Span::secs(1), "an answer ends the doubling");
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
