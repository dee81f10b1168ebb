//! A working day of a controller: a node comes and reports, an operator changes and reads, and all is stored.

use tidegate_controller::audit::Actor;
use tidegate_controller::service::{EntryIn, RenewIn, ReportIn, Service};
use tidegate_core::exchange::Ask;
use tidegate_core::units::{Rate, Ru};
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

/// A step of the day.
pub(super) type Step = fn(&Service);

/// All of it, step by step: each may meet damage that the ones before did not.
pub(super) const DAY: [Step; 7] = [
    |service| renew(service, "late", u64::MAX, &["top", "child", "default", "gone"]),
    |service| drop(service.upkeep().flush()),
    |service| {
        let text = v1::Group { name: "new".to_owned(), ru_per_sec: "5".to_owned(), ..v1::Group::default() };
        drop(service.definitions().create_group(&actor(), &text, true));
        drop(service.definitions().delete_group(&actor(), "child", "default", 0, true));
        drop(service.definitions().unbind(&actor(), "tenant", "user", None));
    },
    |service| drop(service.upkeep().tidy()),
    |service| {
        drop(service.accounts().usage_history("top", "hour", 0, 0));
        drop(service.definitions().audit_log("", 0, 1_000));
    },
    |service| {
        assert!(service.metrics_page().expect("a page").ends_with("# EOF\n"));
        drop((
            service.accounts().usage("", true),
            service.leasing().leases(""),
            service.leasing().clients(),
            service.status(),
        ));
        drop((
            service.definitions().groups("", 0),
            service.definitions().bindings("", None, 0),
            service.definitions().cost_tables(),
        ));
    },
    |service| drop(service.shut_down()),
];

fn actor() -> Actor {
    Actor::new(Some("fuzz"), "nowhere")
}

/// A node connects, asks for a lease of each group, and reports a little.
pub(super) fn renew(service: &Service, node: &str, incarnation: u64, groups: &[&str]) {
    let Ok(session) = service.leasing().hello(node, incarnation, "fuzz/1") else { return };
    let ask = Ask { demand: Rate::whole(10), ..Ask::default() };
    let total = Consumption { charged: RuParts::flat(Ru::whole(3)), operations: 1, ..Consumption::default() };
    let entries =
        groups.iter().map(|group| EntryIn { group: (*group).to_owned(), ask: Ok((ask, Vec::new())) });
    let reports = groups.iter().map(|group| ReportIn {
        group: (*group).to_owned(),
        incarnation: 0,
        total: Ok(total.into()),
        waited: Vec::new(),
    });
    let renewal =
        RenewIn { seq: 1, entries: entries.collect(), reports: reports.collect(), ..RenewIn::default() };
    let renewed = service.leasing().renew(session.client, session.session, renewal);
    assert!(renewed.is_ok(), "the newest session is served");
}
