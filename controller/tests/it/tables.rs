//! Tables that the console gives away as files: what they have is what nodes said.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidegate_console::quantity::utc;
use tidegate_controller::Controller;
use tidegate_controller::clock::Clock;
use tidegate_proto::v1;
use tokio::time::{interval, timeout};

use super::console::{Browser, Page};
use super::support::{Lab, MemoryStore, Node, PATIENCE, config, entry, tell};

type Row = BTreeMap<String, String>;

/// The rows of a table without commas in its cells, by the names of its columns.
fn rows(page: &Page) -> Vec<Row> {
    assert!(page.header("content-type").unwrap().starts_with("text/csv"), "{page:?}");
    let mut lines = page.text.lines().map(|line| line.split(',').map(str::to_owned));
    let names: Vec<String> = lines.next().unwrap().collect();
    lines.map(|cells| names.iter().cloned().zip(cells).collect()).collect()
}

fn has(row: &Row, cells: &[(&str, &str)]) {
    for (name, cell) in cells {
        assert_eq!(row[*name], *cell, "{name}: {row:?}");
    }
}

/// A controller whose clock stands still, so that no lease ends.
async fn still() -> Lab {
    let folder = tempfile::tempdir().unwrap();
    let (store, clock) = (Arc::new(MemoryStore::default()), Clock::driven(Arc::<AtomicU64>::default()));
    let running = Controller::start_at(config(&folder), store, clock).await.unwrap();
    Lab { folder, running }
}

#[tokio::test]
async fn groups_and_nodes_are_listed_with_what_nodes_say_of_them() {
    let lab = still().await;
    lab.group("shop", "100").await;
    let mut node = Node::connect(&lab, "node-1", 1).await.unwrap();
    let ask = v1::RenewEntry { backlog_micro_ru: 7_000_000, waiting: 3, ..entry("shop", 60) };
    let stats = v1::NodeStats { process_cpu_ns: 11, metered_cpu_ns: 7, resident_bytes: 5 };
    let renew = v1::Renew { entries: vec![ask], node: Some(stats), ..v1::Renew::default() };
    node.renew_as(renew).await.unwrap();
    let total = v1::Consumption {
        cpu_micro_ru: 2_000_000,
        read_micro_ru: 3_000_000,
        write_micro_ru: 5_000_000,
        network_micro_ru: 7_000_000,
        flat_micro_ru: 11_000_000,
        operations: 9,
        throttled: 4,
        waited_us: 60_000_000,
        ..v1::Consumption::default()
    };
    let waited = v1::Waited { since_us: 0, lengths: vec![40], waits: vec![4], in_vain: 0 };
    let report =
        v1::Report { group: "shop".to_owned(), incarnation: 1, total: Some(total), waited: vec![waited] };
    node.report(vec![report]).await;
    let mut browser = Browser::at(&lab.running);
    let (_, leases) = lab.http("GET", "/v1/leases?group=shop", None).await;
    let demand: f64 = leases["groups"][0]["demand"].as_str().unwrap().parse().unwrap();
    assert!(demand >= 60.0, "{leases}");
    let demand = (demand * 1e6).to_string();
    let p99 = leases["groups"][0]["waits"]["p99_us"].to_string();
    let shop = [
        ("parent", ""),
        ("limit_micro_ru_per_sec", "100000000"),
        ("demand_micro_ru_per_sec", demand.as_str()),
        ("backlog_micro_ru", "7000000"),
        ("waiting", "3"),
        ("p99_wait_us", p99.as_str()),
        ("refused", "4"),
        ("total_micro_ru", "28000000"),
        ("leases", "1"),
    ];
    let groups = rows(&browser.get("/console/groups?as=csv").await);
    has(groups.iter().find(|row| row["group"] == "shop").unwrap(), &shop);
    let idle = [("waiting", "0"), ("leases", "0"), ("total_micro_ru", "0"), ("p99_wait_us", ""), ("why", "")];
    has(groups.iter().find(|row| row["group"] == "default").unwrap(), &idle);
    let nodes = rows(&browser.get("/console/nodes?as=csv").await);
    let cells = [
        ("node", "node-1"),
        ("start", "1"),
        ("software", "test/1"),
        ("connected", "true"),
        ("leases", "1"),
        ("process_cpu_ns", "11"),
        ("metered_cpu_ns", "7"),
        ("resident_bytes", "5"),
    ];
    has(&nodes[0], &cells);
    assert!(rows(&browser.get("/console/nodes?as=csv&q=other").await).is_empty());

    let service = lab.running.service();
    for (range, resolution) in [("", "minute"), ("1h", "minute"), ("24h", "minute"), ("90d", "hour")] {
        let points = service.accounts().usage_history("shop", resolution, 0, 0).unwrap();
        let start = points.iter().find(|(.., total)| total.operations > 0).unwrap().0;
        let page = browser.get(&format!("/console/groups/shop?as=csv&range={range}")).await;
        let used: Vec<Row> = rows(&page).into_iter().filter(|row| row["micro_ru"] != "0").collect();
        let start = utc(start * 1_000);
        let cells = [
            ("start", start.as_str()),
            ("micro_ru", "28000000"),
            ("cpu_micro_ru", "2000000"),
            ("read_micro_ru", "3000000"),
            ("write_micro_ru", "5000000"),
            ("network_micro_ru", "7000000"),
            ("flat_micro_ru", "11000000"),
        ];
        assert_eq!(used.len(), 1, "{range}: {page:?}");
        has(&used[0], &cells);
    }
    assert_eq!(browser.get("/console/groups/none?as=csv").await.status, 404);
    for (path, file) in [
        ("/console", "use"),
        ("/console/groups", "groups"),
        ("/console/groups/shop", "group"),
        ("/console/nodes", "nodes"),
        ("/console/statements", "statements"),
        ("/console/audit", "audit"),
    ] {
        let page = browser.get(&format!("{path}?as=csv")).await;
        let saved = format!("attachment; filename=\"tidegate-{file}.csv\"");
        assert_eq!(page.header("content-disposition"), Some(saved.as_str()), "{path}");
        assert_eq!(page.header("content-type"), Some("text/csv; charset=utf-8"), "{path}");
    }
    lab.running.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_use_of_the_last_seconds_is_a_table_by_time_and_group() {
    let lab = Lab::start().await;
    let session = lab.running.service().leasing().hello("node", 1, "test").unwrap();
    tell(lab.running.service(), &session, 1, 1, 500);
    let mut browser = Browser::at(&lab.running);
    let mut again = interval(Duration::from_millis(50));
    let seen = async {
        loop {
            again.tick().await;
            let all = rows(&browser.get("/console?as=csv").await);
            if let Some(row) =
                all.into_iter().find(|row| row["group"] == "default" && row["ru_per_sec"] == "100")
            {
                return row;
            }
        }
    };
    let row = timeout(PATIENCE, seen).await.unwrap();
    let now = utc(lab.running.service().clock().unix_ms());
    assert!(row["time"] <= now && row["time"][..10] >= *"2026-01-01", "{row:?} by {now}");
    lab.running.shutdown().await.unwrap();
}
