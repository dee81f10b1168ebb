//! Rules against runaways, the watch list, convictions, and the rules' stream for gateways.

use tidegate_proto::v1;
use tokio::time::timeout;
use tonic::{Code, Streaming};

use crate::support::{Lab, PATIENCE, group};

fn kill(watch: &str) -> v1::QueryLimit {
    v1::QueryLimit { rows: 5, action: "kill".into(), watch: watch.into(), ..v1::QueryLimit::default() }
}

fn switch(to: &str) -> v1::QueryLimit {
    v1::QueryLimit { action: "switch_group".into(), switch_group: to.into(), ..kill("") }
}

async fn ruled(lab: &Lab, name: &str, limit: v1::QueryLimit) {
    let group = v1::Group { query_limit: Some(limit), ..group(name, "10") };
    let request = v1::CreateGroupRequest { group: Some(group), if_not_exists: false };
    lab.admin().await.create_group(request).await.unwrap();
}

async fn set_limit(lab: &Lab, name: &str, limit: Option<v1::QueryLimit>) -> Result<v1::Group, tonic::Status> {
    let request = v1::AlterGroupRequest {
        group: Some(v1::Group { query_limit: limit, ..group(name, "") }),
        update_mask: vec!["query_limit".into()],
        expected_revision: 0,
    };
    Ok(lab.admin().await.alter_group(request).await?.into_inner().group.unwrap())
}

async fn limit_of(lab: &Lab, name: &str) -> Option<v1::QueryLimit> {
    let request = v1::GetGroupRequest { name: name.into() };
    lab.admin().await.get_group(request).await.unwrap().into_inner().group.unwrap().query_limit
}

async fn delete(lab: &Lab, name: &str, force_to: &str) -> Result<v1::DeleteGroupReply, tonic::Status> {
    let request =
        v1::DeleteGroupRequest { name: name.into(), force_to: force_to.into(), ..Default::default() };
    Ok(lab.admin().await.delete_group(request).await?.into_inner())
}

fn similar(group: &str, digest: u64) -> v1::Watch {
    v1::Watch {
        group: group.into(),
        r#match: "similar".into(),
        digest: format!("{digest:016x}"),
        text: "SELECT ?".into(),
        action: "kill".into(),
        ..v1::Watch::default()
    }
}

async fn add(lab: &Lab, watch: v1::Watch) -> Result<v1::Watch, tonic::Status> {
    let request = v1::AddWatchRequest { watch: Some(watch), watch_us: 0 };
    Ok(lab.statements().await.add_watch(request).await?.into_inner().watch.unwrap())
}

async fn watches(lab: &Lab, group: &str) -> Vec<v1::Watch> {
    let request = v1::ListWatchesRequest { group: group.into() };
    lab.statements().await.list_watches(request).await.unwrap().into_inner().watches
}

fn conviction(group: &str, fingerprint: u64) -> v1::ConvictRequest {
    v1::ConvictRequest {
        gateway: "gw-1".into(),
        group: group.into(),
        r#match: "identify".into(),
        action: "kill".into(),
        fingerprint: format!("{fingerprint:016x}"),
        template: "SELECT ?".into(),
        text_sha256: "ab".repeat(32),
        rule: "ROWS = 6 (5)".into(),
        tenant: "t".into(),
        user: "u".into(),
        ..v1::ConvictRequest::default()
    }
}

async fn convict(lab: &Lab, conviction: v1::ConvictRequest) -> u64 {
    lab.statements().await.convict(conviction).await.unwrap().into_inner().watch_id
}

async fn runaways(lab: &Lab) -> Vec<v1::Runaway> {
    let request = v1::ListRunawaysRequest::default();
    lab.statements().await.list_runaways(request).await.unwrap().into_inner().runaways
}

/// The next list, with all its parts.
async fn next(rules: &mut Streaming<v1::Rules>) -> v1::Rules {
    let mut all = v1::Rules::default();
    loop {
        let part = timeout(PATIENCE, rules.message()).await.unwrap().unwrap().unwrap();
        assert!(part.unix_ms > 1_600_000_000_000, "gateways count what is left of a watch from it");
        all.groups.extend(part.groups);
        all.watches.extend(part.watches);
        if !part.more {
            return all;
        }
    }
}

/// Reads lists until one satisfies `found`.
async fn until(rules: &mut Streaming<v1::Rules>, found: impl Fn(&v1::Rules) -> bool) -> v1::Rules {
    loop {
        let list = next(rules).await;
        if found(&list) {
            return list;
        }
    }
}

async fn follow(lab: &Lab) -> Streaming<v1::Rules> {
    lab.statements().await.rules(v1::RulesRequest { gateway: "gw-1".into() }).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_longest_wait_is_told_and_taken_back() {
    let lab = Lab::start().await;
    ruled(&lab, "web", kill("")).await;
    set_limit(&lab, "web", None).await.unwrap();
    let mut rules = follow(&lab).await;
    assert!(next(&mut rules).await.groups.is_empty());
    for max_wait_us in [2_500_000, 1_000, 0] {
        let request = v1::AlterGroupRequest {
            group: Some(v1::Group { max_wait_us, ..group("web", "unlimited") }),
            update_mask: vec!["max_wait_us".into()],
            ..Default::default()
        };
        lab.admin().await.alter_group(request).await.unwrap();
        let told = until(&mut rules, |list| {
            list.groups.first().map(|rule| (rule.max_wait_us, rule.limit.is_none()))
                == (max_wait_us > 0).then_some((max_wait_us, true))
        });
        assert_eq!(told.await.groups.len(), usize::from(max_wait_us > 0));
    }
}

#[tokio::test]
async fn a_rule_is_set_altered_removed_and_logged() {
    let lab = Lab::start().await;
    let full = v1::QueryLimit {
        exec_elapsed_us: 60_000_000,
        ru: "1000".into(),
        watch_us: 600_000_000,
        ..kill("similar")
    };
    ruled(&lab, "web", full.clone()).await;
    assert_eq!(limit_of(&lab, "web").await, Some(full.clone()));
    let altered = set_limit(&lab, "web", Some(kill(""))).await.unwrap();
    assert_eq!((altered.query_limit, altered.ru_per_sec.as_str()), (Some(kill("")), "10"));
    for bad in [v1::QueryLimit::default(), switch("web"), switch("nobody"), kill("often")] {
        let error = set_limit(&lab, "web", Some(bad)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("query_limit"), "{error}");
    }
    assert_eq!(set_limit(&lab, "web", None).await.unwrap().query_limit, None);
    let log = lab.admin().await.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    assert!(log[0].before.contains("query_limit") && !log[0].after.contains("query_limit"), "{:?}", log[0]);
    assert!(log[2].after.contains("\"exec_elapsed_us\":60000000"), "{:?}", log[2]);
}

#[tokio::test]
async fn whatever_combination_of_uses_a_group_has_none_is_left_after_its_deletion() {
    let lab = Lab::start().await;
    lab.group("wide", "100").await;
    // None demotes to a group above it.
    for uses in (1..32_u32).filter(|uses| uses & 17 != 17) {
        let [below, switches, watched, bound, demotes] = [1, 2, 4, 8, 16].map(|bit| uses & bit > 0);
        let (old, user) = (format!("old-{uses}"), format!("user-{uses}"));
        lab.group(&old, "50").await;
        let made = v1::Group {
            parent: if below { old.clone() } else { String::new() },
            query_limit: switches.then(|| switch(&old)),
            demote_to: if demotes { old.clone() } else { String::new() },
            priority: if demotes { "high".into() } else { String::new() },
            ..group(&user, "10")
        };
        let request = v1::CreateGroupRequest { group: Some(made), if_not_exists: false };
        lab.admin().await.create_group(request).await.unwrap();
        if watched {
            let action = "switch_group".into();
            add(&lab, v1::Watch { action, switch_group: old.clone(), ..similar(&user, 1) }).await.unwrap();
        }
        let tenant = if bound { user.clone() } else { String::new() };
        if bound {
            let binding =
                v1::Binding { tenant: tenant.clone(), group: old.clone(), ..v1::Binding::default() };
            lab.admin().await.bind(v1::BindRequest { binding: Some(binding) }).await.unwrap();
        }
        assert_eq!(delete(&lab, &old, "").await.unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(delete(&lab, &old, "wide").await.unwrap().moved_count, u64::from(uses.count_ones()));
        let check = async |lab: &Lab| {
            let request = v1::GetGroupRequest { name: user.clone() };
            let now = lab.admin().await.get_group(request).await.unwrap().into_inner().group.unwrap();
            assert_eq!(now.parent, if below { "wide" } else { "" }, "{uses:b}");
            assert_eq!(now.query_limit, switches.then(|| switch("wide")), "{uses:b}");
            assert_eq!(now.demote_to, if demotes { "wide" } else { "" }, "{uses:b}");
            let watches = watches(lab, &user).await;
            let targets: Vec<_> = watches.iter().map(|watch| &*watch.switch_group).collect();
            assert_eq!(targets, vec!["wide"; usize::from(watched)], "{uses:b}");
            let request = v1::ResolveRequest { tenant: tenant.clone(), ..v1::ResolveRequest::default() };
            let charged = lab.admin().await.resolve(request).await.unwrap().into_inner().group;
            assert_eq!(charged, if bound { "wide" } else { "default" }, "{uses:b}");
        };
        check(&lab).await;
    }
    // The same is stored.
    let names =
        format!("{:?}", lab.crash().await.admin().await.list_groups(v1::ListGroupsRequest::default()).await);
    assert!(!names.contains("old-"), "{names}");
}

#[tokio::test]
async fn a_group_that_others_switch_to_is_deleted_only_with_a_group_that_takes_over() {
    let lab = Lab::start().await;
    for name in ["slow", "slower", "web"] {
        lab.group(name, "10").await;
    }
    ruled(&lab, "batch", switch("slow")).await;
    let watch = v1::Watch { action: "switch_group".into(), switch_group: "slow".into(), ..similar("web", 1) };
    let watch = add(&lab, watch).await.unwrap();
    let error = delete(&lab, "slow", "").await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    for user in ["the query_limit of group batch", &format!("watch {} of group web", watch.id)] {
        assert!(error.message().contains(user), "{error}");
    }
    for itself in ["batch", "web"] {
        let error = delete(&lab, "slow", itself).await.unwrap_err();
        assert!(error.message().contains("force_to") && error.message().contains("itself"), "{error}");
    }
    assert_eq!(delete(&lab, "slow", "slower").await.unwrap().moved_count, 2);
    assert_eq!(limit_of(&lab, "batch").await, Some(switch("slower")));
    assert_eq!(watches(&lab, "web").await[0].switch_group, "slower");
    let lab = lab.crash().await;
    assert_eq!(limit_of(&lab, "batch").await, Some(switch("slower")));
    assert_eq!(watches(&lab, "web").await[0].switch_group, "slower");
    delete(&lab, "batch", "").await.unwrap();
    delete(&lab, "web", "").await.unwrap();
    delete(&lab, "slower", "").await.unwrap();
    assert_eq!(watches(&lab, "").await, []);
}

#[tokio::test]
async fn watches_are_added_replaced_listed_and_removed() {
    let lab = Lab::start().await;
    lab.group("web", "10").await;
    lab.group("other", "10").await;
    let first = add(&lab, similar("web", 1)).await.unwrap();
    assert_eq!((first.source.as_str(), first.end_unix_ms, first.start_unix_ms > 0), ("manual", 0, true));
    let dry = v1::Watch { action: "dryrun".into(), id: 99, ..similar("WEB", 1) };
    let replaced = add(&lab, dry).await.unwrap();
    assert_eq!((replaced.id, replaced.action.as_str()), (first.id, "dryrun"));
    let exact = v1::Watch { r#match: "exact".into(), digest: "AB".repeat(32), ..similar("other", 0) };
    let second = add(&lab, exact).await.unwrap();
    assert!(second.id > first.id && second.digest == "ab".repeat(32), "{second:?}");
    assert_eq!(watches(&lab, "").await, [replaced, second.clone()]);
    assert_eq!(watches(&lab, "other").await, std::slice::from_ref(&second));

    let table = [
        (Code::NotFound, "nobody", similar("nobody", 1)),
        (Code::InvalidArgument, "action", v1::Watch { action: String::new(), ..similar("web", 1) }),
        (Code::InvalidArgument, "digest", v1::Watch { digest: "ab".into(), ..similar("web", 1) }),
        (Code::InvalidArgument, "end_unix_ms", v1::Watch { end_unix_ms: 1, ..similar("web", 1) }),
        (
            Code::InvalidArgument,
            "switch_group",
            v1::Watch { action: "switch_group".into(), switch_group: "nobody".into(), ..similar("web", 1) },
        ),
    ];
    for (code, named, bad) in table {
        let error = add(&lab, bad).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(named), "{error}");
    }
    let mut statements = lab.statements().await;
    for bad in [(0, ""), (1, "web")] {
        let request = v1::RemoveWatchRequest { id: bad.0, group: bad.1.into() };
        assert_eq!(statements.remove_watch(request).await.unwrap_err().code(), Code::InvalidArgument);
    }
    let one = v1::RemoveWatchRequest { id: second.id, group: String::new() };
    assert_eq!(statements.remove_watch(one.clone()).await.unwrap().into_inner().removed, 1);
    assert_eq!(statements.remove_watch(one).await.unwrap().into_inner().removed, 0);
    let all = v1::RemoveWatchRequest { id: 0, group: "web".into() };
    assert_eq!(statements.remove_watch(all).await.unwrap().into_inner().removed, 1);
    assert_eq!(watches(&lab, "").await, []);
    let log = lab.admin().await.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries;
    let actions: Vec<_> = log.iter().map(|entry| entry.action.as_str()).collect();
    let expected = [
        "remove watch",
        "remove watch",
        "add watch",
        "add watch",
        "add watch",
        "create group",
        "create group",
    ];
    assert_eq!(actions, expected);
    assert_eq!(log[0].subject, "all of group web");
    assert!(log[3].before.contains("\"kill\"") && log[3].after.contains("\"dryrun\""), "{:?}", log[3]);
    let third = add(&lab.restart().await, similar("web", 3)).await.unwrap();
    assert!(third.id > second.id, "ids are not used again");
}

#[tokio::test]
async fn equal_convictions_are_one_record_and_make_one_watch() {
    let lab = Lab::start().await;
    ruled(&lab, "web", v1::QueryLimit { watch_us: 600_000_000, ..kill("similar") }).await;
    ruled(&lab, "plain", kill("")).await;
    let id = convict(&lab, conviction("web", 1)).await;
    assert_eq!(convict(&lab, v1::ConvictRequest { user: "v".into(), ..conviction("web", 1) }).await, id);
    assert_eq!(convict(&lab, conviction("plain", 1)).await, 0);
    let seen = v1::ConvictRequest { r#match: "watch".into(), rule: String::new(), ..conviction("web", 1) };
    assert_eq!(convict(&lab, seen).await, id);
    let list = watches(&lab, "").await;
    let watch = &list[0];
    assert_eq!((list.len(), watch.id, watch.digest.as_str()), (1, id, "0000000000000001"));
    assert_eq!(
        (watch.source.as_str(), watch.rule.as_str(), watch.action.as_str()),
        ("gw-1", "ROWS = 6 (5)", "kill")
    );
    assert_eq!(watch.end_unix_ms, watch.start_unix_ms + 600_000);
    let records = runaways(&lab).await;
    let figures = records.iter().map(|record| {
        let conviction = record.conviction.as_ref().unwrap();
        (conviction.group.as_str(), conviction.r#match.as_str(), conviction.user.as_str(), record.repeats)
    });
    let figures: Vec<_> = figures.collect();
    assert_eq!(
        figures,
        [("web", "watch", "u", 1), ("plain", "identify", "u", 1), ("web", "identify", "v", 2)]
    );

    let mut statements = lab.statements().await;
    let nobody = statements.convict(conviction("nobody", 1)).await.unwrap_err();
    assert_eq!(nobody.code(), Code::NotFound);
    let bad = v1::ConvictRequest { fingerprint: "1".into(), ..conviction("web", 1) };
    assert_eq!(statements.convict(bad).await.unwrap_err().code(), Code::InvalidArgument);

    // A clean stop stores the half second that a crash could lose.
    let lab = lab.restart().await;
    assert_eq!((watches(&lab, "").await, runaways(&lab).await), (list, records));
    assert_eq!(convict(&lab, conviction("web", 1)).await, id);
    assert_eq!(runaways(&lab).await[2].repeats, 3);
}

#[tokio::test]
async fn a_watch_ends() {
    let lab = Lab::start().await;
    ruled(&lab, "web", v1::QueryLimit { watch_us: 1_000, ..kill("exact") }).await;
    let mut rules = follow(&lab).await;
    convict(&lab, conviction("web", 1)).await;
    until(&mut rules, |list| list.watches.is_empty()).await;
    while !watches(&lab, "").await.is_empty() {
        lab.running.service().leasing().expire();
    }
    assert!(watches(&lab.restart().await, "").await.is_empty());
}

#[tokio::test]
async fn gateways_are_told_all_rules_at_once_and_after_every_change() {
    let lab = Lab::start().await;
    let mut rules = follow(&lab).await;
    assert_eq!(next(&mut rules).await, v1::Rules::default());
    ruled(&lab, "web", kill("similar")).await;
    let list = next(&mut rules).await;
    assert_eq!((list.groups[0].group.as_str(), list.groups[0].limit.clone()), ("web", Some(kill("similar"))));
    let id = convict(&lab, conviction("web", 7)).await;
    let list = until(&mut rules, |list| !list.watches.is_empty()).await;
    assert_eq!((list.watches[0].id, list.watches[0].text.as_str(), list.groups.len()), (id, "", 1));
    set_limit(&lab, "web", None).await.unwrap();
    let list = until(&mut rules, |list| list.groups.is_empty()).await;
    assert_eq!(list.watches.len(), 1);
    // A group without a rule is not sent: the next list is that of the deletion.
    lab.group("other", "5").await;
    delete(&lab, "web", "").await.unwrap();
    assert_eq!(next(&mut rules).await, v1::Rules::default());
    assert_eq!(next(&mut follow(&lab).await).await, v1::Rules::default());
}

#[tokio::test]
async fn a_stop_ends_the_stream_of_rules() {
    let lab = Lab::start().await;
    let mut rules = follow(&lab).await;
    next(&mut rules).await;
    lab.running.shutdown().await.unwrap();
    let ended = timeout(PATIENCE, rules.message()).await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
}
