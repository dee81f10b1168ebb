//! Things that go in one change: what goes with a group does not use it, and what goes makes room.

use std::collections::BTreeMap;

use tidegate_controller::audit::Actor;
use tidegate_controller::limits::MAX_WATCHES;
use tidegate_controller::service::Done;
use tidegate_proto::v1::step::Kind;
use tidegate_proto::v1::{self, ApplyRequest, Prune, Step};

use crate::apply::{apply, below, bound, done, fields, gone, step, tree, try_apply};
use crate::support::Lab;

/// A group that demotes to another and switches its runaways there.
fn leaning(name: &str, on: &str) -> Step {
    let limit = v1::QueryLimit {
        rows: 5,
        action: "switch_group".into(),
        switch_group: on.into(),
        ..v1::QueryLimit::default()
    };
    let text = v1::Group {
        name: name.into(),
        ru_per_sec: "5".into(),
        priority: "high".into(),
        demote_to: on.into(),
        query_limit: Some(limit),
        ..v1::Group::default()
    };
    step(Kind::Group(Box::new(text)))
}

/// A watch of a statement of this group, which switches it to another.
fn switching(group: &str, to: &str) -> Step {
    let watch = v1::Watch {
        group: group.into(),
        r#match: "similar".into(),
        digest: "00000000000000a1".into(),
        action: "switch_group".into(),
        switch_group: to.into(),
        ..v1::Watch::default()
    };
    step(Kind::Watch(watch))
}

/// A controller with `high`, which leans on `low` in each way, beside `other`. Groups are deleted in the order of their
/// ids, so each is the older one once.
async fn leaning_lab(low_is_older: bool) -> Lab {
    let lab = Lab::start().await;
    let older = if low_is_older { "low" } else { "high" };
    apply(&lab, vec![below(older, "", "5")]);
    apply(&lab, vec![below("low", "", "5"), leaning("high", "low"), below("other", "", "5")]);
    apply(&lab, vec![switching("high", "low")]);
    lab
}

async fn only_other_is_left(lab: Lab) {
    let left = BTreeMap::from([("other".to_owned(), String::new())]);
    assert_eq!(tree(&lab), left);
    assert_eq!(lab.running.service().statements().watches("").unwrap(), []);
    let lab = lab.crash().await;
    assert_eq!(tree(&lab), left);
    assert_eq!(lab.running.service().statements().watches("").unwrap(), []);
    lab.running.service().check().unwrap();
}

#[tokio::test]
async fn groups_that_go_together_do_not_hold_each_other_by_what_one_does_with_the_other() {
    for low_is_older in [false, true] {
        let lab = leaning_lab(low_is_older).await;
        let alone = ApplyRequest { steps: vec![gone("low")], ..ApplyRequest::default() };
        let refused = try_apply(&lab, alone).unwrap_err();
        assert_eq!((refused.code(), fields(&refused)), ("in_use", vec!["steps[0].delete_group"]));
        apply(&lab, vec![gone("low"), gone("high")]);
        only_other_is_left(lab).await;
    }
}

#[tokio::test]
async fn groups_that_are_pruned_together_do_not_hold_each_other_either() {
    for low_is_older in [false, true] {
        let lab = leaning_lab(low_is_older).await;
        let prune = Some(Prune { groups: true, ..Prune::default() });
        let wish = ApplyRequest { steps: vec![below("other", "", "5")], prune, ..ApplyRequest::default() };
        try_apply(&lab, wish).unwrap();
        only_other_is_left(lab).await;
    }
}

#[tokio::test]
async fn what_goes_with_a_group_is_not_moved_with_its_users() {
    for low_is_older in [false, true] {
        let lab = leaning_lab(low_is_older).await;
        let service = lab.running.service();
        service.definitions().bind(&Actor::new(None, "test"), "", "ann", "low").unwrap();
        let forced = v1::DeleteGroupRequest {
            name: "low".into(),
            force_to: "other".into(),
            ..v1::DeleteGroupRequest::default()
        };
        let applied = apply(&lab, vec![step(Kind::DeleteGroup(forced)), gone("high")]);
        assert_eq!(done(&applied), [("low", Done::Deleted), ("high", Done::Deleted)]);
        let entries = service.definitions().audit_log("high", 0, 1).unwrap();
        assert_eq!(entries[0].action, "delete group", "and not altered before");
        assert_eq!(service.definitions().resolve("", "ann").unwrap().group.as_str(), "other");
        only_other_is_left(lab).await;
    }
}

/// A watch that kills a statement of this group.
fn killing(group: &str, statement: usize) -> Step {
    let watch = v1::Watch {
        group: group.into(),
        r#match: "similar".into(),
        digest: format!("{statement:016x}"),
        action: "kill".into(),
        ..v1::Watch::default()
    };
    step(Kind::Watch(watch))
}

#[tokio::test]
async fn a_watch_that_goes_makes_room_for_one_that_comes_in_any_order() {
    let lab = Lab::start().await;
    apply(&lab, (0..MAX_WATCHES).map(|statement| killing("default", statement)).collect());
    let one_more = ApplyRequest { steps: vec![killing("default", MAX_WATCHES)], ..ApplyRequest::default() };
    let refused = try_apply(&lab, one_more.clone()).unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), ("full", vec!["steps"]));
    let ended =
        |id| step(Kind::DeleteWatch(v1::RemoveWatchRequest { id, ..v1::RemoveWatchRequest::default() }));
    let ids = || {
        let watches = lab.running.service().statements().watches("").unwrap();
        watches.iter().map(|watch| watch.id).collect::<Vec<_>>()
    };
    let oldest = ids();
    let applied = apply(&lab, vec![killing("default", MAX_WATCHES), ended(oldest[0])]);
    assert_eq!(
        applied.outcomes.iter().map(|one| one.done).collect::<Vec<_>>(),
        [Done::Created, Done::Deleted]
    );
    apply(&lab, vec![ended(oldest[1]), killing("default", MAX_WATCHES + 1)]);
    let left = ids();
    assert_eq!((left.len(), &left[..MAX_WATCHES - 2]), (MAX_WATCHES, &oldest[2..]), "no other made room");
}

/// The result would depend on which step came last.
#[tokio::test]
async fn a_watch_is_not_put_and_ended_in_one_change_whichever_comes_first() {
    let lab = Lab::start().await;
    apply(&lab, vec![killing("default", 1), killing("default", 2)]);
    let watches = || lab.running.service().statements().watches("").unwrap();
    let before = watches();
    let ended =
        |id| step(Kind::DeleteWatch(v1::RemoveWatchRequest { id, ..v1::RemoveWatchRequest::default() }));
    let (put, gone) = (|| killing("default", 1), || ended(before[0].id));
    for (steps, at) in [(vec![put(), gone()], 1), (vec![gone(), put()], 0)] {
        let refused = try_apply(&lab, ApplyRequest { steps, ..ApplyRequest::default() }).unwrap_err();
        let field = format!("steps[{at}].delete_watch.id");
        assert_eq!((refused.code(), fields(&refused)), ("invalid", vec![field.as_str()]));
        assert!(refused.to_string().contains(&format!("steps[{}]", 1 - at)), "{refused}");
        assert_eq!(watches(), before);
    }
    apply(&lab, vec![ended(before[1].id), put(), ended(99)]);
    assert_eq!(watches(), before[..1]);
}

#[tokio::test]
async fn bindings_and_watches_of_the_group_that_is_pruned_under_go_and_those_beside_it_stay() {
    let lab = Lab::start().await;
    let top = || below("top", "", "9");
    apply(&lab, vec![top(), below("leaf", "top", "5"), below("aside", "", "5")]);
    apply(&lab, ["top", "leaf", "aside"].map(|name| bound(&format!("of-{name}"), name)).to_vec());
    apply(&lab, ["top", "leaf", "aside"].map(|name| killing(name, 7)).to_vec());
    let prune = Prune { bindings: true, watches: true, under: "top".into(), ..Prune::default() };
    try_apply(&lab, ApplyRequest { steps: vec![top()], prune: Some(prune), ..ApplyRequest::default() })
        .unwrap();
    let service = lab.running.service();
    let (bindings, _) = service.definitions().bindings("", None, 0).unwrap();
    let watches = service.statements().watches("").unwrap();
    assert_eq!(bindings.iter().map(|of| of.group.as_str()).collect::<Vec<_>>(), ["aside"]);
    assert_eq!(watches.iter().map(|of| of.group.as_str()).collect::<Vec<_>>(), ["aside"]);
    assert_eq!(tree(&lab).len(), 3);
}

#[tokio::test]
async fn the_group_that_is_pruned_under_stays_though_no_step_names_it() {
    let lab = Lab::start().await;
    apply(&lab, vec![below("top", "", "9"), below("leaf", "top", "5"), bound("of-top", "top")]);
    let prune = Prune { groups: true, under: "top".into(), ..Prune::default() };
    let applied = try_apply(&lab, ApplyRequest { prune: Some(prune), ..ApplyRequest::default() }).unwrap();
    assert_eq!(done(&applied), [("leaf", Done::Deleted)]);
    assert_eq!(tree(&lab).into_keys().collect::<Vec<_>>(), ["top"]);
}

#[tokio::test]
async fn a_group_that_was_changed_since_it_was_read_is_not_deleted_by_a_step() {
    let lab = Lab::start().await;
    apply(&lab, vec![below("web", "", "5"), below("other", "", "5")]);
    let service = lab.running.service();
    let read = service.definitions().group("web").unwrap().group.revision;
    apply(&lab, vec![below("web", "", "6")]);
    let deleting = |expected_revision| {
        let name = "web".to_owned();
        step(Kind::DeleteGroup(v1::DeleteGroupRequest { name, expected_revision, ..Default::default() }))
    };
    let steps = vec![gone("other"), deleting(read)];
    let refused = try_apply(&lab, ApplyRequest { steps, ..ApplyRequest::default() }).unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), ("revision", vec!["steps[1].delete_group"]));
    assert_eq!(tree(&lab).len(), 2, "none of both");
    let now = service.definitions().group("web").unwrap().group.revision;
    apply(&lab, vec![gone("other"), deleting(now)]);
    assert!(tree(&lab).is_empty());
}

#[tokio::test]
async fn a_watch_that_a_step_names_is_not_pruned_though_it_changes_nothing() {
    let lab = Lab::start().await;
    apply(&lab, vec![killing("default", 1), killing("default", 2)]);
    let prune = Some(Prune { watches: true, ..Prune::default() });
    let wish = ApplyRequest { steps: vec![killing("default", 2)], prune, ..ApplyRequest::default() };
    let applied = try_apply(&lab, wish).unwrap();
    let outcomes: Vec<Done> = applied.outcomes.iter().map(|one| one.done).collect();
    assert_eq!(outcomes, [Done::Unchanged, Done::Deleted]);
    let left = lab.running.service().statements().watches("").unwrap();
    assert_eq!(left.iter().map(|watch| watch.digest.as_str()).collect::<Vec<_>>(), ["0000000000000002"]);
}
