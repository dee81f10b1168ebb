//! What the audit log says of a change: the same whether it came by a call of its own or as a step of many, with the
//! state before it and after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_controller::service::Service;
use tidegate_proto::v1::step::Kind;
use tidegate_proto::v1::{self, ApplyRequest, DeleteGroupRequest, Group};

use crate::apply::step;
use crate::support::{MemoryStore, actor, group, started};

fn child() -> Group {
    Group { parent: "web".into(), ..group("child", "3") }
}

fn heavy() -> Group {
    Group { weight: 3, ..group("web", "5") }
}

fn binding(group: &str) -> v1::Binding {
    v1::Binding { tenant: "acme".into(), user: "ann".into(), group: group.into() }
}

fn table(name: &str) -> v1::CostTable {
    v1::CostTable { name: name.into(), version: 1, ..v1::CostTable::default() }
}

fn watch(statement: u64, action: &str, to: &str) -> v1::Watch {
    v1::Watch {
        group: "child".into(),
        r#match: "similar".into(),
        digest: format!("{statement:016x}"),
        action: action.into(),
        switch_group: to.into(),
        ..v1::Watch::default()
    }
}

fn cost(role: &str, table: Option<v1::CostTable>) -> Kind {
    Kind::CostTable(v1::PutCostTableRequest { role: role.into(), table })
}

/// A change by its own call, and as a step.
type Change = (fn(&Service), Kind);

fn changes() -> Vec<Change> {
    let group_step = |text: Group| Kind::Group(Box::new(Group { parent: parent_of(&text), ..text }));
    let created = |name| group_step(group(name, "5"));
    vec![
        (
            |of| drop(of.definitions().create_group(&actor(), &group("web", "5"), false).unwrap()),
            created("web"),
        ),
        (
            |of| drop(of.definitions().create_group(&actor(), &group("to", "5"), false).unwrap()),
            created("to"),
        ),
        (|of| drop(of.definitions().create_group(&actor(), &child(), false).unwrap()), group_step(child())),
        (
            |of| {
                let mask = ["weight".to_owned()];
                drop(of.definitions().alter_group(&actor(), &heavy(), &mask, 0).unwrap());
            },
            group_step(heavy()),
        ),
        (
            |of| drop(of.definitions().bind(&actor(), "acme", "ann", "web").unwrap()),
            Kind::Binding(binding("web")),
        ),
        (
            |of| drop(of.definitions().bind(&actor(), "acme", "ann", "to").unwrap()),
            Kind::Binding(binding("to")),
        ),
        (
            |of| assert!(of.definitions().unbind(&actor(), "acme", "ann", None).unwrap()),
            Kind::DeleteBinding(v1::UnbindRequest { tenant: "acme".into(), user: "ann".into() }),
        ),
        (
            |of| drop(of.definitions().put_cost_table(&actor(), "active", Some(table("ours"))).unwrap()),
            cost("active", Some(table("ours"))),
        ),
        (
            |of| drop(of.definitions().put_cost_table(&actor(), "shadow", Some(table("next"))).unwrap()),
            cost("shadow", Some(table("next"))),
        ),
        (|of| drop(of.definitions().put_cost_table(&actor(), "shadow", None).unwrap()), cost("shadow", None)),
        (
            |of| drop(of.statements().add_watch(&actor(), &watch(1, "kill", "")).unwrap()),
            Kind::Watch(watch(1, "kill", "")),
        ),
        (
            |of| drop(of.statements().add_watch(&actor(), &watch(2, "switch_group", "to")).unwrap()),
            Kind::Watch(watch(2, "switch_group", "to")),
        ),
        (
            |of| drop(of.statements().add_watch(&actor(), &watch(1, "dryrun", "")).unwrap()),
            Kind::Watch(watch(1, "dryrun", "")),
        ),
        (
            |of| assert_eq!(of.statements().remove_watch(&actor(), 1, "").unwrap(), 1),
            Kind::DeleteWatch(v1::RemoveWatchRequest { id: 1, ..v1::RemoveWatchRequest::default() }),
        ),
        (|of| delete(of, "to", "default"), gone("to", "default")),
        (|of| delete(of, "web", "default"), gone("web", "default")),
        (|of| delete(of, "child", ""), gone("child", "")),
    ]
}

/// A step names that there is none.
fn parent_of(text: &Group) -> String {
    if text.parent.is_empty() { "/".to_owned() } else { text.parent.clone() }
}

fn delete(of: &Service, name: &str, force_to: &str) {
    assert!(of.definitions().delete_group(&actor(), name, force_to, 0, false).unwrap().existed);
}

fn gone(name: &str, force_to: &str) -> Kind {
    let (name, force_to) = (name.to_owned(), force_to.to_owned());
    Kind::DeleteGroup(DeleteGroupRequest { name, force_to, ..DeleteGroupRequest::default() })
}

fn service() -> Service {
    started(&Arc::new(MemoryStore::default()), &Arc::default())
}

/// The entries, oldest first.
fn log(of: &Service) -> Vec<v1::AuditEntry> {
    let mut entries = of.definitions().audit_log("", 0, 1_000).unwrap();
    entries.reverse();
    entries
}

/// The group in force, as the log has it.
fn in_force(of: &Service, name: &str) -> Option<Group> {
    of.definitions().group(name).ok().map(|reply| reply.group)
}

#[test]
fn the_log_says_of_a_step_what_it_says_of_a_call() {
    let (calls, steps) = (service(), service());
    for (call, kind) in changes() {
        call(&calls);
        let wish = ApplyRequest { steps: vec![step(kind)], ..ApplyRequest::default() };
        let applied = steps.definitions().apply(&actor(), &wish).unwrap();
        let last = log(&steps).pop().unwrap();
        let [outcome] = &applied.outcomes[..] else { panic!("{applied:?}") };
        assert_eq!((outcome.before(), outcome.after()), (last.before.as_str(), last.after.as_str()));
        assert_eq!(applied.revision, steps.status().revision, "{last:?}");
        assert_eq!(applied.revision, calls.status().revision, "{last:?}");
        if last.action == "create group" || last.action == "alter group" {
            let after: Group = serde_json::from_str(&last.after).unwrap();
            assert_eq!(Some(after), in_force(&steps, &last.subject));
        }
    }
    assert_eq!(log(&steps), log(&calls));
}

#[test]
fn the_log_has_the_subject_of_each_change_and_its_state_before_and_after() {
    let service = service();
    changes().iter().for_each(|(call, _)| call(&service));
    let entries = log(&service);
    let said: Vec<_> = entries.iter().map(|of| (of.action.as_str(), of.subject.as_str())).collect();
    assert_eq!(
        said,
        [
            ("create group", "web"),
            ("create group", "to"),
            ("create group", "child"),
            ("alter group", "web"),
            ("bind", "user ann in tenant acme"),
            ("bind", "user ann in tenant acme"),
            ("unbind", "user ann in tenant acme"),
            ("activate cost table", "ours version 1"),
            ("shadow cost table", "next version 1"),
            ("shadow cost table", "none"),
            ("add watch", "1 of group child"),
            ("add watch", "2 of group child"),
            ("add watch", "1 of group child"),
            ("remove watch", "1 of group child"),
            ("alter watch", "2 of group child"),
            ("delete group", "to"),
            ("alter group", "child"),
            ("delete group", "web"),
            ("delete group", "child"),
        ]
    );
    // What was after one change of a thing is before the next one; a cost table is of its role.
    let mut states: BTreeMap<String, String> = BTreeMap::new();
    for entry in &entries {
        let thing = match entry.action.split_once(' ') {
            Some((role, "cost table")) => role.to_owned(),
            _ => format!(
                "{} {}",
                entry.action.rsplit(' ').next().unwrap().trim_start_matches("un"),
                entry.subject
            ),
        };
        match states.insert(thing.clone(), entry.after.clone()) {
            Some(before) => assert_eq!(entry.before, before, "{entry:?}"),
            None => assert_eq!(entry.before.is_empty(), thing != "activate", "{entry:?}"),
        }
        let ends = matches!(entry.action.as_str(), "unbind" | "remove watch") || entry.subject == "none";
        let leads_on = entry.after == "{\"moved_to\":\"default\"}";
        match entry.action.as_str() {
            "delete group" => assert_eq!(leads_on, entry.subject != "child", "{entry:?}"),
            _ => assert_eq!(entry.after.is_empty(), ends, "{entry:?}"),
        }
    }
}
