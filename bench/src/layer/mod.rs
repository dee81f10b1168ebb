//! The tower layer over an axum handler that does nothing, beside the handler alone: time added to a request in
//! process, and requests per second over loopback HTTP on several connections. Over HTTP also beside a handler that
//! sends two headers as the layer's and does nothing else: what sending and reading them costs, no layer can save.

mod wire;

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http_body_util::BodyExt as _;
use tidegate_client::Client;
use tidegate_client::tower::{GovernLayer, X_RU_CHARGE, X_RU_REMAINING};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

use super::admission::WARM;
use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, PER_S, Row, US};
use super::samples::Samples;
use super::setting::Setting;
use super::site::{Site, capped};
use wire::Wire;

/// Bound to the group.
const TENANT: &str = "acme";

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let bound = vec![(TENANT.to_owned(), "web".to_owned())];
    let site = Site::with(std::iter::once(capped("web", "100000000")), bound)?;
    let client = site.client("bench-layer")?;
    let group = site.group(&client, "web")?;
    site.keep_warm(std::slice::from_ref(&group), WARM)?;
    let mut rows = added(setting, &client)?;
    rows.push(throughput(setting, &client)?);
    Ok(rows)
}

fn bare() -> Router {
    Router::new().route("/", get(|| async { "ok" }))
}

/// Sends as many bytes of headers as a governed one.
fn with_headers() -> Router {
    let charge = Arc::new(AtomicU64::new(0));
    let handler = move || {
        // Each has other digits, as each charge has.
        let micro = charge.fetch_add(1, Ordering::Relaxed) % 1_000_000;
        let headers =
            [(X_RU_CHARGE, format!("0.{micro:06}")), (X_RU_REMAINING, format!("12345678.{micro:06}"))];
        ready((headers, "ok"))
    };
    Router::new().route("/", get(handler))
}

fn governed(client: &Client) -> Router {
    bare().layer(GovernLayer::new(client.clone()))
}

/// Requests handed to the router one after another.
fn added(setting: &Setting, client: &Client) -> Result<Vec<Row>, BenchError> {
    let thread = Builder::new_current_thread().enable_all().build().map_err(failed("start a runtime"))?;
    let (with, without) = (governed(client), bare());
    let mut contenders: [Work<'_>; 2] = [
        Box::new(|count| requests(&thread, &with, count)),
        Box::new(|count| requests(&thread, &without, count)),
    ];
    let samples = contest(setting, &mut contenders)?;
    let [with, without] = samples.as_slice() else { return Ok(Vec::new()) };
    let us = |ns: f64| ns / 1e3;
    let whole = Row::new("layer/request in process", US, with.map(us));
    Ok(vec![
        Row::new("layer/added to a request", US, with.less(without).map(us)).mark(Mark::AtMost(5.0)),
        whole.beside(Kind::Floor, "handler alone", without.map(us), None),
    ])
}

fn requests(thread: &Runtime, router: &Router, count: u64) -> Result<Duration, BenchError> {
    thread.block_on(async {
        let watch = Stopwatch::start();
        for _ in 0..count {
            let request = axum::http::Request::get("/").header("x-tenant", TENANT).body(Body::empty());
            let request = request.map_err(failed("make a request"))?;
            let response = router.clone().oneshot(request).await.map_err(failed("be served"))?;
            if response.status() != 200 {
                return Err(BenchError::Wrong(format!("a request was answered {}", response.status())));
            }
            response.into_body().collect().await.map_err(failed("read a body"))?;
        }
        Ok(watch.elapsed())
    })
}

fn throughput(setting: &Setting, client: &Client) -> Result<Row, BenchError> {
    let (mut with, mut without) = (Wire::start(governed(client))?, Wire::start(bare())?);
    let mut headers = Wire::start(with_headers())?;
    let mut contenders: [Work<'_>; 3] = [
        Box::new(|count| with.requests(count)),
        Box::new(|count| without.requests(count)),
        Box::new(|count| headers.requests(count)),
    ];
    let samples = contest(setting, &mut contenders)?;
    let per_second = |samples: Option<&Samples>| {
        samples.map_or_else(|| Samples::new(Vec::new()), |samples| samples.map(|ns| 1e9 / ns))
    };
    let row = Row::new("layer/requests over HTTP", PER_S, per_second(samples.first()));
    let mark = Some(Mark::AtLeast(0.97));
    let row = row.beside(Kind::Floor, "handler alone", per_second(samples.get(1)), mark);
    Ok(row.beside(Kind::Floor, "handler that sends two such headers", per_second(samples.get(2)), None))
}
