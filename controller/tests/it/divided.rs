//! A fallback that nodes divide, beside a naive model of their parts: nodes that connect again, start again and leave,
//! answers that are lost, flushes that fail, crashes and stops in order. What all nodes may use together, each by the last
//! answer that it took in, is never more than there is to divide.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::audit::Actor;
use tidegate_controller::service::{Answer, EntryIn, RenewIn, Service, Session};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::Fallback;
use tidegate_core::units::Rate;
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, started, stories};

const SEEDS: u64 = 100;
const STEPS: u64 = 200;
const NODES: [&str; 4] = ["a", "b", "c", "d"];
const TOTAL: i64 = 90_000_000;

/// A node's process: its start, its stream, and its part with the end of that.
#[derive(Default)]
struct Node {
    start: u64,
    stream: Option<Session>,
    seq: u64,
    acked: u64,
    part: Option<(i64, u64)>,
}

struct Story {
    random: StdRng,
    now: Arc<AtomicU64>,
    disk: Arc<Faulty>,
    service: Option<Service>,
    nodes: BTreeMap<&'static str, Node>,
}

impl Story {
    fn begin(seed: u64) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
        let service = started(&disk, &now);
        let group = v1::Group {
            name: "web".into(),
            ru_per_sec: "1000".into(),
            fallback_total: "90".into(),
            ..v1::Group::default()
        };
        service.definitions().create_group(&Actor::new(None, "test"), &group, false).unwrap();
        let nodes = NODES.map(|name| (name, Node { start: 1, ..Node::default() })).into();
        Self { random: StdRng::seed_from_u64(seed), now, disk, service: Some(service), nodes }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn step(&mut self) -> String {
        let full = self.below(8) == 0;
        self.disk.full.store(full, Ordering::SeqCst);
        let name = NODES[self.random.random_range(0..NODES.len())];
        let what = match self.below(20) {
            0..4 => self.connect(name, false),
            4 => self.connect(name, true),
            5 => self.leave(name),
            6..14 => self.renew(name),
            14..17 => {
                let _ = self.service.as_ref().unwrap().upkeep().flush();
                "flush".into()
            }
            17..19 => {
                let passed = self.below(2_000_000);
                self.now.fetch_add(passed, Ordering::SeqCst);
                self.service.as_ref().unwrap().leasing().expire();
                format!("{passed} us pass")
            }
            _ => self.restart(),
        };
        format!("{what}, full: {full}")
    }

    /// The process of before connects again, or another takes its place.
    fn connect(&mut self, name: &'static str, is_new: bool) -> String {
        let node = self.nodes.get_mut(name).unwrap();
        if is_new {
            *node = Node { start: node.start + 1, ..Node::default() };
        }
        let stream = self.service.as_ref().unwrap().leasing().hello(name, node.start, "test").unwrap();
        node.stream = Some(stream);
        format!("{name} {} connects", node.start)
    }

    fn leave(&mut self, name: &'static str) -> String {
        if let Some(stream) = self.nodes.get_mut(name).unwrap().stream.take() {
            self.service.as_ref().unwrap().leasing().disconnect(stream.client, stream.session);
        }
        format!("{name} is cut off")
    }

    fn renew(&mut self, name: &'static str) -> String {
        let (lost, at) = (self.below(4) == 0, self.now.load(Ordering::SeqCst));
        let node = self.nodes.get_mut(name).unwrap();
        let Some(stream) = &node.stream else { return "nothing".into() };
        node.seq += 1;
        let ask = Ask { acked_seq: node.acked, demand: Rate::whole(10), ..Ask::default() };
        let entry = EntryIn { group: "web".into(), ask: Ok((ask, Vec::new())) };
        let request = RenewIn { seq: node.seq, entries: vec![entry], ..RenewIn::default() };
        let renewed = self.service.as_ref().unwrap().leasing();
        let renewed = renewed.renew(stream.client, stream.session, request).unwrap();
        let told = match renewed.entries.first().map(|entry| &entry.answer) {
            Some(Answer::Grant(Grant::Leased(terms), _)) => Some(terms.fallback),
            Some(Answer::Grant(Grant::Recovering { fallback, .. }, _)) => *fallback,
            other => panic!("{other:?}"),
        };
        let Some(fallback) = told.filter(|_| !lost) else { return format!("{name} hears of no part") };
        node.acked = node.seq;
        node.part = match fallback {
            Fallback::Part(rate, lasts) => Some((rate.0, at + lasts.0)),
            Fallback::Stop => None,
            other => panic!("{other:?}"),
        };
        format!("{name} hears of {fallback:?}")
    }

    fn restart(&mut self) -> String {
        let stopped = self.below(2) == 0 && self.service.as_ref().unwrap().shut_down().is_ok();
        self.service = None;
        self.disk.full.store(false, Ordering::SeqCst);
        self.service = Some(started(&self.disk, &self.now));
        self.nodes.values_mut().for_each(|node| node.stream = None);
        format!("restart, in order: {stopped}")
    }

    /// How many nodes have a part.
    fn check(&self, what: &str) -> usize {
        let now = self.now.load(Ordering::SeqCst);
        let parts = self.nodes.values().filter_map(|node| node.part).filter(|(_, ends)| *ends > now);
        let parts: Vec<i64> = parts.map(|(rate, _)| rate).collect();
        let sum: i64 = parts.iter().sum();
        assert!(sum <= TOTAL, "{sum} of {TOTAL} may be in use after {what}");
        parts.len()
    }
}

#[test]
fn nodes_never_use_more_of_a_divided_fallback_than_there_is() {
    let mut divided = 0;
    for seed in stories(SEEDS) {
        let mut story = Story::begin(seed);
        let mut told = Vec::new();
        for _ in 0..STEPS {
            told.push(story.step());
            divided += u64::from(story.check(&format!("seed {seed}: {}", told.join("; "))) > 1);
        }
    }
    assert!(divided > stories(SEEDS).end * STEPS / 20, "several nodes have a part after {divided} steps");
}
