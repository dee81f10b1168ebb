//! When a node asks, what it says, and how it takes the answer.
//!
//! One renewal per group is in flight at a time, and its answer is waited for as long as answers take. Only the answer
//! to the newest renewal brings rate or tokens; one to an earlier renewal, which the newest declared as not applied,
//! lengthens the lease that is held. So a lost or late answer costs time and never tokens. Surplus is returned and the
//! rate lowered before the message is sent.

use super::budget::{LeaseState, Returned};
use super::distance::Told;
use super::patience::{Patience, RoundTrip};
use super::{NodeConfig, NodeGroup};
use crate::exchange::{Ask, Grant};
use crate::lumps::{LUMP_PART, LUMPS_LAST};
use crate::recall::REPEAT_AFTER;
use crate::units::{Rate, Ru, Span, Time};

/// Early renewals come at most this often on average, and a few at once when the load jumps.
const MIN_INTERVAL: Span = Span::millis(100);
/// What a quiet time saves up of that: three in a row.
const MIN_INTERVAL_BURST: Span = Span::millis(300);
/// An early renewal follows the one before at the soonest after this: there must be something new to say.
const LEAST_INTERVAL: Span = Span::millis(10);
/// A full bucket is worth a message only after this.
const SURPLUS_INTERVAL: Span = Span::millis(250);
/// The same while someone waits for a lump, to which it all adds up. With twice of it operations of 0.4 to 0.9 burst use
/// 0.965 of the rate instead of 0.979; with three quarters of it nodes beside them send more than five messages a second.
const LUMP_WANTED_INTERVAL: Span = Span::millis(130);
/// Who waits for an answer that may come at any time tries again after this at the soonest.
const SOON: Span = Span::millis(10);
/// And after this where none came in time: half of it would have all clients of a controller that is away ask twice a
/// second each; with twice of it they stand still for two seconds after its return.
const WITHOUT_ANSWER: Span = Span::secs(1);

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It answers the newest renewal, and is in force.
    Applied,
    /// It answers an earlier one: the lease that is held lasts longer for it.
    Extended,
    /// It answers none that an answer is awaited to, or is worth nothing any more. Nothing changed but what is known
    /// of round trips.
    Ignored,
}

/// The conversation with the controller about one group.
#[derive(Clone, Debug, Hash)]
pub(super) struct Renewal {
    /// Newest renewal sent, and when; whether its answer is awaited.
    asked_seq: u64,
    asked_at: Option<Time>,
    /// Until when renewals sent so far use up the allowance of early ones (as in GCRA).
    paid_until: Time,
    awaiting: bool,
    pub(super) patience: Patience,
    /// A lump has just served the last that waited: another like it may come at once, and be told of along.
    served_until: Time,
    /// It gave the lease up: what is granted in return is not used.
    gave_up: bool,
    /// The controller was behind and did not consider it: the next one goes out when it would have gone out without
    /// that being said.
    shed_until: Option<Time>,
    acked_seq: u64,
    renew_after: Span,
    ask_again_at: Time,
    made: Time,
    pub(super) last_arrival: Option<Time>,
    /// Tokens are low, or an operation waits or was refused.
    pressed: bool,
    /// To be sent at once: a lowered lease to acknowledge, a changed definition.
    urgent: bool,
    /// The controller said that there is something now.
    called: bool,
    /// Others wait for tokens.
    pub(super) scarce: bool,
    /// They wait for a lump.
    lump_wanted: bool,
    /// What the newest renewal told of the load, and whether of operations that wait.
    pub(super) told: Told,
    /// At a distance: a round trip before what is in hand is used up.
    needed_at: Option<Time>,
    /// Operations that take lumps are about until then, here or elsewhere.
    pub(super) lumps_until: Time,
    /// The newest grant raised the rate by more than a trifle: the share is still being found.
    rising: bool,
}

impl Renewal {
    pub(super) fn new(now: Time) -> Self {
        Self {
            asked_seq: 0,
            asked_at: None,
            paid_until: Time(0),
            awaiting: false,
            patience: Patience::new(),
            served_until: Time(0),
            gave_up: false,
            shed_until: None,
            acked_seq: 0,
            renew_after: Span::secs(1),
            ask_again_at: now,
            made: now,
            last_arrival: None,
            pressed: false,
            urgent: false,
            called: false,
            scarce: false,
            lump_wanted: false,
            told: Told::default(),
            needed_at: None,
            lumps_until: Time(0),
            rising: true,
        }
    }

    /// Of a group about which there was talk before.
    pub(super) fn resumed(now: Time, asked_seq: u64, acked_seq: u64) -> Self {
        Self { asked_seq, acked_seq, ..Self::new(now) }
    }

    /// Newest renewal sent.
    pub(super) fn asked_seq(&self) -> u64 {
        self.asked_seq
    }

    /// Newest renewal answered.
    pub(super) fn acked_seq(&self) -> u64 {
        self.acked_seq
    }

    /// Nothing to say and nothing to hear.
    pub(super) fn is_quiet(&self) -> bool {
        !(self.awaiting || self.pressed || self.urgent)
    }

    /// How long the answer to a renewal is waited for.
    pub(super) fn wait(&self, config: &NodeConfig) -> Span {
        self.patience.wait(config)
    }

    /// How long an answer usually takes at most.
    pub(super) fn usual_wait(&self, config: &NodeConfig) -> Span {
        self.patience.usual(config)
    }

    pub(super) fn press(&mut self) {
        self.pressed = true;
    }

    /// An operation waits that nothing in hand can ever cover, so that the rate would be earned in vain: the
    /// controller's advice on when to ask again was not about it.
    pub(super) fn ask_soon(&mut self, now: Time) {
        self.ask_again_at = self.ask_again_at.min(now);
    }

    /// The last that waited was served.
    pub(super) fn served(&mut self, now: Time) {
        self.served_until = now.after(MIN_INTERVAL);
    }

    /// An operation has ended: another that its connection sends is told of along with what it did not need.
    pub(super) fn settled(&mut self, now: Time) {
        self.served_until = self.served_until.min(now.after(LEAST_INTERVAL));
    }

    pub(super) fn note_arrival(&mut self, now: Time) {
        self.last_arrival = Some(now);
    }

    /// The controller said that asking again is useless for now, and the rate has settled: it stays as it is.
    pub(super) fn saturated(&self, now: Time) -> bool {
        self.ask_again_at > now && !self.rising
    }

    fn earliest(&self) -> Time {
        self.allowed().max(self.ask_again_at)
    }

    /// When there may be a renewal again.
    pub(super) fn allowed(&self) -> Time {
        let allowed = Time(self.paid_until.0.saturating_sub(MIN_INTERVAL_BURST.0));
        self.asked_at.map_or(allowed, |at| allowed.max(at.after(LEAST_INTERVAL)))
    }

    /// Nothing arrived for long; a group that was never used is idle once it has a lease to give up.
    fn idle(&self, now: Time, config: &NodeConfig, leased: bool) -> bool {
        let since = self.last_arrival.or(leased.then_some(self.made));
        since.is_some_and(|at| now.since(at) >= config.idle_after)
    }
}

impl NodeGroup {
    /// When the next renewal should be sent; in the past or present means now. `None`: nothing to ask.
    pub fn due(&self, now: Time) -> Option<Time> {
        let renewal = &self.renewal;
        if self.budget.state() == LeaseState::Closed {
            return None;
        }
        if renewal.urgent {
            return Some(now);
        }
        let Some(asked_at) = renewal.asked_at else {
            return Some(now);
        };
        if renewal.awaiting {
            let waits = asked_at.after(renewal.wait(&self.config));
            let until = renewal.shed_until.or_else(|| self.asks_anew_at(now));
            return Some(until.map_or(waits, |until| until.min(waits)));
        }
        let pressed = renewal.pressed || !self.waiters.is_empty();
        if self.budget.state() == LeaseState::Idle {
            return (pressed || self.budget.debt().is_positive()).then(|| renewal.earliest());
        }
        let regular = asked_at.after(renewal.renew_after);
        let early = pressed.then(|| {
            let early = if renewal.called { renewal.allowed() } else { renewal.earliest() };
            let early = self.budget.pending_until().map_or(early, |until| early.max(until));
            let early = self.watched_until(now).map_or(early, |until| early.max(until));
            if self.waiters.is_empty() { early.max(renewal.served_until) } else { early }
        });
        let full = if renewal.scarce { self.budget.full_at() } else { None };
        let apart = if renewal.lump_wanted { LUMP_WANTED_INTERVAL } else { SURPLUS_INTERVAL };
        let surplus = full.map(|at| at.max(asked_at.after(apart)));
        // Whoever waits, here or elsewhere, can use what there is no use for as it is.
        let first = self.waits_for_lump().or(self.waiters.first()).map(|(_, first)| first.cost);
        let wanted = renewal.scarce || first.is_some();
        let useless = self.budget.refunded_elsewhere().is_positive() || self.budget.has_left_over(first);
        let refund = wanted && useless;
        let refund = refund.then(|| renewal.allowed().max(renewal.served_until));
        let needed = renewal.needed_at.map(|at| at.max(renewal.earliest()));
        let stopped = self.stopped_at(now).filter(|at| asked_at < *at).map(|at| at.max(renewal.allowed()));
        [Some(regular), early, surplus, refund, needed, stopped].into_iter().flatten().min()
    }

    /// The group's entry in the renewal `seq`, which is sent now.
    pub fn ask(&mut self, now: Time, seq: u64) -> Ask {
        self.budget.advance(now);
        self.sort_waiters(now);
        debug_assert!(seq > self.renewal.asked_seq, "sequence numbers grow");
        let renewal = &mut self.renewal;
        if let Some(sent) = renewal.asked_at.filter(|_| renewal.awaiting) {
            let in_vain = now.since(sent) >= renewal.wait(&self.config);
            renewal.patience.superseded(renewal.asked_seq, sent, in_vain);
        }
        (renewal.asked_seq, renewal.asked_at, renewal.awaiting) = (seq, Some(now), true);
        renewal.shed_until = None;
        renewal.paid_until = renewal.paid_until.max(now).after(MIN_INTERVAL);
        (renewal.pressed, renewal.urgent, renewal.called) = (false, false, false);
        let acked_seq = renewal.acked_seq;
        let owes = self.budget.debt().is_positive();
        let leased = self.budget.state() == LeaseState::Leased;
        renewal.gave_up = renewal.idle(now, &self.config, leased) && self.waiters.is_empty() && !owes;
        if renewal.gave_up {
            let Returned { tokens: returned, refunded, .. } = self.budget.abandon(LeaseState::Idle);
            return Ask { acked_seq, returned, refunded, ..Ask::default() };
        }
        let demand = self.offered(now);
        let lump_for = self.waits_for_lump();
        let head = lump_for.or(self.waiters.first()).map_or(Ru::ZERO, |(_, first)| first.cost);
        let beside = if lump_for.is_some() { self.waits_beside() } else { Ru::ZERO };
        let steady = self.offered_small(now);
        self.renewal.told = Told { load: demand, waiters: !self.waiters.is_empty() };
        self.renewal.needed_at = None;
        if head > self.max_fit.scale(1, LUMP_PART) {
            self.renewal.lumps_until = now.after(LUMPS_LAST);
        }
        let Returned { tokens: returned, refunded, running, largest, held } = self.yield_surplus(now);
        Ask {
            acked_seq,
            held,
            returned,
            refunded,
            running,
            largest,
            demand,
            backlog: self.waiters.backlog() + self.budget.debt(),
            head,
            beside,
            steady,
            ahead: self.renewal.patience.round_trip().smoothed().unwrap_or_default(),
            debt: self.budget.debt(),
            waiting: self.waiters.len() as u64,
        }
    }

    /// Takes the answer to renewal `seq`.
    pub fn on_grant(&mut self, now: Time, seq: u64, grant: &Grant) -> Heard {
        if !self.renewal.awaiting || seq != self.renewal.asked_seq {
            return self.on_late_grant(now, seq, grant);
        }
        let asked = self.renewal.asked_at.unwrap_or(now);
        (self.renewal.awaiting, self.renewal.acked_seq) = (false, seq);
        self.renewal.patience.answered(asked, now, &self.config);
        self.renewal.patience.forget_earlier();
        if self.renewal.gave_up || self.budget.state() == LeaseState::Closed {
            return Heard::Applied;
        }
        match grant {
            Grant::Leased(terms) => {
                self.renewal.rising = terms.rate.scale(20, 21) > self.budget.rate();
                self.budget.lease(now, asked, terms);
                self.renewal.patience.leased(terms.ttl);
                (self.max_fit, self.max_debt) = (terms.max_fit, terms.max_debt);
                self.renewal.renew_after = terms.renew_after;
                self.renewal.ask_again_at = asked.after(terms.ask_again);
                (self.renewal.scarce, self.renewal.lump_wanted) = (terms.scarce, terms.lump_wanted);
                if terms.lump_wanted {
                    self.renewal.lumps_until = now.after(LUMPS_LAST);
                }
                self.renewal.urgent |= terms.ack_now || self.budget.set_aside().is_positive();
                self.renewal.needed_at = self.runs_low_at(now);
            }
            Grant::Unlimited { ttl, renew_after, fallback } => {
                self.budget.unlimited(now, asked, *ttl, *fallback);
                self.renewal.patience.leased(*ttl);
                self.max_fit = Ru::MAX;
                self.renewal.renew_after = *renew_after;
                (self.renewal.ask_again_at, self.renewal.scarce) = (now, false);
            }
            Grant::UnknownGroup => {
                self.budget.stop(now, LeaseState::Unknown);
                self.renewal.ask_again_at = now.after(self.renewal.renew_after);
            }
            Grant::Recovering { ask_again, fallback } => {
                self.budget.recover(now, asked, *fallback);
                self.renewal.ask_again_at = now.after(*ask_again);
                // Leases of before may have been renewed seldom: the next one is to be had when recovery is over.
                let soon = (*ask_again).max(MIN_INTERVAL);
                self.renewal.renew_after = self.renewal.renew_after.min(soon);
            }
        }
        Heard::Applied
    }

    /// The answer to an earlier renewal. The newest told the controller that it was not applied: from then on the
    /// ledger counts what the node said it held, until the end of what the answer granted. So the node may hold that
    /// until then, and no more of it: its tokens are back in the pool.
    fn on_late_grant(&mut self, now: Time, seq: u64, grant: &Grant) -> Heard {
        let Some(asked) = self.renewal.patience.earlier(seq) else {
            return Heard::Ignored;
        };
        self.renewal.patience.answered(asked, now, &self.config);
        let longer = !self.renewal.gave_up
            && match grant {
                Grant::Leased(terms) => self.budget.extend(now, asked, terms),
                Grant::Unlimited { ttl, .. } => self.budget.extend_unlimited(now, asked.after(*ttl)),
                Grant::UnknownGroup | Grant::Recovering { .. } => false,
            };
        if longer { Heard::Extended } else { Heard::Ignored }
    }

    /// The controller is behind and did not consider renewal `seq`. That tells how far, and no more: who asked again at
    /// once would keep it behind.
    pub fn on_shed(&mut self, now: Time, seq: u64) {
        self.budget.advance(now);
        let newest = self.renewal.asked_at.filter(|_| self.renewal.awaiting && seq == self.renewal.asked_seq);
        if let Some(asked) = newest {
            self.renewal.shed_until.get_or_insert(asked.after(self.renewal.wait(&self.config)));
        }
        if let Some(asked) = newest.or_else(|| self.renewal.patience.earlier(seq)) {
            self.renewal.patience.answered(asked, now, &self.config);
        }
    }

    /// The controller wants rate back at once or, with the highest rate there is, calls: there are tokens. Where answers
    /// take longer than orders take to be repeated, a renewal in
    /// flight that told of no more than it asks for acknowledges it: with another for each, every answer would be late.
    pub fn on_lower(&mut self, now: Time, rate_at_most: Rate) {
        self.budget.advance(now);
        if rate_at_most >= Rate::MAX {
            // The renewal under way is not asked anew: its answer may bring what this is about.
            self.renewal.called = true;
            return;
        }
        let lowers = self.budget.state() == LeaseState::Leased && rate_at_most < self.budget.rate();
        self.budget.lower(rate_at_most);
        let far = self.renewal.patience.round_trip().nearly_all() > REPEAT_AFTER;
        self.renewal.urgent |= lowers || !(far && self.renewal.awaiting);
    }

    /// How long the fallback of a group that slept waits for an answer: as long as one usually takes at most, however
    /// many were waited for in vain. A second renewal may wait longer, so that a slow answer is told from a lost one;
    /// whoever may go on without has no reason to.
    pub fn fallback_wait(&self) -> Span {
        self.renewal.usual_wait(&self.config)
    }

    /// How long the answer to a renewal is waited for before another is sent.
    pub fn answer_wait(&self) -> Span {
        self.renewal.wait(&self.config)
    }

    /// Time until an answer of the controller may change anything. One that is late may never come: who tries again then
    /// shall not do so in a loop.
    pub(super) fn until_answer(&self, now: Time) -> Span {
        let wait = self.renewal.wait(&self.config);
        let asked = self.renewal.asked_at.filter(|_| self.renewal.awaiting);
        let due = self.budget.answer_by().or(asked.map(|at| at.after(wait)));
        match due {
            Some(due) if now < due => due.since(now).max(SOON),
            _ => self.renewal.earliest().since(now).max(wait).max(WITHOUT_ANSWER),
        }
    }

    /// How long answers of the controller take.
    pub fn round_trip(&self) -> RoundTrip {
        self.renewal.patience.round_trip()
    }

    /// What other groups of the node have measured, until this one has.
    pub fn expect_round_trip(&mut self, round_trip: RoundTrip) {
        self.renewal.patience.expect(round_trip);
    }

    /// The stream is gone: the renewal in flight will not be answered.
    pub fn on_session_lost(&mut self, now: Time) {
        self.budget.advance(now);
        self.renewal.patience.forget_earlier();
        if self.renewal.awaiting {
            self.renewal.awaiting = false;
            self.renewal.pressed = true;
        }
    }

    /// The definition changed: ask at once.
    pub fn renew_now(&mut self, now: Time) {
        self.budget.advance(now);
        self.renewal.urgent = true;
    }

    /// Graceful end: gives everything up and refuses all further operations.
    pub fn release(&mut self, now: Time) {
        self.budget.advance(now);
        self.budget.abandon(LeaseState::Closed);
    }
}
