//! Operations in the simulated world: they arrive, are admitted or refused, are settled, and nodes act.

use tidegate_core::group::GroupId;
use tidegate_core::node::{Acquired, Dormant, NodeGroup};
use tidegate_core::units::Span;
use tidegate_core::usage::{Consumption, RuParts};

use super::load::{Load, Pattern};
use super::log::Entry;
use super::world::{Event, Operation, World};

impl World {
    pub(super) fn arrive(&mut self, index: usize, node: usize) {
        let Some(load) = self.loads.get(index).cloned() else {
            return;
        };
        if self.now >= load.until {
            return;
        }
        let Some((gap, cost)) = self.arrivals.draw(index, &load, node) else {
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
            self.submit(node, Operation { load: index, group, cost, since: self.now }, &load);
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
        }
        match group.acquire(now, operation.cost, now.after(load.max_wait)) {
            Ok(Acquired::Now) => {
                self.spent(node, operation);
                self.admitted(node, operation);
            }
            Ok(Acquired::Queued(id)) => {
                state.waiting.insert((operation.group, id), operation);
            }
            Err(_) => self.refused(node, operation),
        }
    }

    /// The group that operations of a load are charged to, as far as the node knows.
    fn group_of(&self, node: usize, index: usize, load: &Load) -> GroupId {
        let bound = self.nodes.get(node).and_then(|state| state.bindings.get(&index));
        bound.copied().unwrap_or(load.group)
    }

    /// I4 of an operation that was just let in.
    fn spent(&mut self, node: usize, operation: Operation) {
        let now = self.clock(node);
        self.judge_holding(node, operation.group, |holding| holding.admit(now, operation.cost));
    }

    fn admitted(&mut self, node: usize, operation: Operation) {
        let Some(load) = self.loads.get(operation.load).cloned() else {
            return;
        };
        let actual = operation.cost.scale(i64::try_from(load.settle_tenths).unwrap_or(10), 10);
        let consumed =
            Consumption { charged: RuParts::flat(actual), operations: 1, ..Consumption::default() };
        let now = self.clock(node);
        let state = self.nodes.get_mut(node);
        if let Some(group) = state.and_then(|state| state.groups.get_mut(&operation.group)) {
            group.settle(now, operation.cost, &consumed);
        }
        self.judge_holding(node, operation.group, |holding| {
            holding.settle(now, operation.cost, actual);
            Ok(())
        });
        if let Some(log) = &mut self.log {
            log.admitted.push(Entry::new(self.now, node, Operation { cost: actual, ..operation }));
        }
        let honest = self.nodes.get(node).is_some_and(|state| state.lies.is_none());
        if honest {
            self.count(operation.group, actual);
        }
        if let Some(waits) = self.waits.get_mut(&load.label) {
            waits.admit(node, actual, self.now.since(operation.since));
        }
        self.next_of_closed(node, operation, &load, Span(200));
    }

    fn refused(&mut self, node: usize, operation: Operation) {
        let Some(load) = self.loads.get(operation.load).cloned() else {
            return;
        };
        if let Some(waits) = self.waits.get_mut(&load.label) {
            waits.refused += 1;
        }
        if let Some(log) = &mut self.log {
            log.refused.push(Entry::new(self.now, node, operation));
        }
        self.next_of_closed(node, operation, &load, Span(10_000));
    }

    pub(super) fn next_of_closed(&mut self, node: usize, operation: Operation, load: &Load, pause: Span) {
        if matches!(load.pattern, Pattern::Closed(_)) {
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
                        done.push((operation, outcome.is_ok()));
                    }
                }
            }
            if done.is_empty() {
                break;
            }
            // All are let in before any is settled.
            done.iter()
                .filter(|(_, admitted)| *admitted)
                .for_each(|(operation, _)| self.spent(node, *operation));
            for (operation, admitted) in done {
                if admitted { self.admitted(node, operation) } else { self.refused(node, operation) }
            }
        }
        self.renew(node);
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        let next = state.groups.values().filter_map(|group| group.next_deadline(now)).min();
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
