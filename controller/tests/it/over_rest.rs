//! What REST takes out of a request and hands on: whose groups are seen.

use tidegate_controller::audit::Actor;
use tidegate_proto::v1;

use super::certificates::channel_to;
use super::identity::{guarded, rest, site};
use super::support::group;

/// A tenant's group has groups below it that are not the tenant's.
#[tokio::test]
async fn a_history_with_those_below_has_what_its_tenant_sees() {
    let files = site();
    let running = guarded(&files).await;
    let (definitions, actor) = (running.service().definitions(), Actor::new(None, "test"));
    let below = |name| v1::Group { parent: "shop".to_owned(), ..group(name, "10") };
    for group in [group("shop", "100"), below("own"), below("of-others")] {
        definitions.create_group(&actor, &group, false).unwrap();
    }
    for (tenant, group) in [("tenant", "shop"), ("other", "of-others")] {
        definitions.bind(&actor, tenant, "", group).unwrap();
    }
    definitions.bind(&actor, "tenant", "ann", "own").unwrap();
    let path = "/v1/usage/shop/history?below=true";
    for (who, groups) in [("tenant", 2), ("viewer", 3)] {
        let channel = channel_to(running.rest_addr.port(), files.shown(Some(who))).await.unwrap();
        let (status, body) = rest(&channel, "GET", path).await;
        assert!(status == 200 && body.contains(&format!("\"groups\":{groups}")), "{who}: {status} {body}");
    }
    running.shutdown().await.unwrap();
}
