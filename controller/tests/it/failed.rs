//! Two controllers with the same history, of which one has a disk that is full at times: a flush that failed and is
//! repeated leaves on disk what it would have left at once, to the byte. What is counted in sums is on disk in the end,
//! whatever was counted between a failed flush and the next.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{EntryIn, RenewIn, ReportIn, Service, ServiceConfig, Session};
use tidegate_controller::store::records::{META_LINEAGE, META_PROOF_KEY};
use tidegate_controller::store::{Store, Table};
use tidegate_core::exchange::Ask;
use tidegate_core::units::{Rate, Ru, RuTotal};
use tidegate_core::usage::{Parts, Total};
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, actor, stories};

const SEEDS: u64 = 60;
const STEPS: u64 = 60;
const NODES: [&str; 3] = ["a", "b", "c"];
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
/// More than any process uses in the longest story.
const CLAIM: u128 = 1_000_000_000_000_000_000_000_000;
const QUOTAS: [&str; 4] = ["500 per minute", "900 per minute", "500 per hour", "none"];
/// Tables whose rows are sums since a moment, which later flushes make up for.
const SUMS: [Table; 4] = [Table::Ledger, Table::Apart, Table::Minutes, Table::Hours];

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

struct Site {
    disk: Arc<Faulty>,
    service: Service,
    streams: BTreeMap<&'static str, Session>,
}

struct Story {
    random: StdRng,
    now: Arc<AtomicU64>,
    /// The second one has the disk that is full at times.
    sites: [Site; 2],
    starts: BTreeMap<&'static str, u64>,
    totals: BTreeMap<(&'static str, u64, &'static str), u128>,
    seq: u64,
    /// Steps were taken between a failed flush and the next: rows that say what is granted need not be the same.
    apart: bool,
}

impl Site {
    fn begin(now: &Arc<AtomicU64>) -> Self {
        let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
        let store = Arc::clone(&disk) as Arc<dyn Store>;
        let service = Service::load(store, ServiceConfig::default(), Clock::driven(Arc::clone(now))).unwrap();
        let limit = v1::QueryLimit {
            rows: 5,
            action: "kill".into(),
            watch: "similar".into(),
            ..v1::QueryLimit::default()
        };
        let web = v1::Group {
            name: "web".into(),
            ru_per_sec: "1000".into(),
            fallback_total: "90".into(),
            quota: QUOTAS[0].into(),
            query_limit: Some(limit),
            ..v1::Group::default()
        };
        service.definitions().create_group(&actor(), &web, false).unwrap();
        Self { disk, service, streams: BTreeMap::new() }
    }

    /// All rows but those that are random.
    fn rows(&self, tables: &[Table]) -> Rows {
        let mut rows = Rows::new();
        let visited = self.disk.copy(&mut |table, key, value| {
            let is_random = table == Table::Meta && [META_LINEAGE, META_PROOF_KEY].contains(&key);
            if tables.contains(&table) && !is_random {
                rows.insert((table, key.to_vec()), value.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        });
        visited.unwrap();
        rows
    }
}

impl Story {
    fn begin(seed: u64) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let sites = [Site::begin(&now), Site::begin(&now)];
        let (starts, totals) = (NODES.map(|name| (name, 1)).into(), BTreeMap::new());
        Self { random: StdRng::seed_from_u64(seed), now, sites, starts, totals, seq: 0, apart: false }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn step(&mut self) -> String {
        let name = NODES[self.random.random_range(0..NODES.len())];
        match self.below(16) {
            0..2 => self.hello(name),
            2..7 => self.renew(name),
            7 => self.leave(name),
            8 => self.convict(),
            9 => self.alter(),
            10 => self.group(),
            11..13 => self.pass(),
            _ => self.flush(),
        }
    }

    /// A process connects, or the one that takes its place.
    fn hello(&mut self, name: &'static str) -> String {
        let new = self.below(2);
        let start = self.starts.get_mut(name).unwrap();
        *start += new;
        for site in &mut self.sites {
            let session = site.service.leasing().hello(name, *start, "test").unwrap();
            site.streams.insert(name, session);
        }
        format!("{name} {start} connects")
    }

    fn renew(&mut self, name: &'static str) -> String {
        let (start, ru, claims) = (self.starts[name], self.below(20), self.below(10) == 0);
        let group = if self.below(4) == 0 { "tmp" } else { "web" };
        let (asks, of) = (self.below(3) > 0, start - self.below(2).min(start - 1));
        let total = self.totals.entry((name, of, group)).or_default();
        *total += u128::from(ru) * 1_000_000 + if claims { CLAIM } else { 0 };
        let charged = Parts { write: RuTotal(*total), ..Parts::default() };
        let total = Ok(Total { charged, ..Total::default() });
        let report = ReportIn { group: group.into(), incarnation: of, total, waited: Vec::new() };
        let load = Ru::whole(20);
        let ask = Ask { demand: Rate::whole(20), backlog: load, largest: Ru::whole(1), ..Ask::default() };
        let entry = EntryIn { group: "web".into(), ask: Ok((ask, Vec::new())) };
        let entries = if asks { vec![entry] } else { Vec::new() };
        self.seq += 1;
        for site in &self.sites {
            let Some(stream) = site.streams.get(name) else { continue };
            let (entries, reports) = (entries.clone(), vec![report.clone()]);
            let request = RenewIn { seq: self.seq, entries, reports, ..RenewIn::default() };
            site.service.leasing().renew(stream.client, stream.session, request).unwrap();
        }
        format!("{name} asks: {asks}, and reports {ru} of {group} for {of}, claims: {claims}")
    }

    /// For good, or until it connects again.
    fn leave(&mut self, name: &'static str) -> String {
        let says_so = self.below(2) == 0;
        self.seq += 1;
        for site in &mut self.sites {
            let Some(stream) = site.streams.remove(name) else { continue };
            let leasing = site.service.leasing();
            if says_so {
                leasing.goodbye(stream.client, stream.session, self.seq, &[]).unwrap();
            }
            leasing.disconnect(stream.client, stream.session);
        }
        format!("{name} leaves and says so: {says_so}")
    }

    fn convict(&mut self) -> String {
        let statement = self.below(3);
        let request = v1::ConvictRequest {
            gateway: "gw".into(),
            group: "web".into(),
            r#match: "identify".into(),
            action: "kill".into(),
            fingerprint: format!("{statement:016x}"),
            ..v1::ConvictRequest::default()
        };
        for site in &self.sites {
            site.service.statements().convict(&request).unwrap();
        }
        format!("conviction of {statement}")
    }

    fn alter(&mut self) -> String {
        let quota = QUOTAS[self.random.random_range(0..QUOTAS.len())];
        let web = v1::Group { name: "web".into(), quota: quota.into(), ..v1::Group::default() };
        for site in &self.sites {
            site.service.definitions().alter_group(&actor(), &web, &["quota".to_owned()], 0).unwrap();
        }
        format!("a quota of {quota}")
    }

    /// A group comes, or goes.
    fn group(&mut self) -> String {
        let tmp = v1::Group {
            name: "tmp".into(),
            ru_per_sec: "10".into(),
            quota: "70 per hour".into(),
            ..v1::Group::default()
        };
        let done = self.sites.each_ref().map(|site| {
            let definitions = site.service.definitions();
            let is_made = definitions.create_group(&actor(), &tmp, false).is_ok();
            is_made || definitions.delete_group(&actor(), "tmp", "", 0, false).is_err()
        });
        assert_eq!(done[0], done[1]);
        self.totals.retain(|(_, _, group), _| done[0] || *group != "tmp");
        format!("tmp is there: {}", done[0])
    }

    fn pass(&mut self) -> String {
        let passed = match self.below(10) {
            0 => 13 * HOUR,
            1 => HOUR,
            _ => self.below(40 * SECOND),
        };
        self.now.fetch_add(passed, Ordering::SeqCst);
        for site in &self.sites {
            site.service.leasing().expire();
        }
        format!("{passed} us pass")
    }

    fn flush(&mut self) -> String {
        let (fails, repeated) = (self.below(2) == 0, self.below(3) > 0);
        let [good, other] = self.sites.each_ref().map(|site| site.service.upkeep());
        good.flush().unwrap();
        if fails {
            self.sites[1].disk.fill(true);
            // Without anything to store, nothing fails.
            let failed = other.flush().is_err();
            self.sites[1].disk.fill(false);
            self.apart |= failed && !repeated;
        }
        if !fails || repeated {
            other.flush().unwrap();
        }
        format!("flush, fails: {fails}, repeated: {repeated}")
    }

    fn check(&self, what: &str) {
        let tables: &[Table] = if self.apart { &SUMS } else { &Table::ALL };
        let [good, other] = self.sites.each_ref().map(|site| site.rows(tables));
        let missing: Vec<_> = good.iter().filter(|(key, row)| other.get(*key) != Some(*row)).collect();
        let extra: Vec<_> = other.keys().filter(|key| !good.contains_key(*key)).collect();
        assert!(missing.is_empty() && extra.is_empty(), "{missing:?} or {extra:?} after {what}");
    }
}

#[test]
fn a_flush_that_failed_and_is_repeated_stores_what_it_would_have_stored_at_once() {
    for seed in stories(SEEDS) {
        let mut story = Story::begin(seed);
        let mut told = Vec::new();
        for _ in 0..STEPS {
            told.push(story.step());
        }
        for site in &story.sites {
            site.service.upkeep().flush().unwrap();
        }
        story.check(&format!("seed {seed}: {}", told.join("; ")));
    }
}
