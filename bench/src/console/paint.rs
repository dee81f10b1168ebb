//! The time until a real browser that runs, and has nothing of the console yet, shows something of it.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tidegate_test_servers::Browser;

use crate::error::{BenchError, failed};
use crate::row::{MS, Mark, Row};
use crate::samples::Samples;
use crate::setting::Setting;

/// Browsers that are started, one after the other: each takes a second. Their times differ threefold, so of seven the
/// median moves by half.
const BROWSERS: usize = 21;
/// What each of them shows first, so that its own start is not measured.
const BEFORE: &str = "/healthz";
/// A window on a desk.
const WINDOW: (u32, u32) = (1_280, 800);
/// Milliseconds from the beginning of the way to the page until the first of its contents is painted; null before.
const PAINTED: &str = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null";
/// Looks for the paint, which a browser notes after the frame.
const LOOKS: usize = 200;
/// Between two of them.
const LOOK: Duration = Duration::from_millis(10);

/// The first paint of a page.
pub(super) async fn first_paint(
    setting: &Setting,
    server: SocketAddr,
    page: &str,
    many: usize,
) -> Result<Row, BenchError> {
    let driver = Browser::start().map_err(failed("start a browser"))?;
    let mut figures = Vec::new();
    for _ in 0..setting.with_rounds(BROWSERS).rounds {
        figures.push(paint(&driver, [BEFORE, page].map(|path| format!("http://{server}{path}"))).await?);
    }
    let case = format!("console/first paint of {page} by Chromium, {many} groups and templates");
    Ok(Row::new(case, MS, Samples::new(figures)).mark(Mark::AtMost(200.0)))
}

async fn paint(driver: &Browser, [before, url]: [String; 2]) -> Result<f64, BenchError> {
    let tab = Tab::open(driver).await?;
    for page in [&before, &url] {
        tab.say("/url", json!({ "url": page })).await?;
    }
    let mut painted = None;
    for _ in 0..LOOKS {
        painted = tab.say("/execute/sync", json!({ "script": PAINTED, "args": [] })).await?.as_f64();
        if painted.is_some() {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    tab.close().await?;
    painted.ok_or_else(|| BenchError::Wrong(format!("{url} was not painted")))
}

/// A browser of its own, by the four calls of WebDriver that are needed: a library for them has parts that would make all
/// of the workspace be built again for the binaries of this package, since it asks `syn` for more than others do.
struct Tab {
    client: Client<HttpConnector, Full<Bytes>>,
    /// Where its session is.
    session: String,
}

impl Tab {
    async fn open(driver: &Browser) -> Result<Self, BenchError> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let sessions = format!("{}/session", driver.url());
        let options = json!({ "args": Browser::arguments(WINDOW, false) });
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": options });
        let opened =
            ask(&client, Method::POST, &sessions, &json!({ "capabilities": { "alwaysMatch": wanted } }))
                .await?;
        let id = opened.get("sessionId").and_then(Value::as_str);
        let id =
            id.ok_or_else(|| BenchError::Wrong("the browser opens a session without an id".to_owned()))?;
        Ok(Self { client, session: format!("{sessions}/{id}") })
    }

    async fn say(&self, command: &str, with: Value) -> Result<Value, BenchError> {
        ask(&self.client, Method::POST, &format!("{}{command}", self.session), &with).await
    }

    async fn close(&self) -> Result<(), BenchError> {
        ask(&self.client, Method::DELETE, &self.session, &json!({})).await.map(drop)
    }
}

/// Calls the driver, and returns the value of its answer.
async fn ask(
    client: &Client<HttpConnector, Full<Bytes>>,
    method: Method,
    url: &str,
    with: &Value,
) -> Result<Value, BenchError> {
    let body = Full::new(Bytes::from(with.to_string()));
    let request =
        Request::builder().method(method).uri(url).header("content-type", "application/json").body(body);
    let request = request.map_err(failed("ask the browser"))?;
    let answer = client.request(request).await.map_err(failed("ask the browser"))?;
    let status = answer.status();
    let said =
        answer.into_body().collect().await.map_err(failed("read what the browser answers"))?.to_bytes();
    let mut said: Value = serde_json::from_slice(&said).map_err(failed("read what the browser answers"))?;
    let value = said.get_mut("value").map_or(Value::Null, Value::take);
    if !status.is_success() {
        return Err(BenchError::Wrong(format!("{url}: the browser answers {status}: {value}")));
    }
    Ok(value)
}
