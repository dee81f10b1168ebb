//! The console over real sockets: who may open it, the login, forms and their conflicts, and live pages.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use form_urlencoded::Serializer;
use tempfile::TempDir;
use tidegate_controller::audit::Actor;
use tidegate_controller::config::{Access, Authentication, Config};
use tidegate_controller::identity::matrix::{self, Call, allows};
use tidegate_controller::{Controller, Running};
use tidegate_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

use super::certificates::channel_to;
use super::identity::{callers, guarded, rest, site};
use super::support::{Lab, PATIENCE, config, group, tell};

/// A browser, as far as a server sees one: it keeps a cookie, and the key of the last form.
#[derive(Clone, Default)]
pub(crate) struct Browser {
    address: Option<SocketAddr>,
    pub(crate) cookie: String,
    form_key: String,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    head: String,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The value of a field that a form has and does not show.
    pub(crate) fn hidden(&self, name: &str) -> String {
        let before = format!("type=\"hidden\" name=\"{name}\" value=\"");
        let (_, rest) = self.text.split_once(&before).unwrap_or_else(|| panic!("no {name}: {}", self.text));
        rest.split('"').next().unwrap().to_owned()
    }
}

impl Browser {
    pub(crate) fn at(running: &Running) -> Self {
        Self { address: Some(running.rest_addr), ..Self::default() }
    }

    async fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Page {
        let mut stream = TcpStream::connect(self.address.unwrap()).await.unwrap();
        let cookie =
            if self.cookie.is_empty() { String::new() } else { format!("cookie: {}\r\n", self.cookie) };
        let kind = if body.is_empty() { "" } else { "content-type: application/x-www-form-urlencoded\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{cookie}{kind}{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, text) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let page = Page { status, head: head.to_owned(), text: text.to_owned() };
        if let Some(cookie) = page.header("set-cookie") {
            self.cookie = cookie.split(';').next().unwrap().to_owned();
        }
        if let Some((_, rest)) = page.text.split_once("name=\"form_key\" value=\"") {
            self.form_key = rest.split('"').next().unwrap().to_owned();
        }
        page
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        self.send("GET", path, "", "").await
    }

    /// Sends a form of the last page.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        let mut body = Serializer::new(String::new());
        body.extend_pairs(fields).append_pair("form_key", &self.form_key);
        self.send("POST", path, "sec-fetch-site: same-origin\r\n", &body.finish()).await
    }

    pub(crate) async fn log_in(&mut self, token: &str) -> Page {
        let body = Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("next", "/console/groups")
            .finish();
        self.send("POST", "/console/login", "origin: http://localhost\r\n", &body).await
    }
}

pub(crate) async fn by_tokens() -> (TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    let access = Access { authentication: Some(Authentication::Required), ..Access::default() };
    let running = Controller::start(Config { access, ..config(&folder) }).await.unwrap();
    (folder, running)
}

pub(crate) fn token(running: &Running, role: &str, tenant: &str) -> (u64, String) {
    let wish = v1::CreateTokenRequest {
        name: format!("of-{role}"),
        role: role.to_owned(),
        tenant: tenant.to_owned(),
        ..v1::CreateTokenRequest::default()
    };
    let (token, secret) = running.service().tokens().create(&Actor::new(None, "test"), &wish).unwrap();
    (token.message().id, secret.reveal().to_owned())
}

/// A path of a route whose variables are filled in.
fn path(route: &str) -> String {
    let path = route.replace("{name}", "default").replace("{group}", "default");
    path.replace("{fingerprint}", "00000000000000aa").replace("{file}", "none.css")
}

#[tokio::test]
async fn every_route_of_the_console_is_for_the_roles_of_its_row() {
    let (site, mut wrong) = (site(), Vec::new());
    let running = guarded(&site).await;
    for (certificate, role) in callers() {
        let channel = channel_to(running.rest_addr.port(), site.shown(certificate)).await.unwrap();
        // A live page has no end; who may open it is tested by itself.
        for (method, route, _) in
            matrix::CONSOLE.into_iter().filter(|(_, route, _)| *route != "/console/live")
        {
            let (status, body) = rest(&channel, method, &path(route)).await;
            let is_asked = status == 303 && !allows(role, Call::Rest(method, route));
            let is_refused = is_asked || [401, 403].contains(&status);
            if is_refused == allows(role, Call::Rest(method, route))
                || [404, 405].contains(&status) && !route.contains('{')
            {
                wrong.push(format!("{certificate:?} {method} {route}: {status}"));
            }
            if is_refused && role.is_some() {
                assert_eq!(status, 403, "{certificate:?} {method} {route}");
                assert!(body.contains("it needs the role "), "{body}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_login_opens_the_console_alone_and_ends_with_the_token() {
    let (_folder, running) = by_tokens().await;
    let mut browser = Browser::at(&running);
    let page = browser.get("/console/groups?q=a%26b").await;
    assert_eq!(
        (page.status, page.header("location")),
        (303, Some("/console/login?next=%2Fconsole%2Fgroups%3Fq%3Da%2526b"))
    );
    let page = browser.get("/console/login?next=%2Fconsole%2Fgroups").await;
    assert!(page.status == 200 && page.text.contains("value=\"/console/groups\""), "{page:?}");
    let page = browser.log_in("tdg_nonsense").await;
    assert!(
        page.status == 401 && !page.text.contains("nonsense") && page.header("set-cookie").is_none(),
        "{page:?}"
    );
    let (id, secret) = token(&running, "operator", "");
    let page = browser.log_in(&format!(" {secret}\n")).await;
    assert_eq!((page.status, page.header("location")), (303, Some("/console/groups")));
    let cookie = page.header("set-cookie").unwrap().to_owned();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Path=/console"),
        "{cookie}"
    );
    assert!(!cookie.contains(&secret));
    let page = browser.get("/console/groups").await;
    assert!(page.status == 200 && page.text.contains("of-operator (operator)"), "{page:?}");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        // What was looked for stands in addresses.
        ("referrer-policy", "same-origin"),
    ] {
        assert_eq!(page.header(name), Some(value));
    }
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    // A proxy may add credentials of its own; they are of nobody here.
    let page = browser.send("GET", "/console/groups", "authorization: Basic YTpi\r\n", "").await;
    assert!(page.status == 200 && page.text.contains("of-operator (operator)"), "{page:?}");
    // The cookie is of the console: the API asks for the token itself.
    assert_eq!(browser.get("/v1/groups").await.status, 401);
    running.service().tokens().revoke(&Actor::new(None, "test"), id, false).unwrap();
    assert_eq!(browser.get("/console/groups").await.status, 303);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn who_logs_out_has_no_session_and_forms_without_their_key_change_nothing() {
    let (_folder, running) = by_tokens().await;
    let (_, secret) = token(&running, "operator", "");
    let mut browser = Browser::at(&running);
    browser.log_in(&secret).await;
    browser.get("/console/groups/new").await;
    let mut other = browser.clone();
    for path in ["/console/groups/new", "/console/bind", "/console/logout", "/console/groups/default/delete"]
    {
        let fields = [
            ("name", "a"),
            ("ru_per_sec", "5"),
            ("expected_revision", "0"),
            ("tenant", "t"),
            ("group", "default"),
        ];
        // The refusal itself has the key.
        other.form_key = "0".repeat(64);
        let page = other.post(path, &fields).await;
        assert!(page.status == 409 && page.text.contains("from another site"), "{path}: {page:?}");
    }
    let body = format!("form_key={}&name=a&ru_per_sec=5&expected_revision=0", browser.form_key);
    for from in ["sec-fetch-site: cross-site\r\n", "origin: https://evil.example\r\n", "origin: null\r\n"] {
        assert_eq!(other.send("POST", "/console/groups/new", from, &body).await.status, 403, "{from}");
    }
    assert_eq!(running.service().status().groups, 1, "the default group alone");
    let before = browser.clone();
    let mut elsewhere = Browser::at(&running);
    elsewhere.log_in(&secret).await;
    let page = browser.post("/console/logout", &[]).await;
    assert_eq!((page.status, page.header("location")), (303, Some("/console/login")));
    let cookie = "tidegate-console=; Path=/console; HttpOnly; SameSite=Strict; Max-Age=0";
    assert_eq!(page.header("set-cookie"), Some(cookie), "the browser forgets it");
    assert_eq!(before.clone().get("/console").await.status, 303, "the old cookie opens nothing");
    assert_eq!(elsewhere.get("/console/groups").await.status, 200, "another browser's goes on");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_group_is_made_changed_bound_and_deleted_by_forms() {
    let lab = Lab::start().await;
    let mut browser = Browser::at(&lab.running);
    let page = browser.get("/console/groups/new?parent=default").await;
    assert!(page.text.contains("value=\"default\""), "{page:?}");
    let new = |rate: &'static str| {
        [
            ("name", "Shop"),
            ("ru_per_sec", rate),
            ("comment", "<b>&"),
            ("ttl_us", "8s"),
            ("expected_revision", "0"),
        ]
    };
    let page = browser.post("/console/check", &new("many")).await;
    assert!(
        page.status == 200 && page.text.contains("#field-ru_per_sec") && page.text.contains("many"),
        "{page:?}"
    );
    let page = browser.post("/console/check", &new("500")).await;
    assert!(
        page.text.contains("tidegate group create Shop --rate 500") && page.text.contains("--ttl 8s"),
        "{page:?}"
    );
    let page = browser.post("/console/groups/new", &new("many")).await;
    assert!(
        page.status == 400 && page.text.contains("value=\"many\"") && page.text.contains("&lt;b&gt;&amp;"),
        "{page:?}"
    );
    let page = browser.post("/console/groups/new", &new("500")).await;
    assert_eq!((page.status, page.header("location")), (303, Some("/console/groups/shop")), "{page:?}");
    let page = browser.post("/console/groups/new", &new("500")).await;
    assert!(page.status == 400 && page.text.contains("exists already"), "{page:?}");
    let page = browser.get("/console/groups/shop").await;
    assert!(
        page.text.contains("&lt;b&gt;&amp;") && page.text.contains("<code>ttl_us</code></th><td><bdi>8s"),
        "{page:?}"
    );

    let revision = lab.running.service().definitions().group("shop").unwrap().group.revision.to_string();
    let alter = |rate: &'static str| {
        vec![("ru_per_sec", rate), ("expected_revision", revision.as_str()), ("name", "shop")]
    };
    let page = browser.post("/console/check", &alter("300")).await;
    assert!(
        page.text.contains(&format!("tidegate group alter shop --rate 300 --expect-revision {revision}")),
        "{page:?}"
    );
    assert!(page.text.contains("ALTER RESOURCE GROUP `shop` RU_PER_SEC = 300;"), "{page:?}");
    assert_eq!(browser.post("/console/groups/shop/edit", &alter("300")).await.status, 303);
    let of = |name: &str| lab.running.service().definitions().group(name).unwrap().group;
    assert_eq!(
        (of("shop").ru_per_sec.as_str(), of("shop").ttl_us),
        ("300", 8_000_000),
        "what was not in the form stays"
    );
    // Somebody else was faster.
    let page = browser.post("/console/groups/shop/edit", &alter("200")).await;
    assert!(
        page.status == 409 && page.text.contains("nothing was saved") && page.text.contains("value=\"200\""),
        "{page:?}"
    );
    let newer = format!("name=\"expected_revision\" value=\"{}\"", of("shop").revision);
    assert!(page.text.contains(&newer) && of("shop").ru_per_sec == "300", "{page:?}");

    let bound = [("group", "shop"), ("tenant", " acme "), ("user", " ")];
    assert_eq!(browser.post("/console/bind", &bound).await.status, 303);
    assert!(browser.get("/console/groups/shop").await.text.contains("<bdi>acme</bdi></td><td>any</td>"));
    assert_eq!(lab.running.service().definitions().resolve("acme", "").unwrap().group.as_str(), "shop");
    browser.get("/console/groups/shop/delete").await;
    let revision = of("shop").revision.to_string();
    let page = browser.post("/console/groups/shop/delete", &[("expected_revision", &revision)]).await;
    assert!(page.status == 409 && page.text.contains("is used by"), "{page:?}");
    let forced = [("expected_revision", revision.as_str()), ("force_to", "default")];
    assert_eq!(
        browser.post("/console/groups/shop/delete", &forced).await.header("location"),
        Some("/console/groups")
    );
    assert_eq!(browser.get("/console/groups/shop").await.status, 404);
    let page = browser.get("/console/audit").await;
    assert!(page.text.contains("delete group") && page.text.contains("console"), "{page:?}");
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_shown_of_statements_is_text_and_may_be_watched() {
    let lab = Lab::start().await;
    lab.group("shop", "100").await;
    let template = "select '<script>alert(1)</script>' from t";
    let row = v1::StatementRow {
        group: "shop".to_owned(),
        fingerprint: "00000000000000aa".to_owned(),
        kind: "select".to_owned(),
        template: template.to_owned(),
        calls: 2,
        cpu_micro_ru: 3_000_000,
        first_unix_ms: 1,
        last_unix_ms: 2,
        ..v1::StatementRow::default()
    };
    let report = v1::ReportStatementsRequest {
        gateway: "gw".into(),
        incarnation: 1,
        seq: 1,
        rows: vec![row],
        evicted: 0,
    };
    lab.statements().await.report_statements(report).await.unwrap();
    let mut browser = Browser::at(&lab.running);
    for path in [
        "/console",
        "/console/statements?q=SCRIPT",
        "/console/statements?last=5m",
        "/console/statements/shop/00000000000000aa",
        "/console/statements/shop/00000000000000aa?last=24h",
        "/console/groups/shop",
    ] {
        let page = browser.get(path).await;
        assert!(page.status == 200 && page.text.contains("&lt;script&gt;alert(1)"), "{path}: {page:?}");
        assert!(!page.text.contains("<script>alert"), "{path}");
    }
    assert!(browser.get("/console/statements?q=other").await.text.contains("No statement fits"));
    let page = browser.get("/console/statements?as=csv").await;
    assert!(
        page.header("content-type").unwrap().starts_with("text/csv") && page.text.contains(template),
        "{page:?}"
    );
    // Of a time that there is not all is shown.
    let page = browser.get("/console/statements/shop/00000000000000aa?last=%3Cb%3E").await;
    assert!(page.text.contains("aria-current=\"true\">All"), "{page:?}");
    for missing in [
        "/console/statements/shop/00000000000000ab",
        "/console/statements/shop/xyz",
        "/console/statements/none/1",
    ] {
        assert_eq!(browser.get(missing).await.status, 404, "{missing}");
    }
    browser.get("/console/statements/shop/00000000000000aa").await;
    let watch = [
        ("group", "shop"),
        ("digest", "00000000000000aa"),
        ("text", template),
        ("action", "kill"),
        ("hours", "1"),
    ];
    assert_eq!(browser.post("/console/watches", &watch).await.status, 303);
    let watches = lab.running.service().statements().watches("shop").unwrap();
    assert!(watches[0].action == "kill" && watches[0].end_unix_ms > watches[0].start_unix_ms, "{watches:?}");
    let v1::Watch { group, r#match, digest, text, .. } = &watches[0];
    assert_eq!(
        [group, r#match, digest, text].map(String::as_str),
        ["shop", "similar", "00000000000000aa", template]
    );
    let watch_for = |hours: &'static str| [&watch[..4], &[("hours", hours)]].concat();
    for long in ["8761", "18446744073709551615"] {
        let page = browser.post("/console/watches", &watch_for(long)).await;
        let said = format!("hours: {long} is out of range: up to 8760, or 0 for ever");
        assert!(page.status == 400 && page.text.contains(&said), "{page:?}");
    }
    let lasts = || {
        let watches = lab.running.service().statements().watches("shop").unwrap();
        watches[0].end_unix_ms.saturating_sub(watches[0].start_unix_ms)
    };
    assert_eq!(lasts(), 3_600_000, "what is refused changes nothing");
    for (hours, lasts_ms) in [("0", 0), ("8760", 365 * 24 * 3_600_000)] {
        assert_eq!(browser.post("/console/watches", &watch_for(hours)).await.status, 303);
        assert_eq!(lasts(), lasts_ms, "{hours}");
    }
    let id = watches[0].id.to_string();
    assert_eq!(browser.post("/console/unwatch", &[("id", &id)]).await.status, 303);
    assert!(lab.running.service().statements().watches("shop").unwrap().is_empty());
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_tenant_sees_the_console_of_its_own_groups() {
    let (_folder, running) = by_tokens().await;
    let (definitions, actor) = (running.service().definitions(), Actor::new(None, "test"));
    for name in ["own", "of-others"] {
        definitions.create_group(&actor, &group(name, "100"), false).unwrap();
    }
    definitions.bind(&actor, "acme", "", "own").unwrap();
    let (_, secret) = token(&running, "tenant", "acme");
    let mut browser = Browser::at(&running);
    browser.log_in(&secret).await;
    // What another group uses is in the chart of those who see it, and of nobody else.
    let session = running.service().leasing().hello("node", 1, "test").unwrap();
    tell(running.service(), &session, 1, 1, 500);
    let (_, all) = token(&running, "viewer", "");
    let mut viewer = Browser::at(&running);
    viewer.log_in(&all).await;
    let seen = async {
        let mut again = interval(Duration::from_millis(50));
        while !viewer.get("/console").await.text.contains("<dd>100 RU/s") {
            again.tick().await;
        }
    };
    timeout(PATIENCE, seen).await.unwrap();
    assert!(browser.get("/console").await.text.contains("<dt>Used now</dt><dd>0 RU/s"));
    assert!(!browser.get("/console?as=csv").await.text.contains("default"));
    for path in [
        "/console",
        "/console/groups",
        "/console/groups?as=csv",
        "/console/groups/own",
        "/console/statements",
    ] {
        let page = browser.get(path).await;
        assert!(page.status == 200 && !page.text.contains("of-others"), "{path}: {page:?}");
    }
    assert!(browser.get("/console/groups").await.text.contains("group-own"));
    // Who changed a definition is nothing for a tenant.
    assert!(!browser.get("/console/groups/own").await.text.contains("History of the definition"));
    assert!(viewer.get("/console/groups/own").await.text.contains("History of the definition"));
    assert_eq!(browser.get("/console/groups/of-others").await.status, 404);
    assert_eq!(browser.get("/console/groups/of-others?range=24h").await.status, 404);
    for path in [
        "/console/audit",
        "/console/nodes",
        "/console/prices",
        "/console/groups/own/edit",
        "/console/audit?group=own",
    ] {
        assert_eq!(browser.get(path).await.status, 403, "{path}");
    }
    for view in ["%2Fconsole%2Fnodes", "%2Fconsole%2Faudit"] {
        let status = browser.get(&format!("/console/live?view={view}")).await.status;
        assert!([403, 404].contains(&status), "{view}: {status}");
    }
    running.shutdown().await.unwrap();
}

/// Reads a live page until it says this; returns all of it.
pub(crate) async fn until(stream: &mut TcpStream, said: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.contains(said) {
            let mut part = vec![0; 64 * 1024];
            let count = stream.read(&mut part).await.unwrap();
            assert!(count > 0, "it ended without {said:?}: {text}");
            text.push_str(&String::from_utf8_lossy(&part[..count]));
        }
    };
    timeout(PATIENCE, read).await.unwrap();
    text
}

/// A live page of this browser, and what it has said until the end of its first part.
pub(crate) async fn live_page(running: &Running, browser: &Browser, view: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(running.rest_addr).await.unwrap();
    let head = format!(
        "GET /console/live?view={view} HTTP/1.1\r\nhost: localhost\r\ncookie: {}\r\n\r\n",
        browser.cookie
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let head = until(&mut stream, "event: part").await;
    let part = until(&mut stream, "\n\n").await;
    (stream, head + &part)
}

#[tokio::test]
async fn a_live_page_follows_the_present_and_ends_with_the_token() {
    let (_folder, running) = by_tokens().await;
    let (id, secret) = token(&running, "viewer", "");
    let mut browser = Browser::at(&running);
    browser.log_in(&secret).await;
    let (mut stream, text) = live_page(&running, &browser, "%2Fconsole%2Fgroups").await;
    assert!(text.contains("text/event-stream") && text.contains("group-default"), "{text}");
    running
        .service()
        .definitions()
        .create_group(&Actor::new(None, "test"), &group("later", "5"), false)
        .unwrap();
    until(&mut stream, "group-later").await;
    running.service().tokens().revoke(&Actor::new(None, "test"), id, false).unwrap();
    until(&mut stream, "event: gone").await;
    // Who is not logged in learns it in the same words.
    let page = Browser::at(&running).get("/console/live?view=%2Fconsole").await;
    assert!(page.status == 200 && page.text.contains("event: gone"), "{page:?}");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn live_pages_are_bounded_and_do_not_hold_up_a_stop() {
    let lab = Lab::start().await;
    let mut open = Vec::new();
    let mut refused = 0;
    for at in 0..210 {
        let mut stream = TcpStream::connect(lab.running.rest_addr).await.unwrap();
        let view = if at % 2 == 0 { "%2Fconsole" } else { "%2Fconsole%2Fnodes" };
        let head = format!("GET /console/live?view={view} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let said = until(&mut stream, "\r\n\r\n").await;
        refused += usize::from(said.starts_with("HTTP/1.1 503"));
        open.push(stream);
    }
    assert_eq!(refused, 10);
    timeout(PATIENCE, lab.running.shutdown()).await.unwrap().unwrap();
}

#[tokio::test]
async fn odd_requests_get_an_answer_and_nothing_breaks() {
    let lab = Lab::start().await;
    let mut browser = Browser::at(&lab.running);
    let long = "x".repeat(9_000);
    let paths = [
        "/console/",
        "/console/groups/",
        "/console/groups/%00",
        "/console/groups/%ff",
        "/console/groups/..%2f..",
        "/console/groups/a?range=%00",
        "/console/groups?skip=99999999999999999999&sort=nonsense&q=%22%3E",
        "/console?hide=,,,&hide=%22",
        "/console/prices?cpu_ns=-1&read_bytes=99999999999999999999999",
        "/console/audit?before=18446744073709551615",
        "/console/audit?before=x",
        "/console/nodes?q=%F0%9F%92%A9",
        "/console/live",
        "/console/live?view=http://evil.example",
        "/console/assets/..%2f..%2fCargo.toml",
        "/console/statements?sort=drop&group=%27",
    ];
    for path in paths.map(str::to_owned).into_iter().chain([format!("/console/groups?q={long}")]) {
        let page = browser.get(&path).await;
        assert!(page.status < 500 && !page.text.contains("evil.example\""), "{path}: {page:?}");
    }
    browser.get("/console/groups/new").await;
    let names: Vec<String> = (0..2_000).map(|at| format!("f{at}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let mut statuses = BTreeSet::new();
    for fields in [
        many,
        vec![("name", long.as_str()), ("expected_revision", "0")],
        vec![("expected_revision", "-1")],
        vec![("name", "\u{202e}\0")],
    ] {
        statuses.insert(browser.post("/console/groups/new", &fields).await.status);
    }
    assert!(statuses.iter().all(|status| (400..500).contains(status)), "{statuses:?}");
    let body = "a".repeat(80_000);
    assert_eq!(browser.send("POST", "/console/check", "", &body).await.status, 413);
    assert_eq!(browser.get("/console").await.status, 200);
    lab.running.shutdown().await.unwrap();
}
