//! Nodes, which ask every controller that would answer, and hold the last grant until it ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::units::{Rate, Ru, RuTotal};
use tidegate_core::usage::{Parts, Total};
use tidegate_proto::v1;

use super::machine;
use super::world::{MS, World};
use crate::definitions::definition::Definition;
use crate::name::GroupName;
use crate::service::{Answer, EntryIn, EntryOut, RenewIn, Renewed, ReportIn, Service, Session};

/// The group that all nodes use, and its limit.
pub(super) const GROUP: &str = "g0";
const LIMIT: i64 = 100;

#[derive(Default)]
pub(super) struct Nodes {
    /// When one of them asks next.
    pub(super) at: u64,
    seq: u64,
    all: [Node; 2],
    /// Answers that came in after they had waited for a beat.
    pub(super) waited: u64,
}

/// An answer on its way to a node.
pub(super) struct Heard {
    node: usize,
    term: u64,
    /// When its renewal was sent.
    sent: u64,
    renewed: Renewed,
}

#[derive(Default)]
struct Node {
    used: u128,
    acked_seq: u64,
    held: Held,
    until: u64,
    /// Its streams, by term.
    streams: BTreeMap<u64, Session>,
    /// What was used by the renewals of each term.
    sent: BTreeMap<(u64, u64), u128>,
    /// What is known to be durable.
    durable: u128,
}

/// The definition of a group.
pub(super) fn group(name: &str) -> v1::Group {
    let name = GroupName::parse(name).unwrap();
    Definition { rate: Some(Rate::whole(LIMIT)), ..Definition::named(name) }.text()
}

fn total(used: u128) -> Total {
    Total { charged: Parts::flat(RuTotal(used)), ..Total::default() }
}

impl Nodes {
    /// One node asks all controllers that speak.
    pub(super) fn ask(world: &Arc<World>) {
        let at = usize::try_from(world.draws.below(2)).unwrap();
        let pause = world.draws.below(world.draws.among(&[100, 400, 2_000]) * MS);
        let mut nodes = world.nodes.lock().unwrap();
        nodes.at = world.now() + pause;
        let mut answers = 0;
        for (machine, of) in world.machines.iter().enumerate() {
            let speaks = of.lock().speaks.clone();
            let Some((term, service)) = speaks else { continue };
            nodes.seq += 1;
            let seq = nodes.seq;
            let came = service.clock().now();
            if let Some(renewed) = nodes.all[at].renew(world, &service, term, (at, seq)) {
                answers += 1;
                let heard = Heard { node: at, term, sent: world.now(), renewed };
                if let Some(heard) = machine::answer(world, machine, &service, came, heard) {
                    nodes.all[at].hear(heard);
                }
            }
        }
        // A halted controller decides when it goes on, and nobody hears of it.
        assert!(answers <= 1 || world.halts, "seed {}: {answers} controllers answer at once", world.seed);
        nodes.judge_held(world);
    }

    /// An answer comes in that waited.
    pub(super) fn hear(world: &World, heard: Heard) {
        let mut nodes = world.nodes.lock().unwrap();
        let node = heard.node;
        nodes.all[node].hear(heard);
        nodes.waited += 1;
        nodes.judge_held(world);
    }

    /// What nodes may use together is within the limit.
    fn judge_held(&self, world: &World) {
        let held =
            self.all.iter().filter(|node| node.until > world.now()).map(|node| node.held.rate.0).sum::<i64>();
        let limit = Rate::whole(LIMIT).0;
        assert!(held <= limit, "seed {}: nodes may use {held} of {limit} at {}", world.seed, world.now());
    }

    /// What each node knows to be durable is there.
    pub(super) fn judge(&self, world: &World, service: &Service) {
        let rows = service.accounts().usage(GROUP, true).map(|(rows, _)| rows).unwrap_or_default();
        for (at, node) in self.all.iter().enumerate() {
            let name = format!("node-{at}");
            let row = rows.iter().find(|row| row.client.as_ref().is_some_and(|(client, _)| *client == name));
            let there = row.map_or(0, |row| row.total.ru().0);
            assert!(there >= node.durable, "seed {}: {name}: {there} of {}", world.seed, node.durable);
        }
    }

    pub(super) fn durable(&self) -> u128 {
        self.all.iter().map(|node| node.durable).sum()
    }
}

impl Node {
    fn renew(
        &mut self,
        world: &World,
        service: &Service,
        term: u64,
        (at, seq): (usize, u64),
    ) -> Option<Renewed> {
        let held = if self.until > world.now() { self.held } else { Held::default() };
        let ask = Ask {
            acked_seq: self.acked_seq,
            held,
            demand: Rate::whole(2 * LIMIT),
            backlog: Ru::whole(50),
            largest: Ru::whole(1),
            ..Ask::default()
        };
        if let std::collections::btree_map::Entry::Vacant(entry) = self.streams.entry(term) {
            entry.insert(service.leasing().hello(&format!("node-{at}"), 1, "t").ok()?);
        }
        let session = &self.streams[&term];
        self.used += 1_000_000;
        let report = ReportIn {
            group: GROUP.to_owned(),
            incarnation: 0,
            total: Ok(total(self.used)),
            waited: Vec::new(),
        };
        let entry = EntryIn { group: GROUP.to_owned(), ask: Ok((ask, Vec::new())) };
        let request = RenewIn { seq, entries: vec![entry], reports: vec![report], ..RenewIn::default() };
        let renewed = service.leasing().renew(session.client, session.session, request).ok()?;
        // What is reported of a group that is not there is not counted.
        let unknown = |entry: &EntryOut| matches!(entry.answer, Answer::Grant(Grant::UnknownGroup, _));
        if !renewed.entries.iter().any(unknown) {
            self.sent.insert((term, seq), self.used);
        }
        Some(renewed)
    }

    fn hear(&mut self, Heard { term, sent, renewed, .. }: Heard) {
        if let Some(used) = self.sent.get(&(term, renewed.durable_seq)) {
            self.durable = self.durable.max(*used);
        }
        for entry in renewed.entries {
            if let Answer::Grant(Grant::Leased(terms), _) = entry.answer {
                self.held = Held { rate: terms.rate, cap: terms.cap, lump: terms.lump };
                self.until = sent + terms.ttl.0;
                self.acked_seq = renewed.seq;
            }
        }
    }
}
