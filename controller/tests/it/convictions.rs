//! Watches and records of runaways beside a naive model of them: convictions, what operators add and remove, ends, disks
//! that fill up, crashes and clean restarts. After each step all that can be read must be what plain maps say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::limits::CONVICTION_WINDOW_MS;
use tidegate_controller::service::Service;
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, actor, started, stories};

const SEEDS: u64 = 150;
const STEPS: u64 = 80;
const MINUTE_MS: u64 = 60_000;
/// Groups, the way in which their rules watch, and for how long in minutes; 0 is for ever.
const GROUPS: [(&str, &str, u64); 3] = [("a", "similar", 10), ("b", "exact", 0), ("c", "", 0)];

/// Group, way of matching, digest.
type Key = (&'static str, &'static str, String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Watch {
    key: Key,
    /// `u64::MAX` is never.
    ends: u64,
    manual: bool,
}

/// Group, fingerprint, way of finding; first, last, repeats.
type Record = ((&'static str, u64, &'static str), u64, u64, u64);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    watches: BTreeMap<u64, Watch>,
    /// The oldest first.
    records: Vec<Record>,
}

struct Story {
    random: StdRng,
    now: Arc<AtomicU64>,
    disk: Arc<Faulty>,
    service: Service,
    live: Model,
    kept: Model,
    /// Whether commits of this step fail.
    full: bool,
}

fn digest(matching: &str, statement: u64) -> String {
    let width = if matching == "exact" { 64 } else { 16 };
    format!("{:0width$x}", statement + 1)
}

impl Model {
    fn find(&self, key: &Key) -> Option<u64> {
        self.watches.iter().find(|(_, watch)| watch.key == *key).map(|(id, _)| *id)
    }
}

impl Story {
    fn begin(seed: u64) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
        let service = started(&disk, &now);
        for (name, watch, minutes) in GROUPS {
            let (watch, watch_us) = (watch.into(), minutes * MINUTE_MS * 1_000);
            let limit =
                v1::QueryLimit { rows: 5, action: "kill".into(), watch, watch_us, ..Default::default() };
            let query_limit = (name != "c").then_some(limit);
            let group =
                v1::Group { name: name.into(), ru_per_sec: "5".into(), query_limit, ..Default::default() };
            service.definitions().create_group(&actor(), &group, false).unwrap();
        }
        let random = StdRng::seed_from_u64(seed);
        Self { random, now, disk, service, live: Model::default(), kept: Model::default(), full: false }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.random_range(0..end)
    }

    fn unix_ms(&self) -> u64 {
        self.service.clock().unix_ms()
    }

    fn step(&mut self) -> String {
        self.full = self.below(5) == 0;
        self.disk.fill(self.full);
        let what = match self.below(16) {
            0..6 => self.convict(),
            6..8 => self.add(),
            8 => self.remove(),
            9 => self.remove_all(),
            10..12 => self.pass(),
            12 => self.expire(),
            13..15 => self.flush(),
            _ => self.restart(),
        };
        format!("{what}, full: {}", self.full)
    }

    fn convict(&mut self) -> String {
        let (group, watch, minutes) = GROUPS[self.random.random_range(0..GROUPS.len())];
        let (statement, now) = (self.below(3), self.unix_ms());
        let found = if self.below(3) == 0 { "watch" } else { "identify" };
        let request = v1::ConvictRequest {
            gateway: "gw".into(),
            group: group.into(),
            r#match: found.into(),
            action: "kill".into(),
            fingerprint: digest("similar", statement),
            text_sha256: digest("exact", statement),
            ..Default::default()
        };
        let what = format!("conviction of {statement} in {group}: {found}");
        let covering = self.service.statements().convict(&request).unwrap();
        let of = |matching: &'static str| (group, matching, digest(matching, statement));
        if found == "identify" && !watch.is_empty() {
            let key = of(watch);
            let length = minutes * MINUTE_MS;
            let ends = if minutes == 0 { u64::MAX } else { now + length };
            match self.live.find(&key) {
                None => {
                    let id = covering.unwrap();
                    assert!(!self.live.watches.contains_key(&id), "{what}: {id} is another's");
                    self.live.watches.insert(id, Watch { key, ends, manual: false });
                }
                Some(id) => {
                    assert_eq!(covering, Some(id), "{what}");
                    let known = self.live.watches.get_mut(&id).unwrap();
                    // Ends move in steps of a tenth.
                    if ends.saturating_sub(known.ends) > length / 10 {
                        known.ends = ends;
                    }
                }
            }
        } else {
            let expected = self.live.find(&of("exact")).or_else(|| self.live.find(&of("similar")));
            assert_eq!(covering, expected, "{what}");
        }
        let key = (group, statement, found);
        match self.live.records.iter_mut().rev().find(|record| record.0 == key) {
            Some((_, first, last, repeats)) if now - *first < CONVICTION_WINDOW_MS => {
                (*last, *repeats) = (now, *repeats + 1);
            }
            _ => self.live.records.push((key, now, now, 1)),
        }
        what
    }

    fn add(&mut self) -> String {
        let (group, ..) = GROUPS[self.random.random_range(0..GROUPS.len())];
        let (matching, statement) = (["exact", "similar"][self.random.random_range(0..2)], self.below(3));
        let minutes = self.below(3) * 7;
        let end_unix_ms = if minutes == 0 { 0 } else { self.unix_ms() + minutes * MINUTE_MS };
        let text = v1::Watch {
            group: group.into(),
            r#match: matching.into(),
            digest: digest(matching, statement),
            action: "dryrun".into(),
            end_unix_ms,
            ..Default::default()
        };
        let what = format!("watch {statement} in {group}, {matching}, for {minutes} minutes");
        let done = self.service.statements().add_watch(&actor(), &text);
        assert_eq!(done.is_ok(), !self.full, "{what}: {:?}", done.err());
        if let Ok(watch) = done {
            let key = (group, matching, digest(matching, statement));
            match self.live.find(&key) {
                Some(id) => assert_eq!(watch.id, id, "{what}: it replaces the other under its id"),
                None => {
                    assert!(!self.live.watches.contains_key(&watch.id), "{what}: {} is another's", watch.id)
                }
            }
            let ends = if minutes == 0 { u64::MAX } else { end_unix_ms };
            for model in [&mut self.live, &mut self.kept] {
                model.watches.insert(watch.id, Watch { key: key.clone(), ends, manual: true });
            }
        }
        what
    }

    fn remove(&mut self) -> String {
        let id = self.below(12) + 1;
        let done = self.service.statements().remove_watch(&actor(), id, "");
        self.removed(format!("remove watch {id}"), |of, _| of == id, done.ok())
    }

    fn remove_all(&mut self) -> String {
        let (group, ..) = GROUPS[self.random.random_range(0..GROUPS.len())];
        let done = self.service.statements().remove_watch(&actor(), 0, group);
        self.removed(format!("remove watches of {group}"), |_, watch| watch.key.0 == group, done.ok())
    }

    fn removed(&mut self, what: String, goes: impl Fn(u64, &Watch) -> bool, done: Option<usize>) -> String {
        let gone: Vec<u64> =
            self.live.watches.iter().filter(|(id, watch)| goes(**id, watch)).map(|(id, _)| *id).collect();
        let expected = (gone.is_empty() || !self.full).then_some(gone.len());
        assert_eq!(done, expected, "{what}");
        for id in gone.into_iter().filter(|_| done.is_some()) {
            self.live.watches.remove(&id);
            self.kept.watches.remove(&id);
        }
        what
    }

    fn pass(&mut self) -> String {
        let ms = self.below(5 * MINUTE_MS);
        self.now.fetch_add(ms * 1_000, Ordering::SeqCst);
        format!("{ms} ms pass")
    }

    fn expire(&mut self) -> String {
        self.service.leasing().expire();
        let now = self.unix_ms();
        self.live.watches.retain(|_, watch| now < watch.ends);
        "expiry".into()
    }

    fn flush(&mut self) -> String {
        let done = self.service.upkeep().flush();
        assert!(self.full || done.is_ok(), "{done:?}");
        if done.is_ok() && !self.full {
            self.kept = self.live.clone();
        } else if done.is_ok() {
            assert_eq!(self.kept, self.live, "what is not stored is confirmed");
        }
        "flush".into()
    }

    fn restart(&mut self) -> String {
        let clean = self.below(2) == 0;
        if clean && self.service.shut_down().is_ok() {
            assert!(!self.full || self.kept == self.live, "what is not stored is confirmed");
            self.kept = self.live.clone();
        }
        self.disk.full.store(false, Ordering::SeqCst);
        self.service = started(&self.disk, &self.now);
        self.live = self.kept.clone();
        // The end of one may not be stored when another of the same statement is.
        let newer =
            |id: u64, key: &Key| self.kept.watches.range(id + 1..).any(|(_, other)| other.key == *key);
        self.live.watches.retain(|id, watch| !newer(*id, &watch.key));
        format!("restart, clean: {clean}")
    }

    fn check(&self, what: &str) {
        let name = |of: &str| GROUPS.iter().map(|(name, ..)| *name).find(|name| *name == of).unwrap();
        let way = |of: &str| if of == "exact" { "exact" } else { "similar" };
        let read = |watch: v1::Watch| {
            let ends = if watch.end_unix_ms == 0 { u64::MAX } else { watch.end_unix_ms };
            let key = (name(&watch.group), way(&watch.r#match), watch.digest);
            (watch.id, Watch { key, ends, manual: watch.source == "manual" })
        };
        let statements = self.service.statements();
        let all: BTreeMap<u64, Watch> = statements.watches("").unwrap().into_iter().map(read).collect();
        assert_eq!(all, self.live.watches, "after {what}");
        for (group, ..) in GROUPS {
            let some: BTreeMap<u64, Watch> =
                statements.watches(group).unwrap().into_iter().map(read).collect();
            let of_group = self.live.watches.clone().into_iter().filter(|(_, watch)| watch.key.0 == group);
            assert_eq!(some, of_group.collect(), "{group} after {what}");
        }
        let records: Vec<Record> = statements
            .runaways("", 1_000)
            .unwrap()
            .into_iter()
            .rev()
            .map(|row| {
                let of = row.conviction.unwrap();
                let statement = u64::from_str_radix(&of.fingerprint, 16).unwrap() - 1;
                let found = if of.r#match == "watch" { "watch" } else { "identify" };
                ((name(&of.group), statement, found), row.first_unix_ms, row.last_unix_ms, row.repeats)
            })
            .collect();
        assert_eq!(records, self.live.records, "after {what}");
    }
}

#[test]
fn watches_and_records_are_what_a_naive_model_says_after_any_failures_and_crashes() {
    for seed in stories(SEEDS) {
        let mut story = Story::begin(seed);
        for step in 0..STEPS {
            let what = format!("step {step} of seed {seed}: {}", story.step());
            story.check(&what);
        }
    }
}
