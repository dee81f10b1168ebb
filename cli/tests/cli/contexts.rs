//! Controllers by name, as an operator of several uses them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Controller, err, out, tidegate};

/// A command of a user whose contexts are in this folder.
fn asked(folder: &Path, words: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = tidegate();
    command.env("TIDEGATE_CONTEXTS", folder.join("mine/contexts.toml")).current_dir(folder);
    command.envs(environment.iter().copied()).args(words).output().unwrap()
}

fn ok(folder: &Path, words: &[&str]) -> String {
    let output = asked(folder, words, &[]);
    assert!(output.status.success(), "{words:?}: {}", err(&output));
    out(&output)
}

/// The only group of its own that a controller has.
fn group(folder: &Path, words: &[&str], environment: &[(&str, &str)]) -> String {
    let output = asked(folder, &[words, &["group", "list", "-o", "name"]].concat(), environment);
    assert!(output.status.success(), "{words:?}: {}", err(&output));
    out(&output).lines().filter(|name| *name != "default").collect()
}

#[test]
fn commands_go_to_the_current_context_unless_another_or_an_endpoint_is_named() {
    let (one, two) = (Controller::start(), Controller::start());
    one.ok(&["group", "create", "of-one", "--rate", "1"]);
    two.ok(&["group", "create", "of-two", "--rate", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = ok(folder, &["context", "add", "one", "--endpoint", &one.endpoint]);
    assert_eq!(said, "context one added, and current\n");
    assert_eq!(ok(folder, &["context", "add", "two", "--endpoint", &two.endpoint]), "context two added\n");
    assert_eq!(group(folder, &[], &[]), "of-one");
    assert_eq!(group(folder, &["--context", "two"], &[]), "of-two");
    assert_eq!(group(folder, &[], &[("TIDEGATE_CONTEXT", "two")]), "of-two");
    assert_eq!(group(folder, &["--endpoint", &two.endpoint], &[]), "of-two");
    assert_eq!(group(folder, &[], &[("TIDEGATE_ENDPOINT", &two.endpoint)]), "of-two");
    assert_eq!(ok(folder, &["context", "use", "two"]), format!("context two is current: {}\n", two.endpoint));
    assert_eq!(group(folder, &[], &[]), "of-two");
    let list: Value = serde_json::from_str(&ok(folder, &["context", "list", "-o", "json"])).unwrap();
    assert_eq!(
        (&list[1]["name"], &list[1]["current"], &list[1]["shows"]),
        (&json!("two"), &json!(true), &json!("nothing"))
    );
    let table = ok(folder, &["context", "list"]);
    assert!(table.contains("*        two") && table.contains(&one.endpoint), "{table}");

    let given =
        [("--context", "TIDEGATE_CONTEXT", "one"), ("--endpoint", "TIDEGATE_ENDPOINT", &two.endpoint)];
    for are_options in [[true, true], [true, false], [false, true], [false, false]] {
        let (mut words, mut environment) = (Vec::new(), Vec::new());
        for ((option, variable, value), is_option) in given.into_iter().zip(are_options) {
            if is_option { words.extend([option, value]) } else { environment.push((variable, value)) }
        }
        let both = asked(folder, &[&words[..], &["status"]].concat(), &environment);
        assert_eq!(both.status.code(), Some(2), "{words:?} {environment:?}: {}", out(&both));
        assert!(err(&both).contains("leave one out"), "{}", err(&both));
    }
    let elsewhere = [("TIDEGATE_CONTEXT", "one"), ("TIDEGATE_ENDPOINT", &two.endpoint)];
    let unasked = asked(folder, &["context", "list", "-o", "name"], &elsewhere);
    assert_eq!(out(&unasked), "one\ntwo\n", "{}", err(&unasked));
    let gone = asked(folder, &["--context", "gone", "status"], &[]);
    assert!(err(&gone).contains("no context \"gone\"; it has one, two"), "{}", err(&gone));
    let again = asked(folder, &["context", "add", "one", "--endpoint", &two.endpoint], &[]);
    assert!(err(&again).contains("--force"), "{}", err(&again));
    let none = asked(folder, &["context", "add", "three"], &[]);
    assert!(err(&none).contains("--endpoint URL"), "{}", err(&none));
    assert!(ok(folder, &["context", "remove", "two"]).contains("none is current"));
    assert_eq!(ok(folder, &["context", "list", "-o", "name"]), "one\n");
}

#[test]
fn a_context_shows_its_token_to_its_own_controller_only() {
    let (guarded, open) = (Controller::with(&["--authentication", "required"]), Controller::start());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let first = guarded.path("tidegate.redb.first-token");
    crate::support::eventually("the first token is there", || first.exists());
    fs::copy(&first, folder.join("token")).unwrap();
    let words = ["context", "add", "prod", "--endpoint", &guarded.endpoint, "--token-file", "token"];
    ok(folder, &words);
    let file = fs::read_to_string(folder.join("mine/contexts.toml")).unwrap();
    assert!(file.contains(folder.join("token").to_str().unwrap()) && !file.contains("tdg_"), "{file}");
    assert!(ok(folder, &["status"]).contains(&guarded.endpoint));
    assert!(ok(folder, &["context", "list"]).contains("token"));

    // Elsewhere nothing of the context counts; a token of the environment does.
    fs::set_permissions(folder.join("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = asked(folder, &["status"], &[]);
    assert!(err(&refused).contains("chmod 600"), "{}", err(&refused));
    ok(folder, &["--endpoint", &open.endpoint, "status"]);
    let token = fs::read_to_string(folder.join("token")).unwrap();
    let by_variable = asked(folder, &["status"], &[("TIDEGATE_TOKEN", token.trim())]);
    assert!(by_variable.status.success(), "{}", err(&by_variable));

    let missing = ["context", "add", "x", "--endpoint", "https://a:1", "--ca", "no.pem"];
    let missing = err(&asked(folder, &missing, &[]));
    assert!(missing.contains("cannot read no.pem"), "{missing}");
    fs::set_permissions(folder.join("mine/contexts.toml"), fs::Permissions::from_mode(0o666)).unwrap();
    let writable = err(&asked(folder, &["status"], &[]));
    assert!(writable.contains("others can change where commands go"), "{writable}");
}
