//! Pages of the console where something ends: a session, a list of changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::Controller;
use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::config::{Access, Authentication, Config};
use tidegate_controller::store::Store;

use crate::console::{Browser, by_tokens, live_page, token};
use crate::support::{Lab, MemoryStore, config, group};

/// A shared machine: the cookie of who was there before opens nothing once another one has logged in.
#[tokio::test]
async fn who_logs_in_ends_the_session_of_who_was_logged_in_there() {
    let (_folder, running) = by_tokens().await;
    let (_, secret) = token(&running, "viewer", "");
    let mut browser = Browser::at(&running);
    browser.log_in(&secret).await;
    let mut former = browser.clone();
    assert_eq!(former.get("/console/groups").await.status, 200);
    browser.log_in(&secret).await;
    assert_ne!(browser.cookie, former.cookie);
    assert_eq!(browser.get("/console/groups").await.status, 200);
    assert_eq!(former.get("/console/groups").await.status, 303);
    running.shutdown().await.unwrap();
}

/// A screen that is left on follows the present by itself for days.
#[tokio::test]
async fn a_live_page_keeps_no_session_open() {
    const MINUTE_US: u64 = 60_000_000;
    let folder = tempfile::tempdir().unwrap();
    let access = Access { authentication: Some(Authentication::Required), ..Access::default() };
    let config = Config { access, ..config(&folder) };
    let us = Arc::new(AtomicU64::new(0));
    let store = Arc::new(MemoryStore::default()) as Arc<dyn Store>;
    let running = Controller::start_at(config, store, Clock::driven(Arc::clone(&us))).await.unwrap();
    let (_, secret) = token(&running, "viewer", "");
    let mut browser = Browser::at(&running);
    browser.log_in(&secret).await;
    assert_eq!(browser.get("/console").await.status, 200);
    us.fetch_add(50 * MINUTE_US, Ordering::Relaxed);
    drop(live_page(&running, &browser, "%2Fconsole").await);
    us.fetch_add(20 * MINUTE_US, Ordering::Relaxed);
    assert_eq!(browser.get("/console").await.status, 303);
    running.shutdown().await.unwrap();
}

/// The tenth change is the last one that the page shows: an older one is not promised where there is none.
#[tokio::test]
async fn the_page_of_a_group_leads_to_older_changes_where_there_are_any() {
    let lab = Lab::start().await;
    let (definitions, actor) = (lab.running.service().definitions(), Actor::new(None, "test"));
    definitions.create_group(&actor, &group("web", "1"), false).unwrap();
    let mask = ["ru_per_sec".to_owned()];
    let mut browser = Browser::at(&lab.running);
    for changes in 2..=11 {
        definitions.alter_group(&actor, &group("web", &changes.to_string()), &mask, 0).unwrap();
        let page = browser.get("/console/groups/web").await;
        assert_eq!(page.text.contains("rel=\"next\""), changes > 10, "{changes}: {page:?}");
    }
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_log_of_a_group_as_csv_has_its_changes_alone() {
    let lab = Lab::start().await;
    lab.group("web", "1").await;
    lab.group("other", "1").await;
    let page = Browser::at(&lab.running).get("/console/audit?group=web&as=csv").await;
    assert!(page.text.contains("web") && !page.text.contains("other"), "{page:?}");
    lab.running.shutdown().await.unwrap();
}

/// As the form of a changed group does: to press the button once more is a decision.
#[tokio::test]
async fn a_group_that_was_changed_is_deleted_when_that_is_meant_once_more() {
    let lab = Lab::start().await;
    let (definitions, actor) = (lab.running.service().definitions(), Actor::new(None, "test"));
    let first = definitions.create_group(&actor, &group("web", "1"), false).unwrap().group.revision;
    let mask = ["ru_per_sec".to_owned()];
    let now = definitions.alter_group(&actor, &group("web", "2"), &mask, 0).unwrap().group.revision;
    let mut browser = Browser::at(&lab.running);
    let path = "/console/groups/web/delete";
    browser.get(path).await;
    let refused = browser.post(path, &[("expected_revision", &first.to_string())]).await;
    assert_eq!((refused.status, refused.hidden("expected_revision")), (409, now.to_string()), "{refused:?}");
    assert_eq!(browser.post(path, &[("expected_revision", &now.to_string())]).await.status, 303);
    assert!(definitions.group("web").is_err());
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_form_of_a_new_group_says_as_one_types_that_its_name_is_there() {
    let lab = Lab::start().await;
    lab.group("web", "1").await;
    let mut browser = Browser::at(&lab.running);
    browser.get("/console/groups/new").await;
    let typed = [("name", "web"), ("ru_per_sec", "5"), ("expected_revision", "0")];
    let page = browser.post("/console/check", &typed).await;
    assert!(page.status == 200 && page.text.contains("is there already"), "{page:?}");
    lab.running.shutdown().await.unwrap();
}
