//! Moments that each bring more than there is, counted by how long their operations wait.
//!
//! Of two moments in which as many operations start, those wait longer after whose last one less is left: that is less
//! than an operation costs, the slack. It changes from moment to moment by a sum; which waits it makes is reckoned once
//! for a range of it within which all are counted as equally long. So nothing is rounded that is not rounded anyway.

use super::held::fine;
use super::pressed::{MOMENTS_A_DECISION, Parts, Run, Started};
use super::tally::shorter;
use super::{Budget, ReplayError, Span};

/// Moments in which so many operations start, by ranges of their slack.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    count: u64,
    /// Where ranges begin, and the moments in each.
    ranges: Vec<(u64, u64)>,
}

/// All of them. Which ranges there are takes as long to reckon as to count the moments of a minute, so that they are kept
/// from one run to the next.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    terms: Terms,
    classes: Vec<Class>,
}

/// On which the ranges depend, and what is gained from one moment to the next. Amounts are millionths of a micro-RU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    rate: u64,
    cost: u64,
    /// What comes while an operation waits as long as it may.
    waited: u64,
    parts: u64,
    /// Operations that start in a time between two moments, and what is over: of both lengths.
    gains: [(u64, u64); 2],
}

/// How the last of some moments ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    /// Operations that started in all.
    pub(super) started: u64,
    /// And in the last one.
    pub(super) count: u64,
    /// What was there when it came, less what those before it still had to get.
    pub(super) there: i128,
}

impl Classes {
    /// Of a run, those kept if they are the same; `None` where several operations start in a microsecond, or numbers are
    /// too large.
    pub(super) fn of(rate: i128, run: &Run, kept: Option<Self>) -> Option<Self> {
        let terms = Terms::of(rate, run)?;
        let kept = kept.filter(|kept| Terms { gains: terms.gains, ..kept.terms } == terms);
        Some(Self { terms, classes: kept.map_or_else(Vec::new, |kept| kept.classes) })
    }

    /// Counts so many moments after one that left so much.
    pub(super) fn count(
        &mut self,
        moments: u64,
        mut gaps: Parts,
        mut slack: u64,
        budget: &mut Budget,
    ) -> Result<Last, ReplayError> {
        let (mut last, begin, first_gap) = (Last::default(), slack, gaps);
        let (mut moment, mut is_first_round) = (0, true);
        while moment < moments {
            if moment.is_multiple_of(MOMENTS_A_DECISION) {
                budget.spend()?;
            }
            self.step(&mut gaps, &mut slack, &mut last);
            moment += 1;
            if is_first_round && slack == begin && gaps == first_gap {
                // From here on all comes again.
                let rounds = moments.checked_div(moment).unwrap_or(1);
                self.repeat(rounds);
                (last.started, moment, is_first_round) = (last.started * rounds, moment * rounds, false);
            }
        }
        Ok(last)
    }

    /// Counts the next moment.
    fn step(&mut self, gaps: &mut Parts, slack: &mut u64, last: &mut Last) {
        let Terms { cost, waited, gains: [least, more], .. } = self.terms;
        let (count, over) = if gaps.advance() > gaps.least() { more } else { least };
        last.there = i128::from(*slack) + i128::from(count * cost + over) - i128::from(waited);
        *slack += over;
        last.count = count + u64::from(*slack >= cost);
        *slack -= if *slack >= cost { cost } else { 0 };
        last.started += last.count;
        let class = match self.classes.iter().position(|class| class.count == last.count) {
            Some(class) => class,
            None => {
                self.classes.push(self.terms.class(last.count));
                self.classes.len() - 1
            }
        };
        let ranges = self.classes.get_mut(class).map(|class| &mut class.ranges);
        let range = ranges.and_then(|ranges| {
            let after = ranges.partition_point(|(begin, _)| begin <= slack);
            ranges.get_mut(after.saturating_sub(1))
        });
        if let Some((_, moments)) = range {
            *moments += 1;
        }
    }

    /// Counts all that was counted so many times.
    fn repeat(&mut self, rounds: u64) {
        for (_, moments) in self.classes.iter_mut().flat_map(|class| &mut class.ranges) {
            *moments *= rounds;
        }
    }

    /// Says how long the parts of all moments waited that were counted, and forgets these.
    pub(super) fn tell(&mut self, run: &Run, started: Started<'_>) {
        let terms = self.terms;
        for class in &mut self.classes {
            for (slack, moments) in class.ranges.iter_mut().filter(|(_, moments)| *moments > 0) {
                terms.parts(class.count, *slack, &mut |size, short| {
                    started(run.costs(size * *moments), Span(terms.wait(short, *slack)));
                });
                *moments = 0;
            }
        }
    }
}

impl Terms {
    fn of(rate: i128, run: &Run) -> Option<Self> {
        let (rate, cost) = (u64::try_from(rate).ok()?, u64::try_from(fine(run.cost)).ok()?);
        let gained = |span: u64| rate.checked_mul(span);
        let (waited, most) = (gained(run.patience.0)?, gained(run.gaps.least().checked_add(1)?)?);
        let fits = waited.checked_add(most)?.checked_add(cost)? < 1 << 62;
        let gains =
            [most - rate, most].map(|gained| Some((gained.checked_div(cost)?, gained.checked_rem(cost)?)));
        let [Some(least), Some(more)] = gains else { return None };
        let terms = Self { rate, cost, waited, parts: run.parts, gains: [least, more] };
        (fits && cost >= rate).then_some(terms)
    }

    fn class(&self, count: u64) -> Class {
        let (mut ranges, mut begin) = (Vec::new(), Some(0));
        while let Some(at) = begin {
            ranges.push((at, 0));
            begin = self.next(count, at);
        }
        Class { count, ranges }
    }

    /// The next slack with which some part waits so much shorter that it counts.
    fn next(&self, count: u64, slack: u64) -> Option<u64> {
        let over = self.over();
        let mut next = if over > slack { over.min(self.cost) } else { self.cost };
        self.parts(count, slack, &mut |_, short| {
            let wait = self.wait(short, slack);
            if wait > 0 {
                let enough = short - i64::try_from(shorter(wait) * self.rate).unwrap_or(i64::MAX);
                next = next.min(u64::try_from(enough).unwrap_or(0));
            }
        });
        (next < self.cost).then_some(next)
    }

    /// What comes while an operation waits, beyond whole ones.
    fn over(&self) -> u64 {
        self.waited.checked_rem(self.cost).unwrap_or(0)
    }

    /// The parts of a moment: how many operations, and how much is missing for all of them without any slack.
    fn parts(&self, count: u64, slack: u64, hear: &mut dyn FnMut(u64, i64)) {
        let waited = i64::try_from(self.waited).unwrap_or(i64::MAX);
        let missing = |after: u64| waited - i64::try_from(self.cost * after).unwrap_or(i64::MAX);
        // Those that what is there is enough for start at once, or when those before have got theirs.
        let late = self.waited.checked_div(self.cost).unwrap_or(0) + u64::from(self.over() > slack);
        let mut first = count.saturating_sub(late);
        if first > 0 {
            hear(first, missing(count));
        }
        let size = count.div_ceil(self.parts.max(1));
        while first < count {
            let some = size.min(count - first);
            first += some;
            hear(some, missing(count - first));
        }
    }

    /// How long it takes until so much less the slack has come.
    fn wait(&self, missing: i64, slack: u64) -> u64 {
        let missing = i128::from(missing) - i128::from(slack);
        u64::try_from(missing).unwrap_or(0).div_ceil(self.rate)
    }
}
