//! What is used by several, and let go by one after the other; and what a start finds that no group is there for.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_controller::service::Service;
use tidegate_controller::store::records::group_key;
use tidegate_controller::store::{Store as _, Table, Write};
use tidegate_core::group::GroupId;
use tidegate_proto::v1;

use crate::support::{MemoryStore, actor, group, started};

fn create(service: &Service, text: &v1::Group) {
    service.definitions().create_group(&actor(), text, false).unwrap();
}

/// Deletes the group `used`, if nobody uses it.
fn delete(service: &Service) -> Result<(), String> {
    let deleted = service.definitions().delete_group(&actor(), "used", "", 0, false);
    deleted.map(drop).map_err(|error| error.code().to_owned())
}

/// Has both let go of the group `used`, one after the other, and deletes it in between and behind.
fn is_used_until_both(service: &Service, let_go: impl Fn(&str)) {
    assert_eq!(delete(service), Err("in_use".to_owned()), "both");
    let_go("one");
    assert_eq!(delete(service), Err("in_use".to_owned()), "the other one");
    let_go("two");
    assert_eq!(delete(service), Ok(()));
}

fn stage() -> (Arc<MemoryStore>, Service) {
    let store = Arc::new(MemoryStore::default());
    let service = started(&store, &Arc::new(AtomicU64::new(0)));
    create(&service, &group("used", "5"));
    (store, service)
}

#[test]
fn a_group_is_used_as_long_as_anybody_is_bound_to_it() {
    let (_, service) = stage();
    let definitions = service.definitions();
    for user in ["one", "two"] {
        definitions.bind(&actor(), "", user, "used").unwrap();
    }
    is_used_until_both(&service, |user| assert!(definitions.unbind(&actor(), "", user, None).unwrap()));
}

#[test]
fn a_group_is_used_as_long_as_any_other_demotes_to_it() {
    let (_, service) = stage();
    for name in ["one", "two"] {
        let (priority, demote_to) = ("high".to_owned(), "used".to_owned());
        create(&service, &v1::Group { priority, demote_to, ..group(name, "5") });
    }
    is_used_until_both(&service, |name| {
        let alone = v1::Group { demote_to: "/".into(), ..group(name, "5") };
        let mask = ["demote_to".to_owned()];
        assert!(service.definitions().alter_group(&actor(), &alone, &mask, 0).unwrap().changed);
    });
}

#[test]
fn a_group_is_used_as_long_as_any_other_switches_its_runaways_to_it() {
    let (_, service) = stage();
    let rule = |action: &str, to: &str| v1::QueryLimit {
        rows: 5,
        action: action.into(),
        switch_group: to.into(),
        ..v1::QueryLimit::default()
    };
    for name in ["one", "two"] {
        let query_limit = Some(rule("switch_group", "used"));
        create(&service, &v1::Group { query_limit, ..group(name, "5") });
    }
    is_used_until_both(&service, |name| {
        let alone = v1::Group { query_limit: Some(rule("kill", "")), ..group(name, "5") };
        let mask = ["query_limit".to_owned()];
        assert!(service.definitions().alter_group(&actor(), &alone, &mask, 0).unwrap().changed);
    });
}

/// A build that knows no proposals deletes the group alone.
#[test]
fn a_start_passes_over_a_proposal_whose_group_is_gone() {
    let (store, service) = stage();
    let mask = ["ru_per_sec".to_owned()];
    service.definitions().put_proposal(&actor(), &group("used", "4"), &mask, 0).unwrap();
    // The first group beside `default`.
    store.commit(&[Write::Delete(Table::Groups, group_key(GroupId(GroupId::DEFAULT.0 + 1)))]).unwrap();
    let service = started(&store, &Arc::new(AtomicU64::new(0)));
    assert_eq!(service.definitions().proposals(), []);
    create(&service, &group("used", "5"));
    assert_eq!(service.definitions().proposed("used").unwrap(), None);
}
