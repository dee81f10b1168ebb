//! What nodes hold: proofs, and what is read of it for alarms and excerpts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tidegate_core::exchange::{Ask, Grant, Held, LeaseTerms};
use tidegate_core::group::GroupId;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_proto::v1;

use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::leasing::fence::{Fence, silence_of_a_member};
use crate::leasing::proof::{Claim, Holder, MAC_BYTES, key_for};
use crate::leasing::waits::{Waiting, Waits};
use crate::name::GroupName;
use crate::service::shut_down_from;
use crate::service::{Answer, EntryIn, RenewIn, Service, ServiceConfig, Session, Silence, Succession};
use crate::store::RedbStore;

const SECOND: u64 = 1_000_000;

/// A controller by a clock that the test sets.
struct Room {
    service: Service,
    now: Arc<AtomicU64>,
    _folder: TempDir,
}

impl Room {
    fn new(config: ServiceConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
        let now = Arc::<AtomicU64>::default();
        let service = Service::load(store, config, Clock::driven(Arc::clone(&now))).unwrap();
        Self { service, now, _folder: folder }
    }

    /// One with groups of 1,000 RU/s each.
    fn with(groups: &[&str]) -> Self {
        let room = Self::new(ServiceConfig::default());
        for name in groups {
            let (name, ru_per_sec) = ((*name).to_owned(), "1000".to_owned());
            let made = v1::Group { name, ru_per_sec, ..v1::Group::default() };
            room.service.definitions().create_group(&Actor::new(None, "test"), &made, false).unwrap();
        }
        room
    }

    fn id(&self, group: &str) -> GroupId {
        let name = GroupName::parse(group).unwrap();
        self.service.lock().definitions.catalog().id(&name).unwrap()
    }

    fn hello(&self, node: &str) -> Session {
        self.service.leasing().hello(node, 1, "test").unwrap()
    }

    /// A lease of a group, and its proof.
    fn leased(&self, session: &Session, seq: u64, group: &str, ask: Ask) -> (LeaseTerms, Vec<u8>) {
        let entries = vec![EntryIn { group: group.to_owned(), ask: Ok((ask, Vec::new())) }];
        let request = RenewIn { seq, entries, ..RenewIn::default() };
        let mut renewed =
            self.service.leasing().renew(session.client, session.session, request).unwrap().entries;
        match renewed.remove(0).answer {
            Answer::Grant(Grant::Leased(terms), proof) => (terms, proof),
            other => panic!("a lease was expected: {other:?}"),
        }
    }

    fn claim(&self, client: &str, group: &str, proof: &[u8]) -> Claim {
        let holder = Holder { client, incarnation: 1, group: self.id(group) };
        self.service.lock().leasing.prover.verify(holder, proof).unwrap()
    }
}

fn wants(ru_per_sec: i64) -> Ask {
    Ask { demand: Rate::whole(ru_per_sec), largest: Ru::whole(1), ..Ask::default() }
}

/// After a crash a node spends what it proves, and no more.
#[test]
fn a_proof_is_of_all_that_the_node_may_spend_lumps_before_included() {
    let room = Room::with(&["web"]);
    let session = room.hello("node");
    let waits = Ask { backlog: Ru::whole(300), head: Ru::whole(1), waiting: 300, ..wants(100) };
    let (terms, proof) = room.leased(&session, 1, "web", waits);
    assert!(terms.lump.is_positive(), "{terms:?}");
    let claim = room.claim("node", "web", &proof);
    assert_eq!(claim.held, Held { rate: terms.rate, cap: terms.cap, lump: terms.lump });
    assert_eq!(claim.epoch, room.service.epoch());
    assert_eq!(claim.ends_unix_us, room.service.clock().unix_us() + terms.ttl.0);
    for before in [Ru::whole(7), Ru::MAX] {
        let room = Room::with(&["web"]);
        let held = Held { lump: before, ..Held::default() };
        let (terms, proof) = room.leased(&room.hello("node"), 1, "web", Ask { held, ..waits });
        let lump = room.claim("node", "web", &proof).held.lump;
        assert!(terms.lump.is_positive());
        assert_eq!(lump, (before + terms.lump).min(Ru::MAX), "no row and no message holds more");
    }
}

#[test]
fn every_purpose_has_a_key_of_its_own_which_no_other_signature_shows() {
    let room = Room::with(&[]);
    let [one, other] = ["one", "other"].map(|purpose| key_for(&room.service, purpose));
    assert_ne!(one, other);
    assert_eq!(one, key_for(&room.service, "one"));
    let code = room.service.lock().leasing.prover.code(b"one");
    assert_ne!(one[..MAC_BYTES], code, "what is signed is no key");
    let elsewhere = Room::with(&[]);
    assert_ne!(one, key_for(&elsewhere.service, "one"), "every store has a secret of its own");
}

#[test]
fn only_a_controller_of_a_cluster_is_silent_as_a_member() {
    let fence = Some(Span::secs(2));
    let succession = Succession::Cluster { silent: true };
    let member = Room::new(ServiceConfig { fence, succession, ..ServiceConfig::default() });
    let silence = Some(Silence::CutOff(Span::secs(2)));
    assert_eq!(silence_of_a_member(&member.service), silence, "before its first beat");
    assert_eq!(member.service.lock().leasing.fence.beat(), None, "a commit is no beat of a cluster");
    crate::leasing::fence::beaten(&member.service, Time(0));
    assert_eq!(silence_of_a_member(&member.service), None);
    let alone = Room::new(ServiceConfig { fence, ..ServiceConfig::default() });
    assert!(alone.service.lock().leasing.fence.beat().is_some());
    alone.now.store(2 * SECOND, Ordering::SeqCst);
    assert_eq!((alone.service.silence(), silence_of_a_member(&alone.service)), (silence, None));
}

/// After a failure another machine may have used the store, and one is told so until a commit succeeds.
#[test]
fn only_the_newest_commit_says_whether_the_store_fails() {
    let mut fence = Fence::new(Time(0), None, Span(0), Time(0));
    assert!(!fence.has_failed());
    fence.committed(Time(1), false);
    assert!(fence.has_failed());
    fence.committed(Time(2), true);
    assert!(!fence.has_failed());
}

#[test]
fn a_stop_begins_once_when_nothing_holds_it_up_any_more() {
    let room = Room::with(&[]);
    let mut silence = Vec::new();
    shut_down_from(&room.service, || silence.push(room.service.silence())).unwrap();
    assert_eq!((silence, room.service.silence()), (vec![None], Some(Silence::Left)));
}

#[test]
fn groups_without_leases_are_walked_no_more_after_a_while_and_others_are() {
    let room = Room::with(&["busy", "idle", "none"]);
    let (busy, idle) = (room.id("busy"), room.id("idle"));
    let session = room.hello("node");
    room.leased(&session, 1, "idle", wants(1));
    room.now.store(20 * SECOND, Ordering::SeqCst);
    room.leased(&session, 2, "busy", wants(1));
    let active = |room: &Room| {
        let state = room.service.lock();
        Waits(&state.leasing).groups().collect::<Vec<_>>()
    };
    assert_eq!(active(&room), [busy, idle]);
    room.service.upkeep().tidy().unwrap();
    assert_eq!(active(&room), [busy]);
}

#[test]
fn what_waits_for_a_group_is_the_sum_of_the_words_of_its_nodes() {
    let room = Room::with(&["web"]);
    for (node, times) in [("a", 1_i64), ("b", 2)] {
        let waits = Ask {
            waiting: 3 * times.unsigned_abs(),
            backlog: Ru::whole(5 * times),
            debt: Ru::whole(7 * times),
            ..wants(11 * times)
        };
        room.leased(&room.hello(node), 1, "web", waits);
    }
    let id = room.id("web");
    let state = room.service.lock();
    let sum = Waiting { waiting: 9, backlog: Ru::whole(15), debt: Ru::whole(21), demand: Rate::whole(33) };
    assert_eq!(Waits(&state.leasing).of(id), sum);
    assert_eq!(Waits(&state.leasing).view(id).unwrap().leases, 2);
}

#[test]
fn alarms_read_the_quota_of_a_group_and_how_warm_it_is() {
    let room = Room::with(&["web"]);
    let (quota, policy) = ("500 per day".to_owned(), "warm_up(20s)".to_owned());
    let cold =
        v1::Group { name: "cold".into(), ru_per_sec: "90".into(), quota, policy, ..v1::Group::default() };
    room.service.definitions().create_group(&Actor::new(None, "test"), &cold, false).unwrap();
    room.service.upkeep().flush().unwrap();
    let (cold, web) = (room.id("cold"), room.id("web"));
    let state = room.service.lock();
    let waits = Waits(&state.leasing);
    assert_eq!(waits.quota(cold, Time(0)).unwrap().amount, Ru::whole(500));
    assert!(waits.warmth(cold, Time(0)).unwrap().rate < Rate::whole(90));
    assert!(waits.quota(web, Time(0)).is_none() && waits.warmth(web, Time(0)).is_none());
    assert_eq!(waits.with_quota().collect::<Vec<_>>(), [cold]);
}

#[test]
fn the_nodes_of_a_group_come_with_their_rates_the_largest_first_if_they_are_few() {
    let room = Room::with(&["web", "idle"]);
    // The first to ask gets most.
    let sessions = ["a", "b", "c"].map(|node| room.hello(node));
    sessions.iter().rev().for_each(|session| drop(room.leased(session, 1, "web", wants(10))));
    let state = room.service.lock();
    let held = |group: &str, most| state.held(&GroupName::parse(group).unwrap(), most);
    let (view, rates) = held("web", 3).unwrap();
    assert_eq!(view.leases, 3);
    let names: Vec<&str> = rates.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["c", "b", "a"], "{rates:?}");
    assert!(rates.is_sorted_by(|(_, one), (_, next)| one >= next), "{rates:?}");
    let (view, rates) = held("web", 2).unwrap();
    assert_eq!((view.leases, rates), (3, Vec::new()), "more than asked for");
    assert_eq!(held("idle", 2).unwrap().1, []);
    assert_eq!(held("none", 2), None);
}
