//! Which groups an answer has rows of, and how many may follow.

use tidegate_proto::v1;

use super::*;
use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::definitions::events::WatchError;
use crate::identity::Role;
use crate::limits::MAX_WATCHERS;
use crate::service::ServiceConfig;
use crate::store::RedbStore;

fn service(folder: &tempfile::TempDir) -> Service {
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    Service::load(store, ServiceConfig::default(), Clock::start()).unwrap()
}

#[test]
fn watchers_are_bounded_and_one_that_ends_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&folder);
    let watch = || service.definitions().subscribe(0, 0);
    let mut all: Vec<_> = (0..MAX_WATCHERS).map(|_| watch().unwrap()).collect();
    let error = watch().err().unwrap();
    assert!(matches!(error, WatchError::TooMany) && error.to_string().contains("20000"), "{error}");
    all.pop();
    assert!(watch().is_ok());
}

#[test]
fn a_tenant_has_rows_of_its_groups_by_whichever_of_both_lists_they_are_in() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&folder);
    let (calls, actor) = (service.definitions(), Actor::new(None, "test"));
    for name in ["one", "two", "both", "none", "secret"] {
        let group = v1::Group { name: name.into(), ru_per_sec: "5".into(), ..v1::Group::default() };
        calls.create_group(&actor, &group, false).unwrap();
        let tenant = if name == "secret" { "other" } else { "acme" };
        calls.bind(&actor, tenant, name, name).unwrap();
    }
    let state = service.lock();
    let ids = |names: &[&str]| {
        let id = |name: &&str| state.definitions.catalog.id(&GroupName::parse(name).unwrap()).unwrap();
        names.iter().map(id).collect::<BTreeSet<_>>()
    };
    let (these, those) = (ids(&["one", "both", "secret"]), ids(&["two", "both", "secret"]));
    let tenant = Identity { tenant: Some("acme".into()), ..Identity::anonymous(Role::Tenant) };
    let chosen = |sight, one: Option<&str>| {
        let one = one.map(|name| GroupName::parse(name).unwrap());
        let chosen = state.definitions.chosen(sight, one.as_ref(), &these, &those)?;
        Ok::<_, AdminError>(chosen.map(|(_, name)| name.to_string()).collect::<BTreeSet<_>>())
    };
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(chosen(Sight::of(Some(&tenant)), None).unwrap(), all(&["one", "two", "both"]));
    assert_eq!(chosen(Sight::default(), None).unwrap(), all(&["one", "two", "both", "secret"]));
    assert_eq!(chosen(Sight::of(Some(&tenant)), Some("none")).unwrap(), all(&["none"]));
    assert_eq!(chosen(Sight::of(Some(&tenant)), Some("secret")).unwrap_err().code(), "not_found");
}
