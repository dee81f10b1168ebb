//! Pages of the console: where something ends, such as a session or a list of changes, and what any page needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::Controller;
use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::config::{Access, Authentication, Config};
use tidegate_controller::store::Store;
use tidegate_proto::v1;
use tokio::time::timeout;

use crate::certificates::channel_to;
use crate::console::{Browser, by_tokens, live_page, token, until};
use crate::identity::{guarded, site};
use crate::support::{Lab, MemoryStore, PATIENCE, config, group};

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
    let (mut open, _) = live_page(&running, &browser, "%2Fconsole").await;
    us.fetch_add(20 * MINUTE_US, Ordering::Relaxed);
    // Nobody else asks, so that nothing but the page itself finds the session over.
    until(&mut open, "event: gone").await;
    assert_eq!(browser.get("/console").await.status, 303);
    // The same where somebody uses another page until the session is as old as one gets.
    browser.log_in(&secret).await;
    for _ in 0..14 {
        us.fetch_add(50 * MINUTE_US, Ordering::Relaxed);
        assert_eq!(browser.get("/console").await.status, 200);
    }
    let (mut open, _) = live_page(&running, &browser, "%2Fconsole").await;
    us.fetch_add(20 * MINUTE_US, Ordering::Relaxed);
    until(&mut open, "event: gone").await;
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
    assert_eq!(page.header("content-type"), Some("text/csv; charset=utf-8"));
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

#[tokio::test]
async fn usage_that_is_typed_is_priced_and_what_is_no_number_is_shown_again() {
    let lab = Lab::start().await;
    let mut browser = Browser::at(&lab.running);
    // A third of a millisecond costs a third of a thousandth: 3 ms of CPU are one RU.
    let page = browser.get("/console/prices?cpu_ns=%203000000%20&read_bytes=&colour=1").await;
    assert!(page.status == 200 && page.text.contains("<b>1 RU</b>"), "{page:?}");
    assert!(page.text.contains("value=\"3000000\"") && !page.text.contains("aria-invalid"), "{page:?}");
    let page = browser.get("/console/prices?cpu_ns=6000000&write_bytes=1e3").await;
    assert!(
        page.text.contains("<b>2 RU</b>") && page.text.contains("value=\"1e3\" aria-invalid"),
        "{page:?}"
    );
    lab.running.shutdown().await.unwrap();
}

/// Their names change with their content, so that browsers may keep them for ever.
#[tokio::test]
async fn what_a_page_needs_is_there_for_all_who_log_in() {
    let (_folder, running) = by_tokens().await;
    let mut browser = Browser::at(&running);
    let page = browser.get("/console/login").await;
    let named: Vec<&str> = page.text.split('"').filter(|part| part.starts_with("/console/assets/")).collect();
    assert!(named.len() >= 2, "{page:?}");
    for path in named {
        let asset = browser.get(path).await;
        assert!(asset.status == 200 && !asset.text.is_empty(), "{path}: {asset:?}");
        let media = match path.rsplit('.').next().unwrap() {
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(asset.header("content-type"), Some(media));
        assert_eq!(asset.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(asset.header("x-content-type-options"), Some("nosniff"));
    }
    let older = browser.get("/console/assets/console-0000000000000000.js").await;
    assert!(older.status == 404 && older.header("cache-control") == Some("no-store"), "{older:?}");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn where_nobody_is_asked_who_it_is_a_login_leads_on_and_opens_no_session() {
    let lab = Lab::start().await;
    let mut browser = Browser::at(&lab.running);
    for (next, to) in [
        ("/console/groups?q=a", "/console/groups?q=a"),
        ("https://evil.example/console", "/console"),
        ("//evil.example", "/console"),
        ("", "/console"),
    ] {
        let page = browser.post("/console/login", &[("token", "tdg_1.x"), ("next", next)]).await;
        assert_eq!((page.status, page.header("location")), (303, Some(to)), "{next}");
        assert_eq!(page.header("set-cookie"), None);
    }
    lab.running.shutdown().await.unwrap();
}

/// A cookie without it would go in plain text to whoever answers on another port of the host.
#[tokio::test]
async fn the_cookie_of_a_login_under_tls_is_never_sent_without() {
    let site = site();
    let running = guarded(&site).await;
    let (_, secret) = token(&running, "viewer", "");
    let channel = channel_to(running.rest_addr.port(), site.shown(None)).await.unwrap();
    let form = form_urlencoded::Serializer::new(String::new()).append_pair("token", &secret).finish();
    let request = http::Request::post("https://localhost/console/login")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(tonic::body::Body::new(http_body_util::Full::new(form.into())))
        .unwrap();
    let answer = tower::ServiceExt::oneshot(channel, request);
    let answer = timeout(PATIENCE, answer).await.unwrap().unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(answer.status() == 303 && cookie.starts_with("tidegate-console="), "{cookie}");
    for part in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/console"] {
        assert!(cookie.split("; ").any(|of| of == part), "{part}: {cookie}");
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_group_that_cannot_go_stays_with_the_form_and_one_that_is_gone_is_not_here() {
    let lab = Lab::start().await;
    lab.group("web", "1").await;
    let revision = lab.running.service().definitions().group("web").unwrap().group.revision.to_string();
    let mut browser = Browser::at(&lab.running);
    let path = "/console/groups/web/delete";
    browser.get(path).await;
    let to = |to| [("expected_revision", revision.as_str()), ("force_to", to)];
    let refused = browser.post(path, &to(" nowhere ")).await;
    assert!(refused.status == 409 && refused.text.contains("value=\"nowhere\""), "{refused:?}");
    assert!(lab.running.service().definitions().group("web").is_ok());
    assert_eq!(browser.post(path, &to("")).await.header("location"), Some("/console/groups"));
    for target in ["", "default"] {
        let gone = browser.post(path, &to(target)).await;
        assert!(gone.status == 404 && gone.text.contains("web"), "{gone:?}");
    }
    lab.running.shutdown().await.unwrap();
}

/// A controller to which three statements were reported.
async fn with_statements() -> Lab {
    let lab = Lab::start().await;
    let row = |fingerprint: &str, calls, ru: i64, errors| v1::StatementRow {
        group: "default".to_owned(),
        fingerprint: format!("00000000000000{fingerprint}"),
        kind: "select".to_owned(),
        template: format!("select {fingerprint}"),
        calls,
        errors,
        cpu_micro_ru: ru * 1_000_000,
        max_micro_ru: 1_000_000,
        first_unix_ms: 1,
        last_unix_ms: 2,
        ..v1::StatementRow::default()
    };
    let rows = vec![row("aa", 9, 9, 0), row("bb", 20, 5, 1), row("cc", 1, 3, 2)];
    let report =
        v1::ReportStatementsRequest { gateway: "gw".into(), incarnation: 1, seq: 1, rows, evicted: 0 };
    lab.statements().await.report_statements(report).await.unwrap();
    lab
}

#[tokio::test]
async fn statements_stand_in_the_order_that_was_chosen() {
    let lab = with_statements().await;
    let mut browser = Browser::at(&lab.running);
    for (order, first) in
        [("", "aa"), ("ru", "aa"), ("calls", "bb"), ("errors", "cc"), ("average_ru", "cc"), ("drop", "aa")]
    {
        let page = browser.get(&format!("/console/statements?sort={order}")).await;
        let at = |fingerprint: &str| page.text.find(&format!("select {fingerprint}")).unwrap();
        let others = ["aa", "bb", "cc"].into_iter().filter(|other| *other != first);
        assert!(others.map(at).all(|other| at(first) < other), "{order}: {page:?}");
    }
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_file_of_statements_has_all_that_are_chosen_whatever_the_page() {
    let lab = with_statements().await;
    lab.group("other", "1").await;
    let mut browser = Browser::at(&lab.running);
    for (choice, listed) in [
        ("", &["aa", "bb", "cc"][..]),
        ("&skip=2", &["aa", "bb", "cc"]),
        ("&sort=calls", &["bb", "aa", "cc"]),
        ("&q=BB", &["bb"]),
        ("&q=none", &[]),
        ("&group=default", &["aa", "bb", "cc"]),
        ("&group=+default+&q=cc", &["cc"]),
        ("&group=other", &[]),
    ] {
        let page = browser.get(&format!("/console/statements?as=csv{choice}")).await;
        let rows = page.text.lines().skip(1).map(|row| row.split(',').nth(3).unwrap());
        let templates: Vec<String> = listed.iter().map(|of| format!("select {of}")).collect();
        assert_eq!(rows.collect::<Vec<_>>(), templates, "{choice}: {page:?}");
    }
    // The list itself begins behind what was shown.
    let page = browser.get("/console/statements?skip=2").await;
    assert!(page.text.contains("select cc") && !page.text.contains("select aa"), "{page:?}");
    let page = browser.get("/console/statements?skip=3").await;
    assert!(page.text.contains("of 3") && !page.text.contains("No gateway has reported"), "{page:?}");
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_list_of_one_groups_statements_has_the_watches_and_verdicts_of_that_group() {
    let lab = with_statements().await;
    lab.group("other", "1").await;
    let statements = lab.running.service().statements();
    let watch = v1::Watch {
        group: "default".into(),
        r#match: "similar".into(),
        digest: "00000000000000bb".into(),
        text: "watched".into(),
        action: "kill".into(),
        ..v1::Watch::default()
    };
    statements.add_watch(&Actor::new(None, "test"), &watch).unwrap();
    let conviction = v1::ConvictRequest {
        gateway: "gw".into(),
        group: "default".into(),
        r#match: "watch".into(),
        action: "kill".into(),
        template: "convicted".into(),
        fingerprint: "00000000000000bb".into(),
        ..v1::ConvictRequest::default()
    };
    statements.convict(&conviction).unwrap();
    let mut browser = Browser::at(&lab.running);
    for (group, is_listed) in [("", true), ("default", true), ("other", false)] {
        let page = browser.get(&format!("/console/statements?group={group}")).await;
        for part in ["<bdi>watched</bdi>", "<bdi>convicted</bdi>"] {
            assert_eq!(page.text.contains(part), is_listed, "{group}, {part}: {page:?}");
        }
    }
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_page_of_a_statement_has_its_watch_and_its_verdicts_and_none_of_others() {
    let lab = with_statements().await;
    let watch = v1::Watch {
        group: "default".into(),
        r#match: "similar".into(),
        digest: "00000000000000bb".into(),
        action: "kill".into(),
        ..v1::Watch::default()
    };
    lab.running.service().statements().add_watch(&Actor::new(None, "test"), &watch).unwrap();
    let conviction = v1::ConvictRequest {
        gateway: "gw".into(),
        group: "default".into(),
        r#match: "watch".into(),
        action: "kill".into(),
        fingerprint: "00000000000000bb".into(),
        ..v1::ConvictRequest::default()
    };
    lab.running.service().statements().convict(&conviction).unwrap();
    // However many came behind it.
    for newer in 0x1000..0x1040 {
        let newer = v1::ConvictRequest { fingerprint: format!("{newer:016x}"), ..conviction.clone() };
        lab.running.service().statements().convict(&newer).unwrap();
    }
    let mut browser = Browser::at(&lab.running);
    for (statement, is_watched) in [("aa", false), ("bb", true)] {
        let page = browser.get(&format!("/console/statements/default/00000000000000{statement}")).await;
        for (said, is_said) in [
            ("On the watch list as <code>similar</code> until it is removed.", is_watched),
            ("It never broke a rule.", !is_watched),
            ("Watch it", !is_watched),
        ] {
            assert_eq!(page.text.contains(said), is_said, "{statement}, {said}: {page:?}");
        }
    }
    lab.running.shutdown().await.unwrap();
}
