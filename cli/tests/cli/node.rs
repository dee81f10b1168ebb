//! `tidegate node` against a real controller process.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Controller, err, eventually, out, tidegate};

#[test]
fn a_statement_dearer_than_the_burst_runs_every_time_and_the_rest_is_owed() {
    const BURST: i64 = 2_000_000;
    let controller = Controller::start();
    controller.ok(&["group", "create", "small", "--rate", "20", "--burst", "2"]);
    controller.ok(&["bind", "add", "small", "--user", "ann"]);
    // Several times 6 ms of CPU, which the burst buys.
    let dear = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 400000) select count(*) from n;";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.sql");
    std::fs::write(&file, dear.repeat(3)).unwrap();
    let output = controller.run(&[
        "--output",
        "json",
        "node",
        "--user",
        "ann",
        "--max-wait",
        "5m",
        "--sql",
        file.to_str().unwrap(),
    ]);
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(output.status.success() && lines.len() == 3, "{lines:?}");
    for (run, line) in lines.iter().enumerate() {
        let micro = |name: &str| line[name].as_i64().unwrap();
        assert_eq!(line["error"], "", "{line}");
        // Its earlier cost is more than the group can ever hold.
        assert!(micro("charged_micro_ru") > 2 * BURST && micro("estimate_micro_ru") <= BURST, "{line}");
        assert!(run == 0 || micro("waited_us") > 0, "what is owed is paid first: {line}");
    }
}

/// SQLite leaves a transaction open where a statement of it fails, and a refusal never gets there: a COMMIT behind
/// either would keep half of it.
#[test]
fn a_transaction_that_lost_a_statement_is_kept_in_no_part() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let (script, database) = (folder.path().join("work.sql"), folder.path().join("work.db"));
    let text = "create table t(a unique); begin; insert into t values (1); insert into t values (1);\n\
                insert into t values (2); commit; insert into t values (3);\n\
                begin; insert into t values (4); commit;\n\
                begin immediatly; insert into t values (5); commit;\n\
                begin; savepoint s; insert into t values (4); release s; insert into t values (6); commit;\n\
                savepoint s; insert into t values (4); savepoint r; release r; insert into t values (7); release s;\n\
                savepoint s; insert into t values (8); release s";
    std::fs::write(&script, text).unwrap();
    let (script, file) = (script.to_str().unwrap(), database.to_str().unwrap());
    // Longer than SQLite can wait for a lock.
    let output =
        controller.run(&["-o", "json", "node", "--sql", script, "--db", file, "--max-wait", "100000h"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let errors: Vec<&str> = lines.iter().map(|line| line["error"].as_str().unwrap()).collect();
    assert!(errors[3].contains("UNIQUE") && errors[4..6].iter().all(|error| error.starts_with("not run")));
    let failed: Vec<usize> = (0..errors.len()).filter(|at| !errors[*at].is_empty()).collect();
    let lost = [3..6, 10..13, 15..19, 20..25];
    assert_eq!(failed, lost.clone().into_iter().flatten().collect::<Vec<_>>(), "{errors:?}");
    for first in lost.iter().map(|range| range.start) {
        assert!(!errors[first].starts_with("not run"), "{errors:?}");
    }
    assert!(err(&output).contains("15 statements were refused or failed, see above"), "{}", err(&output));
    let connection = rusqlite::Connection::open(&database).unwrap();
    let kept: String = connection.query_row("select group_concat(a) from t", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "3,4,8");
}

/// What is asked for up front is asked of the group of the user: there it has to be known what statements cost.
#[test]
fn what_a_demoted_statement_cost_is_known_to_the_group_that_was_asked() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "spill", "--rate", "1000000", "--priority", "low"]);
    controller.ok(&["group", "create", "shop", "--rate", "1", "--burst", "1", "--demote-to", "spill"]);
    controller.ok(&["bind", "add", "shop", "--tenant", "acme", "--user", "ann"]);
    let twice = |what: &str| {
        let numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000)";
        format!("{numbers} select {what}(i) from n;").repeat(2)
    };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("work.sql");
    std::fs::write(&script, ["count", "max", "min"].map(twice).concat()).unwrap();
    let who = ["-o", "json", "node", "--tenant", "acme", "--user", "ann", "--max-wait", "5m"];
    let output = controller.run(&[&who[..], &["--sql", script.to_str().unwrap()]].concat());
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(output.status.success() && lines.len() == 6, "{}", err(&output));
    let micro = |line: &Value, name: &str| line[name].as_i64().unwrap();
    // The asked group has its burst or not yet, and then owes for a minute and more: it pays for one of them at most.
    let demoted = |pair: &&[Value]| pair.iter().all(|line| line["group"] == "spill");
    let pairs: Vec<&[Value]> = lines.chunks(2).filter(demoted).collect();
    assert!(!pairs.is_empty(), "{lines:?}");
    for pair in pairs {
        assert!(micro(&pair[1], "estimate_micro_ru") >= micro(&pair[0], "charged_micro_ru"), "{pair:?}");
    }
    for line in &lines {
        let parts = ["cpu", "read", "write", "network"].map(|part| micro(line, &format!("{part}_micro_ru")));
        assert_eq!(parts.iter().sum::<i64>(), micro(line, "charged_micro_ru"), "{line}");
    }
    for group in ["shop", "spill"] {
        let paid = lines.iter().filter(|line| line["group"] == group);
        let (count, sum) =
            (paid.clone().count(), paid.map(|line| micro(line, "charged_micro_ru")).sum::<i64>());
        let usage = controller.json(&["usage", group]);
        let total = |name: &str| usage[0]["total"][name].as_i64().unwrap_or_default();
        assert_eq!(
            (total("operations"), total("total_micro_ru")),
            (i64::try_from(count).unwrap(), sum),
            "{usage}"
        );
    }
}

/// An operator who ends it wants it to end, and what ran until then is to be paid, once.
#[test]
fn a_node_that_is_interrupted_ends_and_what_ran_is_charged_once() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "slow", "--rate", "1", "--burst", "1"]);
    controller.ok(&["group", "create", "fast", "--rate", "1000000"]);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("work.sql");
    let count = |to: &str| {
        format!(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < {to}) select count(*) from n;"
        )
    };
    // In one group the second statement waits for longer than any test, in the other one it runs for longer.
    for (group, user, second, signal) in
        [("slow", "sue", "2", Signal::TERM), ("fast", "fay", "1000000000000", Signal::INT)]
    {
        controller.ok(&["bind", "add", group, "--user", user]);
        std::fs::write(&script, [count("400000"), count(second), count("3")].concat()).unwrap();
        let mut command = tidegate();
        command.args(["--endpoint", &controller.endpoint, "-o", "json", "node", "--max-wait", "60m"]);
        command.args(["--user", user, "--sql", script.to_str().unwrap()]);
        let mut node =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
        let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        kill_process(Pid::from_child(&node), signal).unwrap();
        let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        let output = node.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{group}");
        let said = err(&output);
        assert!(said.contains("interrupted; the remaining statements did not run"), "{group}: {said}");
        // The second one was cut off, or had not begun; the third never ran.
        assert!(rest.len() <= 1 && rest.iter().all(|line| line["error"] != ""), "{group}: {rest:?}");
        let charged = |line: &Value| line["charged_micro_ru"].as_u64().unwrap();
        let paid: u64 = charged(&first) + rest.iter().map(charged).sum::<u64>();
        let counted = || controller.json(&["usage", group])[0]["total"]["total_micro_ru"].clone();
        eventually("all of it is counted, and no more", || counted() == paid);

        let table = controller.ok(&["usage", group, "--history", "hour"]);
        assert!(table.starts_with("FROM (UTC)") && table.lines().count() >= 2, "{table}");
        for step in ["second", "minute", "hour"] {
            let points = controller.json(&["usage", group, "--history", step]);
            let points = points.as_array().unwrap();
            let micro = |point: &Value| point["amount"]["total_micro_ru"].as_u64().unwrap();
            assert_eq!(points.iter().map(micro).sum::<u64>(), paid, "{step}: {points:?}");
            let starts = controller.ok(&["usage", group, "--history", step, "-o", "name"]);
            assert_eq!(starts.lines().next().unwrap(), points[0]["start_unix_s"].to_string(), "{step}");
        }
    }
}

#[test]
fn a_file_without_a_statement_is_a_mistake_and_what_failed_shows_its_cost() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("work.sql");
    let run = |text: &str| {
        std::fs::write(&script, text).unwrap();
        controller.run(&["node", "--sql", script.to_str().unwrap()])
    };
    let empty = run(" ;\n-- nothing\n;");
    assert_eq!(empty.status.code(), Some(2), "{}", out(&empty));
    assert!(err(&empty).contains("no statement to run; write some"), "{}", err(&empty));
    let failed = run("select nonsense; select 1");
    assert_eq!(failed.status.code(), Some(1));
    let text = out(&failed);
    assert!(text.contains("failed: ") && text.contains("nonsense"), "{text}");
    assert!(text.contains("select 1\n") && text.contains("1 rows, 0 changed"), "{text}");
    assert!(err(&failed).contains("a statement was refused or failed, see above"), "{}", err(&failed));
}
