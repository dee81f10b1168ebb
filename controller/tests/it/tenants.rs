//! What a tenant sees: its own, and nothing of others, not even that it is there.

use std::collections::BTreeSet;

use tidegate_controller::Running;
use tidegate_controller::audit::Actor;
use tidegate_controller::identity::Role;
use tidegate_controller::identity::matrix::{self, Call, allows};
use tidegate_proto::v1;
use tonic::Status;
use tonic::transport::Channel;
use v1::admin_client::AdminClient;
use v1::statements_client::StatementsClient;

use super::certificates::{Site, channel, channel_to};
use super::identity::{guarded, hello, rest, site};
use super::support::group;

/// Part of the names of all that is not the tenant's.
const HIDDEN: &str = "hidden";
/// A group of another tenant, and one that is not there.
const OTHERS: [&str; 2] = ["hidden-other", "absent-other"];
/// What the tenant is bound to. The certificate's tenant is called `tenant`.
const OWN: [&str; 3] = ["reports", "shared", "shop"];

fn statement(group: &str, template: &str) -> v1::StatementRow {
    v1::StatementRow {
        group: group.to_owned(),
        fingerprint: format!("{:016x}", template.len()),
        kind: "select".to_owned(),
        template: template.to_owned(),
        calls: 1,
        first_unix_ms: 1,
        last_unix_ms: 2,
        ..v1::StatementRow::default()
    }
}

/// Groups, bindings, leases, consumption and statements of two tenants.
async fn scene(site: &Site) -> Running {
    let running = guarded(site).await;
    let (definitions, actor) = (running.service().definitions(), Actor::new(None, "test"));
    let limit = v1::QueryLimit {
        exec_elapsed_us: 60_000_000,
        action: "switch_group".to_owned(),
        switch_group: "hidden-slow".to_owned(),
        ..v1::QueryLimit::default()
    };
    // Leases outlast the test on a slow machine.
    let lasting = |name, rate| v1::Group { ttl_us: 60_000_000, ..group(name, rate) };
    let shop =
        v1::Group { parent: "hidden-above".into(), query_limit: Some(limit), ..lasting("shop", "100") };
    let others = ["hidden-above", "hidden-slow", "hidden-other", "shared", "reports"];
    for group in others.map(|name| lasting(name, "200")).into_iter().chain([shop]) {
        definitions.create_group(&actor, &group, false).unwrap();
    }
    for (tenant, user, group) in [
        ("tenant", "", "shop"),
        ("tenant", "ann", "reports"),
        ("tenant", "bob", "shared"),
        ("hidden-co", "", "shared"),
        ("hidden-co", "bob", "shared"),
        ("hidden-co", "ann", "hidden-other"),
        ("tenants", "hidden-user", "hidden-other"),
        ("tenan", "hidden-user", "hidden-slow"),
        ("", "hidden-user", "hidden-other"),
        ("", "tenant", "hidden-other"),
    ] {
        definitions.bind(&actor, tenant, user, group).unwrap();
    }
    let mut node = hello(&running, site.shown(Some("admin")), "node-1").await.unwrap();
    node.renew(&OWN).await;
    let mut other = hello(&running, site.shown(Some("admin")), "hidden-node").await.unwrap();
    other.renew(&["hidden-other", "hidden-slow", "hidden-above"]).await;
    let mut gateway = StatementsClient::new(channel(&running, site.shown(Some("gateway"))).await.unwrap());
    let rows = vec![statement("shop", "SELECT 1"), statement("hidden-other", "SELECT hidden")];
    let report = v1::ReportStatementsRequest {
        gateway: "gateway".to_owned(),
        incarnation: 1,
        seq: 1,
        rows,
        evicted: 7,
    };
    gateway.report_statements(report).await.unwrap();
    running
}

/// An answer, or a refusal, as text in which a group of others is one that is not there.
fn said<T: std::fmt::Debug>(answer: Result<tonic::Response<T>, Status>) -> String {
    match answer {
        Ok(answer) => format!("{:?}", answer.into_inner()),
        Err(status) => format!("{:?} {}", status.code(), status.message()),
    }
}

/// The calls of gRPC that have an answer for a tenant, about one group or, with an empty name, about all.
async fn answers(channel: &Channel, of: &str) -> Vec<(&'static str, String)> {
    let (mut admin, group) = (AdminClient::new(channel.clone()), of.to_owned());
    let mut statements = StatementsClient::new(channel.clone());
    let bindings = v1::ListBindingsRequest { group: group.clone(), ..Default::default() };
    let usage = v1::UsageRequest { group: group.clone(), per_client: true };
    let history = v1::UsageHistoryRequest { group: group.clone(), ..Default::default() };
    let listed = v1::ListStatementsRequest { group: group.clone(), ..Default::default() };
    let wish = v1::WhatIfRequest { group: group.clone(), ru_per_sec: "5".into(), ..Default::default() };
    vec![
        ("Admin/GetGroup", said(admin.get_group(v1::GetGroupRequest { name: group.clone() }).await)),
        ("Admin/ListGroups", said(admin.list_groups(v1::ListGroupsRequest::default()).await)),
        ("Admin/ListBindings", said(admin.list_bindings(bindings).await)),
        ("Admin/Usage", said(admin.usage(usage).await)),
        ("Admin/UsageHistory", said(admin.usage_history(history).await)),
        ("Admin/WhatIf", said(admin.what_if(wish).await)),
        ("Admin/ListLeases", said(admin.list_leases(v1::ListLeasesRequest { group }).await)),
        ("Statements/ListStatements", said(statements.list_statements(listed).await)),
    ]
}

/// The paths of REST that have an answer for a tenant, about this group.
fn paths(of: &str) -> Vec<(&'static str, String)> {
    vec![
        ("/v1/bindings", format!("/v1/bindings?group={of}")),
        ("/v1/groups", "/v1/groups".to_owned()),
        ("/v1/groups/{name}", format!("/v1/groups/{of}")),
        ("/v1/groups/{name}/what-if", format!("/v1/groups/{of}/what-if?ru_per_sec=5")),
        ("/v1/leases", format!("/v1/leases?group={of}")),
        ("/v1/statements", format!("/v1/statements?group={of}")),
        ("/v1/usage", format!("/v1/usage?per_client=true&group={of}")),
        ("/v1/usage/{group}/history", format!("/v1/usage/{of}/history")),
    ]
}

#[tokio::test]
async fn what_is_of_others_answers_a_tenant_as_if_it_were_not_there() {
    let site = site();
    let running = scene(&site).await;
    let tenant = channel(&running, site.shown(Some("tenant"))).await.unwrap();
    let by_rest = channel_to(running.rest_addr.port(), site.shown(Some("tenant"))).await.unwrap();
    // All calls that the matrix lets it make are looked at here.
    let asked = answers(&tenant, "").await;
    let known: BTreeSet<String> = asked.iter().map(|(name, _)| format!("/tidegate.v1.{name}")).collect();
    let may =
        |(path, _): &(&str, _)| allows(Some(Role::Tenant), Call::Grpc(path)) && path.contains("tidegate");
    let allowed = matrix::GRPC.iter().filter(|row| may(row)).map(|(path, _)| (*path).to_owned());
    assert_eq!(known, allowed.collect());
    let known: BTreeSet<&str> = paths("").into_iter().map(|(route, _)| route).collect();
    let rows = matrix::REST.iter().filter(|(by, path, who)| {
        *who != matrix::Who::Anyone && allows(Some(Role::Tenant), Call::Rest(by, path))
    });
    let allowed: BTreeSet<&str> =
        rows.map(|(_, path, _)| *path).filter(|path| *path != "/openapi.json").collect();
    assert_eq!(known, allowed);

    // About everything, and about each of its groups: nothing of others.
    for of in ["", "shop", "reports", "shared", "Shop"] {
        for (name, text) in answers(&tenant, of).await {
            assert!(!text.contains(HIDDEN), "{name} of {of:?}: {text}");
            assert!(
                text.contains("InvalidArgument") == (of.is_empty() && text.contains("group name")),
                "{text}"
            );
        }
        for (route, path) in paths(of) {
            let (status, text) = rest(&by_rest, "GET", &path).await;
            assert!(!text.contains(HIDDEN), "{path}: {text}");
            assert!(status == 200 || of.is_empty() && route.contains('{'), "{path}: {status} {text}");
        }
    }
    // About a group of others: what is said of one that is not there.
    let [other, absent] = OTHERS;
    for ((name, of_other), (_, of_absent)) in
        answers(&tenant, other).await.into_iter().zip(answers(&tenant, absent).await)
    {
        assert_eq!(of_other.replace(other, absent), of_absent, "{name}");
        assert!(name == "Admin/ListGroups" || of_other.starts_with("NotFound "), "{name}: {of_other}");
    }
    for ((route, of_other), (_, of_absent)) in paths(other).into_iter().zip(paths(absent)) {
        let (status, text) = rest(&by_rest, "GET", &of_other).await;
        assert_eq!((status, text.replace(other, absent)), rest(&by_rest, "GET", &of_absent).await, "{route}");
        assert_eq!(status, if route == "/v1/groups" { 200 } else { 404 }, "{route}");
    }
    // An operator sees it.
    let operator = channel(&running, site.shown(Some("operator"))).await.unwrap();
    for (name, text) in answers(&operator, "hidden-other").await {
        assert!(
            text.contains(HIDDEN) || name == "Admin/UsageHistory" && text.contains("points"),
            "{name}: {text}"
        );
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_tenant_sees_all_that_is_its_own_and_counts_only_that() {
    let site = site();
    let running = scene(&site).await;
    let tenant = channel(&running, site.shown(Some("tenant"))).await.unwrap();
    let (mut admin, mut statements) = (AdminClient::new(tenant.clone()), StatementsClient::new(tenant));
    let page = admin.list_groups(v1::ListGroupsRequest::default()).await.unwrap().into_inner();
    let names: Vec<&str> = page.groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!((names, page.next_after.as_str(), page.warnings), (OWN.to_vec(), "", Vec::new()));
    let shop = page.groups.iter().find(|group| group.name == "shop").unwrap();
    let limit = shop.query_limit.as_ref().unwrap();
    assert_eq!((shop.parent.as_str(), limit.switch_group.as_str(), shop.revision), ("", "", 0));
    assert_eq!((shop.ru_per_sec.as_str(), limit.action.as_str()), ("100", "switch_group"));
    // In parts, too.
    let after = |after: &str| v1::ListGroupsRequest { after: after.into(), limit: 1 };
    let part = admin.list_groups(after("reports")).await.unwrap().into_inner();
    assert_eq!((part.groups[0].name.as_str(), part.next_after.as_str()), ("shared", "shared"));
    let part = admin.list_groups(after("shared")).await.unwrap().into_inner();
    assert_eq!((part.groups[0].name.as_str(), part.next_after.as_str()), ("shop", ""));

    let bindings = |limit| v1::ListBindingsRequest { limit, ..Default::default() };
    let all = admin.list_bindings(bindings(0)).await.unwrap().into_inner();
    let users: Vec<&str> = all.bindings.iter().map(|binding| binding.user.as_str()).collect();
    assert_eq!((users, all.more), (vec!["", "ann", "bob"], false));
    assert!(admin.list_bindings(bindings(2)).await.unwrap().into_inner().more);
    assert!(!admin.list_bindings(bindings(3)).await.unwrap().into_inner().more);
    // A page holds what is shown, whatever of others would go before.
    let of_shared = v1::ListBindingsRequest { group: "shared".into(), limit: 1, ..Default::default() };
    let page = admin.list_bindings(of_shared).await.unwrap().into_inner();
    assert_eq!((page.bindings[0].user.as_str(), page.bindings.len(), page.more), ("bob", 1, false));

    let usage = admin.usage(v1::UsageRequest { per_client: true, ..Default::default() });
    let usage = usage.await.unwrap().into_inner();
    let groups: BTreeSet<&str> = usage.rows.iter().map(|row| row.group.as_str()).collect();
    assert_eq!((groups, usage.rows.len(), usage.truncated), (OWN.into(), 6, false));
    let leases = admin.list_leases(v1::ListLeasesRequest::default()).await.unwrap().into_inner();
    let groups: Vec<&str> = leases.groups.iter().map(|state| state.group.as_str()).collect();
    assert_eq!((groups, leases.leases.len(), leases.truncated), (OWN.to_vec(), 3, false));
    let listed = statements.list_statements(v1::ListStatementsRequest::default()).await.unwrap().into_inner();
    assert_eq!((listed.rows.len(), listed.total, listed.evicted), (1, 1, 0));
    let history = v1::UsageHistoryRequest { group: "shop".into(), ..Default::default() };
    assert_eq!(admin.usage_history(history).await.unwrap().into_inner().points.len(), 1);

    // A binding that ends takes the group with it, at once.
    let actor = Actor::new(None, "test");
    running.service().definitions().unbind(&actor, "tenant", "", None).unwrap();
    let gone = admin.get_group(v1::GetGroupRequest { name: "shop".into() }).await.unwrap_err();
    assert_eq!(gone.code(), tonic::Code::NotFound);
    running.shutdown().await.unwrap();
}

/// Between both may be groups of others, whose consumption is not the tenant's to see.
#[tokio::test]
async fn what_a_tenant_uses_below_a_group_counts_with_it_and_nothing_of_others_does() {
    let site = site();
    let running = scene(&site).await;
    let (definitions, actor) = (running.service().definitions(), Actor::new(None, "test"));
    let below = |name, parent: &str| v1::Group { parent: parent.into(), ..group(name, "50") };
    for made in
        [below("hidden-between", "shop"), below("till", "hidden-between"), below("hidden-till", "shop")]
    {
        definitions.create_group(&actor, &made, false).unwrap();
    }
    definitions.bind(&actor, "tenant", "till", "till").unwrap();
    let mut node = hello(&running, site.shown(Some("admin")), "node-2").await.unwrap();
    node.renew(&["till", "hidden-between", "hidden-till"]).await;
    for (viewer, groups) in [("tenant", 2), ("admin", 4)] {
        let mut admin = AdminClient::new(channel(&running, site.shown(Some(viewer))).await.unwrap());
        let history = v1::UsageHistoryRequest { group: "shop".into(), below: true, ..Default::default() };
        let history = admin.usage_history(history).await.unwrap().into_inner();
        let amounts = history.points.into_iter().map(|point| point.amount.unwrap().operations);
        assert_eq!((history.groups, amounts.sum::<u64>()), (groups, u64::from(groups)), "{viewer}");
    }
    running.shutdown().await.unwrap();
}

/// Nothing is bound to it: neither yet, nor any more.
#[tokio::test]
async fn a_tenant_without_a_binding_sees_nothing() {
    let site = site();
    let running = scene(&site).await;
    let tenant = channel(&running, site.shown(Some("tenant"))).await.unwrap();
    let by_rest = channel_to(running.rest_addr.port(), site.shown(Some("tenant"))).await.unwrap();
    let actor = Actor::new(None, "test");
    for user in ["", "ann", "bob"] {
        running.service().definitions().unbind(&actor, "tenant", user, None).unwrap();
    }
    let hidden = |text: &str| !OWN.into_iter().chain([HIDDEN]).any(|name| text.contains(name));
    for (name, text) in answers(&tenant, "").await {
        assert!(hidden(&text), "{name}: {text}");
    }
    for (route, path) in paths("") {
        let (_, text) = rest(&by_rest, "GET", &path).await;
        assert!(hidden(&text), "{route}: {text}");
    }
    for of in OWN {
        for (name, text) in answers(&tenant, of).await {
            assert!(name == "Admin/ListGroups" || text.starts_with("NotFound "), "{name} of {of}: {text}");
        }
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_tenant_by_a_rule_and_by_a_token_sees_what_the_tenant_is_bound_to_that_they_name() {
    let site = site();
    let running = scene(&site).await;
    let wish = v1::CreateTokenRequest {
        name: "eve".into(),
        role: "tenant".into(),
        tenant: "hidden-co".into(),
        ..Default::default()
    };
    let (_, secret) = running.service().tokens().create(&Actor::new(None, "test"), &wish).unwrap();
    let nobody = channel(&running, site.shown(None)).await.unwrap();
    let mut request = tonic::Request::new(v1::ListGroupsRequest::default());
    let bearer = format!("Bearer {}", secret.reveal());
    request.metadata_mut().insert("authorization", bearer.parse().unwrap());
    let by_token = AdminClient::new(nobody).list_groups(request).await.unwrap().into_inner().groups;
    let board = channel(&running, site.shown(Some("board"))).await.unwrap();
    let by_rule = AdminClient::new(board).list_groups(v1::ListGroupsRequest::default()).await.unwrap();
    for groups in [by_token, by_rule.into_inner().groups] {
        let names: Vec<String> = groups.into_iter().map(|group| group.name).collect();
        assert_eq!(names, ["hidden-other", "shared"]);
    }
    running.shutdown().await.unwrap();
}
