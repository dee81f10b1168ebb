//! What a node with groups is sent over a real socket: of bindings, changed groups and rules.

use std::collections::BTreeMap;

use tidegate_controller::Running;
use tidegate_controller::audit::Actor;
use tidegate_controller::limits::{RULES_PART, SNAPSHOT_PART};
use tidegate_proto::{NOT_GIVEN, v1};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use v1::admin_client::AdminClient;
use v1::grants_client::GrantsClient;
use v1::statements_client::StatementsClient;
use v1::watch_event::Kind;

use super::certificates::{self, channel};
use super::identity::{guarded, site};
use super::support::{PATIENCE, group};

/// A node's copy of the bindings, of which it must never be sent a word about `SECRET`.
struct Watcher {
    events: Streaming<v1::WatchEvent>,
    bindings: BTreeMap<(String, String), String>,
    parts: BTreeMap<(String, String), String>,
    at: (u64, u64),
    snapshots: usize,
    changed: Vec<String>,
}

/// In the names of all that does not concern the node.
const SECRET: &str = "secret";

impl Watcher {
    async fn open(channel: &Channel, (have_instance, have_revision): (u64, u64)) -> Self {
        let request = v1::WatchRequest { have_instance, have_revision };
        let events = GrantsClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
        let (bindings, parts, changed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { events, bindings, parts, at: (0, 0), snapshots: 0, changed }
    }

    /// Follows until its copy is this, and the heartbeat after it has the newest revision.
    async fn until(&mut self, revision: u64, expected: &[(&str, &str, &str)]) {
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(t, u, g)| (((*t).to_owned(), (*u).to_owned()), (*g).to_owned())).collect();
        while self.at.1 < revision {
            let event = timeout(PATIENCE, self.events.message()).await.unwrap().unwrap().unwrap();
            assert!(!format!("{event:?}").contains(SECRET), "{event:?}");
            self.at = (event.instance, event.revision);
            match event.kind.unwrap() {
                Kind::Snapshot(part) => {
                    self.parts.extend(part.bindings.into_iter().map(|of| ((of.tenant, of.user), of.group)));
                    if !part.more {
                        self.bindings = std::mem::take(&mut self.parts);
                        self.snapshots += 1;
                    }
                }
                Kind::Binding(v1::BindingChange { binding: Some(of), removed: true }) => {
                    self.bindings.remove(&(of.tenant, of.user));
                }
                Kind::Binding(v1::BindingChange { binding: Some(of), .. }) => {
                    self.bindings.insert((of.tenant, of.user), of.group);
                }
                Kind::GroupsChanged(changed) => self.changed.extend(changed.groups),
                _ => {}
            }
        }
        assert_eq!(self.bindings, expected);
    }
}

struct Site {
    admin: AdminClient<Channel>,
}

impl Site {
    async fn of(running: &Running, files: &certificates::Site) -> Self {
        Self { admin: AdminClient::new(channel(running, files.shown(Some("admin"))).await.unwrap()) }
    }

    async fn group(&mut self, name: &str) {
        let create = v1::CreateGroupRequest { group: Some(group(name, "10")), if_not_exists: false };
        self.admin.create_group(create).await.unwrap();
    }

    /// Binds, or unbinds with an empty group; returns the revision after it.
    async fn bind(&mut self, tenant: &str, user: &str, group: &str) -> u64 {
        let (tenant, user, group) = (tenant.to_owned(), user.to_owned(), group.to_owned());
        if group.is_empty() {
            self.admin.unbind(v1::UnbindRequest { tenant, user }).await.unwrap();
        } else {
            let binding = Some(v1::Binding { tenant, user, group });
            self.admin.bind(v1::BindRequest { binding }).await.unwrap();
        }
        self.revision().await
    }

    async fn revision(&mut self) -> u64 {
        self.admin.status(v1::StatusRequest::default()).await.unwrap().into_inner().revision
    }
}

#[tokio::test]
async fn a_node_with_groups_is_sent_what_concerns_them_and_no_other_name() {
    let files = site();
    let running = guarded(&files).await;
    let mut site = Site::of(&running, &files).await;
    for name in ["shop", "secret-1", "secret-2"] {
        site.group(name).await;
    }
    site.bind("shop-co", "", "shop").await;
    site.bind("shop-co", "ann", "secret-1").await;
    let revision = site.bind("secret-co", "", "secret-1").await;
    let till = channel(&running, files.shown(Some("till"))).await.unwrap();
    let node = channel(&running, files.shown(Some("node"))).await.unwrap();
    let mut watcher = Watcher::open(&till, (0, 0)).await;
    let kept = [("shop-co", "", "shop"), ("shop-co", "ann", NOT_GIVEN)];
    watcher.until(revision, &kept).await;
    assert_eq!(watcher.snapshots, 1);

    // What does not concern it; then a user of its tenant, as a change.
    site.bind("secret-co", "secret-user", "secret-2").await;
    site.group("secret-3").await;
    let revision = site.bind("shop-co", "bob", "shop").await;
    watcher
        .until(
            revision,
            &[("shop-co", "", "shop"), ("shop-co", "ann", NOT_GIVEN), ("shop-co", "bob", "shop")],
        )
        .await;
    assert_eq!((watcher.snapshots, watcher.changed.len()), (1, 0));
    // The tenant goes elsewhere, which leaves one user; and it comes back.
    let revision = site.bind("shop-co", "", "secret-1").await;
    watcher.until(revision, &[("shop-co", "bob", "shop")]).await;
    let revision = site.bind("shop-co", "", "shop").await;
    watcher
        .until(
            revision,
            &[("shop-co", "", "shop"), ("shop-co", "ann", NOT_GIVEN), ("shop-co", "bob", "shop")],
        )
        .await;
    assert_eq!(watcher.snapshots, 3);
    // A tenant without users of its own needs no other snapshot.
    let revision = site.bind("new-co", "", "shop").await;
    let all = [
        ("new-co", "", "shop"),
        ("shop-co", "", "shop"),
        ("shop-co", "ann", NOT_GIVEN),
        ("shop-co", "bob", "shop"),
    ];
    watcher.until(revision, &all).await;
    assert_eq!(watcher.snapshots, 3);

    // What it has is never taken for the whole, nor the whole for its part.
    let (instance, _) = watcher.at;
    let mut again = Watcher::open(&till, (instance, revision)).await;
    again.until(revision, &all).await;
    let request = v1::WatchRequest { have_instance: instance, have_revision: revision };
    let mut whole = GrantsClient::new(node).watch(request).await.unwrap().into_inner();
    let first = timeout(PATIENCE, whole.message()).await.unwrap().unwrap().unwrap();
    let Some(Kind::Snapshot(part)) = first.kind else { panic!("a snapshot was expected: {first:?}") };
    assert_eq!((part.bindings.len(), first.instance), (6, !instance));
    let mut other = Watcher::open(&till, (first.instance, revision)).await;
    other.until(revision, &all).await;

    let refused = site
        .admin
        .create_group(v1::CreateGroupRequest { group: Some(group(NOT_GIVEN, "10")), if_not_exists: false });
    let refused = refused.await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message().starts_with("name: ")),
        (Code::InvalidArgument, true),
        "{refused}"
    );
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_given_group_is_found_among_very_many_bindings_of_others() {
    let files = site();
    let running = guarded(&files).await;
    let mut site = Site::of(&running, &files).await;
    site.group("shop").await;
    site.group("secret-1").await;
    for part in 0..3 {
        let steps = (0..SNAPSHOT_PART).map(|number| v1::Step {
            kind: Some(v1::step::Kind::Binding(v1::Binding {
                tenant: format!("secret-{part}-{number}"),
                user: String::new(),
                group: "secret-1".to_owned(),
            })),
        });
        let apply = v1::ApplyRequest { steps: steps.collect(), ..v1::ApplyRequest::default() };
        site.admin.apply(apply).await.unwrap();
    }
    let revision = site.bind("z", "", "shop").await;
    let till = channel(&running, files.shown(Some("till"))).await.unwrap();
    let mut watcher = Watcher::open(&till, (0, 0)).await;
    watcher.until(revision, &[("z", "", "shop")]).await;
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_gateway_with_groups_follows_their_rules_alone() {
    let files = site();
    let running = guarded(&files).await;
    let mut site = Site::of(&running, &files).await;
    for name in ["shop", "secret-1"] {
        let limit = v1::QueryLimit { rows: 5, action: "kill".to_owned(), ..v1::QueryLimit::default() };
        let group = v1::Group { query_limit: Some(limit), ..group(name, "10") };
        let create = v1::CreateGroupRequest { group: Some(group), if_not_exists: false };
        site.admin.create_group(create).await.unwrap();
    }
    let mut statements =
        StatementsClient::new(channel(&running, files.shown(Some("operator"))).await.unwrap());
    for (number, name) in ["shop", "secret-1"].into_iter().enumerate() {
        let watch = v1::Watch {
            group: name.to_owned(),
            r#match: "similar".to_owned(),
            digest: format!("{number:016x}"),
            action: "kill".to_owned(),
            ..v1::Watch::default()
        };
        statements.add_watch(v1::AddWatchRequest { watch: Some(watch), watch_us: 0 }).await.unwrap();
    }
    for (certificate, id, count) in [("till", "till", 1), ("gateway", "gateway", 2)] {
        let channel = channel(&running, files.shown(Some(certificate))).await.unwrap();
        let request = v1::RulesRequest { gateway: id.to_owned() };
        let mut rules = StatementsClient::new(channel).rules(request).await.unwrap().into_inner();
        let first = timeout(PATIENCE, rules.message()).await.unwrap().unwrap().unwrap();
        assert_eq!((first.groups.len(), first.watches.len(), first.more), (count, count, false), "{first:?}");
        assert!(count == 2 || !format!("{first:?}").contains(SECRET), "{first:?}");
    }
    running.shutdown().await.unwrap();
}

/// Until that part it has no whole copy, and no prices.
#[tokio::test]
async fn a_snapshot_has_an_end_where_its_last_part_is_of_others_alone() {
    let files = site();
    let running = guarded(&files).await;
    let mut site = Site::of(&running, &files).await;
    site.group("shop").await;
    site.group("secret-1").await;
    site.bind("a", "", "shop").await;
    for number in 0..SNAPSHOT_PART {
        site.bind(&format!("secret-{number}"), "", "secret-1").await;
    }
    let revision = site.revision().await;
    let till = channel(&running, files.shown(Some("till"))).await.unwrap();
    let mut watcher = Watcher::open(&till, (0, 0)).await;
    watcher.until(revision, &[("a", "", "shop")]).await;
    assert_eq!(watcher.snapshots, 1);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_gateway_with_groups_finds_its_rule_behind_very_many_of_others() {
    let files = site();
    let running = guarded(&files).await;
    let (definitions, actor) = (running.service().definitions(), Actor::new(None, "test"));
    let waiting = |name: &str| v1::Group { max_wait_us: 5_000, ..group(name, "10") };
    let others = (0..RULES_PART).map(|number| v1::Step {
        kind: Some(v1::step::Kind::Group(Box::new(waiting(&format!("{SECRET}-{number}"))))),
    });
    definitions
        .apply(&actor, &v1::ApplyRequest { steps: others.collect(), ..v1::ApplyRequest::default() })
        .unwrap();
    definitions.create_group(&actor, &waiting("shop"), false).unwrap();
    let till = channel(&running, files.shown(Some("till"))).await.unwrap();
    let request = v1::RulesRequest { gateway: "till".to_owned() };
    let mut rules = StatementsClient::new(till).rules(request).await.unwrap().into_inner();
    let mut groups = Vec::new();
    loop {
        let part = timeout(PATIENCE, rules.message()).await.unwrap().unwrap().unwrap();
        groups.extend(part.groups.into_iter().map(|rule| rule.group));
        if !part.more {
            break;
        }
    }
    assert_eq!(groups, ["shop"]);
    running.shutdown().await.unwrap();
}
