//! `tidegate sql` against a real controller process.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use crate::support::{Controller, err, out};

#[test]
fn statements_are_done_one_after_the_other() {
    let controller = Controller::start();
    let text = "CREATE RESOURCE GROUP shop RU_PER_SEC = 2000 PRIORITY = HIGH; -- and\n\
                ALTER USER ann RESOURCE GROUP shop; SET RESOURCE GROUP shop; SELECT CURRENT_RESOURCE_GROUP() AS g;";
    let said = controller.ok(&["sql", text]);
    assert_eq!(said, "ok, 1 changed\nok, 1 changed\nsession group shop\ng\nshop\n");
    assert_eq!(controller.json(&["resolve", "--user", "ann"])["group"], json!("shop"));
    let table = controller.ok(&["sql", "SHOW RESOURCE GROUPS"]);
    assert!(table.starts_with("NAME") && table.contains("shop     2000        HIGH"), "{table}");
    let created = controller.json(&["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    let text = created["rows"][0][1].as_str().unwrap();
    assert!(text.starts_with("CREATE RESOURCE GROUP `shop` RU_PER_SEC=2000, PRIORITY=HIGH"), "{text}");
    let usage =
        controller.json(&["sql", "SELECT ru, client FROM tidegate.usage WHERE resource_group = 'shop'"]);
    assert_eq!((&usage["rows"], &usage["columns"][0]["kind"]), (&json!([]), &json!("float")));
    let audit = controller.json(&["--actor", "bob", "audit", "--limit", "1"]);
    assert!(audit[0]["actor"].as_str().unwrap().starts_with("tester"), "{audit}");

    let again = controller.run(&["sql", "CREATE RESOURCE GROUP IF NOT EXISTS shop RU_PER_SEC=1"]);
    assert_eq!((again.status.code(), out(&again).as_str()), (Some(0), "ok, 0 changed\n"));
    assert!(err(&again).contains("note 8248"), "{}", err(&again));
    let dropped = controller.ok(&["sql", "--dialect", "postgres", "DROP RESOURCE GROUP IF EXISTS \"x\""]);
    assert_eq!(dropped, "ok, 0 changed\n");
}

#[test]
fn statements_come_from_files_and_the_standard_input() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("groups.sql");
    std::fs::write(&file, "CREATE RESOURCE GROUP a RU_PER_SEC=1;\nCREATE RESOURCE GROUP b RU_PER_SEC=2;\n")
        .unwrap();
    assert_eq!(controller.ok(&["sql", "-f", file.to_str().unwrap()]), "ok, 1 changed\nok, 1 changed\n");
    let mut process = crate::support::tidegate()
        .args(["--endpoint", &controller.endpoint, "sql"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = "SELECT count(*) FROM information_schema.resource_groups";
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert_eq!(out(&output), "count(*)\n       3\n");
}

#[test]
fn what_is_wrong_is_told_before_anything_is_done() {
    let controller = Controller::start();
    let text = "CREATE RESOURCE GROUP a RU_PER_SEC=1; CREATE RESOURCE GROUP b PRIORITY=HIGHT";
    let said = controller.refused(&["sql", text]);
    assert!(said.contains("statement 2 of 2: syntax error at line 1, column 34, near \"HIGHT\""), "{said}");
    assert_eq!(controller.json(&["group", "list"]).as_array().unwrap().len(), 1);
    let said = controller.refused(&["sql", "DROP RESOURCE GROUP nowhere"]);
    assert!(said.contains("group nowhere does not exist"), "{said}");
    for text in ["SELECT 1", "INSERT INTO t VALUES (1)"] {
        let said = controller.refused(&["sql", text]);
        assert!(said.contains("not a statement for tidegate"), "{said}");
    }
    assert!(controller.refused(&["sql", "EXPLAIN RU SELECT 1"]).contains("gateway"));
    assert_eq!(controller.run(&["sql", " ; -- nothing"]).status.code(), Some(2));
    assert_eq!(controller.run(&["sql", "SHOW RESOURCE GROUPS", "-f", "x"]).status.code(), Some(2));
}
