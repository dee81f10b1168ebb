//! How the command is called: help, mistakes, exit statuses, and a controller that is not there.

use std::net::TcpListener;

use crate::support::{err, out, run};

const COMMANDS: [&str; 16] = [
    "controller",
    "node",
    "demo",
    "group",
    "bind",
    "resolve",
    "usage",
    "client",
    "lease",
    "cost-table",
    "sql",
    "audit",
    "status",
    "top",
    "lab",
    "completions",
];

#[test]
fn every_command_explains_itself() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    for command in COMMANDS {
        assert!(out(&help).contains(&format!("\n  {command} ")), "{command} is not in the help");
        let of_command = run(&[command, "--help"]);
        assert!(of_command.status.success() && out(&of_command).contains("Usage: tidegate"), "{command}");
    }
    for (command, example) in [
        (["group", "create"], "tidegate group create shop --rate '2000 RU/s'"),
        (["bind", "add"], "tidegate bind add"),
        (["cost-table", "put"], "cpu_ns = \"1/3000000\""),
        (["sql", "-"], "ALTER USER ann RESOURCE GROUP shop"),
    ] {
        let help = out(&run(&[command[0], command[1], "--help"]));
        assert!(help.contains(example), "{help}");
    }
    assert!(out(&run(&["demo", "--help"])).contains("Exit status 0 means that every bound held"));
    assert!(out(&run(&["--version"])).starts_with("tidegate "));
}

#[test]
fn mistakes_in_the_call_are_told_apart_from_failures() {
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["group"],
        &["group", "create"],
        &["group", "create", "g", "--weight", "0"],
        &["group", "create", "g"],
        &["group", "create", "g", "--rate", ""],
        &["group", "alter", "g", "--rate", " "],
        &["group", "create", "g", "--rate", "1", "--burstable", "moderated:"],
        &["group", "create", "g", "--ttl", "soon"],
        &["bind", "add", "g"],
        &["usage", "--history", "minute"],
        &["usage", "--history", "week", "g"],
        &["status", "--output", "xml"],
        &["top", "--interval", "1us"],
        &["demo", "--seconds", "0"],
        &["demo", "--user", "analyst"],
        &["completions", "dos"],
        &["audit", "--limit", "0"],
        &["status", "--endpoint", "ftp://here"],
        &["status", "--endpoint", "http://"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(!err(&output).is_empty(), "{arguments:?} says nothing");
    }
}

#[test]
fn what_is_wrong_in_a_call_is_told_beside_the_usage_of_its_command() {
    for (arguments, usage) in [
        (&["group", "create", "g", "--rate", ""][..], "Usage: tidegate group create "),
        (&["group", "delete", "g", "-o", "name"], "Usage: tidegate group delete "),
        (&["store", "check", "s", "--actor", "ann"], "Usage: tidegate store check "),
        (&["controller", "--endpoint", "http://127.0.0.1:1"], "Usage: tidegate controller "),
    ] {
        let said = err(&run(arguments));
        assert!(said.contains(usage), "{arguments:?}: {said}");
    }
}

#[test]
fn a_controller_that_is_not_there_is_named_with_a_remedy() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}");
    for command in [&["status"][..], &["group", "list"], &["top", "--once"], &["bind", "list"], &["usage"]] {
        let output = run(&[&["--endpoint", &endpoint], command].concat());
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        let said = err(&output);
        assert!(said.contains(&format!("cannot reach the controller at {endpoint}")), "{said}");
        assert!(said.contains("refused") && said.contains("`tidegate controller`"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn the_environment_names_the_controller_and_a_flag_overrides_it() {
    let of = |arguments: &[&str]| {
        let output = crate::support::tidegate()
            .env("TIDEGATE_ENDPOINT", "http://127.0.0.1:1")
            .args(arguments)
            .output();
        err(&output.unwrap())
    };
    assert!(of(&["status"]).contains("127.0.0.1:1:"));
    assert!(of(&["status", "--endpoint", "http://127.0.0.1:2"]).contains("127.0.0.1:2:"));
}

#[test]
fn a_missing_file_is_told_before_the_demo_begins() {
    let output = run(&["demo", "--sql", "/nowhere/mine.sql"]);
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    assert!(
        said.starts_with("tidegate: cannot read /nowhere/mine.sql") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn completions_are_scripts() {
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef tidegate"), ("fish", "complete -c tidegate")]
    {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && out(&output).contains(sign), "{shell}");
    }
}
