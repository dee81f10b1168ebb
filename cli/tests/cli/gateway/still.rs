//! A controller that stands still for a while, as on a machine with ten times more work than cores.

use std::fs::{File, read_to_string};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Controller, eventually, tidegate};

/// Longer than two of a client's probes, shorter than it waits for the answer to one.
const STILL: Duration = Duration::from_secs(5);

#[test]
fn a_controller_that_stands_still_for_seconds_loses_no_gateway() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut gateway = tidegate()
        .args(["gateway", "--controller", &controller.endpoint, "--upstream", "postgres://127.0.0.1:1"])
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let told = || read_to_string(&log).unwrap();
    eventually("it has a session", || told().contains("session open"));
    stand_still(&controller);
    eventually("it is there", || controller.json(&["client", "list"])[0]["connected"] == true);
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    let told = told();
    assert!(told.matches("session open").count() == 1 && !told.contains("no session"), "{told}");
}

#[expect(clippy::disallowed_methods, reason = "how long the controller stands still is what is tested")]
fn stand_still(controller: &Controller) {
    controller.hold(true);
    std::thread::sleep(STILL);
    controller.hold(false);
}
