//! What the form of a group shows of its history before a change is saved, and what is proposed there.

use tidegate_console::quantity::percent;
use tidegate_proto::v1;

use super::console::Browser;
use super::support::{Lab, Node, report};

#[tokio::test]
async fn a_form_shows_what_its_settings_would_have_met_and_changes_nothing() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let of = |name: &str| lab.running.service().definitions().group(name).unwrap().group;
    let revision = of("web").revision.to_string();
    let typed = |more: &[(&'static str, &'static str)]| {
        let mut fields = vec![("name", "web"), ("expected_revision", revision.as_str())];
        fields.extend(more);
        fields
    };
    let mut browser = Browser::at(&lab.running);
    let page = browser.get("/console/groups/web/edit").await;
    assert!(page.text.contains("name=\"what_if\" value=\"1\" form=\"definition\""), "{page:?}");
    assert!(!browser.get("/console/groups/new").await.text.contains("what_if"), "it has no history");
    let page = browser.post("/console/what-if", &typed(&[("ru_per_sec", "5")])).await;
    assert!(
        page.status == 200 && page.text.contains("No history yet") && page.text.contains("last hour"),
        "{page:?}"
    );

    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("web", 1, 600)]).await;
    // As the API answers: the rate, the burst and the longest wait that are typed.
    let wish = v1::WhatIfRequest {
        group: "web".into(),
        ru_per_sec: "5".into(),
        burst: "50".into(),
        patience_us: 5_000_000,
        ..v1::WhatIfRequest::default()
    };
    let reply = lab.admin().await.what_if(wish).await.unwrap().into_inner();
    let then = reply.proposed.unwrap();
    let (even, at_once) =
        (percent(then.even.unwrap().throttled_ppm), percent(then.at_once.unwrap().throttled_ppm));
    let settings = [("ru_per_sec", "5"), ("burst", "50"), ("max_wait_us", "5s")];
    let page = browser.post("/console/what-if", &typed(&settings)).await;
    let said = format!("throttled <b>{even} to {at_once}</b> of the RU");
    assert!(
        page.status == 200 && page.text.contains(&said) && !page.text.contains("<html"),
        "{said}: {page:?}"
    );
    assert!(page.text.contains("600 RU by 600 operations") && page.text.contains("1,000 RU/s"), "{page:?}");
    let longer = [&settings[..], &[("replayed", "24h"), ("what_if", "1")]].concat();
    let page = browser.post("/console/groups/web/edit", &typed(&longer)).await;
    assert!(
        page.status == 200 && page.text.contains(&said) && page.text.contains("What changes"),
        "{page:?}"
    );
    assert!(
        page.text.contains("<option value=\"24h\" selected>") && page.text.contains("value=\"5s\""),
        "{page:?}"
    );
    let page = browser.post("/console/what-if", &typed(&[("ru_per_sec", "5"), ("replayed", "10m")])).await;
    assert!(page.text.contains("A second does not say"), "{page:?}");
    // What may be borrowed counts, as it is typed.
    let free = [("ru_per_sec", "5"), ("burstable", "unlimited")];
    let page = browser.post("/console/what-if", &typed(&free)).await;
    assert!(page.status == 200 && page.text.contains("without a limit nothing is throttled"), "{page:?}");

    for (fields, status, said) in [
        (&[("ru_per_sec", "<img>")][..], 200, "#field-ru_per_sec"),
        (&[("weight", "-1")], 200, "#field-weight"),
        (&[("quota", "5 per week")], 200, "month"),
        (&[("replayed", "<year>")], 400, "write 10m, 1h or 24h"),
        (&[("name", "none")], 404, "group none does not exist"),
        (&[("name", "<i>")], 400, "group"),
    ] {
        let page = browser.post("/console/what-if", &typed(fields)).await;
        assert!(page.status == status && page.text.contains(said), "{fields:?}: {page:?}");
        assert!(["<img>", "<year>", "<i>"].iter().all(|markup| !page.text.contains(markup)), "{page:?}");
        browser.get("/console/groups/web/edit").await;
    }
    assert_eq!(of("web").revision.to_string(), revision, "nothing was saved");
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_change_is_proposed_seen_and_decided_in_the_console() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let of = || lab.running.service().definitions().group("web").unwrap().group;
    let mut browser = Browser::at(&lab.running);
    let page = "/console/groups/web/proposal";
    let empty = browser.get(page).await;
    assert!(empty.status == 200 && empty.text.contains("Nothing is proposed for web"), "{empty:?}");
    let propose = async |browser: &mut Browser, field: &'static str, value: &'static str| {
        let revision = of().revision.to_string();
        browser.get("/console/groups/web/edit").await;
        let fields = [("name", "web"), ("expected_revision", &revision), (field, value), ("propose", "1")];
        browser.post("/console/groups/web/edit", &fields).await
    };
    for (field, value, said) in [
        ("weight", "5", "cannot be judged by a replay"),
        ("ru_per_sec", "0", "#field-ru_per_sec"),
        ("ru_per_sec", "1000", "names no field"),
    ] {
        let refused = propose(&mut browser, field, value).await;
        assert!(refused.status == 400 && refused.text.contains(said), "{field}: {refused:?}");
    }
    let proposed = propose(&mut browser, "ru_per_sec", "5").await;
    assert_eq!((proposed.status, proposed.header("location")), (303, Some(page)), "{proposed:?}");
    assert_eq!(of().ru_per_sec, "1000", "it is not in force");
    let seen = browser.get(page).await;
    assert!(
        seen.text.contains("nothing is recorded since") && seen.text.contains("<bdi>5</bdi>"),
        "{seen:?}"
    );
    assert!(browser.get("/console/groups/web").await.text.contains(&format!("href=\"{page}\"")));

    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("web", 1, 600)]).await;
    let seen = browser.get(page).await;
    assert!(
        seen.text.contains("600 RU by 600 operations") && seen.text.contains("Proposed</th>"),
        "{seen:?}"
    );
    // Another one took its place: what was seen is not what would be made.
    let id = seen.hidden("expected_id");
    assert_eq!(propose(&mut browser, "ru_per_sec", "7").await.status, 303);
    browser.get(page).await;
    let decide = [("expected_id", id.as_str()), ("decision", "apply")];
    let refused = browser.post(page, &decide).await;
    assert!(refused.status == 409 && refused.text.contains("look at it again"), "{refused:?}");
    let id = browser.get(page).await.hidden("expected_id");
    let wrong = browser.post(page, &[("expected_id", id.as_str()), ("decision", "<u>")]).await;
    assert!(wrong.status == 400 && !wrong.text.contains("<u>"), "{wrong:?}");
    browser.get(page).await;
    let applied = browser.post(page, &[("expected_id", id.as_str()), ("decision", "apply")]).await;
    assert_eq!(
        (applied.status, applied.header("location")),
        (303, Some("/console/groups/web")),
        "{applied:?}"
    );
    assert_eq!(of().ru_per_sec, "7");

    assert_eq!(propose(&mut browser, "burst", "9").await.status, 303);
    browser.get(page).await;
    let gone = browser.post(page, &[("expected_id", "0"), ("decision", "withdraw")]).await;
    assert_eq!(gone.status, 303, "{gone:?}");
    assert!(browser.get(page).await.text.contains("Nothing is proposed for web"));
    assert_eq!(of().burst, "", "what was withdrawn is not in force");
    lab.running.shutdown().await.unwrap();
}
