//! Many definitions in one change: all or nothing, over gRPC and REST, across crashes, and in any order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_controller::Controller;
use tidegate_controller::audit::Actor;
use tidegate_controller::error::AdminError;
use tidegate_controller::limits::MAX_STEPS;
use tidegate_controller::service::{Applied, Done};
use tidegate_controller::store::{RedbStore, Store};
use tidegate_proto::v1::step::Kind;
use tidegate_proto::v1::{self, ApplyRequest, Prune, Step};
use tonic::Code;

use crate::support::{Faulty, Lab, MemoryStore, Node, config, group, report, store_path};

pub(crate) fn step(kind: Kind) -> Step {
    Step { kind: Some(kind) }
}

/// A group below another, or at the top.
pub(crate) fn below(name: &str, parent: &str, rate: &str) -> Step {
    let text = v1::Group {
        name: name.into(),
        parent: if parent.is_empty() { "/".into() } else { parent.into() },
        ru_per_sec: rate.into(),
        ..v1::Group::default()
    };
    step(Kind::Group(Box::new(text)))
}

pub(crate) fn bound(user: &str, group: &str) -> Step {
    step(Kind::Binding(v1::Binding { user: user.into(), group: group.into(), ..v1::Binding::default() }))
}

pub(crate) fn gone(name: &str) -> Step {
    step(Kind::DeleteGroup(v1::DeleteGroupRequest { name: name.into(), ..v1::DeleteGroupRequest::default() }))
}

pub(crate) fn try_apply(lab: &Lab, wish: ApplyRequest) -> Result<Applied, AdminError> {
    lab.running.service().definitions().apply(&Actor::new(Some("tester"), "here"), &wish)
}

pub(crate) fn apply(lab: &Lab, steps: Vec<Step>) -> Applied {
    try_apply(lab, ApplyRequest { steps, ..ApplyRequest::default() }).unwrap()
}

pub(crate) fn done(applied: &Applied) -> Vec<(&str, Done)> {
    applied.outcomes.iter().map(|outcome| (outcome.name.as_str(), outcome.done)).collect()
}

/// Every group except `default`, with its parent.
pub(crate) fn tree(lab: &Lab) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = lab.running.service().definitions().groups(&after, 0).unwrap();
        all.extend(page.groups.into_iter().map(|group| (group.name, group.parent)));
        if page.next_after.is_empty() {
            all.remove("default");
            return all;
        }
        after = page.next_after;
    }
}

pub(crate) fn fields(error: &AdminError) -> Vec<&str> {
    error.faults().iter().map(|fault| fault.field.as_str()).collect()
}

#[tokio::test]
async fn what_is_applied_is_true_in_one_change_and_again_changes_nothing() {
    let lab = Lab::start().await;
    // A child before its parent, and a binding before its group.
    let steps = || vec![bound("ann", "web"), below("web", "all", "5"), below("all", "", "10")];
    let applied = apply(&lab, steps());
    assert_eq!(done(&applied), [("user ann", Done::Created), ("web", Done::Created), ("all", Done::Created)]);
    let status = lab.running.service().status();
    assert_eq!((status.revision, status.groups, status.bindings), (applied.revision, 3, 1));
    let entries = lab.running.service().definitions().audit_log("", 0, 10).unwrap();
    let (one, others) = entries.iter().filter(|entry| entry.actor.starts_with("tester")).fold(
        (entries[0].change, 0),
        |(change, count), entry| {
            assert_eq!(entry.change, change);
            (change, count + 1)
        },
    );
    assert_eq!((others, entries.iter().any(|entry| entry.id == one)), (3, true));

    let again = apply(&lab, steps());
    assert!(done(&again).iter().all(|(_, done)| *done == Done::Unchanged));
    assert_eq!(again.revision, applied.revision);
    let lab = lab.crash().await;
    assert_eq!(tree(&lab)["web"], "all");
    assert_eq!(apply(&lab, steps()).revision, again.revision);
}

#[tokio::test]
async fn every_fault_is_told_and_nothing_is_changed() {
    let lab = Lab::start().await;
    apply(&lab, vec![below("kept", "", "1"), below("used", "", "1"), bound("u", "used")]);
    let before = lab.running.service().status().revision;
    let steps = vec![
        below("new", "", "5"),
        below("a", "b", "5"),
        below("b", "a", "5"),
        below("lost", "nowhere", "5"),
        bound("v", "nowhere"),
        gone("used"),
        gone("missing"),
    ];
    let error =
        try_apply(&lab, ApplyRequest { steps: steps.clone(), ..ApplyRequest::default() }).unwrap_err();
    assert_eq!(
        fields(&error),
        [
            "steps[1].group.parent",
            "steps[2].group.parent",
            "steps[3].group.parent",
            "steps[4].binding",
            "steps[6].delete_group",
            "steps[5].delete_group",
        ]
    );
    assert!(error.to_string().contains("the cycle would be a -> b -> a"), "{error}");
    let planned = try_apply(&lab, ApplyRequest { steps, dry_run: true, ..ApplyRequest::default() }).unwrap();
    assert_eq!((planned.fault_count, planned.faults.as_slice()), (6, error.faults()));
    assert_eq!(lab.running.service().status().revision, before);
    assert_eq!(tree(&lab).len(), 2);
    // The next group gets the id that a refused group had for a moment.
    apply(&lab, vec![below("new", "", "5")]);
    lab.running.service().check().unwrap();
}

#[tokio::test]
async fn what_is_left_out_is_refused_where_it_would_lift_something() {
    let lab = Lab::start().await;
    apply(&lab, vec![below("top", "", "9"), below("web", "top", "5")]);
    let text = |name: &str| v1::Group { name: name.into(), ru_per_sec: "5".into(), ..v1::Group::default() };
    let group = |text: v1::Group| ApplyRequest {
        steps: vec![step(Kind::Group(Box::new(text)))],
        ..ApplyRequest::default()
    };
    let error = try_apply(&lab, group(text("web"))).unwrap_err();
    assert_eq!(fields(&error), ["steps[0].group.parent"]);
    let unnamed = v1::Group { ru_per_sec: String::new(), parent: "top".into(), ..text("web") };
    assert_eq!(fields(&try_apply(&lab, group(unnamed)).unwrap_err()), ["steps[0].group.ru_per_sec"]);
    let named = v1::Group { parent: "/".into(), ..text("web") };
    assert_eq!(done(&try_apply(&lab, group(named)).unwrap()), [("web", Done::Altered)]);
    // A text need not name a limit that it does not lift.
    assert_eq!(done(&try_apply(&lab, group(text("web"))).unwrap()), [("web", Done::Unchanged)]);
}

/// The history is kept by ids, and outlives its group.
#[tokio::test]
async fn a_group_that_is_new_after_a_change_was_taken_back_is_not_shown_with_the_history_of_a_deleted_one() {
    let lab = Lab::start().await;
    let accounts = || lab.running.service().accounts();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let refused = vec![below("one", "", "5"), below("two", "absent", "5")];
    for (round, (steps, dry_run)) in
        [(vec![below("dry", "", "5")], true), (refused, false)].into_iter().enumerate()
    {
        let [old, new] = ["old", "new"].map(|name| format!("{name}-{round}"));
        apply(&lab, vec![below(&old, "", "5")]);
        node.report(vec![report(&old, 1, 3)]).await;
        lab.running.service().upkeep().flush().unwrap();
        assert_eq!(accounts().usage_history(&old, "hour", 0, 0).unwrap().len(), 1);
        apply(&lab, vec![gone(&old)]);
        let taken_back = try_apply(&lab, ApplyRequest { steps, dry_run, ..ApplyRequest::default() });
        assert_eq!(taken_back.is_ok(), dry_run);
        apply(&lab, vec![below(&new, "", "5")]);
        assert_eq!(accounts().usage_history(&new, "hour", 0, 0).unwrap(), []);
    }
}

#[tokio::test]
async fn a_dry_run_and_a_plan_for_an_older_revision_change_nothing() {
    let lab = Lab::start().await;
    let steps = || vec![below("web", "", "5")];
    let plan =
        try_apply(&lab, ApplyRequest { steps: steps(), dry_run: true, ..ApplyRequest::default() }).unwrap();
    assert_eq!(done(&plan), [("web", Done::Created)]);
    assert!(tree(&lab).is_empty());
    let seen = ApplyRequest { steps: steps(), expected_revision: plan.revision, ..ApplyRequest::default() };
    lab.group("other", "1").await;
    let error = try_apply(&lab, seen).unwrap_err();
    assert_eq!((error.code(), tree(&lab).contains_key("web")), ("revision", false));
    let (then, now) = (plan.revision, lab.running.service().status().revision);
    assert!(error.to_string().contains(&format!("are at revision {now}, not {then}")), "{error}");
    let plan =
        try_apply(&lab, ApplyRequest { steps: steps(), dry_run: true, ..ApplyRequest::default() }).unwrap();
    let seen = ApplyRequest { steps: steps(), expected_revision: plan.revision, ..ApplyRequest::default() };
    assert_eq!(try_apply(&lab, seen).unwrap().revision, plan.revision + 1);
}

#[tokio::test]
async fn pruning_takes_what_is_not_named_in_its_scope_and_never_the_default_group() {
    let lab = Lab::start().await;
    let all = |prune: &str| {
        vec![below("top", "", "9"), below(prune, "top", "3"), below("leaf", prune, "1"), bound("u", "leaf")]
    };
    apply(&lab, all("mid"));
    apply(&lab, vec![below("aside", "", "9"), bound("v", "aside"), bound("w", "default")]);
    // A binding outside of the scope uses it.
    let groups = Prune { groups: true, under: "top".into(), ..Prune::default() };
    let steps = vec![below("top", "", "9")];
    let refused =
        try_apply(&lab, ApplyRequest { steps, prune: Some(groups), ..ApplyRequest::default() }).unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), ("in_use", vec!["prune", "prune"]));
    for under in ["top", "nowhere", "\u{84}"] {
        let nothing = Prune { under: under.into(), ..Prune::default() };
        let refused =
            try_apply(&lab, ApplyRequest { prune: Some(nothing), ..ApplyRequest::default() }).unwrap_err();
        assert_eq!((refused.code(), refused.field()), ("invalid", Some("prune.under")), "{under:?}");
    }
    let under = Prune { groups: true, bindings: true, under: "TOP".into(), ..Prune::default() };
    let steps = vec![below("top", "", "9")];
    let pruned =
        try_apply(&lab, ApplyRequest { steps, prune: Some(under), ..ApplyRequest::default() }).unwrap();
    assert_eq!(
        done(&pruned)[1..],
        [("user u", Done::Deleted), ("leaf", Done::Deleted), ("mid", Done::Deleted)]
    );
    assert_eq!(tree(&lab).into_keys().collect::<Vec<_>>(), ["aside", "top"]);
    let everything = Prune { groups: true, bindings: true, watches: true, ..Prune::default() };
    try_apply(&lab, ApplyRequest { prune: Some(everything), ..ApplyRequest::default() }).unwrap();
    let status = lab.running.service().status();
    assert_eq!((status.groups, status.bindings), (1, 0));
    let lab = lab.crash().await;
    assert!(tree(&lab).is_empty());
    lab.running.service().check().unwrap();
}

#[tokio::test]
async fn several_groups_are_deleted_together_or_not_at_all() {
    let lab = Lab::start().await;
    apply(&lab, vec![below("a", "", "9"), below("b", "a", "3"), below("c", "b", "1"), below("d", "", "1")]);
    apply(&lab, vec![bound("u", "c")]);
    let used = try_apply(
        &lab,
        ApplyRequest { steps: vec![gone("d"), gone("a"), gone("c")], ..ApplyRequest::default() },
    );
    assert_eq!(fields(&used.unwrap_err()), ["steps[2].delete_group", "steps[1].delete_group"]);
    let forced = |name: &str| {
        let text = v1::DeleteGroupRequest {
            name: name.into(),
            force_to: "d".into(),
            ..v1::DeleteGroupRequest::default()
        };
        step(Kind::DeleteGroup(text))
    };
    apply(&lab, vec![forced("a"), forced("c")]);
    assert_eq!(tree(&lab), BTreeMap::from([("b".into(), "d".into()), ("d".into(), String::new())]));
    let definitions = lab.running.service().definitions();
    assert_eq!(definitions.resolve("", "u").unwrap().group.as_str(), "d");
    let log = definitions.audit_log("b", 0, 1).unwrap();
    assert!(log[0].action == "alter group" && log[0].after.contains("\"d\""), "what was moved: {log:?}");
}

/// Groups by name, each below one that comes before it in a random order, at most eight deep.
fn random_tree(random: &mut StdRng, names: &[String]) -> BTreeMap<String, String> {
    let mut order = names.to_vec();
    for index in (1..order.len()).rev() {
        order.swap(index, random.random_range(0..=index));
    }
    let mut depths: Vec<(String, usize)> = Vec::new();
    let mut parents = BTreeMap::new();
    for name in order {
        // Mostly below the last one: deep trees have the least room.
        let above = if depths.is_empty() || random.random_ratio(1, 5) {
            None
        } else if random.random_ratio(3, 4) {
            depths.last().filter(|(_, depth)| *depth < 8)
        } else {
            depths.get(random.random_range(0..depths.len())).filter(|(_, depth)| *depth < 8)
        };
        let (parent, depth) = above.map_or((String::new(), 1), |(name, depth)| (name.clone(), depth + 1));
        parents.insert(name.clone(), parent);
        depths.push((name, depth));
    }
    parents
}

#[tokio::test]
async fn any_tree_becomes_any_other_in_one_change() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let running = Controller::start_with(config(&folder), Arc::clone(&store)).await.unwrap();
    let mut lab = Lab { folder, running };
    let mut random = StdRng::seed_from_u64(7);
    for round in 0..120 {
        let count = random.random_range(2..14);
        let names: Vec<String> = (0..14).map(|number| format!("g{number}")).take(count).collect();
        let wanted = random_tree(&mut random, &names);
        let mut steps: Vec<Step> = wanted
            .iter()
            .map(|(name, parent)| below(name, parent, &random.random_range(1..9).to_string()))
            .collect();
        let named = steps.len();
        for index in (1..named).rev() {
            steps.swap(index, random.random_range(0..=index));
        }
        let prune = Prune { groups: true, ..Prune::default() };
        let wish = ApplyRequest { steps, prune: Some(prune), ..ApplyRequest::default() };
        if let Err(error) = try_apply(&lab, wish.clone()) {
            // Groups to be pruned still exist while the rest moves, and may prevent it.
            assert!(error.faults().iter().all(|fault| fault.message.contains("groups deep")), "{error}");
            let flat = names.iter().map(|name| below(name, "", "1")).collect();
            let prune = Prune { groups: true, ..Prune::default() };
            try_apply(&lab, ApplyRequest { steps: flat, prune: Some(prune), ..ApplyRequest::default() })
                .unwrap();
            try_apply(&lab, wish.clone()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        assert_eq!(tree(&lab), wanted, "round {round}");
        lab.running.service().check().unwrap();
        let again = try_apply(&lab, wish).unwrap();
        assert!(again.outcomes.iter().all(|outcome| outcome.done == Done::Unchanged), "round {round}");
        if round % 10 == 0 {
            lab.running.abort().await;
            lab.running = Controller::start_with(config(&lab.folder), Arc::clone(&store)).await.unwrap();
            assert_eq!(tree(&lab), wanted, "round {round}, after a crash");
        }
    }
}

#[tokio::test]
async fn leases_of_groups_that_go_together_are_remembered_by_the_one_that_stays() {
    let lab = Lab::start().await;
    let lasting = |name: &str, parent: &str, ttl_us| {
        let Some(Kind::Group(text)) = below(name, parent, "5").kind else { panic!() };
        step(Kind::Group(Box::new(v1::Group { ttl_us, ..*text })))
    };
    apply(
        &lab,
        vec![
            lasting("top", "", 5_000_000),
            lasting("mid", "top", 60_000_000),
            lasting("leaf", "mid", 5_000_000),
            lasting("brief", "top", 1_000_000),
        ],
    );
    apply(&lab, vec![gone("leaf"), gone("mid"), gone("brief")]);
    // After a crash `top` grants nothing until the longest lease that may be out below it has ended.
    let lab = lab.crash().await;
    assert!(lab.running.service().status().recovery.0 > 30_000_000);
    lab.running.service().check().unwrap();
}

#[tokio::test]
async fn a_change_that_cannot_be_stored_is_not_in_force_in_any_part() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::over(Arc::new(RedbStore::open(&store_path(&folder)).unwrap())));
    let running =
        Controller::start_with(config(&folder), Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let lab = Lab { folder, running };
    apply(&lab, vec![below("web", "", "5"), bound("u", "web")]);
    store.full.store(true, Ordering::SeqCst);
    let steps = || vec![below("web", "", "6"), below("new", "web", "1"), bound("u", "new")];
    let error = try_apply(&lab, ApplyRequest { steps: steps(), ..ApplyRequest::default() }).unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert_eq!(lab.running.service().definitions().resolve("", "u").unwrap().group.as_str(), "web");
    assert_eq!(lab.running.service().definitions().group("web").unwrap().group.ru_per_sec, "5");
    store.full.store(false, Ordering::SeqCst);
    assert_eq!(done(&apply(&lab, steps())).len(), 3);
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn too_many_steps_are_refused() {
    let lab = Lab::start().await;
    let steps = (0..=MAX_STEPS).map(|number| bound(&format!("u{number}"), "default")).collect();
    let error = try_apply(&lab, ApplyRequest { steps, ..ApplyRequest::default() }).unwrap_err();
    assert_eq!((error.field(), error.code()), (Some("steps"), "invalid"));
    let steps = (0..MAX_STEPS).map(|number| bound(&format!("u{number}"), "default")).collect();
    assert_eq!(apply(&lab, steps).outcomes.len(), MAX_STEPS);
    // One change removes all bindings that one change made.
    let prune = Prune { bindings: true, ..Prune::default() };
    assert_eq!(
        try_apply(&lab, ApplyRequest { prune: Some(prune), ..ApplyRequest::default() })
            .unwrap()
            .outcomes
            .len(),
        MAX_STEPS
    );
}

#[tokio::test]
async fn steps_come_over_grpc() {
    let lab = Lab::start().await;
    let mut admin = lab.admin().await;
    let table = v1::CostTable { name: "mine".into(), version: 1, ..v1::CostTable::default() };
    let watch = v1::Watch {
        group: "web".into(),
        r#match: "similar".into(),
        digest: "00000000000000ab".into(),
        action: "kill".into(),
        ..v1::Watch::default()
    };
    let binding = v1::Binding { tenant: "t".into(), group: "web".into(), ..v1::Binding::default() };
    let request = ApplyRequest {
        steps: vec![
            step(Kind::Group(Box::new(group("web", "5")))),
            step(Kind::Binding(binding)),
            step(Kind::CostTable(v1::PutCostTableRequest { role: "shadow".into(), table: Some(table) })),
            step(Kind::Watch(watch)),
        ],
        ..ApplyRequest::default()
    };
    let kinds = |reply: v1::ApplyReply| -> Vec<String> {
        reply.outcomes.into_iter().map(|outcome| format!("{} {}", outcome.kind, outcome.outcome)).collect()
    };
    let first = admin.apply(request.clone()).await.unwrap().into_inner();
    let created = ["group created", "binding created", "cost_table created", "watch created"];
    assert_eq!(kinds(first), created);
    let second = admin.apply(request).await.unwrap().into_inner();
    assert!(kinds(second).iter().all(|kind| kind.ends_with("unchanged")));

    let watch_id = lab.running.service().statements().watches("").unwrap()[0].id;
    let ends = ApplyRequest {
        steps: vec![
            step(Kind::DeleteWatch(v1::RemoveWatchRequest { id: watch_id, group: String::new() })),
            step(Kind::DeleteBinding(v1::UnbindRequest { tenant: "t".into(), user: String::new() })),
            step(Kind::CostTable(v1::PutCostTableRequest { role: "shadow".into(), table: None })),
            step(Kind::DeleteGroup(v1::DeleteGroupRequest {
                name: "web".into(),
                ..v1::DeleteGroupRequest::default()
            })),
        ],
        ..ApplyRequest::default()
    };
    let reply = admin.apply(ends).await.unwrap().into_inner();
    assert!(kinds(reply).iter().all(|kind| kind.ends_with("deleted")));
    let nothing = ApplyRequest { steps: vec![Step { kind: None }], ..ApplyRequest::default() };
    assert_eq!(admin.apply(nothing).await.unwrap_err().code(), Code::InvalidArgument);
    let stale = ApplyRequest { expected_revision: 1, ..ApplyRequest::default() };
    assert_eq!(admin.apply(stale).await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn steps_come_over_rest() {
    let lab = Lab::start().await;
    let body =
        r#"{"steps":[{"group":{"name":"web","ru_per_sec":"5"}},{"binding":{"user":"u","group":"web"}}]}"#;
    let (status, answer) = lab.http("POST", "/v1/apply", Some(body)).await;
    assert_eq!((status, answer["outcomes"][1]["outcome"].as_str()), (200, Some("created")));
    assert_eq!(answer["outcomes"][0]["after"].as_str().map(|text| text.contains("\"web\"")), Some(true));
    let body = r#"{"steps":[{"group":{"name":"web","ru_per_sec":""}},{"delete_binding":{}}]}"#;
    let (status, answer) = lab.http("POST", "/v1/apply", Some(body)).await;
    assert_eq!((status, answer["error"]["field"].as_str()), (400, Some("steps[1].delete_binding.user")));
    let dry = r#"{"dry_run":true,"steps":[{"group":{"name":"web","ru_per_sec":""}}]}"#;
    let (status, answer) = lab.http("POST", "/v1/apply", Some(dry)).await;
    assert_eq!((status, answer["faults"][0]["field"].as_str()), (200, Some("steps[0].group.ru_per_sec")));
    for bad in [r#"{"steps":[{}]}"#, r#"{"steps":[{"group":{},"binding":{}}]}"#, r#"{"step":[]}"#, "{"] {
        assert_eq!(lab.http("POST", "/v1/apply", Some(bad)).await.0, 400, "{bad}");
    }
}
