//! What quotas count, operation by operation, and the judge of all windows: by the definition alone, whatever messages
//! said.
//!
//! A request counts when it began, unless it never ran. RU count when they were settled. Where the node had no lease by
//! then, and the window rolls, they count when their operation began: the controller counts what such a node held until a
//! window after the end of its lease, and that may be before the operation ended. Fixed windows have what began and ended
//! in them; what runs across the end of one counts in either, see `share.rs`. What operations cost beyond their estimates
//! is on top. A lowered amount holds once no lease of before is out.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::group::GroupId;
use tidegate_core::quota::Unit;
use tidegate_core::units::{Ru, Span, Time};

use super::quota::MINUTE;
use super::world::{Operation, World};

/// Something that counts.
#[derive(Clone, Copy, Debug)]
struct Charge {
    began: Time,
    ended: Time,
    /// When it counts in a window that rolls.
    at: Time,
    amount: Ru,
    /// The part of it that nobody could foresee.
    above: Ru,
}

impl Charge {
    fn foreseen(&self) -> Ru {
        self.amount - self.above
    }
}

/// An amount that was defined.
#[derive(Clone, Copy, Debug)]
struct Amount {
    ru: Ru,
    from: Time,
    /// Until then leases of it may be out.
    until: Time,
}

/// What one quota counted.
#[derive(Clone, Debug, Default)]
struct Log {
    charges: Vec<Charge>,
    amounts: Vec<Amount>,
}

/// What is kept of quotas.
#[derive(Debug, Default)]
pub(super) struct Charges {
    /// Groups whose quota rolls.
    rolls: BTreeSet<GroupId>,
    /// By the group with the quota; `None`: nothing is kept.
    logs: Option<BTreeMap<GroupId, Log>>,
}

impl Charges {
    /// Whether a group's quota rolls.
    pub(super) fn rolls(&self, id: GroupId) -> bool {
        self.rolls.contains(&id)
    }

    /// An amount is in force from now on; leases of the one before end at `settled`.
    pub(super) fn define(&mut self, id: GroupId, quota: Option<Ru>, now: Time, settled: Time) {
        let (Some(ru), Some(logs)) = (quota, &mut self.logs) else { return };
        let amounts = &mut logs.entry(id).or_default().amounts;
        match amounts.last_mut() {
            Some(last) if last.ru == ru => return,
            Some(last) => last.until = settled,
            None => {}
        }
        amounts.push(Amount { ru, from: now, until: Time(u64::MAX) });
    }
}

impl Log {
    /// The most that a window may have had.
    fn amount(&self, from: Time, until: Time) -> Ru {
        let in_force = self.amounts.iter().filter(|amount| amount.from <= until && amount.until >= from);
        in_force.map(|amount| amount.ru).max().unwrap_or_default()
    }

    /// In the order in which they count in a window that rolls.
    fn in_order(&self) -> Vec<Charge> {
        let mut charges = self.charges.clone();
        charges.sort_by_key(|charge| charge.at);
        charges
    }

    /// The first interval, both ends included, with more than the quota.
    fn broken_rolling(&self, length: Span) -> Option<String> {
        let charges = self.in_order();
        let mut first = charges.iter().peekable();
        let mut sum = Ru::ZERO;
        for (index, charge) in charges.iter().enumerate() {
            sum += charge.foreseen();
            while let Some(gone) = first.next_if(|oldest| oldest.at.after(length) < charge.at) {
                sum -= gone.foreseen();
            }
            // What is of the same moment is all in.
            let ends = charges.get(index + 1).is_none_or(|next| next.at > charge.at);
            let from = first.peek().map_or(charge.at, |oldest| oldest.at);
            let amount = self.amount(from, charge.at);
            if ends && sum > amount {
                return Some(format!(
                    "{sum} from {} us to {} us, of a quota of {amount}",
                    from.0, charge.at.0
                ));
            }
        }
        None
    }

    /// The first window, of those that end where `ahead` is a whole number of minutes further, with more than the quota.
    fn broken_fixed(&self, ahead: Span) -> Option<String> {
        let mut sums: BTreeMap<u64, Ru> = BTreeMap::new();
        for charge in &self.charges {
            let window = window(charge.began, ahead);
            if window == self::window(charge.ended, ahead) {
                *sums.entry(window).or_default() += charge.foreseen();
            }
        }
        sums.into_iter().find_map(|(window, sum)| {
            let (from, until) = bounds(window, ahead);
            let amount = self.amount(from, until);
            (sum > amount)
                .then(|| format!("{sum} from {} us to {} us, of a quota of {amount}", from.0, until.0))
        })
    }

    /// The least that was used in any interval of this length between two moments.
    fn least(&self, (from, until): (Time, Time), length: Span) -> Ru {
        let charges = self.in_order();
        let starts =
            charges.iter().map(|charge| charge.at).filter(|at| *at >= from && at.after(length) <= until);
        let used = [from].into_iter().chain(starts).map(|start| {
            let within = charges.partition_point(|charge| charge.at <= start)
                ..charges.partition_point(|charge| charge.at <= start.after(length));
            charges.get(within).unwrap_or_default().iter().map(|charge| charge.amount).sum()
        });
        used.min().unwrap_or_default()
    }
}

/// The number of the fixed window that a moment is in.
fn window(at: Time, ahead: Span) -> u64 {
    (at.0 + ahead.0) / MINUTE.0
}

/// Its first moment, and that of the next.
fn bounds(window: u64, ahead: Span) -> (Time, Time) {
    let at = |window: u64| Time((window * MINUTE.0).saturating_sub(ahead.0));
    (at(window), at(window + 1))
}

impl World {
    /// Keeps all charges from now on; quotas of these groups roll.
    pub fn keep_charges(&mut self, rolls: BTreeSet<GroupId>) {
        self.charges = Charges { rolls, logs: Some(BTreeMap::new()) };
    }

    /// The log of the quota that a group counts in, with what that counts.
    fn log_of(&mut self, id: GroupId) -> Option<(Unit, &mut Log)> {
        self.charges.logs.as_ref()?;
        let (level, _) = self.quota_above(id)?;
        let unit = self.specs.get(&level)?.quota_unit;
        Some((unit, self.charges.logs.as_mut()?.entry(level).or_default()))
    }

    /// A node let an operation in.
    pub(super) fn charge_begun(&mut self, operation: &Operation) {
        let now = self.now;
        if let Some((Unit::Requests, log)) = self.log_of(operation.group)
            && !operation.fate.undone
        {
            let (amount, above) = (Unit::REQUEST, Ru::ZERO);
            log.charges.push(Charge { began: now, ended: now, at: now, amount, above });
        }
    }

    /// An operation ended that cost so much.
    pub(super) fn charge_ended(&mut self, node: usize, operation: &Operation, actual: Ru) {
        let (now, began) = (self.now, operation.began);
        let clock = self.clock(node);
        let Some((Unit::Ru, _)) = self.log_of(operation.group) else { return };
        let holding = self.nodes.get_mut(node).and_then(|state| state.holdings.get_mut(&operation.group));
        let leased = holding.is_some_and(|holding| holding.in_hand(clock).is_some());
        let (at, above) = (if leased { now } else { began }, (actual - operation.cost).or_zero());
        if let Some((_, log)) = self.log_of(operation.group) {
            log.charges.push(Charge { began, ended: now, at, amount: actual, above });
        }
    }

    /// In no window of a group's quota was more than the quota, and what could not be foreseen.
    ///
    /// # Errors
    /// The window that has more.
    pub fn judge_charges(&self, id: GroupId) -> Result<(), String> {
        let Some(log) = self.charges.logs.as_ref().and_then(|logs| logs.get(&id)) else { return Ok(()) };
        let broken = match self.charges.rolls(id) {
            true => log.broken_rolling(MINUTE),
            false => log.broken_fixed(self.controller.wall()),
        };
        broken.map_or(Ok(()), |broken| Err(format!("quota: group {}: {broken}", id.0)))
    }

    /// The least that was used of a group's quota between two moments: in the last whole window, or, where it rolls, in
    /// any interval of this length.
    pub fn least_charged(&self, id: GroupId, (from, until): (Time, Time), length: Span) -> Ru {
        let Some(log) = self.charges.logs.as_ref().and_then(|logs| logs.get(&id)) else { return Ru::ZERO };
        if self.charges.rolls(id) {
            return log.least((from, until), length);
        }
        let ahead = self.controller.wall();
        let whole = window(until, ahead).saturating_sub(1);
        let ended = log.charges.iter().filter(|charge| window(charge.ended, ahead) == whole);
        ended.map(|charge| charge.amount).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time(secs * 1_000_000)
    }

    fn log(charges: &[(u64, u64, i64)]) -> Log {
        let charge = |(began, ended, ru): &(u64, u64, i64)| Charge {
            began: at(*began),
            ended: at(*ended),
            at: at(*ended),
            amount: Ru::whole(*ru),
            above: Ru::ZERO,
        };
        let amounts = vec![Amount { ru: Ru::whole(10), from: Time(0), until: Time(u64::MAX) }];
        Log { charges: charges.iter().map(charge).collect(), amounts }
    }

    #[test]
    fn an_interval_includes_both_of_its_ends() {
        let used = [(0, 0, 5), (30, 30, 2), (60, 60, 4)];
        assert!(log(&used).broken_rolling(MINUTE).is_some());
        assert_eq!(log(&used).broken_rolling(Span::secs(59)), None);
        let unforeseen = Charge { above: Ru::whole(1), ..log(&used).charges[2] };
        let mut forgiven = log(&used);
        forgiven.charges[2] = unforeseen;
        assert_eq!(forgiven.broken_rolling(MINUTE), None);
    }

    #[test]
    fn a_fixed_window_has_what_began_and_ended_in_it() {
        let turn = log(&[(59, 59, 10), (59, 61, 9), (60, 60, 10)]);
        assert_eq!(turn.broken_fixed(Span(0)), None);
        assert!(turn.broken_fixed(Span::secs(30)).is_some());
        assert!(log(&[(60, 60, 10), (119, 119, 1)]).broken_fixed(Span(0)).is_some());
    }

    #[test]
    fn a_lowered_amount_holds_once_leases_of_before_have_ended() {
        let mut charges = Charges { logs: Some(BTreeMap::new()), ..Charges::default() };
        charges.define(GroupId(2), Some(Ru::whole(10)), at(0), at(5));
        charges.define(GroupId(2), Some(Ru::whole(3)), at(100), at(105));
        let log = charges.logs.unwrap().remove(&GroupId(2)).unwrap();
        let amounts =
            [(99, 159), (105, 165), (106, 166)].map(|(from, until)| log.amount(at(from), at(until)));
        assert_eq!(amounts, [Ru::whole(10), Ru::whole(10), Ru::whole(3)]);
    }

    #[test]
    fn the_least_of_all_intervals_is_found_wherever_it_begins() {
        let log = log(&[(10, 10, 4), (20, 20, 1), (30, 30, 2), (70, 70, 3)]);
        assert_eq!(log.least((at(5), at(80)), Span::secs(20)), Ru::ZERO, "between 30 and 50");
        assert_eq!(log.least((at(5), at(40)), Span::secs(20)), Ru::whole(2), "from 20 to 40");
        assert_eq!(log.least((at(5), at(40)), Span::secs(35)), Ru::whole(7));
    }
}
