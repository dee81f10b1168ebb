//! Tokens as operators use them: the first, those of others, and their end.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use tidegate_test_servers::said;

use crate::support::{Controller, err, eventually, out, tidegate};

fn asked(controller: &Controller, token: &str, words: &[&str]) -> Output {
    let file = controller.path(token);
    let mut command = tidegate();
    command.args(["--endpoint", &controller.endpoint, "--token-file", file.to_str().unwrap()]);
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_controller_that_asks_for_tokens_says_how_to_make_the_first_and_nobody_else_gets_in() {
    let controller = Controller::with(&["--authentication", "required"]);
    let refused = controller.run(&["status"]);
    assert!(err(&refused).contains("no certificate and no token"), "{}", err(&refused));
    let first = "tidegate.redb.first-token";
    eventually("the first token is there", || controller.path(first).exists());
    let made = |name: &str, role: &str| {
        let (file, by) = (controller.path(name), if name == "root" { first } else { "root" });
        let words = ["token", "create", name, "--role", role, "--out", file.to_str().unwrap()];
        let output = asked(&controller, by, &words);
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!out(&output).contains("tdg_"), "{}", out(&output));
    };
    made("root", "admin");
    eventually("the first token is gone", || !controller.path(first).exists());
    made("ann", "operator");
    assert!(asked(&controller, "ann", &["group", "create", "shop", "--rate", "5"]).status.success());
    let shown = asked(&controller, "ann", &["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    assert!(out(&shown).contains("shop"), "{}", err(&shown));
    assert!(err(&asked(&controller, "ann", &["token", "list"])).contains("needs the role admin"));
    let audit = out(&asked(&controller, "ann", &["audit"]));
    assert!(audit.contains("operator ann (127.0.0.1:") && !audit.contains("tdg_"), "{audit}");

    // REST takes it, too, and the environment.
    let text = fs::read_to_string(controller.path("ann")).unwrap();
    let header = format!("authorization: Bearer {}", text.trim());
    let url = format!("{}/v1/groups", controller.rest);
    let page = Command::new("curl").args(["-sS", "-H", &header, &url]).output().unwrap();
    assert!(out(&page).contains("\"shop\""), "{}", out(&page));
    let by_variable = || {
        let mut command = tidegate();
        command.env("TIDEGATE_TOKEN", text.trim()).args([
            "--endpoint",
            &controller.endpoint,
            "group",
            "list",
        ]);
        command.output().unwrap()
    };
    assert!(out(&by_variable()).contains("shop"));
    let list = out(&asked(&controller, "root", &["token", "list", "-o", "json"]));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let ann = list.as_array().unwrap().iter().find(|token| token["name"] == "ann").unwrap();
    let id = ann["id"].to_string();
    assert!(out(&asked(&controller, "root", &["token", "revoke", &id])).contains("of ann revoked"));
    let refused = err(&by_variable());
    assert!(refused.contains("unknown, revoked or expired") && !refused.contains("tdg_"), "{refused}");
    let root =
        list.as_array().unwrap().iter().find(|token| token["name"] == "root").unwrap()["id"].to_string();
    assert!(err(&asked(&controller, "root", &["token", "revoke", &root])).contains("last admin"));
    fs::set_permissions(controller.path("root"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(err(&asked(&controller, "root", &["token", "list"])).contains("chmod 600"));
    let mut far = tidegate();
    far.env("TIDEGATE_TOKEN", text.trim()).args(["--endpoint", "http://192.0.2.1:7420", "status"]);
    assert!(err(&far.output().unwrap()).contains("without TLS"));
}

#[test]
fn a_node_and_a_gateway_show_tokens_where_others_show_certificates() {
    let controller = Controller::with(&["--authentication", "required"]);
    let first = "tidegate.redb.first-token";
    eventually("the first token is there", || controller.path(first).exists());
    let path = |name: &str| controller.path(name).to_str().unwrap().to_owned();
    let made = |by: &str, name: &str, more: &[&str]| {
        let file = path(name);
        let words = [&["token", "create", name, "--out", &file][..], more].concat();
        let output = asked(&controller, by, &words);
        assert!(output.status.success(), "{}", err(&output));
    };
    made(first, "root", &["--role", "admin"]);
    made("root", "till", &["--role", "node", "--groups", "default,shop"]);
    made("root", "gw-1", &["--role", "gateway"]);
    let refused =
        asked(&controller, "root", &["token", "create", "x", "--role", "viewer", "--groups", "shop"]);
    assert!(err(&refused).contains("only a node and a gateway can be confined"), "{}", err(&refused));
    let list = out(&asked(&controller, "root", &["token", "list"]));
    assert!(list.contains("default,shop"), "{list}");

    fs::write(controller.path("work.sql"), "select 1;").unwrap();
    let sql = path("work.sql");
    let ran = asked(&controller, "till", &["node", "--sql", &sql, "--identity", "till.pod-7"]);
    assert!(out(&ran).contains("RU in default"), "{}", err(&ran));
    let other = err(&asked(&controller, "till", &["node", "--sql", &sql, "--identity", "other"]));
    assert!(other.contains("use till, or till.") && !other.contains("tdg_"), "{other}");
    let text = fs::read_to_string(controller.path("till")).unwrap();
    let mut by_variable = tidegate();
    by_variable.env("TIDEGATE_TOKEN", text.trim()).args(["--endpoint", &controller.endpoint]);
    let ran = by_variable.args(["node", "--sql", &sql, "--identity", "till"]).output().unwrap();
    assert!(out(&ran).contains("RU in default"), "{}", err(&ran));
    let mut far = tidegate();
    far.args(["--endpoint", "http://192.0.2.1:7420", "--token-file", &path("till"), "node", "--sql", &sql]);
    assert!(err(&far.output().unwrap()).contains("without TLS"));

    let start = |identity: &str, token: &str, log: Stdio| {
        let mut gateway = tidegate();
        gateway.args(["--endpoint", &controller.endpoint, "gateway", "--identity", identity]);
        gateway.args([
            "--until-stdin-ends",
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            "postgres://127.0.0.1:1",
        ]);
        gateway.args(["--controller-token-file", &path(token)]);
        gateway.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    };
    let mut gateway = start("gw-1", "gw-1", said::log());
    eventually("the gateway has a session", || {
        let list = out(&asked(&controller, "root", &["client", "list"]));
        list.contains("tidegate-gateway/") && list.contains("gw-1")
    });
    drop(gateway.stdin.take());
    assert!(gateway.wait().unwrap().success());

    // A node may not follow the rules against runaways, which would otherwise not hold without a word.
    let log = File::create(path("log")).unwrap();
    let mut gateway = start("till.gw", "till", log.into());
    let logged = || fs::read_to_string(path("log")).unwrap();
    eventually("the gateway says that it has no rules", || logged().contains("rules are not followed"));
    drop(gateway.stdin.take());
    assert!(gateway.wait().unwrap().success());
    let logged = logged();
    assert!(logged.contains("it needs the role admin or gateway") && !logged.contains("tdg_"), "{logged}");
    assert_eq!(logged.matches("rules are not followed").count(), 1, "{logged}");
}

#[test]
fn a_tenant_sees_its_own_by_commands_and_by_sql() {
    let controller = Controller::with(&["--authentication", "required"]);
    let first = "tidegate.redb.first-token";
    eventually("the first token is there", || controller.path(first).exists());
    let (root, eve) = (controller.path("root"), controller.path("eve"));
    let ok = |by: &str, words: &[&str]| {
        let output = asked(&controller, by, words);
        assert!(output.status.success(), "{words:?}: {}", err(&output));
        out(&output)
    };
    ok(first, &["token", "create", "root", "--role", "admin", "--out", root.to_str().unwrap()]);
    let made =
        ["token", "create", "eve", "--role", "tenant", "--tenant", "acme", "--out", eve.to_str().unwrap()];
    ok("root", &made);
    assert!(ok("root", &["token", "list"]).contains("acme"));
    for (group, tenant) in [("shop", "acme"), ("hidden", "globex")] {
        ok("root", &["group", "create", group, "--rate", "5"]);
        ok("root", &["bind", "add", group, "--tenant", tenant]);
    }
    for words in [
        &["group", "list"][..],
        &["bind", "list"],
        &["sql", "SELECT name FROM information_schema.resource_groups"],
        &["sql", "SHOW RESOURCE GROUPS"],
    ] {
        let (own, all) = (ok("eve", words), ok("root", words));
        assert!(own.contains("shop") && !own.contains("hidden"), "{words:?}: {own}");
        assert!(all.contains("shop") && all.contains("hidden"), "{words:?}: {all}");
    }
    for table in ["usage", "statements"] {
        ok("eve", &["sql", &format!("SELECT * FROM tidegate.{table}")]);
    }
    let absent = err(&asked(&controller, "eve", &["group", "show", "nowhere"]));
    let hidden = err(&asked(&controller, "eve", &["group", "show", "hidden"]));
    assert_eq!(hidden.replace("hidden", "nowhere"), absent);
    for words in
        [&["status"][..], &["client", "list"], &["audit"], &["sql", "SELECT * FROM tidegate.clients"]]
    {
        let refused = err(&asked(&controller, "eve", words));
        assert!(refused.contains("has the role tenant"), "{words:?}: {refused}");
    }
    let without = err(&asked(&controller, "root", &["token", "create", "x", "--role", "tenant"]));
    assert!(without.contains("tenant: is missing"), "{without}");
}

/// What was revoked before one that cannot be is said, also to programs.
#[test]
fn tokens_that_are_revoked_before_one_that_does_not_exist_are_named() {
    let controller = Controller::start();
    for name in ["ann", "bob"] {
        controller.ok(&["token", "create", name, "--role", "viewer"]);
    }
    let output = controller.run(&["token", "revoke", "1", "77", "2", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(err(&output).contains("77"), "{}", err(&output));
    let revoked: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let names = |tokens: &serde_json::Value| -> Vec<String> {
        let tokens = tokens.as_array().unwrap().iter();
        tokens.map(|token| token["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&revoked), ["ann"]);
    assert_eq!(names(&controller.json(&["token", "list"])), ["bob"]);
    let nothing = controller.run(&["token", "revoke", "77", "-o", "json"]);
    assert_eq!((nothing.status.code(), out(&nothing).as_str()), (Some(1), ""));
}
