//! The time until a real browser, which has nothing of the console yet, shows something of it.

use std::net::SocketAddr;

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
/// A window on a desk.
const WINDOW: (u32, u32) = (1_280, 800);
/// Milliseconds from the beginning of the way to the page until the first of its contents is painted; null before.
const PAINTED: &str = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null";
/// Looks for the paint, which a browser notes after the frame.
const LOOKS: usize = 200;

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
        figures.push(paint(&driver, &format!("http://{server}{page}")).await?);
    }
    let case = format!("console/first paint of {page} by Chromium, {many} groups and templates");
    Ok(Row::new(case, MS, Samples::new(figures)).mark(Mark::AtMost(200.0)))
}

async fn paint(driver: &Browser, url: &str) -> Result<f64, BenchError> {
    let options = json!({ "args": Browser::arguments(WINDOW, false) });
    let capabilities: Capabilities =
        [("browserName".to_owned(), json!("chrome")), ("goog:chromeOptions".to_owned(), options)]
            .into_iter()
            .collect();
    let mut builder = ClientBuilder::new(HttpConnector::new());
    let connected = builder.capabilities(capabilities).connect(&driver.url()).await;
    let tab = connected.map_err(failed("open a tab"))?;
    tab.goto(url).await.map_err(failed("open the console"))?;
    let mut painted = None;
    for _ in 0..LOOKS {
        let answer = tab.execute(PAINTED, Vec::new()).await.map_err(failed("ask when it was painted"))?;
        painted = answer.as_f64();
        if painted.is_some() || answer != Value::Null {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    tab.close().await.map_err(failed("close a tab"))?;
    painted.ok_or_else(|| BenchError::Wrong(format!("{url} was not painted")))
}
