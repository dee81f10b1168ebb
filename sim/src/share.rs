//! Shares of quotas, judged by the messages alone: each window ends at a whole minute of the wall clock, has one end, and
//! grants the defined amount; a node uses no more than its share, and nothing past the end; and all that was let in under
//! shares of windows with one end adds up to at most the quota, whatever crashed in between.
//!
//! What an operation cost beyond its estimate counts in its node's share and in no sum: nobody could foresee it. An
//! operation that began before its node had a share may end as one that has its estimate in it: what it did not need is
//! forgiven.
//!
//! Shares of requests, and of windows that roll, are of the quota that is defined; what is used of them is judged by
//! `charges`.

use std::collections::BTreeMap;

use tidegate_controller::service::{Answer, EntryOut};
use tidegate_core::exchange::{Allowance, Grant, Spending};
use tidegate_core::group::GroupId;
use tidegate_core::node::Heard;
use tidegate_core::quota::Unit;
use tidegate_core::units::{Ru, Span, Time};

use super::controller::group;
use super::quota::MINUTE;
use super::world::{Operation, World};

/// Renewals of a node that may still be answered; later answers bring nothing.
const REMEMBERED: u64 = 64;

/// The clock of the controller is read in whole microseconds.
const ROUNDING: Span = Span(2);

/// The window of a share, without what tells two windows with one end apart after a crash: the group, and the minute.
type End = (u64, u64);

/// The share of a node by the newest answer that it took in.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    window: u64,
    ceiling: Ru,
    /// True time.
    until: Time,
    /// Settled in the window, and estimates of what runs.
    settled: Ru,
    running: Ru,
    /// What was left of the quota, and used of the share, by that answer.
    left: Ru,
    used_then: Ru,
    /// Tells what began under it, or one that it followed without a gap, from what did not.
    number: u64,
}

/// What was let in under shares that end together.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    ru: Ru,
    /// The highest quota that any answer named.
    amount: Ru,
}

/// Shares, windows, and what was used.
#[derive(Default)]
pub(super) struct Shares {
    of_nodes: BTreeMap<(usize, GroupId), Share>,
    /// The minute in which each window ends.
    ends: BTreeMap<u64, u64>,
    used: BTreeMap<End, Used>,
    /// When renewals were sent, by node and number.
    sent: BTreeMap<(usize, u64), Time>,
    /// Groups that a node gave up, by the newest renewal about them: it takes no share of the answer.
    given_up: BTreeMap<(usize, GroupId), u64>,
    numbers: u64,
    /// Until then the controller may not have noticed that its wall clock was set.
    unsettled: bool,
    /// By how much the wall clock was set back in all: windows that were open then last longer.
    set_back: Span,
}

/// The part of an operation that counts in shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// The window under whose share it was let in; 0 for none.
    window: u64,
    number: u64,
}

impl Shares {
    /// A node ends: what it had is lost.
    pub(super) fn forget(&mut self, node: usize) {
        self.of_nodes.retain(|(of, _), _| *of != node);
        self.sent.retain(|(of, _), _| *of != node);
        self.given_up.retain(|(of, _), _| *of != node);
    }

    /// A node forgets its share of a group.
    pub(super) fn drop_share(&mut self, node: usize, id: GroupId) {
        self.of_nodes.remove(&(node, id));
    }

    /// A node sends a renewal.
    pub(super) fn asked(&mut self, node: usize, seq: u64, now: Time) {
        self.sent.insert((node, seq), now);
        self.sent.retain(|(of, old), _| *of != node || *old + REMEMBERED > seq);
    }

    /// A renewal about a group gives it up, or not.
    pub(super) fn gives_up(&mut self, node: usize, (id, seq): (GroupId, u64), gives_up: bool) {
        if gives_up {
            self.given_up.insert((node, id), seq);
        }
    }

    /// The wall clock was set.
    fn set_clock(&mut self, forward: bool, span: Span) {
        self.unsettled = true;
        self.set_back = if forward { self.set_back } else { self.set_back + span };
    }

    /// The controller did its background tasks.
    pub(super) fn settle(&mut self) {
        self.unsettled = false;
    }

    /// Whether a node heard that its group's quota has less left than an operation costs. The window may have ended since.
    pub(super) fn heard_used_up(&self, node: usize, id: GroupId, cost: Ru) -> bool {
        let share = self.of_nodes.get(&(node, id));
        share.is_some_and(|share| cost > share.left - (share.settled + share.running - share.used_then))
    }

    fn end(&self, window: u64) -> Option<End> {
        Some((window >> 32, *self.ends.get(&window)?))
    }

    /// A node took in an answer.
    fn take(&mut self, (node, id): (usize, GroupId), sent: Time, allowance: Option<Allowance>) {
        let fixed = allowance.filter(|share| share.unit == Unit::Ru && !share.rolls);
        let Some(Allowance { window, ceiling, resets_in, left, .. }) = fixed else {
            return self.drop_share(node, id);
        };
        self.numbers += 1;
        let number = self.numbers;
        let fresh = || Share { number, ..Share::default() };
        let share = self.of_nodes.entry((node, id)).or_insert_with(fresh);
        if share.window != window {
            share.settled = Ru::ZERO;
        }
        (share.window, share.ceiling, share.until) = (window, ceiling, sent.after(resets_in));
        (share.left, share.used_then) = (left, share.settled + share.running);
    }
}

impl World {
    /// The wall clock, in microseconds since a midnight.
    pub(super) fn wall(&self) -> u64 {
        self.now.0 + self.controller.wall().0
    }

    /// Sets the wall clock of the controller's machine forward or back.
    pub fn set_wall(&mut self, forward: bool, span: Span) {
        let ahead = self.controller.wall();
        let ahead = if forward { ahead + span } else { Span(ahead.0.saturating_sub(span.0)) };
        self.controller.set_wall(ahead);
        self.shares.set_clock(forward, span);
    }

    /// Whether shares are judged: nodes that lie bring back what they used, and a store that was set back does not know
    /// what was granted.
    fn judges_shares(&self) -> bool {
        self.checked && !self.set_back && !(0..self.nodes.len()).any(|node| self.lies(node))
    }

    /// The quota that a group counts in, by the definitions of now.
    pub(super) fn quota_above(&self, id: GroupId) -> Option<(GroupId, Ru)> {
        let chain = self.chain(id);
        chain.into_iter().find_map(|level| Some((level, self.specs.get(&level)?.quota?)))
    }

    /// An answer to a node over this connection: its share is of the quota that is defined, in a window of the calendar.
    pub(super) fn judge_allowance(&mut self, (node, connection): (usize, u64), entry: &EntryOut) {
        let of_old = self.nodes.get(node).is_none_or(|state| connection <= state.old_connection);
        let (Some(id), Answer::Grant(Grant::Leased(terms), _)) = (group(&entry.group), &entry.answer) else {
            return;
        };
        let defined = self.quota_above(id).and_then(|(level, amount)| {
            Some((amount, self.specs.get(&level)?.quota_unit, self.charges.rolls(level)))
        });
        if !self.checked || of_old || self.doubtful.is_some() {
            // An older definition may be answered.
        } else if terms.allowance.map(|share| (share.amount, share.unit, share.rolls)) != defined {
            return self.violate(format!("group {}: the quota is {defined:?}, leased {terms:?}", id.0));
        }
        let fixed = terms.allowance.filter(|share| share.unit == Unit::Ru && !share.rolls);
        let Some(Allowance { window, amount, resets_in, .. }) = fixed else { return };
        let ends = self.wall() + resets_in.0;
        let known = self.shares.ends.get(&window).copied();
        if self.shares.unsettled || of_old {
            // The time to the end was computed by the clock before it was set.
        } else if known.is_some_and(|known| known != ends)
            || !ends.is_multiple_of(MINUTE.0)
            || resets_in == Span(0)
            || resets_in > MINUTE + self.shares.set_back
        {
            return self.violate(format!(
                "group {}: window {window} ends in {resets_in}, {ends} us after midnight; before {known:?}",
                id.0
            ));
        }
        if ends.is_multiple_of(MINUTE.0) {
            self.shares.ends.entry(window).or_insert(ends);
        }
        if let Some(end) = self.shares.end(window) {
            let used = self.shares.used.entry(end).or_default();
            used.amount = used.amount.max(amount);
        }
    }

    /// A node took in an answer to renewal `seq`.
    pub(super) fn took_share(&mut self, node: usize, seq: u64, (id, grant, heard): (GroupId, &Grant, Heard)) {
        let sent = self.shares.sent.get(&(node, seq)).copied().unwrap_or(self.now);
        match grant {
            _ if heard != Heard::Applied || self.shares.given_up.get(&(node, id)) == Some(&seq) => {}
            Grant::Leased(terms) => self.shares.take((node, id), sent, terms.allowance),
            Grant::Unlimited { .. } | Grant::UnknownGroup => self.shares.drop_share(node, id),
            Grant::Recovering { .. } => {}
        }
    }

    /// A node let an operation in, by a lease or not: its share covers it.
    pub(super) fn begin_in_share(&mut self, node: usize, operation: &Operation, leased: bool) -> Counted {
        let (now, judged) = (self.now, self.judges_shares());
        let Some(share) = self.shares.of_nodes.get_mut(&(node, operation.group)) else {
            return Counted::default();
        };
        share.running += operation.cost;
        let (share, cost) = (*share, operation.cost);
        let counted = Counted { window: share.window, number: share.number };
        let used = share.settled + share.running;
        if !leased || !self.checked || self.lies(node) {
            // A fallback is for nodes without shares.
            return Counted { window: 0, ..counted };
        }
        if used > share.ceiling || now >= share.until.after(ROUNDING) {
            self.violate(format!(
                "node {node}, group {}: {cost} was let in, {used} with it, out of {share:?}",
                operation.group.0
            ));
        }
        if let Some(used) = self.shares.end(share.window).and_then(|end| self.shares.used.get_mut(&end)) {
            used.ru += cost;
            let Used { ru, amount } = *used;
            if ru > amount && judged {
                let (id, window) = (operation.group.0, share.window);
                self.violate(format!("group {id}: {ru} of a quota of {amount} in window {window}"));
            }
        }
        counted
    }

    /// What a node says it used is no less than it did.
    pub(super) fn judge_told(&mut self, node: usize, id: GroupId, told: &Spending) {
        let share = self.shares.of_nodes.get(&(node, id)).copied();
        let Some(share) = share.filter(|share| self.checked && share.window == told.window) else { return };
        let used = share.settled + share.running;
        if told.used < used && !self.lies(node) {
            self.violate(format!("node {node}, group {}: told {told:?}, used {used} of {share:?}", id.0));
        }
    }

    /// An operation ended that a node let in, over a limit in shadow or not.
    pub(super) fn end_in_share(&mut self, node: usize, operation: &Operation, actual: Ru) {
        let Counted { window, number } = operation.counted;
        let mut forgiven = Ru::ZERO;
        if let Some(share) = self.shares.of_nodes.get_mut(&(node, operation.group)) {
            share.settled += actual;
            if share.number == number && !operation.over {
                share.running -= operation.cost;
            } else if !operation.over {
                // It began without a share; its node takes it for one that counted.
                forgiven = operation.cost.min(share.running);
                share.running -= forgiven;
            }
            let end = (share.window >> 32, self.shares.ends.get(&share.window).copied().unwrap_or_default());
            if let Some(used) = self.shares.used.get_mut(&end) {
                used.amount += (forgiven - actual).or_zero();
            }
        }
        if let Some(used) = self.shares.end(window).and_then(|end| self.shares.used.get_mut(&end)) {
            used.ru -= (operation.cost - actual).or_zero();
        }
    }

    /// Whether a quota has too little left, or had in a window that ended lately, for operations of this cost.
    pub(super) fn is_used_up(&self, id: GroupId, cost: Ru, within: Span) -> bool {
        self.controller.quota(id).is_none_or(|quota| quota.left < cost || quota.resets_in + within > MINUTE)
    }
}
