//! The handle of a resource group: admission before an operation, charges after it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::node::{Admitted, NodeState, QuotaLeft, Refusal};
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts, Total, Usage};
use tokio::time::Instant;

use crate::cell::{Entered, Place, Wish};
use crate::clock::{Clock, Tick, duration, span};
use crate::demotion;
use crate::groups::GroupCell;
use crate::journal::JournalError;
use crate::names::{GroupName, NameError};
use crate::permit::Permit;
use crate::refused::Refused;
use crate::wait::Waiting;

/// A resource group on this node. Cheap to clone; all clones share one bucket.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) cell: Arc<GroupCell>,
}

/// Why there is no handle.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The controller knows no such group.
    #[error("group {group} does not exist; create it, or check the name")]
    UnknownGroup {
        /// What was asked for.
        group: GroupName,
    },
    /// A binding to a group that this node was not given.
    #[error(
        "user {user:?} of tenant {tenant:?} is bound to a group that this node was not given; give it that group, or \
         bind the user to another"
    )]
    NotGiven {
        /// Whose tenant.
        tenant: String,
        /// Who.
        user: String,
    },
    /// The controller did not answer in time.
    #[error(
        "the controller did not say within {waited:?} whether group {group} exists; {}", remedy(.last_error)
    )]
    Unavailable {
        /// What was asked for.
        group: GroupName,
        /// How long the caller waited.
        waited: Duration,
        /// Why the last session ended; empty while there is one.
        last_error: String,
    },
    /// The controller's watch has said nothing yet.
    #[error("the controller did not send the bindings within {waited:?}; {}", remedy(.last_error))]
    NoBindings {
        /// How long the caller waited.
        waited: Duration,
        /// Why the last session ended; empty while there is one.
        last_error: String,
    },
    /// The name cannot be a group's.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Too many groups in use.
    #[error("group {group} would be one more than {limit} groups on one node; raise `Limits::groups`")]
    TooMany {
        /// What was asked for.
        group: GroupName,
        /// The limit.
        limit: usize,
    },
    /// The group's consumption could not be kept.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The client is shutting down.
    #[error("the client is shutting down; group {group} cannot be used any more")]
    ShutDown {
        /// What was asked for.
        group: GroupName,
    },
}

/// What to do about a controller that did not answer. A session that was refused has its reason; without a session, it
/// is the reason why none began.
fn remedy(last_error: &str) -> String {
    if last_error.is_empty() {
        "check that it can be reached".to_owned()
    } else {
        format!("the last session with it ended or did not begin: {last_error}")
    }
}

/// What is known of a group's quota. Without one nobody takes the group's lock for it.
pub(crate) fn quota_left(cell: &Arc<GroupCell>) -> Option<QuotaLeft> {
    if cell.last_word.has_quota() { cell.quota_left() } else { None }
}

impl Group {
    /// The name.
    pub fn name(&self) -> &GroupName {
        self.cell.name()
    }

    /// Admits an operation estimated at `cost` now, or refuses; never waits. Needs no async runtime.
    // Always: a permit that passes through memory costs more than the admission.
    #[inline(always)]
    pub fn try_acquire(&self, cost: Ru) -> Result<Permit<'_>, Refused<&GroupName>> {
        if let Some(at) = self.cell.pay(cost) {
            return Ok(Permit::new(&self.cell, cost, at));
        }
        if self.cell.last_word.may_demote()
            && let Some(permit) = demotion::tries(self, cost)
        {
            return Ok(permit);
        }
        // The answer to an operation like this one is remembered while nothing has changed it.
        if let Some(retry_after) = self.cell.lending().refuses(cost, &self.cell.shared().clock) {
            return Err(self.cell.refused(cost, Refusal::Throttled { retry_after }));
        }
        Ok(Permit::admitted(&self.cell, cost, self.try_enter(cost)?))
    }

    /// Admits an operation estimated at `cost` now if it can be. Otherwise nothing is counted, neither a refusal nor a
    /// demand: for callers who then wait with [`Group::acquire`], or owe with [`Group::owe`].
    pub fn take(&self, cost: Ru) -> Option<Permit<'_>> {
        match self.taken(cost) {
            Some(admitted) => Some(Permit::admitted(&self.cell, cost, admitted)),
            None => demotion::takes(self, cost, true),
        }
    }

    /// As [`Group::take`], for a handle that is made for this one operation: the permit keeps it, or it comes back.
    pub(crate) fn take_owned(self, cost: Ru) -> Result<Permit<'static>, Self> {
        match self.taken(cost) {
            Some(admitted) => Ok(Permit::owning(self.cell, cost, admitted)),
            None => demotion::takes(&self, cost, true).ok_or(self),
        }
    }

    /// Admits an operation estimated at `cost`, in order of arrival, waiting at most `timeout`.
    ///
    /// Refuses at once when the wait would be longer. Dropping the future gives up the place in the queue and
    /// whatever had just been given.
    pub async fn acquire(&self, cost: Ru, timeout: Duration) -> Result<Permit<'_>, Refused> {
        self.acquire_until(cost, false, |clock| clock.now().after(span(timeout))).await
    }

    /// As [`Group::acquire`], up to a moment of tokio's clock.
    pub async fn acquire_by(&self, cost: Ru, deadline: Instant) -> Result<Permit<'_>, Refused> {
        self.acquire_until(cost, false, |clock| clock.at(deadline)).await
    }

    /// As [`Group::acquire`], for a cost that is an estimate: of one above what the group can ever hold as much as fits
    /// is taken, and what is missing is owed when the permit is settled. Waits at most `timeout` in all, and counts as
    /// refused at most once.
    pub async fn acquire_estimated(&self, cost: Ru, timeout: Duration) -> Result<Permit<'_>, Refused> {
        self.acquire_until(cost, true, |clock| clock.now().after(span(timeout))).await
    }

    /// As [`Group::acquire_estimated`], up to a moment of tokio's clock.
    pub async fn acquire_estimated_by(&self, cost: Ru, deadline: Instant) -> Result<Permit<'_>, Refused> {
        self.acquire_until(cost, true, |clock| clock.at(deadline)).await
    }

    /// The deadline is worked out when the purse does not pay.
    async fn acquire_until(
        &self,
        cost: Ru,
        estimated: bool,
        deadline: impl FnOnce(&Clock) -> Time,
    ) -> Result<Permit<'_>, Refused> {
        if let Some(at) = self.cell.pay(cost) {
            return Ok(Permit::new(&self.cell, cost, at));
        }
        let wish =
            Wish { cost, deadline: deadline(&self.cell.shared().clock), estimated, place: Place::Only };
        if self.cell.last_word.may_demote() {
            // Apart, as callers of groups that do not would carry its state about.
            return Box::pin(demotion::acquire(self, wish)).await;
        }
        self.wait(wish).await
    }

    /// Takes what is wished for in this group, or waits for it.
    pub(crate) async fn wait(&self, mut wish: Wish) -> Result<Permit<'_>, Refused> {
        loop {
            match self.enter(wish).await {
                // Less each time, so that this ends.
                Err(Refused::NeverFits { max, .. }) if wish.estimated && max < wish.cost => wish.cost = max,
                answer => return answer,
            }
        }
    }

    async fn enter(&self, wish: Wish) -> Result<Permit<'_>, Refused> {
        match self.join(wish)? {
            Entered::Admitted(at, admitted) => {
                let at = self.cell.shared().clock.tick_at(at);
                Ok(Permit::admitted(&self.cell, wish.cost, (at, admitted)))
            }
            Entered::Queued(id, answer) => Waiting::new(&self.cell, id, wish, answer).await,
        }
    }

    /// Takes `cost` at once or refuses; after the purse neither paid nor refused.
    pub(crate) fn try_enter(&self, cost: Ru) -> Result<(Tick, Admitted), Refused<&GroupName>> {
        let (cell, clock) = (&self.cell, &self.cell.shared().clock);
        self.valid(cost)?;
        let paid = |at| Ok((at, Admitted::Paid));
        let (at, admitted) = cell.fill_or(cost, paid, |state, now| {
            cell.open_door()?;
            state.try_acquire(now, cost).map(|admitted| (now, admitted)).map_err(|refusal| {
                state.refuse_alike(cell.lending(), clock, now, (cost, refusal));
                cell.refused(cost, refusal)
            })
        })?;
        Ok((clock.tick_at(at), admitted))
    }

    /// Takes `cost` at once or counts nothing.
    pub(crate) fn taken(&self, cost: Ru) -> Option<(Tick, Admitted)> {
        if let Some(at) = self.cell.pay(cost) {
            return Some((at, Admitted::Paid));
        }
        self.valid(cost).ok()?;
        let paid = |at| Some((at, Admitted::Paid));
        let (at, admitted) = self.cell.fill_or(cost, paid, |state, now| {
            self.cell.open_door().ok()?;
            state.check(now, cost).ok()?;
            Some((now, state.try_acquire(now, cost).ok()?))
        })?;
        Some((self.cell.shared().clock.tick_at(at), admitted))
    }

    /// Takes a cost at once, refuses, or queues; after the purse did not pay.
    fn join(&self, wish: Wish) -> Result<Entered, Refused<&GroupName>> {
        self.valid(wish.cost)?;
        let paid = |at| Ok(Entered::Admitted(at, Admitted::Paid));
        self.cell.fill_or(wish.cost, paid, |state, now| {
            self.cell.open_door()?;
            state.acquire(now, wish).map_err(|refusal| self.cell.refused(wish.cost, refusal))
        })
    }

    pub(crate) fn valid(&self, cost: Ru) -> Result<(), Refused<&GroupName>> {
        if (Ru::ZERO..=Ru::MAX).contains(&cost) {
            return Ok(());
        }
        Err(Refused::InvalidCost { group: self.name(), cost })
    }

    /// Begins an operation that must not wait, such as one whose locks others wait for: it takes nothing now; its cost
    /// is charged as it goes and may lead into debt, which is paid before any other operation is admitted.
    pub fn owe(&self) -> Permit<'_> {
        let at = self.cell.with(|state, now| {
            state.admit();
            now
        });
        Permit::new(&self.cell, Ru::ZERO, self.cell.shared().clock.tick_at(at))
    }

    /// Whether `cost` would be admitted now; spends nothing and promises nothing.
    pub fn check(&self, cost: Ru) -> Result<(), Refused<&GroupName>> {
        self.check_own(cost)
            .or_else(|refused| if demotion::has_room(self, cost, &refused) { Ok(()) } else { Err(refused) })
    }

    /// The same in this group alone.
    pub(crate) fn check_own(&self, cost: Ru) -> Result<(), Refused<&GroupName>> {
        self.valid(cost)?;
        self.cell.with(|state, now| {
            self.cell.open_door()?;
            state.check(now, cost).map_err(|refusal| self.cell.refused(cost, refusal))
        })
    }

    /// Charges an operation that asked for no admission. Returns the charge.
    pub fn charge(&self, usage: &Usage) -> RuParts {
        let charge = self.cell.shared().prices.price(usage);
        self.count(&charge.of_one_operation(usage));
        charge.parts
    }

    /// As [`Group::charge`], in RU. Negative parts count as zero.
    pub fn charge_ru(&self, charge: RuParts) -> RuParts {
        let charge = self.cell.shared().prices.direct(charge);
        self.count(&charge.of_one_operation(&Usage::default()));
        charge.parts
    }

    fn count(&self, actual: &Consumption) {
        self.cell.with(|state, now| state.charge(now, actual));
    }

    /// Tokens, debt, lease and queue.
    pub fn state(&self) -> NodeState {
        self.cell.node_state()
    }

    /// How long the group takes to pay what it owes on this node and what waits for it, at the rate that it was leased
    /// last; nothing when there is nothing to pay. A refusal cannot say this while the controller gathers tokens for a
    /// large operation, in place of a rate. `None` when there is, and the group was never leased any, and while it sleeps.
    pub fn pays_within(&self) -> Option<Duration> {
        let within = self.cell.if_awake(|state, now| {
            let node = state.node_state(now);
            state.leased().time_for(node.debt + node.backlog)
        });
        within.flatten().map(duration)
    }

    /// How long the group takes to pay what it owes on this node, at the rate that it was leased last; nothing when it
    /// owes nothing. `None` when it owes and was never leased any.
    pub fn debt_within(&self) -> Option<Duration> {
        let within = self.cell.if_awake(|state, now| state.leased().time_for(state.node_state(now).debt));
        within.unwrap_or(Some(Span(0))).map(duration)
    }

    /// RU in this node's bucket of the group, but for what was spent in the last tenth of a second; `None` when the
    /// group is unlimited. Cheaper than [`Group::state`], which counts everything up to this moment.
    pub fn remaining(&self) -> Option<Ru> {
        self.cell.remaining()
    }

    /// The quota that the group counts in, and what is left of it when this node heard of it last, less what it used
    /// since; `None` without a quota, or without a lease.
    pub fn quota_left(&self) -> Option<QuotaLeft> {
        quota_left(&self.cell)
    }

    /// What went on in the group to which this one demotes: operations, and what they were estimated at when they were
    /// admitted. They count in the consumption of that group. Counted since the first handle of those that there are now.
    pub fn demoted(&self) -> (u64, Ru) {
        self.cell.demoted.read()
    }

    /// This node's consumption in the group since the node started.
    pub fn consumption(&self) -> Total {
        self.cell.consumption()
    }
}
