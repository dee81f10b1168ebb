//! Commands that draw on a terminal, in a pseudo terminal that a driver in Python holds.

use std::process::Command;

use crate::support::{Controller, err, out};

#[test]
fn a_terminal_is_taken_drawn_on_and_given_back_whatever_happens() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "2000", "--comment", "a comment of some length"]);
    controller.ok(&["group", "create", "reports", "--parent", "shop", "--rate", "300"]);
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/terminal.py");
    let arguments = [driver, env!("CARGO_BIN_EXE_tidegate"), &controller.endpoint];
    let output = Command::new("/usr/bin/python3").args(arguments).output().unwrap();
    assert!(output.status.success() && out(&output) == "all is well\n", "{}", err(&output));
}
