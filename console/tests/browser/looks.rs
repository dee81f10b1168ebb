//! How pages look: for people with other eyes, on other screens, in the dark; and what they weigh.

use std::path::PathBuf;

use serde_json::Value;
use tidegate_controller::config::Authentication;
use tidegate_proto::v1;
use tidegate_test_servers::{Browser, script};

use super::stage::{Site, Tab, tab};

/// All pages, by the names of their pictures.
const PAGES: [(&str, &str); 13] = [
    ("overview", "/console"),
    ("groups", "/console/groups"),
    ("group", "/console/groups/shop"),
    ("group-day", "/console/groups/shop?range=24h"),
    ("edit", "/console/groups/shop/edit"),
    ("proposal", "/console/groups/shop/proposal"),
    ("delete", "/console/groups/shop/delete"),
    ("statements", "/console/statements"),
    ("statement", "/console/statements/shop/00000000000000aa"),
    ("nodes", "/console/nodes"),
    ("prices", "/console/prices?cpu_ns=3000000&write_bytes=4096"),
    ("audit", "/console/audit"),
    ("audit-group", "/console/audit?group=shop"),
];
/// A telephone, a desk and a wall, and whether in the dark.
const SCREENS: [((u32, u32), bool); 3] =
    [((360, 780), true), ((1_280, 1_000), false), ((3_840, 2_160), true)];
/// What a page may weigh with its script and styles, in bytes.
const HEAVIEST: u64 = 150 * 1024;

async fn site() -> Site {
    let site = Site::start(Authentication::Off).await;
    site.group("shop", "", "200");
    site.group("shop-web", "shop", "20");
    site.group("reports", "", "300");
    site.alter("shop", |group| {
        "400".clone_into(&mut group.ru_per_sec);
        "800".clone_into(&mut group.burst);
    });
    site.alter("shop", |group| "the shop and its carts".clone_into(&mut group.comment));
    let proposed = v1::Group { name: "shop".to_owned(), ru_per_sec: "5".to_owned(), ..v1::Group::default() };
    let actor = tidegate_controller::audit::Actor::new(Some("bob"), "here");
    let definitions = site.running().service();
    definitions.definitions().put_proposal(&actor, &proposed, &["ru_per_sec".to_owned()], 0).unwrap();
    let row = v1::StatementRow {
        group: "shop".to_owned(),
        fingerprint: "00000000000000aa".to_owned(),
        kind: "select".to_owned(),
        template: "select count(*) from orders where customer = ? and placed > ?".repeat(9),
        calls: 4_211,
        cpu_micro_ru: 912_000_000,
        read_micro_ru: 1_400_000_000,
        network_micro_ru: 7_000_000,
        first_unix_ms: 1,
        last_unix_ms: 2,
        ..v1::StatementRow::default()
    };
    let endpoint = format!("http://{}", site.running().grpc_addr);
    let channel = tonic::transport::Channel::from_shared(endpoint).unwrap().connect().await.unwrap();
    let report = v1::ReportStatementsRequest {
        gateway: "gw".into(),
        incarnation: 1,
        seq: 1,
        rows: vec![row],
        evicted: 0,
    };
    v1::statements_client::StatementsClient::new(channel).report_statements(report).await.unwrap();
    site
}

/// What axe finds on a page, with the parts of the page.
pub(crate) async fn barriers(tab: &Tab, axe: &str) -> Vec<String> {
    tab.run(axe).await;
    let run = "const done = arguments[arguments.length - 1]; axe.run(document).then(found => done(found.violations.map(
        of => of.id + ': ' + of.help + ' at ' + of.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(' | '))))";
    let found = tab.client.execute_async(run, Vec::new()).await.unwrap();
    found.as_array().unwrap().iter().map(|of| of.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_no_barriers_on_any_screen_and_ask_nobody_else() {
    let mut site = site().await;
    let load = site.load("shop-web").await;
    let axe = script("axe-core", "axe.min.js").unwrap();
    let driver = Browser::start().unwrap();
    let mut wrong = Vec::new();
    for (size, is_dark) in SCREENS {
        let tab = tab(&driver, size, is_dark).await;
        for (name, path) in PAGES {
            tab.open(&site.url(path)).await;
            let found = barriers(&tab, &axe).await;
            wrong.extend(found.into_iter().map(|found| format!("{name} at {size:?}: {found}")));
            // Wide tables scroll by themselves, and the page does not.
            let wide = tab.run("return document.documentElement.scrollWidth - window.innerWidth").await;
            if wide.as_i64().unwrap() > 0 {
                wrong.push(format!("{name} at {size:?} is {wide} pixels too wide"));
            }
            let asked = tab.run("return performance.getEntriesByType('resource').map(of => of.name)").await;
            let foreign = asked
                .as_array()
                .unwrap()
                .iter()
                .filter(|of| !of.as_str().unwrap().starts_with(&site.url("/console/")));
            wrong.extend(foreign.map(|of: &Value| format!("{name} asks for {of}")));
            let weight = tab.run("return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
                .filter(of => of.initiatorType !== 'eventsource' && of.initiatorType !== 'other')
                .reduce((sum, of) => sum + of.decodedBodySize, 0)").await;
            if weight.as_u64().unwrap() > HEAVIEST {
                wrong.push(format!("{name} weighs {weight} bytes"));
            }
        }
        let complaints = tab.complaints().await;
        wrong.extend(complaints.into_iter().map(|said| format!("{size:?}: {said}")));
        let scheme = tab.run("return matchMedia('(prefers-color-scheme: dark)').matches").await;
        assert_eq!(scheme, is_dark);
        tab.close().await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    drop(load);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_read_under_the_pointer_and_a_legend_leaves_groups_out() {
    let mut site = site().await;
    let load = site.load("shop-web").await;
    let driver = Browser::start().unwrap();
    let tab = tab(&driver, SCREENS[1].0, false).await;
    tab.open(&site.url("/console")).await;
    tab.until("a chart", "return document.querySelectorAll('.column').length > 2").await;
    tab.run("const all = document.querySelectorAll('.column'); all[all.length - 1].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))").await;
    tab.until("a value", "return /RU\\/s/.test(document.querySelector('.readout').textContent)").await;
    tab.until("an area", "return document.querySelectorAll('polygon').length === 1").await;
    tab.click("#legend-0").await;
    tab.until(
        "the group left out",
        "return location.search === '?hide=shop-web' && !document.querySelector('polygon')",
    )
    .await;
    tab.close().await;
    drop(load);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_table_of_a_page_is_saved_as_it_is_shown() {
    let mut site = site().await;
    let load = site.load("shop-web").await;
    let driver = Browser::start().unwrap();
    let tab = tab(&driver, SCREENS[1].0, false).await;
    // What a button saves, as a browser gets it.
    let keep = "const make = URL.createObjectURL; window.saved = '';
        URL.createObjectURL = of => { of.text().then(text => { window.saved = text; }); return make.call(URL, of) }";
    let press = |name: &str| {
        format!(
            "[...document.querySelectorAll('#as-csv button')].find(of => of.textContent === '{name}').click()"
        )
    };
    for (path, table, lines) in [
        (
            "/console/prices?cpu_ns=3000000&write_bytes=4096",
            "Tables",
            "RU a unit of,Active: tidb-v1 version 1\r\ncpu_ns,1/3000000\r\n",
        ),
        (
            "/console/prices?cpu_ns=3000000&write_bytes=4096",
            "RU by cause",
            "CPU,1 RU,7 %,\r\nRead,0 RU,0 %,\r\nWrite,12 RU,92 %,\r\n",
        ),
        ("/console/statements", "Statements", "Template,Group,RU,Mean RU,Most RU,"),
        (
            "/console/groups",
            "Groups",
            "Group,Limit,Uses,Demand,Backlog,Waiting,p99 wait,Refused,Total,Burst left,Share of limit,Leases,By node\r\ndefault,none,0,",
        ),
        ("/console/groups/shop", "Definition", "parent,"),
    ] {
        tab.open(&site.url(path)).await;
        tab.run(keep).await;
        tab.run(&press(table)).await;
        tab.until("a table", "return window.saved !== ''").await;
        let saved = tab.run("return window.saved").await;
        assert!(saved.as_str().unwrap().starts_with(lines), "{table} at {path}: {saved}");
    }
    // A live part that is made again leaves the buttons be.
    tab.open(&site.url("/console/groups")).await;
    tab.run(
        "document.querySelector('#as-csv button').focus(); document.querySelector('#live table').id = 'old'",
    )
    .await;
    tab.until("news", "return !document.getElementById('old')").await;
    assert_eq!(tab.run("return document.activeElement.textContent").await, "Groups");
    assert_eq!(tab.complaints().await, Vec::<String>::new());
    tab.close().await;
    drop(load);
    site.stop().await;
}

/// Takes a picture of each page: `tests/screenshots` runs it, and says where they are.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes pictures for people; tests/screenshots runs it"]
async fn pictures() {
    let folder = PathBuf::from(std::env::var_os("PICTURES").unwrap());
    let mut site = site().await;
    let loads = [site.load("shop-web").await, site.load("reports").await];
    let driver = Browser::start().unwrap();
    for (size, is_dark) in SCREENS {
        let tab = tab(&driver, size, is_dark).await;
        for (name, path) in PAGES {
            tab.open(&site.url(path)).await;
            if name == "overview" {
                tab.until("a chart", "return document.querySelectorAll('.column').length > 30").await;
            }
            if name == "edit" {
                tab.fill("#field-ru_per_sec", "5").await;
                tab.fill("#field-burst", "default").await;
                tab.until_says("--burst default").await;
                let replayed = "const is_there = !!document.querySelector('#what-if table');
                    if (!is_there) document.getElementById('ask-what-if').click();
                    return is_there";
                tab.until("a replay", replayed).await;
                tab.run("if (innerWidth < 600) document.getElementById('replay').scrollIntoView()").await;
            }
            let scheme = if is_dark { "dark" } else { "light" };
            tab.save(&folder.join(format!("{name}-{}-{scheme}.png", size.0))).await;
        }
        tab.close().await;
    }
    drop(loads);
    site.stop().await;
}
