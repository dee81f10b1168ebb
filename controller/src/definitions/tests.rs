//! Which groups an answer has rows of.

use tidegate_proto::v1;

use super::*;
use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::identity::Role;
use crate::service::ServiceConfig;
use crate::store::RedbStore;

#[test]
fn a_tenant_has_rows_of_its_groups_by_whichever_of_both_lists_they_are_in() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let service = Service::load(store, ServiceConfig::default(), Clock::start()).unwrap();
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
