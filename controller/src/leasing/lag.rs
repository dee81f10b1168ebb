//! How long a node's messages wait before their turn: in sockets, in buffers, in queues of tasks.
//!
//! Units: microseconds. Method: each message carries its sending time, by the node's clock. The least difference to the
//! controller's clock belongs to a message that waited nowhere; a message waited for as long as its difference exceeds
//! that. The least may grow by as much as clocks drift apart, so that it stays true.

use tidegate_core::units::{Span, Time};

/// Two clocks drift apart by at most one part in this many, as far as it matters here. With twice of it, a controller
/// that is behind for ten minutes seems on time with a delay of 0.6 s at most; with half of it, of 2.4 s.
const DRIFT: u64 = 500;

/// The clock of one node beside the controller's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lag(Option<(i128, Time)>);

impl Lag {
    /// How long a message waited that was sent at `sent` and read at `now`. The first one gives no answer but zero.
    pub(crate) fn waited(&mut self, now: Time, sent: Time) -> Span {
        let difference = i128::from(now.0) - i128::from(sent.0);
        let least = self.0.map_or(difference, |(least, at)| least + i128::from(now.since(at).0 / DRIFT));
        self.0 = Some((least.min(difference), now));
        Span(u64::try_from(difference - least).unwrap_or(0))
    }
}

/// Interval between log lines about shed messages.
const SAID_EVERY: Span = Span::secs(10);

/// Entries shed since the last log line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shed {
    said: Option<Time>,
    entries: u64,
}

impl Shed {
    /// Counts shed entries; returns their number when it is time to log it.
    pub(crate) fn add(&mut self, now: Time, entries: u64) -> Option<u64> {
        self.entries = self.entries.saturating_add(entries);
        if self.said.is_some_and(|said| now.since(said) < SAID_EVERY) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(ms * 1_000)
    }

    #[test]
    fn what_a_message_waited_is_told_whatever_the_clocks_show() {
        for apart in [0, 5_000_000] {
            let mut lag = Lag::default();
            assert_eq!(lag.waited(at(apart + 1_010), at(1_000)), Span(0), "the first tells nothing");
            assert!(lag.waited(at(apart + 2_010), at(2_000)) == Span(0));
            let waited = lag.waited(at(apart + 6_010), at(3_000));
            assert!(Span::millis(2_990) <= waited && waited <= Span::secs(3), "{waited}");
            assert!(lag.waited(at(apart + 6_011), at(6_000)) < Span::millis(10));
        }
    }

    /// A controller that is behind for ten minutes still sees that: the least grows by what passed since it was known,
    /// once, however many messages came meanwhile.
    #[test]
    fn what_messages_wait_is_seen_for_as_long_as_it_lasts_however_many_they_are() {
        for every_ms in [10, 100, 1_000, 60_000] {
            let mut lag = Lag::default();
            assert_eq!(lag.waited(at(1_000), at(1_000)), Span(0));
            for sent in (1_000..=601_000).step_by(every_ms) {
                let waited = lag.waited(at(sent + 3_000), at(sent));
                let grown = Span((sent - 1_000 + 3_000) * 1_000 / DRIFT);
                assert!(Span::secs(3) - grown <= waited && waited <= Span::secs(3), "{waited} at {sent} ms");
            }
        }
    }

    #[test]
    fn what_is_shed_is_said_at_once_and_then_seldom_and_whole() {
        let mut shed = Shed::default();
        assert_eq!(shed.add(at(1), 3), Some(3));
        assert_eq!((shed.add(at(2), 4), shed.add(at(10_000), 5)), (None, None));
        assert_eq!(shed.add(at(10_001), 1), Some(10));
    }

    #[test]
    fn clocks_that_drift_and_messages_from_the_past_and_the_future_tell_nothing_wrong() {
        let mut lag = Lag::default();
        for second in 1..10_000 {
            let drifted = at(second * 1_001);
            assert_eq!(lag.waited(drifted, at(second * 1_000)), Span(0), "second {second}");
        }
        for odd in [0, u64::MAX, 0, 7] {
            assert!(lag.waited(Time(u64::MAX), Time(odd)) <= Span(u64::MAX));
        }
    }
}
