//! People who change things: with forms, by the keyboard, two at once, and after a login.

use fantoccini::Locator;
use fantoccini::key::Key;
use tidegate_controller::config::Authentication;
use tidegate_test_servers::{Browser, script};

use super::looks::barriers;
use super::stage::{Site, tab};

const SIZE: (u32, u32) = (1_280, 1_000);

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_made_is_seen_throttled_and_is_changed_by_two_people_at_once() {
    let mut site = Site::start(Authentication::Off).await;
    let driver = Browser::start().unwrap();
    let ann = tab(&driver, SIZE, false).await;
    ann.open(&site.url("/console")).await;
    ann.until_says("No operation waits").await;
    ann.open(&site.url("/console/groups/new")).await;
    ann.fill("#field-name", "shop").await;
    ann.fill("#field-ru_per_sec", "many").await;
    ann.until(
        "the fault of the rate",
        "return !!document.querySelector('#effect a[href=\"#field-ru_per_sec\"]')",
    )
    .await;
    ann.fill("#field-ru_per_sec", "20").await;
    ann.until_says("tidegate group create shop --rate 20").await;
    ann.click("form button.main").await;
    ann.until("the page of the group", "return location.pathname === '/console/groups/shop'").await;
    ann.fill("form.inline input[name=tenant]", "acme").await;
    ann.click("form.inline button").await;
    ann.until_says("acme").await;

    // The overview follows a load without being loaded again.
    ann.open(&site.url("/console")).await;
    ann.run("window.isSame = true").await;
    let load = site.load("shop").await;
    ann.until_says("it uses its own rate").await;
    assert_eq!(ann.run("return window.isSame === true").await, true);
    let bob = tab(&driver, SIZE, false).await;
    bob.open(&site.url("/console/groups/shop")).await;
    bob.until_says("Throttled").await;

    // Both change it; the second one learns of the first.
    for tab in [&ann, &bob] {
        tab.open(&site.url("/console/groups/shop/edit")).await;
    }
    ann.fill("#field-ru_per_sec", "4000").await;
    ann.click("form button.main").await;
    ann.until("the page of the group", "return location.pathname === '/console/groups/shop'").await;
    ann.until("no more waiting", "return !document.getElementById('live').innerText.includes('Throttled')")
        .await;
    bob.fill("#field-ru_per_sec", "30").await;
    bob.fill("#field-comment", "<img src=x onerror=window.broken=1>").await;
    bob.click("form button.main").await;
    bob.until_says("nothing was saved").await;
    let typed = bob.run("return document.getElementById('field-ru_per_sec').value").await;
    assert_eq!(typed, "30");
    bob.click("form button.main").await;
    bob.until_says("<img src=x onerror=window.broken=1>").await;
    assert_eq!(bob.run("return window.broken === undefined").await, true);
    drop(load);

    bob.open(&site.url("/console/groups/shop/delete")).await;
    bob.click("form button.main").await;
    bob.until_says("is used by").await;
    bob.fill("#force_to", "default").await;
    bob.click("form button.main").await;
    bob.until("the list of groups", "return location.pathname === '/console/groups'").await;
    // Who still looks at it is told.
    ann.until_says("Ended: load the page again").await;
    for tab in [ann, bob] {
        let complaints = tab.complaints().await;
        // What a form answers when it is not saved.
        let other: Vec<_> = complaints.iter().filter(|said| !said.contains("409 (Conflict)")).collect();
        assert!(other.is_empty(), "{complaints:?}");
        tab.close().await;
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_it_is_reached_by_the_keyboard_and_a_live_list_keeps_the_focus() {
    let mut site = Site::start(Authentication::Off).await;
    site.group("shop", "", "20");
    let driver = Browser::start().unwrap();
    let tab = tab(&driver, SIZE, false).await;
    tab.open(&site.url("/console")).await;
    let press = async |key: &str| tab.client.active_element().await.unwrap().send_keys(key).await.unwrap();
    let tabulator = Key::Tab.to_string();
    press(&tabulator).await;
    assert_eq!(tab.run("return document.activeElement.className").await, "skip");
    press(&Key::Enter.to_string()).await;
    assert_eq!(tab.run("return document.activeElement.id").await, "content");
    // The way to the list of groups, and to one of them.
    tab.open(&site.url("/console")).await;
    for _ in 0..4 {
        press(&tabulator).await;
    }
    press(&Key::Enter.to_string()).await;
    tab.until("the list of groups", "return location.pathname === '/console/groups'").await;
    for _ in 0..40 {
        if tab.run("return document.activeElement.id").await == "group-shop" {
            break;
        }
        press(&tabulator).await;
    }
    assert_eq!(tab.run("return document.activeElement.id").await, "group-shop");
    // The list changes below the focus.
    let load = site.load("shop").await;
    tab.until_says("throttled").await;
    assert_eq!(tab.run("return document.activeElement.id").await, "group-shop");
    drop(load);
    press(&Key::Enter.to_string()).await;
    tab.until("the page of the group", "return location.pathname === '/console/groups/shop'").await;
    tab.click("#pause").await;
    tab.until_says("Paused").await;
    assert!(tab.complaints().await.is_empty());
    tab.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_change_would_have_met_is_replayed_before_it_is_saved() {
    let mut site = Site::start(Authentication::Off).await;
    site.group("shop", "", "2000");
    let driver = Browser::start().unwrap();
    let tab = tab(&driver, (360, 780), true).await;
    tab.open(&site.url("/console/groups/shop/edit")).await;
    // By the keyboard.
    tab.run("document.getElementById('replayed').focus()").await;
    let press = async |key: Key| {
        tab.client.active_element().await.unwrap().send_keys(&key.to_string()).await.unwrap();
    };
    press(Key::Tab).await;
    assert_eq!(tab.run("return document.activeElement.id").await, "ask-what-if");
    press(Key::Enter).await;
    tab.until_says("No history yet").await;
    assert_eq!(tab.run("return location.pathname").await, "/console/groups/shop/edit");

    let load = site.load("shop").await;
    tab.fill("#field-ru_per_sec", "3").await;
    let throttled = "const text = document.getElementById('what-if').innerText;
        const is_there = text.match(/would have throttled (\\S+) %/)?.[1] > 0;
        if (!is_there) document.getElementById('ask-what-if').click();
        return is_there";
    tab.until("figures of what is throttled", throttled).await;
    let axe = script("axe-core", "axe.min.js").unwrap();
    assert_eq!(barriers(&tab, &axe).await, Vec::<String>::new());
    let is_old = "return !document.querySelector('#what-if .old').hidden";
    assert_eq!(tab.run(is_old).await, false);
    tab.fill("#field-ru_per_sec", "4").await;
    tab.until("a note that it is of other settings", is_old).await;
    tab.run("document.getElementById('replayed').value = '24h'").await;
    tab.click("#ask-what-if").await;
    tab.until(
        "figures of a limit of 4",
        "return document.getElementById('what-if').innerText.includes('4 RU/s')",
    )
    .await;
    assert_eq!(tab.run(is_old).await, false);
    assert_eq!(tab.run("return document.documentElement.scrollWidth <= window.innerWidth").await, true);
    let stored = site.running().service().definitions().group("shop").unwrap().group;
    assert_eq!(stored.ru_per_sec, "2000", "nothing was saved");
    assert!(tab.complaints().await.is_empty());
    drop(load);
    tab.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_of_a_definition_is_followed_back_to_where_it_began() {
    let mut site = Site::start(Authentication::Off).await;
    site.group("shop", "", "100");
    let driver = Browser::start().unwrap();
    let tab = tab(&driver, SIZE, false).await;
    tab.open(&site.url("/console/groups/shop/edit")).await;
    tab.fill("#field-ru_per_sec", "250").await;
    tab.fill("#field-comment", "<i>dear").await;
    tab.click("form button.main").await;
    tab.until("the page of the group", "return location.pathname === '/console/groups/shop'").await;
    let newest = "return document.querySelector('[aria-labelledby=changes] tbody tr').innerText";
    let said = tab.run(newest).await.as_str().unwrap().to_owned();
    for part in ["alter group shop", "ru_per_sec: 100 → 250", "comment: – → <i>dear", "revision 3"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for rate in 0..12 {
        site.alter("shop", |group| group.ru_per_sec = (300 + rate).to_string());
    }
    tab.open(&site.url("/console/groups/shop")).await;
    tab.until_says("ru_per_sec: 310 → 311").await;
    tab.click("[aria-labelledby=changes] a[rel=next]").await;
    tab.until("the log of the group", "return location.search.startsWith('?group=shop&before=')").await;
    tab.until_says("create group shop").await;
    tab.until_says("ru_per_sec: 300 → 301").await;
    let text = tab.text().await;
    assert!(!text.contains("→ 311") && !text.contains("Older"), "{text}");
    // Another group, by the form.
    tab.fill("input[name=group]", "never").await;
    tab.click("form.filters button").await;
    tab.until_says("The log has no change of a group never").await;
    assert!(tab.complaints().await.is_empty());
    tab.close().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_shows_what_its_role_may_do_and_a_logout_ends_it() {
    let mut site = Site::start(Authentication::Required).await;
    site.group("shop", "", "20");
    let driver = Browser::start().unwrap();
    let tab = tab(&driver, SIZE, false).await;
    tab.open(&site.url("/console/groups/shop")).await;
    tab.fill("#token", "tdg_wrong").await;
    tab.click("form button.main").await;
    tab.until("a refusal", "return !!document.querySelector('.notice.bad')").await;
    tab.fill("#token", &site.token("viewer")).await;
    tab.click("form button.main").await;
    tab.until("the page that was asked for", "return location.pathname === '/console/groups/shop'").await;
    tab.until_says("viewer (viewer)").await;
    assert_eq!(tab.run("return document.querySelectorAll('main form, main .buttons').length").await, 0);
    assert_eq!(tab.run("return document.cookie").await, "", "no script reads the cookie");
    tab.client.find(Locator::Css(".who button")).await.unwrap().click().await.unwrap();
    tab.until("the login", "return location.pathname === '/console/login'").await;
    tab.open(&site.url("/console")).await;
    tab.until("the login", "return location.pathname === '/console/login'").await;
    tab.close().await;
    site.stop().await;
}
