//! The REST listener: any requests into the router that ships, over a store in memory.
//!
//! Every answer has the API's shape and none blames the server; what was answered can be read back,
//! page by page too; and a controller that starts from the same store answers the same.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tidegate_controller::clock::Clock;
use tidegate_controller::inside;
use tidegate_controller::service::{Service, ServiceConfig};
use tower::ServiceExt as _;

use super::memory::MemoryStore;
use super::requests::{Asked, split};

/// Longest error message: it may name twenty users of a group.
const LONGEST_MESSAGE: usize = 4_000;
/// What the API answers with; anything from 500 on would blame the server.
const STATUSES: [u16; 8] = [200, 400, 404, 405, 409, 412, 413, 415];
/// Lists that a restart must not change.
const LASTING: [&str; 5] = ["/v1/groups", "/v1/bindings", "/v1/cost-tables", "/v1/audit", "/v1/watches"];

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let store = Arc::new(MemoryStore::default());
        let router = serve(&store);
        for text in split(bytes) {
            if let Some(request) = Asked::read(text) {
                let answer = ask(&router, &request).await;
                if answer.status == 200 {
                    read_back(&router, &request, &answer.body).await;
                }
            }
        }
        pages_add_up(&router, "/v1/groups", "groups", |last| format!("after={}", text(last, "name"))).await;
        pages_add_up(&router, "/v1/bindings", "bindings", |last| {
            format!("after_tenant={}&after_user={}", text(last, "tenant"), text(last, "user"))
        })
        .await;
        let again = serve(&store);
        for path in LASTING {
            assert_eq!(get(&router, path).await, get(&again, path).await, "{path} after a restart");
        }
    });
}

fn serve(store: &Arc<MemoryStore>) -> Router {
    let config = ServiceConfig::default();
    let clock = Clock::driven(Arc::new(AtomicU64::new(0)));
    let store = Arc::clone(store);
    inside::rest(Arc::new(Service::load(store, config, clock).expect("its own store")))
}

struct Answer {
    status: u16,
    body: Value,
}

/// Asks, and checks the shape of the answer.
async fn ask(router: &Router, asked: &Asked) -> Answer {
    let mut request = Request::new(Body::from(asked.body.clone()));
    *request.method_mut() = asked.method.clone();
    *request.uri_mut() = asked.uri.clone();
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &asked.headers {
        request.headers_mut().insert(name, value.clone());
    }
    let response = router.clone().oneshot(request).await.expect("a router never fails");
    let status = response.status().as_u16();
    let media =
        response.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).map(str::to_owned);
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let shown = String::from_utf8_lossy(&bytes);
    let what = format!("{} {}: {status} {shown}", asked.method, asked.uri);
    assert!(STATUSES.contains(&status), "{what}");
    if asked.method == Method::HEAD {
        return Answer { status: 0, body: Value::Null };
    }
    if asked.uri.path() == "/metrics" && status == 200 {
        let begins = shown.starts_with("# HELP tidegate_") || shown.starts_with("# HELP process_");
        assert!(begins && shown.ends_with('\n'), "{what}");
        return Answer { status, body: Value::Null };
    }
    assert_eq!(media.as_deref(), Some("application/json"), "{what}");
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if status == 200 {
        assert!(body.is_object(), "{what}");
    } else {
        let message = body.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        let code = body.pointer("/error/code").and_then(Value::as_str).unwrap_or_default();
        assert!(!message.is_empty() && message.len() <= LONGEST_MESSAGE && !code.is_empty(), "{what}");
    }
    Answer { status, body }
}

async fn get(router: &Router, path: &str) -> Value {
    let asked = Asked {
        method: Method::GET,
        uri: Uri::try_from(path).expect("a path"),
        headers: Vec::new(),
        body: Vec::new(),
    };
    let answer = ask(router, &asked).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

/// A created or changed thing reads back as it was answered, and making it again changes nothing.
async fn read_back(router: &Router, asked: &Asked, body: &Value) {
    match (&asked.method, asked.uri.path()) {
        (&Method::POST, "/v1/groups") => same_group(router, body).await,
        (&Method::PATCH, _) => same_group(router, body).await,
        (&Method::PUT, "/v1/bindings") => {
            let bound: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
            let path = format!("/v1/resolve?tenant={}&user={}", text(&bound, "tenant"), text(&bound, "user"));
            let resolved = get(router, &path).await;
            assert_eq!(text(&resolved, "group"), text(&bound, "group").to_ascii_lowercase(), "{path}");
        }
        _ => {}
    }
}

async fn same_group(router: &Router, body: &Value) {
    let group = body.get("group").cloned().unwrap_or_default();
    let path = format!("/v1/groups/{}", text(&group, "name"));
    assert_eq!(get(router, &path).await.get("group"), Some(&group), "{path}");
    let again = Asked {
        method: Method::POST,
        uri: Uri::from_static("/v1/groups?if_not_exists=true"),
        headers: Vec::new(),
        body: group.to_string().into_bytes(),
    };
    let answer = ask(router, &again).await;
    assert_eq!(
        (answer.status, answer.body.get("changed")),
        (200, Some(&json!(false))),
        "{group} {}",
        answer.body
    );
}

/// A list read one by one is the list.
async fn pages_add_up(router: &Router, path: &str, list: &str, after: impl Fn(&Value) -> String) {
    let whole = get(router, path).await;
    let whole = whole.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut one_by_one: Vec<Value> = Vec::new();
    loop {
        let from = one_by_one.last().map(|last| format!("&{}", after(last))).unwrap_or_default();
        let page = get(router, &format!("{path}?limit=1{from}")).await;
        match page.get(list).and_then(Value::as_array).and_then(|page| page.first()) {
            Some(next) if one_by_one.len() < whole.len() => one_by_one.push(next.clone()),
            _ => break,
        }
    }
    assert_eq!(one_by_one, whole, "{path}");
}

/// A field; names need no escapes in a path but `@`, which may stand there.
fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}
