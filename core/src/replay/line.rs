//! Operations that wait in line before a policy, in the order of arrival.

use super::grid::{Grid, parts_within};
use super::held::{Moments, Offer, Steady};
use super::pressed::{Parts, Run};
use super::record::Costs;
use super::windows::{Left, Open, Windows};
use super::{Budget, Hear, Part, Record, ReplayError, Ru, Sample, Settings, Span, Spread, Time};
use crate::node::NodeConfig;
use crate::units::Rate;

/// Moments of an even stretch at least: 3 s of a minute. With a tenth, a minute would be two gusts.
pub(super) const FEWEST: u64 = 20;
/// And at most: 50 ms of a minute. Operations between them are decided together; twice as many take twice as long.
const MOST: u64 = 1_200;
/// Parts in which those of a moment that wait are decided: with half of them waits are known to half of the patience,
/// and twice as many take twice as long.
const WAITING_PARTS: u64 = 4;

/// Fewer moments are decided one by one.
const FEW: u64 = 2;

/// The policy with its state, and those who wait for it.
pub(super) struct Line<'w, P: Steady> {
    policy: P,
    state: P::State,
    /// When the last one starts, which none overtakes.
    free: Time,
    patience: Span,
    /// The longest time between two moments.
    pause: Span,
    /// The largest operation.
    largest: Ru,
    /// In how many parts those of a moment wait.
    parts: u64,
    /// The last moment took all that was there.
    is_drained: bool,
    quota: Option<Open<'w>>,
}

impl<'w, P: Steady> Line<'w, P> {
    /// Waits are heard of in some parts, if anybody asks for them.
    pub(super) fn new(policy: P, settings: &'w Settings, hears_waits: bool) -> Self {
        let burst = settings.burst();
        let largest = settings.quota.as_ref().and_then(Windows::ru).map_or(burst, |most| most.min(burst));
        Self {
            state: policy.fresh(),
            policy,
            free: Time(0),
            patience: settings.patience,
            pause: settings.pause(),
            largest,
            parts: if hears_waits { WAITING_PARTS } else { 1 },
            is_drained: false,
            quota: settings.quota.as_ref().map(Open::of),
        }
    }

    pub(super) fn run(
        mut self,
        record: &Record,
        spread: Spread,
        budget: &mut Budget,
        hear: Hear<'_>,
    ) -> Result<(), ReplayError> {
        let mut end = Time(0);
        for (index, sample) in record.samples().iter().enumerate() {
            if let Some(quota) = &mut self.quota {
                quota.know(sample)?;
            }
            if !sample.amount.is_positive() {
                continue;
            }
            let mut hear = |part| hear(index, part);
            let goes_on = match spread {
                Spread::AtOnce => self.see(end, sample, spread, budget, &mut hear)?,
                Spread::Even => {
                    let mut goes_on = true;
                    for part in record.parts(index).filter(|part| part.amount.is_positive()) {
                        goes_on = goes_on && self.see(end, &part, spread, budget, &mut hear)?;
                        end = part.end();
                    }
                    goes_on
                }
            };
            if !goes_on {
                return Ok(());
            }
            end = sample.end();
        }
        Ok(())
    }

    /// What comes in a stretch of time, after the end of the one before. Returns whether to go on.
    fn see(
        &mut self,
        end: Time,
        sample: &Sample,
        spread: Spread,
        budget: &mut Budget,
        hear: &mut dyn FnMut(Part) -> bool,
    ) -> Result<bool, ReplayError> {
        budget.spend()?;
        let costs = sample.costs();
        self.offer(end, sample, &costs);
        if costs.before(1) > self.largest.0 {
            // None of them fits.
            return Ok(hear(Part::Refused(sample.amount)));
        }
        let most = costs.count.min(sample.length.0);
        let grid = |moments| Grid::new(sample, &costs, moments);
        let finest = grid(MOST.min(most));
        if spread == Spread::Even && self.passes(&finest, 0, true, budget)? > 0 {
            return Ok(hear(Part::Started(sample.amount, Span(0))));
        }
        let grid = match spread {
            Spread::Even => grid(sample.length.0.div_ceil(self.pause.0).clamp(FEWEST, MOST).min(most)),
            Spread::AtOnce => grid(1),
        };
        let mut moment = 0;
        while moment < grid.moments {
            let Some(decided) = self.decide(&grid, moment, budget, hear)? else { return Ok(false) };
            moment = decided;
        }
        Ok(true)
    }

    /// Decides one moment of a sample or some. Returns the one that follows, unless the replay ends.
    fn decide(
        &mut self,
        grid: &Grid<'_>,
        moment: u64,
        budget: &mut Budget,
        hear: &mut dyn FnMut(Part) -> bool,
    ) -> Result<Option<u64>, ReplayError> {
        let begins = self.begins_to_fit(grid, moment);
        if begins > moment {
            let refused = grid.cost(begins) - grid.cost(moment);
            return Ok((!refused.is_positive() || hear(Part::Refused(refused))).then_some(begins));
        }
        if !self.quota.as_mut().is_some_and(|quota| quota.is_short(grid, moment, 1)) {
            match self.together(grid, moment, budget, hear)? {
                Some(end) if end == moment => {}
                decided => return Ok(decided),
            }
        }
        let operations = (grid.before(moment), grid.before(moment + 1));
        let goes_on = self.arrive(grid.costs, operations, grid.arrival(moment), budget, hear)?;
        Ok(goes_on.then_some(moment + 1))
    }

    /// Decides some moments together, from one on, if they can be. Returns the one that follows, unless the replay ends.
    fn together(
        &mut self,
        grid: &Grid<'_>,
        moment: u64,
        budget: &mut Budget,
        hear: &mut dyn FnMut(Part) -> bool,
    ) -> Result<Option<u64>, ReplayError> {
        // A burst that was short at first may suffice from here on, or a quota for a while.
        if moment > 0 || self.quota.is_some() {
            let end = self.passes(grid, moment, false, budget)?;
            if end > moment {
                let goes_on = hear(Part::Started(grid.cost(end) - grid.cost(moment), Span(0)));
                return Ok(goes_on.then_some(end));
            }
        }
        Ok(self.rush(grid, moment, budget, hear)?.map(|decided| moment + decided))
    }

    /// The first moment from one on whose operations may start in time by the quota: before it, not one of them does.
    fn begins_to_fit(&mut self, grid: &Grid<'_>, moment: u64) -> u64 {
        let Some(quota) = &mut self.quota else { return moment };
        let arrival = grid.arrival(moment);
        quota.fits(arrival.max(self.free), grid.costs.least(), 1).map_or(grid.moments, |fits| {
            let first = Time(fits.0.saturating_sub(self.patience.0));
            if first <= arrival { moment } else { grid.first_at(first) }
        })
    }

    /// Decides some moments of an even sample together, from one of them on. Returns how many, unless the replay ends.
    fn rush(
        &mut self,
        grid: &Grid<'_>,
        moment: u64,
        budget: &mut Budget,
        hear: &mut dyn FnMut(Part) -> bool,
    ) -> Result<Option<u64>, ReplayError> {
        if self.patience > Span(0) && !self.is_drained {
            return Ok(Some(0));
        }
        let Grid { sample, costs, moments, .. } = *grid;
        let (cost, end) = costs.alike(grid.before(moment));
        let until = if end == costs.count { moments } else { parts_within(costs.count, end, moments) };
        let until = match &mut self.quota {
            None => until,
            Some(quota) => until.min(quota.within(grid, (moment, FEW), self.patience)),
        };
        let left = until.saturating_sub(moment);
        if left < FEW || !cost.is_positive() {
            return Ok(Some(0));
        }
        let run = Run {
            first: grid.arrival(moment),
            moments: left,
            gaps: Parts::new(sample.length.0, moment, moments),
            counts: Parts::new(costs.count, moment, moments),
            cost,
            patience: self.patience,
            parts: self.parts,
            most: grid.most(),
        };
        let mut goes_on = true;
        let mut started = |amount, wait| goes_on &= hear(Part::Started(amount, wait));
        let ran = self.policy.rush(&mut self.state, self.free, &run, budget, &mut started)?;
        if ran.moments == 0 {
            self.is_drained = false;
            return Ok(Some(0));
        }
        if let Some(quota) = &mut self.quota {
            quota.take(run.first, run.costs(ran.started), ran.started);
        }
        self.free = ran.free.unwrap_or(self.free);
        let refused = run.costs(run.counts.sum(ran.moments) - ran.started);
        goes_on = goes_on && (!refused.is_positive() || hear(Part::Refused(refused)));
        Ok(goes_on.then_some(ran.moments))
    }

    /// What comes in a sample, and in the time before it, since the end of the one before.
    fn offer(&mut self, end: Time, sample: &Sample, costs: &Costs) {
        let silent_from = end.after(NodeConfig::default().idle_after);
        if end < sample.start {
            self.policy.offer(&mut self.state, end, Offer::Nothing);
        }
        if silent_from < sample.start {
            self.policy.offer(&mut self.state, silent_from, Offer::Idle);
        }
        let rate = Rate(i64::try_from(sample.mean()).unwrap_or(i64::MAX));
        self.policy.offer(&mut self.state, sample.start, Offer::Some(rate, Ru(costs.before(1))));
    }

    /// Lets all start as it arrives, from one moment of an even sample on, up to the first at which the quota may not
    /// let it. Returns that one; the first, if it cannot be said without a look at each, or if the `whole` is asked for
    /// and that does not start.
    fn passes(
        &mut self,
        grid: &Grid<'_>,
        moment: u64,
        whole: bool,
        budget: &mut Budget,
    ) -> Result<u64, ReplayError> {
        let first = grid.arrival(moment);
        if self.free > first {
            return Ok(moment);
        }
        let ease = Moments {
            first,
            last: first,
            gap: grid.gap(),
            most: grid.most(),
            before: Ru::ZERO,
            cost: Ru::ZERO,
        };
        if !self.policy.is_at_ease(&self.state, &ease) {
            return Ok(moment);
        }
        let end = match &mut self.quota {
            None => grid.moments,
            Some(quota) if whole && !quota.may_hold(grid) => moment,
            Some(quota) => quota.until(grid, moment, budget)?,
        };
        if end <= moment || whole && end < grid.moments {
            return Ok(moment);
        }
        let (at, begin, before) = (grid.arrival(end - 1), grid.cost(moment), grid.cost(end - 1));
        let passing = Moments { last: at, before: before - begin, cost: grid.cost(end) - before, ..ease };
        if !self.policy.pass(&mut self.state, &passing, budget)? {
            return Ok(moment);
        }
        if let Some(quota) = &mut self.quota {
            quota.pass(grid, (moment, end));
        }
        self.free = at;
        Ok(end)
    }

    /// Operations of one moment: what may start at once, then what may in time, in some parts. The others are refused.
    fn arrive(
        &mut self,
        costs: &Costs,
        (mut first, end): (u64, u64),
        arrival: Time,
        budget: &mut Budget,
        hear: &mut dyn FnMut(Part) -> bool,
    ) -> Result<bool, ReplayError> {
        let turn = arrival.max(self.free);
        let all = (Ru(costs.before(end) - costs.before(first)), end - first);
        let is_bound = self.quota.as_mut().is_some_and(|quota| quota.fits(turn, all.0, all.1) != Some(turn));
        let latest = arrival.after(self.patience);
        let room = if is_bound { None } else { self.policy.room(&self.state, turn, latest) };
        match room {
            Some([prompt, in_time]) => {
                budget.spend()?;
                let last = first + costs.within(first, end - first, in_time);
                let (mut part, waiting) =
                    (costs.within(first, last - first, prompt), (last - first).div_ceil(self.parts));
                while first < last {
                    part = if part > 0 { part } else { waiting.min(last - first) };
                    let cost = Ru(costs.before(first + part) - costs.before(first));
                    let Some(start) = self.start(arrival, cost, part, budget)? else { break };
                    if !hear(Part::Started(cost, start.since(arrival))) {
                        return Ok(false);
                    }
                    (first, part) = (first + part, 0);
                }
            }
            None => {
                let Some(after) = self.try_all(costs, (first, end), arrival, budget, hear)? else {
                    return Ok(false);
                };
                first = after;
            }
        }
        let refused = Ru(costs.before(end) - costs.before(first));
        self.is_drained = refused.is_positive() || self.free > arrival;
        Ok(!refused.is_positive() || hear(Part::Refused(refused)))
    }

    /// The same where only a try shows what fits, half as many each time. Returns the first one that is refused, unless
    /// the replay ends.
    fn try_all(
        &mut self,
        costs: &Costs,
        (mut first, end): (u64, u64),
        arrival: Time,
        budget: &mut Budget,
        hear: &mut dyn FnMut(Part) -> bool,
    ) -> Result<Option<u64>, ReplayError> {
        let latest = arrival.after(self.patience);
        let (mut size, mut parts) = (end - first, None);
        while first < end && size > 0 {
            size = size.min(end - first);
            let turn = arrival.max(self.free);
            let one = Ru(costs.before(first + 1) - costs.before(first));
            let mut quota = self.quota.as_mut();
            if quota.as_mut().is_some_and(|quota| quota.fits(turn, one, 1).is_none_or(|fits| fits > latest)) {
                break;
            }
            // What is left of a window starts before those who wait for the next one.
            let mut part = match quota.map(|quota| quota.left(turn)) {
                None => size,
                Some(Left::Ru(left)) => costs.within(first, size, left).max(1),
                Some(Left::Requests(left)) => size.min(left).max(1),
            };
            if let Some([prompt, in_time]) = self.policy.room(&self.state, turn, latest) {
                part = costs.within(first, part, in_time);
                let most = *parts.get_or_insert(part.div_ceil(self.parts));
                part = Some(costs.within(first, part, prompt))
                    .filter(|prompt| *prompt > 0)
                    .unwrap_or(part.min(most));
            }
            let cost = Ru(costs.before(first + part) - costs.before(first));
            let start = if part > 0 { self.start(arrival, cost, part, budget)? } else { None };
            match start {
                Some(start) if !hear(Part::Started(cost, start.since(arrival))) => return Ok(None),
                Some(_) => first += part,
                None if P::ALL_OR_NONE => size = 0,
                None => size = part / 2,
            }
        }
        Ok(Some(first))
    }

    /// When so much starts, which is counted, unless it would wait too long.
    fn start(
        &mut self,
        arrival: Time,
        cost: Ru,
        count: u64,
        budget: &mut Budget,
    ) -> Result<Option<Time>, ReplayError> {
        budget.spend()?;
        let latest = arrival.after(self.patience);
        let mut turn = arrival.max(self.free);
        if let Some(quota) = &mut self.quota {
            let Some(fits) = quota.fits(turn, cost, count) else { return Ok(None) };
            turn = fits;
        }
        if turn > latest {
            return Ok(None);
        }
        let start = self.policy.start(&mut self.state, (turn, latest), cost, budget)?;
        if let Some(start) = start {
            // A window that begins before the start is unused.
            if let Some(quota) = &mut self.quota {
                quota.take(start, cost, count);
            }
            self.free = start;
        }
        Ok(start)
    }
}
