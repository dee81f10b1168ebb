//! Commands whose output nobody reads any more: their work is done, and their status is what it is.

use std::io::{BufRead as _, BufReader, Read as _, Write as _, pipe};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use rusqlite::Connection;
use serde_json::json;

use crate::support::{Controller, err, run, tidegate};

/// Runs a command of this controller with an output whose reader has gone.
fn unread(endpoint: &str, arguments: &[&str]) -> Output {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = tidegate();
    if !endpoint.is_empty() {
        command.env("TIDEGATE_ENDPOINT", endpoint);
    }
    let child = command.args(arguments).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn();
    child.unwrap().wait_with_output().unwrap()
}

#[test]
fn statements_are_all_done_although_nobody_reads_what_they_give() {
    let controller = Controller::start();
    let text = "CREATE RESOURCE GROUP a RU_PER_SEC=1; CREATE RESOURCE GROUP b RU_PER_SEC=1";
    let output = unread(&controller.endpoint, &["sql", text]);
    assert!(output.status.success(), "{}", err(&output));
    let groups = controller.json(&["group", "list"]);
    let names: Vec<_> = groups.as_array().unwrap().iter().map(|group| group["name"].clone()).collect();
    assert_eq!(names, [json!("a"), json!("b"), json!("default")]);
    let output = unread(&controller.endpoint, &["sql", "SHOW RESOURCE GROUPS; DROP RESOURCE GROUP nowhere"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("statement 2 of 2"), "{}", err(&output));
}

#[test]
fn a_node_runs_all_statements_although_nobody_reads_what_they_cost() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let (script, database) = (folder.path().join("work.sql"), folder.path().join("work.db"));
    std::fs::write(&script, "create table t(a); insert into t values (1); insert into t values (2);")
        .unwrap();
    let arguments = ["node", "--sql", script.to_str().unwrap(), "--db", database.to_str().unwrap()];
    let output = unread(&controller.endpoint, &arguments);
    assert!(output.status.success(), "{}", err(&output));
    let rows = |database: &Path| -> i64 {
        let connection = Connection::open(database).unwrap();
        connection.query_row("select count(*) from t", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(rows(&database), 2);
}

/// Where they listen may stand in their settings: that nobody reads it is no reason to end.
fn serving(arguments: &[&str]) -> Child {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = tidegate();
    command.args(arguments).args(["--log-format", "json", "--until-stdin-ends"]).env("TIDEGATE_LOG", "info");
    command.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_controller_serves_although_nobody_reads_where_and_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let mut child =
        serving(&["controller", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", data]);
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let log = err(&output);
    assert!(output.status.success(), "{log}");
    assert!(log.contains("controller started") && log.contains("controller stopped"), "{log}");
}

#[test]
fn a_gateway_serves_although_nobody_reads_where() {
    let controller = Controller::start();
    // Nothing listens there.
    let upstream = ["--upstream", "postgres://127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let begin = ["gateway", "--controller", &controller.endpoint, "--metrics", "127.0.0.1:0"];
    let mut gateway = serving(&[&begin[..], &upstream, &upstream].concat());
    let log = BufReader::new(gateway.stderr.take().unwrap()).lines();
    let address = |line: String| {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let fields = &line["fields"];
        (fields["message"] == "listening").then(|| fields["address"].as_str().unwrap().to_owned())
    };
    let mut addresses = log.map(Result::unwrap).filter_map(address);
    let addresses = [addresses.next().unwrap(), addresses.next().unwrap()];
    // Whether there is TLS: a question of clients that needs no database.
    for turn in 0..100 {
        let mut stream = TcpStream::connect(&addresses[turn % 2]).unwrap();
        stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"N");
    }
    drop(gateway.stdin.take());
    assert!(gateway.wait().unwrap().success());
}

#[test]
fn a_status_that_answers_a_question_is_the_same_without_a_reader() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.yaml");
    std::fs::write(&file, "kind: Group\nname: shop\nru_per_sec: 5\n").unwrap();
    let differs = ["diff", "-f", file.to_str().unwrap()];
    assert_eq!(unread(&controller.endpoint, &differs).status.code(), Some(1));
    controller.ok(&["apply", "-f", file.to_str().unwrap()]);
    assert_eq!(unread(&controller.endpoint, &differs).status.code(), Some(0));
    // Nothing listens there.
    for asks in ["cluster status", "doctor"] {
        let arguments: Vec<&str> = asks.split(' ').collect();
        let output = unread("http://127.0.0.1:1", &arguments);
        assert_eq!(output.status.code(), Some(1), "{asks}: {}", err(&output));
    }
}

#[test]
fn all_certificates_are_renewed_although_nobody_reads_until_when() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    assert!(run(&["cert", "init", "--dir", dir]).status.success());
    let mut files = Vec::new();
    for name in ["one", "two"] {
        assert!(run(&["cert", "issue", "viewer", name, "--dir", dir, "--days", "9"]).status.success());
        files.push(format!("{dir}/{name}.pem"));
    }
    let output = unread("", &["cert", "renew", "--dir", dir, "--days", "70", &files[0], &files[1]]);
    assert!(output.status.success(), "{}", err(&output));
    for file in files {
        let shown = run(&["cert", "show", &file, "-o", "json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert!(shown[0]["days_left"].as_i64().unwrap() > 60, "{shown}");
    }
}

/// Status 1 would say that something differs.
#[test]
fn a_diff_that_fails_before_it_asks_has_the_status_of_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let contexts = folder.path().join("contexts.toml");
    std::fs::write(&contexts, "current = 1\n").unwrap();
    let mut command = tidegate();
    command.env("TIDEGATE_CONTEXTS", &contexts).args(["diff", "-f", "shop.yaml"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("contexts.toml"), "{}", err(&output));
}
