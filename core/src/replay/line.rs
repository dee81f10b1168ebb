//! Operations that wait in line before a policy, in the order of arrival.

use super::held::{Moments, Offer, Steady};
use super::record::Costs;
use super::windows::Open;
use super::{
    Budget, Hear, Part, Record, ReplayError, Ru, Sample, Settings, Shape, Span, Spread, Time, Verdict,
};
use crate::node::NodeConfig;
use crate::units::Rate;

/// Moments of an even stretch at least: 3 s of a minute. With a tenth, a minute would be two gusts.
const FEWEST: u64 = 20;
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
    quota: Option<Open<'w>>,
}

impl<'w, P: Steady> Line<'w, P> {
    pub(super) fn new(policy: P, settings: &'w Settings) -> Self {
        let largest = if settings.shape == Shape::Paced { settings.burst() } else { Ru::MAX };
        let largest = settings.quota.as_ref().map_or(largest, |windows| windows.amount().min(largest));
        Self {
            state: policy.fresh(),
            policy,
            free: Time(0),
            patience: settings.patience,
            pause: settings.pause(),
            largest,
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
        for (index, sample) in
            record.samples().iter().enumerate().filter(|(_, sample)| sample.amount.is_positive())
        {
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
        if spread == Spread::Even && self.passes(sample, &costs, MOST.min(most)) {
            return Ok(hear(Part::Started(sample.amount, Span(0))));
        }
        let moments = match spread {
            Spread::Even => sample.length.0.div_ceil(self.pause.0).clamp(FEWEST, MOST).min(most),
            Spread::AtOnce => 1,
        };
        for moment in 0..moments {
            let first = part_of(count, moment, moments);
            let arrival = sample.start.after(Span(part_of(sample.length.0, moment, moments)));
            let operations = (first, part_of(count, moment + 1, moments));
            if !self.arrive(&costs, operations, arrival, budget, hear)? {
                return Ok(false);
            }
        }
        Ok(true)
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

    /// Whether all of an even sample starts as it arrives, and lets it.
    fn passes(&mut self, sample: &Sample, costs: &Costs, moments: u64) -> bool {
        let count = costs.count;
        let last = moments.saturating_sub(1);
        let at = sample.start.after(Span(part_of(sample.length.0, last, moments)));
        let before = Ru(costs.before(part_of(count, last, moments)));
        let moments = Moments {
            first: sample.start,
            last: at,
            gap: Span(sample.length.0.checked_div(moments).unwrap_or(0)),
            most: Ru(costs.before(count.div_ceil(moments.max(1)))),
            before,
            cost: sample.amount - before,
        };
        if self.free > sample.start || !self.policy.is_at_ease(&self.state, &moments) {
            return false;
        }
        if let Some(quota) = &mut self.quota {
            if quota.turns(sample.start, at) || quota.fits(at, sample.amount) != Some(at) {
                return false;
            }
            quota.take(at, sample.amount);
        }
        self.policy.pass(&mut self.state, &moments);
        self.free = at;
        true
    }

    /// Operations of one moment: what may start at once, then what may in time, in some parts. Where only a try shows what
    /// fits, half as many each time.
    fn arrive(
        &mut self,
        costs: &Costs,
        (mut first, end): (u64, u64),
        arrival: Time,
        budget: &mut Budget,
        hear: &mut dyn FnMut(Part) -> bool,
    ) -> Result<bool, ReplayError> {
        let latest = arrival.after(self.patience);
        let (mut size, mut parts) = (end - first, None);
        while first < end && size > 0 {
            budget.spend()?;
            size = size.min(end - first);
            let turn = arrival.max(self.free);
            // What is left of a window starts before those who wait for the next one.
            let left = self.quota.as_ref().map(|quota| quota.left(turn));
            let mut part = left.map_or(size, |left| costs.within(first, size, left).max(1));
            if let Some([prompt, in_time]) = self.policy.room(&self.state, turn, latest) {
                part = costs.within(first, part, in_time);
                let most = *parts.get_or_insert(part.div_ceil(WAITING_PARTS));
                part = Some(costs.within(first, part, prompt))
                    .filter(|prompt| *prompt > 0)
                    .unwrap_or(part.min(most));
            }
            let cost = Ru(costs.before(first + part) - costs.before(first));
            let start = if part > 0 { self.start(arrival, cost) } else { None };
            match start {
                Some(start) if !hear(Part::Started(cost, start.since(arrival))) => return Ok(false),
                Some(_) => first += part,
                None => size = part / 2,
            }
        }
        let refused = Ru(costs.before(end) - costs.before(first));
        Ok(!refused.is_positive() || hear(Part::Refused(refused)))
    }

    /// When so much starts, which is counted, unless it would wait too long.
    fn start(&mut self, arrival: Time, cost: Ru) -> Option<Time> {
        let latest = arrival.after(self.patience);
        let mut turn = arrival.max(self.free);
        if let Some(quota) = &self.quota {
            turn = quota.fits(turn, cost)?;
        }
        if turn > latest {
            return None;
        }
        let mut state = self.state;
        let mut verdict = self.policy.try_acquire(&mut state, turn, cost);
        let mut start = turn;
        if let Verdict::RetryAt(at) = verdict {
            if at > latest {
                return None;
            }
            start = at;
            verdict = self.policy.try_acquire(&mut state, at, cost);
        }
        if let Verdict::AdmitAt(at) = verdict {
            start = at;
        }
        if !verdict.is_admitted() || start > latest {
            return None;
        }
        // A window that begins before the start is unused.
        if let Some(quota) = &mut self.quota {
            quota.take(start, cost);
        }
        self.state = state;
        self.free = start;
        Some(start)
    }
}

/// Where the part of this number begins, of so many equal parts.
fn part_of(whole: u64, number: u64, parts: u64) -> u64 {
    let at = u128::from(whole) * u128::from(number) / u128::from(parts.max(1));
    u64::try_from(at).unwrap_or(u64::MAX)
}
