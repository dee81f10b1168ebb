//! When a node asks, what it reports, and how it applies the answer.
//!
//! One renewal per group is in flight at a time, and the node waits for its answer as long as answers take. Only the
//! answer to the newest renewal brings rate or tokens; an answer to an earlier one, which the newest declared as not
//! applied, extends the lease in hand. So a lost or late answer costs time and never tokens. The node returns surplus
//! and lowers its rate before it sends the message.

use super::budget::{LeaseState, Returned};
use super::distance::Told;
use super::pace::{MIN_INTERVAL, Pace};
use super::patience::{Patience, RoundTrip};
use super::question::Question;
use super::quota::Quota;
use super::{NodeConfig, NodeGroup};
use crate::exchange::{Ask, Grant};
use crate::lumps::{LUMP_PART, LUMPS_LAST};
use crate::recall::REPEAT_AFTER;
use crate::units::{Rate, Ru, Span, Time};

/// A full bucket is worth a message only after this.
const SURPLUS_INTERVAL: Span = Span::millis(250);
/// The same while an operation waits for a lump, to which all surplus adds up. At twice this, operations of 0.4 to 0.9
/// burst use 0.965 of the rate instead of 0.979; at three quarters, nodes beside them send more than five messages a
/// second.
const LUMP_WANTED_INTERVAL: Span = Span::millis(130);

/// The effect of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It answers the newest renewal and is in force.
    Applied,
    /// It answers an earlier renewal and extends the lease in hand.
    Extended,
    /// It answers no renewal that awaits one, or is worth nothing any more. Only the estimate of the round trip
    /// changed.
    Ignored,
}

/// What calls for a renewal before the regular time.
#[derive(Clone, Debug, Default, Hash)]
struct Reasons {
    /// Tokens are low, or an operation waits or was refused.
    pressed: bool,
    /// To send at once: a lowered lease to acknowledge, or a changed definition.
    urgent: bool,
    /// The controller called: there are tokens now.
    called: bool,
    /// At a distance: a round trip before the tokens in hand are used up.
    needed_at: Option<Time>,
}

/// What the controller said of the next renewal.
#[derive(Clone, Debug, Hash)]
struct Advice {
    renew_after: Span,
    ask_again_at: Time,
    /// Others wait for tokens.
    scarce: bool,
    /// Others wait for a lump.
    lump_wanted: bool,
    /// The newest grant raised the rate by more than a trifle, so that the share is not settled yet.
    rising: bool,
}

/// The conversation with the controller about one group.
#[derive(Clone, Debug, Hash)]
pub(super) struct Renewal {
    pub(super) question: Question,
    pub(super) patience: Patience,
    pace: Pace,
    reasons: Reasons,
    advice: Advice,
    made: Time,
    last_arrival: Option<Time>,
    /// Until then more operations that take lumps are expected, here or elsewhere.
    lumps_until: Time,
}

impl Renewal {
    pub(super) fn new(now: Time) -> Self {
        Self {
            question: Question::default(),
            patience: Patience::new(),
            pace: Pace::default(),
            reasons: Reasons::default(),
            advice: Advice {
                renew_after: Span::secs(1),
                ask_again_at: now,
                scarce: false,
                lump_wanted: false,
                rising: true,
            },
            made: now,
            last_arrival: None,
            lumps_until: Time(0),
        }
    }

    /// The conversation about a group that had one before, of which the newest renewal was answered.
    pub(super) fn resumed(now: Time, acked: u64) -> Self {
        Self { question: Question::resumed(acked), ..Self::new(now) }
    }

    /// Whether there is nothing to send and no answer to wait for.
    pub(super) fn is_quiet(&self) -> bool {
        !(self.question.awaited().is_some() || self.reasons.pressed || self.reasons.urgent)
    }

    /// Whether others wait for tokens.
    pub(super) fn is_scarce(&self) -> bool {
        self.advice.scarce
    }

    /// Whether operations that take lumps are expected, here or elsewhere.
    pub(super) fn expects_lumps(&self, now: Time) -> bool {
        self.lumps_until > now
    }

    pub(super) fn last_arrival(&self) -> Option<Time> {
        self.last_arrival
    }

    /// How long the node waits for the answer to a renewal.
    pub(super) fn wait(&self, config: &NodeConfig) -> Span {
        self.patience.wait(config)
    }

    /// How long an answer takes at most, as a rule.
    pub(super) fn usual_wait(&self, config: &NodeConfig) -> Span {
        self.patience.usual(config)
    }

    pub(super) fn press(&mut self) {
        self.reasons.pressed = true;
    }

    /// An operation waits that nothing in hand can ever cover, so that rate would be earned in vain: the controller
    /// gave its advice on when to ask again without knowing of it.
    pub(super) fn ask_soon(&mut self, now: Time) {
        self.advice.ask_again_at = self.advice.ask_again_at.min(now);
    }

    /// Notes that the last waiter was served.
    pub(super) fn served(&mut self, now: Time) {
        self.pace.served(now);
    }

    /// Notes the end of an operation.
    pub(super) fn settled(&mut self, now: Time) {
        self.pace.settled(now);
    }

    pub(super) fn note_arrival(&mut self, now: Time) {
        self.last_arrival = Some(now);
    }

    /// Whether the rate has settled and the controller said that asking again is useless for now.
    pub(super) fn saturated(&self, now: Time) -> bool {
        self.advice.ask_again_at > now && !self.advice.rising
    }

    pub(super) fn earliest(&self) -> Time {
        self.allowed().max(self.advice.ask_again_at)
    }

    /// The earliest time of another renewal.
    pub(super) fn allowed(&self) -> Time {
        self.pace.allowed(self.question.sent())
    }

    /// Whether nothing arrived for long. A group that was never used is idle once it has a lease to give up.
    fn idle(&self, now: Time, config: &NodeConfig, leased: bool) -> bool {
        let since = self.last_arrival.or(leased.then_some(self.made));
        since.is_some_and(|at| now.since(at) >= config.idle_after)
    }

    /// Sends the renewal `seq`, in which the lease is given up or not.
    fn send(&mut self, now: Time, seq: u64, config: &NodeConfig, gives_up: bool) {
        if let Some(sent) = self.question.awaited() {
            let in_vain = now.since(sent) >= self.wait(config);
            self.patience.superseded(self.question.seq(), sent, in_vain);
        }
        self.question.ask(now, seq, gives_up);
        self.pace.pay(now);
        (self.reasons.pressed, self.reasons.urgent, self.reasons.called) = (false, false, false);
    }
}

impl NodeGroup {
    /// When to send the next renewal; now or earlier means at once. `None`: there is nothing to ask.
    pub fn due(&self, now: Time) -> Option<Time> {
        let renewal = &self.renewal;
        if self.budget.right().state() == LeaseState::Closed {
            return None;
        }
        if renewal.reasons.urgent {
            return Some(now);
        }
        let Some(asked_at) = renewal.question.sent() else {
            return Some(now);
        };
        if renewal.question.awaited().is_some() {
            let waits = asked_at.after(renewal.wait(&self.config));
            let until = renewal.question.shed_until().or_else(|| self.distance(now).asks_again_at());
            return Some(until.map_or(waits, |until| until.min(waits)));
        }
        let pressed = renewal.reasons.pressed || !self.waiters.is_empty();
        if self.budget.right().state() == LeaseState::Idle {
            return (pressed || self.budget.hand().debt().is_positive()).then(|| renewal.earliest());
        }
        let regular = asked_at.after(renewal.advice.renew_after);
        let early = pressed.then(|| {
            let early = if renewal.reasons.called { renewal.allowed() } else { renewal.earliest() };
            let early = self.budget.hand().lump().pending_until().map_or(early, |until| early.max(until));
            let early = self.distance(now).watched_until().map_or(early, |until| early.max(until));
            if self.waiters.is_empty() { early.max(renewal.pace.served_until()) } else { early }
        });
        let full = if renewal.advice.scarce { self.budget.full_at() } else { None };
        let apart = if renewal.advice.lump_wanted { LUMP_WANTED_INTERVAL } else { SURPLUS_INTERVAL };
        let surplus = full.map(|at| at.max(asked_at.after(apart)));
        // Operations that wait, here or elsewhere, can use what is useless here.
        let first = self.turns().waits_for_lump().or(self.waiters.first()).map(|(_, first)| first.cost);
        let wanted = renewal.advice.scarce || first.is_some();
        let useless = self.budget.taken().refunded().is_positive() || self.budget.has_left_over(first);
        let refund = wanted && useless;
        let refund = refund.then(|| renewal.allowed().max(renewal.pace.served_until()));
        let needed = renewal.reasons.needed_at.map(|at| at.max(renewal.earliest()));
        let stopped =
            self.distance(now).stopped_at().filter(|at| asked_at < *at).map(|at| at.max(renewal.allowed()));
        let window =
            self.quota.until().filter(|until| asked_at < *until).map(|until| until.max(renewal.allowed()));
        [Some(regular), early, surplus, refund, needed, stopped, window].into_iter().flatten().min()
    }

    /// Builds the group's entry in the renewal `seq`, which is sent now.
    pub fn ask(&mut self, now: Time, seq: u64) -> Ask {
        self.budget.advance(now);
        self.sort_waiters(now);
        let acked_seq = self.renewal.question.acked();
        let owes = self.budget.hand().debt().is_positive();
        let leased = self.budget.right().state() == LeaseState::Leased;
        let idle = self.renewal.idle(now, &self.config, leased);
        let gives_up = idle && self.waiters.is_empty() && !owes;
        self.renewal.send(now, seq, &self.config, gives_up);
        if gives_up {
            let Returned { tokens: returned, refunded, .. } = self.budget.abandon(LeaseState::Idle);
            let spending = self.quota.give_up(now, &self.consumption);
            return Ask { acked_seq, returned, refunded, spending, ..Ask::default() };
        }
        let demand = self.offered(now);
        let lump_for = self.turns().waits_for_lump();
        let head = lump_for.or(self.waiters.first()).map_or(Ru::ZERO, |(_, first)| first.cost);
        let beside = if lump_for.is_some() { self.turns().beside() } else { Ru::ZERO };
        let steady = (self.demand.rate(now) - self.large_demand.rate(now)).max(Rate::ZERO);
        self.renewal.question.tell(Told { load: demand, waiters: !self.waiters.is_empty() });
        self.renewal.reasons.needed_at = None;
        if self.budget.right().has_lumps() && head > self.look().max_fit().scale(1, LUMP_PART) {
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
            backlog: self.waiters.backlog() + self.budget.hand().debt(),
            head,
            beside,
            steady,
            ahead: self.renewal.patience.round_trip().smoothed().unwrap_or_default(),
            debt: self.budget.hand().debt(),
            waiting: self.waiters.len() as u64,
            spending: self.quota.spending(now, &self.consumption),
        }
    }

    /// Applies the answer to renewal `seq`.
    pub fn on_grant(&mut self, now: Time, seq: u64, grant: &Grant) -> Heard {
        let Some(asked) = self.renewal.question.answer(seq) else {
            return self.on_late_grant(now, seq, grant);
        };
        self.renewal.patience.answered(asked, now, grant.ttl(), &self.config);
        self.renewal.patience.forget_earlier();
        if self.renewal.question.gave_up() || self.budget.right().state() == LeaseState::Closed {
            return Heard::Applied;
        }
        match grant {
            Grant::Leased(terms) => {
                self.renewal.advice.rising = terms.rate.scale(20, 21) > self.budget.bucket().rate();
                self.budget.lease(now, asked, terms);
                let drift_ppm = self.config.drift_ppm;
                self.quota.grant((now, asked), terms.allowance, &self.consumption, drift_ppm);
                self.max_debt = terms.max_debt;
                let advice = &mut self.renewal.advice;
                (advice.renew_after, advice.ask_again_at) = (terms.renew_after, asked.after(terms.ask_again));
                (advice.scarce, advice.lump_wanted) = (terms.scarce, terms.lump_wanted);
                if terms.lump_wanted {
                    self.renewal.lumps_until = now.after(LUMPS_LAST);
                }
                self.renewal.reasons.urgent |=
                    terms.ack_now || self.budget.bucket().set_aside().is_positive();
                self.renewal.reasons.needed_at = self.distance(now).runs_low_at();
            }
            Grant::Unlimited { ttl, renew_after, fallback } => {
                self.budget.unlimited(now, asked, *ttl, *fallback);
                self.quota = Quota::default();
                let advice = &mut self.renewal.advice;
                (advice.renew_after, advice.ask_again_at, advice.scarce) = (*renew_after, now, false);
            }
            Grant::UnknownGroup => {
                self.budget.stop(now, LeaseState::Unknown);
                self.quota = Quota::default();
                self.renewal.advice.ask_again_at = now.after(self.renewal.advice.renew_after);
            }
            Grant::Recovering { ask_again, fallback } => {
                self.budget.recover(now, asked, *fallback);
                self.renewal.advice.ask_again_at = now.after(*ask_again);
                // Leases before the restart may have had long renewal intervals: the next lease is available when
                // recovery is over.
                let soon = (*ask_again).max(MIN_INTERVAL);
                self.renewal.advice.renew_after = self.renewal.advice.renew_after.min(soon);
            }
        }
        Heard::Applied
    }

    /// Applies the answer to an earlier renewal. The newest renewal declared it as not applied, so the ledger counts
    /// what the node reported as held until the end of what the answer granted. So the node may hold that until then,
    /// and no more of the grant: its tokens are back in the pool.
    fn on_late_grant(&mut self, now: Time, seq: u64, grant: &Grant) -> Heard {
        let Some(asked) = self.renewal.patience.earlier(seq) else {
            return Heard::Ignored;
        };
        self.renewal.patience.answered(asked, now, grant.ttl(), &self.config);
        // One that was given up is not there to be extended.
        if self.budget.extend(now, asked, grant) { Heard::Extended } else { Heard::Ignored }
    }

    /// The controller was behind and did not consider renewal `seq`. The node measures the round trip and does not ask
    /// again at once, which would keep the controller behind.
    pub fn on_shed(&mut self, now: Time, seq: u64) {
        self.budget.advance(now);
        let newest = self.renewal.question.shed(seq, self.renewal.wait(&self.config));
        if let Some(asked) = newest.or_else(|| self.renewal.patience.earlier(seq)) {
            self.renewal.patience.answered(asked, now, None, &self.config);
        }
    }

    /// Lowers the rate at once because the controller wants it back; the highest rate there is means a call instead:
    /// there are tokens. If answers take longer than the interval at which orders are repeated, a renewal in flight
    /// that reported no more than the order allows acknowledges it: another renewal for each order would make every
    /// answer late.
    pub fn on_lower(&mut self, now: Time, rate_at_most: Rate) {
        self.budget.advance(now);
        if rate_at_most >= Rate::MAX {
            // No renewal replaces the one under way: its answer may bring the tokens already.
            self.renewal.reasons.called = true;
            return;
        }
        let lowers =
            self.budget.right().state() == LeaseState::Leased && rate_at_most < self.budget.bucket().rate();
        self.budget.lower(rate_at_most);
        let far = self.renewal.patience.round_trip().nearly_all() > REPEAT_AFTER;
        self.renewal.reasons.urgent |= lowers || !(far && self.renewal.question.awaited().is_some());
    }

    /// Uses the measurement of other groups of the node until this one has its own.
    pub fn expect_round_trip(&mut self, round_trip: RoundTrip) {
        self.renewal.patience.expect(round_trip);
    }

    /// The stream is lost: the renewal in flight will have no answer.
    pub fn on_session_lost(&mut self, now: Time) {
        self.budget.advance(now);
        self.renewal.patience.forget_earlier();
        if self.renewal.question.lose() {
            self.renewal.press();
        }
    }

    /// The definition changed: ask at once.
    pub fn renew_now(&mut self, now: Time) {
        self.budget.advance(now);
        self.renewal.reasons.urgent = true;
    }

    /// Graceful end: gives everything up and refuses all further operations.
    pub fn release(&mut self, now: Time) {
        self.budget.advance(now);
        self.budget.abandon(LeaseState::Closed);
    }
}
