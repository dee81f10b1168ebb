//! Forms of the console that were opened before somebody else made a change.

use super::console::Browser;
use super::support::Lab;
use tidegate_controller::audit::Actor;

#[tokio::test]
async fn a_binding_that_was_moved_since_its_page_was_opened_is_not_taken_away() {
    let lab = Lab::start().await;
    let (service, actor) = (lab.running.service(), Actor::new(None, "test"));
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
