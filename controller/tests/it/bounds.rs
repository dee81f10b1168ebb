//! Where lists end, and what a start takes up besides leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::limits::{MAX_COST_TABLES, MAX_FOLDED_AHEAD};
use tidegate_controller::service::{EntryIn, RenewIn, ReportIn, Service, Session};
use tidegate_core::exchange::Ask;
use tidegate_core::units::{Rate, Ru};
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

use crate::support::{MemoryStore, actor, group, started};

const SECOND: u64 = 1_000_000;

struct Stage {
    store: Arc<MemoryStore>,
    now: Arc<AtomicU64>,
    service: Service,
}

impl Stage {
    fn new() -> Self {
        let (store, now) = (Arc::new(MemoryStore::default()), Arc::new(AtomicU64::new(86_400 * SECOND)));
        let service = started(&store, &now);
        Self { store, now, service }
    }

    fn start(self) -> Self {
        let service = started(&self.store, &self.now);
        Self { service, ..self }
    }

    fn makes(&self, group: &v1::Group) {
        self.service.definitions().create_group(&actor(), group, false).unwrap();
    }

    fn pass(&self, us: u64) {
        self.now.fetch_add(us, Ordering::SeqCst);
    }

    fn hello(&self, node: &str, start: u64) -> Session {
        self.service.leasing().hello(node, start, "test").unwrap()
    }

    /// Asks for leases of these groups, and reports what was charged to them so far.
    fn renews(&self, session: &Session, seq: u64, names: &[String], charged: &Consumption) {
        let ask = Ask { demand: Rate::whole(50), backlog: Ru::whole(9), waiting: 9, ..Ask::default() };
        let entry = |group: &String| EntryIn { group: group.clone(), ask: Ok((ask, Vec::new())) };
        let report = |group: &String| ReportIn {
            group: group.clone(),
            incarnation: 1,
            total: Ok((*charged).into()),
            waited: Vec::new(),
        };
        let (entries, reports) =
            (names.iter().map(entry).collect(), names.iter().map(report).collect::<Vec<_>>());
        let request = RenewIn { seq, entries, reports, ..RenewIn::default() };
        self.service.leasing().renew(session.client, session.session, request).unwrap();
    }
}

fn charged(ru: i64, operations: u64) -> Consumption {
    let charged = RuParts { write: Ru::whole(ru), ..RuParts::default() };
    Consumption { charged, operations, ..Consumption::default() }
}

#[test]
fn a_node_whose_clock_was_ahead_too_often_is_not_forgotten_again_and_may_take_another_name() {
    let stage = Stage::new();
    let ahead = stage.service.clock().unix_us() + 100 * 86_400 * SECOND;
    let forget = || stage.service.accounts().forget_clients(&actor(), &["node".to_owned()]);
    // The clock of the node runs backwards from start to start.
    for start in 0..=MAX_FOLDED_AHEAD as u64 {
        let session = stage.hello("node", ahead - start * SECOND);
        stage.service.leasing().disconnect(session.client, session.session);
        stage.pass(61 * SECOND);
        if start == MAX_FOLDED_AHEAD as u64 {
            let error = forget().unwrap_err().to_string();
            for part in ["64 starts of client node", "shut out already", "give the node another id"] {
                assert!(error.contains(part), "{error}");
            }
        } else {
            assert_eq!(forget().unwrap(), [1]);
        }
    }
    assert_eq!(stage.service.leasing().clients().0.len(), 1, "it is there still");
}

#[test]
fn as_many_cost_tables_are_kept_as_there_may_be_and_those_can_be_used() {
    let stage = Stage::new();
    let put = |version: usize| {
        let version = u32::try_from(version).unwrap();
        let table = v1::CostTable { name: "mine".into(), version, ..v1::CostTable::default() };
        stage.service.definitions().put_cost_table(&actor(), "shadow", Some(table))
    };
    // One is there from the beginning.
    for version in 1..MAX_COST_TABLES {
        put(version).unwrap();
    }
    let error = put(MAX_COST_TABLES).unwrap_err();
    assert!(error.code() == "full" && error.to_string().contains("limit of 256 cost tables"), "{error}");
    put(1).unwrap();
    let stage = stage.start();
    assert_eq!(stage.service.definitions().cost_tables().shadow().unwrap().to_string(), "mine version 1");
}

#[test]
fn a_group_that_was_warm_when_its_controller_stopped_is_warm_for_the_next_one() {
    let stage = Stage::new();
    stage.makes(&v1::Group { policy: "warm_up(10s, 3)".into(), ..group("web", "300") });
    stage.makes(&v1::Group { policy: "warm_up(10s, 3)".into(), ..group("cold", "300") });
    let warmth = |stage: &Stage, name: &str| {
        stage.service.leasing().leases(name).unwrap().groups[0].warmth.unwrap().warmth
    };
    assert_eq!((warmth(&stage, "web"), warmth(&stage, "cold")), (0, 0));
    let session = stage.hello("node", 1);
    let names = ["web".to_owned()];
    for seq in 1..=4 {
        let ru = i64::try_from(seq).unwrap() * 100;
        stage.renews(&session, seq, &names, &charged(ru, 1));
        stage.pass(SECOND);
    }
    let before = warmth(&stage, "web");
    assert!((100..1_000).contains(&before), "{before}");
    stage.service.shut_down().unwrap();
    let stage = stage.start();
    assert_eq!((warmth(&stage, "web"), warmth(&stage, "cold")), (before, 0));
}

#[test]
fn a_replay_says_which_resolution_has_nothing_and_which_policy_it_tried() {
    let stage = Stage::new();
    stage.makes(&group("web", "100"));
    let wish = |resolution: &str| v1::WhatIfRequest {
        group: "web".into(),
        ru_per_sec: "4".into(),
        policy: "paced".into(),
        resolution: resolution.into(),
        ..v1::WhatIfRequest::default()
    };
    for step in ["second", "minute", "hour"] {
        let error = stage.service.accounts().what_if(&wish(step)).unwrap_err();
        assert!(error.code() == "refused" && error.to_string().contains(step), "{error}");
    }
    // Charges without operations cannot be counted in requests.
    let session = stage.hello("node", 1);
    stage.renews(&session, 1, &["web".to_owned()], &charged(5, 0));
    stage.service.upkeep().flush().unwrap();
    for step in ["second", "minute", "hour"] {
        let reply = stage.service.accounts().what_if(&wish(step)).unwrap();
        let proposed = reply.proposed.unwrap();
        assert_eq!((reply.resolution.as_str(), proposed.policy.as_str()), (step, "paced"));
        let requests = v1::WhatIfRequest { quota: "40 requests per hour".into(), ..wish(step) };
        let error = stage.service.accounts().what_if(&requests).unwrap_err();
        assert_eq!(error.field(), Some("quota"), "{error}");
        assert!(error.to_string().contains("number of operations"), "{error}");
    }
}
