//! Changes of several things that bear on each other, and what a start makes of them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::error::AdminError;
use tidegate_controller::service::{Done, EventKind, RenewIn, ReportIn, Service, Session};
use tidegate_controller::store::records::StoredGroup;
use tidegate_controller::store::{Store as _, Table};
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1::step::Kind;
use tidegate_proto::v1::{self, ApplyRequest, Prune, Step};

use crate::apply::{below, gone, step};
use crate::support::{MemoryStore, actor, group, started};

/// A controller without a network, its store and its time.
struct Stage {
    store: Arc<MemoryStore>,
    now: Arc<AtomicU64>,
    service: Service,
}

impl Stage {
    fn new() -> Self {
        let (store, now) = (Arc::new(MemoryStore::default()), Arc::new(AtomicU64::new(0)));
        let service = started(&store, &now);
        Self { store, now, service }
    }

    /// Starts again with what is stored, as after a crash.
    fn crash(self) -> Self {
        let service = started(&self.store, &self.now);
        Self { service, ..self }
    }

    fn apply(&self, steps: Vec<Step>) -> Vec<Done> {
        let wish = ApplyRequest { steps, ..ApplyRequest::default() };
        let applied = self.service.definitions().apply(&actor(), &wish).unwrap();
        applied.outcomes.iter().map(|outcome| outcome.done).collect()
    }

    fn group(&self, name: &str) -> v1::Group {
        self.service.definitions().group(name).unwrap().group
    }

    fn watches(&self) -> Vec<v1::Watch> {
        self.service.statements().watches("").unwrap()
    }

    /// Reports what a start of a node has charged to a group so far.
    fn report(&self, session: &Session, seq: u64, group: &str, ru: i64) {
        let charged = RuParts { write: Ru::whole(ru), ..RuParts::default() };
        let total = Ok(Consumption { charged, ..Consumption::default() }.into());
        let report = ReportIn { group: group.into(), incarnation: 1, total, waited: Vec::new() };
        let request = RenewIn { seq, reports: vec![report], ..RenewIn::default() };
        self.service.leasing().renew(session.client, session.session, request).unwrap();
    }

    /// Micro-RU.
    fn charged(&self, group: &str) -> u128 {
        self.service.accounts().usage(group, false).unwrap().0[0].total.charged.write.0
    }
}

#[test]
fn a_group_that_is_altered_while_one_below_it_goes_is_stored_as_it_is_altered() {
    let stage = Stage::new();
    stage.apply(vec![below("top", "", "9"), below("leaf", "top", "3")]);
    stage.apply(vec![below("top", "", "7"), gone("leaf")]);
    let stage = stage.crash();
    assert_eq!(stage.group("top").ru_per_sec, "7");
}

/// A group whose leases last so long.
fn lasting(name: &str, parent: &str, seconds: u64) -> Step {
    let Some(Kind::Group(text)) = below(name, parent, "5").kind else { panic!() };
    step(Kind::Group(Box::new(v1::Group { ttl_us: seconds * 1_000_000, ..*text })))
}

/// A group as it is stored.
fn row(stage: &Stage, name: &str) -> StoredGroup {
    let mut found = None;
    let scanned = stage.store.scan(Table::Groups, &[], &mut |_, value| {
        let row: StoredGroup = serde_json::from_slice(value).unwrap();
        found = found.take().or(Some(row).filter(|row| row.group.name == name));
        Ok(ControlFlow::Continue(()))
    });
    scanned.unwrap();
    found.unwrap()
}

/// The longest lease that may be out in a group or in what was below it, as it is stored.
fn longest_s(stage: &Stage, name: &str) -> u64 {
    row(stage, name).longest_ttl_us.unwrap() / 1_000_000
}

#[test]
fn no_group_has_the_number_of_one_that_is_gone_whichever_was_put_last() {
    let stage = Stage::new();
    // The parent comes second, and is put first.
    stage.apply(vec![below("leaf", "top", "3"), below("top", "", "9")]);
    let newest = row(&stage, "top").id.max(row(&stage, "leaf").id);
    stage.apply(vec![gone("top"), gone("leaf")]);
    let stage = stage.crash();
    stage.apply(vec![below("new", "", "5")]);
    assert!(row(&stage, "new").id > newest);
}

#[test]
fn leases_of_a_group_that_goes_with_the_one_above_it_are_remembered_above_both() {
    let stage = Stage::new();
    stage.apply(vec![lasting("top", "", 5), lasting("mid", "top", 5), lasting("leaf", "mid", 60)]);
    assert_eq!(longest_s(&stage, "top"), 5);
    stage.apply(vec![gone("mid"), gone("leaf")]);
    assert_eq!(longest_s(&stage, "top"), 60);
}

#[test]
fn leases_of_a_group_at_the_top_that_is_gone_are_remembered_over_changes_of_others() {
    let stage = Stage::new();
    stage.apply(vec![lasting("long", "", 60)]);
    stage.apply(vec![gone("long")]);
    stage.apply(vec![lasting("brief", "", 5)]);
    // For so long a start after a crash may have to reckon with them.
    assert!(stage.crash().service.status().recovery.0 > 30_000_000);
}

#[test]
fn leases_of_the_longest_of_several_groups_that_one_change_made_are_remembered() {
    for lengths in [[60, 5], [5, 60]] {
        let stage = Stage::new();
        stage.apply(vec![lasting("a", "", lengths[0]), lasting("b", "", lengths[1])]);
        // Nothing else says then how long they were.
        stage.apply(vec![gone("a"), gone("b")]);
        assert!(stage.crash().service.status().recovery.0 > 30_000_000, "{lengths:?}");
    }
}

#[test]
fn groups_that_a_change_deletes_are_spoken_of_where_it_deletes_some() {
    let stage = Stage::new();
    stage.apply(vec![below("old", "", "5")]);
    let refused = |steps| {
        let wish = ApplyRequest { steps, ..ApplyRequest::default() };
        stage.service.definitions().apply(&actor(), &wish).unwrap_err().to_string()
    };
    for (steps, is_said) in
        [(vec![below("web", "nowhere", "5")], false), (vec![below("web", "nowhere", "5"), gone("old")], true)]
    {
        let error = refused(steps);
        assert!(error.contains("group nowhere does not exist"), "{error}");
        assert_eq!(error.contains("groups that this change deletes count"), is_said, "{error}");
    }
}

fn watch(statement: u64, action: &str, to: &str) -> v1::Watch {
    v1::Watch {
        group: "default".into(),
        r#match: "similar".into(),
        digest: format!("{statement:016x}"),
        action: action.into(),
        switch_group: to.into(),
        ..v1::Watch::default()
    }
}

#[test]
fn the_number_of_a_watch_is_not_given_again_once_an_older_one_was_moved() {
    let stage = Stage::new();
    stage.apply(vec![below("to", "", "5"), below("other", "", "5")]);
    let statements = stage.service.statements();
    statements.add_watch(&actor(), &watch(1, "switch_group", "to")).unwrap();
    let newest = statements.add_watch(&actor(), &watch(2, "kill", "")).unwrap().id;
    assert_eq!(statements.remove_watch(&actor(), newest, "").unwrap(), 1);
    stage.service.definitions().delete_group(&actor(), "to", "other", 0, false).unwrap();
    let stage = stage.crash();
    assert_eq!(stage.watches()[0].switch_group, "other");
    let next = stage.service.statements().add_watch(&actor(), &watch(3, "kill", "")).unwrap().id;
    assert!(next > newest, "{next}");
}

#[test]
fn each_of_the_groups_that_are_there_again_in_one_change_counts_only_what_is_new() {
    let stage = Stage::new();
    let both = || vec![below("a", "", "5"), below("b", "", "5")];
    stage.apply(both());
    let session = stage.service.leasing().hello("node", 1, "test").unwrap();
    stage.report(&session, 1, "a", 10);
    stage.report(&session, 2, "b", 20);
    stage.apply(vec![gone("a"), gone("b")]);
    stage.apply(both());
    stage.report(&session, 3, "a", 11);
    stage.report(&session, 4, "b", 22);
    assert_eq!((stage.charged("a"), stage.charged("b")), (1_000_000, 2_000_000));
}

fn alter(stage: &Stage, text: &v1::Group, field: &str, expected: u64) -> Result<bool, AdminError> {
    let altered = stage.service.definitions().alter_group(&actor(), text, &[field.to_owned()], expected);
    altered.map(|reply| reply.changed)
}

#[test]
fn an_alteration_of_another_revision_is_refused_though_it_changes_nothing_any_more() {
    let stage = Stage::new();
    stage.apply(vec![below("web", "", "5")]);
    let read = stage.group("web").revision;
    assert!(alter(&stage, &group("web", "6"), "ru_per_sec", read).unwrap());
    for rate in ["6", "7"] {
        let refused = alter(&stage, &group("web", rate), "ru_per_sec", read).unwrap_err();
        assert_eq!(refused.code(), "revision", "{rate}");
    }
    let now = stage.group("web").revision;
    assert!(!alter(&stage, &group("web", "6"), "ru_per_sec", now).unwrap());
    assert_eq!(stage.group("web").revision, now, "nothing was changed");
}

#[test]
fn a_group_without_a_cap_is_asked_for_by_name_in_one_of_many_steps_too() {
    let stage = Stage::new();
    let apply = |steps| {
        let wish = ApplyRequest { steps, ..ApplyRequest::default() };
        stage.service.definitions().apply(&actor(), &wish)
    };
    let refused = apply(vec![below("web", "", "5"), below("open", "", "")]).unwrap_err();
    assert_eq!(refused.field(), Some("steps[1].group.ru_per_sec"));
    assert_eq!(stage.service.status().groups, 1, "none was made");
    apply(vec![below("web", "", "5"), below("open", "", "unlimited")]).unwrap();
    assert_eq!(stage.group("open").ru_per_sec, "unlimited");
}

#[test]
fn a_group_that_moves_because_another_one_goes_has_another_revision() {
    let stage = Stage::new();
    stage.apply(vec![below("old", "", "9"), below("leaf", "old", "3"), below("new", "", "9")]);
    let read = stage.group("leaf").revision;
    stage.service.definitions().delete_group(&actor(), "old", "new", 0, false).unwrap();
    let moved = stage.group("leaf");
    assert_eq!((moved.parent.as_str(), moved.revision), ("new", stage.service.status().revision));
    let refused = alter(&stage, &group("leaf", "2"), "ru_per_sec", read).unwrap_err();
    assert_eq!(refused.code(), "revision");
}

#[test]
fn a_child_that_moves_to_a_higher_limit_is_warned_of_though_nobody_is_bound() {
    let stage = Stage::new();
    stage.apply(vec![below("old", "", "3"), below("leaf", "old", "2"), below("new", "", "9")]);
    let deleted = stage.service.definitions().delete_group(&actor(), "old", "new", 0, false).unwrap();
    let [warning] = &deleted.warnings[..] else { panic!("{deleted:?}") };
    assert!(warning.contains("is limited to 9 RU/s now, not 3 RU/s"), "{warning}");
}

#[test]
fn each_proposal_begins_again_that_one_change_of_several_groups_bears_on() {
    let stage = Stage::new();
    stage.apply(vec![below("a", "", "9"), below("b", "", "9"), below("c", "", "9")]);
    for name in ["a", "b", "c"] {
        let mask = ["ru_per_sec".to_owned()];
        stage.service.definitions().put_proposal(&actor(), &group(name, "5"), &mask, 0).unwrap();
    }
    stage.now.fetch_add(60_000_000, Ordering::SeqCst);
    stage.apply(vec![below("a", "", "8"), below("b", "", "8")]);
    let stage = stage.crash();
    let proposals = stage.service.definitions().proposals();
    let since: Vec<u64> = proposals.iter().map(|of| of.since_unix_s - of.proposed_unix_s).collect();
    assert_eq!(since, [60, 60, 0]);
}

#[test]
fn a_watch_of_a_step_switches_to_another_group_that_is_there() {
    let stage = Stage::new();
    let refused = |to: &str| {
        let steps = vec![below("web", "", "5"), step(Kind::Watch(watch(1, "switch_group", to)))];
        let wish = ApplyRequest { steps, ..ApplyRequest::default() };
        stage.service.definitions().apply(&actor(), &wish).unwrap_err().field().map(str::to_owned)
    };
    for to in ["default", "nowhere"] {
        assert_eq!(refused(to).as_deref(), Some("steps[1].watch.switch_group"), "{to}");
    }
    // It may come with the watch.
    stage.apply(vec![step(Kind::Watch(watch(1, "switch_group", "web"))), below("web", "", "5")]);
    assert_eq!(stage.watches()[0].switch_group, "web");
}

/// A stage with a watch that a gateway has found in the group `web`, by a rule that switches to `to`.
fn found() -> (Stage, v1::Watch) {
    let stage = Stage::new();
    stage.apply(vec![below("to", "", "5"), below("other", "", "5")]);
    let limit = v1::QueryLimit {
        rows: 5,
        action: "switch_group".into(),
        switch_group: "to".into(),
        watch: "similar".into(),
        ..v1::QueryLimit::default()
    };
    let web = v1::Group { query_limit: Some(limit), ..group("web", "5") };
    stage.service.definitions().create_group(&actor(), &web, false).unwrap();
    let conviction = v1::ConvictRequest {
        gateway: "gw".into(),
        group: "web".into(),
        r#match: "identify".into(),
        action: "switch_group".into(),
        switch_group: "to".into(),
        fingerprint: "00000000000000a1".into(),
        ..v1::ConvictRequest::default()
    };
    stage.service.statements().convict(&conviction).unwrap();
    let watch = stage.watches().remove(0);
    assert_eq!(watch.source, "gw");
    (stage, watch)
}

#[test]
fn what_gateways_have_found_is_not_pruned() {
    let (stage, watch) = found();
    let prune = Some(Prune { watches: true, ..Prune::default() });
    let wish = ApplyRequest { prune, ..ApplyRequest::default() };
    assert_eq!(stage.service.definitions().apply(&actor(), &wish).unwrap().outcomes, []);
    assert_eq!(stage.watches(), [watch]);
}

#[test]
fn a_watch_that_a_gateway_has_found_becomes_an_operators_once_a_step_says_the_same() {
    let (stage, watch) = found();
    let same = || vec![step(Kind::Watch(watch.clone()))];
    assert_eq!(stage.apply(same()), [Done::Altered]);
    assert_eq!(stage.apply(same()), [Done::Unchanged]);
    let [kept] = &stage.watches()[..] else { panic!() };
    assert_eq!((kept.id, kept.source.as_str()), (watch.id, "manual"));
}

#[test]
fn a_group_to_which_a_gateway_switches_what_it_has_found_is_used_and_hands_that_on() {
    let (stage, watch) = found();
    let definitions = stage.service.definitions();
    // The rule says something else by now; what was found goes on as it was.
    let rule = v1::QueryLimit {
        rows: 5,
        action: "kill".into(),
        watch: "similar".into(),
        ..v1::QueryLimit::default()
    };
    let web = v1::Group { query_limit: Some(rule), ..group("web", "5") };
    assert!(alter(&stage, &web, "query_limit", 0).unwrap());
    let refused = definitions.delete_group(&actor(), "to", "", 0, false).unwrap_err();
    assert_eq!(refused.code(), "in_use");
    definitions.delete_group(&actor(), "to", "other", 0, false).unwrap();
    let moved = v1::Watch { switch_group: "other".into(), ..watch };
    assert_eq!(stage.watches(), std::slice::from_ref(&moved));
    assert_eq!(stage.crash().watches(), [moved]);
}

/// What watchers are told of a change.
fn told(stage: &Stage, change: impl FnOnce(&Stage)) -> Vec<EventKind> {
    let mut subscription = stage.service.definitions().subscribe(0, 0).unwrap();
    change(stage);
    let event = subscription.events.try_recv().unwrap();
    assert_eq!(event.revision, stage.service.status().revision);
    assert!(subscription.events.try_recv().is_err(), "one change, one event");
    event.kinds.clone()
}

#[test]
fn watchers_are_told_of_a_binding_that_is_taken_away() {
    let stage = Stage::new();
    stage.apply(vec![below("web", "", "5")]);
    let definitions = stage.service.definitions();
    let all = [("acme", "ann"), ("", "ann"), ("acme", "")];
    for (tenant, user) in all {
        definitions.bind(&actor(), tenant, user, "web").unwrap();
    }
    for (tenant, user) in all {
        let kinds = told(&stage, |_| assert!(definitions.unbind(&actor(), tenant, user, None).unwrap()));
        let [EventKind::Bound(change)] = &kinds[..] else { panic!("{kinds:?}") };
        assert_eq!((change.principal.tenant(), change.principal.user()), (tenant, user));
        assert!(change.after.is_none() && change.before.as_ref().is_some_and(|of| of.as_str() == "web"));
    }
}

#[test]
fn watchers_are_told_of_a_quota_of_the_same_amount_in_another_calendar() {
    let stage = Stage::new();
    let quota = |text: &str| v1::Group { quota: text.into(), ..group("web", "5") };
    stage.service.definitions().create_group(&actor(), &quota("500 per day"), false).unwrap();
    for text in ["500 per hour", "500 per hour Europe/Berlin", "500 per rolling hour"] {
        let kinds = told(&stage, |stage| assert!(alter(stage, &quota(text), "quota", 0).unwrap()));
        let [EventKind::Groups(groups)] = &kinds[..] else { panic!("{text}: {kinds:?}") };
        assert_eq!(groups.iter().map(|of| of.as_str()).collect::<Vec<_>>(), ["web"]);
    }
    let comment = v1::Group { comment: "a shop".into(), ..quota("500 per rolling hour") };
    let kinds = told(&stage, |stage| assert!(alter(stage, &comment, "comment", 0).unwrap()));
    assert_eq!(kinds.len(), 0, "nodes have nothing to learn of it");
}

#[test]
fn a_table_to_charge_by_and_one_beside_it_come_with_one_change() {
    let stage = Stage::new();
    let table = |name: &str, role: &str| {
        let table = v1::CostTable { name: name.into(), version: 1, ..v1::CostTable::default() };
        step(Kind::CostTable(v1::PutCostTableRequest { role: role.into(), table: Some(table) }))
    };
    let steps = || vec![table("ours", "active"), table("next", "shadow")];
    assert_eq!(stage.apply(steps()), [Done::Altered, Done::Created]);
    assert_eq!(stage.apply(steps()), [Done::Unchanged, Done::Unchanged]);
    let costs = stage.crash().service.definitions().cost_tables();
    let names = [costs.active(), costs.shadow()].map(|table| table.unwrap().name().to_owned());
    assert_eq!(names, ["ours", "next"]);
}

#[test]
fn what_is_wrong_with_a_demotion_is_said_of_the_field_that_the_step_changes() {
    let stage = Stage::new();
    let demoting = |to: &str, priority: &str| {
        let group = v1::Group { demote_to: to.into(), priority: priority.into(), ..group("web", "5") };
        step(Kind::Group(Box::new(group)))
    };
    let refused = |steps| {
        let wish = ApplyRequest { steps, ..ApplyRequest::default() };
        stage.service.definitions().apply(&actor(), &wish).unwrap_err()
    };
    stage.apply(vec![below("low", "", "5")]);
    // A new demotion, of a new group and of one that is there: as of a single change.
    let field = Some("steps[0].group.demote_to");
    assert_eq!(refused(vec![demoting("low", "medium")]).field(), field);
    stage.apply(vec![demoting("/", "medium")]);
    assert_eq!(refused(vec![demoting("low", "medium")]).field(), field);
    // One that is there already, by its priority.
    stage.apply(vec![demoting("low", "high")]);
    assert_eq!(refused(vec![demoting("low", "medium")]).field(), Some("steps[0].group.priority"));
}
