//! One standby, step by step: what it follows, shows, waits for, and what its record asks of those who follow it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_consensus::model::{Fault, Model};
use tidegate_consensus::{Consensus as _, Step as Change, Transaction};
use tidegate_core::engine::EngineConfig;
use tidegate_core::units::Span;
use tokio::sync::watch as flag;

use super::super::roster::Roster;
use super::super::standby::{Before, Standby, Step, Taken, Watching};
use super::super::waiting::View;
use crate::clock::Clock;
use crate::store::records::{META_FENCE, META_REVISION, put_number};
use crate::store::replicated::tests::memory::Memory;
use crate::store::replicated::tests::owner;
use crate::store::replicated::{
    Follower, Fresh, MemberRecord, Members, Owner, Place, ReplicatedStore, Seen, Settings,
};
use crate::store::{Store, StoreError, Table};

const CLOCKS: EngineConfig = EngineConfig { drift_ppm: 1_000, margin: Span::millis(50) };
/// The instance of a start of this process that led before.
const BEFORE: u64 = 99;

/// Has a standby follow into memory, notes what callers are answered meanwhile, and may be closing for a time.
struct Local {
    memory: Arc<Memory>,
    view: flag::Sender<View>,
    shown: Mutex<Vec<View>>,
    is_closing: Mutex<bool>,
}

impl Place for Local {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        self.shown.lock().unwrap().push(self.view.borrow().clone());
        if *self.is_closing.lock().unwrap() {
            return Err(StoreError::Locked { path: "file".into() });
        }
        self.memory.open()
    }

    fn fresh(&self) -> Result<Box<dyn Fresh>, StoreError> {
        self.memory.fresh()
    }
}

/// A log, and a standby of it that has not begun.
struct Onlooker {
    model: Arc<Model>,
    now: Arc<AtomicU64>,
    local: Arc<Local>,
    view: flag::Receiver<View>,
    standby: Standby,
    watching: Watching,
}

impl Onlooker {
    fn new() -> Self {
        let (model, now) = (Arc::<Model>::default(), Arc::<AtomicU64>::default());
        let (view, seen) = flag::channel(View::default());
        let local = Arc::new(Local {
            memory: Memory::new(),
            view: view.clone(),
            shown: Mutex::default(),
            is_closing: Mutex::default(),
        });
        let standby = Standby {
            consensus: Arc::<Model>::clone(&model),
            prefix: "t/".to_owned(),
            place: Arc::<Local>::clone(&local),
            seed: false,
            settings: settings(&now),
            clocks: CLOCKS,
            me: Owner { instance: 100, ..owner("me") },
            before: Some(Before { instance: BEFORE, silent: true }),
            view,
            roster: None,
        };
        Self { model, now, local, view: seen, standby, watching: Watching::default() }
    }

    /// One of two controllers that run, and it was drained.
    fn drained() -> Self {
        let mut scene = Self::new();
        let members = Members::new(Arc::<Model>::default(), "t/", settings(&scene.now)).unwrap();
        let roster = Arc::new(Roster::new("me", members, settings(&scene.now).clock));
        roster.drain(Span::secs(3_600));
        scene.standby.roster = Some(roster);
        scene.other_runs();
        scene.other_runs();
        assert!(scene.standby.roster.as_ref().unwrap().rests());
        scene
    }

    /// The record of the other one changes.
    fn other_runs(&self) {
        let Some(roster) = &self.standby.roster else { return };
        let (controller, addresses, version) = ("other".to_owned(), Vec::new(), String::new());
        let record = MemberRecord { controller, instance: 1, addresses, version, unix_ms: 0 };
        let changed = roster.record_of("other").map_or(1, |record| record.changed + 1);
        roster.saw(None, vec![(record, changed)]);
    }

    fn follower(&self) -> Follower {
        let consensus = Arc::<Model>::clone(&self.model);
        Follower::follow(consensus, "t/", Memory::new(), settings(&self.now), false).unwrap()
    }

    /// Another controller takes the log, and writes a beat.
    fn leads(&self, owner: &Owner) -> ReplicatedStore {
        let follower = self.follower();
        let seen = follower.look().unwrap();
        let leader = follower.take(&seen, owner).unwrap();
        leader.beat().unwrap();
        leader
    }

    fn owner(&self) -> Seen {
        self.follower().look().unwrap()
    }

    fn remove_owner(&self) {
        let then = vec![Change::Delete(b"t/own/".to_vec(), b"t/own0".to_vec())];
        self.model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    }

    /// Looks at this time.
    fn step(&mut self, at_ms: u64) -> Result<Step, StoreError> {
        self.now.store(at_ms * 1_000, Ordering::Relaxed);
        self.other_runs();
        self.standby.step(&mut self.watching)
    }

    /// When it looks again.
    fn waits(&mut self, at_ms: u64) -> Span {
        match self.step(at_ms).unwrap() {
            Step::Wait(pause) => pause,
            Step::Taken(_) => panic!("the log is taken over after {at_ms} ms"),
        }
    }

    fn takes(&mut self, at_ms: u64) -> Taken {
        match self.step(at_ms).unwrap() {
            Step::Taken(taken) => *taken,
            Step::Wait(pause) => panic!("after {at_ms} ms it waits for another {pause}"),
        }
    }

    fn view(&self) -> View {
        self.view.borrow().clone()
    }
}

fn settings(now: &Arc<AtomicU64>) -> Settings {
    Settings { hashes_beside: false, ..Settings::new(Clock::driven(Arc::clone(now)), Span::secs(1)) }
}

/// What a standby shows that sees this leader, or none.
fn seen(leader: Option<&str>, is_open: bool) -> View {
    View { leader: leader.map(str::to_owned), has_looked: true, is_open, ..View::default() }
}

#[test]
fn what_the_leader_logs_is_in_the_file_of_a_standby_within_half_a_second() {
    let mut scene = Onlooker::new();
    let leader = scene.leads(&owner("a"));
    scene.waits(0);
    leader.commit(&[put_number(META_REVISION, 7)]).unwrap();
    for at_ms in (100..=500).step_by(100) {
        leader.beat().unwrap();
        scene.waits(at_ms);
    }
    let followed = scene.local.memory.store().get(Table::Meta, &[META_REVISION.to_vec()]).unwrap();
    assert!(followed[0].is_some(), "a takeover would have to read it");
}

#[test]
fn callers_are_told_who_leads_while_the_file_is_opened_and_not_of_one_that_has_left() {
    let leads = |owner: &Owner, leaves: bool| {
        let scene = Onlooker::new();
        let leader = scene.leads(owner);
        if leaves {
            leader.leave().unwrap();
        }
        scene
    };
    let mut scene = leads(&owner("a"), false);
    scene.waits(0);
    assert_eq!(*scene.local.shown.lock().unwrap(), [seen(Some("a"), false)]);
    let mut scene = leads(&owner("a"), true);
    assert!(scene.takes(0).silent);
    assert_eq!(*scene.local.shown.lock().unwrap(), [seen(None, false)]);
    assert_eq!(scene.view(), seen(None, true), "streams of nodes are held until it leads");
    // An end that could not be stored: this process knows of it, and waits for nobody.
    let mut scene = leads(&Owner { instance: BEFORE, ..owner("me") }, false);
    assert!(scene.takes(0).silent);
    assert_eq!(*scene.local.shown.lock().unwrap(), [seen(None, false)]);
}

#[test]
fn a_record_asks_for_the_stored_fence_only_after_an_owner_that_may_still_speak() {
    let longer = |scene: &Onlooker| {
        let leader = scene.leads(&Owner { fence_ms: 10_000, ..owner("a") });
        leader.commit(&[put_number(META_FENCE, 10_000_000)]).unwrap();
        leader
    };
    let mut scene = Onlooker::new();
    longer(&scene).leave().unwrap();
    let _taken = scene.takes(0);
    let record = scene.owner().owner.unwrap();
    assert_eq!((record.controller.as_str(), record.fence_ms), ("me", 1_000));
    // This process owned the log last, but one before it, whose record was removed, may speak.
    let mut scene = Onlooker::new();
    longer(&scene).leave().unwrap();
    drop(scene.leads(&Owner { instance: BEFORE, ..owner("me") }));
    scene.standby.before = Some(Before { instance: BEFORE, silent: false });
    assert!(!scene.takes(0).silent);
    assert_eq!(scene.owner().owner.unwrap().fence_ms, 10_000);
    // What is stored since the last application of the log counts as well.
    let mut scene = Onlooker::new();
    drop(scene.leads(&owner("b")));
    scene.waits(0);
    drop(longer(&scene));
    scene.remove_owner();
    let taken = scene.takes(200);
    assert!(!taken.silent);
    assert_eq!(scene.owner().owner.unwrap().fence_ms, 10_000);
    assert_eq!(scene.view(), seen(None, true));
}

#[test]
fn no_more_than_the_longest_fence_of_settings_is_waited_for_and_a_stop_is_noticed_meanwhile() {
    let mut scene = Onlooker::new();
    drop(scene.leads(&Owner { fence_ms: u64::MAX, ..owner("a") }));
    let patience = CLOCKS.longest_use(Span::secs(60));
    let mut at_ms = 0;
    while let Step::Wait(pause) = scene.step(at_ms).unwrap() {
        assert!(pause <= Span::millis(500), "it looks whether it is to stop after {pause}");
        assert!(Span::millis(at_ms) < patience, "it still waits after {at_ms} ms");
        at_ms += pause.0 / 1_000;
    }
    assert!(Span::millis(at_ms) >= patience, "it is taken over after {at_ms} ms");
}

#[test]
fn a_file_that_another_part_of_the_process_closes_is_waited_for_but_not_for_ever() {
    let mut scene = Onlooker::new();
    let leader = scene.leads(&owner("a"));
    *scene.local.is_closing.lock().unwrap() = true;
    for at_ms in [0, 500, 4_999] {
        leader.beat().unwrap();
        assert_eq!(scene.waits(at_ms), Span::millis(500));
        let said = scene.view().to_string();
        assert!(said.contains("cannot see its cluster: the store file is in use"), "{said}");
    }
    assert!(matches!(scene.step(5_000), Err(StoreError::Locked { .. })));
    let mut scene = Onlooker::new();
    let _leader = scene.leads(&owner("a"));
    *scene.local.is_closing.lock().unwrap() = true;
    let mut changes = scene.view.clone();
    scene.waits(0);
    changes.mark_unchanged();
    scene.waits(500);
    assert!(!changes.has_changed().unwrap(), "what stays in the way is said once");
    *scene.local.is_closing.lock().unwrap() = false;
    scene.waits(1_000);
    assert_eq!(scene.view(), seen(Some("a"), false));
}

#[test]
fn callers_are_told_while_the_shared_store_is_away_and_no_stream_is_held_for_it() {
    let mut scene = Onlooker::new();
    drop(scene.leads(&owner("a")));
    scene.waits(0);
    scene.waits(600);
    assert_eq!(scene.view(), seen(Some("a"), true), "its beat is late");
    scene.model.plan([Some(Fault::Away)]);
    assert_eq!(scene.waits(700), Span::millis(500));
    assert!(!scene.view().is_open);
    let said = scene.view().to_string();
    assert!(said.contains("cannot see its cluster") && said.contains("nobody is there"), "{said}");
    scene.waits(1_200);
    assert_eq!(scene.view(), seen(Some("a"), false), "the owner had no chance to show that it lives");
}

#[test]
fn a_drained_controller_leaves_a_log_to_others_for_two_fences_in_which_they_could_take_it() {
    let mut scene = Onlooker::drained();
    scene.leads(&owner("a")).leave().unwrap();
    scene.waits(0);
    assert_eq!(scene.view(), seen(None, false), "nodes are not to wait for this one");
    // Others reach the shared store as little as this one.
    scene.waits(1_900);
    scene.model.plan([Some(Fault::Away)]);
    scene.waits(1_950);
    scene.waits(2_450);
    scene.waits(4_449);
    drop(scene.takes(4_450));
    // Another one took it meanwhile, and left it as well.
    let mut scene = Onlooker::drained();
    scene.leads(&owner("a")).leave().unwrap();
    scene.waits(0);
    let next = scene.leads(&owner("b"));
    scene.waits(1_000);
    assert_eq!(scene.view(), seen(Some("b"), false));
    next.leave().unwrap();
    scene.waits(1_500);
    assert_eq!(scene.view(), seen(None, false));
    scene.waits(3_499);
    drop(scene.takes(3_500));
    // One of which the record is gone may still speak; it is left to others all the same.
    let mut scene = Onlooker::drained();
    drop(scene.leads(&owner("a")));
    scene.waits(0);
    scene.remove_owner();
    scene.waits(100);
    assert_eq!(scene.view(), seen(None, false));
    scene.waits(2_099);
    assert!(!scene.takes(2_100).silent);
}
