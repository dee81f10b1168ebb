//! The console: any requests and forms into the router that ships, over a store in memory.
//!
//! In a body, `KEY` stands for the key of the forms. No answer blames the server, sends a person elsewhere, or has markup
//! that somebody typed; every page forbids scripts of others.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::BodyExt as _;
use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::inside;
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_proto::v1;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::memory::MemoryStore;
use super::requests::{Asked, split};

/// Markup that no page has, and that inputs type wherever they can.
const MARKUP: &str = "<fuzz";
/// What the console answers with; anything from 500 on would blame the server.
const STATUSES: [u16; 10] = [200, 303, 400, 403, 404, 405, 409, 413, 415, 422];

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::driven(Arc::new(AtomicU64::new(0)));
        let store = Arc::new(MemoryStore::default());
        let service = Service::load(store, ServiceConfig::default(), clock).expect("its own store");
        let shop =
            v1::Group { name: "shop".to_owned(), ru_per_sec: "100".to_owned(), ..v1::Group::default() };
        service.definitions().create_group(&Actor::new(None, "fuzz"), &shop, false).expect("a group");
        let (_stop, stopped) = watch::channel(false);
        let router = inside::console(Arc::new(service), stopped);
        let (_, form) = ask(&router, Asked::read(b"GET /console/groups/new").expect("a request")).await;
        let (_, rest) = form.split_once("name=\"form_key\" value=\"").expect("a form has a key");
        let key = rest.split('"').next().unwrap_or_default().to_owned();
        for text in split(bytes) {
            let Some(mut asked) = Asked::read(text) else { continue };
            // A live page has no end.
            if asked.uri.path() == "/console/live" {
                continue;
            }
            asked.body = with_key(&asked.body, &key);
            ask(&router, asked).await;
        }
        // What was stored is shown, too.
        for path in [
            "/console",
            "/console/groups",
            "/console/groups/shop",
            "/console/statements",
            "/console/audit?group=shop",
        ] {
            ask(&router, Asked::read(format!("GET {path}").as_bytes()).expect("a request")).await;
        }
    });
}

fn with_key(body: &[u8], key: &str) -> Vec<u8> {
    match std::str::from_utf8(body) {
        Ok(text) => text.replace("KEY", key).into_bytes(),
        Err(_) => body.to_vec(),
    }
}

/// Asks, and checks the answer; returns its status and its text.
async fn ask(router: &Router, asked: Asked) -> (u16, String) {
    let what = format!("{} {}", asked.method, asked.uri);
    let mut request = Request::new(Body::from(asked.body));
    (*request.method_mut(), *request.uri_mut()) = (asked.method, asked.uri);
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    request.headers_mut().insert(header::CONTENT_TYPE, kind);
    // As the listener says it of each connection.
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))));
    for (name, value) in asked.headers {
        request.headers_mut().insert(name, value);
    }
    let response = router.clone().oneshot(request).await.expect("a router never fails");
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = head.status.as_u16();
    assert!(STATUSES.contains(&status), "{what}: {status} {text}");
    let of = |name| text_of(&head.headers, name);
    if status == 303 {
        assert!(of(header::LOCATION).starts_with("/console"), "{what}: {}", of(header::LOCATION));
    }
    if of(header::CONTENT_TYPE).starts_with("text/html") {
        assert!(!text.contains(MARKUP), "{what}: {text}");
        assert!(of(header::CONTENT_SECURITY_POLICY).starts_with("default-src 'none'"), "{what}");
    }
    (status, text)
}

fn text_of(headers: &HeaderMap, name: header::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
