//! The demo, whole: real processes, a kill, a lowered cap, one's own statements, and the verdict.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{err, eventually, out, tidegate};

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
    let output =
        tidegate().args(arguments).env("TMPDIR", temporary.path()).stdin(Stdio::null()).output().unwrap();
    let told = err(&output);
    assert!(output.status.success(), "{told}\n{}", out(&output));
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((&report["bounds_held"], &report["ledger_equal"]), (&true.into(), &true.into()));
    assert_eq!(report["node_starts"], 5, "three nodes, one of them twice, and one's own statements");
    let groups = report["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 7);
    for group in groups {
        assert!(group["admitted_ru_per_sec"].as_f64().unwrap() > 0.0, "{group}");
        assert!(group["worst_excess_micro_ru"].as_i64() <= group["bound_micro_ru"].as_i64(), "{group}");
    }
    for group in
        groups.iter().filter(|group| ["trial", "(server)"].contains(&group["group"].as_str().unwrap()))
    {
        let [refused, ran] = ["refused", "operations"].map(|count| group[count].as_u64().unwrap());
        assert!(refused > 0 && ran > 0, "{group}");
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
    assert_eq!(temporary.path().read_dir().unwrap().count(), 0, "the directory of the demo is removed");
}

#[test]
fn the_demo_of_a_cluster_kills_the_controller_that_leads_and_its_report_holds() {
    let temporary = tempfile::tempdir().unwrap();
    let output = tidegate()
        .args(["demo", "--cluster", "--seconds", "6", "--orders", ORDERS, "--output", "json"])
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = err(&output);
    assert!(output.status.success(), "{told}\n{}", out(&output));
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((&report["bounds_held"], &report["ledger_equal"]), (&true.into(), &true.into()));
    let takeover = &report["takeover"];
    assert!(takeover["granted_after_us"].as_u64() > Some(0), "{takeover}");
    assert_ne!(takeover["killed"], takeover["leads"]);
    assert!(takeover["longest_without_admission_us"].as_u64() > Some(0), "{takeover}");
    assert!(told.contains("killing the controller that leads"), "{told}");
    assert_eq!(temporary.path().read_dir().unwrap().count(), 0, "the directory of the demo is removed");
}

#[test]
fn a_cluster_without_etcd_names_its_package() {
    let empty = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let output = tidegate()
        .args(["demo", "--cluster", "--seconds", "6", "--orders", "2000"])
        .env("PATH", empty.path())
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = err(&output);
    assert!(told.contains("etcd is not on the PATH") && told.contains("etcd-server"), "{told}");
}

#[test]
fn an_interrupt_ends_the_demo_early_with_its_report() {
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = tidegate()
        .args(["demo", "--seconds", "600", "--orders", ORDERS])
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(demo.stderr.take().unwrap()).lines().map(Result::unwrap);
    told.find(|line| line.starts_with("   2 s")).unwrap();
    let pid = Pid::from_child(&demo);
    kill_process(pid, Signal::INT).unwrap();
    assert!(told.any(|line| line == "interrupted; ending"));
    assert_eq!(told.filter(|line| line.starts_with("tidegate: ")).count(), 0);
    let output = demo.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", out(&output));
    assert!(out(&output).contains("every bound held"), "{}", out(&output));
    assert_eq!(temporary.path().read_dir().unwrap().count(), 0, "the directory of the demo is removed");
}

#[test]
fn a_demo_that_is_killed_leaves_no_process_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = tidegate()
        .args(["demo", "--seconds", "600", "--orders", ORDERS])
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(demo.stderr.take().unwrap()).lines().map(Result::unwrap);
    told.find(|line| line.starts_with("   1 s")).unwrap();
    let children = children(demo.id());
    assert_eq!(children.len(), 4, "a controller and three nodes");
    demo.kill().unwrap();
    demo.wait().unwrap();
    // The kernel has sent the signals before the demo could be waited for; that they act is a matter of moments.
    eventually("its processes have ended", || !children.iter().any(|pid| is_running(*pid)));
}

/// Processes that `pid` has started.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let text: String = tasks.map(|task| of(task.unwrap())).collect();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Neither gone nor a zombie.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}
