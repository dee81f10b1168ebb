//! The right to spend: a lease, or what applies without one, and until when.

use crate::decide::PACED_CAP;
use crate::exchange::{Enforcement, LeaseTerms};
use crate::group::Fallback;
use crate::node::NodeConfig;
use crate::units::{Ru, Span, Time};

/// The longest burst at the fallback rate.
const FALLBACK_CAP: Span = Span::secs(1);
/// Something in hand: all before is paid for.
const ANY: Ru = Ru(1);

/// The basis of the right to spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// No grant yet.
    #[default]
    None,
    /// A lease on a rate.
    Leased,
    /// A lease without a rate: metered, not throttled.
    Unlimited,
    /// There is no lease: the fallback applies.
    Expired,
    /// Given up after a long silence; asked for again at the next operation.
    Idle,
    /// The controller does not know the group.
    Unknown,
    /// The controller recovers, and there is neither lease nor fallback.
    Recovering,
    /// Released for good.
    Closed,
}

/// The basis of the right to spend, its end, and what applies then.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Right {
    state: LeaseState,
    expires: Time,
    /// That of the last lease; what it says of the pace holds for the fallback, too.
    enforcement: Enforcement,
    /// The most that has to be in hand for an operation to start.
    enough: Ru,
    /// The largest operation that can ever be admitted, by the last lease.
    max_fit: Ru,
    fallback: Fallback,
    /// The end of this node's part of the group's fallback.
    fallback_until: Time,
    /// When the fallback applies if no answer comes: an idle group is in use again and has asked for a lease.
    answer_by: Option<Time>,
}

impl Right {
    /// None before the first answer. A node with a fallback for that waits only as long as for an answer.
    pub(crate) fn unheard(now: Time, config: &NodeConfig) -> Self {
        let fallback = config.fallback;
        let answer_by = (fallback != Fallback::Stop).then(|| now.after(config.reply_timeout));
        Self { fallback, answer_by, max_fit: Ru::MAX, ..Self::default() }
    }

    /// That of a group that gave its lease up.
    pub(crate) fn idle((fallback, fallback_until): (Fallback, Time), paced: bool) -> Self {
        let enforcement = Enforcement { paced, ..Enforcement::default() };
        let max_fit = Ru::MAX;
        Self { state: LeaseState::Idle, fallback, fallback_until, enforcement, max_fit, ..Self::default() }
    }

    #[inline]
    pub(crate) fn state(&self) -> LeaseState {
        self.state
    }

    /// The end of the lease, while there is one.
    #[inline]
    pub(crate) fn expires(&self) -> Option<Time> {
        matches!(self.state, LeaseState::Leased | LeaseState::Unlimited).then_some(self.expires)
    }

    /// When the fallback takes effect, or the node's part of the group's fallback ends, unless an answer comes before.
    #[inline]
    pub(crate) fn changes_at(&self) -> Option<Time> {
        match (self.state, self.fallback) {
            (LeaseState::Expired, Fallback::Part(..)) => Some(self.fallback_until),
            _ => self.expires().or(self.answer_by),
        }
    }

    /// Whether what the lease does not cover is admitted all the same.
    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.enforcement.shadow && self.state == LeaseState::Leased
    }

    /// By when an idle group should have an answer.
    pub(crate) fn answer_by(&self) -> Option<Time> {
        self.answer_by
    }

    /// What applies without a lease, and until when, if it is a part of the group's fallback.
    pub(crate) fn fallback(&self) -> (Fallback, Time) {
        (self.fallback, self.fallback_until)
    }

    /// Whether operations take tokens, and tokens come.
    #[inline]
    pub(crate) fn spends(&self) -> bool {
        match self.state {
            LeaseState::Leased => true,
            LeaseState::Expired => self.fallback.rate().is_some(),
            _ => false,
        }
    }

    /// Whether operations take nothing, because the group is unlimited.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        match self.state {
            LeaseState::Unlimited => true,
            LeaseState::Expired => self.fallback == Fallback::Unlimited,
            _ => false,
        }
    }

    /// The amount in hand with which an operation may start.
    #[inline]
    pub(crate) fn needed(&self, cost: Ru) -> Ru {
        if cost <= self.enough { cost } else { self.needed_beyond(cost) }
    }

    /// Nothing lets an operation start that never fits.
    #[cold]
    fn needed_beyond(&self, cost: Ru) -> Ru {
        if cost <= self.max_fit { self.enough } else { Ru::MAX }
    }

    /// The largest operation that can ever be admitted, by the last lease.
    pub(crate) fn max_fit(&self) -> Ru {
        self.max_fit
    }

    /// Whether an operation that the bucket can never cover waits for a lump.
    pub(crate) fn has_lumps(&self) -> bool {
        self.state == LeaseState::Leased && !self.enforcement.paced
    }

    /// Whether each operation starts when those before it are paid for.
    pub(crate) fn is_paced(&self) -> bool {
        self.enforcement.paced
    }

    /// Notes an operation in an idle group: it asks for a lease, and a controller that has not answered by then counts
    /// as away.
    pub(super) fn want(&mut self, answer_by: Time) {
        self.answer_by.get_or_insert(answer_by);
    }

    /// Notes the fallback of the answer to the renewal sent at `asked`; returns the depth of its bucket, if it applies.
    pub(super) fn fall_back_to(&mut self, asked: Time, fallback: Fallback) -> Option<Ru> {
        self.fallback = fallback;
        self.fallback_until = match fallback {
            Fallback::Part(_, lasts) => asked.after(lasts),
            _ => Time(0),
        };
        self.own_cap()
    }

    /// The fallback applies from now on; returns the depth of its bucket.
    pub(super) fn fall_back(&mut self) -> Option<Ru> {
        (self.state, self.answer_by) = (LeaseState::Expired, None);
        self.own_cap()
    }

    /// The bucket of the fallback, while that applies and is a rate. Nobody grants lumps for it, so an operation larger
    /// than the bucket starts when the bucket is full, and owes the rest.
    fn own_cap(&mut self) -> Option<Ru> {
        let rate = self.fallback.rate().filter(|_| self.state == LeaseState::Expired)?;
        let cap = rate.over(if self.is_paced() { PACED_CAP } else { FALLBACK_CAP }).max(ANY);
        self.enough = if self.is_paced() { ANY } else { cap };
        Some(cap)
    }

    /// A part of the group's fallback is over.
    pub(super) fn end_fallback(&mut self) {
        if self.state == LeaseState::Expired {
            self.fallback = Fallback::Stop;
        }
    }

    /// A lease on a rate until `end`.
    pub(super) fn lease(&mut self, end: Time) {
        (self.state, self.expires, self.answer_by) = (LeaseState::Leased, end, None);
    }

    /// A lease without a rate until `end`.
    pub(super) fn unlimited(&mut self, end: Time) {
        (self.state, self.expires, self.answer_by) = (LeaseState::Unlimited, end, None);
        (self.enforcement, self.max_fit) = (Enforcement::default(), Ru::MAX);
    }

    /// Takes in how the lease is enforced.
    pub(super) fn enforce(&mut self, terms: &LeaseTerms) {
        (self.enforcement, self.max_fit) = (terms.enforcement, terms.max_fit);
        self.enough = if self.is_paced() { ANY } else { Ru::MAX };
    }

    /// Extends the lease until `end`.
    pub(super) fn extend(&mut self, end: Time) {
        self.expires = end;
    }

    /// Ends for the reason `state`, the fallback too.
    pub(super) fn end(&mut self, state: LeaseState) {
        *self = Self { state, enforcement: self.enforcement, max_fit: self.max_fit, ..Self::default() };
    }

    /// Gives the lease up; the fallback stays.
    pub(super) fn give_up(&mut self, state: LeaseState) {
        (self.state, self.answer_by) = (state, None);
    }
}
