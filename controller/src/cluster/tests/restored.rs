//! A cluster whose shared store was set back, in virtual time: what the log says when it goes on, who prevents that, and
//! that it can be cut off anywhere.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_consensus::model::{Fault, Model};
use tidegate_consensus::{Consensus, ConsensusError, Outcome, Page, Step, Transaction};
use tidegate_core::engine::EngineConfig;
use tidegate_core::group::GroupId;
use tidegate_core::units::{RuTotal, Span};
use tidegate_core::usage::{Parts, Total};
use tidegate_proto::v1;

use super::super::restored::{Restored, RestoredError, Restoring};
use crate::audit::Actor;
use crate::clock::Clock;
use crate::service::{Service, ServiceConfig, Succession};
use crate::store::records::{
    META_CLEAN, META_EPOCH, META_LONGEST_TTL, META_NEXT_GROUP, META_REVISION, consumption_bytes, group_key,
    number, u64_key,
};
use crate::store::replicated::{
    FilePlace, Follower, MemberRecord, Members, Owner, ReplicatedStore, Settings,
};
use crate::store::{RedbStore, Store, StoreError, Table, Write};

pub(super) const CLOCKS: EngineConfig = EngineConfig { drift_ppm: 1_000, margin: Span::millis(50) };
pub(super) const LONGER: Span = Span::secs(30);
/// RU that are counted after the backup.
const COUNTED: u128 = 7_000_000;

pub(super) struct Scene {
    pub(super) model: Arc<Model>,
    pub(super) now: Arc<AtomicU64>,
    folder: TempDir,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self { model: Arc::default(), now: Arc::default(), folder: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Time passes while a caller waits, and something happens meanwhile.
    fn settings(&self, meanwhile: impl Fn() + Send + Sync + 'static) -> Settings {
        let now = Arc::clone(&self.now);
        let pause = move || {
            now.fetch_add(20_000, Ordering::Relaxed);
            meanwhile();
        };
        let settings = Settings::new(Clock::driven(Arc::clone(&self.now)), Span::secs(10));
        Settings { pause: Arc::new(pause), ..settings }
    }

    pub(super) fn follow(&self, name: &str) -> Result<Follower, StoreError> {
        let place = Arc::new(FilePlace::new(&self.path(name)));
        Follower::follow(Arc::<Model>::clone(&self.model), "t/", place, self.settings(|| ()), false)
    }

    /// A controller that takes the log, with its file.
    pub(super) fn leads(&self, name: &str) -> (Arc<ReplicatedStore>, Service) {
        let follower = self.follow(name).unwrap();
        let seen = follower.look().unwrap();
        let store = Arc::new(follower.take(&seen, &owner(name)).unwrap());
        let config = ServiceConfig {
            instance: Some(rand::random::<u64>().max(1)),
            succession: Succession::Cluster { silent: true },
            ..ServiceConfig::default()
        };
        let clock = Clock::driven(Arc::clone(&self.now));
        let service = Service::load(Arc::<ReplicatedStore>::clone(&store), config, clock).unwrap();
        (store, service)
    }

    /// A log that was set back behind the file of `a`, which led it to its end. What `a` stored since: a group with
    /// longer leases, consumption, and its leases at a clean stop.
    pub(super) fn set_back(&self) {
        let (store, service) = self.leads("a");
        create(&service, "shop", Span::secs(5));
        let backup = self.model.revision();
        create(&service, "later", LONGER);
        let charged = Parts { flat: RuTotal(COUNTED), ..Parts::default() };
        let total = Total { charged, operations: 7, ..Total::default() };
        let row = [u64_key(9), group_key(GroupId(2))].concat();
        store.commit(&[Write::Put(Table::Ledger, row, consumption_bytes(&total))]).unwrap();
        // A standby that is as far.
        drop(self.follow("b").unwrap());
        service.shut_down().unwrap();
        store.leave().unwrap();
        self.model.set_back(backup);
    }

    fn restoring(&self, consensus: Arc<dyn Consensus>, settings: Settings) -> Restoring {
        Restoring {
            path: self.path("a"),
            consensus,
            prefix: "t/".to_owned(),
            settings,
            clocks: CLOCKS,
            me: owner("restored"),
            actor: Actor::new(Some("ann"), "here"),
        }
    }

    pub(super) fn restore(&self) -> Result<Restored, RestoredError> {
        self.restore_while(|| ())
    }

    pub(super) fn restore_while(
        &self,
        meanwhile: impl Fn() + Send + Sync + 'static,
    ) -> Result<Restored, RestoredError> {
        self.restoring(Arc::<Model>::clone(&self.model), self.settings(meanwhile)).run()
    }

    fn refused(&self, meanwhile: impl Fn() + Send + Sync + 'static) -> String {
        let before = self.model.revision();
        let error = self.restore_while(meanwhile).unwrap_err().to_string();
        assert!(!self.path("a.restoring").exists() && self.model.revision() >= before);
        error
    }

    fn members(&self) -> Members {
        Members::new(Arc::<Model>::clone(&self.model), "t/", self.settings(|| ())).unwrap()
    }
}

pub(super) fn owner(name: &str) -> Owner {
    let instance = rand::random::<u64>().max(1);
    Owner { controller: name.to_owned(), instance, addresses: Vec::new(), fence_ms: 1_000, clean: false }
}

pub(super) fn create(service: &Service, name: &str, ttl: Span) {
    let group = v1::Group {
        name: name.to_owned(),
        ru_per_sec: "100".to_owned(),
        ttl_us: ttl.0,
        ..v1::Group::default()
    };
    service.definitions().create_group(&Actor::new(None, "here"), &group, false).unwrap();
}

pub(super) fn said(store: &dyn Store, key: &[u8]) -> Option<u64> {
    let rows = store.get(Table::Meta, &[key.to_vec()]).unwrap();
    rows.into_iter().next().flatten().map(|value| number(&value).unwrap())
}

#[test]
fn a_cluster_goes_on_with_later_numbers_and_waits_for_leases_that_it_does_not_know() {
    let scene = Scene::new();
    scene.set_back();
    let error = scene.follow("a").unwrap_err().to_string();
    assert!(error.contains("was set back") && error.contains("`tidegate cluster restored`"), "{error}");
    let file = RedbStore::peek(&scene.path("a")).unwrap();
    let [epoch, revision, next] =
        [META_EPOCH, META_REVISION, META_NEXT_GROUP].map(|key| said(&file, key).unwrap());
    drop(file);

    let restored = scene.restore().unwrap();
    assert!(restored.epoch > epoch && restored.kept < restored.had, "{restored:?}");
    assert_eq!((restored.lost.ru, restored.lost.changes), (RuTotal(COUNTED), 1));
    assert_eq!(restored.lost.groups, [("shop".to_owned(), RuTotal(COUNTED))]);
    let lost: Vec<_> = restored.lost.newest.iter().map(|entry| entry.subject.as_str()).collect();
    assert_eq!(lost, ["later"]);
    assert_eq!(restored.aside, scene.path("a.replaced-1"));
    assert!(!scene.path("a").exists() && !scene.path("a.restoring").exists());
    assert_eq!(said(&RedbStore::peek(&restored.aside).unwrap(), META_EPOCH), Some(epoch));

    let follower = scene.follow("a").unwrap();
    let log = follower.local();
    assert_eq!(said(log, META_EPOCH), Some(restored.epoch));
    assert!(said(log, META_REVISION) > Some(revision) && said(log, META_NEXT_GROUP) == Some(next));
    assert_eq!(said(log, META_LONGEST_TTL), Some(LONGER.0));
    assert_eq!(log.get(Table::Meta, &[META_CLEAN.to_vec()]).unwrap(), [None]);
    assert!(follower.look().unwrap().owner.is_some_and(|owner| owner.clean), "nobody is to be waited for");
    drop(follower);

    let (_store, service) = scene.leads("a");
    let status = service.status();
    assert!(status.epoch > restored.epoch, "{}", status.epoch);
    // `default` and `shop`: the group with these leases is not there any more.
    assert_eq!((status.groups, status.recovery), (2, CLOCKS.longest_use(LONGER)));
    let entry = service.definitions().audit_log("", 0, 1).unwrap().remove(0);
    assert_eq!((entry.action.as_str(), entry.subject.as_str()), ("restore cluster", "cluster under t/"));
    assert_eq!(entry.comment, "ann");
    // Another file that was ahead is built again, and kept.
    let other = scene.follow("b").unwrap();
    assert_eq!(said(other.local(), META_EPOCH), Some(status.epoch));
    assert_eq!(said(&RedbStore::peek(&scene.path("b.replaced")).unwrap(), META_EPOCH), Some(epoch));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let scene = Scene::new();
    let refused = scene.refused(|| ());
    assert!(refused.starts_with(&format!("there is no store {};", scene.path("a").display())), "{refused}");
}

#[test]
fn who_runs_is_named_and_nothing_is_changed() {
    let scene = Scene::new();
    scene.set_back();
    let (follower, times) = (scene.follow("c").unwrap(), AtomicU64::new(0));
    let seen = follower.look().unwrap();
    let leader = Arc::new(follower.take(&seen, &owner("c")).unwrap());
    let beats = Arc::clone(&leader);
    let error = scene.refused(move || {
        if times.fetch_add(1, Ordering::Relaxed) == 40 {
            beats.beat().unwrap();
        }
    });
    assert!(error.contains("controller c leads the cluster under t/; stop all"), "{error}");

    let members = scene.members();
    let record = |name: &str, instance| MemberRecord {
        controller: name.to_owned(),
        instance,
        addresses: vec![format!("http://{name}:7420")],
        version: "1".to_owned(),
        unix_ms: 0,
    };
    // One that was killed stays in the list for ever.
    members.write(&record("killed", 1), 0).unwrap();
    let times = AtomicU64::new(0);
    let error = scene.refused(move || {
        if times.fetch_add(1, Ordering::Relaxed) == 100 {
            members.write(&record("d", 2), 0).unwrap();
        }
    });
    assert!(error.contains("controller d at http://d:7420 of the cluster under t/ runs"), "{error}");
    assert!(scene.path("a").exists());
    // Nothing moves any more, so it goes on.
    scene.restore().unwrap();
    assert!(leader.beat().is_err(), "the log has another owner");
}

#[test]
fn a_file_that_is_none_of_a_set_back_log_is_refused_and_says_what_to_do() {
    let scene = Scene::new();
    assert!(scene.refused(|| ()).contains("there is no store"));
    drop(RedbStore::open(&scene.path("a")).unwrap());
    assert!(scene.refused(|| ()).contains("follows no log of a cluster"));
    fs::remove_file(scene.path("a")).unwrap();
    let _ = fs::remove_file(scene.path("a.commit"));

    let (store, service) = scene.leads("a");
    create(&service, "shop", Span::secs(5));
    let locked = scene.refused(|| ());
    assert!(locked.contains("in use by another process"), "{locked}");
    drop((store, service));
    let within = scene.refused(|| ());
    assert!(within.contains("so it was not set back; start the controllers"), "{within}");

    let elsewhere = Restoring {
        prefix: "u/".to_owned(),
        ..scene.restoring(Arc::<Model>::clone(&scene.model), scene.settings(|| ()))
    };
    let none = elsewhere.run().unwrap_err().to_string();
    assert!(none.contains("etcd has no log under u/") && none.contains("--cluster-seed"), "{none}");
    assert!(scene.model.rows().iter().all(|row| row.key.starts_with(b"t/")), "none is begun");
    let other = scene.restoring(Arc::<Model>::default(), scene.settings(|| ()));
    let place = Arc::new(FilePlace::new(&scene.path("other")));
    drop(Follower::follow(Arc::clone(&other.consensus), "t/", place, scene.settings(|| ()), false).unwrap());
    let other = other.run().unwrap_err().to_string();
    assert!(
        other.contains("is of the cluster") && other.contains("if `cluster restored` was run before"),
        "{other}"
    );

    let then = vec![Step::Delete(b"t/own/".to_vec(), b"t/own0".to_vec())];
    let again = Scene::new();
    again.set_back();
    again.model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    assert!(again.refused(|| ()).contains("has no owner"));
}

#[test]
fn a_shared_store_that_is_away_for_a_moment_is_waited_for_and_one_that_stays_away_is_named() {
    let scene = Scene::new();
    scene.set_back();
    let (model, times) = (Arc::clone(&scene.model), AtomicU64::new(0));
    let begun = scene.now.load(Ordering::Relaxed);
    let away = scene.refused(move || model.plan([Some(Fault::Away)]));
    assert!(away.contains("check that its members run and can be reached"), "{away}");
    assert!(scene.now.load(Ordering::Relaxed) - begun >= 10_000_000);
    scene.model.calm();
    let model = Arc::clone(&scene.model);
    scene
        .restore_while(move || {
            if times.fetch_add(1, Ordering::Relaxed) == 100 {
                model.plan([Some(Fault::Away); 30]);
            }
        })
        .unwrap();
}

/// A way to the shared store that ends after so many calls: from then on nobody answers.
#[derive(Debug)]
struct Cut {
    model: Arc<Model>,
    calls: AtomicU64,
    most: u64,
    /// Whether the last call happens, and its answer is lost.
    loses: bool,
}

impl Cut {
    fn passes<T>(&self, call: impl FnOnce() -> Result<T, ConsensusError>) -> Result<T, ConsensusError> {
        let at = self.calls.fetch_add(1, Ordering::Relaxed);
        if at < self.most {
            return call();
        }
        if at == self.most && self.loses {
            call()?;
        }
        Err(ConsensusError::Unknown { member: "cut".to_owned(), reason: "off".to_owned() })
    }
}

impl Consensus for Cut {
    fn transact(&self, transaction: &Transaction, within: Duration) -> Result<Outcome, ConsensusError> {
        self.passes(|| self.model.transact(transaction, within))
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        most: usize,
        at: Option<u64>,
        within: Duration,
    ) -> Result<Page, ConsensusError> {
        self.passes(|| self.model.range(from, to, most, at, within))
    }

    fn compact(&self, revision: u64, within: Duration) -> Result<(), ConsensusError> {
        self.passes(|| self.model.compact(revision, within))
    }
}

/// Runs it over a way that ends after so many calls; returns how many it made.
fn cut(scene: &Scene, most: u64, loses: bool) -> (u64, Result<Restored, RestoredError>) {
    let cut = Arc::new(Cut { model: Arc::clone(&scene.model), calls: AtomicU64::new(0), most, loses });
    let done = scene.restoring(Arc::<Cut>::clone(&cut), scene.settings(|| ())).run();
    (cut.calls.load(Ordering::Relaxed), done)
}

#[test]
fn it_can_be_cut_off_anywhere_and_run_again() {
    let scene = Scene::new();
    scene.set_back();
    let (calls, done) = cut(&scene, u64::MAX, false);
    let epoch = done.unwrap().epoch;
    // Those before these only look.
    for most in calls - 14..calls {
        for loses in [false, true] {
            let scene = Scene::new();
            scene.set_back();
            let (_, done) = cut(&scene, most, loses);
            assert!(done.is_err() && scene.path("a").exists(), "{most} of {calls}, {loses}");
            match scene.restore() {
                Ok(again) => assert!(again.epoch >= epoch && !scene.path("a").exists()),
                // Only the last steps were left, which the controllers make.
                Err(RestoredError::OfAnother { .. }) => {}
                Err(error) => panic!("{most} of {calls}, {loses}: {error}"),
            }
            let (_store, service) = scene.leads("a");
            assert!(service.epoch() > epoch, "{most} of {calls}, {loses}");
            assert!(service.status().recovery > Span(0), "{most} of {calls}, {loses}");
        }
    }
}
