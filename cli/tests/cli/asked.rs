//! `tidegate apply --prune` asks on a terminal what it may delete, in a pseudo terminal that a driver in Python holds.

use std::process::{Command, Output};

use crate::support::{Controller, err, out};

/// Prunes groups on a terminal; `meanwhile` is run and `answer` typed when the question is there.
fn prune(controller: &Controller, file: &str, meanwhile: &str, answer: &str) -> Output {
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ask.py");
    let mut command = Command::new("/usr/bin/python3");
    command.args([driver, meanwhile, answer, env!("CARGO_BIN_EXE_tidegate")]);
    command.args(["--endpoint", &controller.endpoint, "apply", "-f", file, "--prune", "groups"]);
    command.env("TIDEGATE_CONTEXTS", "/nonexistent/contexts.toml").output().unwrap()
}

#[test]
fn groups_that_no_file_names_go_only_when_the_user_says_yes_to_just_those() {
    let controller = Controller::start();
    for name in ["shop", "old", "older"] {
        controller.ok(&["group", "create", name, "--rate", "5"]);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("groups.yaml");
    std::fs::write(&file, "kind: Group\nname: shop\nru_per_sec: 7\n...\n").unwrap();
    let file = file.to_str().unwrap();
    let groups = || controller.ok(&["group", "list", "-o", "name"]);
    let before = controller.json(&["group", "list"]);
    // A line that is empty, another word, and the end of the input (Ctrl-D).
    for answer in ["\n", "n\n", "yeah\n", "\u{4}"] {
        let output = prune(&controller, file, ":", answer);
        let said = out(&output);
        assert_eq!(output.status.code(), Some(1), "{answer:?}: {said}{}", err(&output));
        assert!(said.contains("2 that the files do not name would be deleted: group "), "{said}");
        assert!(said.contains("group old,") || said.contains("group old\r"), "{said}");
        assert!(said.contains("group older"), "{said}");
        assert!(said.contains("nothing is changed"), "{answer:?}: {said}");
        assert_eq!(controller.json(&["group", "list"]), before, "{answer:?}");
    }
    // What was agreed to is of the definitions that were shown.
    let meanwhile = format!(
        "{} --endpoint {} group create newer --rate 5",
        env!("CARGO_BIN_EXE_tidegate"),
        controller.endpoint
    );
    let late = prune(&controller, file, &meanwhile, "y\n");
    assert_eq!(late.status.code(), Some(1), "{}{}", out(&late), err(&late));
    assert_eq!(groups(), "default\nnewer\nold\nolder\nshop\n", "{}", out(&late));

    let done = prune(&controller, file, ":", " YES \n");
    assert_eq!(done.status.code(), Some(0), "{}{}", out(&done), err(&done));
    assert_eq!(groups(), "default\nshop\n");
    assert_eq!(controller.json(&["group", "show", "shop"])["ru_per_sec"], "7");
}
