//! When the controller that owns the log counts as dead: judged by what an observer reads, on its own clock.
//!
//! The owner speaks to nodes until *the moment before it sent the newest beat that succeeded* plus its fence. An observer
//! counts from the moment *after* the read that first showed the newest beat, which is later than that sending. So when
//! the fence has passed on the observer's clock, and the drift between both clocks, the owner is silent, or it has
//! written another beat, and then the observer's transaction that compares the beat fails.

use tidegate_core::engine::EngineConfig;
use tidegate_core::units::{Span, Time};

/// What a read showed: the revisions at which the owner and its beat were last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sign {
    /// Of the owner.
    pub(crate) own: u64,
    /// Of its beat; 0 before the first.
    pub(crate) beat: u64,
}

/// What is known of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It wrote a beat a moment ago.
    Alive,
    /// Its beat is late.
    Late,
    /// It is silent by now, unless it has written a beat since.
    Dead,
}

/// One observer of one owner.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// The newest sign, and when it had first been read.
    newest: Option<(Sign, Time)>,
}

impl Observer {
    /// Takes in a read that had ended by `now`, of an owner with this fence.
    pub(crate) fn saw(&mut self, sign: Sign, now: Time, fence: Span, clocks: EngineConfig) -> Verdict {
        let since = match self.newest {
            Some((newest, since)) if newest == sign => since,
            _ => now,
        };
        self.newest = Some((sign, since));
        let quiet = now.since(since);
        if quiet >= clocks.longest_use(fence) {
            Verdict::Dead
        } else if quiet.0 >= fence.0 / 2 {
            Verdict::Late
        } else {
            Verdict::Alive
        }
    }

    /// Takes in that a read failed: a store that was away is no dead owner, since the owner could write no beat to it.
    pub(crate) fn failed(&mut self) {
        self.newest = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FENCE: Span = Span::secs(1);
    const CLOCKS: EngineConfig = EngineConfig { drift_ppm: 1_000, margin: Span::millis(50) };
    const FIRST: Sign = Sign { own: 5, beat: 5 };

    fn ms(ms: u64) -> Time {
        Time(ms * 1_000)
    }

    fn saw(observer: &mut Observer, sign: Sign, at: u64) -> Verdict {
        observer.saw(sign, ms(at), FENCE, CLOCKS)
    }

    #[test]
    fn who_writes_nothing_for_its_fence_and_the_drift_of_clocks_is_dead() {
        let mut observer = Observer::default();
        assert_eq!(saw(&mut observer, FIRST, 100), Verdict::Alive);
        assert_eq!(saw(&mut observer, FIRST, 599), Verdict::Alive);
        assert_eq!(saw(&mut observer, FIRST, 600), Verdict::Late);
        assert_eq!(
            saw(&mut observer, FIRST, 1_151),
            Verdict::Late,
            "a second, a thousandth of it, and 50 ms"
        );
        assert_eq!(saw(&mut observer, FIRST, 1_152), Verdict::Dead);
    }

    #[test]
    fn a_beat_another_owner_and_a_failed_read_begin_the_wait_again() {
        let mut observer = Observer::default();
        saw(&mut observer, FIRST, 0);
        assert_eq!(saw(&mut observer, Sign { beat: 6, ..FIRST }, 1_100), Verdict::Alive);
        assert_eq!(saw(&mut observer, Sign { own: 7, beat: 6 }, 2_200), Verdict::Alive);
        observer.failed();
        assert_eq!(saw(&mut observer, Sign { own: 7, beat: 6 }, 5_000), Verdict::Alive);
        assert_eq!(saw(&mut observer, Sign { own: 7, beat: 6 }, 6_050), Verdict::Late);
    }

    proptest! {
        /// Beats reach the store after a while or never, reads end late, fail, and clocks drift apart: whenever the
        /// observer calls the owner dead and no beat is written after that read, the owner is silent already.
        #[test]
        fn an_owner_that_counts_as_dead_is_silent(
            beats in prop::collection::vec((1_u64..400, 0_u64..300, any::<bool>()), 1..40),
            reads in prop::collection::vec((1_u64..300, 0_u64..100, 0_u8..10), 1..80),
            faster in -500_i64..=500,
        ) {
            // True time in microseconds. Each clock is off by at most half of the drift that both may have.
            let (mut at, mut written) = (0, vec![(0, 0)]);
            for (pause, late, stored) in beats {
                at += pause * 1_000;
                if stored {
                    written.push((at, at + late * 1_000));
                }
            }
            let on = |time: u64, ppm: i64| Time(time * u64::try_from(1_000_000 + ppm).unwrap() / 1_000_000);
            let mut observer = Observer::default();
            let mut read = 0;
            for (pause, late, luck) in reads {
                read += pause * 1_000;
                if luck == 0 {
                    observer.failed();
                    continue;
                }
                // What the store held at the read; the store takes writes in order.
                let there = written.iter().enumerate().filter(|(_, (_, stored))| *stored <= read).map(|(n, _)| n).max();
                let Some(newest) = there else { continue };
                let sign = Sign { own: 1, beat: newest as u64 };
                let ended = read + late * 1_000;
                let verdict = observer.saw(sign, on(ended, faster), FENCE, CLOCKS);
                read = ended;
                if verdict == Verdict::Dead {
                    // The take compares the beat: a later one in the store makes it fail.
                    let later = written.iter().enumerate().any(|(n, (_, stored))| n > newest && *stored <= ended);
                    if !later {
                        // The owner's clock stretches its fence by as much as it is slow.
                        let sent = written.iter().take(newest + 1).map(|(sent, _)| *sent).max().unwrap_or(0);
                        let silent_from = on(sent, -faster).after(FENCE);
                        prop_assert!(on(ended, -faster) >= silent_from, "beat {newest} sent {sent}, dead at {ended}");
                    }
                }
            }
        }
    }
}
