//! The network between nodes and controller, and what each side does with a message.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tidegate_controller::service::{Answer, EntryIn, RenewIn, Renewed, ReportIn, Seen, Sent};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::GroupId;
use tidegate_core::node::{Heard, LeaseState, NodeGroup};
use tidegate_core::units::{Rate, Span, Time};

use super::controller::{Controller, Ended, group, name};
use super::lies;
use super::random::Random;
use super::world::{Event, World};

/// What travels.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Renew {
        connection: u64,
        seen: Seen,
        request: RenewIn,
    },
    /// The last of a connection.
    Goodbye {
        connection: u64,
        seen: Seen,
        seq: u64,
        reports: Vec<ReportIn>,
    },
    Granted(Renewed),
    /// What a goodbye reported is on disk.
    Farewell {
        seq: u64,
    },
    /// The controller did not consider a renewal; `groups` are those that it asked for, as the session knows.
    Shed {
        seq: u64,
        epoch: u64,
        groups: Vec<GroupId>,
    },
    Lower {
        group: GroupId,
        rate_at_most: Rate,
    },
    Changed {
        group: GroupId,
    },
    Bound {
        load: usize,
        group: GroupId,
    },
}

impl Message {
    /// The number of the connection over which it came, of a message of a node.
    pub(super) fn connection(&self) -> Option<u64> {
        match self {
            Self::Renew { connection, .. } | Self::Goodbye { connection, .. } => Some(*connection),
            _ => None,
        }
    }
}

/// One direction between a node and the controller. Each fault has a stream of random numbers of its own.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Nothing passes before this.
    pub(super) cut_until: Time,
    last_arrival: Time,
    delay: Random,
    lost: Random,
    repeated: Random,
    late: Random,
}

impl Link {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let stream = |fault: u64| Random::new(seed, 1_000 + 8 * number + fault);
        Self {
            cut_until: Time(0),
            last_arrival: Time(0),
            delay: stream(0),
            lost: stream(1),
            repeated: stream(2),
            late: stream(3),
        }
    }

    /// When copies of a message that is sent now arrive.
    fn arrivals(&mut self, now: Time, faults: Faults, delay: (Span, Span)) -> Vec<Time> {
        let chance =
            |random: &mut Random, thousandths: u64| thousandths > 0 && random.between(0, 999) < thousandths;
        let lost = chance(&mut self.lost, faults.lost);
        let repeated = chance(&mut self.repeated, faults.repeated);
        let late = chance(&mut self.late, faults.late);
        if lost || self.cut_until > now {
            return Vec::new();
        }
        let mut arrivals = Vec::new();
        if repeated {
            arrivals.push(self.travel(now, faults, delay));
        }
        arrivals.push(match late {
            true => now.after(Span(self.late.between(1_000, 2_000_000))),
            false => self.travel(now, faults, delay),
        });
        arrivals
    }

    /// Delivery time; links keep the order unless a fault reorders.
    fn travel(&mut self, now: Time, faults: Faults, delay: (Span, Span)) -> Time {
        let at = now.after(Span(self.delay.between(delay.0.0, delay.1.0)));
        if faults.unordered {
            return at;
        }
        self.last_arrival = at.max(self.last_arrival);
        self.last_arrival
    }
}

/// Faults of the network, each with its own chance in a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Time after which a node that was not let in asks again.
const BACKOFF: Span = Span::millis(100);

/// Directions of a link.
const UP: usize = 0;
const DOWN: usize = 1;

impl World {
    pub(super) fn renew(&mut self, node: usize) {
        let now = self.clock(node);
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        let seq = state.seq + 1;
        let due = |group: &NodeGroup| group.due(now).is_some_and(|due| due <= now);
        let (mut asks, mut answer_within) = (Vec::new(), Span(0));
        let asked = state.groups.iter_mut().filter(|(_, group)| due(group));
        let entries: Vec<EntryIn> = asked
            .map(|(id, group)| {
                let proof = state.proofs.get(id).cloned().unwrap_or_default();
                let ask = group.ask(now, seq);
                answer_within = group.look().answer_wait().max(answer_within);
                // With the lease goes what operations did not need of it.
                let Ask { acked_seq, returned, refunded, spending, .. } = ask;
                let gave_up = group.state(now).lease == LeaseState::Idle
                    && ask == Ask { acked_seq, returned, refunded, spending, ..Ask::default() };
                asks.push((*id, ask, gave_up));
                EntryIn { group: name(*id), ask: Ok((ask, proof)) }
            })
            .collect();
        if entries.is_empty() {
            return;
        }
        for (id, ask, gave_up) in asks {
            self.judge_told(node, id, &ask.spending);
            self.shares.gives_up(node, (id, seq), gave_up);
            self.judge_holding(node, id, |holding| {
                holding.ask(now, seq, &ask, gave_up);
                Ok(())
            });
        }
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        state.seq = seq;
        self.shares.asked(node, seq, self.now);
        self.messages += 1;
        self.tally(node);
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        let sent = Some(Sent { at: now, answer_within });
        let reports = state.reports.send(seq);
        let (counts_requests, counts_rolling) = (true, true);
        let mut request =
            RenewIn { seq, entries, reports, node: None, sent, counts_requests, counts_rolling };
        if let Some(random) = &mut state.lies {
            lies::distort(&mut request, random);
        }
        let seen = Seen { epoch: state.epoch, standing: state.standing.clone() };
        let connection = state.connection;
        self.tell(node, Message::Renew { connection, seen, request });
    }

    /// Sends a node's message, if there is a controller.
    pub(super) fn tell(&mut self, node: usize, message: Message) {
        let Some(state) = self.nodes.get(node).filter(|_| self.controller.is_up()) else { return };
        let (incarnation, process) = (state.incarnation, state.process);
        let event = |message| Event::ToController { node, incarnation, process, message };
        self.carry(node, UP, event, message);
    }

    /// Puts a message on a link, with what the network does to it.
    fn carry(&mut self, node: usize, direction: usize, event: impl Fn(Message) -> Event, message: Message) {
        let (now, faults, delay) = (self.now, self.faults, self.delay);
        let Some(link) = self.nodes.get_mut(node).and_then(|state| state.links.get_mut(direction)) else {
            return;
        };
        for at in link.arrivals(now, faults, delay) {
            self.at(at, event(message.clone()));
        }
    }

    pub(super) fn send(&mut self, node: usize, message: Message) {
        let process = self.nodes.get(node).map_or(0, |state| state.process);
        self.carry(node, DOWN, |message| Event::ToNode { node, process, message }, message);
    }

    /// A message of a node, by number, incarnation and process. Whether the controller shed it.
    pub(super) fn at_controller(&mut self, from: (usize, u64, u64), message: Message) -> bool {
        let (node, incarnation, process) = from;
        let (connection, seen, request) = match message {
            Message::Renew { connection, seen, request } => (connection, seen, request),
            Message::Goodbye { connection, seen, seq, reports } => {
                self.goodbye(from, (connection, &seen), seq, &reports);
                return false;
            }
            _ => return false,
        };
        let asked: Vec<GroupId> = request.entries.iter().filter_map(|entry| group(&entry.group)).collect();
        for entry in &request.entries {
            self.note(|| format!("n{node} asks   {} {}", entry.group, show_entry(entry)));
        }
        let Some(controller) = self.controller_of(node, connection) else { return false };
        let recovering: BTreeSet<GroupId> =
            asked.iter().copied().filter(|id| controller.is_recovering(*id)).collect();
        let renewed = match controller.renew(node, incarnation, connection, (&seen, request)) {
            Ok(Some(renewed)) => renewed,
            Ok(None) => return false,
            Err(Ended) => {
                self.at(self.now.after(BACKOFF), Event::StreamEnded { node, connection });
                return false;
            }
        };
        for entry in &renewed.entries {
            self.note(|| format!("n{node} gets   {} {}", entry.group, show_answer(&entry.answer)));
            self.judge_enforcement((node, connection), entry);
            self.judge_allowance((node, connection), entry);
            if let (Some(group), Answer::Grant(Grant::Leased(terms), _)) =
                (group(&entry.group), &entry.answer)
                && let recovering = recovering.contains(&group)
                && let Err(broken) = self.witness.granted((node, incarnation, group), terms.rate, recovering)
            {
                self.violate(broken);
            }
        }
        let shed = renewed.shed;
        let message = if shed {
            Message::Shed { seq: renewed.seq, epoch: renewed.epoch, groups: asked }
        } else {
            Message::Granted(renewed)
        };
        self.carry(node, DOWN, |message| Event::ToNode { node, process, message }, message);
        self.push_lowers();
        shed
    }

    /// The controller that a connection leads to.
    fn controller_of(&mut self, node: usize, connection: u64) -> Option<&mut Controller> {
        let old = self.nodes.get(node).is_some_and(|state| connection <= state.old_connection);
        if old { self.old.as_mut() } else { Some(&mut self.controller) }
    }

    /// A node that has ended in order says so with its last reports, and hears when they are on disk.
    fn goodbye(
        &mut self,
        (node, incarnation, process): (usize, u64, u64),
        (connection, seen): (u64, &Seen),
        seq: u64,
        reports: &[ReportIn],
    ) {
        self.note(|| format!("n{node} says goodbye"));
        let Some(controller) = self.controller_of(node, connection) else { return };
        let known = controller.open(node, incarnation, connection, seen).is_ok();
        if known && controller.goodbye(node, connection, seq, reports) {
            self.carry(
                node,
                DOWN,
                |message| Event::ToNode { node, process, message },
                Message::Farewell { seq },
            );
        }
        self.push_lowers();
    }

    pub(super) fn push_lowers(&mut self) {
        let mut orders = self.controller.lowers();
        let by_old = self.old.as_mut().map(Controller::lowers).unwrap_or_default();
        orders.extend(by_old.into_iter().filter(|(node, ..)| self.stays(*node)));
        for (node, group, rate_at_most) in orders {
            self.note(|| format!("n{node} lower  g{} {rate_at_most}", group.0));
            self.send(node, Message::Lower { group, rate_at_most });
        }
    }

    fn granted(&mut self, node: usize, renewed: Renewed) {
        let now = self.clock(node);
        let Some(state) = self.nodes.get_mut(node).filter(|state| renewed.epoch >= state.epoch) else {
            return;
        };
        state.epoch = renewed.epoch;
        if let Some(standing) = renewed.standing {
            state.standing = standing;
        }
        let mut taken = Vec::new();
        for entry in renewed.entries {
            if let (Some(id), Answer::Grant(grant, proof)) = (group(&entry.group), entry.answer)
                && let Some(group) = state.groups.get_mut(&id)
            {
                let heard = group.on_grant(now, renewed.seq, &grant);
                if heard == Heard::Applied {
                    state.proofs.insert(id, proof);
                }
                if heard != Heard::Ignored {
                    taken.push((id, grant, heard));
                }
            }
        }
        state.reports.durable(renewed.durable_seq);
        for (id, grant, heard) in taken {
            self.took_share(node, renewed.seq, (id, &grant, heard));
            self.judge_holding(node, id, |holding| holding.granted(now, renewed.seq, &grant, heard));
            self.judge_in_use(id);
        }
    }

    pub(super) fn at_node(&mut self, node: usize, message: Message) {
        let now = self.clock(node);
        if let Message::Granted(renewed) = message {
            self.granted(node, renewed);
            return self.step(node);
        }
        let Some(state) = self.nodes.get_mut(node) else {
            return;
        };
        match message {
            Message::Bound { load, group } => drop(state.bindings.insert(load, group)),
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
            Message::Shed { seq, epoch, groups } if epoch >= state.epoch => {
                for id in groups {
                    if let Some(group) = state.groups.get_mut(&id) {
                        group.on_shed(now, seq);
                    }
                }
            }
            Message::Farewell { seq } => return state.reports.durable(seq),
            Message::Shed { .. } | Message::Granted(_) | Message::Renew { .. } | Message::Goodbye { .. } => {}
        }
        self.step(node);
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{:>9} us  {}", self.now.0, line());
        }
    }
}

fn show_entry(entry: &EntryIn) -> String {
    entry.ask.as_ref().map_or_else(Clone::clone, |(ask, _)| show_ask(ask))
}

fn show_answer(answer: &Answer) -> String {
    match answer {
        Answer::Grant(grant, _) => show_grant(grant),
        Answer::Refused(reason) => format!("refused: {reason}"),
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
            "{} cap {} fill {} lump {}{}, again after {}{}",
            terms.rate,
            terms.cap,
            terms.fill,
            terms.lump,
            if terms.lump_after.0 > 0 { format!(" in {}", terms.lump_after) } else { String::new() },
            terms.ask_again,
            if terms.ack_now { ", acknowledge now" } else { "" }
        ),
        Grant::Unlimited { .. } => "unlimited".to_owned(),
        Grant::UnknownGroup => "unknown group".to_owned(),
        Grant::Recovering { ask_again, .. } => format!("recovering, again after {ask_again}"),
    }
}
