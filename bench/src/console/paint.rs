//! The time until a real browser that runs, and has nothing of the console yet, shows something of it.

use std::net::SocketAddr;
use std::time::Duration;

use fantoccini::ClientBuilder;
use fantoccini::wd::Capabilities;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tidegate_test_servers::Browser;

use crate::error::{BenchError, failed};
use crate::row::{MS, Mark, Row};
use crate::samples::Samples;
use crate::setting::Setting;

/// Browsers that are started, one after the other: each takes a second.
const BROWSERS: usize = 7;
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
    let options = json!({ "args": Browser::arguments(WINDOW, false) });
    let capabilities: Capabilities =
        [("browserName".to_owned(), json!("chrome")), ("goog:chromeOptions".to_owned(), options)]
            .into_iter()
            .collect();
    let mut builder = ClientBuilder::new(HttpConnector::new());
    let connected = builder.capabilities(capabilities).connect(&driver.url()).await;
    let tab = connected.map_err(failed("open a tab"))?;
    for page in [&before, &url] {
        tab.goto(page).await.map_err(failed(format!("open {page}")))?;
    }
    let mut painted = None;
    for _ in 0..LOOKS {
        let answer = tab.execute(PAINTED, Vec::new()).await.map_err(failed("ask when it was painted"))?;
        painted = answer.as_f64();
        if painted.is_some() || answer != Value::Null {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    tab.close().await.map_err(failed("close a tab"))?;
    painted.ok_or_else(|| BenchError::Wrong(format!("{url} was not painted")))
}
