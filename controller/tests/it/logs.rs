//! The history of one group's definition: its part of the audit log, by every surface.

use serde_json::json;
use tidegate_controller::audit::Actor;
use tidegate_proto::v1;

use super::console::Browser;
use super::support::{Lab, group};

/// Makes a group and alters it so many times: its first comment has markup.
fn altered(lab: &Lab, name: &str, times: u32) {
    let (definitions, actor) = (lab.running.service().definitions(), Actor::new(Some("ann"), "test"));
    let made = v1::Group { comment: "<b>made".into(), ..group(name, "100") };
    definitions.create_group(&actor, &made, false).unwrap();
    for time in 1..=times {
        let to = v1::Group { ru_per_sec: (100 + time).to_string(), ..made.clone() };
        definitions.alter_group(&actor, &to, &["ru_per_sec".to_owned()], 0).unwrap();
    }
}

/// Ids of all entries of a group, by pages of this length.
async fn pages(lab: &Lab, group: &str, limit: u32) -> Vec<u64> {
    let (mut admin, mut ids) = (lab.admin().await, Vec::new());
    loop {
        let before_id = ids.last().copied().unwrap_or(0);
        let request = v1::AuditLogRequest { limit, before_id, group: group.to_owned() };
        let page = admin.audit_log(request).await.unwrap().into_inner().entries;
        assert!(page.len() <= usize::try_from(limit).unwrap());
        assert!(page.iter().all(|entry| entry.subject == "shop" && entry.action.ends_with(" group")));
        if page.is_empty() {
            return ids;
        }
        ids.extend(page.iter().map(|entry| entry.id));
    }
}

#[tokio::test]
async fn the_log_of_a_group_has_pages_and_outlives_the_group_and_a_start() {
    let lab = Lab::start().await;
    for name in ["shop", "other"] {
        altered(&lab, name, 12);
    }
    let definitions = lab.running.service().definitions();
    let actor = Actor::new(None, "test");
    // What is of others though it has the name.
    definitions.bind(&actor, "shop", "", "shop").unwrap();
    definitions.bind(&actor, "shop", "", "other").unwrap();
    lab.delete("shop").await;
    let ids = pages(&lab, "Shop", 5).await;
    assert_eq!(ids.len(), 14, "made, altered twelve times, deleted");
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");

    let (status, body) = lab.http("GET", "/v1/audit?group=shop&limit=2", None).await;
    let entries = body["entries"].as_array().unwrap();
    assert_eq!((status, entries.len()), (200, 2), "{body}");
    assert_eq!((&entries[0]["action"], &entries[0]["id"]), (&json!("delete group"), &json!(ids[0])));
    let path = format!("/v1/audit?group=shop&before_id={}", ids[1]);
    let (_, body) = lab.http("GET", &path, None).await;
    assert_eq!((body["entries"].as_array().unwrap().len(), &body["entries"][0]["id"]), (12, &json!(ids[2])));
    assert_eq!(lab.http("GET", "/v1/audit?group=never", None).await, (200, json!({"entries": []})));
    for (path, said) in [
        ("group=a%20b", "group: "),
        ("group=%3Cb%3E", "group: "),
        ("group=shop&limit=1001", "limit: 1001 is out of range"),
        ("groups=shop", "groups"),
    ] {
        let (status, body) = lab.http("GET", &format!("/v1/audit?{path}"), None).await;
        assert!(status == 400 && body.to_string().contains(said), "{path}: {status} {body}");
    }
    // A group of the same name goes on with the same history, after a start, too.
    let lab = lab.restart().await;
    assert_eq!(pages(&lab, "shop", 1_000).await, ids);
    altered(&lab, "shop", 0);
    let more = pages(&lab, "shop", 3).await;
    assert_eq!((more.len(), &more[1..]), (15, ids.as_slice()));
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_page_of_a_group_shows_how_its_definition_became_what_it_is() {
    let lab = Lab::start().await;
    altered(&lab, "shop", 12);
    altered(&lab, "other", 1);
    let mut browser = Browser::at(&lab.running);
    let page = browser.get("/console/groups/shop").await;
    assert_eq!(page.text.matches("<code>ru_per_sec</code>: <bdi>").count(), 10, "{page:?}");
    let last = "<code>ru_per_sec</code>: <bdi>111</bdi> → <bdi>112</bdi>";
    assert!(page.text.contains(last) && page.text.contains("ann (test)"), "{page:?}");
    let revision = lab.running.service().definitions().group("shop").unwrap().group.revision;
    assert!(page.text.contains(&format!("<small>revision {revision}</small>")), "{page:?}");
    let (_, rest) = page.text.split_once("href=\"/console/audit?group=shop&amp;before=").unwrap();
    let older = rest.split('"').next().unwrap();
    let page = browser.get(&format!("/console/audit?group=shop&before={older}")).await;
    assert_eq!(page.text.matches("<code>ru_per_sec</code>: <bdi>").count(), 3, "{page:?}");
    let made =
        "<code>ru_per_sec</code>: <bdi>100</bdi></li><li><code>comment</code>: <bdi>&lt;b&gt;made</bdi>";
    assert!(page.text.contains(made) && !page.text.contains("<b>made"), "{page:?}");
    assert!(page.text.contains(">Newest<") && !page.text.contains(">Older<"), "{page:?}");
    assert!(!page.text.contains("<bdi>other</bdi>"), "{page:?}");
    // A file of an older page has what is older, so that all of a long log can be had.
    for of in ["&group=shop", ""] {
        let page = browser.get(&format!("/console/audit?before={older}{of}&as=csv")).await;
        let ids = page.text.lines().skip(1).map(|row| row.split(',').next().unwrap().parse::<u64>().unwrap());
        let (ids, older) = (ids.collect::<Vec<_>>(), older.parse().unwrap());
        assert!(ids.len() == 3 && ids.is_sorted_by(|newer, older| newer > older), "{page:?}");
        assert!(ids.iter().all(|id| *id < older), "{page:?}");
    }
    let page = browser.get("/console/audit?before=1").await;
    assert!(page.text.contains("The log has nothing older."), "{page:?}");
    let page = browser.get("/console/audit?group=shop&as=csv").await;
    assert_eq!(page.text.matches("alter group").count(), 12, "{page:?}");
    assert!(browser.get("/console/groups/default").await.text.contains("None that the log still has"));
    assert!(browser.get("/console/audit").await.text.contains("<bdi>other</bdi>"));
    let page = browser.get("/console/audit?group=never").await;
    assert!(page.status == 200 && page.text.contains("no change of a group <bdi>never</bdi>"), "{page:?}");
    let page = browser.get("/console/audit?group=%3Cimg%3E").await;
    assert!(
        page.status == 400 && page.text.contains("&lt;img&gt;") && !page.text.contains("<img"),
        "{page:?}"
    );
    lab.running.shutdown().await.unwrap();
}
