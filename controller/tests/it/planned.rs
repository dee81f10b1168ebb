//! Plans of many steps: what is refused and by which place of the request, what follows from deletions, and bounds.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_controller::error::AdminError;
use tidegate_controller::limits::{MAX_FAULTS, MAX_STEPS};
use tidegate_controller::service::{Applied, Done, Service};
use tidegate_core::MAX_DEPTH;
use tidegate_proto::v1::step::Kind;
use tidegate_proto::v1::{self, ApplyRequest, Prune, Step};

use crate::apply::{below, bound, done, gone, step};
use crate::support::{MemoryStore, actor, group, started};

/// A controller without a network, and its store.
struct Desk {
    store: Arc<MemoryStore>,
    service: Service,
}

impl Desk {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let service = started(&store, &Arc::new(AtomicU64::new(0)));
        Self { store, service }
    }

    fn crash(self) -> Self {
        let service = started(&self.store, &Arc::new(AtomicU64::new(0)));
        Self { service, ..self }
    }

    fn wish(&self, wish: &ApplyRequest) -> Result<Applied, AdminError> {
        self.service.definitions().apply(&actor(), wish)
    }

    fn try_apply(&self, steps: Vec<Step>) -> Result<Applied, AdminError> {
        self.wish(&ApplyRequest { steps, ..ApplyRequest::default() })
    }

    fn apply(&self, steps: Vec<Step>) -> Applied {
        self.try_apply(steps).unwrap()
    }

    fn group(&self, name: &str) -> v1::Group {
        self.service.definitions().group(name).unwrap().group
    }

    /// The watches that there are, as group, target and id.
    fn watches(&self) -> Vec<(String, String, u64)> {
        let watches = self.service.statements().watches("").unwrap();
        watches.into_iter().map(|watch| (watch.group, watch.switch_group, watch.id)).collect()
    }
}

fn watch(group: &str, statement: u64, action: &str, to: &str) -> Step {
    step(Kind::Watch(v1::Watch {
        group: group.into(),
        r#match: "similar".into(),
        digest: format!("{statement:016x}"),
        action: action.into(),
        switch_group: to.into(),
        ..v1::Watch::default()
    }))
}

fn unbound(tenant: &str, user: &str) -> Step {
    step(Kind::DeleteBinding(v1::UnbindRequest { tenant: tenant.into(), user: user.into() }))
}

fn unwatched(id: u64) -> Step {
    step(Kind::DeleteWatch(v1::RemoveWatchRequest { id, ..v1::RemoveWatchRequest::default() }))
}

fn deleted(name: &str, force_to: &str, expected_revision: u64, if_exists: bool) -> Step {
    let (name, force_to) = (name.into(), force_to.into());
    step(Kind::DeleteGroup(v1::DeleteGroupRequest { name, force_to, expected_revision, if_exists }))
}

fn table(role: &str, table: Option<&str>) -> Step {
    let table = table.map(|name| v1::CostTable { name: name.into(), version: 1, ..v1::CostTable::default() });
    step(Kind::CostTable(v1::PutCostTableRequest { role: role.into(), table }))
}

/// A group below another with a quota, or "none".
fn counted(name: &str, parent: &str, quota: &str) -> Step {
    let Some(Kind::Group(text)) = below(name, parent, "5").kind else { panic!() };
    step(Kind::Group(Box::new(v1::Group { quota: quota.into(), ..*text })))
}

#[test]
fn what_no_step_can_say_is_refused_by_its_place_with_a_remedy_and_nothing_is_changed() {
    let desk = Desk::new();
    desk.apply(vec![below("web", "", "5"), below("top", "", "9"), below("leaf", "top", "5")]);
    let before = desk.service.status().revision;
    let ruled = |to: &str| {
        let limit = v1::QueryLimit {
            rows: 5,
            action: "switch_group".into(),
            switch_group: to.into(),
            ..v1::QueryLimit::default()
        };
        step(Kind::Group(Box::new(v1::Group { query_limit: Some(limit), ..group("web", "5") })))
    };
    let nameless = step(Kind::Binding(v1::Binding { group: "?".into(), ..v1::Binding::default() }));
    for (steps, faults) in [
        (vec![gone("default")], vec![("delete_group", "group default cannot be deleted; alter it instead")]),
        (
            vec![gone("web"), watch("web", 1, "kill", "")],
            vec![("delete_group", "watch 0000000000000001 of group web would stay; leave it out")],
        ),
        (vec![deleted("web", "", 77, false)], vec![("delete_group", "at revision 2, not 77")]),
        (vec![deleted("web", "web", 0, false), bound("u", "web")], vec![("delete_group.force_to", "web")]),
        (vec![deleted("?", "!", 0, false)], vec![("delete_group.name", "?"), ("delete_group.force_to", "!")]),
        (vec![deleted("top", "leaf", 0, false)], vec![("delete_group.force_to", "leaf is below top")]),
        (vec![watch("web", 1, "", "")], vec![("watch.action", "group web has no query_limit")]),
        (vec![unwatched(0)], vec![("delete_watch.id", "list the watches to see their numbers")]),
        (vec![table("active", None)], vec![("cost_table.table", "one table must be active")]),
        (vec![nameless], vec![("binding.user", ""), ("binding.group", "?")]),
        (vec![ruled("nowhere")], vec![("group.query_limit.switch_group", "group nowhere does not exist")]),
        (vec![ruled("web")], vec![("group.query_limit.switch_group", "web is the group itself")]),
    ] {
        let error = desk.try_apply(steps).unwrap_err();
        let said: Vec<_> =
            error.faults().iter().map(|fault| (fault.field.as_str(), fault.message.as_str())).collect();
        assert_eq!(said.len(), faults.len(), "{said:?}");
        for ((field, message), (place, part)) in said.into_iter().zip(faults) {
            assert_eq!(field, format!("steps[0].{place}"), "{message}");
            assert!(message.contains(part), "{field}: {message}");
        }
    }
    assert_eq!(desk.service.status().revision, before);
    desk.service.check().unwrap();
}

#[test]
fn each_thing_has_one_step_and_a_second_one_is_told_by_what_names_it() {
    let desk = Desk::new();
    for (steps, field) in [
        (vec![bound("u", "default"), unbound("", "u")], "steps[1].delete_binding.user"),
        (vec![unbound("t", ""), unbound("t", "")], "steps[1].delete_binding.tenant"),
        (vec![unbound("t", "u"), unbound("t", "u")], "steps[1].delete_binding.user"),
        (vec![table("shadow", Some("a")), table("shadow", None)], "steps[1].cost_table.role"),
        (vec![table("active", Some("a")), table("active", Some("b"))], "steps[1].cost_table.role"),
        (vec![watch("default", 1, "kill", ""), watch("default", 1, "cooldown", "")], "steps[1].watch.digest"),
        (vec![unwatched(3), unwatched(3)], "steps[1].delete_watch.id"),
    ] {
        let error = desk.try_apply(steps).unwrap_err();
        assert_eq!((error.faults().len(), error.field()), (1, Some(field)), "{error}");
        assert!(error.to_string().contains("steps[0] is about"), "{error}");
    }
    // These are different things.
    let steps = vec![unbound("t", "u"), unbound("t", ""), unbound("", "u"), unwatched(3), unwatched(4)];
    assert!(desk.apply(steps).outcomes.iter().all(|outcome| outcome.done == Done::Unchanged));
}

#[test]
fn what_is_gone_already_is_no_change_where_that_is_asked_for() {
    let desk = Desk::new();
    let before = desk.service.status().revision;
    let applied = desk.apply(vec![deleted("web", "", 5, true)]);
    assert_eq!((done(&applied), applied.revision), (vec![("web", Done::Unchanged)], before));
    let error = desk.try_apply(vec![deleted("web", "", 0, false)]).unwrap_err();
    assert_eq!((error.code(), error.faults().len()), ("not_found", 1));
}

#[test]
fn a_watch_that_switches_to_a_deleted_group_switches_to_its_heir() {
    let desk = Desk::new();
    desk.apply(vec![
        below("old", "", "5"),
        below("new", "", "5"),
        below("web", "", "5"),
        watch("web", 1, "switch_group", "old"),
        watch("web", 2, "kill", ""),
    ]);
    let [(.., first), (.., second)] = &desk.watches()[..] else { panic!() };
    let (first, second) = (*first, *second);
    let error = desk.try_apply(vec![gone("old")]).unwrap_err();
    assert!(error.to_string().contains(&format!("watch {first} of group web")), "{error}");
    // The group of the watch cannot be its own heir.
    let error = desk.try_apply(vec![deleted("old", "web", 0, false)]).unwrap_err();
    assert_eq!(error.field(), Some("steps[0].delete_group.force_to"), "{error}");
    desk.apply(vec![deleted("old", "new", 0, false)]);
    let expected = [("web".into(), "new".into(), first), ("web".into(), String::new(), second)];
    assert_eq!(desk.watches(), expected);
    let desk = desk.crash();
    assert_eq!(desk.watches(), expected);
    // A watch does not keep its heir when its own group goes with it.
    desk.apply(vec![gone("new"), gone("web")]);
    assert_eq!(desk.crash().watches(), []);
}

#[test]
fn what_steps_delete_is_not_pruned_once_more() {
    let desk = Desk::new();
    let steps = vec![
        below("a", "", "5"),
        below("b", "", "5"),
        bound("u", "default"),
        bound("v", "default"),
        watch("default", 1, "kill", ""),
        watch("default", 2, "kill", ""),
    ];
    desk.apply(steps);
    let [(.., first), (.., second)] = &desk.watches()[..] else { panic!() };
    let steps = vec![gone("a"), unbound("", "u"), unwatched(*first), watch("default", 2, "kill", "")];
    let prune = Some(Prune { groups: true, bindings: true, watches: true, ..Prune::default() });
    let applied = desk.wish(&ApplyRequest { steps, prune, ..ApplyRequest::default() }).unwrap();
    let ended = format!("{first} of group default");
    let expected = [
        ("a", Done::Deleted),
        ("user u", Done::Deleted),
        (ended.as_str(), Done::Deleted),
        ("similar 0000000000000002 of group default", Done::Unchanged),
        ("user v", Done::Deleted),
        ("b", Done::Deleted),
    ];
    assert_eq!(done(&applied), expected);
    assert_eq!(desk.watches(), [("default".into(), String::new(), *second)]);
}

/// What is moved under a group whose quota counts it, out of another's, is warned of.
#[test]
fn what_leaves_the_quota_of_a_deleted_group_for_another_is_warned_of() {
    let desk = Desk::new();
    desk.apply(vec![
        counted("one", "", "5 per day"),
        below("old", "one", "3"),
        below("near", "one", "3"),
        counted("two", "", "9 per day"),
        below("far", "two", "3"),
        bound("u", "old"),
    ]);
    let moved = |to: &str| {
        let wish = ApplyRequest {
            steps: vec![deleted("old", to, 0, false)],
            dry_run: true,
            ..ApplyRequest::default()
        };
        desk.wish(&wish).unwrap().warnings
    };
    assert_eq!(moved("near"), [""; 0]);
    let warning = "what moved from old to far does not count in the quota of group one any more";
    assert_eq!(moved("far"), [warning]);
    let deleted = desk.service.definitions().delete_group(&actor(), "old", "far", 0, false).unwrap();
    assert_eq!(deleted.warnings, [warning]);
}

/// No group of these can be put first: `z` is too high for the place below `t` until `last` is gone from below it,
/// which goes to a place that is too deep until `y` is at the top, which gets a quota and has one below it until `x` is
/// gone, which goes below `z`, which has a quota.
#[test]
fn groups_that_all_wait_for_each_other_reach_their_places() {
    let desk = Desk::new();
    let chain = |name: &str, above: &str, from: usize, to: usize| {
        let parent = |n: usize| if n == from { above.to_owned() } else { format!("{name}{}", n - 1) };
        (from..=to).map(|n| below(&format!("{name}{n}"), &parent(n), "5")).collect::<Vec<_>>()
    };
    let (deepest, last_but_one) = (format!("p{MAX_DEPTH}"), format!("c{}", MAX_DEPTH - 1));
    let mut steps = vec![
        counted("z", "", "5 per day"),
        below("t", "", "5"),
        below("r", "", "5"),
        counted("y", "r", "none"),
        counted("x", "y", "3 per day"),
        below("last", &last_but_one, "5"),
    ];
    steps.extend(chain("c", "z", 2, MAX_DEPTH - 1));
    steps.extend(chain("p", "y", 3, MAX_DEPTH));
    desk.apply(steps);
    let wanted = || {
        vec![
            counted("z", "t", "none"),
            below("last", &deepest, "5"),
            counted("y", "", "7 per day"),
            counted("x", "z", "3 per day"),
        ]
    };
    let applied = desk.apply(wanted());
    assert!(applied.outcomes.iter().all(|outcome| outcome.done == Done::Altered), "{:?}", done(&applied));
    let desk = desk.crash();
    for (name, parent, quota) in
        [("z", "t", ""), ("last", &*deepest, ""), ("y", "", "7 per day"), ("x", "z", "3 per day")]
    {
        let group = desk.group(name);
        assert_eq!((group.parent.as_str(), group.quota.as_str()), (parent, quota), "{name}");
    }
    assert!(desk.apply(wanted()).outcomes.iter().all(|outcome| outcome.done == Done::Unchanged));
    desk.service.check().unwrap();
}

#[test]
fn more_than_one_change_can_take_is_not_pruned() {
    let desk = Desk::new();
    let all = (0..MAX_STEPS).map(|number| bound(&format!("u{number}"), "default")).collect();
    desk.apply(all);
    let prune = |steps| {
        let prune = Some(Prune { bindings: true, ..Prune::default() });
        desk.wish(&ApplyRequest { steps, prune, ..ApplyRequest::default() })
    };
    // One step and all but one of what is pruned are as many as there may be.
    let count = |applied: &Applied| (applied.outcomes.len(), desk.service.status().bindings);
    let error = prune(vec![below("web", "", "5")]).unwrap_err();
    assert_eq!(error.field(), Some("prune"));
    for part in ["10000 or more are not named, and with 1 steps", "with `under`"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(desk.service.status().bindings, MAX_STEPS);
    assert_eq!(count(&prune(vec![unbound("", "u7")]).unwrap()), (MAX_STEPS, 0));
}

#[test]
fn faults_and_warnings_are_listed_as_far_as_anyone_reads_and_all_are_counted() {
    let desk = Desk::new();
    let many = |step: &dyn Fn(usize) -> Step| (0..MAX_FAULTS + 2).map(step).collect::<Vec<_>>();
    let unlimited = |number: usize| {
        let limited = group(&format!("g{number}"), "5");
        step(Kind::Group(Box::new(v1::Group { fallback: "unlimited".into(), ..limited })))
    };
    let lost = |number: usize| bound(&format!("u{number}"), "nowhere");
    let Err(AdminError::Several { faults, count }) = desk.try_apply(many(&lost)) else { panic!() };
    assert_eq!((faults.len(), count), (MAX_FAULTS, MAX_FAULTS + 2));
    let dry = ApplyRequest { steps: many(&lost), dry_run: true, ..ApplyRequest::default() };
    let dry = desk.wish(&dry).unwrap();
    assert_eq!((dry.faults.len(), dry.fault_count), (MAX_FAULTS, MAX_FAULTS + 2));
    let applied = desk.apply(many(&unlimited));
    assert_eq!(applied.warnings.len(), MAX_FAULTS + 1);
    assert_eq!(applied.warnings.last().unwrap(), "and 2 more");
}
