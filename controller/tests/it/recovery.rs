//! State that survives a clean and an unclean stop.

use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::support::{Lab, Node, charged, entry, group, report};

fn only(granted: &v1::Granted) -> &v1::GrantEntry {
    &granted.entries[0]
}

#[tokio::test]
async fn definitions_survive_a_crash() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let child = v1::Group { parent: "web".into(), ..group("api", "10") };
    let mut admin = lab.admin().await;
    admin.create_group(v1::CreateGroupRequest { group: Some(child), if_not_exists: false }).await.unwrap();
    let binding = v1::Binding { tenant: "t".into(), user: "u".into(), group: "api".into() };
    admin.bind(v1::BindRequest { binding: Some(binding) }).await.unwrap();
    let before = admin.list_groups(v1::ListGroupsRequest::default()).await.unwrap().into_inner();
    let revision = lab.running.service().status().revision;

    let lab = lab.crash().await;
    let mut admin = lab.admin().await;
    assert_eq!(admin.list_groups(v1::ListGroupsRequest::default()).await.unwrap().into_inner(), before);
    let resolved = admin.resolve(v1::ResolveRequest { tenant: "t".into(), user: "u".into() }).await.unwrap();
    assert_eq!(resolved.into_inner().group, "api");
    let status = lab.running.service().status();
    assert_eq!((status.revision, status.epoch), (revision, 2));
    assert_eq!(admin.audit_log(v1::AuditLogRequest::default()).await.unwrap().into_inner().entries.len(), 3);
}

#[tokio::test]
async fn a_clean_restart_continues_leases_under_the_same_epoch() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let granted = node.renew(vec![entry("web", 2_000)], Vec::new()).await.unwrap();
    let held = only(&granted).rate;
    let lab = lab.restart().await;
    let status = lab.running.service().status();
    assert_eq!((status.epoch, status.recovery.0), (1, 0));
    let leases = lab.admin().await.list_leases(v1::ListLeasesRequest::default()).await.unwrap().into_inner();
    assert_eq!(leases.leases[0].client, "node");
    // A second node does not get what the first may still be using.
    let mut other = Node::connect(&lab, "other", 1).await.unwrap();
    let granted = other.renew(vec![entry("web", 2_000)], Vec::new()).await.unwrap();
    assert!(only(&granted).rate <= 1_000_000_000 - held, "{granted:?} {held}");
}

#[tokio::test]
async fn a_crash_after_a_clean_stop_waits_for_the_leases_that_the_stop_left() {
    let lab = Lab::start().await;
    let lasts = |seconds: u64, group: v1::Group| v1::Group { ttl_us: seconds * 1_000_000, ..group };
    let web = lasts(60, group("web", "1000"));
    let mut admin = lab.admin().await;
    admin
        .create_group(v1::CreateGroupRequest { group: Some(web.clone()), if_not_exists: false })
        .await
        .unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.renew(vec![entry("web", 300)], Vec::new()).await.unwrap();
    let update_mask = ["ttl_us", "renew_us"].map(str::to_owned).to_vec();
    let alter = v1::AlterGroupRequest { group: Some(lasts(1, web)), update_mask, ..Default::default() };
    admin.alter_group(alter).await.unwrap();

    let lab = lab.restart().await.crash().await;
    let recovers = lab.running.service().leasing().recovery_of("web").unwrap();
    // The rest of a minute, and not the second that leases last now.
    assert!(recovers > Span::secs(2), "{recovers}");
}

#[tokio::test]
async fn after_a_crash_only_proven_leases_continue() {
    let lab = Lab::start().await;
    // A lease outlasts the test on a busy machine.
    let web = v1::Group { ttl_us: 60_000_000, ..group("web", "1000") };
    let create = v1::CreateGroupRequest { group: Some(web), if_not_exists: false };
    lab.admin().await.create_group(create).await.unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    let granted = node.renew(vec![entry("web", 300)], Vec::new()).await.unwrap();
    let lease = only(&granted).clone();

    let lab = lab.crash().await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    assert_eq!(node.welcome.epoch, 2);
    assert!(node.welcome.recovery_us > 4_000_000, "{}", node.welcome.recovery_us);
    node.seq = 100;
    let mut ask = entry("web", 5_000);
    (ask.held_rate, ask.held_cap_micro_ru) = (lease.rate, lease.cap_micro_ru);
    let mut thief = Node::connect(&lab, "thief", 1).await.unwrap();
    for proof in [Vec::new(), lease.proof.clone(), vec![1; 57]] {
        let granted = thief.renew(vec![v1::RenewEntry { proof, ..ask.clone() }], Vec::new()).await.unwrap();
        assert_eq!(only(&granted).status, i32::from(v1::GrantStatus::Recovering));
        assert!(only(&granted).ask_again_us > 0);
    }
    // Nothing limits this group, so there is nothing to prove.
    let granted = thief.renew(vec![entry("default", 5)], Vec::new()).await.unwrap();
    assert_eq!(only(&granted).status, i32::from(v1::GrantStatus::Unlimited));
    let granted =
        node.renew(vec![v1::RenewEntry { proof: lease.proof.clone(), ..ask }], Vec::new()).await.unwrap();
    assert_eq!(only(&granted).status, i32::from(v1::GrantStatus::Leased), "{granted:?}");
    assert!(only(&granted).rate <= lease.rate && only(&granted).rate > 0, "{granted:?} {lease:?}");
    assert_eq!(only(&granted).lump_micro_ru, 0);
}

#[tokio::test]
async fn consumption_is_counted_exactly_once_across_crashes() {
    let mut lab = Lab::start().await;
    lab.group("web", "1000").await;
    for round in 1..=3_u32 {
        let mut node = Node::connect(&lab, "node", u64::from(round)).await.unwrap();
        // Stored, repeated, and possibly not stored when the controller goes away.
        node.report(vec![report("web", 0, 10)]).await;
        node.renew(Vec::new(), vec![report("web", 0, 10)]).await.unwrap();
        node.renew(Vec::new(), vec![report("web", 0, 25)]).await.unwrap();
        lab = lab.crash().await;
        // The node still runs and repeats its report; its successor reports for it, too.
        let mut node = Node::connect(&lab, "node", u64::from(round)).await.unwrap();
        node.seq = 50;
        node.report(vec![report("web", 0, 30)]).await;
        let mut next = Node::connect(&lab, "node", u64::from(round) + 1).await.unwrap();
        next.report(vec![report("web", u64::from(round), 30)]).await;
        assert_eq!(charged(&lab, "web").await, i64::from(round) * 30_000_000);
    }
    let lab = lab.restart().await;
    assert_eq!(charged(&lab, "web").await, 90_000_000);
}
