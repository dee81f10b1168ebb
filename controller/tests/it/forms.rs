//! Forms of the console that were opened before somebody else made a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::Controller;
use tidegate_controller::clock::Clock;
use tidegate_controller::store::Store;
use tidegate_proto::v1;

use super::console::Browser;
use super::support::{Faulty, Lab, MemoryStore, actor, config, group, tell};

#[tokio::test]
async fn a_binding_that_was_moved_since_its_page_was_opened_is_not_taken_away() {
    let lab = Lab::start().await;
    let (service, actor) = (lab.running.service(), actor());
    let definitions = service.definitions();
    for name in ["shop", "lab"] {
        lab.group(name, "10").await;
    }
    definitions.bind(&actor, "acme", "ann", "shop").unwrap();
    let mut browser = Browser::at(&lab.running);
    let page = browser.get("/console/groups/shop").await;
    assert!(page.text.contains("/console/unbind") && page.text.contains("ann"), "{page:?}");
    definitions.bind(&actor, "acme", "ann", "lab").unwrap();
    let from = |group| [("group", group), ("tenant", "acme"), ("user", "ann")];
    let page = browser.post("/console/unbind", &from("shop")).await;
    assert!(page.status == 409 && page.text.contains("bound to group lab by now, not to shop"), "{page:?}");
    assert_eq!(definitions.resolve("acme", "ann").unwrap().group.as_str(), "lab");
    for _ in 0..2 {
        // The second visitor finds it gone, which is what was asked for.
        assert_eq!(
            browser.post("/console/unbind", &from("lab")).await.header("location"),
            Some("/console/groups/lab")
        );
    }
    assert_eq!(definitions.resolve("acme", "ann").unwrap().group.as_str(), "default");
    let entries = definitions.audit_log("", 0, 10).unwrap();
    assert_eq!(entries.iter().filter(|entry| entry.action == "unbind").count(), 1);
    lab.running.shutdown().await.unwrap();
}

/// A controller with the group `web`, as it is, and a visitor who is about to write a form.
async fn editing() -> (Lab, v1::Group, Browser) {
    let lab = Lab::start().await;
    lab.group("web", "10").await;
    let before = lab.running.service().definitions().group("web").unwrap().group;
    let mut browser = Browser::at(&lab.running);
    browser.get("/console/groups/new").await;
    (lab, before, browser)
}

#[tokio::test]
async fn what_is_typed_wrong_is_shown_again_beside_what_is_wrong_and_changes_nothing() {
    let (lab, before, mut browser) = editing().await;
    let (definitions, revision) = (lab.running.service().definitions(), before.revision.to_string());
    let new = [("name", "new"), ("ru_per_sec", "5"), ("expected_revision", "0")];
    let old = [("name", "web"), ("ru_per_sec", "5"), ("expected_revision", revision.as_str())];
    for (path, form) in [("/console/groups/new", new), ("/console/groups/web/edit", old)] {
        for (field, typed, said) in [
            ("weight", "many", "&quot;many&quot; is not a whole number; write 1 to"),
            ("ttl_us", "soon", "&quot;soon&quot; is not a duration such as"),
            ("ttl_us", "-5s", "&quot;-5s&quot; is out of range: 0us to"),
            ("ttl_us", "1us", "out of range"),
            ("parent", "nowhere", "nowhere"),
        ] {
            let with = |more: &[(&'static str, &'static str)]| [&form[..], &[(field, typed)], more].concat();
            let page = browser.post(path, &with(&[])).await;
            assert!(page.status == 400 && page.text.contains(said), "{path} {typed}: {page:?}");
            assert!(page.text.contains(&format!("#field-{field}")), "{path} {typed}: {page:?}");
            assert!(page.text.contains(&format!("value=\"{typed}\"")), "{path} {typed}: {page:?}");
            assert_eq!(page.hidden("expected_revision"), form[2].1);
            // As one types, the same is said beside the form.
            let page = browser.post("/console/check", &with(&[])).await;
            assert!(page.status == 200 && page.text.contains(said), "{path} {typed}: {page:?}");
        }
    }
    assert!(definitions.group("new").is_err());
    assert_eq!(definitions.group("web").unwrap().group, before);
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn only_to_check_says_what_would_change_and_saves_nothing() {
    let (lab, before, mut browser) = editing().await;
    let (definitions, revision) = (lab.running.service().definitions(), before.revision.to_string());
    for button in ["check", "what_if", "propose"] {
        let new = [("name", "new"), ("ru_per_sec", "5"), ("expected_revision", "0"), (button, "1")];
        let page = browser.post("/console/groups/new", &new).await;
        assert!(page.status == 200 && page.text.contains("tidegate group create new --rate 5"), "{page:?}");
        assert!(definitions.group("new").is_err(), "{button}");
    }
    for button in ["check", "what_if"] {
        let form = [("ru_per_sec", "5"), ("expected_revision", revision.as_str()), (button, "1")];
        let is_asked = button == "what_if";
        let page = browser.post("/console/groups/web/edit", &form).await;
        assert!(page.status == 200 && page.text.contains("tidegate group alter web --rate 5"), "{page:?}");
        assert_eq!(page.hidden("expected_revision"), revision);
        // A replay reads the history, and is made for who asks for it.
        assert_eq!(page.text.contains("No history yet"), is_asked, "{page:?}");
    }
    assert_eq!(definitions.group("web").unwrap().group, before);
    // To save what is there already is no change.
    let same = [("ru_per_sec", "10"), ("expected_revision", revision.as_str())];
    let page = browser.post("/console/groups/web/edit", &same).await;
    assert_eq!((page.status, page.header("location")), (303, Some("/console/groups/web")));
    assert_eq!(definitions.group("web").unwrap().group, before);
    let made = definitions.audit_log("", 0, 10).unwrap();
    assert_eq!(made.len(), 1, "{made:?}");
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_form_of_a_new_group_has_the_words_of_what_is_usual() {
    let (lab, _, mut browser) = editing().await;
    let page = browser.get("/console/groups/new").await;
    for (field, word) in [
        ("parent", "/"),
        ("burst", "default"),
        ("burst_ru_per_sec", "default"),
        ("fallback", "stop"),
        ("fallback_total", "none"),
        ("max_debt", "default"),
        ("policy", "token_bucket"),
        ("quota", "none"),
        ("demote_to", "/"),
    ] {
        let (_, input) = page.text.split_once(&format!("name=\"{field}\"")).unwrap();
        let (input, _) = input.split_once('>').unwrap();
        assert!(input.contains(&format!("value=\"{word}\"")), "{field}: {input}");
    }
    for (field, word) in [("priority", "medium"), ("enforcement", "on")] {
        let (_, input) = page.text.split_once(&format!("name=\"{field}\"")).unwrap();
        let (input, _) = input.split_once("</select>").unwrap();
        assert!(input.contains(&format!("<option value=\"{word}\" selected>")), "{field}: {input}");
    }
    lab.running.shutdown().await.unwrap();
}

/// It is there before anything is changed.
#[tokio::test]
async fn the_form_of_the_group_default_is_checked_and_not_saved_over_the_change_of_another() {
    let lab = Lab::start().await;
    let definitions = lab.running.service().definitions();
    let mut browser = Browser::at(&lab.running);
    let revision = browser.get("/console/groups/default/edit").await.hidden("expected_revision");
    let form = [("name", "default"), ("ru_per_sec", "5"), ("expected_revision", revision.as_str())];
    let page = browser.post("/console/check", &form).await;
    let said = format!("tidegate group alter default --rate 5 --expect-revision {revision}");
    assert!(page.status == 200 && page.text.contains(&said), "{page:?}");
    let typed = [("name", "default"), ("ru_per_sec", "5"), ("expected_revision", "0")];
    let page = browser.post("/console/check", &typed).await;
    assert!(page.text.contains("is there already"), "{page:?}");
    let mask = ["ru_per_sec".to_owned()];
    definitions.alter_group(&actor(), &group("default", "7"), &mask, 0).unwrap();
    // Nor is it proposed.
    for button in [&[][..], &[("propose", "1")]] {
        browser.get("/console/groups/default/edit").await;
        let page = browser.post("/console/groups/default/edit", &[&form[..], button].concat()).await;
        assert!(page.status == 409 && page.text.contains("nothing was saved"), "{page:?}");
        // By whom, and what saving it once more would undo.
        let by = &definitions.audit_log("default", 0, 1).unwrap()[0].actor;
        assert!(page.text.contains(&format!("default was changed by {by} while")), "{page:?}");
        assert!(page.text.contains("<td><bdi>7</bdi></td><td><bdi>5</bdi></td>"), "{page:?}");
        let now = definitions.group("default").unwrap().group.revision;
        assert_eq!(page.hidden("expected_revision"), now.to_string());
    }
    assert_eq!(definitions.group("default").unwrap().group.ru_per_sec, "7");
    assert!(definitions.proposals().is_empty());
    lab.running.shutdown().await.unwrap();
}

/// A minute of more use than the new limit allows is a minute that would have been another one.
#[tokio::test]
async fn who_lowers_a_limit_is_told_in_how_many_minutes_more_was_used() {
    const MINUTE_US: u64 = 60_000_000;
    let folder = tempfile::tempdir().unwrap();
    let us = Arc::new(AtomicU64::new(100 * MINUTE_US));
    let (store, clock) = (Arc::new(MemoryStore::default()), Clock::driven(Arc::clone(&us)));
    let running = Controller::start_at(config(&folder), store, clock).await.unwrap();
    let service = running.service();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    // 600 RU within one minute, 6000 within the next, and 3000 within the last.
    for (seq, sum) in (1..).zip([600, 6_600, 9_600]) {
        tell(service, &session, seq, 1, sum);
        service.upkeep().flush().unwrap();
        us.fetch_add(MINUTE_US, Ordering::Relaxed);
    }
    let mut browser = Browser::at(&running);
    browser.get("/console/groups/new").await;
    let revision = service.definitions().group("default").unwrap().group.revision.to_string();
    for (rate, above) in [("9", 3), ("10", 2), ("50", 1), ("100", 0)] {
        let form = [("name", "default"), ("ru_per_sec", rate), ("expected_revision", revision.as_str())];
        let page = browser.post("/console/check", &form).await;
        let said = format!("In <b>{above}</b> of the last 3 minutes with use");
        assert!(page.text.contains(&said), "{rate}: {page:?}");
    }
    // What is not lowered is not compared.
    let mask = ["ru_per_sec".to_owned()];
    let limited = service.definitions().alter_group(&actor(), &group("default", "5"), &mask, 0).unwrap();
    let revision = limited.group.revision.to_string();
    for rate in ["5", "9", "unlimited"] {
        let form = [("name", "default"), ("ru_per_sec", rate), ("expected_revision", revision.as_str())];
        let page = browser.post("/console/check", &form).await;
        assert!(page.status == 200 && !page.text.contains("minutes with use"), "{rate}: {page:?}");
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_form_that_cannot_be_stored_comes_back_with_the_reason_and_is_not_called_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let running = Controller::start_with(config(&folder), Arc::clone(&store) as Arc<dyn Store>);
    let lab = Lab { folder, running: running.await.unwrap() };
    lab.group("web", "10").await;
    let definitions = lab.running.service().definitions();
    let mask = ["ru_per_sec".to_owned()];
    let proposed = definitions.put_proposal(&actor(), &group("web", "7"), &mask, 0).unwrap();
    let id = proposed.id.to_string();
    let before = definitions.group("web").unwrap().group;
    let revision = before.revision.to_string();
    let mut browser = Browser::at(&lab.running);
    browser.get("/console/groups/new").await;
    store.fill(true);
    let typed = [("ru_per_sec", "5"), ("expected_revision", revision.as_str())];
    let new = [("name", "new"), ("ru_per_sec", "5"), ("expected_revision", "0")];
    let decides = |decision| [("expected_id", id.as_str()), ("decision", decision)];
    for (path, form, is_kept) in [
        ("/console/groups/new", &new[..], "value=\"5\""),
        ("/console/groups/web/edit", &typed[..], "value=\"5\""),
        ("/console/groups/web/edit", &[&typed[..], &[("propose", "1")]].concat()[..], "value=\"5\""),
        ("/console/groups/web/delete", &[("expected_revision", revision.as_str())][..], "web"),
        ("/console/groups/web/proposal", &decides("apply")[..], "ru_per_sec"),
        ("/console/groups/web/proposal", &decides("withdraw")[..], "ru_per_sec"),
        ("/console/bind", &[("group", "web"), ("user", "ann")][..], ""),
    ] {
        let page = browser.post(path, form).await;
        assert_eq!(page.status, 503, "{path} {form:?}: {page:?}");
        let reason = "the change was not stored and is not in force: ";
        assert!(page.text.contains(reason) && page.text.contains("no space left on device"), "{page:?}");
        assert!(page.text.contains(is_kept), "{path}: {page:?}");
    }
    assert_eq!(definitions.group("web").unwrap().group, before);
    store.fill(false);
    let page = browser.post("/console/groups/web/edit", &typed).await;
    assert_eq!((page.status, page.header("location")), (303, Some("/console/groups/web")));
    lab.running.shutdown().await.unwrap();
}
