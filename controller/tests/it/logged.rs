//! What it costs to log the consumption of 100,000 pairs of a node and a group a second, on three members of etcd.
//!
//! It measures, and is run by hand, in a release build:
//! `cargo test --release -p tidegate-controller --test it logged -- --ignored --nocapture`. Each of 100 nodes reports on
//! 1,000 groups once a second, nine of 19 counters moving; a flush follows the last after half a second, as in a
//! controller. CPU of the reports themselves is not counted.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{park_timeout, scope};
use std::time::Duration;

use tidegate_consensus::etcd::{Etcd, Written};
use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{RenewIn, ReportIn, Service, ServiceConfig};
use tidegate_controller::store::records::META_APPLIED;
use tidegate_controller::store::replicated::{FilePlace, Follower, Owner, ReplicatedStore, Settings};
use tidegate_controller::store::{Store as _, Table};
use tidegate_core::group::ClientId;
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::usage::{Consumption, Resources, RuParts};
use tidegate_proto::v1;
use tidegate_test_servers as servers;

const NODES: u64 = 100;
const GROUPS: u64 = 1_000;
/// Reports of all nodes, a second each. The first makes the rows, and is not measured.
const ROUNDS: u64 = 31;

fn owned(etcd: &servers::Etcd, file: &std::path::Path) -> ReplicatedStore {
    let written = Written { endpoints: etcd.endpoints(), ..Written::default() };
    let consensus = Arc::new(Etcd::new(written.check().unwrap()).unwrap());
    let settings = Settings::new(Clock::start(), Span::secs(10));
    let place = Arc::new(FilePlace::new(file));
    let follower = Follower::follow(consensus, "measured/", place, settings, false).unwrap();
    let owner = Owner {
        controller: "a".to_owned(),
        instance: 1,
        addresses: Vec::new(),
        fence_ms: 1_000,
        clean: false,
    };
    let seen = follower.look().unwrap();
    follower.take(&seen, &owner).unwrap()
}

/// What a node has consumed of a group after so many seconds.
fn total(second: u64) -> Consumption {
    let ru = |whole: i64| Ru(whole * i64::try_from(second).unwrap() * 1_000_000);
    Consumption {
        charged: RuParts { cpu: ru(41), read: ru(12), write: ru(3), ..RuParts::default() },
        operations: 90 * second,
        usage: Resources {
            cpu_ns: 30_000_000 * second,
            read_requests: 80 * second,
            read_bytes: 900_000 * second,
            write_requests: 10 * second,
            write_bytes: 40_000 * second,
            ..Resources::default()
        },
        ..Consumption::default()
    }
}

/// CPU seconds of threads of this process, by name, as far as they run.
fn threads() -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let ns =
            read("schedstat").split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or_default();
        *all.entry(read("comm").trim().to_owned()).or_default() += ns / 1e9;
    }
    all
}

/// CPU seconds of a process, in ticks of 10 ms.
fn cpu(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = stat.rsplit(')').next().unwrap();
    let ticks = |at| after.split(' ').nth(at).unwrap().parse::<f64>().unwrap();
    (ticks(12) + ticks(13)) / 100.0
}

/// Bytes of all segments so far.
fn logged(store: &ReplicatedStore) -> u64 {
    let rows = store.get(Table::Meta, &[META_APPLIED.to_vec()]).unwrap();
    let text = String::from_utf8(rows[0].clone().unwrap()).unwrap();
    text.split(' ').nth(2).unwrap().parse().unwrap()
}

struct Reports {
    /// When reports were made that are not stored.
    open: Vec<Time>,
    /// How long it took until others were, in milliseconds.
    took: Vec<u64>,
    rows: u64,
}

/// Stores what was reported, and notes how long that took.
fn flush(service: &Service, clock: &Clock, reports: &Mutex<Reports>) {
    let open = std::mem::take(&mut reports.lock().unwrap().open);
    service.upkeep().flush().unwrap();
    let now = clock.now();
    let mut reports = reports.lock().unwrap();
    reports.rows += open.len() as u64 * GROUPS;
    reports.took.extend(open.iter().map(|at| now.since(*at).0 / 1_000));
}

fn report(service: &Service, node: &(ClientId, u64), second: u64) {
    let group = |number| ReportIn {
        group: format!("g{number}"),
        incarnation: 0,
        total: Ok(total(second).into()),
        waited: Vec::new(),
    };
    let reports = (0..GROUPS).map(group).collect();
    let request = RenewIn { seq: second, reports, ..RenewIn::default() };
    service.leasing().renew(node.0, node.1, request).unwrap();
}

#[test]
#[ignore = "a measurement of half a minute"]
fn a_hundred_thousand_pairs_a_second() {
    let etcd = servers::Etcd::start(3, &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(owned(&etcd, &folder.path().join("store")));
    let clock = Clock::start();
    let service = Service::load(Arc::clone(&store) as _, ServiceConfig::default(), clock.clone()).unwrap();
    let actor = Actor::new(Some("measure"), "loopback");
    for number in 0..GROUPS {
        let group =
            v1::Group { name: format!("g{number}"), ru_per_sec: "100000".to_owned(), ..v1::Group::default() };
        service.definitions().create_group(&actor, &group, false).unwrap();
    }
    let hello = |number| {
        let session = service.leasing().hello(&format!("node-{number}"), 1, "measure").unwrap();
        (session.client, session.session)
    };
    let nodes: Vec<(ClientId, u64)> = (0..NODES).map(hello).collect();
    let reports = Mutex::new(Reports { open: Vec::new(), took: Vec::new(), rows: 0 });
    let ends = AtomicBool::new(false);
    let mut before = (BTreeMap::new(), 0.0, 0);
    let all_members = || etcd.pids().into_iter().map(cpu).sum::<f64>();
    let beside = |name: &str, every_ms: u64, work: &(dyn Fn() + Sync)| {
        assert!(name.len() < 16);
        while !ends.load(Ordering::Relaxed) {
            work();
            park_timeout(Duration::from_millis(every_ms));
        }
    };
    scope(|scope| {
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let flushes = || flush(&service, &clock, &reports);
        let spawn = |name: &'static str, every_ms, work: Box<dyn Fn() + Sync + Send>| {
            named(name).spawn_scoped(scope, move || beside(name, every_ms, &*work)).unwrap()
        };
        let threads_of = [
            spawn("flushes", 500, Box::new(flushes)),
            spawn("checkpoints", 1_000, Box::new(|| assert!(store.checkpoint_if_due().is_ok()))),
            spawn("beats", 200, Box::new(|| store.beat().unwrap())),
        ];
        let begun = clock.now();
        for second in 1..=ROUNDS {
            for (at, node) in (0..).zip(&nodes) {
                let due = begun.after(Span((second * NODES + at) * 1_000_000 / NODES));
                let early = due.since(clock.now());
                park_timeout(Duration::from_micros(early.0));
                report(&service, node, second);
                reports.lock().unwrap().open.push(clock.now());
            }
            if second == 1 {
                flush(&service, &clock, &reports);
                let mut reports = reports.lock().unwrap();
                (reports.rows, reports.took) = (0, Vec::new());
                before = (threads(), all_members(), logged(&store));
            }
        }
        let (mut after, members) = (threads(), all_members() - before.1);
        ends.store(true, Ordering::Relaxed);
        threads_of.iter().for_each(|thread| thread.thread().unpark());
        let seconds = (ROUNDS - 1) as f64;
        let mut reports = reports.lock().unwrap();
        for (name, cpu) in &mut after {
            *cpu -= before.0.get(name).copied().unwrap_or_default();
        }
        // The thread of the test makes the reports.
        let ours = after
            .iter()
            .filter(|(name, _)| !name.starts_with("logged::a_hun"))
            .map(|(_, cpu)| cpu)
            .sum::<f64>();
        reports.took.sort_unstable();
        let at = |part: usize| reports.took[(reports.took.len() - 1) * part / 100];
        let bytes = logged(&store) - before.2;
        println!("load average: {}", fs::read_to_string("/proc/loadavg").unwrap().trim());
        println!("rows a second: {:.0}", reports.rows as f64 / seconds);
        println!("bytes of log for each row: {:.1}", bytes as f64 / reports.rows as f64);
        println!("cores, controller: {:.3} ({after:.2?})", ours / seconds);
        println!("cores, all members of etcd: {:.3}", members / seconds);
        println!("durable after, ms: p50 {}, p99 {}, longest {}", at(50), at(99), at(100));
    });
}
