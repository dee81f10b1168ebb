//! The work of a load node in one group: operations one after another, mostly small, some large, with pauses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidegate_sim::random::Random;

/// Small operations cost this many micro-RU: 0.1 to 3 RU.
const SMALL: (u64, u64) = (100_000, 3_000_000);
/// One operation in this many is large, which takes a lump.
const LARGE_EVERY: u64 = 300;
/// One operation in this many is followed by a pause, so that tokens gather.
const PAUSE_EVERY: u64 = 200;
/// Longest pause, in milliseconds.
const PAUSE_MS: u64 = 600;

/// What kind of operations a work has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Mostly small ones, some large ones, now and then a pause.
    Mixed,
    /// Small ones whose cost is estimated up to half too low or too high, now and then a pause.
    Wrong,
    /// Small ones without a pause: more than any cap at all times.
    Steady,
}

/// The work of one group. As text: `name:burst`, `name:burst:wrong` or `name:burst:steady`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The group.
    pub group: String,
    /// Depth of its bucket in RU; large operations cost a tenth to a quarter of it.
    pub burst: u64,
    /// The kind of its operations.
    pub kind: Kind,
}

/// One operation to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Micro-RU to be admitted with.
    pub estimate: i64,
    /// Micro-RU it costs.
    pub actual: i64,
    /// Idle time after it.
    pub pause: Duration,
}

impl Work {
    /// The next operation.
    pub fn draw(&self, random: &mut Random) -> Draw {
        let large = self.kind == Kind::Mixed && random.one_in(LARGE_EVERY);
        let micro = self.burst.saturating_mul(1_000_000);
        let (low, high) = if large { (micro / 10, micro / 4) } else { SMALL };
        let estimate = random.between(low, high);
        let percent = if self.kind == Kind::Wrong { random.between(50, 150) } else { 100 };
        let pauses = self.kind != Kind::Steady && random.one_in(PAUSE_EVERY);
        let pause = if pauses { random.between(0, PAUSE_MS) } else { 0 };
        let number = |micro| i64::try_from(micro).unwrap_or(i64::MAX);
        Draw {
            estimate: number(estimate),
            actual: number(estimate * percent / 100),
            pause: Duration::from_millis(pause),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Mixed => "",
            Kind::Wrong => ":wrong",
            Kind::Steady => ":steady",
        };
        write!(f, "{}:{}{kind}", self.group, self.burst)
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(':').collect();
        let (group, burst, kind) = match *words.as_slice() {
            [group, burst] => (group, burst, Kind::Mixed),
            [group, burst, "wrong"] => (group, burst, Kind::Wrong),
            [group, burst, "steady"] => (group, burst, Kind::Steady),
            _ => return Err(format!("{text}: write GROUP:BURST, GROUP:BURST:wrong or GROUP:BURST:steady")),
        };
        let burst = burst.parse().map_err(|error| format!("{text}: {error}"))?;
        Ok(Self { group: group.to_owned(), burst, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_written_and_read() {
        for text in ["load:1000", "dear:300:wrong", "far:10:steady"] {
            assert_eq!(text.parse::<Work>().unwrap().to_string(), text);
        }
        assert!("load".parse::<Work>().is_err() && "load:x".parse::<Work>().is_err());
    }

    #[test]
    fn operations_fit_the_bucket_and_estimates_are_wrong_when_told() {
        let mut random = Random::new(1, 1);
        let work = Work { group: "g".to_owned(), burst: 100, kind: Kind::Mixed };
        let draws: Vec<Draw> = (0..10_000).map(|_| work.draw(&mut random)).collect();
        assert!(draws.iter().all(|draw| draw.estimate == draw.actual && draw.actual <= 25_000_000));
        assert!(draws.iter().any(|draw| draw.actual >= 10_000_000));
        let wrong = Work { kind: Kind::Wrong, ..work };
        let draws: Vec<Draw> = (0..1_000).map(|_| wrong.draw(&mut random)).collect();
        assert!(draws.iter().any(|draw| draw.actual > draw.estimate));
        assert!(draws.iter().any(|draw| draw.actual < draw.estimate));
        assert!(draws.iter().all(|draw| 2 * draw.actual + 1 >= draw.estimate && draw.actual > 0));
        let steady = Work { kind: Kind::Steady, ..wrong };
        let mut draws = (0..1_000).map(|_| steady.draw(&mut random));
        assert!(draws.all(|draw| draw.actual <= 3_000_000 && draw.pause.is_zero()));
    }
}
