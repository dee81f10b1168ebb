//! How long groups recover, beside a naive model of the leases that may be out: lengths that are raised and lowered, stops
//! in order, crashes one after the other, copies of the store whose controllers gave longer leases, full disks. After each
//! step a group recovers at least until the last lease has ended of which the controller has no record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{Answer, EntryIn, RenewIn, Seen, Service, ServiceConfig};
use tidegate_controller::store::{Store, StoreError, Table, Write};
use tidegate_core::engine::EngineConfig;
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, actor, copy, pass_on, stories};

const SEEDS: u64 = 100;
const STEPS: u64 = 60;
const SECOND: u64 = 1_000_000;
/// Groups, and those above them.
const GROUPS: [(&str, &str); 3] = [("top", ""), ("leaf", "top"), ("other", "")];

/// What a node keeps of a controller on a copy: its epoch and standing, the group of which it has a lease, and its end.
struct Kept {
    seen: Seen,
    group: &'static str,
    ends: u64,
}

struct Story {
    random: StdRng,
    now: Arc<AtomicU64>,
    disk: Arc<Faulty>,
    service: Option<Service>,
    ttl: BTreeMap<&'static str, u64>,
    /// The end of what may be out, beside what could be given now.
    out: BTreeMap<&'static str, u64>,
    /// The end of the leases that a node has, as the controller knows them.
    held: BTreeMap<&'static str, u64>,
    /// The controller has no record of leases that may be out until then.
    unknown: BTreeMap<&'static str, u64>,
    kept: Option<Kept>,
    starts: u64,
    seq: u64,
    full: bool,
}

fn load(store: Arc<dyn Store>, now: &Arc<AtomicU64>) -> Service {
    Service::load(store, ServiceConfig::default(), Clock::driven(Arc::clone(now))).unwrap()
}

fn text(name: &str, parent: &str, ttl: u64) -> v1::Group {
    let (name, parent) = (name.into(), parent.into());
    v1::Group { name, parent, ru_per_sec: "50".into(), ttl_us: ttl, ..v1::Group::default() }
}

/// Sets how long leases of a group last. Whether that is stored.
fn alter(service: &Service, name: &str, ttl: u64) -> bool {
    let mask = ["ttl_us", "renew_us"].map(str::to_owned);
    service.definitions().alter_group(&actor(), &text(name, "", ttl), &mask, 0).is_ok()
}

/// A group and those above it.
fn chain(group: &'static str) -> impl Iterator<Item = &'static str> {
    let above = |of: &str| GROUPS.iter().find(|(name, _)| *name == of).unwrap().1;
    std::iter::successors(Some(group), move |of| Some(above(of)).filter(|above| !above.is_empty()))
}

fn raise(ends: &mut BTreeMap<&'static str, u64>, group: &'static str, end: u64) {
    let known = ends.entry(group).or_default();
    *known = end.max(*known);
}

impl Story {
    fn begin(seed: u64) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
        let service = load(Arc::clone(&disk) as Arc<dyn Store>, &now);
        let mut ttl = BTreeMap::new();
        for (name, parent) in GROUPS {
            service.definitions().create_group(&actor(), &text(name, parent, 2 * SECOND), false).unwrap();
            ttl.insert(name, 2 * SECOND);
        }
        let (out, held, unknown) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let random = StdRng::seed_from_u64(seed);
        let service = Some(service);
        Self {
            random,
            now,
            disk,
            service,
            ttl,
            out,
            held,
            unknown,
            kept: None,
            starts: 1,
            seq: 0,
            full: false,
        }
    }

    fn service(&self) -> &Service {
        self.service.as_ref().unwrap()
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn group(&mut self) -> &'static str {
        GROUPS[self.random.random_range(0..GROUPS.len())].0
    }

    fn step(&mut self) -> String {
        self.full = self.below(6) == 0;
        self.disk.fill(self.full);
        let what = match self.below(12) {
            0..3 => self.lengthen(),
            3..6 => self.pass(),
            6..8 => self.lease(),
            8 => self.duplicate(),
            9 => self.bring(),
            10 => self.stop(),
            _ => self.crash(),
        };
        format!("{what}, full: {}", self.full)
    }

    fn lengthen(&mut self) -> String {
        let (name, ttl) = (self.group(), (1 + self.below(40)) * SECOND);
        let done = alter(self.service(), name, ttl);
        assert_eq!(done, !self.full || self.ttl[name] == ttl);
        if done {
            let before = self.ttl.insert(name, ttl).unwrap();
            let end = self.now() + before;
            raise(&mut self.out, name, end);
        }
        format!("leases of {name} last {ttl} us: {done}")
    }

    fn pass(&mut self) -> String {
        let passed = self.below(15 * SECOND);
        self.now.fetch_add(passed, Ordering::SeqCst);
        self.service().leasing().expire();
        let _ = self.service().upkeep().flush();
        format!("{passed} us pass")
    }

    /// A node asks for a lease, which the controller knows from then on.
    fn lease(&mut self) -> String {
        let (name, at) = (self.group(), self.now());
        let session = self.service().leasing().hello("node", self.starts, "test").unwrap();
        self.seq += 1;
        let ask = Ask { demand: Rate::whole(1), ..Ask::default() };
        let entry = EntryIn { group: name.into(), ask: Ok((ask, Vec::new())) };
        let request = RenewIn { seq: self.seq, entries: vec![entry], ..RenewIn::default() };
        let renewed = self.service().leasing().renew(session.client, session.session, request).unwrap();
        let Some(Answer::Grant(Grant::Leased(terms), _)) = renewed.entries.first().map(|entry| &entry.answer)
        else {
            return format!("no lease of {name}");
        };
        raise(&mut self.held, name, at + terms.ttl.0);
        format!("a lease of {name} for {}", terms.ttl)
    }

    /// Somebody starts a controller on a copy, which gives a node a long lease and is gone.
    fn duplicate(&mut self) -> String {
        let (group, ttl) = (self.group(), (1 + self.below(59)) * SECOND);
        let other = load(copy(&*self.disk), &self.now);
        assert!(alter(&other, group, ttl));
        let session = other.leasing().hello("wanderer", 1, "test").unwrap();
        let seen = Seen { epoch: session.epoch, standing: session.standing };
        self.kept = Some(Kept { seen, group, ends: self.now() + ttl });
        format!("a controller on a copy gives a lease of {group} for {ttl} us")
    }

    /// The node comes to the controller of the original.
    fn bring(&mut self) -> String {
        let Some(Kept { seen, group, ends }) = self.kept.take() else { return "nobody comes".into() };
        let done = self.service().leasing().heed("wanderer", &seen);
        if done.is_ok() {
            chain(group).for_each(|of| raise(&mut self.unknown, of, ends));
        } else {
            assert!(self.full, "{done:?}");
            self.kept = Some(Kept { seen, group, ends });
        }
        format!("the node comes, and is heard: {}", done.is_ok())
    }

    fn start(&mut self) {
        self.service = None;
        self.disk.full.store(false, Ordering::SeqCst);
        self.service = Some(load(Arc::clone(&self.disk) as Arc<dyn Store>, &self.now));
        self.starts += 1;
    }

    /// In order: all leases that are known are known again.
    fn stop(&mut self) -> String {
        if self.service().shut_down().is_err() {
            return self.crash();
        }
        self.out = self.held.clone();
        self.start();
        "a stop in order".into()
    }

    /// No lease is known.
    fn crash(&mut self) -> String {
        for (name, _) in GROUPS {
            let end = self.now() + self.ttl[name];
            raise(&mut self.out, name, end);
            let end = self.out[name];
            chain(name).for_each(|of| raise(&mut self.unknown, of, end));
        }
        self.held.clear();
        self.start();
        "a crash".into()
    }

    fn check(&self, what: &str) {
        for (name, ends) in &self.unknown {
            let left = ends.saturating_sub(self.now());
            let recovers = self.service().leasing().recovery_of(name).unwrap().0;
            assert!(recovers >= left, "{name} recovers for {recovers} of {left} us after {what}");
        }
        // What is in force now has not been there for longer than a minute.
        for (name, _) in GROUPS {
            let recovers = self.service().leasing().recovery_of(name).unwrap().0;
            assert!(recovers <= 61 * SECOND, "{name} recovers for {recovers} us after {what}");
        }
    }
}

#[test]
fn groups_recover_until_the_last_lease_that_is_not_known_has_ended() {
    for seed in stories(SEEDS) {
        let mut story = Story::begin(seed);
        let mut told = Vec::new();
        for _ in 0..STEPS {
            told.push(story.step());
            story.check(&format!("seed {seed}: {}", told.join("; ")));
        }
    }
}

/// A store that counts the definitions that are written.
#[derive(Default)]
struct Counting {
    rows: MemoryStore,
    groups: AtomicU64,
}

impl Store for Counting {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let groups = batch.iter().filter(|write| matches!(write, Write::Put(Table::Groups, ..)));
        self.groups.fetch_add(groups.count() as u64, Ordering::SeqCst);
        self.rows.commit(batch)
    }

    pass_on!(rows);
}

#[test]
fn what_a_start_forgets_of_leases_is_written_only_where_the_definition_says_less() {
    let (store, now) = (Arc::new(Counting::default()), Arc::<AtomicU64>::default());
    let start = || load(Arc::clone(&store) as Arc<dyn Store>, &now);
    let service = start();
    for group in ["same", "lower", "higher"] {
        let made = text(group, "", 10 * SECOND);
        service.definitions().create_group(&actor(), &made, false).unwrap();
    }
    assert!(alter(&service, "lower", 2 * SECOND) && alter(&service, "higher", 20 * SECOND));
    drop(service);
    let service = start();
    let written = || {
        service.upkeep().flush().unwrap();
        store.groups.swap(0, Ordering::SeqCst)
    };
    written();
    now.fetch_add(60 * SECOND, Ordering::SeqCst);
    assert_eq!(written(), 1, "the one that is lower");
    assert_eq!(service.leasing().recovery_of("lower").unwrap().0, 0);
    now.fetch_add(60 * SECOND, Ordering::SeqCst);
    assert_eq!(written(), 0);
}

/// A lease that was given a moment ago may be in use for a little longer than its length, by a slow clock: no row has to
/// say so, since every length in rows is taken for what clocks make of it.
#[test]
fn a_start_after_a_stop_in_order_writes_definitions_only_where_leases_of_another_length_are_out() {
    let (store, now) = (Arc::new(Counting::default()), Arc::<AtomicU64>::default());
    let start = || load(Arc::clone(&store) as Arc<dyn Store>, &now);
    let recoveries =
        |service: &Service| ["same", "lowered"].map(|group| service.leasing().recovery_of(group).unwrap().0);
    let mut service = start();
    for group in ["same", "lowered"] {
        service.definitions().create_group(&actor(), &text(group, "", 10 * SECOND), false).unwrap();
    }
    for (number, lowers) in [(1, false), (2, true)] {
        let session = service.leasing().hello("node", number, "test").unwrap();
        let ask = Ask { demand: Rate::whole(1), ..Ask::default() };
        let entry = |group: &str| EntryIn { group: group.into(), ask: Ok((ask, Vec::new())) };
        let entries = vec![entry("same"), entry("lowered")];
        let request = RenewIn { seq: number, entries, ..RenewIn::default() };
        service.leasing().renew(session.client, session.session, request).unwrap();
        if lowers {
            assert!(alter(&service, "lowered", 2 * SECOND));
            now.fetch_add(4 * SECOND, Ordering::SeqCst);
        }
        service.shut_down().unwrap();
        store.groups.store(0, Ordering::SeqCst);
        service = start();
        // What is left of the lowered one's lease is between the lengths of its row and of its definition.
        assert_eq!(store.groups.load(Ordering::SeqCst), u64::from(lowers), "start {number}");
        assert_eq!(recoveries(&service), [0, 0], "after a stop in order");
    }
    drop(service);
    let longest = EngineConfig::default().longest_use(Span::secs(10)).0;
    let [same, lowered] = recoveries(&start());
    assert_eq!(same, longest);
    let left = longest - 4 * SECOND;
    assert!((left..=left + 1).contains(&lowered), "{lowered} us for leases that last {left} us more");
}

/// A predecessor that is not known to be dead grants until its fence ends, whatever its successor hears of definitions.
#[test]
fn a_lowered_length_is_remembered_for_leases_that_a_predecessor_gives_within_its_fence() {
    let (store, now) = (Arc::new(Counting::default()), Arc::<AtomicU64>::default());
    let config = ServiceConfig { fence: Some(Span::secs(10)), ..ServiceConfig::default() };
    let start = || {
        let store = Arc::clone(&store) as Arc<dyn Store>;
        Service::load(store, config, Clock::driven(Arc::clone(&now))).unwrap()
    };
    let before = start();
    before.definitions().create_group(&actor(), &text("g", "", 60 * SECOND), false).unwrap();
    drop(before);
    let service = start();
    now.fetch_add(SECOND, Ordering::SeqCst);
    assert!(alter(&service, "g", 2 * SECOND));
    let written = |at: u64| {
        now.store(at * SECOND, Ordering::SeqCst);
        store.groups.store(0, Ordering::SeqCst);
        service.upkeep().flush().unwrap();
        store.groups.load(Ordering::SeqCst)
    };
    assert_eq!((written(65), written(69), written(75)), (0, 0, 1));
}
