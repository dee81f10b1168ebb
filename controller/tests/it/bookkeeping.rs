//! Accounts and nodes beside a naive model of them: reports of any kind and order, starts that take over, groups that
//! come and go under one name, nodes that are forgotten or folded, disks that fill up, crashes and clean restarts. After
//! each step all that can be read must be what plain maps say: every RU counts once, and once it is confirmed for good.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{EntryIn, RenewIn, ReportIn, Sent, Service, ServiceConfig, Session};
use tidegate_controller::store::Store;
use tidegate_core::exchange::Ask;
use tidegate_core::units::{RuTotal, Span, Time};
use tidegate_core::usage::{Parts, Total};
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, actor, stories};

const SEEDS: u64 = 400;
const STEPS: u64 = 120;
const NODES: [&str; 3] = ["a", "b", "c"];
const GROUPS: [&str; 3] = ["default", "web", "api"];
/// More than any process uses in the longest story.
const CLAIM: u128 = 1_000_000_000_000_000_000_000_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const WEEK: u64 = 7 * 24 * HOUR;

/// A node, and the number of its start.
type Start = (&'static str, u64);

/// What a start reported, by the name of the group, however often that was removed.
#[derive(Clone, Debug, Default)]
struct Known {
    reported: BTreeMap<&'static str, u128>,
    /// The next flush stores it, unless it did so less than a minute of its life ago.
    unstored: bool,
    /// As of when it is on disk.
    stored: Option<u64>,
    heard: u64,
    /// Since the controller started.
    heard_now: bool,
}

#[derive(Clone, Debug, Default)]
struct Account {
    total: u128,
    apart: u128,
    by: BTreeMap<Start, (u128, u128)>,
    hours: BTreeMap<u64, u128>,
}

/// What a controller knows, or what is on disk.
#[derive(Clone, Debug)]
struct Books {
    groups: BTreeMap<&'static str, Account>,
    starts: BTreeMap<Start, Known>,
    /// Starts below these are folded.
    oldest: BTreeMap<&'static str, u64>,
}

struct Stream {
    number: u64,
    session: Session,
    seq: u64,
    /// The newest renewal whose reports are on disk.
    durable: u64,
    /// When a renewal came that had not waited.
    prompt: Option<u64>,
}

struct Story {
    random: StdRng,
    now: Arc<AtomicU64>,
    began: u64,
    disk: Arc<Faulty>,
    service: Option<Service>,
    streams: BTreeMap<&'static str, Stream>,
    live: Books,
    kept: Books,
    /// Folded, and not on disk yet.
    folding: BTreeMap<Start, Known>,
    /// Charges that the next flush stores.
    dirty: bool,
    rates: BTreeMap<&'static str, BTreeMap<u64, u128>>,
    /// Commits that succeed in this step; `None`: all.
    commits: Option<u64>,
    weeks: u64,
}

impl Story {
    fn begin(seed: u64) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
        let groups = BTreeMap::from([("default", Account::default())]);
        let books = Books { groups, starts: BTreeMap::new(), oldest: BTreeMap::new() };
        let mut story = Self {
            random: StdRng::seed_from_u64(seed),
            now,
            began: 0,
            disk,
            service: None,
            streams: BTreeMap::new(),
            live: books.clone(),
            kept: books,
            folding: BTreeMap::new(),
            dirty: false,
            rates: BTreeMap::new(),
            commits: None,
            weeks: 0,
        };
        story.start();
        story
    }

    fn start(&mut self) {
        self.service = None;
        self.disk.full.store(false, Ordering::SeqCst);
        let store = Arc::clone(&self.disk) as Arc<dyn Store>;
        let clock = Clock::driven(Arc::clone(&self.now));
        self.service = Some(Service::load(store, ServiceConfig::default(), clock).unwrap());
        self.began = self.now();
        self.live = self.kept.clone();
        for known in self.live.starts.values_mut() {
            (known.heard, known.heard_now, known.unstored) = (known.stored.unwrap(), false, false);
        }
        self.streams.clear();
        self.folding.clear();
        self.rates.clear();
        self.dirty = false;
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

    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[self.random.random_range(0..of.len())]
    }

    /// Whether the next commit of this step succeeds.
    fn commits(&mut self) -> bool {
        match &mut self.commits {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// The model of a flush. A refused or repeated report needs no disk.
    fn flushed(&mut self) -> bool {
        let pending = self.live.starts.values().chain(self.folding.values()).any(|known| known.unstored);
        let again = |known: &&mut Known| known.stored.is_none_or(|stored| known.heard - stored >= MINUTE);
        let aged = self.live.starts.values_mut().filter(|known| known.unstored);
        let aged: Vec<_> = aged.filter(again).collect();
        let leaving = self.folding.values().any(|known| known.stored.is_none());
        if !aged.is_empty() || self.dirty || (leaving && pending) {
            if self.commits == Some(0) {
                return false;
            }
            aged.into_iter().for_each(|known| known.stored = Some(known.heard));
            for known in self.folding.values_mut() {
                known.stored.get_or_insert(known.heard);
            }
            self.dirty = false;
            self.commits();
            for (start, known) in self.live.starts.iter().chain(&self.folding) {
                // A deleted group may have stored it.
                let before = self.kept.starts.get(start).and_then(|kept| kept.stored);
                if let Some(stored) = known.stored.or(before) {
                    self.kept.starts.insert(*start, Known { stored: Some(stored), ..known.clone() });
                }
            }
            self.kept.groups.clone_from(&self.live.groups);
        }
        let starts = self.live.starts.values_mut().chain(self.folding.values_mut());
        starts.for_each(|known| known.unstored = false);
        self.streams.values_mut().for_each(|stream| stream.durable = stream.seq);
        true
    }

    /// Forgets starts, as far as commits succeed. Whether all did.
    fn fold(&mut self, gone: BTreeSet<Start>) -> bool {
        for start in gone {
            let oldest = self.live.oldest.entry(start.0).or_default();
            *oldest = (*oldest).max(start.1 + 1);
            self.folding.extend(self.live.starts.remove_entry(&start));
        }
        if self.folding.is_empty() {
            return true;
        }
        if !self.flushed() || !self.commits() {
            return false;
        }
        for start in std::mem::take(&mut self.folding).into_keys() {
            self.kept.starts.remove(&start);
            for books in [&mut self.live, &mut self.kept] {
                for account in books.groups.values_mut() {
                    account.by.remove(&start);
                }
            }
            let oldest = self.kept.oldest.entry(start.0).or_default();
            *oldest = (*oldest).max(start.1 + 1);
        }
        true
    }

    fn step(&mut self) -> String {
        let kind = self.below(24);
        // What takes several commits is cut short more often.
        let often = if (18..21).contains(&kind) { 2 } else { 6 };
        self.commits = (self.below(often) == 0).then(|| self.random.random_range(0..4));
        self.disk.last.store(self.commits.unwrap_or_default(), Ordering::SeqCst);
        self.disk.full.store(self.commits.is_some(), Ordering::SeqCst);
        let what = match kind {
            0..3 => self.hello(),
            3..11 => self.renew(),
            11 => self.leave(),
            12..14 => self.flush(),
            14 => self.history(),
            15..17 => self.create(),
            17 => self.delete(),
            18..20 => self.forget(),
            20 => self.tidy(),
            21..23 => self.pass(),
            _ => self.restart(),
        };
        format!("{what}, with {:?} commits", self.commits)
    }

    fn hello(&mut self) -> String {
        let (node, at) = (self.one(&NODES), self.now());
        let newest = self.live.starts.keys().filter(|(of, _)| *of == node).map(|(_, number)| *number).max();
        let least = newest.unwrap_or_default().max(self.live.oldest.get(node).copied().unwrap_or_default());
        let number = (least + self.below(4)).saturating_sub(1).max(1);
        let what = format!("hello of {node} {number}");
        let folded = self.live.oldest.get(node).is_some_and(|oldest| number < *oldest);
        let allowed = newest.is_none_or(|newest| number >= newest)
            && (!folded || self.live.starts.contains_key(&(node, number)));
        let session = self.service().leasing().hello(node, number, "test");
        assert_eq!(session.is_ok(), allowed, "{what}: {:?}", session.err());
        if let Ok(session) = session {
            let known = self.live.starts.entry((node, number)).or_default();
            (known.heard, known.heard_now) = (at, true);
            self.streams.insert(node, Stream { number, session, seq: 0, durable: 0, prompt: None });
        }
        what
    }

    /// A report of a start of `node`, whose stream is of the start `number`; and whether it may count later, if not now.
    fn report(&mut self, node: &'static str, number: u64) -> (ReportIn, bool) {
        let group = self.one(&GROUPS);
        let of = if self.below(3) == 0 { number.saturating_sub(2) + self.below(4) } else { number };
        let before = self.live.starts.get(&(node, of)).and_then(|known| known.reported.get(group));
        let before = before.copied().unwrap_or_default();
        let new = u128::from(self.below(50)) * 1_000_000;
        let total = match self.below(12) {
            0..2 => before,
            2 => before.saturating_sub(new),
            3 => before + CLAIM,
            _ => before + new,
        };
        let of = if of == number && self.below(2) == 0 { 0 } else { of };
        let charged = Parts { write: RuTotal(total), ..Parts::default() };
        let report = ReportIn {
            group: group.into(),
            incarnation: of,
            total: Ok(Total { charged, ..Total::default() }),
            waited: Vec::new(),
        };
        let again = self.count((node, number), group, of, total);
        (report, again)
    }

    /// The model of a report. True: it is not counted, and may be later.
    fn count(&mut self, (node, number): Start, group: &'static str, of: u64, total: u128) -> bool {
        let at = self.now();
        let (hour, second) = (self.service().clock().unix_us() / HOUR, (at - self.began) / SECOND);
        if !self.live.groups.contains_key(group) {
            return false;
        }
        let start = (node, if of == 0 { number } else { of });
        if start.1 > number {
            return true;
        }
        let folded = self.live.oldest.get(node).is_some_and(|oldest| start.1 < *oldest);
        if folded && !self.live.starts.contains_key(&start) {
            return false;
        }
        let known = self.live.starts.entry(start).or_insert_with(|| Known { heard: at, ..Known::default() });
        let before = known.reported.entry(group).or_default();
        let Some(new) = total.checked_sub(*before) else { return true };
        *before = total;
        known.unstored |= new > 0;
        self.dirty |= new > 0;
        let account = self.live.groups.get_mut(group).unwrap();
        let by = account.by.entry(start).or_default();
        if new >= CLAIM / 2 {
            account.apart += new;
            by.1 += new;
        } else {
            account.total += new;
            by.0 += new;
            *account.hours.entry(hour).or_default() += new;
            *self.rates.entry(group).or_default().entry(second).or_default() += new;
        }
        false
    }

    fn renew(&mut self) -> String {
        let node = self.one(&NODES);
        let Some(number) = self.streams.get(node).map(|stream| stream.number) else {
            return "nothing".into();
        };
        let reports: Vec<(ReportIn, bool)> = (0..=self.below(3)).map(|_| self.report(node, number)).collect();
        let what = format!("reports of {node} {number}: {reports:?}");
        let again: Vec<_> =
            reports.iter().filter(|(_, again)| *again).map(|(report, _)| report.clone()).collect();
        let reports: Vec<ReportIn> = reports.into_iter().map(|(report, _)| report).collect();
        let leaves = self.below(6) == 0;
        let at = self.now();
        // Of a renewal that has waited for its turn for too long the reports count, and nothing else.
        let late = self.below(4) == 0 && self.streams[node].prompt.is_some_and(|prompt| at - prompt < HOUR);
        let known = self.live.starts.get_mut(&(node, number)).unwrap();
        known.unstored = true;
        let stream = self.streams.get_mut(node).unwrap();
        stream.seq += 1;
        let (seq, durable, leasing) = (stream.seq, stream.durable, self.service.as_ref().unwrap().leasing());
        let (client, session) = (stream.session.client, stream.session.session);
        let refused = if leaves {
            leasing.goodbye(client, session, seq, &reports).unwrap()
        } else {
            (known.heard, known.heard_now) = (at, true);
            let waited = if late { MINUTE } else { 0 };
            let sent = Sent { at: Time(at + HOUR - waited), answer_within: Span(MINUTE) };
            let entry = EntryIn { group: "default".into(), ask: Ok((Ask::default(), Vec::new())) };
            let entries = if late { vec![entry] } else { Vec::new() };
            let request = RenewIn { seq, reports, entries, sent: Some(sent), ..RenewIn::default() };
            let renewed = leasing.renew(client, session, request).unwrap();
            if !late {
                stream.prompt = Some(at);
            }
            assert_eq!((renewed.durable_seq, renewed.shed), (durable, late), "{what}");
            renewed.refused
        };
        let refused: Vec<_> = refused.into_iter().map(|of| (of.group, of.incarnation)).collect();
        let again: Vec<_> = again.into_iter().map(|of| (of.group, of.incarnation)).collect();
        assert_eq!(refused, again, "{what}");
        what
    }

    fn leave(&mut self) -> String {
        let node = self.one(&NODES);
        if let Some(stream) = self.streams.remove(node) {
            self.service().leasing().disconnect(stream.session.client, stream.session.session);
        }
        format!("{node} leaves")
    }

    fn flush(&mut self) -> String {
        let done = self.service().upkeep().flush();
        let stored = self.flushed();
        assert!(stored || done.is_err(), "what is not stored is confirmed");
        assert!(self.commits.is_some() || done.is_ok(), "{done:?}");
        "flush".into()
    }

    /// Reading the history flushes; it has what is on disk.
    fn history(&mut self) -> String {
        let group = self.one(&GROUPS);
        let read = self.service().accounts().usage_history(group, "hour", 0, 0);
        if !self.live.groups.contains_key(group) {
            assert!(read.is_err());
            return format!("no history of {group}");
        }
        self.flushed();
        let read: BTreeMap<u64, u128> = read
            .unwrap()
            .into_iter()
            .map(|(start, _, amount)| (start / 3_600, amount.charged.write.0))
            .collect();
        let mut hours = self.kept.groups[group].hours.clone();
        hours.retain(|_, amount| *amount > 0);
        assert_eq!(read, hours, "history of {group}");
        format!("history of {group}")
    }

    fn create(&mut self) -> String {
        let name = self.one(&GROUPS);
        let group = v1::Group { name: name.into(), ru_per_sec: "5".into(), ..v1::Group::default() };
        let done = self.service().definitions().create_group(&actor(), &group, false);
        let allowed = !self.live.groups.contains_key(name) && self.commits();
        assert_eq!(done.is_ok(), allowed, "create {name}: {:?}", done.err());
        if allowed {
            for books in [&mut self.live, &mut self.kept] {
                books.groups.insert(name, Account::default());
            }
        }
        format!("create {name}")
    }

    fn delete(&mut self) -> String {
        let name = self.one(&GROUPS);
        let done = self.service().definitions().delete_group(&actor(), name, "", 0, false);
        let allowed = name != "default" && self.live.groups.contains_key(name) && self.commits();
        assert_eq!(done.is_ok(), allowed, "delete {name}: {:?}", done.err());
        if allowed {
            for (start, known) in self.live.starts.iter_mut().chain(&mut self.folding) {
                let Some(reported) = known.reported.get(name) else { continue };
                let stored = known.stored.or(Some(known.heard));
                let fresh = || Known { stored, heard: known.heard, ..Known::default() };
                let kept = self.kept.starts.entry(*start).or_insert_with(fresh);
                // A start that was never stored for itself is stored with each group's last report, as heard by then.
                if known.stored.is_none() {
                    (kept.stored, kept.heard) = (stored, known.heard);
                }
                kept.reported.insert(name, *reported);
            }
            self.live.groups.remove(name);
            self.kept.groups.remove(name);
            self.rates.remove(name);
        }
        format!("delete {name}")
    }

    /// `tidegate client forget`.
    fn forget(&mut self) -> String {
        let (node, late) = (self.one(&NODES), self.below(2) == 0);
        if late {
            self.now.fetch_add(MINUTE, Ordering::SeqCst);
        }
        let (now, began) = (self.now(), self.began);
        let starts = self.live.starts.iter().filter(|(start, _)| start.0 == node);
        // A controller that died may have heard it for another minute without writing that down.
        let since =
            |known: &Known| if known.heard_now { known.heard } else { (known.heard + MINUTE).min(began) };
        let lately = starts.clone().any(|(_, known)| now - since(known) < MINUTE);
        let starts: BTreeSet<Start> = starts.map(|(start, _)| *start).collect();
        let connected = self.streams.contains_key(node);
        let done = self.service().accounts().forget_clients(&actor(), &[node.to_owned()]);
        let allowed = !starts.is_empty() && !connected && !lately && self.commits() && self.fold(starts);
        assert_eq!(done.is_ok(), allowed, "forget {node}: {:?}", done.err());
        format!("forget {node}")
    }

    /// Stores everything, and folds what was silent for a week.
    fn tidy(&mut self) -> String {
        let done = self.service().upkeep().tidy();
        let allowed = self.flushed() && self.commits() && {
            let silent = |(start, known): (&Start, &Known)| {
                let connected = self.streams.get(start.0).is_some_and(|stream| stream.number == start.1);
                (!connected && self.now() - known.heard > WEEK).then_some(*start)
            };
            let silent: Vec<Start> = self.live.starts.iter().filter_map(silent).collect();
            let below = |start: &&Start| silent.iter().any(|of| of.0 == start.0 && start.1 <= of.1);
            let gone = self.live.starts.keys().filter(below).copied().collect();
            self.fold(gone)
        };
        assert_eq!(done.is_ok(), allowed, "{done:?}");
        "tidy".into()
    }

    fn pass(&mut self) -> String {
        let passed = match self.below(40) {
            0 if self.weeks < 9 => {
                self.weeks += 1;
                WEEK + 24 * HOUR
            }
            0..3 => HOUR,
            _ => self.below(4 * SECOND),
        };
        self.now.fetch_add(passed, Ordering::SeqCst);
        format!("{passed} us pass")
    }

    fn restart(&mut self) -> String {
        let clean = self.below(2) == 0;
        if clean {
            let done = self.service().shut_down();
            self.flushed();
            assert!(self.commits.is_some() || done.is_ok(), "{done:?}");
        }
        self.start();
        format!("restart, clean: {clean}")
    }

    /// All that can be read is what the model says.
    fn check(&self, what: &str) {
        let leasing = self.service().leasing();
        let nodes: BTreeMap<(String, u64), bool> =
            leasing.clients().0.into_iter().map(|row| ((row.name, row.incarnation), row.connected)).collect();
        let connected = |start: &Start| self.streams.get(start.0).is_some_and(|of| of.number == start.1);
        let known = self.live.starts.keys().map(|start| ((start.0.to_owned(), start.1), connected(start)));
        assert_eq!(nodes, known.collect(), "nodes after {what}");
        let second = (self.now() - self.began) / SECOND;
        let mut expected = BTreeMap::new();
        for (name, account) in &self.live.groups {
            if account.total + account.apart > 0 {
                let rate = self.rates.get(name).map_or(0, |of| {
                    of.range(second.saturating_sub(5)..second).map(|(_, amount)| *amount).sum::<u128>() / 5
                });
                expected.insert((*name, None), (account.total, account.apart, Some(rate)));
            }
            let by = account.by.iter().filter(|(start, (charged, apart))| {
                charged + apart > 0 && self.live.starts.contains_key(start)
            });
            expected.extend(by.map(|(start, (charged, apart))| {
                ((*name, Some((start.0.to_owned(), start.1))), (*charged, *apart, None))
            }));
        }
        let (rows, truncated) = self.service().accounts().usage("", true).unwrap();
        assert!(!truncated);
        let read: BTreeMap<_, _> = rows
            .iter()
            .map(|row| {
                let rate = row.client.is_none().then(|| row.live.0.unsigned_abs().into());
                let sums = (row.total.charged.write.0, row.apart.charged.write.0, rate);
                ((row.group.as_str(), row.client.clone()), sums)
            })
            .collect();
        assert_eq!(read, expected, "usage after {what}");
        for name in GROUPS {
            let one = self.service().accounts().usage(name, false);
            let account = self.live.groups.get(name);
            let total = one.ok().map(|(rows, _)| rows[0].total.charged.write.0);
            assert_eq!(total, account.map(|account| account.total), "usage of {name} after {what}");
        }
    }
}

#[test]
fn every_ru_counts_once_after_any_reports_failures_and_crashes() {
    for seed in stories(SEEDS) {
        let mut story = Story::begin(seed);
        for step in 0..STEPS {
            let what = format!("step {step} of seed {seed}: {}", story.step());
            story.check(&what);
        }
    }
}
