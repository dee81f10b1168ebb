//! What statements cost, beside a naive model of it: reports of gateways in any order, repeated and of starts that are
//! gone, more statements and more gateways than are kept, groups that come and go, resets, disks that are full, crashes.
//! After each step every list, in every order, is what plain maps say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::limits::{MAX_GATEWAYS, MAX_STATEMENT_PAGE, MAX_STATEMENTS};
use tidegate_controller::name::GroupName;
use tidegate_controller::service::Service;
use tidegate_controller::statements::{Order, StatementReport, StatementRow, Sums};
use tidegate_core::units::Ru;
use tidegate_core::usage::{RuParts, Usage};
use tidegate_cost_model::{Fingerprint, StatementKind};
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, actor, started, stories};

const SEEDS: u64 = 20;
const STEPS: u64 = 50;
const GROUPS: [&str; 3] = ["default", "web", "web-2"];
const GATEWAYS: [&str; 3] = ["a", "b", "c"];
/// Of all groups, or of one.
const LISTED: [&str; 4] = ["", "default", "web", "web-2"];
const MANY: usize = 500;

/// Group and fingerprint.
type Key = (&'static str, u64);

/// Sums of one statement: calls, five parts of RU, the dearest call, two of its resources, rows, elapsed, waited, errors,
/// throttled, estimated. All but the dearest add up.
type Counts = [u64; 15];
const MAX_RU: usize = 6;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    counts: Counts,
    /// The first call, where that is known, and the last one.
    first: Option<u64>,
    last: u64,
}

impl Cost {
    fn add(&mut self, more: &Self) {
        for (at, (sum, new)) in self.counts.iter_mut().zip(more.counts).enumerate() {
            *sum = if at == MAX_RU { new.max(*sum) } else { *sum + new };
        }
        self.first = self.first.into_iter().chain(more.first).min();
        self.last = more.last.max(self.last);
    }

    fn ru(&self) -> u64 {
        self.counts[1..=5].iter().sum()
    }

    fn by(&self, order: &str) -> u64 {
        match order {
            "ru" => self.ru(),
            "average_ru" => self.ru().checked_div(self.counts[0]).unwrap_or_default(),
            "max_ru" => self.counts[MAX_RU],
            "calls" => self.counts[0],
            "rows" => self.counts[9],
            "elapsed" => self.counts[10],
            "waited" => self.counts[11],
            "errors" => self.counts[12],
            "throttled" => self.counts[13],
            other => panic!("{other}"),
        }
    }

    fn sums(&self) -> Sums {
        let [calls, cpu, read, write, network, flat, max, cpu_ns, read_bytes, rest @ ..] = self.counts;
        let [rows, elapsed_us, waited_us, errors, throttled, estimated] = rest;
        let ru = |micro: u64| Ru(i64::try_from(micro).unwrap());
        Sums {
            calls,
            charged: RuParts {
                cpu: ru(cpu),
                read: ru(read),
                write: ru(write),
                network: ru(network),
                flat: ru(flat),
            },
            max: ru(max),
            usage: Usage { cpu_ns, read_bytes, ..Usage::default() },
            rows,
            elapsed_us,
            waited_us,
            errors,
            throttled,
            estimated,
            first_unix_ms: self.first.unwrap_or_default(),
            last_unix_ms: self.last,
        }
    }
}

#[derive(Default)]
struct Model {
    costs: BTreeMap<Key, Cost>,
    /// Every mention of a statement, and which is a statement's last.
    mentions: Vec<Key>,
    last_mention: BTreeMap<Key, usize>,
    /// Mentions before this are not the last of any.
    past: usize,
    /// The number of what was applied last of each process of a gateway, in the order of that.
    heard: Vec<((String, u64), u64)>,
    evicted: u64,
    since: u64,
}

impl Model {
    fn add(&mut self, key: Key, cost: &Cost) {
        if !self.costs.contains_key(&key) && self.costs.len() == MAX_STATEMENTS {
            while self.last_mention.get(&self.mentions[self.past]) != Some(&self.past) {
                self.past += 1;
            }
            let least = self.mentions[self.past];
            self.last_mention.remove(&least);
            self.costs.remove(&least).unwrap();
            self.evicted += 1;
        }
        self.costs.entry(key).or_default().add(cost);
        self.last_mention.insert(key, self.mentions.len());
        self.mentions.push(key);
    }

    fn forget(&mut self, goes: impl Fn(&Key) -> bool) -> usize {
        let before = self.costs.len();
        self.costs.retain(|key, _| !goes(key));
        self.last_mention.retain(|key, _| !goes(key));
        before - self.costs.len()
    }

    /// Whether a report counts: each of a process once, and in order.
    fn applies(&mut self, gateway: &str, (incarnation, seq): (u64, u64)) -> bool {
        let process = (gateway.to_owned(), incarnation);
        let known = self.heard.iter().position(|(of, _)| *of == process);
        if known.is_some_and(|at| seq <= self.heard[at].1) {
            return false;
        }
        match known {
            Some(at) => drop(self.heard.remove(at)),
            None if self.heard.len() == MAX_GATEWAYS => drop(self.heard.remove(0)),
            None => {}
        }
        self.heard.push((process, seq));
        true
    }
}

struct Story {
    random: StdRng,
    now: Arc<AtomicU64>,
    disk: Arc<Faulty>,
    service: Service,
    groups: Vec<&'static str>,
    model: Model,
    /// What each gateway says next.
    says: BTreeMap<&'static str, (u64, u64)>,
    crowds: u64,
    full: bool,
}

fn kind(statement: u64) -> StatementKind {
    let place = usize::try_from(statement).unwrap() % StatementKind::ALL.len();
    StatementKind::ALL[place]
}

impl Story {
    fn begin(seed: u64) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
        let service = started(&disk, &now);
        let model = Model { since: service.clock().unix_ms(), ..Model::default() };
        let random = StdRng::seed_from_u64(seed);
        let says = GATEWAYS.map(|gateway| (gateway, (5, 1))).into();
        let groups = vec!["default"];
        Self { random, now, disk, service, groups, model, says, crowds: 0, full: false }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[self.random.random_range(0..of.len())]
    }

    fn step(&mut self) -> String {
        self.full = self.below(5) == 0;
        self.disk.fill(self.full);
        let what = match self.below(20) {
            0..12 => self.report(),
            12..14 => self.reset(),
            14..17 => self.define(),
            17 => self.pass(),
            18 => self.crowd(),
            _ => self.restart(),
        };
        format!("{what}, full: {}", self.full)
    }

    fn cost(&mut self) -> Cost {
        let mut counts = Counts::default();
        for count in &mut counts {
            *count = self.random.random_range(0..5) * self.random.random_range(0..1_000);
        }
        let first = (self.below(3) > 0).then(|| self.random.random_range(1..1_000));
        Cost { counts, first, last: first.unwrap_or_default() + self.below(1_000) }
    }

    /// A new report, one that is repeated, or one of before.
    fn report(&mut self) -> String {
        let gateway = self.one(&GATEWAYS);
        let next = self.says[gateway];
        let number = match self.below(8) {
            0 => (next.0, next.1.saturating_sub(1).max(1)),
            1 => (next.0 - self.below(2), next.1 + self.below(3)),
            2 => (next.0 + 1, 1),
            _ => next,
        };
        // Mostly a few statements, and sometimes more than are kept.
        let (many, from) = match self.below(30) {
            0 => (MAX_STATEMENTS as u64 + self.below(5), self.below(20)),
            1..3 => (self.below(4_000), self.below(8_000)),
            _ => (self.below(8), self.below(12)),
        };
        let evicted = self.below(3);
        let applied = self.model.applies(gateway, number);
        self.model.evicted += if applied { evicted } else { 0 };
        let mut rows = Vec::new();
        for statement in from..from + many {
            let (group, cost) = (self.one(&GROUPS), self.cost());
            rows.push(StatementRow {
                group: GroupName::parse(group).unwrap(),
                fingerprint: Fingerprint(statement),
                kind: kind(statement),
                template: format!("SELECT {statement}").into(),
                sums: cost.sums(),
            });
            if applied && self.groups.contains(&group) {
                self.model.add((group, statement), &cost);
            }
        }
        let (incarnation, seq) = number;
        let report = StatementReport { gateway: gateway.to_owned(), incarnation, seq, rows, evicted };
        self.service.statements().report_statements(report);
        self.says.insert(gateway, (number.0.max(next.0), number.1 + 1));
        format!("report {number:?} of {gateway}: {many} from {from}")
    }

    fn reset(&mut self) -> String {
        let group = self.one(&["", "default", "web", "web-2", "gone"]);
        let done = self.service.statements().reset_statements(&actor(), group);
        let known = group.is_empty() || self.groups.contains(&group);
        let allowed = known && !self.full;
        assert_eq!(done.is_ok(), allowed, "reset of {group:?}: {:?}", done.err());
        if allowed {
            let gone = self.model.forget(|key| group.is_empty() || key.0 == group);
            assert_eq!(done.unwrap(), gone, "reset of {group:?}");
            if group.is_empty() {
                (self.model.evicted, self.model.since) = (0, self.service.clock().unix_ms());
            }
        }
        format!("reset of {group:?}")
    }

    /// A group comes or goes, and with it what its statements cost.
    fn define(&mut self) -> String {
        let name = self.one(&GROUPS[1..]);
        if self.groups.contains(&name) {
            let done = self.service.definitions().delete_group(&actor(), name, "", 0, false);
            assert_eq!(done.is_ok(), !self.full, "{:?}", done.err());
            if done.is_ok() {
                self.groups.retain(|of| *of != name);
                self.model.forget(|key| key.0 == name);
            }
            return format!("{name} goes");
        }
        let group = v1::Group { name: name.into(), ru_per_sec: "5".into(), ..v1::Group::default() };
        let done = self.service.definitions().create_group(&actor(), &group, false);
        assert_eq!(done.is_ok(), !self.full, "{:?}", done.err());
        self.groups.extend(done.is_ok().then_some(name));
        format!("{name} comes")
    }

    fn pass(&mut self) -> String {
        let ms = self.below(100_000);
        self.now.fetch_add(ms * 1_000, Ordering::SeqCst);
        format!("{ms} ms pass")
    }

    /// So many other gateways report that one more forgets the first of them.
    fn crowd(&mut self) -> String {
        if self.crowds > 0 || self.below(4) > 0 {
            return "nobody comes".into();
        }
        self.crowds += 1;
        let many = MAX_GATEWAYS - usize::try_from(self.below(4)).unwrap();
        for number in 0..many {
            let gateway = format!("other-{number}");
            assert!(self.model.applies(&gateway, (1, 1)));
            let report = StatementReport { gateway, incarnation: 1, seq: 1, rows: Vec::new(), evicted: 0 };
            self.service.statements().report_statements(report);
        }
        format!("{many} other gateways")
    }

    /// Nothing of it is on disk: all counts begin again.
    fn restart(&mut self) -> String {
        let clean = self.below(2) == 0;
        let stopped = clean && self.service.shut_down().is_ok();
        self.disk.full.store(false, Ordering::SeqCst);
        self.service = started(&self.disk, &self.now);
        self.model = Model { since: self.service.clock().unix_ms(), ..Model::default() };
        self.crowds = 0;
        format!("restart, clean: {stopped}")
    }

    fn check(&mut self, what: &str) {
        // Of many statements one list is enough of a step's work.
        let only = (self.model.costs.len() > MANY).then(|| self.below(36));
        let lists = Order::NAMES.iter().flat_map(|order| LISTED.map(|group| (*order, group))).zip(0..);
        for ((order, group), number) in lists {
            if only.is_none_or(|only| only == number) {
                self.check_list(order, group, what);
            }
        }
    }

    fn check_list(&mut self, order: &str, group: &str, what: &str) {
        let limit = [0, 1, 7, MAX_STATEMENT_PAGE][self.random.random_range(0..4)];
        let read = self.service.statements().list_statements(&v1::ListStatementsRequest {
            group: group.to_owned(),
            order: order.to_owned(),
            limit,
            ..v1::ListStatementsRequest::default()
        });
        if !group.is_empty() && !self.groups.contains(&group) {
            assert!(read.is_err(), "{group} after {what}");
            return;
        }
        let read = read.unwrap();
        let of_group = self.model.costs.iter().filter(|(key, _)| group.is_empty() || key.0 == group);
        let mut all: Vec<(&Key, &Cost)> = of_group.collect();
        let total = (all.len(), self.model.evicted, self.model.since);
        assert_eq!((read.total, read.evicted, read.since_unix_ms), total, "after {what}");
        all.sort_by_key(|(key, cost)| (u64::MAX - cost.by(order), **key));
        all.truncate(usize::try_from(if limit == 0 { 100 } else { limit }).unwrap());
        let expected: Vec<StatementRow> = all
            .into_iter()
            .map(|((group, statement), cost)| StatementRow {
                group: GroupName::parse(group).unwrap(),
                fingerprint: Fingerprint(*statement),
                kind: kind(*statement),
                template: format!("SELECT {statement}").into(),
                sums: cost.sums(),
            })
            .collect();
        assert_eq!(read.rows, expected, "{limit} of {group:?} by {order} after {what}");
    }
}

#[test]
fn what_statements_cost_is_what_a_naive_model_says_after_any_reports_and_resets() {
    for seed in stories(SEEDS) {
        let mut story = Story::begin(seed);
        for step in 0..STEPS {
            let what = format!("step {step} of seed {seed}: {}", story.step());
            story.check(&what);
        }
    }
}
