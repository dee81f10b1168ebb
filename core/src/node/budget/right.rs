//! The right to spend: a lease, or what applies without one, and until when.

use crate::group::Fallback;
use crate::node::NodeConfig;
use crate::units::{Rate, Ru, Time};

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
    /// The lease is evaluated and not enforced.
    shadow: bool,
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
        Self { fallback, answer_by, ..Self::default() }
    }

    /// That of a group that gave its lease up.
    pub(crate) fn idle((fallback, fallback_until): (Fallback, Time)) -> Self {
        Self { state: LeaseState::Idle, fallback, fallback_until, ..Self::default() }
    }

    /// None, for the reason `state`.
    pub(super) fn none(state: LeaseState) -> Self {
        Self { state, ..Self::default() }
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
        self.shadow && self.state == LeaseState::Leased
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

    /// The amount in hand with which an operation may start. At the fallback rate nobody grants lumps, so an operation
    /// larger than the bucket starts when the bucket is full, and owes the rest.
    #[inline]
    pub(super) fn needed(&self, cost: Ru, cap: Ru) -> Ru {
        if self.state == LeaseState::Expired { cost.min(cap.max(Ru(1))) } else { cost }
    }

    /// Notes an operation in an idle group: it asks for a lease, and a controller that has not answered by then counts
    /// as away.
    pub(super) fn want(&mut self, answer_by: Time) {
        self.answer_by.get_or_insert(answer_by);
    }

    /// Notes the fallback of the answer to the renewal sent at `asked`.
    pub(super) fn fall_back_to(&mut self, asked: Time, fallback: Fallback) {
        self.fallback = fallback;
        self.fallback_until = match fallback {
            Fallback::Part(_, lasts) => asked.after(lasts),
            _ => Time(0),
        };
    }

    /// The fallback applies from now on; returns its rate.
    pub(super) fn fall_back(&mut self) -> Option<Rate> {
        (self.state, self.answer_by) = (LeaseState::Expired, None);
        self.fallback.rate()
    }

    /// A part of the group's fallback is over.
    pub(super) fn end_fallback(&mut self) {
        if self.state == LeaseState::Expired {
            self.fallback = Fallback::Stop;
        }
    }

    /// A lease on a rate, or one without, until `end`.
    pub(super) fn lease(&mut self, state: LeaseState, end: Time) {
        (self.state, self.expires, self.answer_by) = (state, end, None);
    }

    /// Enforces the lease, or only evaluates it.
    pub(super) fn enforce(&mut self, shadow: bool) {
        self.shadow = shadow;
    }

    /// Extends the lease until `end`.
    pub(super) fn extend(&mut self, end: Time) {
        self.expires = end;
    }

    /// Gives the lease up; the fallback stays.
    pub(super) fn give_up(&mut self, state: LeaseState) {
        (self.state, self.answer_by) = (state, None);
    }
}
