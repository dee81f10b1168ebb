//! What the form of a group shows of its history before a change is saved.

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
