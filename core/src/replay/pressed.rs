//! Moments of an even stretch that bring more than there is, decided together.
//!
//! Each moment finds what came since the one before, and what is left of that is less than an operation costs. So
//! what starts until a moment is what came until then, in whole operations: one quotient for any number of moments. What
//! is decided so is what each moment by itself would be, to the last micro-RU. Where nobody waits, buckets may be full
//! between two moments; then each is decided by itself, by sums alone.

use super::classes::Classes;
use super::held::{Held, HeldState, divided, divided_up, fine};
use super::{Budget, ReplayError, Ru, Span, Time};

/// Moments that are decided by sums alone, for one decision of the budget, which takes about as long.
pub(super) const MOMENTS_A_DECISION: u64 = 16;
/// The same where the parts of each are told.
const REFILLED_A_DECISION: u64 = 2;

/// Fewer moments are told one by one, which takes less time than all ranges of waits do.
const IN_CLASSES: u64 = 64;

/// Moments at equal distances, each with its operations of one cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first moment.
    pub(super) first: Time,
    /// How many moments there are.
    pub(super) moments: u64,
    /// The times between two.
    pub(super) gaps: Parts,
    /// What each brings.
    pub(super) counts: Parts,
    /// What an operation costs.
    pub(super) cost: Ru,
    /// How long operations wait.
    pub(super) patience: Span,
    /// In how many parts those of a moment wait.
    pub(super) parts: u64,
    /// What a moment of the stretch costs at most.
    pub(super) most: Ru,
}

impl Run {
    /// The last moment.
    fn last(&self) -> Time {
        self.first.after(Span(self.gaps.sum(self.moments.saturating_sub(1))))
    }

    /// What so many of its operations cost.
    pub(super) fn costs(&self, operations: u64) -> Ru {
        Ru(self.cost.0.saturating_mul(i64::try_from(operations).unwrap_or(i64::MAX)))
    }
}

/// What became of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ran {
    /// Moments that were decided.
    pub(super) moments: u64,
    /// Operations of them that started.
    pub(super) started: u64,
    /// When the last one started, if one did.
    pub(super) free: Option<Time>,
}

/// Who hears how much started after which wait.
pub(super) type Started<'s> = &'s mut dyn FnMut(Ru, Span);

/// Whose turn it is, when, and what is there then.
#[derive(Clone, Copy, Debug)]
struct Turn {
    at: Time,
    there: i128,
}

/// The sizes of equal parts of a whole, one after another: those of [`part_of`], by sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    least: u64,
    rest: u64,
    of: u64,
    over: u64,
}

impl Parts {
    /// Of so many parts of a whole, from the one with this number on.
    pub(super) fn new(whole: u64, number: u64, of: u64) -> Self {
        let of = of.max(1);
        let (least, rest) = (whole.checked_div(of).unwrap_or(0), whole.checked_rem(of).unwrap_or(0));
        // Whole times number, by what of both is no multiple.
        let over = match rest.checked_mul(number) {
            Some(product) => product.checked_rem(of).unwrap_or(0),
            None => {
                let over = u128::from(rest) * u128::from(number) % u128::from(of);
                u64::try_from(over).unwrap_or(0)
            }
        };
        Self { least, rest, of, over }
    }

    /// The size of the next part.
    pub(super) fn advance(&mut self) -> u64 {
        self.over += self.rest;
        if self.over < self.of {
            return self.least;
        }
        self.over -= self.of;
        self.least + 1
    }

    /// The size of so many parts from the next one on.
    pub(super) fn sum(&self, parts: u64) -> u64 {
        let more = (u128::from(self.rest) * u128::from(parts) + u128::from(self.over)) / u128::from(self.of);
        self.least.saturating_mul(parts).saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }

    /// The size of a part at least.
    pub(super) fn least(&self) -> u64 {
        self.least
    }

    /// The size of a part at most.
    fn most(&self) -> u64 {
        self.least + u64::from(self.rest > 0)
    }
}

impl Held {
    /// Decides the first moments of a run; none if the first one has to be decided by itself.
    pub(super) fn decide(
        &mut self,
        state: &mut HeldState,
        free: Time,
        run: &Run,
        budget: &mut Budget,
        started: Started<'_>,
    ) -> Result<Ran, ReplayError> {
        budget.spend()?;
        if run.patience == Span(0) {
            return self.without_waits(state, run, budget, started);
        }
        match self.pressed(state, free, run) {
            None => Ok(self.refilled(state, free, run, budget, started)?.unwrap_or_default()),
            Some(first) if run.parts > 1 => self.in_parts(state, first, run, budget, started),
            Some(first) => {
                let latest = run.last().after(run.patience);
                let in_time = first.there + self.rate * i128::from(latest.since(first.at).0);
                let operations = divided(in_time, fine(run.cost));
                let free = self.wait(state, first, operations * fine(run.cost));
                let operations = u64::try_from(operations).unwrap_or(u64::MAX);
                started(run.costs(operations), free.since(run.last()));
                Ok(Ran { moments: run.moments, started: operations, free: Some(free) })
            }
        }
    }

    /// The moments of a run where each brings more than nodes' buckets hold, and the rest comes soon enough for all of it
    /// and until the next moment fills the buckets again.
    fn refilled(
        &self,
        state: &mut HeldState,
        free: Time,
        run: &Run,
        budget: &mut Budget,
        started: Started<'_>,
    ) -> Result<Option<Ran>, ReplayError> {
        let (cost, now) = (fine(run.cost), self.at(state, run.first));
        let [least, most] = [run.counts.least, run.counts.most()].map(|count| cost * i128::from(count));
        let wait = divided_up(most - now.cap, self.rate);
        let refills = self.rate * (i128::from(run.gaps.least) - wait) >= now.cap;
        // What is left of a microsecond stays in the pool.
        let all_wait = least > now.cap + now.pool.max(self.rate) && self.burst - now.cap >= self.rate;
        if free > run.first
            || now.near < now.cap
            || now.leased < self.rate
            || !refills
            || !all_wait
            || wait > i128::from(run.patience.0)
        {
            return Ok(None);
        }
        let before = run.moments - 1;
        let count = run.counts.sum(run.moments);
        if run.parts > 1 {
            let (mut counts, mut pool) = (run.counts, now.pool);
            for moment in 0..run.moments {
                if moment.is_multiple_of(REFILLED_A_DECISION) {
                    budget.spend()?;
                }
                let (all, there) = (i128::from(counts.advance()), now.cap + pool);
                self.waits(run, all, (there, Span(0)), started);
                pool = (there - all * cost).rem_euclid(self.rate);
            }
        }
        let taken = cost * i128::from(run.counts.sum(before)) - i128::from(before) * now.cap;
        let left = if before == 0 { now.pool } else { (now.pool - taken).rem_euclid(self.rate) };
        let last = cost * i128::from(count - run.counts.sum(before));
        let turn = Turn { at: run.last(), there: now.cap + left };
        let free = self.wait(state, turn, last);
        if run.parts <= 1 {
            started(run.costs(count), free.since(turn.at));
        }
        Ok(Some(Ran { moments: run.moments, started: count, free: Some(free) }))
    }

    /// Says how long so many operations of a moment wait, beside the time until their turn, at which so much is there.
    fn waits(&self, run: &Run, all: i128, (there, late): (i128, Span), started: Started<'_>) {
        let cost = fine(run.cost);
        // What is there starts at once, and the others in parts.
        let (size, mut some) = (divided_up(all, i128::from(run.parts)), divided(there, cost).min(all));
        let mut first = 0;
        while first < all {
            some = if some > 0 { some } else { size.min(all - first) };
            first += some;
            let missing = (first * cost - there).max(0);
            let wait = u64::try_from(divided_up(missing, self.rate)).unwrap_or(u64::MAX);
            let wait = Span(wait.saturating_add(late.0));
            started(run.costs(u64::try_from(some).unwrap_or(u64::MAX)), wait);
            some = 0;
        }
    }

    /// When so much has started, more than is there; all that comes until then is for it.
    fn wait(&self, state: &mut HeldState, turn: Turn, spent: i128) -> Time {
        let wait = divided_up(spent - turn.there, self.rate);
        let free = turn.at.after(Span(u64::try_from(wait).unwrap_or(u64::MAX)));
        let pool = turn.there + self.rate * wait - spent;
        *state = self.settled(HeldState { at: free, near: 0, pool, ..*state });
        free
    }

    /// The turn of the first moment, if each takes all that comes until it has to start, and its last operation waits.
    fn pressed(&self, state: &HeldState, free: Time, run: &Run) -> Option<Turn> {
        let cost = fine(run.cost);
        let gained = |span: u64| self.rate * i128::from(span);
        let (least, most, waited) = (gained(run.gaps.least), gained(run.gaps.most()), gained(run.patience.0));
        let fits = |amount: i128| amount < cost * (i128::from(run.counts.least) + 1);
        // Nodes have the whole rate, the last operation of a moment waits, what comes between two moments has room in
        // buckets, and each moment brings as much.
        if state.leased < self.rate
            || waited.min(least) < cost + self.rate
            || cost + (most - waited).max(0) > state.cap
            || !fits(most + cost - 1)
        {
            return None;
        }
        let end = run.first.0.checked_add(run.gaps.sum(run.moments))?;
        end.checked_add(run.patience.0)?;
        let (at, latest) = (run.first.max(free), run.first.after(run.patience));
        let there = self.at(state, at).sum();
        let in_time = there + gained(latest.since(at).0);
        let waits = at <= latest && divided(in_time, cost) * cost > there;
        (waits && fits(in_time)).then_some(Turn { at, there })
    }

    /// The moments of such a run, where it matters how long each part of a moment waits.
    fn in_parts(
        &mut self,
        state: &mut HeldState,
        mut turn: Turn,
        run: &Run,
        budget: &mut Budget,
        started: Started<'_>,
    ) -> Result<Ran, ReplayError> {
        let (cost, mut gaps, mut arrival) = (fine(run.cost), run.gaps, run.first);
        let mut ran = Ran::default();
        loop {
            budget.spend()?;
            let latest = arrival.after(run.patience);
            let in_time = turn.there + self.rate * i128::from(latest.since(turn.at).0);
            let all = divided(in_time, cost);
            self.waits(run, all, (turn.there, turn.at.since(arrival)), started);
            ran.moments += 1;
            ran.started += u64::try_from(all).unwrap_or(u64::MAX);
            let left = in_time - all * cost;
            let others = run.moments - ran.moments;
            if others == 0 {
                ran.free = Some(self.wait(state, turn, all * cost));
                return Ok(ran);
            }
            let classes = if ran.moments == 1 && others >= IN_CLASSES {
                Classes::of(self.rate, run, self.classes.take())
            } else {
                None
            };
            if let Some(mut classes) = classes {
                let last = classes.count(others, gaps, u64::try_from(left).unwrap_or(0), budget)?;
                classes.tell(run, started);
                self.classes = Some(classes);
                let late = divided_up((-last.there).max(0), self.rate);
                let at = run.last().after(Span(u64::try_from(late).unwrap_or(0)));
                let turn = Turn { at, there: last.there + self.rate * late };
                let free = self.wait(state, turn, cost * i128::from(last.count));
                return Ok(Ran {
                    moments: run.moments,
                    started: ran.started + last.started,
                    free: Some(free),
                });
            }
            arrival = arrival.after(Span(gaps.advance()));
            // Until it starts, so much is missing.
            let there = left + self.rate * i128::from(arrival.since(latest).0)
                - self.rate * i128::from(latest.since(arrival).0);
            let late = divided_up((-there).max(0), self.rate);
            let at = arrival.after(Span(u64::try_from(late).unwrap_or(u64::MAX)));
            turn = Turn { at, there: there + self.rate * late };
        }
    }

    /// The moments of any run, where what does not start at once is refused.
    fn without_waits(
        &self,
        state: &mut HeldState,
        run: &Run,
        budget: &mut Budget,
        started: Started<'_>,
    ) -> Result<Ran, ReplayError> {
        let (cost, most) = (fine(run.cost), fine(run.most));
        let unleased = self.rate - state.leased;
        let gained = |gap: u64| (state.leased * i128::from(gap), unleased * i128::from(gap));
        let (less, more) = (gained(run.gaps.least), gained(run.gaps.most()));
        let (cap, room) = (state.cap, self.burst - state.cap);
        let (mut gaps, mut counts, mut ran) = (run.gaps, run.counts, Ran::default());
        let mut now = self.at(state, run.first);
        while ran.moments < run.moments && !(most <= now.near && most <= less.0) {
            if ran.moments.is_multiple_of(MOMENTS_A_DECISION) {
                budget.spend()?;
            }
            let (count, before) = (counts.advance(), now);
            let is_short = cost * i128::from(count) > now.sum();
            let starts = if is_short { u64::try_from(now.sum() / cost).unwrap_or(0) } else { count };
            let taken = cost * i128::from(starts);
            let near = taken.min(now.near);
            (now.near, now.pool) = (now.near - near, now.pool - (taken - near));
            (ran.moments, ran.started) = (ran.moments + 1, ran.started + starts);
            if starts > 0 {
                ran.free = Some(now.at);
            }
            let left = run.moments - ran.moments;
            let refills = |(near, pool): (i128, i128)| {
                now.near + near >= cap && (now.pool + pool).min(room) == before.pool
            };
            if is_short && starts <= run.counts.least && before.near == cap && refills(less) && refills(more)
            {
                // All that follow find the same.
                (ran.moments, ran.started) = (run.moments, ran.started + starts * left);
                now.at = now.at.after(Span(gaps.sum(left)));
                ran.free = ran.free.map(|_| now.at);
            } else if left > 0 {
                let gap = gaps.advance();
                let (near, pool) = if gap > run.gaps.least { more } else { less };
                now.at = now.at.after(Span(gap));
                (now.near, now.pool) = ((now.near + near).min(cap), (now.pool + pool).min(room));
            }
        }
        *state = now;
        started(run.costs(ran.started), Span(0));
        Ok(ran)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::replay::grid::part_of;

    proptest! {
        #[test]
        fn parts_are_those_of_a_whole(whole: u64, of in 1_u64..2_000, number in 0_u64..2_000) {
            let number = number.min(of - 1);
            let mut parts = Parts::new(whole, number, of);
            let begin = |number| part_of(whole, number, of);
            for next in number..of {
                prop_assert_eq!(parts.sum(of - next), whole - begin(next));
                let size = parts.advance();
                prop_assert_eq!(size, begin(next + 1) - begin(next));
                prop_assert!((parts.least..=parts.most()).contains(&size));
            }
        }
    }
}
