//! Loads: who asks for how much, when.

use tidegate_core::group::GroupId;
use tidegate_core::units::{Ru, Span, Time};

use super::random::Random;
use super::settling::{Fate, Settling};

/// How operations arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Poisson arrivals at this many RU/s (whole), whatever happens to them.
    Open(u64),
    /// This many workers, each with one operation at a time and no pause.
    Closed(u64),
}

/// The random streams that arrivals are drawn from: every driver of the same loads with the same seed sees the same
/// operations.
#[derive(Clone, Debug)]
pub struct Arrivals {
    arrivals: Vec<Random>,
    fates: Vec<Random>,
}

/// An operation that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time to the next one.
    pub gap: Span,
    /// Its estimate.
    pub cost: Ru,
    /// How it ends.
    pub fate: Fate,
}

impl Arrivals {
    /// Streams of a seed.
    pub fn new(seed: u64) -> Self {
        let streams = |first: u64| (first..first + 64).map(|purpose| Random::new(seed, purpose)).collect();
        Self { arrivals: streams(100), fates: streams(200) }
    }

    /// The next operation of a load (by its index) on a node.
    pub fn draw(&mut self, index: usize, load: &Load, node: usize) -> Option<Arrival> {
        let purpose = (index * 17 + node) % self.arrivals.len();
        let random = self.arrivals.get_mut(purpose)?;
        let (gap, cost) = (load.gap(random), load.draw(random));
        let fate = load.settling.draw(cost, load.plain(cost), load.max_wait, self.fates.get_mut(purpose)?);
        Some(Arrival { gap, cost, fate })
    }
}

/// Operations of one kind on some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// For the report.
    pub label: String,
    /// First and last node.
    pub nodes: (usize, usize),
    /// Charged group.
    pub group: GroupId,
    /// Arrivals.
    pub pattern: Pattern,
    /// Lowest and highest cost, in whole RU.
    pub cost: (u64, u64),
    /// The settled cost is up to this many times the estimate, in tenths.
    pub settle_tenths: u64,
    /// Longest wait.
    pub max_wait: Span,
    /// Start and end.
    pub from: Time,
    /// End.
    pub until: Time,
    /// The load is on for this long, then off for as long, in turns; always on if zero.
    pub turns: Span,
    /// The load is on in the odd turns instead of the even ones.
    pub odd: bool,
    /// Moves to the next node every so often; zero stays.
    pub moves: Span,
    /// How operations end, where that is not at once and as `settle_tenths` says.
    pub settling: Settling,
}

impl Load {
    /// Whether a node runs this load now.
    pub fn on(&self, node: usize, now: Time) -> bool {
        if now < self.from || now >= self.until || node < self.nodes.0 || node > self.nodes.1 {
            return false;
        }
        let since = now.since(self.from).0;
        if self.turns.0 > 0 && (since / self.turns.0).is_multiple_of(2) == self.odd {
            return false;
        }
        let count = (self.nodes.1 - self.nodes.0 + 1) as u64;
        self.moves.0 == 0 || (since / self.moves.0) % count == (node - self.nodes.0) as u64
    }

    /// Time to the next arrival on a node.
    pub fn gap(&self, random: &mut Random) -> Span {
        match self.pattern {
            Pattern::Open(ru_per_sec) => {
                let mean_cost = u64::midpoint(self.cost.0, self.cost.1).max(1);
                Span(random.exponential(1_000_000 * mean_cost / ru_per_sec.max(1)).max(1))
            }
            Pattern::Closed(_) => Span(1_000),
        }
    }

    /// Workers of a closed load on each node; an open load has one source.
    pub fn workers(&self) -> u64 {
        if let Pattern::Closed(workers) = self.pattern { workers } else { 1 }
    }

    /// When the sources of a node first act.
    pub fn first_arrivals(&self) -> impl Iterator<Item = Time> {
        let from = self.from;
        (0..self.workers()).map(move |worker| from.after(Span(1 + worker * 17 % 1_000)))
    }

    /// The cost of an operation, unless its fate says otherwise.
    fn plain(&self, estimate: Ru) -> Ru {
        estimate.scale(i64::try_from(self.settle_tenths).unwrap_or(10), 10)
    }

    /// The most that an operation takes, when it is let in or when it is settled.
    pub fn dearest(&self) -> Ru {
        let estimate = Ru::whole(i64::try_from(self.cost.1).unwrap_or(i64::MAX));
        estimate.max(self.settling.dearest(estimate).unwrap_or_else(|| self.plain(estimate)))
    }

    /// Estimate of the next operation.
    pub fn draw(&self, random: &mut Random) -> Ru {
        Ru(i64::try_from(random.between(self.cost.0 * 1_000_000, self.cost.1 * 1_000_000))
            .unwrap_or(i64::MAX))
    }
}
