//! Live pages of the console that end, or are not read, while something else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use tidegate_controller::clock::Clock;
use tidegate_controller::config::{Access, Authentication, Config};
use tidegate_controller::limits::READ_WITHIN;
use tidegate_controller::store::{Store, StoreError, Table, Visit};
use tidegate_controller::{Controller, inside};
use tidegate_proto::v1;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt as _;
use tower::ServiceExt as _;

use crate::console::{Browser, by_tokens, live_page, token, until};
use crate::support::{MemoryStore, actor, config, group, pass_on, started};

/// The console over this store and by this clock, and what stops it.
fn console(store: &Arc<impl Store + 'static>, now: &Arc<AtomicU64>) -> (Router, watch::Sender<bool>) {
    let (stop, stopped) = watch::channel(false);
    (inside::console(Arc::new(started(store, now)), stopped), stop)
}

async fn live(console: &Router, view: &str) -> Response {
    let request = Request::get(format!("/console/live?view={view}")).body(Body::empty()).unwrap();
    console.clone().oneshot(request).await.unwrap()
}

/// A browser on a screen that nobody looks at any more: who logged out in another tab shows it nothing.
#[tokio::test]
async fn a_live_page_ends_with_the_session_of_a_login() {
    let (_folder, running) = by_tokens().await;
    let (_, secret) = token(&running, "viewer", "");
    let mut browser = Browser::at(&running);
    browser.log_in(&secret).await;
    let (mut stream, _) = live_page(&running, &browser, "%2Fconsole").await;
    browser.get("/console").await;
    assert_eq!(browser.post("/console/logout", &[]).await.status, 303);
    until(&mut stream, "event: gone").await;
    running.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn live_pages_that_are_not_read_give_their_places_back() {
    let (console, _stop) = console(&Arc::new(MemoryStore::default()), &Arc::default());
    let mut unread = Vec::new();
    for _ in 0..200 {
        let page = live(&console, "/console").await;
        assert_eq!(page.status(), 200);
        unread.push(page);
    }
    assert_eq!(live(&console, "/console").await.status(), 503);
    sleep(Duration::from_micros(READ_WITHIN.0) + Duration::from_secs(5)).await;
    assert_eq!(live(&console, "/console").await.status(), 200);
    drop(unread);
}

/// A screen on a wall asks for the next stream, and is judged once more; one that is told that it is gone does not.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_as_long_as_one_gets_ends_without_a_word_and_so_does_one_at_a_stop() {
    let (console, stop) = console(&Arc::new(MemoryStore::default()), &Arc::default());
    let told = async |page: Response| {
        let said = axum::body::to_bytes(page.into_body(), 1 << 20).await.unwrap();
        String::from_utf8(said.to_vec()).unwrap()
    };
    let begun = Instant::now();
    let text = told(live(&console, "/console").await).await;
    assert!((3_600..3_700).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(text.starts_with("event: part") && !text.contains("gone"), "{text}");
    let page = live(&console, "/console").await;
    stop.send_replace(true);
    assert!(!told(page).await.contains("gone"));
}

/// A part is made once in a second for all who see the same, and for nobody else.
#[tokio::test]
async fn what_is_made_for_one_viewer_is_not_shown_to_those_who_see_other_groups() {
    let folder = tempfile::tempdir().unwrap();
    let access = Access { authentication: Some(Authentication::Required), ..Access::default() };
    let (us, store) = (Arc::new(AtomicU64::new(0)), Arc::new(MemoryStore::default()));
    // Its clock stands still: all of them look in the same second.
    let clock = Clock::driven(Arc::clone(&us));
    let running = Controller::start_at(Config { access, ..config(&folder) }, store, clock).await.unwrap();
    let (definitions, actor) = (running.service().definitions(), actor());
    let groups = ["group-default", "group-of-acme", "group-of-beta"];
    for tenant in ["acme", "beta"] {
        let name = format!("of-{tenant}");
        definitions.create_group(&actor, &group(&name, "5"), false).unwrap();
        definitions.bind(&actor, tenant, "", &name).unwrap();
    }
    let mut browsers = Vec::new();
    for (role, tenant, seen) in [
        ("viewer", "", [true; 3]),
        ("tenant", "acme", [false, true, false]),
        ("tenant", "beta", [false, false, true]),
    ] {
        let name = format!("{role}-{tenant}");
        let wish =
            v1::CreateTokenRequest { name, role: role.into(), tenant: tenant.into(), ..Default::default() };
        let (_, secret) = running.service().tokens().create(&actor, &wish).unwrap();
        let mut browser = Browser::at(&running);
        browser.log_in(secret.reveal()).await;
        browsers.push((browser, seen));
    }
    for turn in 0..3 {
        us.fetch_add(1_000_000, Ordering::SeqCst);
        browsers.rotate_left(1);
        for (browser, seen) in &browsers {
            let (_, part) = live_page(&running, browser, "%2Fconsole%2Fgroups").await;
            let shown = groups.map(|group| part.contains(&format!("id=\"{group}\"")));
            assert_eq!(shown, *seen, "{turn}: {part}");
            let (_, part) = live_page(&running, browser, "%2Fconsole").await;
            assert_eq!(part.contains("<dt>Capacity</dt>"), seen[0], "{turn}: {part}");
            let count = seen.iter().filter(|seen| **seen).count();
            assert!(part.contains(&format!("<dt>Groups</dt><dd>{count}</dd>")), "{turn}: {part}");
        }
    }
    running.shutdown().await.unwrap();
}

/// A store that cannot be read at times.
#[derive(Default)]
struct Unreadable(MemoryStore, AtomicBool);

impl Unreadable {
    fn read(&self) -> Result<&MemoryStore, StoreError> {
        let reason = || StoreError::Failed { operation: "read rows", reason: "input/output error".into() };
        if self.1.load(Ordering::SeqCst) { Err(reason()) } else { Ok(&self.0) }
    }
}

impl Store for Unreadable {
    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.read()?.scan(table, from, visit)
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.read()?.get(table, keys)
    }

    pass_on!(0: commit, copy, seal, break_seal);
}

/// A page that is told that its group is gone does not come back by itself.
#[tokio::test(start_paused = true)]
async fn a_live_page_waits_for_a_store_that_cannot_be_read_and_goes_on() {
    let (store, now) = (Arc::new(Unreadable::default()), Arc::new(AtomicU64::new(0)));
    let (console, _stop) = console(&store, &now);
    let page = live(&console, "/console/groups/default%3Frange%3D24h").await;
    let mut parts = page.into_body().into_data_stream();
    let mut next = async || String::from_utf8(parts.next().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(next().await.starts_with("event: part"));
    // What was made in a second is not made again in that.
    now.fetch_add(1_000_000, Ordering::SeqCst);
    store.1.store(true, Ordering::SeqCst);
    let told = timeout(Duration::from_secs(3), next()).await;
    assert!(told.is_err(), "the page says how old its figures are: {told:?}");
    store.1.store(false, Ordering::SeqCst);
    let told = next().await;
    assert!(told.starts_with("event: part") || told.starts_with("event: same"), "{told}");
    // A group that is not there never was.
    let page = live(&console, "/console/groups/none").await;
    let said = axum::body::to_bytes(page.into_body(), 9_999).await.unwrap();
    assert_eq!(said, "event: gone\ndata: -\n\n");
}
