//! How operations end: when they are settled, at what cost, and which are cancelled before or after they were let in.
//!
//! As text, among the words of a load:
//! ```text
//! lasts=0us..300ms        time from admission to settlement; at once without it
//! actual=0..1500          cost in thousandths of the estimate, instead of the load's `settle`
//! actual=5:9,180:1        one of these costs in RU, with these weights
//! undone=50               of a thousand operations that were let in so many never run, and are given back
//! leaves=200              of a thousand so many leave the queue within half of their longest wait
//! ```

use std::fmt;
use std::str::FromStr;

use tidegate_core::units::{Ru, Span};

use super::random::Random;
use super::words::{Words, micro, number, range, show_micro, span};

/// How the operations of a load end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settling {
    /// Shortest and longest time from admission to settlement.
    pub lasts: (Span, Span),
    /// Their cost in the end, where that is not the same part of each estimate.
    pub actual: Option<Actual>,
    /// How many of a thousand admitted operations never run.
    pub undone: u64,
    /// How many of a thousand operations leave the queue, if they have to wait.
    pub leaves: u64,
}

/// What operations cost in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actual {
    /// Between so many thousandths of the estimate.
    Parts(u64, u64),
    /// One of these, with their weights.
    Mix(Vec<(Ru, u64)>),
}

/// How one operation ends.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// Its cost.
    pub actual: Ru,
    /// Time from admission to settlement.
    pub lasts: Span,
    /// It never runs: what was taken for it is given back.
    pub undone: bool,
    /// It leaves the queue after this, if it has to wait so long.
    pub leaves: Option<Span>,
}

impl Settling {
    /// Draws the end of an operation that was estimated at `estimate` and costs `plain` where nothing else is said.
    pub fn draw(&self, estimate: Ru, plain: Ru, max_wait: Span, random: &mut Random) -> Fate {
        let chance =
            |random: &mut Random, thousandths| thousandths > 0 && random.between(0, 999) < thousandths;
        let actual = self.actual.as_ref().map_or(plain, |actual| actual.draw(estimate, random));
        let lasts = if self.lasts.1 > Span(0) {
            Span(random.between(self.lasts.0.0, self.lasts.1.0))
        } else {
            Span(0)
        };
        let undone = chance(random, self.undone);
        let leaves = chance(random, self.leaves).then(|| Span(random.between(0, max_wait.0 / 2)));
        Fate { actual, lasts, undone, leaves }
    }

    /// The most an operation costs, where that is not said by the load.
    pub fn dearest(&self, estimate: Ru) -> Option<Ru> {
        match self.actual.as_ref()? {
            Actual::Parts(_, high) => Some(thousandths(estimate, *high)),
            Actual::Mix(costs) => costs.iter().map(|(cost, _)| *cost).max(),
        }
    }

    /// Reads the words of a load.
    pub(super) fn read(words: &Words<'_>) -> Result<Self, String> {
        Ok(Self {
            lasts: words.get("lasts", (Span(0), Span(0)), |text| range(text, span))?,
            actual: words.get("actual", None, |text| text.parse().ok().map(Some))?,
            undone: words.get("undone", 0, number)?,
            leaves: words.get("leaves", 0, number)?,
        })
    }
}

impl Actual {
    fn draw(&self, estimate: Ru, random: &mut Random) -> Ru {
        match self {
            Self::Parts(low, high) => thousandths(estimate, random.between(*low, *high)),
            Self::Mix(costs) => {
                let sum: u64 = costs.iter().map(|(_, weight)| weight).sum();
                let mut place = random.between(0, sum.max(1) - 1);
                for (cost, weight) in costs {
                    if place < *weight {
                        return *cost;
                    }
                    place -= weight;
                }
                estimate
            }
        }
    }
}

fn thousandths(estimate: Ru, part: u64) -> Ru {
    estimate.scale(i64::try_from(part).unwrap_or(1_000), 1_000)
}

impl FromStr for Actual {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if !text.contains(':') {
            let (low, high) = range(text, number).filter(|(low, high)| low <= high).ok_or(())?;
            return Ok(Self::Parts(low, high));
        }
        let cost = |text: &str| {
            let (cost, weight) = text.split_once(':')?;
            Some((Ru(micro(cost)?), number(weight)?))
        };
        text.split(',').map(cost).collect::<Option<Vec<_>>>().map(Self::Mix).ok_or(())
    }
}

impl fmt::Display for Settling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lasts.1 > Span(0) {
            write!(f, " lasts={}us..{}us", self.lasts.0.0, self.lasts.1.0)?;
        }
        match &self.actual {
            None => {}
            Some(Actual::Parts(low, high)) => write!(f, " actual={low}..{high}")?,
            Some(Actual::Mix(costs)) => {
                let costs: Vec<String> =
                    costs.iter().map(|(cost, weight)| format!("{}:{weight}", show_micro(cost.0))).collect();
                write!(f, " actual={}", costs.join(","))?;
            }
        }
        if self.undone > 0 {
            write!(f, " undone={}", self.undone)?;
        }
        if self.leaves > 0 {
            write!(f, " leaves={}", self.leaves)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_a_mix_come_as_often_as_their_weights_say() {
        let settling =
            Settling { actual: Some("5:9,180.5:1".parse().unwrap()), undone: 100, ..Settling::default() };
        let mut random = Random::new(1, 1);
        let fates: Vec<Fate> = (0..10_000)
            .map(|_| settling.draw(Ru::whole(180), Ru::ZERO, Span::secs(1), &mut random))
            .collect();
        let cheap = fates.iter().filter(|fate| fate.actual == Ru::whole(5)).count();
        let undone = fates.iter().filter(|fate| fate.undone).count();
        assert!((8_800..9_200).contains(&cheap), "{cheap}");
        assert!((850..1_150).contains(&undone), "{undone}");
        assert!(fates.iter().all(|fate| fate.lasts == Span(0) && fate.leaves.is_none()));
        assert_eq!(settling.dearest(Ru::whole(180)), Some(Ru(180_500_000)));
    }
}
