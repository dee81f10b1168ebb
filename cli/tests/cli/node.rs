//! `tidegate node` against a real controller process.

use serde_json::Value;

use crate::support::{Controller, out};

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
                begin; insert into t values (4); commit;";
    std::fs::write(&script, text).unwrap();
    let (script, file) = (script.to_str().unwrap(), database.to_str().unwrap());
    let output = controller.run(&["-o", "json", "node", "--sql", script, "--db", file]);
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let errors: Vec<&str> = lines.iter().map(|line| line["error"].as_str().unwrap()).collect();
    assert!(errors[3].contains("UNIQUE") && errors[4..6].iter().all(|error| error.starts_with("not run")));
    assert_eq!(errors.iter().filter(|error| !error.is_empty()).count(), 3, "{errors:?}");
    let connection = rusqlite::Connection::open(&database).unwrap();
    let kept: String = connection.query_row("select group_concat(a) from t", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "3,4");
}
