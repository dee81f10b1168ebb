//! Operations that wait in line before a policy, in the order of arrival.

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
        let count = costs.count;
        self.offer(end, sample, &costs);
        if costs.before(1) > self.largest.0 {
            // None of them fits.
            return Ok(hear(Part::Refused(sample.amount)));
        }
        let most = count.min(sample.length.0);
        if spread == Spread::Even && self.passes((sample, &costs), (0, MOST.min(most)), budget)? {
            return Ok(hear(Part::Started(sample.amount, Span(0))));
        }
        let moments = match spread {
            Spread::Even => sample.length.0.div_ceil(self.pause.0).clamp(FEWEST, MOST).min(most),
            Spread::AtOnce => 1,
        };
        let mut moment = 0;
        while moment < moments {
            // A burst that was short at first may suffice from here on.
            if moment > 0 && self.passes((sample, &costs), (moment, moments), budget)? {
                let before = Ru(costs.before(part_of(count, moment, moments)));
                return Ok(hear(Part::Started(sample.amount - before, Span(0))));
            }
            let Some(decided) = self.rush((sample, &costs), (moment, moments), budget, hear)? else {
                return Ok(false);
            };
            moment += decided;
            if decided > 0 {
                continue;
            }
            let first = part_of(count, moment, moments);
            let arrival = sample.start.after(Span(part_of(sample.length.0, moment, moments)));
            let operations = (first, part_of(count, moment + 1, moments));
            if !self.arrive(&costs, operations, arrival, budget, hear)? {
                return Ok(false);
            }
            moment += 1;
        }
        Ok(true)
    }

    /// Decides some moments of an even sample together, from one of them on. Returns how many, unless the replay ends.
    fn rush(
        &mut self,
        (sample, costs): (&Sample, &Costs),
        (moment, moments): (u64, u64),
        budget: &mut Budget,
        hear: &mut dyn FnMut(Part) -> bool,
    ) -> Result<Option<u64>, ReplayError> {
        if self.quota.is_some() || self.patience > Span(0) && !self.is_drained {
            return Ok(Some(0));
        }
        let begin = |whole| part_of(whole, moment, moments);
        let (cost, end) = costs.alike(begin(costs.count));
        let until = if end == costs.count { moments } else { parts_within(costs.count, end, moments) };
        let left = until.saturating_sub(moment);
        if left < 2 || !cost.is_positive() {
            return Ok(Some(0));
        }
        let run = Run {
            first: sample.start.after(Span(begin(sample.length.0))),
            moments: left,
            gaps: Parts::new(sample.length.0, moment, moments),
            counts: Parts::new(costs.count, moment, moments),
            cost,
            patience: self.patience,
            parts: self.parts,
            most: Ru(costs.before(costs.count.div_ceil(moments))),
        };
        let mut goes_on = true;
        let mut started = |amount, wait| goes_on &= hear(Part::Started(amount, wait));
        let ran = self.policy.rush(&mut self.state, self.free, &run, budget, &mut started)?;
        if ran.moments == 0 {
            self.is_drained = false;
            return Ok(Some(0));
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

    /// Whether all of an even sample starts as it arrives, from one of its moments on, and lets it.
    fn passes(
        &mut self,
        (sample, costs): (&Sample, &Costs),
        (moment, moments): (u64, u64),
        budget: &mut Budget,
    ) -> Result<bool, ReplayError> {
        let arrival = |moment| sample.start.after(Span(part_of(sample.length.0, moment, moments)));
        let cost = |moment| costs.before(part_of(costs.count, moment, moments));
        let first = arrival(moment);
        if self.free > first {
            return Ok(false);
        }
        let ease = Moments {
            first,
            last: first,
            gap: Span(sample.length.0.checked_div(moments).unwrap_or(0)),
            most: Ru(costs.before(costs.count.div_ceil(moments.max(1)))),
            before: Ru::ZERO,
            cost: Ru::ZERO,
        };
        if !self.policy.is_at_ease(&self.state, &ease) {
            return Ok(false);
        }
        let last = moments.saturating_sub(1);
        let (at, begin, end) = (arrival(last), cost(moment), cost(last));
        let amount = Ru(sample.amount.0 - begin);
        let passing = Moments { last: at, before: Ru(end - begin), cost: Ru(sample.amount.0 - end), ..ease };
        let count = costs.count - part_of(costs.count, moment, moments);
        let fits = |quota: &Open<'_>| !quota.turns(first, at) && quota.fits(at, amount, count) == Some(at);
        if !self.quota.as_ref().is_none_or(fits) || !self.policy.pass(&mut self.state, &passing, budget)? {
            return Ok(false);
        }
        if let Some(quota) = &mut self.quota {
            quota.take(at, amount, count);
        }
        self.free = at;
        Ok(true)
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
        let room = self.policy.room(&self.state, arrival.max(self.free), arrival.after(self.patience));
        match (room, &self.quota) {
            (Some([prompt, in_time]), None) => {
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
            _ => {
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
            // What is left of a window starts before those who wait for the next one.
            let mut part = match self.quota.as_ref().map(|quota| quota.left(turn)) {
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
        if let Some(quota) = &self.quota {
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

/// How many of so many equal parts of a whole end up to a place in it.
fn parts_within(whole: u64, place: u64, parts: u64) -> u64 {
    let fits = (u128::from(place) + 1) * u128::from(parts);
    u64::try_from((fits - 1) / u128::from(whole.max(1))).unwrap_or(parts).min(parts)
}

/// Where the part of this number begins, of so many equal parts.
pub(super) fn part_of(whole: u64, number: u64, parts: u64) -> u64 {
    if let Some(at) = whole.checked_mul(number) {
        return at.checked_div(parts.max(1)).unwrap_or(at);
    }
    let at = u128::from(whole) * u128::from(number) / u128::from(parts.max(1));
    u64::try_from(at).unwrap_or(u64::MAX)
}
