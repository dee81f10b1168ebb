//! Which groups an answer has rows of, and how many may follow.

use tidegate_proto::v1;

use super::*;
use crate::clock::Clock;
use crate::definitions::audit::Actor;
use crate::definitions::events::WatchError;
use crate::identity::Role;
use crate::limits::MAX_WATCHERS;
use crate::service::ServiceConfig;
use crate::statements::testing::similar;
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

/// They would go on blocking its statements, and those of the next group with its name.
#[test]
fn gateways_learn_that_a_group_is_gone_of_which_they_know_anything() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&folder);
    let (calls, actor) = (service.definitions(), Actor::new(None, "test"));
    let limit = v1::QueryLimit { rows: 5, action: "kill".into(), ..v1::QueryLimit::default() };
    for (query_limit, max_wait_us, has_watch) in [
        (None, 0, false),
        (None, 0, true),
        (None, 1_000_000, false),
        (Some(limit.clone()), 0, false),
        (Some(limit), 1_000_000, true),
    ] {
        let knows = query_limit.is_some() || max_wait_us > 0 || has_watch;
        let case = format!("{query_limit:?}, {max_wait_us}, {has_watch}");
        let (name, ru_per_sec) = ("web".to_owned(), "5".to_owned());
        let group = v1::Group { name, ru_per_sec, query_limit, max_wait_us, ..v1::Group::default() };
        let mut rules = service.statements().follow_rules().unwrap();
        calls.create_group(&actor, &group, false).unwrap();
        if has_watch {
            service.statements().add_watch(&actor, &similar("web", 1)).unwrap();
        }
        assert_eq!(rules.has_changed().unwrap(), knows, "made: {case}");
        rules.mark_unchanged();
        calls.delete_group(&actor, "web", "", 0, false).unwrap();
        assert_eq!(rules.has_changed().unwrap(), knows, "gone: {case}");
        assert_eq!(service.statements().watches("").unwrap(), []);
    }
}

/// What was looked at is what is put in force, also where somebody else proposes.
#[test]
fn a_proposal_in_place_of_another_has_another_number_and_only_that_applies_it() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(&folder);
    let (calls, actor) = (service.definitions(), Actor::new(None, "test"));
    let text = |name: &str, rate: &str| {
        let (name, ru_per_sec) = (name.to_owned(), rate.to_owned());
        v1::Group { name, ru_per_sec, ..v1::Group::default() }
    };
    for name in ["web", "other"] {
        calls.create_group(&actor, &text(name, "100"), false).unwrap();
    }
    let mask = ["ru_per_sec".to_owned()];
    let propose =
        |name: &str, rate: &str| calls.put_proposal(&actor, &text(name, rate), &mask, 0).unwrap().id;
    let numbers = [propose("web", "10"), propose("web", "20"), propose("other", "20"), propose("web", "20")];
    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>().len(), numbers.len(), "{numbers:?}");
    let [.., last] = numbers;
    for other in numbers.into_iter().filter(|number| *number != last) {
        let refused = calls.apply_proposal(&actor, "web", other).err().unwrap().to_string();
        assert!(refused.contains(&format!("is number {last}, and not {other} any more")), "{refused}");
    }
    let (group, rows) = {
        let applied = calls.apply_proposal(&actor, "web", last).unwrap();
        (applied.group, calls.proposals())
    };
    assert_eq!(group.ru_per_sec, "20");
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [numbers[2]], "that of the other stays");
}
