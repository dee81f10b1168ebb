//! Which records of controllers an operator can remove, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_consensus::model::{Fault, Model};
use tidegate_core::units::Span;
use tidegate_proto::v1::{AuditEntry, ControllerInfo, ListControllersReply};

use super::super::roster::{GONE, Roster};
use crate::audit::Actor;
use crate::clock::Clock;
use crate::error::AdminError;
use crate::service::{Service, ServiceConfig};
use crate::store::replicated::tests::memory::Memory;
use crate::store::replicated::tests::owner;
use crate::store::replicated::{Follower, MemberRecord, Members, Settings, Wrote};

/// A controller that leads, and what the shared store says of others.
pub(super) struct Scene {
    now: Arc<AtomicU64>,
    pub(super) service: Service,
    model: Arc<Model>,
    members: Members,
    pub(super) roster: Arc<Roster>,
}

/// What another controller says of itself when its wall clock shows this.
pub(super) fn record(name: &str, unix_ms: u64) -> MemberRecord {
    MemberRecord {
        controller: name.to_owned(),
        instance: 7,
        addresses: Vec::new(),
        version: "1".to_owned(),
        unix_ms,
    }
}

impl Scene {
    pub(super) fn new() -> Self {
        let (model, now) = (Arc::<Model>::default(), Arc::<AtomicU64>::default());
        let clock = Clock::driven(Arc::clone(&now));
        let settings = Settings::new(clock.clone(), Span::secs(1));
        let members = Members::new(Arc::<Model>::clone(&model), "t/", settings.clone()).unwrap();
        let shared = Arc::<Model>::clone(&model);
        let follower = Follower::follow(shared, "t/", Memory::new(), settings, false).unwrap();
        let seen = follower.look().unwrap();
        let store = follower.take(&seen, &owner("a")).unwrap();
        let service = Service::load(Arc::new(store), ServiceConfig::default(), clock.clone()).unwrap();
        let roster = Arc::new(Roster::new("a", members.clone(), clock));
        Self { now, service, model, members, roster }
    }

    pub(super) fn pass(&self, span: Span) {
        self.now.fetch_add(span.0, Ordering::Relaxed);
    }

    /// Another controller shows that it runs; at which revision.
    pub(super) fn shows(&self, name: &str, seen: u64) -> u64 {
        match self.members.write(&record(name, 0), seen).unwrap() {
            Wrote::Done(revision) => revision,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn sees(&self) {
        self.roster.saw(None, self.members.all().unwrap());
    }

    /// Another controller is seen to run.
    pub(super) fn runs(&self, name: &str) {
        let first = self.shows(name, 0);
        self.sees();
        self.shows(name, first);
        self.sees();
        assert_eq!(self.roster.others(), [name]);
    }

    /// The wall clock of this one.
    pub(super) fn unix_ms(&self) -> u64 {
        Clock::driven(Arc::clone(&self.now)).unix_ms()
    }

    fn forget(&self, name: &str) -> Result<u64, AdminError> {
        let reply = self.service.cluster().forget(&Actor::new(Some("ann"), "here"), name)?;
        assert_eq!(reply.controller, name);
        Ok(reply.silent_us)
    }

    fn refused(&self, name: &str) -> String {
        match self.forget(name).unwrap_err() {
            AdminError::Refused { message } => message,
            other => panic!("{other}"),
        }
    }

    pub(super) fn last_entry(&self) -> AuditEntry {
        self.service.definitions().audit_log("", 0, 1).unwrap().pop().unwrap_or_default()
    }
}

#[test]
fn a_controller_that_is_gone_is_forgotten_and_one_that_runs_is_not() {
    let scene = Scene::new();
    assert!(scene.refused("b").contains("not one of a cluster; see etcd_endpoints"));
    scene.service.beside().cluster.set(Arc::clone(&scene.roster)).unwrap();
    let revision = scene.shows("b", 0);
    assert!(matches!(scene.forget("b"), Err(AdminError::NotFound { .. })), "it was not seen yet");
    scene.sees();
    scene.pass(Span(GONE.0 - 1));
    let said = scene.refused("b");
    assert!(said.contains("controller b showed 2.999999s ago") && said.contains("for 3s"), "{said}");
    assert!(scene.members.all().unwrap().len() == 1 && scene.last_entry().action != "forget controller");
    scene.pass(Span(1));
    assert_eq!(scene.forget("b").unwrap(), GONE.0);
    assert!(scene.members.all().unwrap().is_empty() && scene.roster.all().is_empty());
    let entry = scene.last_entry();
    assert_eq!((entry.action.as_str(), entry.subject.as_str()), ("forget controller", "controller b"));
    assert_eq!(entry.comment, "ann");
    let absent = scene.forget("b").unwrap_err().to_string();
    assert_eq!(absent, "controller b of the cluster under t/ does not exist");
    assert!(!scene.members.remove("b", revision).unwrap(), "there is none");
}

#[test]
fn one_that_shows_itself_at_the_last_moment_stays_in_the_list() {
    let scene = Scene::new();
    scene.service.beside().cluster.set(Arc::clone(&scene.roster)).unwrap();
    let first = scene.shows("b", 0);
    scene.sees();
    scene.pass(GONE);
    let second = scene.shows("b", first);
    assert!(scene.refused("b").contains("has shown meanwhile that it runs; stop it first"));
    assert_eq!(scene.members.all().unwrap().len(), 1);
    assert!(!scene.members.remove("b", first).unwrap() && scene.members.remove("b", second).unwrap());
}

#[test]
fn the_one_that_leads_and_names_that_none_can_have_are_refused() {
    let scene = Scene::new();
    scene.service.beside().cluster.set(Arc::clone(&scene.roster)).unwrap();
    scene.shows("a", 0);
    scene.sees();
    scene.pass(GONE);
    let said = scene.refused("a");
    assert!(said.contains("controller a leads; drain and stop it"), "{said}");
    for name in ["", "a/b", "a b"] {
        assert!(matches!(scene.forget(name), Err(AdminError::Invalid { .. })), "{name:?}");
    }
}

#[test]
fn a_record_is_not_removed_before_that_is_noted() {
    let scene = Scene::new();
    scene.service.beside().cluster.set(Arc::clone(&scene.roster)).unwrap();
    scene.shows("b", 0);
    scene.sees();
    scene.pass(GONE);
    for stored in [0, 1] {
        scene.model.plan((0..stored).map(|_| None).chain([Some(Fault::Refused)]));
        scene.forget("b").unwrap_err();
        assert_eq!(scene.members.all().unwrap().len(), 1, "after {stored} calls");
        assert_eq!(scene.last_entry().action == "forget controller", stored == 1);
    }
    scene.forget("b").unwrap();
    assert!(scene.members.all().unwrap().is_empty());
}

#[test]
fn the_list_of_controllers_shows_who_leads_and_how_old_and_how_far_ahead_each_record_is() {
    let scene = Scene::new();
    scene.service.beside().cluster.set(Arc::clone(&scene.roster)).unwrap();
    let shown =
        |of: MemberRecord| MemberRecord { addresses: vec![format!("http://{}", of.controller)], ..of };
    let saw = |ahead_ms: u64, changed| {
        let records = [record("a", scene.unix_ms()), record("b", scene.unix_ms() + ahead_ms)];
        let cluster = Some("of this log".to_owned());
        scene.roster.saw(cluster, records.map(|record| (shown(record), changed)).to_vec());
    };
    saw(0, 1);
    saw(70, 2);
    scene.pass(Span::millis(250));
    let info = |name: &str, leads, clock_ahead_ms| ControllerInfo {
        name: name.to_owned(),
        addresses: vec![format!("http://{name}")],
        version: "1".to_owned(),
        leads,
        age_us: 250_000,
        clock_ahead_ms,
    };
    let reply = ListControllersReply {
        cluster: "of this log".to_owned(),
        prefix: "t/".to_owned(),
        controllers: vec![info("a", true, 0), info("b", false, 70)],
    };
    assert_eq!(scene.service.cluster().list().unwrap(), reply);
}
