//! Tokens as operators use them: the first, those of others, and their end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

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
