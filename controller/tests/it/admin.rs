//! Definitions, bindings and cost tables over gRPC.

use std::sync::Arc;

use serde_json::json;
use tidegate_controller::Controller;
use tidegate_controller::audit::Actor;
use tidegate_controller::store::{Store, Table, Write};
use tidegate_proto::v1;
use tonic::{Code, Request};

use crate::support::{Lab, MemoryStore, Node, config, entry, group};

fn create(group: v1::Group, if_not_exists: bool) -> v1::CreateGroupRequest {
    v1::CreateGroupRequest { group: Some(group), if_not_exists }
}

fn bind(tenant: &str, user: &str, group: &str) -> v1::BindRequest {
    let binding = v1::Binding { tenant: tenant.into(), user: user.into(), group: group.into() };
    v1::BindRequest { binding: Some(binding) }
}

#[tokio::test]
async fn groups_are_created_read_altered_and_deleted() {
    let lab = Lab::start().await;
    let mut admin = lab.admin().await;
    let made = admin.create_group(create(group("Batch", "2000 RU/s"), false)).await.unwrap().into_inner();
    let first = made.group.unwrap();
    assert_eq!((first.name.as_str(), first.ru_per_sec.as_str(), made.changed), ("batch", "2000", true));

    let same = admin.create_group(create(group("batch", "2000"), true)).await.unwrap().into_inner();
    assert!(!same.changed);
    let other = admin.create_group(create(group("batch", "3000"), true)).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    assert!(other.message().contains("ru_per_sec"), "{}", other.message());
    assert_eq!(
        admin.create_group(create(group("batch", "2000"), false)).await.unwrap_err().code(),
        Code::AlreadyExists
    );

    let mut alter = v1::AlterGroupRequest {
        group: Some(group("batch", "0.5")),
        update_mask: vec!["ru_per_sec".into()],
        expected_revision: first.revision,
    };
    let altered = admin.alter_group(alter.clone()).await.unwrap().into_inner().group.unwrap();
    assert_eq!(altered.ru_per_sec, "0.5");
    assert!(altered.revision > first.revision);
    alter.group = Some(group("batch", "7"));
    let stale = admin.alter_group(alter.clone()).await.unwrap_err();
    assert_eq!(stale.code(), Code::Aborted, "{stale}");
    alter.update_mask = vec!["name".into()];
    alter.expected_revision = 0;
    assert_eq!(admin.alter_group(alter).await.unwrap_err().code(), Code::InvalidArgument);

    let all = admin
        .list_groups(v1::ListGroupsRequest { after: String::new(), limit: 1 })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((all.groups.len(), all.next_after.as_str()), (1, "batch"));
    let rest = admin
        .list_groups(v1::ListGroupsRequest { after: "batch".into(), limit: 0 })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((rest.groups[0].name.as_str(), rest.next_after.as_str()), ("default", ""));

    let delete = v1::DeleteGroupRequest { name: "batch".into(), ..Default::default() };
    assert!(admin.delete_group(delete.clone()).await.unwrap().into_inner().deleted);
    assert_eq!(admin.delete_group(delete.clone()).await.unwrap_err().code(), Code::NotFound);
    let again = v1::DeleteGroupRequest { if_exists: true, ..delete };
    assert!(!admin.delete_group(again).await.unwrap().into_inner().deleted);
}

#[tokio::test]
async fn the_default_group_stays_and_stays_on_top() {
    let lab = Lab::start().await;
    lab.group("top", "100").await;
    let mut admin = lab.admin().await;
    let delete = v1::DeleteGroupRequest { name: "default".into(), ..Default::default() };
    assert_eq!(admin.delete_group(delete).await.unwrap_err().code(), Code::FailedPrecondition);
    let mut alter = v1::AlterGroupRequest {
        group: Some(v1::Group { parent: "top".into(), ..group("default", "50") }),
        update_mask: vec!["parent".into()],
        expected_revision: 0,
    };
    assert_eq!(admin.alter_group(alter.clone()).await.unwrap_err().code(), Code::InvalidArgument);
    alter.update_mask = vec!["ru_per_sec".into()];
    let altered = admin.alter_group(alter).await.unwrap().into_inner();
    assert!(altered.changed);
    assert!(
        altered.warnings.iter().any(|warning| warning.contains("fallback unlimited")),
        "{:?}",
        altered.warnings
    );
}

#[tokio::test]
async fn used_groups_are_deleted_only_with_a_successor() {
    let lab = Lab::start().await;
    lab.group("old", "10").await;
    lab.group("wide", "100").await;
    let mut admin = lab.admin().await;
    let child = v1::Group { parent: "old".into(), ..group("child", "5") };
    admin.create_group(create(child, false)).await.unwrap();
    admin.bind(bind("", "ann", "old")).await.unwrap();

    let mut delete = v1::DeleteGroupRequest { name: "old".into(), ..Default::default() };
    let used = admin.delete_group(delete.clone()).await.unwrap_err();
    assert_eq!(used.code(), Code::FailedPrecondition);
    assert!(
        used.message().contains("user ann") && used.message().contains("group child"),
        "{}",
        used.message()
    );
    for target in ["old", "child", "nobody"] {
        delete.force_to = target.into();
        assert_eq!(
            admin.delete_group(delete.clone()).await.unwrap_err().code(),
            Code::InvalidArgument,
            "{target}"
        );
    }
    delete.force_to = "wide".into();
    let moved = admin.delete_group(delete).await.unwrap().into_inner();
    assert_eq!((moved.moved, moved.moved_count), (vec!["user ann".to_owned(), "group child".to_owned()], 2));
    assert!(moved.warnings[0].contains("limited to 100 RU/s now, not 10 RU/s"), "{:?}", moved.warnings);
    let resolved =
        admin.resolve(v1::ResolveRequest { user: "ann".into(), ..Default::default() }).await.unwrap();
    assert_eq!(resolved.into_inner().group, "wide");
    let child = admin.get_group(v1::GetGroupRequest { name: "child".into() }).await.unwrap().into_inner();
    assert_eq!(child.group.unwrap().parent, "wide");
    let history = v1::AuditLogRequest { group: "child".into(), ..Default::default() };
    let entries = admin.audit_log(history).await.unwrap().into_inner().entries;
    let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["alter group", "create group"], "what a deletion moved is in the log, too");
    assert!(entries[0].before.contains("\"old\"") && entries[0].after.contains("\"wide\""), "{entries:?}");
}

#[tokio::test]
async fn cycles_are_refused() {
    let lab = Lab::start().await;
    let mut admin = lab.admin().await;
    admin.create_group(create(group("a", "10"), false)).await.unwrap();
    let b = v1::Group { parent: "a".into(), ..group("b", "20") };
    let made = admin.create_group(create(b, false)).await.unwrap().into_inner();
    assert!(made.warnings[0].contains("cannot be guaranteed"), "{:?}", made.warnings);
    let alter = v1::AlterGroupRequest {
        group: Some(v1::Group { parent: "b".into(), ..group("a", "") }),
        update_mask: vec!["parent".into()],
        expected_revision: 0,
    };
    let cycle = admin.alter_group(alter).await.unwrap_err();
    assert_eq!(cycle.code(), Code::InvalidArgument);
    assert!(cycle.message().contains("a -> b -> a"), "{}", cycle.message());
}

#[tokio::test]
async fn principals_are_bound_resolved_listed_and_unbound() {
    let lab = Lab::start().await;
    lab.group("one", "1").await;
    lab.group("two", "2").await;
    let mut admin = lab.admin().await;
    for (tenant, user, group) in [("t", "", "one"), ("t", "ann", "two"), ("", "bob", "two")] {
        assert!(admin.bind(bind(tenant, user, group)).await.unwrap().into_inner().changed);
    }
    assert!(!admin.bind(bind("t", "", "ONE")).await.unwrap().into_inner().changed);
    assert_eq!(admin.bind(bind("t", "", "two")).await.unwrap().into_inner().previous, "one");
    assert_eq!(admin.bind(bind("t", "", "none")).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(admin.bind(bind("", "", "one")).await.unwrap_err().code(), Code::InvalidArgument);
    for (tenant, user, matched) in [
        ("t", "ann", "user in tenant"),
        ("t", "bob", "user"),
        ("t", "eve", "tenant"),
        ("x", "eve", "default"),
    ] {
        let request = v1::ResolveRequest { tenant: tenant.into(), user: user.into() };
        assert_eq!(admin.resolve(request).await.unwrap().into_inner().matched, matched);
    }
    let mut listed = Vec::new();
    let mut page = v1::ListBindingsRequest { limit: 1, ..Default::default() };
    loop {
        let reply = admin.list_bindings(page.clone()).await.unwrap().into_inner();
        let last = reply.bindings.last().unwrap().clone();
        listed.extend(reply.bindings.into_iter().map(|binding| (binding.tenant, binding.user)));
        assert!(listed.len() <= 3, "pages go round: {listed:?}");
        (page.after_tenant, page.after_user) = (last.tenant, last.user);
        if !reply.more {
            break;
        }
    }
    let named = [("t", ""), ("", "bob"), ("t", "ann")];
    assert_eq!(listed, named.map(|(tenant, user)| (tenant.to_owned(), user.to_owned())));
    let unbind = v1::UnbindRequest { tenant: "t".into(), user: String::new() };
    assert!(admin.unbind(unbind.clone()).await.unwrap().into_inner().removed);
    assert!(!admin.unbind(unbind).await.unwrap().into_inner().removed);
}

#[tokio::test]
async fn cost_tables_take_roles_and_never_change() {
    let lab = Lab::start().await;
    let mut admin = lab.admin().await;
    let first = admin.get_cost_tables(v1::GetCostTablesRequest {}).await.unwrap().into_inner();
    let active = first.tables.unwrap().active.unwrap();
    assert!(active.ru_per_unit.contains_key("cpu_ns"), "{active:?}");
    let table = v1::CostTable {
        name: "mine".into(),
        version: 1,
        ru_per_unit: [("cpu_ns".to_owned(), "1/3000000".to_owned())].into(),
        replicas: 1,
    };
    let mut put = v1::PutCostTableRequest { table: Some(table.clone()), role: "shadow".into() };
    let tables = admin.put_cost_table(put.clone()).await.unwrap().into_inner();
    assert_eq!(tables.shadow.unwrap().name, "mine");
    put.table = Some(v1::CostTable { replicas: 2, ..table.clone() });
    assert_eq!(admin.put_cost_table(put.clone()).await.unwrap_err().code(), Code::AlreadyExists);
    put.table =
        Some(v1::CostTable { ru_per_unit: [("cpu_ns".to_owned(), "NaN".to_owned())].into(), ..table });
    assert_eq!(admin.put_cost_table(put.clone()).await.unwrap_err().code(), Code::InvalidArgument);
    put.table = None;
    assert!(admin.put_cost_table(put.clone()).await.unwrap().into_inner().shadow.is_none());
    put.role = "active".into();
    assert_eq!(admin.put_cost_table(put).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn changes_are_audited_with_their_actor() {
    let lab = Lab::start().await;
    let mut admin = lab.admin().await;
    let mut request = Request::new(create(group("a", "10"), false));
    request.metadata_mut().insert("x-tidegate-actor", "ann".parse().unwrap());
    admin.create_group(request).await.unwrap();
    admin.bind(bind("t", "", "a")).await.unwrap();
    let log = admin.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    assert_eq!(log.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(), ["bind", "create group"]);
    assert!(log[1].actor.starts_with("ann (127.0.0.1:"), "{}", log[1].actor);
    assert!(log[1].after.contains("\"ru_per_sec\":\"10\"") && log[1].before.is_empty());
    let older = v1::AuditLogRequest { limit: 5, before_id: log[0].id, ..Default::default() };
    assert_eq!(admin.audit_log(older).await.unwrap().into_inner().entries.len(), 1);
    let too_many = v1::AuditLogRequest { limit: 1_001, ..Default::default() };
    assert_eq!(admin.audit_log(too_many).await.unwrap_err().code(), Code::InvalidArgument);
}

/// A group as it was stored before there were owners.
const OLD: &str = r#"{"id":2,"group":{"name":"web","ru_per_sec":"10","burst":"","burstable":"off","burst_ru_per_sec":"",
    "priority":"medium","weight":1,"ttl_us":5000000,"renew_us":1000000,"fallback":"stop","fallback_total":"",
    "max_debt":"1000","comment":"","revision":1,"max_wait_us":0},"longest_ttl_us":5000000}"#;

#[tokio::test]
async fn an_owner_is_kept_and_moves_no_lease() {
    let store = Arc::new(MemoryStore::default());
    let folder = tempfile::tempdir().unwrap();
    let start = || Controller::start_with(config(&folder), Arc::clone(&store) as Arc<dyn Store>);
    let first = start().await.unwrap();
    first
        .service()
        .definitions()
        .create_group(&Actor::new(None, "test"), &group("web", "10"), false)
        .unwrap();
    first.shutdown().await.unwrap();
    store.commit(&[Write::Put(Table::Groups, 2_u32.to_be_bytes().to_vec(), OLD.into())]).unwrap();
    let lab = Lab { running: start().await.unwrap(), folder };
    let path = "/v1/groups/web";
    let owned = async |lab: &Lab| lab.http("GET", path, None).await.1["group"]["owner"].clone();
    let own = async |text: &str| lab.http("PATCH", path, Some(&json!({ "owner": text }).to_string())).await;
    assert_eq!(owned(&lab).await, json!(""));

    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.renew(vec![entry("web", 5)], Vec::new()).await.unwrap();
    let lease = async || {
        let request = v1::ListLeasesRequest { group: "web".into() };
        let leases = lab.admin().await.list_leases(request).await.unwrap().into_inner().leases;
        v1::LeaseInfo { expires_in_us: 0, ..leases[0].clone() }
    };
    let before = lease().await;
    // Characters count, not bytes.
    let longest = "ö".repeat(200);
    assert_eq!(own(&longest).await.1["group"]["owner"], json!(longest));
    assert_eq!(lease().await, before);
    let long = "ö".repeat(201);
    for (wrong, said) in
        [(long.as_str(), "201 characters are too many: at most 200"), ("a\nb", "control character")]
    {
        let (status, error) = own(wrong).await;
        assert_eq!((status, &error["error"]["field"]), (400, &json!("owner")), "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains(said), "{error}");
    }
    for (field, owner) in [("owner", "Ann, 555-0101"), ("weight", "is not meant")] {
        let alter = v1::AlterGroupRequest {
            group: Some(v1::Group { owner: owner.into(), weight: 7, ..group("web", "") }),
            update_mask: vec![field.into()],
            expected_revision: 0,
        };
        let altered = lab.admin().await.alter_group(alter).await.unwrap().into_inner().group.unwrap();
        assert_eq!(altered.owner, "Ann, 555-0101");
    }

    let Lab { running, folder } = lab;
    running.shutdown().await.unwrap();
    let running =
        Controller::start_with(config(&folder), Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let lab = Lab { running, folder };
    let read = lab.http("GET", path, None).await.1["group"].clone();
    assert_eq!(read["owner"], json!("Ann, 555-0101"));
    for (group, outcome) in
        [(read.clone(), "unchanged"), (json!({"name": "web", "ru_per_sec": "10"}), "altered")]
    {
        let change = json!({"steps": [{ "group": group }]}).to_string();
        let (_, applied) = lab.http("POST", "/v1/apply", Some(&change)).await;
        assert_eq!(applied["outcomes"][0]["outcome"], json!(outcome), "{applied}");
    }
    assert_eq!(owned(&lab).await, json!(""));
}

#[tokio::test]
async fn to_forget_a_client_without_a_name_is_refused() {
    let lab = Lab::start().await;
    let refused = lab.admin().await.forget_client(v1::ForgetClientRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    lab.running.shutdown().await.unwrap();
}
