//! One resource group on this node, as far as its lock guards it: the core's state machine, the operations that wait and
//! run, what is lent to purses, what is asked of the controller, and what the journal has.
//!
//! Nothing here knows the client around the group. Each method is a change; what follows from changes comes out of
//! [`CellState::follow_up`] as [`Effects`], which `groups::GroupCell`, the holder of the lock, performs. Before a change
//! that is not about purses, it recalls what is lent.
//!
//! A group that has given its lease up and reported all it consumed sleeps until the next operation: its state is a few
//! bytes, so that a node can have many groups of which few are in use.

mod asking;
mod effects;
mod kept;
mod operations;
mod packed;
mod passing;
mod sleep;

use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::node::{
    Acquired, Admitted, Estimate, Heard, NodeGroup, NodeState, QuotaLeft, Refusal, WaiterId,
};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, Total};
use tidegate_core::waited::Unreported;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::journal::Slot;
use crate::lending::{Lending, Loans, Returned};
use crate::names::GroupName;
use asking::Asking;
use kept::Kept;
use operations::{Operations, counts};

pub(crate) use effects::{Contact, Effects, Look};
pub(crate) use operations::{Answer, Entered, Place, Wish};
pub(crate) use passing::Passing;
pub(crate) use sleep::Phase;

/// A group that is awake.
pub(crate) struct CellState {
    node: NodeGroup,
    operations: Operations,
    loans: Loans,
    asking: Asking,
    kept: Kept,
    /// When the driver looks at the group.
    scheduled: Option<Time>,
    /// Of the changes since the last [`CellState::follow_up`].
    effects: Effects,
}

/// What a group has to heed and has no answer to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    /// The definition changed, or the first answer is wanted.
    Renew,
    /// The controller wants the rate down now.
    Lower(Rate),
    /// The controller was behind and did not consider the request of this number.
    Shed(u64),
    /// The stream was lost, and with it any request in flight.
    SessionLost,
    /// Lease, tokens and waiters are to be given up.
    Release,
}

impl CellState {
    fn new(node: NodeGroup, slot: Option<Slot>) -> Self {
        Self {
            // A journal wants every settlement.
            loans: Loans::new(slot.is_none()),
            kept: Kept::new(slot, *node.consumption()),
            node,
            operations: Operations::default(),
            asking: Asking::default(),
            scheduled: None,
            effects: Effects::default(),
        }
    }

    /// Takes back what threads hold, so that the state is whole.
    pub(crate) fn recall(&mut self, lending: &Lending, now: Time) {
        let returned = lending.recall(&mut self.loans, &mut self.node, now);
        self.take_in(returned);
    }

    /// Fills the calling thread's purse and pays for an operation from it. False: the whole state has to decide.
    pub(crate) fn lend(&mut self, lending: &Lending, clock: &Clock, now: Time, cost: Ru) -> bool {
        let (paid, returned) = lending.lend(&mut self.loans, &mut self.node, clock, now, cost);
        self.take_in(returned);
        paid
    }

    fn take_in(&mut self, returned: Returned) {
        self.operations.take_in(returned);
        self.effects.admitted = self.effects.admitted.saturating_add(returned.admitted);
        self.effects.refused = self.effects.refused.saturating_add(returned.refused);
    }

    /// Has the calling thread's purse give an answer of [`CellState::try_acquire`] again, while nothing changes it.
    pub(crate) fn refuse_alike(
        &mut self,
        lending: &Lending,
        clock: &Clock,
        now: Time,
        refused: (Ru, Refusal),
    ) {
        lending.refuse_alike(&mut self.loans, &self.node, clock, now, refused);
    }

    /// Takes `cost` at once or refuses.
    pub(crate) fn try_acquire(&mut self, now: Time, cost: Ru) -> Result<Admitted, Refusal> {
        let answer = self.node.try_acquire(now, cost);
        match answer {
            Ok(_) => self.admit(),
            Err(_) => self.effects.refused += 1,
        }
        answer
    }

    /// Takes a cost at once, refuses, or queues.
    pub(crate) fn acquire(&mut self, now: Time, wish: Wish) -> Result<Entered, Refusal> {
        let Wish { cost, deadline, estimated, place } = wish;
        let acquired = if estimated {
            self.node.acquire_estimated(now, cost, deadline)
        } else {
            self.node.acquire(now, cost, deadline)
        };
        match acquired {
            Ok(Acquired::Now(admitted)) => {
                self.admit();
                Ok(Entered::Admitted(now, admitted))
            }
            Ok(Acquired::Queued(id)) => {
                self.effects.queued += u64::from(place != Place::Second);
                Ok(Entered::Queued(id, self.operations.join(id, wish)))
            }
            Err(refusal) => {
                self.effects.refused += u64::from(counts(refusal, estimated, place));
                Err(refusal)
            }
        }
    }

    /// Opens a permit, for which nothing is taken here.
    pub(crate) fn admit(&mut self) {
        self.operations.open();
        self.effects.admitted += 1;
    }

    /// Whether `cost` would be admitted now; spends nothing.
    pub(crate) fn check(&mut self, now: Time, cost: Ru) -> Result<(), Refusal> {
        self.node.check(now, cost)
    }

    /// A waiter goes away: leaves the queue, or gives back what it had just been given.
    pub(crate) fn leave(
        &mut self,
        now: Time,
        id: WaiterId,
        cost: Ru,
        answer: &mut oneshot::Receiver<Answer>,
    ) {
        if self.operations.leave(id) {
            self.node.cancel(now, id);
        } else if let Ok(Ok((began, admitted))) = answer.try_recv() {
            self.give_back(now, began, admitted.with(cost));
        }
    }

    /// The operation that began at `began`, or a little later, never ran.
    pub(crate) fn give_back(&mut self, now: Time, began: Time, cost: Estimate) {
        self.node.give_back(now, began, cost);
        self.close();
    }

    /// The operation ran and cost `actual`.
    pub(crate) fn settle(&mut self, now: Time, estimate: Estimate, actual: &Consumption) {
        self.settle_part(now, estimate, actual);
        self.close();
    }

    /// An operation that goes on cost `actual`, of which `taken` was taken before.
    pub(crate) fn settle_part(&mut self, now: Time, taken: Estimate, actual: &Consumption) {
        self.node.settle(now, taken, actual);
        self.kept.fall_behind();
    }

    /// An operation that asked for no admission cost `actual`.
    pub(crate) fn charge(&mut self, now: Time, actual: &Consumption) {
        self.node.charge(now, actual);
        self.kept.fall_behind();
    }

    fn close(&mut self) {
        self.effects.settled |= self.operations.close();
    }

    /// Permits not yet settled.
    pub(crate) fn open(&self) -> usize {
        self.operations.count()
    }

    /// What the machine is doing.
    pub(crate) fn node_state(&mut self, now: Time) -> NodeState {
        self.node.state(now)
    }

    /// What is known of the quota, less what threads have spent of what is lent to them, which stays there.
    pub(crate) fn quota_left(&mut self, lending: &Lending, now: Time) -> Option<QuotaLeft> {
        let (ru, operations) = lending.gone(&self.loans);
        self.node.quota_left(now, ru, operations)
    }

    /// The last rate it was leased that was more than nothing.
    pub(crate) fn leased(&self) -> Rate {
        self.asking.leased()
    }

    /// RU in the bucket; `None` when unlimited.
    pub(crate) fn remaining(&self) -> Option<Ru> {
        self.node.look().remaining()
    }

    /// The entry for a `Renew`, if one is still due, its proof, and how long its answer is waited for; the core marks it
    /// in flight.
    pub(crate) fn ask(&mut self, now: Time, seq: u64) -> Option<(Ask, Vec<u8>, Span)> {
        let (ask, proof) = self.asking.ask(&mut self.node, now, seq)?;
        Some((ask, proof, self.node.look().answer_wait()))
    }

    /// Applies a grant, as far as it is not stale, by a clock that runs off by `slewed` ppm.
    pub(crate) fn grant(
        &mut self,
        now: Time,
        slewed: Option<u32>,
        seq: u64,
        grant: &Grant,
        proof: Vec<u8>,
    ) -> Heard {
        let grant = &grant.on_slewed_clock(slewed.unwrap_or_default());
        self.node.on_slewed_clock(now, slewed);
        self.asking.hear(&mut self.node, now, seq, grant, proof)
    }

    /// Asks a controller that has not said yet whether it has the group; completes with its next answer. `None` when it
    /// has said so.
    pub(crate) fn ask_first(&mut self, now: Time) -> Option<oneshot::Receiver<()>> {
        self.asking.ask_first(&mut self.node, now)
    }

    /// Completes with the first answer of the controller; `None` when it is there.
    #[cfg(all(test, shuttle))]
    pub(crate) fn listen(&mut self, now: Time) -> Option<oneshot::Receiver<()>> {
        let has_none = self.node.state(now).lease == tidegate_core::node::LeaseState::None;
        has_none.then(|| self.asking.listen())
    }

    /// The request `seq` got no usable answer; the next one waits for `pause`. False when another was sent since.
    pub(crate) fn unanswered(&mut self, now: Time, seq: u64, pause: Span) -> bool {
        self.asking.unanswered(&mut self.node, now, seq, now.after(pause))
    }

    pub(crate) fn heed(&mut self, now: Time, notice: Notice) {
        match notice {
            Notice::Renew => self.node.renew_now(now),
            Notice::Lower(at_most) => self.node.on_lower(now, at_most),
            Notice::Shed(seq) => self.node.on_shed(now, seq),
            Notice::SessionLost => self.node.on_session_lost(now),
            Notice::Release => {
                self.node.release(now);
                self.asking.end();
            }
        }
    }

    /// The driver looks.
    pub(crate) fn looked(&mut self) {
        self.scheduled = None;
    }

    /// What is kept of the cumulative consumption, and the consumption.
    pub(crate) fn kept(&mut self) -> (&mut Kept, &Total) {
        (&mut self.kept, self.node.consumption())
    }

    /// The consumption for a report, to which the journal is to be brought up, and waits since the last one.
    pub(crate) fn report(&mut self) -> (Total, Option<Box<Unreported>>) {
        self.kept.fall_behind();
        (*self.node.consumption(), self.node.take_unreported())
    }

    /// Answers the waiters that are done. Returns what else follows from the changes since the last call. The session of a
    /// client that closes is not asked for anything more.
    pub(crate) fn follow_up(&mut self, now: Time, group: &GroupName, is_closing: bool) -> Effects {
        while !self.operations.none_waits()
            && let Some((id, answer)) = self.node.poll(now)
        {
            let refused = self.operations.complete(id, answer.map(|admitted| (now, admitted)), group);
            self.effects.refused += u64::from(refused);
        }
        let due = self.asking.due(&self.node, now).filter(|_| !is_closing);
        self.effects.due = self.asking.announce(due, now);
        // Once the session knows of a renewal that is due, only the waiters count.
        let due = due.filter(|_| !self.asking.is_announced());
        if let Some(at) = due.into_iter().chain(self.node.look().next_poll()).min()
            && self.scheduled.is_none_or(|scheduled| at < scheduled)
        {
            self.effects.look = Some(Look { at, before: self.scheduled.replace(at) });
        }
        std::mem::take(&mut self.effects)
    }
}
