//! Operations in the simulated world: they arrive, are admitted or refused, are settled, and nodes act.

use std::collections::BTreeMap;

use tidegate_core::group::GroupId;
use tidegate_core::node::{Acquired, Admitted, Dormant, Estimate, NodeGroup, WaiterId};
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

use super::load::{Arrival, Load, Pattern};
use super::log::{Entry, floor};
use super::settling::Fate;
use super::share::Counted;
use super::world::{Event, Operation, World};

impl World {
    pub(super) fn arrive(&mut self, index: usize, node: usize) {
        let Some(load) = self.loads.get(index).cloned() else {
            return;
        };
        if self.now >= load.until {
            return;
        }
        let Some(Arrival { gap, cost, fate }) = self.arrivals.draw(index, &load, node) else {
            return;
        };
        let open = matches!(load.pattern, Pattern::Open(_));
        let up = self.nodes.get(node).is_some_and(|state| state.up);
        let active = up && load.on(node, self.now);
        if open || !active {
            self.at(
                self.now.after(if active { gap } else { gap.max(Span(1_000)) }),
                Event::Arrival { load: index, node },
            );
        }
        if active {
            let group = self.group_of(node, index, &load);
            self.submit(
                node,
                Operation {
                    load: index,
                    group,
                    cost,
                    since: self.now,
                    began: self.now,
                    fate,
                    over: false,
                    free: false,
                    counted: Counted::default(),
                },
                &load,
            );
            self.step(node);
        }
    }

    fn submit(&mut self, node: usize, operation: Operation, load: &Load) {
        let now = self.clock(node);
        if let Some(log) = &mut self.log {
            log.arrived.push(Entry::new(self.now, node, operation));
        }
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        let config = self.config;
        let group = state.groups.entry(operation.group).or_insert_with(|| NodeGroup::new(now, config));
        if let Some(rest) = group.dormant() {
            *group = NodeGroup::awaken(now, config, &Dormant::from_words(rest.to_words()));
            self.toll.awakened += 1;
            self.shares.drop_share(node, operation.group);
        }
        match group.acquire(now, operation.cost, now.after(load.max_wait)) {
            Ok(Acquired::Now(Admitted::Paid)) => {
                let passes = waits(&state.waiting, operation.group);
                let operation = self.spent(node, operation, passes);
                self.admitted(node, operation);
            }
            Ok(Acquired::Now(Admitted::Over)) => {
                self.passed_over(node, operation.group);
                self.admitted(node, Operation { over: true, ..operation });
            }
            Ok(Acquired::Queued(id)) => {
                self.judge_waiting(node, operation.group);
                let Some(state) = self.nodes.get_mut(node) else { return };
                state.waiting.insert((operation.group, id), operation);
                let (process, group) = (state.process, operation.group);
                if let Some(wait) = operation.fate.leaves {
                    self.at(self.now.after(wait), Event::Leave { node, process, group, waiter: id });
                }
            }
            Err(_) => self.refused(node, operation),
        }
    }

    /// The group that operations of a load are charged to, as far as the node knows.
    fn group_of(&self, node: usize, index: usize, load: &Load) -> GroupId {
        let bound = self.nodes.get(node).and_then(|state| state.bindings.get(&index));
        bound.copied().unwrap_or(load.group)
    }

    /// I4 of an operation that was just let in, before others that wait or not; the same with where it counts.
    fn spent(&mut self, node: usize, operation: Operation, passes: bool) -> Operation {
        let (now, mut free, mut leased) = (self.clock(node), false, false);
        self.judge_holding(node, operation.group, |holding| {
            (free, leased) = (holding.is_past_and_free(now), holding.in_hand(now).is_some());
            holding.admit(now, operation.cost, passes)
        });
        self.fed(node, operation.group);
        let free = free && self.witness.shadowed.contains(&operation.group);
        let counted = self.begin_in_share(node, &operation, leased);
        self.charge_begun(&operation);
        Operation { free, counted, ..operation }
    }

    fn admitted(&mut self, node: usize, operation: Operation) {
        let Some(load) = self.loads.get(operation.load) else {
            return;
        };
        let operation = Operation { began: self.now, ..operation };
        self.digest.outcome(self.now, node, &operation, Some(operation.over));
        let Fate { actual, lasts, undone, .. } = operation.fate;
        let actual = if undone { Ru::ZERO } else { actual };
        if let Some(waits) = self.waits.get_mut(&load.label) {
            waits.admit(node, actual, self.now.since(operation.since));
        }
        if let Some(log) = &mut self.log {
            log.admitted.push(Entry::new(self.now, node, Operation { cost: actual, ..operation }));
        }
        if lasts == Span(0) {
            // Its estimate counts for no time at all.
            self.settle(node, operation);
            self.count_honest(node, operation, actual);
        } else {
            self.count_honest(node, operation, operation.cost);
            let process = self.nodes.get(node).map_or(0, |state| state.process);
            self.at(self.now.after(lasts), Event::Settle { node, process, operation });
        }
    }

    /// An operation that took its time ends. That of a process which is gone ended with it.
    pub(super) fn end(&mut self, node: usize, process: u64, operation: Operation) {
        if self.nodes.get(node).is_none_or(|state| !state.up || state.process != process) {
            return self.next_of_closed(node, operation, Span(1_000));
        }
        self.settle(node, operation);
        let actual = if operation.fate.undone { Ru::ZERO } else { operation.fate.actual };
        self.count_honest(node, operation, actual - operation.cost);
        self.step(node);
    }

    /// Settles an operation with its cost, or cancels one that never ran.
    fn settle(&mut self, node: usize, operation: Operation) {
        let Operation { group, cost: estimate, fate: Fate { actual, undone, .. }, .. } = operation;
        let now = self.clock(node);
        let began = self.clock_at(node, operation.began);
        let machine = self.nodes.get_mut(node).and_then(|state| state.groups.get_mut(&group));
        let taken = if operation.over { Estimate::Over(estimate) } else { Estimate::Paid(estimate) };
        if let Some(machine) = machine {
            if undone {
                machine.give_back(now, began, taken);
            } else {
                let charged = RuParts::flat(actual);
                machine.settle(now, taken, &Consumption { charged, operations: 1, ..Consumption::default() });
            }
        }
        self.end_in_share(node, &operation, if undone { Ru::ZERO } else { actual });
        if operation.over {
            // As after a refusal, or workers would never rest.
            return self.next_of_closed(node, operation, Span(10_000));
        }
        self.judge_holding(node, group, |holding| {
            holding.settle(now, estimate, if undone { Ru::ZERO } else { actual });
            Ok(())
        });
        if !undone {
            self.charge_ended(node, &operation, actual);
            self.spend_quota(group, actual, actual - estimate);
            self.owes_more(node, group, actual - estimate);
        }
        self.next_of_closed(node, operation, Span(200));
    }

    /// RU that a node admitted, or gave back, count in the bounds unless it lies, or a limit in shadow let them pass. What
    /// an operation gives back counts also if it began where nothing was counted.
    fn count_honest(&mut self, node: usize, operation: Operation, cost: Ru) {
        if self.nodes.get(node).is_some_and(|state| state.lies.is_none())
            && !operation.over
            && !(operation.free && cost.is_positive())
        {
            self.count(operation.group, cost);
        }
    }

    /// The waiter of an operation gives it up, unless its outcome is known.
    pub(super) fn leave(&mut self, node: usize, process: u64, waiter: (GroupId, WaiterId)) {
        let now = self.clock(node);
        let Some(state) = self.nodes.get_mut(node).filter(|state| state.up && state.process == process)
        else {
            return;
        };
        let Some(operation) = state.waiting.remove(&waiter) else { return };
        if !state.groups.get_mut(&waiter.0).is_some_and(|group| group.cancel(now, waiter.1)) {
            self.violate(format!("node {node} forgot a waiter of group {}", waiter.0.0));
        }
        self.refused(node, operation);
        self.step(node);
    }

    fn refused(&mut self, node: usize, operation: Operation) {
        self.digest.outcome(self.now, node, &operation, None);
        let label = self.loads.get(operation.load).map(|load| &load.label);
        if let Some(waits) = label.and_then(|label| self.waits.get_mut(label)) {
            waits.refused += 1;
        }
        if let Some(log) = &mut self.log {
            log.refused.push(Entry::new(self.now, node, operation));
        }
        self.next_of_closed(node, operation, Span(10_000));
    }

    /// The least that a group's loads were admitted in any second since `from`, when recording began.
    pub(super) fn floor(&self, id: GroupId, from: Time) -> Option<Ru> {
        let of_group = |load: usize| self.loads.get(load).is_some_and(|load| load.group == id);
        Some(floor(self.log.as_ref()?, of_group, from, self.now))
    }

    /// The worker of a closed load has its next operation after a pause.
    pub(super) fn next_of_closed(&mut self, node: usize, operation: Operation, pause: Span) {
        let closed = |load: &Load| matches!(load.pattern, Pattern::Closed(_));
        if self.loads.get(operation.load).is_some_and(closed) {
            self.at(self.now.after(pause), Event::Arrival { load: operation.load, node });
        }
    }

    /// Lets a node act: outcomes of waiters, renewals that are due, the next wake-up.
    pub(super) fn step(&mut self, node: usize) {
        let now = self.clock(node);
        loop {
            let Some(state) = self.nodes.get_mut(node).filter(|state| state.up) else {
                return;
            };
            let mut done = Vec::new();
            for (id, group) in &mut state.groups {
                while let Some((waiter, outcome)) = group.poll(now) {
                    if let Some(operation) = state.waiting.remove(&(*id, waiter)) {
                        let passes = waits(&state.waiting, *id);
                        let over = outcome == Ok(Admitted::Over);
                        done.push((Operation { over, ..operation }, outcome.is_ok(), passes));
                    }
                }
            }
            if done.is_empty() {
                break;
            }
            // All are let in before any is settled.
            for (operation, _, passes) in done.iter_mut().filter(|(_, admitted, _)| *admitted) {
                if operation.over {
                    self.passed_over(node, operation.group);
                } else {
                    *operation = self.spent(node, *operation, *passes);
                }
            }
            for (operation, admitted, _) in done {
                if admitted { self.admitted(node, operation) } else { self.refused(node, operation) }
            }
        }
        self.judge_hunger(node);
        self.renew(node);
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        let next = state.groups.values().filter_map(|group| group.look().next_deadline(now)).min();
        let next = next.map(|next| self.true_time(node, next).max(self.now.after(Span(1))));
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        if let Some(next) = next
            && state.wake.is_none_or(|wake| next < wake)
        {
            state.wake = Some(next);
            self.at(next, Event::Wake { node });
        }
    }
}

/// Whether an operation of a group waits.
fn waits(waiting: &BTreeMap<(GroupId, WaiterId), Operation>, group: GroupId) -> bool {
    waiting.range((group, WaiterId(0))..).next().is_some_and(|((of, _), _)| *of == group)
}
