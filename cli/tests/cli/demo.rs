//! The demo, whole: real processes, a kill, a lowered cap, one's own statements, and the verdict.

use std::process::Stdio;

use crate::support::{err, out, tidegate};

/// Small, so that a debug build makes it in a moment.
const ORDERS: &str = "6000";

#[test]
fn the_demo_holds_its_bounds_and_keeps_its_books() {
    let dir = tempfile::tempdir().unwrap();
    let sql = dir.path().join("mine.sql");
    std::fs::write(
        &sql,
        "SELECT count(*) FROM orders;\nSELECT region, count(*) FROM customer GROUP BY region;",
    )
    .unwrap();
    let arguments = [
        "demo",
        "--seconds",
        "6",
        "--orders",
        ORDERS,
        "--output",
        "json",
        "--user",
        "board",
        "--sql",
        sql.to_str().unwrap(),
    ];
    let temporary = tempfile::tempdir().unwrap();
    let output = tidegate()
        .args(arguments)
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = err(&output);
    assert!(output.status.success(), "{told}\n{}", out(&output));
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(
        (&report["bounds_held"], &report["ledger_equal"]),
        (&true.into(), &true.into())
    );
    assert_eq!(
        report["node_starts"], 5,
        "three nodes, one of them twice, and one's own statements"
    );
    let groups = report["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 6);
    for group in groups {
        assert!(group["admitted_ru_per_sec"].as_f64().unwrap() > 0.0, "{group}");
        assert!(
            group["worst_excess_micro_ru"].as_i64() <= group["bound_micro_ru"].as_i64(),
            "{group}"
        );
    }
    assert!(groups[0]["cap"].as_str().unwrap().contains(" -> "));
    assert!(!report["top_templates"].as_array().unwrap().is_empty());
    for row in report["ledger"].as_array().unwrap() {
        assert_eq!(row["nodes_micro_ru"], row["controller_micro_ru"], "{row}");
    }
    for word in [
        "building a database",
        "SIGKILL",
        "lowering the cap",
        "own: SELECT count(*) FROM orders",
        " RU in dashboards",
    ] {
        assert!(told.contains(word), "{word} is not in {told}");
    }
    assert_eq!(
        temporary.path().read_dir().unwrap().count(),
        0,
        "the directory of the demo is removed"
    );
}
