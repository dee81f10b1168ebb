//! One resource group on this node: the core's state machine behind a mutex, with its waiters and journal slot.
//!
//! Every change goes through [`GroupCell::with`], which closes the purses of threads first; afterwards it completes
//! waiters that are done, and sets when the session renews and when the driver looks again. Operations of a busy group
//! are paid from the purse of their thread and take the mutex only to fill it.
//!
//! A group that has given its lease up and reported all it consumed sleeps until the next operation: its state is a few
//! bytes, so that a node can have many groups of which few are in use. While no handle holds it, the registry keeps
//! only those bytes of it.

mod lease;
mod lending;
mod packed;
mod sleep;
#[cfg(all(test, not(shuttle)))]
mod stress;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tidegate_core::node::{Acquired, LeaseState, NodeConfig, NodeGroup, NodeState, Refusal, WaiterId};
use tidegate_core::ranks::Ranks;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, Total, Usage};
use tidegate_cost_model::Charge;
use tokio::sync::oneshot;

use crate::clock::Tick;
use crate::journal::Slot;
use crate::lending::{Open, Purse, Purses};
use crate::names::GroupName;
use crate::refused::Refused;
use crate::shared::Shared;
use crate::sync::{AtomicBool, AtomicI64, Mutex, MutexGuard};
use sleep::Phase;

/// The answer to a waiter; when admitted, since when.
pub(crate) type Answer = Result<Time, Refusal>;

/// A group. Handles, permits and waiters hold it by `Arc`.
pub(crate) struct GroupCell {
    id: u64,
    name: GroupName,
    pub(crate) shared: Arc<Shared>,
    purses: Purses,
    /// Micro-RU in the bucket at the last change under the lock; `i64::MAX` when unlimited.
    remaining: AtomicI64,
    /// What the controller said last: it has such a group.
    known: AtomicBool,
    phase: Mutex<Phase>,
}

/// What the mutex guards.
pub(crate) struct CellState {
    pub(crate) node: NodeGroup,
    waiting: Ranks<WaiterId, Place>,
    /// Permits not yet settled; those of open purses are not in it, and the sum may be below zero meanwhile.
    open: i64,
    open_purses: Open,
    /// When an operation last came to the lock, and whether that was soon after the one before.
    entered: Time,
    busy: bool,
    slot: Option<Slot>,
    /// The proof that the controller handed out with the lease, shown when renewing; opaque.
    proof: Vec<u8>,
    /// The last rate it was leased that was more than nothing.
    leased: Rate,
    /// The newest `Renew` that named the group; 0 for none.
    asked_seq: u64,
    /// Whether it is in the session's due set.
    announced: bool,
    /// A reply could not be used: no request before this.
    quiet_until: Time,
    /// Where the driver's agenda has the group.
    scheduled: Option<Time>,
    /// Its consumption when it woke, which is on the controller's disk.
    confirmed: Total,
    /// Those that wait for the next answer.
    listening: Vec<oneshot::Sender<()>>,
}

/// The request of an operation that may wait.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) cost: Ru,
    pub(crate) deadline: Time,
    /// A cost that never fits is not refused: the operation asks for what fits next.
    pub(crate) estimated: bool,
}

/// A waiter.
struct Place {
    answer: oneshot::Sender<Answer>,
    estimated: bool,
}

/// How an operation was let in.
pub(crate) enum Entered {
    Admitted(Time),
    Queued(WaiterId, oneshot::Receiver<Answer>),
}

impl std::fmt::Debug for GroupCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCell").field("name", &self.name).finish_non_exhaustive()
    }
}

impl GroupCell {
    pub(crate) fn new(id: u64, name: GroupName, shared: Arc<Shared>, slot: Option<Slot>) -> Arc<Self> {
        let config = NodeConfig { fallback: shared.fallback_of(&name), ..shared.config };
        let mut node = NodeGroup::new(shared.clock.now(), config);
        node.expect_round_trip(shared.round_trip());
        let cell = Self::in_phase(id, name, shared, false, Phase::awake(CellState::new(node, slot)));
        cell.shared.awake.woke(&cell, 0);
        cell
    }

    /// A group that sleeps, from what is left of it.
    pub(crate) fn asleep(id: u64, name: GroupName, shared: Arc<Shared>, rest: Box<[u8]>) -> Arc<Self> {
        Self::in_phase(id, name, shared, true, Phase::asleep(rest))
    }

    fn in_phase(id: u64, name: GroupName, shared: Arc<Shared>, known: bool, phase: Phase) -> Arc<Self> {
        let (known, remaining) = (AtomicBool::new(known), AtomicI64::new(0));
        Arc::new(Self {
            id,
            name,
            shared,
            purses: Purses::default(),
            remaining,
            known,
            phase: Mutex::new(phase),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn name(&self) -> &GroupName {
        &self.name
    }

    /// Whether the controller, at its last answer, had such a group.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        // The state machine is whole between its calls; a panic elsewhere under the lock leaves nothing half done.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and does what follows from the change. A group that sleeps wakes.
    pub(crate) fn with<R>(self: &Arc<Self>, change: impl FnOnce(&mut CellState, Time) -> R) -> R {
        let mut phase = self.lock();
        // Read under the lock, so that time never steps back from one change to the next.
        let now = self.shared.clock.now();
        self.change(self.wake(&mut phase, now), now, change)
    }

    /// The same unless the group sleeps.
    pub(crate) fn if_awake<R>(self: &Arc<Self>, change: impl FnOnce(&mut CellState, Time) -> R) -> Option<R> {
        let mut phase = self.lock();
        let now = self.shared.clock.now();
        phase.state().map(|state| self.change(state, now, change))
    }

    fn change<R>(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Time,
        change: impl FnOnce(&mut CellState, Time) -> R,
    ) -> R {
        self.gather(state, now);
        let result = change(state, now);
        self.follow_up(state, now);
        result
    }

    /// `paid` from a purse that is filled again, or else what `decide` makes of the whole state.
    fn fill_or<R>(
        self: &Arc<Self>,
        cost: Ru,
        paid: impl FnOnce(Time) -> R,
        decide: impl FnOnce(&mut CellState, Time) -> R,
    ) -> R {
        let mut phase = self.lock();
        let now = self.shared.clock.now();
        let state = self.wake(&mut phase, now);
        let result = if self.fill_purse(state, now, cost) {
            paid(now)
        } else {
            self.gather(state, now);
            decide(state, now)
        };
        self.follow_up(state, now);
        result
    }

    fn follow_up(self: &Arc<Self>, state: &mut CellState, now: Time) {
        while !state.waiting.is_empty()
            && let Some((id, answer)) = state.node.poll(now)
        {
            self.complete(state, id, answer.map(|()| now));
        }
        self.remaining.store(state.node.remaining().map_or(i64::MAX, |ru| ru.0), Ordering::Relaxed);
        let due = state.node.due(now).map(|due| due.max(state.quiet_until));
        if !state.announced && due.is_some_and(|due| due <= now) && !self.shared.is_closing() {
            state.announced = true;
            self.shared.due.announce(self, state.asked_seq == 0);
        }
        if let Some(at) = state.next_look(due)
            && state.scheduled.is_none_or(|scheduled| at < scheduled)
        {
            self.shared.schedule.put(self, state.scheduled, at);
            state.scheduled = Some(at);
        }
    }

    fn complete(&self, state: &mut CellState, id: WaiterId, answer: Answer) {
        let Some(place) = state.waiting.leave(id) else {
            tracing::error!(group = %self.name, "the core finished an unknown waiter");
            return;
        };
        match answer {
            Ok(_) => state.open = state.open.saturating_add(1),
            Err(refusal) => self.count_refused(refusal, place.estimated),
        }
        // The receiver leaves the map, under this lock, before it goes away.
        if place.answer.send(answer).is_err() {
            tracing::error!(group = %self.name, "a waiter left without saying so");
        }
    }

    /// The driver looks: completes what is done and finds the next time.
    pub(crate) fn look(self: &Arc<Self>) {
        self.if_awake(|state, _| state.scheduled = None);
    }

    /// Takes `cost` at once or refuses; after [`GroupCell::pay`].
    pub(crate) fn try_enter(self: &Arc<Self>, cost: Ru) -> Result<Tick, Refused<&GroupName>> {
        if let Some(retry_after) =
            self.purses.mine().and_then(|purse| purse.refuses(cost, &self.shared.clock))
        {
            return Err(self.refused(cost, Refusal::Throttled { retry_after }));
        }
        self.valid(cost)?;
        let at = self.fill_or(cost, Ok, |state, now| {
            self.open_door()?;
            let answer = state.node.try_acquire(now, cost);
            if let Err(refusal) = answer {
                self.refuse_alike(state, now, cost, refusal);
            }
            self.admitted(state, cost, answer.map(|()| now))
        })?;
        Ok(self.shared.clock.tick_at(at))
    }

    /// Takes `cost` at once or counts nothing; after [`GroupCell::pay`].
    pub(crate) fn take(self: &Arc<Self>, cost: Ru) -> Option<Tick> {
        self.valid(cost).ok()?;
        let at = self.fill_or(cost, Some, |state, now| {
            self.open_door().ok()?;
            state.node.check(now, cost).ok()?;
            let taken = state.node.try_acquire(now, cost);
            self.admitted(state, cost, taken.map(|()| now)).ok()
        })?;
        Some(self.shared.clock.tick_at(at))
    }

    /// Takes `cost` at once, refuses, or queues until `deadline`; after [`GroupCell::pay`].
    pub(crate) fn enter(self: &Arc<Self>, wish: Wish) -> Result<Entered, Refused<&GroupName>> {
        let Wish { cost, deadline, estimated } = wish;
        self.valid(cost)?;
        let paid = |at| Ok(Entered::Admitted(at));
        self.fill_or(cost, paid, |state, now| {
            self.open_door()?;
            let acquired = if estimated {
                state.node.acquire_estimated(now, cost, deadline)
            } else {
                state.node.acquire(now, cost, deadline)
            };
            match acquired {
                Ok(Acquired::Queued(id)) => {
                    self.shared.counters.queued.add();
                    let (answer, receiver) = oneshot::channel();
                    state.waiting.join(id, Place { answer, estimated });
                    Ok(Entered::Queued(id, receiver))
                }
                Ok(Acquired::Now) => self.admitted(state, cost, Ok(now)).map(Entered::Admitted),
                Err(refusal) => {
                    self.count_refused(refusal, estimated);
                    Err(self.refused(cost, refusal))
                }
            }
        })
    }

    fn count_refused(&self, refusal: Refusal, estimated: bool) {
        if !(estimated && matches!(refusal, Refusal::NeverFits { .. })) {
            self.shared.counters.refused.add();
        }
    }

    fn admitted(&self, state: &mut CellState, cost: Ru, answer: Answer) -> Result<Time, Refused<&GroupName>> {
        match answer {
            Ok(at) => {
                state.open = state.open.saturating_add(1);
                self.shared.counters.admitted.add();
                Ok(at)
            }
            Err(refusal) => {
                self.shared.counters.refused.add();
                Err(self.refused(cost, refusal))
            }
        }
    }

    /// Opens a permit without taking anything.
    pub(crate) fn owe(self: &Arc<Self>) -> Time {
        self.with(|state, now| {
            state.open = state.open.saturating_add(1);
            self.shared.counters.admitted.add();
            now
        })
    }

    /// Whether `cost` would be admitted now; spends nothing.
    pub(crate) fn check(self: &Arc<Self>, cost: Ru) -> Result<(), Refused<&GroupName>> {
        self.valid(cost)?;
        self.with(|state, now| {
            self.open_door()?;
            state.node.check(now, cost).map_err(|refusal| self.refused(cost, refusal))
        })
    }

    pub(crate) fn refused(&self, cost: Ru, refusal: Refusal) -> Refused<&GroupName> {
        // A client that closes refuses its waiters through the core, which knows no closing.
        if self.shared.is_closing() {
            return Refused::ShutDown { group: &self.name };
        }
        Refused::new(&self.name, cost, refusal)
    }

    fn valid(&self, cost: Ru) -> Result<(), Refused<&GroupName>> {
        if (Ru::ZERO..=Ru::MAX).contains(&cost) {
            return Ok(());
        }
        Err(Refused::InvalidCost { group: &self.name, cost })
    }

    fn open_door(&self) -> Result<(), Refused<&GroupName>> {
        if self.shared.is_closing() {
            return Err(Refused::ShutDown { group: &self.name });
        }
        Ok(())
    }

    /// A waiter goes away: leaves the queue, or gives back what it had just been given.
    pub(crate) fn leave(self: &Arc<Self>, id: WaiterId, cost: Ru, answer: &mut oneshot::Receiver<Answer>) {
        self.with(|state, now| {
            if state.waiting.leave(id).is_some() {
                state.node.cancel(now, id);
            } else if let Ok(Ok(_)) = answer.try_recv() {
                state.node.give_back(now, cost);
                self.close_one(state);
            }
        });
        self.shared.counters.abandoned.add();
    }

    /// The operation never ran.
    pub(crate) fn give_back(self: &Arc<Self>, cost: Ru) {
        if self.purses.mine().is_some_and(|purse| purse.give_back(cost)) {
            return;
        }
        self.with(|state, now| {
            state.node.give_back(now, cost);
            self.close_one(state);
        });
    }

    /// The operation ran, used this and was charged for it.
    pub(crate) fn settle(self: &Arc<Self>, estimate: Ru, charge: &Charge, usage: &Usage) {
        let settle = |purse: &Purse| purse.settle(estimate, charge, usage, &self.shared.clock);
        if !self.purses.mine().is_some_and(settle) {
            self.settle_in_group(estimate, &charge.of_one_operation(usage));
        }
    }

    /// The operation ran and was charged directly.
    #[inline(always)]
    pub(crate) fn settle_charge(self: &Arc<Self>, estimate: Ru, charge: &Charge) {
        // No closure, which the compiler may leave out of line.
        if let Some(purse) = self.purses.mine()
            && purse.settle_charge(estimate, charge, &self.shared.clock)
        {
            return;
        }
        self.settle_in_group(estimate, &charge.of_one_operation(&Usage::default()));
    }

    /// An operation that goes on used this, of which `taken` was taken before.
    pub(crate) fn settle_part(self: &Arc<Self>, taken: Ru, actual: &Consumption) {
        self.with(|state, now| {
            state.node.settle(now, taken, actual);
            self.write_journal(state);
        });
    }

    fn settle_in_group(self: &Arc<Self>, estimate: Ru, actual: &Consumption) {
        self.with(|state, now| {
            state.node.settle(now, estimate, actual);
            self.write_journal(state);
            self.close_one(state);
        });
    }

    /// An operation that asked for no admission cost `actual`.
    pub(crate) fn charge(self: &Arc<Self>, actual: &Consumption) {
        self.with(|state, now| {
            state.node.charge(now, actual);
            self.write_journal(state);
        });
    }

    fn close_one(&self, state: &mut CellState) {
        state.open = state.open.saturating_sub(1);
        if state.open == 0 && self.shared.is_closing() {
            self.shared.settled.notify_waiters();
        }
    }

    /// Permits not yet settled.
    pub(crate) fn open(self: &Arc<Self>) -> usize {
        self.if_awake(|state, _| usize::try_from(state.open).unwrap_or(0)).unwrap_or(0)
    }

    /// What the group is doing.
    pub(crate) fn node_state(self: &Arc<Self>) -> NodeState {
        let asleep = || NodeState { lease: LeaseState::Idle, ..NodeState::default() };
        self.if_awake(|state, now| state.node.state(now)).unwrap_or_else(asleep)
    }

    /// How long it takes to pay what it owes and what waits, at the rate it was leased last that was more than nothing.
    pub(crate) fn pays_within(self: &Arc<Self>) -> Option<Span> {
        let within = self.if_awake(|state, now| {
            let node = state.node.state(now);
            state.leased.time_for(node.debt + node.backlog)
        });
        within.flatten()
    }

    /// How long it takes to pay what it owes, at the same rate.
    pub(crate) fn debt_within(self: &Arc<Self>) -> Option<Span> {
        self.if_awake(|state, now| state.leased.time_for(state.node.state(now).debt)).unwrap_or(Some(Span(0)))
    }

    /// RU in the bucket, but for what threads spent in the last tenth of a second; `None` when unlimited.
    pub(crate) fn remaining(&self) -> Option<Ru> {
        let micro = self.remaining.load(Ordering::Relaxed);
        (micro < i64::MAX).then_some(Ru(micro))
    }

    /// Keeps the journal at or above everything that is ever reported.
    fn write_journal(&self, state: &mut CellState) {
        let (Some(journal), Some(slot)) = (&self.shared.journal, &mut state.slot) else {
            return;
        };
        if let Err(error) = journal.write(slot, &self.name, state.node.consumption()) {
            if self.shared.counters.journal_failures.get() == 0 {
                tracing::error!(%error, "consumption is not kept; it is lost if this process dies");
            }
            self.shared.counters.journal_failures.add();
        }
    }

    /// Cumulative consumption; with `kept`, the journal is brought up to it first.
    pub(crate) fn consumption(self: &Arc<Self>, kept: bool) -> Total {
        let mut phase = self.lock();
        let now = self.shared.clock.now();
        let Some(state) = phase.state() else {
            return phase.dormant().consumption;
        };
        self.change(state, now, |state, _| {
            if kept {
                self.write_journal(state);
            }
            *state.node.consumption()
        })
    }

    /// Its consumption when it fell asleep last, which is on the controller's disk.
    pub(crate) fn confirmed(&self) -> Total {
        let mut phase = self.lock();
        phase.state().map(|state| state.confirmed).unwrap_or_else(|| phase.dormant().consumption)
    }

    /// Empties the journal slot when all that was ever consumed is `durable`. A charge after that writes it again.
    pub(crate) fn forget_journal(&self, durable: &Total) {
        // With a journal there are no purses, and a group that sleeps has emptied its slot.
        if let Some(state) = self.lock().state()
            && state.node.consumption() == durable
        {
            self.empty_slot(state);
        }
    }

    fn empty_slot(&self, state: &CellState) {
        if let (Some(journal), Some(slot)) = (&self.shared.journal, &state.slot)
            && slot.is_written()
            && let Err(error) = journal.empty(slot.id())
        {
            tracing::error!(%error, "what was confirmed will be reported again");
        }
    }
}

impl Drop for GroupCell {
    fn drop(&mut self) {
        self.shared.awake.forget(self.id);
    }
}

impl CellState {
    fn new(node: NodeGroup, slot: Option<Slot>) -> Self {
        Self {
            confirmed: *node.consumption(),
            node,
            waiting: Ranks::default(),
            open: 0,
            open_purses: Open::default(),
            entered: Time(0),
            busy: false,
            slot,
            proof: Vec::new(),
            leased: Rate::ZERO,
            asked_seq: 0,
            announced: false,
            quiet_until: Time(0),
            scheduled: None,
            listening: Vec::new(),
        }
    }

    /// Completes with the next answer of the controller.
    pub(crate) fn listen(&mut self) -> oneshot::Receiver<()> {
        self.listening.retain(|listener| !listener.is_closed());
        let (sender, receiver) = oneshot::channel();
        self.listening.push(sender);
        receiver
    }

    /// When something may happen without a call. `due` is the next renewal; once the session knows of it, only the
    /// waiters count.
    fn next_look(&self, due: Option<Time>) -> Option<Time> {
        let due = due.filter(|_| !self.announced);
        due.into_iter().chain(self.node.next_poll()).min()
    }
}
