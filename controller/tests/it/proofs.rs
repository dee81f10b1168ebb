//! What nodes prove after a crash: random stories of two node machines at a controller, which could die after every
//! answer. Each time, the next controller counts at least all that a node holds and shows a proof of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::audit::Actor;
use tidegate_controller::service::{Answer, EntryIn, RenewIn, Service, Session};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::node::{Acquired, Heard, LeaseState, NodeConfig, NodeGroup, WaiterId};
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

use crate::support::{MemoryStore, copy, started, stories};

const SEEDS: u64 = 60;
const STEPS: u64 = 150;
const GROUP: &str = "web";

/// An answer on its way.
struct Answered {
    at: Time,
    seq: u64,
    grant: Grant,
    proof: Vec<u8>,
}

/// A node, and what it keeps of its lease.
struct Node {
    name: &'static str,
    machine: NodeGroup,
    proof: Vec<u8>,
    /// A late answer lengthened the lease; the proof is of the shorter one.
    extended: bool,
    seq: u64,
    session: Session,
    waiting: Vec<(WaiterId, Ru)>,
    running: Vec<Ru>,
    flight: Vec<Answered>,
}

impl Node {
    /// Sends the renewal that is due.
    fn ask(&mut self, service: &Service, now: Time) -> Option<(Grant, Vec<u8>)> {
        self.seq += 1;
        let ask = self.machine.ask(now, self.seq);
        renew(service, &self.session, self.seq, ask, self.proof.clone())
    }

    /// Takes in the answers that have come by now. Whether one of them is the newest lease.
    fn hear(&mut self, now: Time) -> bool {
        let (come, flight) = std::mem::take(&mut self.flight).into_iter().partition(|of| of.at <= now);
        self.flight = flight;
        let mut applied = false;
        for Answered { seq, grant, proof, .. } in come {
            match self.machine.on_grant(now, seq, &grant) {
                Heard::Applied => (self.proof, self.extended, applied) = (proof, false, true),
                Heard::Extended => self.extended = true,
                Heard::Ignored => {}
            }
        }
        applied
    }

    /// Operations whose turn it is begin; those whose time is over leave.
    fn serve(&mut self, now: Time) {
        while let Some((id, outcome)) = self.machine.poll(now) {
            let place = self.waiting.iter().position(|(waits, _)| *waits == id).unwrap();
            let (_, cost) = self.waiting.remove(place);
            if outcome.is_ok() {
                self.running.push(cost);
            }
        }
    }
}

fn renew(
    service: &Service,
    session: &Session,
    seq: u64,
    ask: Ask,
    proof: Vec<u8>,
) -> Option<(Grant, Vec<u8>)> {
    let entries = vec![EntryIn { group: GROUP.into(), ask: Ok((ask, proof)) }];
    let request = RenewIn { seq, entries, ..RenewIn::default() };
    let renewed = service.leasing().renew(session.client, session.session, request).unwrap();
    let entry = renewed.entries.into_iter().next()?;
    match entry.answer {
        Answer::Grant(grant, proof) => Some((grant, proof)),
        Answer::Refused(reason) => panic!("{reason}"),
    }
}

/// What the stories must have shown, so that they do not pass by being dull.
#[derive(Debug, Default)]
struct Shown {
    leases: u64,
    /// With a lump in hand.
    lumps: u64,
}

struct Story {
    random: StdRng,
    now: Arc<AtomicU64>,
    store: Arc<MemoryStore>,
    service: Service,
    nodes: Vec<Node>,
    rate: i64,
    /// How long an answer takes at most.
    far_us: u64,
    shown: Shown,
}

impl Story {
    fn begin(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let (now, store) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
        let service = started(&store, &now);
        let rate = [20, 100, 1_000][random.random_range(0..3)];
        let burst = rate * random.random_range(1..=10) / 2;
        let group = v1::Group {
            name: GROUP.into(),
            ru_per_sec: rate.to_string(),
            burst: burst.to_string(),
            ttl_us: 2_000_000,
            ..v1::Group::default()
        };
        service.definitions().create_group(&Actor::new(None, "test"), &group, false).unwrap();
        let nodes = ["one", "two"].map(|name| Node {
            name,
            machine: NodeGroup::new(Time(0), NodeConfig::default()),
            proof: Vec::new(),
            extended: false,
            seq: 0,
            session: service.leasing().hello(name, 1, "test").unwrap(),
            waiting: Vec::new(),
            running: Vec::new(),
            flight: Vec::new(),
        });
        let far_us = [1_000, 60_000, 400_000][random.random_range(0..3)];
        Self { random, now, store, service, nodes: nodes.into(), rate, far_us, shown: Shown::default() }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn step(&mut self) {
        let pause = if self.below(40) == 0 { 3_000_000 } else { 100_000 };
        let passed = self.below(pause);
        let now = Time(self.now.fetch_add(passed, Ordering::Relaxed) + passed);
        if self.below(60) == 0 {
            self.crash(now);
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].hear(now) {
                self.judge(at, now);
            }
            self.operate(at, now);
            self.nodes[at].serve(now);
            if self.nodes[at].machine.due(now).is_some_and(|due| due <= now) {
                self.ask(at, now);
            }
        }
    }

    fn operate(&mut self, at: usize, now: Time) {
        for _ in 0..self.below(4) {
            let most = if self.below(3) == 0 { 3 * self.rate } else { self.rate / 10 };
            let cost = Ru::whole(self.random.random_range(1..=most)).scale(1, 2);
            let patience = Span(self.below(4_000_000));
            let node = &mut self.nodes[at];
            match node.machine.acquire(now, cost, now.after(patience)) {
                Ok(Acquired::Now(_)) => node.running.push(cost),
                Ok(Acquired::Queued(id)) => node.waiting.push((id, cost)),
                Err(_) => {}
            }
        }
        if self.below(2) == 0
            && let Some(cost) = self.nodes[at].running.pop()
        {
            let actual = cost.scale(self.random.random_range(0..5), 4);
            let charged = RuParts::flat(actual);
            let actual = Consumption { charged, operations: 1, ..Consumption::default() };
            self.nodes[at].machine.settle(now, cost, &actual);
        }
    }

    /// A renewal, of which each way may be lost.
    fn ask(&mut self, at: usize, now: Time) {
        let (lost, back) = (self.below(12), self.below(self.far_us));
        let node = &mut self.nodes[at];
        if lost == 0 {
            node.seq += 1;
            node.machine.ask(now, node.seq);
            return;
        }
        let Some((grant, proof)) = node.ask(&self.service, now) else { return };
        if lost > 1 {
            let (at, seq) = (now.after(Span(back)), node.seq);
            node.flight.push(Answered { at, seq, grant, proof });
        }
    }

    /// The controller dies, and another one starts on what it stored.
    fn crash(&mut self, now: Time) {
        self.service = started(&self.store, &self.now);
        for node in &mut self.nodes {
            node.machine.on_session_lost(now);
            node.flight.clear();
            node.session = self.service.leasing().hello(node.name, 1, "test").unwrap();
        }
    }

    /// What another controller counts for a node, if this one dies now and the node asks it.
    fn judge(&mut self, at: usize, now: Time) {
        let node = &mut self.nodes[at];
        if node.machine.state(now).lease != LeaseState::Leased {
            return;
        }
        let service = started(&copy(&*self.store), &self.now);
        let session = service.leasing().hello(node.name, 1, "test").unwrap();
        let mut machine = node.machine.clone();
        machine.on_session_lost(now);
        // Room for what operations under way may return would hide what is missing elsewhere.
        let ask = Ask { running: Ru::ZERO, ..machine.ask(now, node.seq + 1) };
        if ask.gives_up() {
            return;
        }
        let answer = renew(&service, &session, node.seq + 1, ask, node.proof.clone());
        let Some((Grant::Leased(terms), _)) = answer else {
            assert!(node.extended, "a lease that holds must be proven by {}: {ask:?}, {answer:?}", node.name);
            return;
        };
        let held = ask.held;
        let table = service.leasing().leases(GROUP).unwrap();
        let (counted, group) = (table.leases[0].lease, table.groups[0].view);
        let lump = held.lump + terms.lump;
        assert!(
            counted.committed >= held.rate && counted.lump >= lump && group.held >= held.cap + lump,
            "{} holds {held:?} and gets {lump:?}, and is counted as {counted:?}, in {group:?}",
            node.name
        );
        self.shown.leases += 1;
        self.shown.lumps += u64::from(held.lump.is_positive());
    }
}

#[test]
fn recovery_counts_all_that_a_node_holds_whenever_the_controller_dies() {
    let mut shown = Shown::default();
    for seed in stories(SEEDS) {
        let mut story = Story::begin(seed);
        for _ in 0..STEPS {
            story.step();
        }
        shown.leases += story.shown.leases;
        shown.lumps += story.shown.lumps;
    }
    println!("{shown:?}");
    assert!(shown.leases > 1_000 && shown.lumps > 50, "the stories are dull: {shown:?}");
}
