//! The nodes' steps: the shell of one group, reduced to what it does to the core's machine.

use tidegate_core::exchange::Grant;
use tidegate_core::node::{Acquired, Heard, NodeConfig, NodeGroup};
use tidegate_core::units::{Ru, Time};
use tidegate_core::usage::{Consumption, RuParts, Total};

use super::Model;
use super::state::{Down, Node, Order, State, Up, client};
use super::step::{Delays, Kind};

/// Operations wait as long as it takes.
const NO_DEADLINE: Time = Time(u64::MAX / 4);

impl Node {
    pub(super) fn new(now: Time, config: NodeConfig, incarnation: u64, stream: u64) -> Self {
        Self {
            incarnation,
            seq: 0,
            epoch: stream,
            stream,
            group: NodeGroup::new(now, config),
            waiting: Default::default(),
            open: 0,
            proof: None,
            asked: now,
            leased_until: Time(0),
        }
    }

    /// An operation is admitted: what it takes at once, as estimate and as correction.
    fn admit(&mut self, clock: Time, cost: Ru, kind: Kind) -> Result<[Ru; 2], String> {
        if clock >= self.leased_until {
            return Err(format!(
                "I4: admitted at {} us of the node's clock, with a lease until {} us",
                clock.0, self.leased_until.0
            ));
        }
        let difference = match kind {
            Kind::Exact => Ru::ZERO,
            Kind::Dear => cost,
            Kind::Late => {
                self.open += 1;
                return Ok([cost, Ru::ZERO]);
            }
        };
        self.group.settle(clock, cost, &charge(cost + difference));
        Ok([cost, difference])
    }

    /// Completes the waiters that are done, as the shell does after every change.
    fn serve(&mut self, clock: Time, cost: Ru, taken: &mut Vec<Ru>) -> Result<(), String> {
        while let Some((waiter, outcome)) = self.group.poll(clock) {
            let kind = self.waiting.remove(&waiter).ok_or("the core finished a waiter nobody knows")?;
            if outcome.is_ok() {
                taken.extend(self.admit(clock, cost, kind)?);
            }
        }
        Ok(())
    }
}

fn charge(amount: Ru) -> Consumption {
    Consumption { charged: RuParts::flat(amount), operations: 1, ..Consumption::default() }
}

impl Model {
    /// Changes a node, serves its waiters, and counts what was admitted.
    fn with<R>(
        &self,
        state: &mut State,
        node: usize,
        change: impl FnOnce(&mut Node, Time, &mut Vec<Ru>) -> Result<R, String>,
    ) -> Result<R, String> {
        let clock = self.clock(state.now, node);
        let mut taken = Vec::new();
        let machine = state.nodes.get_mut(node).ok_or("no such node")?;
        let result = machine.change(|machine| {
            let result = change(machine, clock, &mut taken)?;
            machine.serve(clock, self.setting.cost, &mut taken)?;
            Ok::<R, String>(result)
        })?;
        let chain = self.setting.chain(self.group_of(node));
        for (window, (id, _)) in state.windows.iter_mut().zip(&self.setting.groups) {
            if chain.contains(id) {
                taken.iter().for_each(|amount| window.admit(*amount));
            }
        }
        Ok(result)
    }

    pub(super) fn tick(&self, state: &mut State) -> Result<(), String> {
        state.left.ticks = state.left.ticks.saturating_sub(1);
        state.left.pauses = state.left.pauses.saturating_sub(self.asleep(state));
        state.now = state.now.after(self.setting.step);
        for (window, (_, spec)) in state.windows.iter_mut().zip(&self.setting.groups) {
            window.pass(spec.limit().unwrap_or_default(), self.setting.step);
        }
        let now = state.now;
        if state.controller.engine.next_expiry().is_some_and(|end| end <= now) {
            self.steer(state, |controller| controller.engine.expire(now))?;
        }
        for node in 0..state.nodes.len() {
            if state.nodes.get(node).is_some_and(|machine| !machine.waiting.is_empty()) {
                self.with(state, node, |_, _, _| Ok(()))?;
            }
        }
        Ok(())
    }

    pub(super) fn arrive(&self, state: &mut State, node: usize, kind: Kind) -> Result<(), String> {
        let (left, cost) = (&mut state.left, self.setting.cost);
        left.operations = left.operations.saturating_sub(1);
        left.dear = left.dear.saturating_sub(u8::from(kind == Kind::Dear));
        left.late = left.late.saturating_sub(u8::from(kind == Kind::Late));
        self.with(state, node, |machine, clock, taken| {
            match machine.group.acquire(clock, cost, NO_DEADLINE) {
                Ok(Acquired::Now(_)) => taken.extend(machine.admit(clock, cost, kind)?),
                Ok(Acquired::Queued(waiter)) => {
                    machine.waiting.insert(waiter, kind);
                }
                Err(_) => {}
            }
            Ok(())
        })
    }

    pub(super) fn settle(&self, state: &mut State, node: usize, as_dear: bool) -> Result<(), String> {
        let cost = self.setting.cost;
        self.with(state, node, |machine, clock, taken| {
            let actual = if as_dear { cost + cost } else { Ru::ZERO };
            machine.open = machine.open.saturating_sub(1);
            machine.group.settle(clock, cost, &charge(actual));
            taken.push(actual - cost);
            Ok(())
        })
    }

    pub(super) fn cancel(
        &self,
        state: &mut State,
        node: usize,
        waiter: tidegate_core::node::WaiterId,
    ) -> Result<(), String> {
        state.left.cancels = state.left.cancels.saturating_sub(1);
        self.with(state, node, |machine, clock, _| {
            machine.waiting.remove(&waiter);
            machine.group.cancel(clock, waiter).then_some(()).ok_or("a waiter in the queue is not".to_owned())
        })
    }

    pub(super) fn renew(&self, state: &mut State, node: usize, late: Delays) -> Result<(), String> {
        let clock = self.clock(state.now, node);
        let machine = state.nodes.get_mut(node).ok_or("no such node")?;
        let up = machine.change(|machine| {
            machine.seq += 1;
            machine.asked = clock;
            let ask = machine.group.ask(clock, machine.seq);
            Up {
                client: client(node, machine.incarnation),
                total: *machine.group.consumption(),
                renewal: Some((machine.seq, ask, machine.proof)),
            }
        });
        if late.renewal && state.delay() {
            self.keep_up(state, node, up);
            return Ok(());
        }
        self.hear(state, node, &up, late)
    }

    /// The node finds out that the controller it talked to is gone.
    pub(super) fn notice(&self, state: &mut State, node: usize) {
        self.lose_stream(state, node);
    }

    /// Messages under way on the stream are gone; the next stream leads to the current controller.
    pub(super) fn lose_stream(&self, state: &mut State, node: usize) {
        let (clock, epoch) = (self.clock(state.now, node), state.controller.epoch);
        if let (Some(machine), Some(link)) = (state.nodes.get_mut(node), state.links.get_mut(node)) {
            machine.change(|machine| {
                machine.group.on_session_lost(clock);
                machine.stream = epoch;
            });
            link.change(|link| *link = Default::default());
        }
    }

    pub(super) fn kill(&self, state: &mut State, node: usize) {
        state.left.kills = state.left.kills.saturating_sub(1);
        self.begin_again(state, node);
    }

    pub(super) fn leave(&self, state: &mut State, node: usize, late: bool) -> Result<(), String> {
        state.left.leaves = state.left.leaves.saturating_sub(1);
        let clock = self.clock(state.now, node);
        let machine = state.nodes.get_mut(node).ok_or("no such node")?;
        let goodbye = machine.change(|machine| {
            machine.group.release(clock);
            let total = *machine.group.consumption();
            Up { client: client(node, machine.incarnation), total, renewal: None }
        });
        let connected = machine.stream == state.controller.epoch;
        self.begin_again(state, node);
        if !connected {
            return Ok(());
        }
        if late && state.delay() {
            self.keep_up(state, node, goodbye);
            return Ok(());
        }
        self.hear(state, node, &goodbye, Delays::default())
    }

    /// The process ends and the next one starts; what the old one sent may still arrive.
    fn begin_again(&self, state: &mut State, node: usize) {
        let (clock, epoch, group) =
            (self.clock(state.now, node), state.controller.epoch, self.group_of(node));
        let (Some(machine), Some(link)) = (state.nodes.get_mut(node), state.links.get_mut(node)) else {
            return;
        };
        state.books.change(|books| {
            let total = *machine.group.consumption();
            if total != Total::default() {
                books.dead.push((client(node, machine.incarnation), group, total));
            }
            if let Some(debt) = books.dead_debt.get_mut(node) {
                *debt += machine.group.look().worst_debt();
            }
        });
        machine.change(|machine| {
            *machine = Node::new(clock, self.setting.node, machine.incarnation + 1, epoch);
        });
        link.change(|link| link.down.clear());
    }

    /// A node takes a message in.
    pub(super) fn obey(&self, state: &mut State, node: usize, down: Down) -> Result<(), String> {
        self.with(state, node, |machine, clock, _| {
            if down.epoch < machine.epoch {
                return Ok(());
            }
            machine.epoch = down.epoch;
            match down.order {
                Order::Lower(at_most) => machine.group.on_lower(clock, at_most),
                Order::Granted(seq, Some((grant, proof))) => {
                    let heard = machine.group.on_grant(clock, seq, &grant);
                    if heard == Heard::Applied {
                        machine.proof = proof;
                        if let Grant::Leased(terms) = grant {
                            machine.leased_until = machine.asked.after(terms.ttl);
                        }
                    } else if heard == Heard::Extended {
                        machine.leased_until = machine.group.look().lease_end().unwrap_or(clock);
                    }
                }
                Order::Granted(_, None) => {}
            }
            Ok(())
        })
    }
}
