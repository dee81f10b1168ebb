//! The ordered network between nodes and controller, and what each side does with a message.

use std::fmt::Write as _;

use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::node::NodeGroup;
use tidegate_core::units::{Rate, Span, Time};
use tidegate_core::usage::Consumption;

use super::random::Random;
use super::world::{Event, World};

/// What travels.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Renew { seq: u64, asks: Vec<(GroupId, Ask)>, reports: Vec<(GroupId, Consumption)> },
    Granted { seq: u64, epoch: u64, grants: Vec<(GroupId, Grant)> },
    Lower { group: GroupId, rate_at_most: Rate },
    Changed { group: GroupId },
}

/// What the network does to messages, each with its own chance in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Lost.
    pub lost: u64,
    /// Delivered twice.
    pub repeated: u64,
    /// Up to two seconds late.
    pub late: u64,
    /// Messages may overtake each other.
    pub unordered: bool,
}

/// Directions of a link.
const UP: usize = 0;
const DOWN: usize = 1;

impl World {
    pub(super) fn renew(&mut self, node: usize) {
        let (now, up) = (self.clock(node), self.engine_up);
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        let seq = state.seq + 1;
        let due = |group: &NodeGroup| group.due(now).is_some_and(|due| due <= now);
        let asks: Vec<_> = state
            .groups
            .iter_mut()
            .filter(|(_, group)| due(group))
            .map(|(id, group)| (*id, group.ask(now, seq)))
            .collect();
        if asks.is_empty() {
            return;
        }
        state.seq = seq;
        let reports = state.groups.iter().map(|(id, group)| (*id, *group.consumption())).collect();
        let incarnation = state.incarnation;
        self.messages += 1;
        if up {
            let message = Message::Renew { seq, asks, reports };
            self.carry(node, UP, |message| Event::ToController { node, incarnation, message }, message);
        }
    }

    /// Puts a message on a link, with what the network does to it.
    fn carry(&mut self, node: usize, direction: usize, event: impl Fn(Message) -> Event, message: Message) {
        let Some(cut) = self.nodes.get(node).and_then(|state| state.cut_until.get(direction)) else {
            return;
        };
        let chance =
            |random: &mut Random, thousandths: u64| thousandths > 0 && random.between(0, 999) < thousandths;
        let faults = self.faults;
        if *cut > self.now || chance(&mut self.network, faults.lost) {
            return;
        }
        if chance(&mut self.network, faults.repeated) {
            let again = self.travel(node, direction);
            self.at(again, event(message.clone()));
        }
        let at = if chance(&mut self.network, faults.late) {
            self.now.after(Span(self.network.between(1_000, 2_000_000)))
        } else {
            self.travel(node, direction)
        };
        self.at(at, event(message));
    }

    /// Delivery time; links keep the order unless told otherwise.
    fn travel(&mut self, node: usize, direction: usize) -> Time {
        let delay = Span(self.network.between(self.delay.0.0, self.delay.1.0));
        let at = self.now.after(delay);
        let last = self.nodes.get_mut(node).and_then(|state| state.last_arrival.get_mut(direction));
        match last {
            Some(last) if !self.faults.unordered => {
                *last = at.max(*last);
                *last
            }
            _ => at,
        }
    }

    pub(super) fn send(&mut self, node: usize, message: Message) {
        let incarnation = self.nodes.get(node).map_or(0, |state| state.incarnation);
        self.carry(node, DOWN, |message| Event::ToNode { node, incarnation, message }, message);
    }

    pub(super) fn at_controller(&mut self, node: usize, incarnation: u64, message: Message) {
        let Message::Renew { seq, asks, reports } = message else {
            return;
        };
        let client = ClientId(node as u64 * 1_000 + incarnation);
        for (group, total) in reports {
            if let Err(refused) = self.ledger.report(client, group, &total) {
                self.refused_reports.push(format!("{client:?} group {}: {refused}", group.0));
            }
        }
        let mut grants = Vec::new();
        for (group, ask) in asks {
            self.note(|| format!("n{node} asks   g{} {}", group.0, show_ask(&ask)));
            let proven = self.proof(node, incarnation, group, &ask);
            if let Some(grant) = self.engine.renew(self.now, client, group, seq, &ask, proven) {
                if let Grant::Leased(terms) = &grant {
                    let held = Held { rate: terms.rate, cap: terms.cap, lump: terms.lump };
                    self.proofs.insert((node, incarnation, group), (held, self.now.after(terms.ttl)));
                }
                self.note(|| format!("n{node} gets   g{} {}", group.0, show_grant(&grant)));
                grants.push((group, grant));
            }
        }
        let message = Message::Granted { seq, epoch: self.epoch, grants };
        self.carry(node, DOWN, |message| Event::ToNode { node, incarnation, message }, message);
        self.push_lowers();
        self.check();
    }

    fn proof(&self, node: usize, incarnation: u64, group: GroupId, ask: &Ask) -> Option<Held> {
        let (held, until) = self.proofs.get(&(node, incarnation, group))?;
        (*until > self.now).then(|| Held {
            rate: held.rate.min(ask.held.rate),
            cap: held.cap.min(ask.held.cap),
            lump: held.lump.min(ask.held.lump),
        })
    }

    pub(super) fn push_lowers(&mut self) {
        for order in self.engine.take_lowers() {
            let node = usize::try_from(order.client.0 / 1_000).unwrap_or(usize::MAX);
            self.note(|| format!("n{node} lower  g{} {}", order.group.0, order.rate_at_most));
            if self.client(node) == order.client {
                self.send(node, Message::Lower { group: order.group, rate_at_most: order.rate_at_most });
            }
        }
    }

    pub(super) fn at_node(&mut self, node: usize, message: Message) {
        let now = self.clock(node);
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        match message {
            Message::Granted { seq, epoch, grants } => {
                if epoch >= state.epoch {
                    state.epoch = epoch;
                    for (id, grant) in grants {
                        if let Some(group) = state.groups.get_mut(&id) {
                            group.on_grant(now, seq, &grant);
                        }
                    }
                }
            }
            Message::Lower { group, rate_at_most } => {
                if let Some(group) = state.groups.get_mut(&group) {
                    group.on_lower(now, rate_at_most);
                }
            }
            Message::Changed { group } => {
                if let Some(group) = state.groups.get_mut(&group) {
                    group.renew_now(now);
                }
            }
            Message::Renew { .. } => {}
        }
        self.step(node);
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{:>9} us  {}", self.now.0, line());
        }
    }
}

fn show_ask(ask: &Ask) -> String {
    format!(
        "held {} cap {} lump {}, returns {}, offered {}, backlog {}",
        ask.held.rate, ask.held.cap, ask.held.lump, ask.returned, ask.demand, ask.backlog
    )
}

fn show_grant(grant: &Grant) -> String {
    match grant {
        Grant::Leased(terms) => format!(
            "{} cap {} fill {} lump {}, again after {}{}",
            terms.rate,
            terms.cap,
            terms.fill,
            terms.lump,
            terms.ask_again,
            if terms.ack_now { ", acknowledge now" } else { "" }
        ),
        Grant::Unlimited { .. } => "unlimited".to_owned(),
        Grant::UnknownGroup => "unknown group".to_owned(),
        Grant::Recovering { ask_again } => format!("recovering, again after {ask_again}"),
    }
}
