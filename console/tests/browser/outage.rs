//! A controller that goes away under a page that is open.

use tidegate_controller::config::Authentication;
use tidegate_test_servers::Browser;

use super::stage::{Site, tab};

#[tokio::test(flavor = "multi_thread")]
async fn a_page_says_how_old_it_is_comes_back_by_itself_and_loses_no_form() {
    let mut site = Site::start(Authentication::Off).await;
    site.group("shop", "", "20");
    let driver = Browser::start().unwrap();
    let looks = tab(&driver, (1_280, 1_000), false).await;
    looks.open(&site.url("/console/groups")).await;
    looks.until("a live list", "return document.getElementById('age').textContent === 'Live'").await;
    let types = tab(&driver, (1_280, 1_000), false).await;
    types.open(&site.url("/console/groups/shop/edit")).await;
    types.fill("#field-ru_per_sec", "77").await;
    types.until_says("--rate 77").await;

    site.stop().await;
    looks
        .until("the age", "return /No news for \\d+ s/.test(document.getElementById('age').textContent)")
        .await;
    types.fill("#field-comment", "half").await;
    types.until_says("does not answer; what you typed is still here").await;
    site.begin().await;
    site.group("later", "", "5");
    looks.until_says("later").await;
    looks.until("a live list", "return document.getElementById('age').textContent === 'Live'").await;
    // What was half filled in is saved by the controller that came after.
    types.fill("#field-comment", "half-filled").await;
    types.until_says("--comment half-filled").await;
    types.click("form button.main").await;
    types.until("the page of the group", "return location.pathname === '/console/groups/shop'").await;
    types.until_says("half-filled").await;
    assert!(looks.complaints().await.is_empty());
    looks.close().await;
    types.close().await;
    site.stop().await;
}
