//! A group of a client: its state behind a lock, its purses beside it, and the client's lists that follow from changes.
//!
//! Every change goes through [`GroupCell::with`], which recalls what is lent to threads first, and performs what follows
//! from the change before it lets go of the lock. Operations of a busy group are paid from the purse of their thread and
//! take the lock only to fill it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwapOption;
use tidegate_core::exchange::Grant;
use tidegate_core::node::{Heard, LeaseState, NodeConfig, NodeState, QuotaLeft, Refusal};
use tidegate_core::units::{Ru, Time};
use tidegate_core::usage::Total;
use tidegate_core::waited::Unreported;

use super::Agenda;
use crate::cell::{CellState, Effects, Notice, Phase};
use crate::clock::Tick;
use crate::journal::Slot;
use crate::lending::Lending;
use crate::names::GroupName;
use crate::refused::Refused;
use crate::shared::Shared;
use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Mutex, MutexGuard};

/// A group. Handles, permits and waiters hold it by `Arc`. While none does, the registry keeps only the few bytes of one
/// that sleeps.
pub(crate) struct GroupCell {
    id: u64,
    name: GroupName,
    shared: Arc<Shared>,
    agenda: Arc<Agenda>,
    lending: Lending,
    /// Micro-RU in the bucket at the last change under the lock; `i64::MAX` when unlimited.
    remaining: AtomicI64,
    /// What the controller said at its last answer.
    pub(crate) last_word: LastWord,
    pub(crate) demoted: Demoted,
    phase: Mutex<Phase>,
}

/// What went on in the group to which this one demotes.
#[derive(Debug, Default)]
pub(crate) struct Demoted {
    operations: AtomicU64,
    micro_ru: AtomicU64,
}

impl Demoted {
    /// An operation of this cost was admitted there.
    pub(crate) fn count(&self, cost: Ru) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.micro_ru.fetch_add(cost.or_zero().0.unsigned_abs(), Ordering::Relaxed);
    }

    /// How many were, and what they were estimated at.
    pub(crate) fn read(&self) -> (u64, Ru) {
        let micro = self.micro_ru.load(Ordering::Relaxed);
        (self.operations.load(Ordering::Relaxed), Ru(i64::try_from(micro).unwrap_or(i64::MAX)))
    }
}

/// What the controller said last of a group, for those who do not take its lock.
pub(crate) struct LastWord {
    known: AtomicBool,
    has_quota: AtomicBool,
    /// Whether there is a target, or nothing was said yet.
    may_demote: AtomicBool,
    /// The group to which this one demotes. That demotes to none, so that no two hold each other.
    target: ArcSwapOption<GroupCell>,
}

impl LastWord {
    fn new(known: bool) -> Self {
        Self {
            known: AtomicBool::new(known),
            has_quota: AtomicBool::new(false),
            may_demote: AtomicBool::new(true),
            target: ArcSwapOption::empty(),
        }
    }

    fn hear(&self, grant: &Grant, target: Option<Arc<GroupCell>>) {
        self.known.store(!matches!(grant, Grant::UnknownGroup), Ordering::Relaxed);
        let has_quota = matches!(grant, Grant::Leased(terms) if terms.allowance.is_some());
        self.has_quota.store(has_quota, Ordering::Relaxed);
        self.may_demote.store(target.is_some(), Ordering::Relaxed);
        let same = match (&target, &*self.target.load()) {
            (Some(target), Some(before)) => Arc::ptr_eq(target, before),
            (target, before) => target.is_none() && before.is_none(),
        };
        if !same {
            self.target.store(target);
        }
    }

    /// Whether it has such a group.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Whether the group demotes, as far as is known: before the first answer it may.
    #[inline]
    pub(crate) fn may_demote(&self) -> bool {
        self.may_demote.load(Ordering::Relaxed)
    }

    /// The group to which it demotes.
    pub(crate) fn target(&self) -> Option<Arc<GroupCell>> {
        self.target.load_full()
    }

    /// Whether the group counts in a quota.
    pub(crate) fn has_quota(&self) -> bool {
        self.has_quota.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for GroupCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCell").field("name", &self.name).finish_non_exhaustive()
    }
}

impl GroupCell {
    pub(crate) fn new(
        id: u64,
        name: GroupName,
        shared: Arc<Shared>,
        agenda: Arc<Agenda>,
        slot: Option<Slot>,
    ) -> Arc<Self> {
        let config = NodeConfig { fallback: shared.fallback_of(&name), ..shared.config };
        let phase = Phase::awake(shared.clock.now(), &shared, config, slot);
        let cell = Self::in_phase(id, name, shared, agenda, false, phase);
        cell.agenda.awake.woke(&cell, 0);
        cell
    }

    /// A group that sleeps, from what is left of it.
    pub(crate) fn asleep(
        id: u64,
        name: GroupName,
        shared: Arc<Shared>,
        agenda: Arc<Agenda>,
        rest: Box<[u8]>,
    ) -> Arc<Self> {
        Self::in_phase(id, name, shared, agenda, true, Phase::asleep(rest))
    }

    fn in_phase(
        id: u64,
        name: GroupName,
        shared: Arc<Shared>,
        agenda: Arc<Agenda>,
        known: bool,
        phase: Phase,
    ) -> Arc<Self> {
        let (last_word, remaining) = (LastWord::new(known), AtomicI64::new(0));
        let (lending, demoted, phase) = (Lending::default(), Demoted::default(), Mutex::new(phase));
        Arc::new(Self { id, name, shared, agenda, lending, remaining, last_word, demoted, phase })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    #[inline]
    pub(crate) fn name(&self) -> &GroupName {
        &self.name
    }

    /// What it has in common with the other groups of its client.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Its purses.
    #[inline]
    pub(crate) fn lending(&self) -> &Lending {
        &self.lending
    }

    /// Pays for an operation from the calling thread's purse; `None` when the group has to decide.
    #[inline(always)]
    pub(crate) fn pay(&self, cost: Ru) -> Option<Tick> {
        self.lending.pay(cost, &self.shared.clock)
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        // The state machine is whole between its calls; a panic elsewhere under the lock leaves nothing half done.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, of a group that slept until now if need be.
    fn wake<'p>(self: &Arc<Self>, phase: &'p mut Phase, now: Time) -> &'p mut CellState {
        phase.wake(now, &self.shared, |cpu_ns| self.agenda.awake.woke(self, cpu_ns))
    }

    /// Changes the state and does what follows from the change. A group that sleeps wakes.
    pub(crate) fn with<R>(self: &Arc<Self>, change: impl FnOnce(&mut CellState, Time) -> R) -> R {
        let mut phase = self.lock();
        // Read under the lock, so that time never steps back from one change to the next.
        let now = self.shared.clock.now();
        self.change(self.wake(&mut phase, now), now, change)
    }

    /// The same unless the group sleeps.
    pub(crate) fn if_awake<R>(&self, change: impl FnOnce(&mut CellState, Time) -> R) -> Option<R> {
        let mut phase = self.lock();
        let now = self.shared.clock.now();
        phase.state().map(|state| self.change(state, now, change))
    }

    fn change<R>(
        &self,
        state: &mut CellState,
        now: Time,
        change: impl FnOnce(&mut CellState, Time) -> R,
    ) -> R {
        state.recall(&self.lending, now);
        let result = change(state, now);
        self.follow_up(state, now);
        result
    }

    /// `paid` from a purse that is filled again, or else what `decide` makes of the whole state. After
    /// [`GroupCell::pay`].
    pub(crate) fn fill_or<R>(
        self: &Arc<Self>,
        cost: Ru,
        paid: impl FnOnce(Time) -> R,
        decide: impl FnOnce(&mut CellState, Time) -> R,
    ) -> R {
        let mut phase = self.lock();
        let now = self.shared.clock.now();
        let state = self.wake(&mut phase, now);
        let result = if state.lend(&self.lending, &self.shared.clock, now, cost) {
            paid(now)
        } else {
            state.recall(&self.lending, now);
            decide(state, now)
        };
        self.follow_up(state, now);
        result
    }

    /// Performs what follows from a change. The journal comes first: nobody hears of what it does not have.
    fn follow_up(&self, state: &mut CellState, now: Time) {
        self.write_journal(state);
        let is_closing = self.shared.is_closing();
        let effects = state.follow_up(now, &self.name, is_closing);
        self.remaining.store(state.remaining().map_or(i64::MAX, |ru| ru.0), Ordering::Relaxed);
        let Effects { admitted, queued, refused, settled, due, look } = effects;
        let counters = &self.shared.counters;
        counters.admitted.add_many(admitted);
        counters.queued.add_many(queued);
        counters.refused.add_many(refused);
        if let Some(contact) = due {
            self.agenda.due.announce(self.id, contact);
        }
        if let Some(look) = look {
            self.agenda.schedule.put(self.id, look);
        }
        if settled && is_closing {
            self.agenda.settled.notify_waiters();
        }
    }

    /// Keeps the journal at or above everything that is ever reported.
    fn write_journal(&self, state: &mut CellState) {
        let Some(journal) = &self.shared.journal else { return };
        let (kept, total) = state.kept();
        if let Err(error) = kept.catch_up(journal, &self.name, total) {
            if self.shared.counters.journal_failures.get() == 0 {
                tracing::error!(%error, "consumption is not kept; it is lost if this process dies");
            }
            self.shared.counters.journal_failures.add();
        }
    }

    /// A client that closes admits nothing.
    pub(crate) fn open_door(&self) -> Result<(), Refused<&GroupName>> {
        if self.shared.is_closing() {
            return Err(Refused::ShutDown { group: &self.name });
        }
        Ok(())
    }

    pub(crate) fn refused(&self, cost: Ru, refusal: Refusal) -> Refused<&GroupName> {
        // A client that closes refuses its waiters through the core, which knows no closing.
        if self.shared.is_closing() {
            return Refused::ShutDown { group: &self.name };
        }
        Refused::new(&self.name, cost, refusal)
    }

    /// Applies a grant, as far as it is not stale, with the group to which this one demotes.
    pub(crate) fn grant(&self, seq: u64, grant: &Grant, proof: Vec<u8>, target: Option<Arc<Self>>) -> Heard {
        let slewed = self.shared.slewed_by();
        let heard = self.if_awake(|state, now| {
            let heard = state.grant(now, slewed, seq, grant, proof);
            if heard == Heard::Applied {
                self.last_word.hear(grant, target);
            }
            heard
        });
        heard.unwrap_or(Heard::Ignored)
    }

    /// Has the group heed something, unless it sleeps.
    pub(crate) fn heed(&self, notice: Notice) {
        self.if_awake(|state, now| state.heed(now, notice));
    }

    /// Permits not yet settled.
    pub(crate) fn open(&self) -> usize {
        self.if_awake(|state, _| state.open()).unwrap_or(0)
    }

    /// What the group is doing.
    pub(crate) fn node_state(&self) -> NodeState {
        let asleep = || NodeState { lease: LeaseState::Idle, ..NodeState::default() };
        self.if_awake(|state, now| state.node_state(now)).unwrap_or_else(asleep)
    }

    /// What is known of the quota. Callers learn it with every operation: to take back each time what is lent would cost
    /// more than the operation.
    pub(crate) fn quota_left(&self) -> Option<QuotaLeft> {
        let mut phase = self.lock();
        let now = self.shared.clock.now();
        phase.state().and_then(|state| state.quota_left(&self.lending, now))
    }

    /// RU in the bucket, but for what threads spent in the last tenth of a second; `None` when unlimited.
    pub(crate) fn remaining(&self) -> Option<Ru> {
        let micro = self.remaining.load(Ordering::Relaxed);
        (micro < i64::MAX).then_some(Ru(micro))
    }

    /// Cumulative consumption.
    pub(crate) fn consumption(&self) -> Total {
        let mut phase = self.lock();
        let now = self.shared.clock.now();
        let Some(state) = phase.state() else {
            return phase.consumed();
        };
        self.change(state, now, |state, _| *state.kept().1)
    }

    /// Cumulative consumption for a report, up to which the journal is brought first, and waits since the last one.
    pub(crate) fn report(&self) -> (Total, Option<Box<Unreported>>) {
        let mut phase = self.lock();
        let now = self.shared.clock.now();
        let Some(state) = phase.state() else {
            return (phase.consumed(), None);
        };
        self.change(state, now, |state, _| state.report())
    }

    /// Its consumption when it fell asleep last, which is on the controller's disk.
    pub(crate) fn confirmed(&self) -> Total {
        let mut phase = self.lock();
        phase.state().map(|state| state.kept().0.confirmed()).unwrap_or_else(|| phase.consumed())
    }

    /// Empties the journal slot when all that was ever consumed is `durable`. A charge after that writes it again.
    pub(crate) fn forget_journal(&self, durable: &Total) {
        // With a journal there are no purses, and a group that sleeps has emptied its slot.
        if let Some(state) = self.lock().state()
            && let (kept, total) = state.kept()
            && total == durable
        {
            kept.empty(self.shared.journal.as_ref());
        }
    }

    /// Sends the group to sleep if it has nothing to do and all it ever consumed is `durable`. Whether it sleeps.
    pub(crate) fn try_sleep(&self, durable: &Total) -> bool {
        let mut phase = self.lock();
        if let Some(cpu_ns) = phase.fall_asleep(durable, self.shared.journal.as_ref()) {
            self.agenda.awake.slept(self, cpu_ns);
        }
        phase.state().is_none()
    }

    /// The memory of a sleeping group, from which a later one can be made; `None` when it is awake.
    pub(crate) fn take_rest(&self) -> Option<Box<[u8]>> {
        self.lock().take_rest()
    }
}

impl Drop for GroupCell {
    fn drop(&mut self) {
        self.agenda.awake.forget(self.id);
    }
}
