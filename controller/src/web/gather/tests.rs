//! What a tenant sees of the last seconds while it is bound to other groups.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Extensions;
use tidegate_console::samples::Sample;
use tidegate_core::units::Rate;
use tokio::sync::watch as flag;

use super::*;
use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::identity::{Identity, Role};
use crate::service::{Service, ServiceConfig};
use crate::store::RedbStore;

/// The groups with what they used in each second, as a viewer sees them.
fn seen(web: &Web, visitor: &Visitor) -> Vec<Vec<(String, Rate)>> {
    let (_, seconds) = web.now(visitor).unwrap();
    let used =
        |sample: &Arc<Sample>| sample.used.iter().map(|(name, rate)| (name.to_string(), *rate)).collect();
    seconds.all().iter().map(used).collect()
}

#[test]
fn past_seconds_are_those_of_the_groups_that_the_tenant_is_bound_to_now() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let now = Arc::new(AtomicU64::new(0));
    let clock = Clock::driven(Arc::clone(&now));
    let service = Arc::new(Service::load(store, ServiceConfig::default(), clock).unwrap());
    let (definitions, actor) = (service.definitions(), Actor::new(None, "test"));
    for name in ["gained", "kept", "lost"] {
        let group = v1::Group { name: name.into(), ru_per_sec: "5".into(), ..v1::Group::default() };
        definitions.create_group(&actor, &group, false).unwrap();
    }
    definitions.bind(&actor, "acme", "", "kept").unwrap();
    definitions.bind(&actor, "acme", "ann", "lost").unwrap();
    let web = Web::new(Arc::clone(&service), None, false, flag::channel(false).1);
    let tenant = Identity { tenant: Some("acme".into()), ..Identity::anonymous(Role::Tenant) };
    let mut extensions = Extensions::new();
    extensions.insert(Arc::new(tenant));
    let visitor = Visitor::of(&web, &extensions);
    let uses = [("gained", 3), ("kept", 4), ("lost", 5)];
    let pass = |second: u64| {
        let used = uses.map(|(name, rate)| (Arc::from(name), Rate::whole(rate)));
        web.recent().push(Sample::of(second * 1_000, used.into()));
        now.store(second * 1_000_000, Ordering::SeqCst);
    };
    let of = |names: [&str; 2]| {
        let shown = uses.into_iter().filter(|(name, _)| names.contains(name));
        shown.map(|(name, rate)| (name.to_owned(), Rate::whole(rate))).collect::<Vec<_>>()
    };
    pass(1);
    assert_eq!(seen(&web, &visitor), [of(["kept", "lost"])]);
    pass(2);
    assert_eq!(seen(&web, &visitor), vec![of(["kept", "lost"]); 2]);
    definitions.bind(&actor, "acme", "ann", "gained").unwrap();
    pass(3);
    assert_eq!(seen(&web, &visitor), vec![of(["gained", "kept"]); 3]);
}
