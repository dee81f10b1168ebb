//! What a group can be asked that does not change it: when something happens next, how much it holds, how long answers
//! take, and why an operation is refused.

use super::budget::LeaseState;
use super::patience::RoundTrip;
use super::{NodeGroup, Refusal};
use crate::units::{Rate, Ru, Span, Time};

/// Least time after which a caller tries again while an answer may come at any time.
const SOON: Span = Span::millis(10);
/// The same when no answer came in time. At half, all clients of a controller that is away would ask twice a second
/// each; at twice, they stand still for two seconds after its return.
const WITHOUT_ANSWER: Span = Span::secs(1);

/// Operations that are refused alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    /// The largest cost.
    pub largest: Ru,
    /// Until when.
    pub until: Time,
}

/// A look at a group as of its last change.
#[derive(Clone, Copy, Debug)]
pub struct Look<'n>(&'n NodeGroup);

impl NodeGroup {
    /// A look at it as of its last change.
    #[inline]
    pub fn look(&self) -> Look<'_> {
        Look(self)
    }
}

impl Look<'_> {
    /// The reason why waiting is useless for an operation, if there is one.
    pub(super) fn hopeless(&self, cost: Ru) -> Option<Refusal> {
        match self.0.budget.right().state() {
            LeaseState::Unknown => Some(Refusal::UnknownGroup),
            LeaseState::Closed => Some(Refusal::Unavailable { retry_after: Span::secs(1) }),
            LeaseState::Leased | LeaseState::Expired
                if cost > self.max_fit()
                    && self.0.budget.right().spends()
                    && !self.0.budget.right().is_shadow() =>
            {
                Some(Refusal::NeverFits { max: self.max_fit() })
            }
            _ => None,
        }
    }

    /// Why an operation is not admitted that cannot start.
    pub(super) fn refusal(&self, now: Time, cost: Ru) -> Refusal {
        if let Some(refusal) = self.hopeless(cost) {
            return refusal;
        }
        if let Some((unit, resets_in)) = self.0.quota.used_up(now, cost, &self.0.consumption) {
            return Refusal::QuotaUsedUp { unit, resets_in };
        }
        let has_income =
            self.0.budget.right().state() == LeaseState::Leased || self.0.budget.income() > Rate::ZERO;
        if !has_income {
            return Refusal::Unavailable { retry_after: self.until_answer(now) };
        }
        let right = self.0.budget.right();
        let beside = self.0.turns().waits_for_lump().is_some();
        let waiting = if beside { self.0.waiters.small_backlog() } else { self.0.waiters.backlog() };
        let cost = if right.is_paced() { right.needed(cost) } else { cost };
        let queued =
            waiting + cost + self.0.budget.hand().debt() - self.0.budget.hand().available().or_zero();
        // Tokens of the bucket never cover it, so the controller must grant a lump; debt is paid first.
        let never = right.has_lumps() && self.0.budget.hand().never_covers(cost);
        let asks = never && self.0.budget.hand().debt() == Ru::ZERO;
        let asks = asks || !self.0.turns().is_within_quota(cost);
        let refill = self.0.budget.income().time_for(queued).filter(|_| !asks);
        // Without income, the next answer may change that.
        let retry_after = refill.map_or_else(|| self.until_answer(now), |span| span.max(Span(1)));
        Refusal::Throttled { retry_after: retry_after.min(Span::secs(3600)) }
    }

    /// Which operations are refused for the rate as one was now, who may try again after that time: at least as large,
    /// while nothing but time changes it. `None` without a lease.
    pub fn refuses_alike(&self, now: Time, retry_after: Span) -> Option<Alike> {
        // The part of a micro-RU that there is brings the moment forward by the time of less than one.
        let part = self.0.budget.income().time_for(Ru(1)).unwrap_or_default();
        let until = now.after(Span(retry_after.0.saturating_sub(part.0)));
        let largest = self.0.quota.largest(now, &self.0.consumption).min(self.max_fit());
        Some(Alike { largest, until: until.min(self.lease_end()?) })
    }

    /// When `poll` or `due` next returns something, if nothing else happens.
    pub fn next_deadline(&self, now: Time) -> Option<Time> {
        [self.next_poll(), self.0.due(now)].into_iter().flatten().min()
    }

    /// When `poll` next returns something, if nothing else happens: the first waiter is covered, one runs out of time,
    /// or the lease ends while operations wait.
    pub fn next_poll(&self) -> Option<Time> {
        let (late, _) = self.0.waiters.most_urgent()?;
        [self.0.turns().next_at(), Some(late), self.0.budget.right().changes_at()].into_iter().flatten().min()
    }

    /// The largest operation that can ever be admitted, by the controller's last answer.
    pub fn max_fit(&self) -> Ru {
        self.0.budget.right().max_fit()
    }

    /// RU in the group's bucket on this node, batches of threads included, as of the last change; `None` when it is
    /// unlimited.
    pub fn remaining(&self) -> Option<Ru> {
        (self.0.budget.right().state() != LeaseState::Unlimited).then(|| self.0.budget.hand().remaining())
    }

    /// The end of the lease, while there is one.
    pub fn lease_end(&self) -> Option<Time> {
        self.0.budget.right().expires()
    }

    /// Until when what it holds may be spent: the end of the lease, or of the window of its quota.
    pub fn spends_until(&self) -> Option<Time> {
        let end = self.lease_end()?;
        Some(self.0.quota.until().map_or(end, |until| end.min(until)))
    }

    /// The largest debt so far.
    pub fn worst_debt(&self) -> Ru {
        self.0.worst_debt
    }

    /// How long the fallback of a group that slept waits for an answer: as long as one takes at most, as a rule,
    /// however many did not come. A second renewal may wait longer, to distinguish a slow answer from a lost one; an
    /// operation that may run without an answer need not.
    pub fn fallback_wait(&self) -> Span {
        self.0.renewal.usual_wait(&self.0.config)
    }

    /// How long the node waits for the answer to a renewal before it sends another.
    pub fn answer_wait(&self) -> Span {
        self.0.renewal.wait(&self.0.config)
    }

    /// Time until an answer of the controller may change anything. A late answer may never come, so callers must not
    /// retry in a loop.
    fn until_answer(&self, now: Time) -> Span {
        let wait = self.0.renewal.wait(&self.0.config);
        let asked = self.0.renewal.question.awaited();
        let due = self.0.budget.right().answer_by().or(asked.map(|at| at.after(wait)));
        match due {
            Some(due) if now < due => due.since(now).max(SOON),
            _ => self.0.renewal.earliest().since(now).max(wait).max(WITHOUT_ANSWER),
        }
    }

    /// How long answers of the controller take.
    pub fn round_trip(&self) -> RoundTrip {
        self.0.renewal.patience.round_trip()
    }
}
