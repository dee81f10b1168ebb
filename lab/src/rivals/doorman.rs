//! Doorman: a server leases rates to clients by FAIR_SHARE and never has more out on lease than there is.
//!
//! A client says what it has and what it wants once per refresh interval. Its limiter paces operations at the leased
//! rate and stores nothing, so there are no bursts. A new server learns for one lease: it confirms what clients have.

use std::collections::BTreeMap;

use tidegate_core::units::{Span, Time};

use super::number::{between, count, seconds, span};
use super::queue::Queue;
use super::{Acts, Operation, Rival};

/// How often a client asks.
const REFRESH: Span = Span::secs(1);
/// How long capacity is leased, and how long a new server learns.
const LEASE: Span = Span::secs(20);
/// How long a call to a server that is away takes to fail.
const CALL_FAILS: Span = Span::secs(1);
/// First and longest pause before a failed call is repeated, and how it grows.
const BACKOFF: (f64, f64, f64) = (1.0, 60.0, 1.3);

/// The rate that a client has and the one it wants, in RU/s.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    has: f64,
    wants: f64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    has: f64,
    wants: f64,
    until: Time,
}

/// The server's ledger.
#[derive(Clone, Debug)]
struct Server {
    capacity: f64,
    leases: BTreeMap<usize, Lease>,
    learns_until: Time,
}

impl Server {
    fn decide(&mut self, now: Time, node: usize, ask: Ask) -> f64 {
        self.leases.retain(|_, lease| lease.until > now);
        let until = now.after(LEASE);
        let has = self.leases.get(&node).map_or(0.0, |lease| lease.has);
        self.leases.insert(node, Lease { has, wants: ask.wants, until });
        let gets = if now < self.learns_until { ask.has } else { self.fair_share(ask.wants, has) };
        self.leases.insert(node, Lease { has: gets, wants: ask.wants, until });
        gets
    }

    /// Max-min with two rounds, cut to what is not on lease to others.
    fn fair_share(&self, wants: f64, has: f64) -> f64 {
        let total: f64 = self.leases.values().map(|lease| lease.has).sum();
        let unused = (self.capacity - total + has).max(0.0);
        let all: f64 = self.leases.values().map(|lease| lease.wants).sum();
        let equal = self.capacity / count(self.leases.len());
        if all <= self.capacity || wants <= equal {
            return wants.min(unused);
        }
        let above = |level: f64| self.leases.values().filter(move |lease| lease.wants > level).count();
        let first = equal + self.left_below(f64::NEG_INFINITY, equal) / count(above(equal).max(1));
        if wants < first {
            return wants.min(unused);
        }
        // The rest that clients leave which want more than an equal share, but not all of the first round.
        let second = first + self.left_below(equal, first) / count(above(first).max(1));
        second.min(wants).min(unused)
    }

    /// What clients that want more than `floor` leave of `level` each.
    fn left_below(&self, floor: f64, level: f64) -> f64 {
        let wants = self.leases.values().map(|lease| lease.wants);
        wants.filter(|wants| *wants > floor && *wants < level).map(|wants| level - wants).sum()
    }
}

#[derive(Clone, Debug, Default)]
struct Client {
    queue: Queue,
    capacity: f64,
    lease_until: Time,
    /// RU admitted ahead of the pace, at `paced_at`.
    ahead: f64,
    paced_at: Time,
    /// RU that arrived since `asked_at`.
    arrived: f64,
    asked_at: Time,
    ask_at: Option<Time>,
    fails_at: Option<Time>,
    failures: u32,
}

impl Client {
    fn pace(&mut self, now: Time) {
        // Past its lease a client has no capacity.
        let end = if now > self.lease_until { self.lease_until } else { now };
        self.ahead = (self.ahead - self.capacity * between(self.paced_at, end)).max(0.0);
        self.paced_at = now;
        if now >= self.lease_until {
            self.capacity = 0.0;
        }
    }

    fn ask(&mut self, now: Time) -> Ask {
        let offered = self.arrived / between(self.asked_at, now).max(seconds(REFRESH) / 10.0);
        let wants = offered + self.queue.ru() / seconds(REFRESH);
        self.arrived = 0.0;
        self.asked_at = now;
        self.ask_at = None;
        self.fails_at = Some(now.after(CALL_FAILS));
        Ask { has: self.capacity, wants }
    }

    fn failed(&mut self, now: Time) {
        let (base, longest, growth) = BACKOFF;
        let pause = (base * growth.powi(i32::try_from(self.failures).unwrap_or(i32::MAX))).min(longest);
        self.failures += 1;
        self.fails_at = None;
        self.ask_at = Some(now.after(span(pause)));
    }
}

/// A server and its clients.
#[derive(Clone, Debug)]
pub struct Doorman {
    server: Server,
    clients: Vec<Client>,
}

impl Doorman {
    /// A server that has learned, with `capacity` RU/s to lease.
    pub fn new(capacity: f64, nodes: usize) -> Self {
        let server = Server { capacity, leases: BTreeMap::new(), learns_until: Time(0) };
        Self { server, clients: vec![Client::default(); nodes] }
    }
}

impl Rival for Doorman {
    type Ask = Ask;
    type Answer = f64;

    fn submit(&mut self, now: Time, node: usize, operation: Operation) {
        if let Some(client) = self.clients.get_mut(node) {
            if client.asked_at == Time(0) && client.ask_at.is_none() && client.fails_at.is_none() {
                client.ask_at = Some(now);
            }
            client.arrived += operation.cost;
            client.queue.push(operation);
        }
    }

    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<Ask>) {
        let Some(client) = self.clients.get_mut(node) else {
            return;
        };
        client.pace(now);
        while let Some(id) = client.queue.give_up(now) {
            acts.done.push((id, false));
        }
        while client.capacity > 0.0
            && client.ahead <= 1e-9
            && let Some(first) = client.queue.pop()
        {
            client.ahead += first.cost;
            acts.done.push((first.id, true));
        }
        if client.fails_at.is_some_and(|at| at <= now) {
            client.failed(now);
        }
        if client.ask_at.is_some_and(|at| at <= now) {
            acts.asks.push(client.ask(now));
        }
    }

    fn wake_at(&self, now: Time, node: usize) -> Option<Time> {
        let client = self.clients.get(node)?;
        let free = (client.capacity > 0.0 && client.queue.first().is_some())
            .then(|| now.after(span(client.ahead / client.capacity)));
        let lease_ends = (client.lease_until > now).then_some(client.lease_until);
        [free, lease_ends, client.queue.next_deadline(), client.ask_at, client.fails_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn at_centre(&mut self, now: Time, node: usize, ask: Ask) -> f64 {
        self.server.decide(now, node, ask)
    }

    fn at_node(&mut self, now: Time, node: usize, capacity: f64) {
        let Some(client) = self.clients.get_mut(node) else {
            return;
        };
        client.pace(now);
        client.capacity = capacity;
        client.failures = 0;
        client.fails_at = None;
        client.lease_until = client.asked_at.after(LEASE);
        client.ask_at = Some(client.asked_at.after(REFRESH));
    }

    fn set_cap(&mut self, _now: Time, rate: f64) {
        self.server.capacity = rate;
    }

    fn restart(&mut self, now: Time) {
        self.server.leases.clear();
        self.server.learns_until = now.after(LEASE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fair_share_of_the_description() {
        let mut server = Server { capacity: 120.0, leases: BTreeMap::new(), learns_until: Time(0) };
        let wants = [1_000.0, 50.0, 10.0];
        let mut gets = [0.0; 3];
        for round in 0..3 {
            for (node, wants) in wants.into_iter().enumerate() {
                gets[node] = server.decide(Time(round), node, Ask { has: 0.0, wants });
            }
        }
        assert_eq!(gets, [60.0, 50.0, 10.0]);
    }

    #[test]
    fn what_idle_clients_leave_is_shared() {
        let mut server = Server { capacity: 100.0, leases: BTreeMap::new(), learns_until: Time(0) };
        for node in 0..8 {
            server.decide(Time(1), node, Ask { has: 0.0, wants: 0.0 });
        }
        let gets = [0, 1].map(|node| server.decide(Time(2), node, Ask { has: 0.0, wants: 90.0 }));
        assert_eq!(gets, [90.0, 10.0]);
        let gets = [0, 1].map(|node| server.decide(Time(3), node, Ask { has: gets[node], wants: 90.0 }));
        assert_eq!(gets, [50.0, 50.0]);
    }

    #[test]
    fn never_more_on_lease_than_there_is() {
        let mut server = Server { capacity: 100.0, leases: BTreeMap::new(), learns_until: Time(0) };
        assert_eq!(server.decide(Time(1), 0, Ask { has: 0.0, wants: 500.0 }), 100.0);
        assert_eq!(server.decide(Time(2), 1, Ask { has: 0.0, wants: 500.0 }), 0.0, "all is out");
        assert_eq!(server.decide(Time(3), 0, Ask { has: 100.0, wants: 500.0 }), 50.0);
        assert_eq!(server.decide(Time(4), 1, Ask { has: 0.0, wants: 500.0 }), 50.0);
    }

    #[test]
    fn a_new_server_confirms_what_clients_have() {
        let mut doorman = Doorman::new(100.0, 2);
        doorman.restart(Time(0));
        assert_eq!(doorman.at_centre(Time(5), 0, Ask { has: 30.0, wants: 500.0 }), 30.0);
        let later = Time(0).after(LEASE);
        assert_eq!(doorman.at_centre(later, 0, Ask { has: 30.0, wants: 500.0 }), 100.0);
    }
}
