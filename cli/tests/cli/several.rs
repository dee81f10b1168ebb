//! Commands that look again and again at one of several controllers.

use std::fs::{File, read_to_string};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::support::{Controller, err, eventually, run, tidegate};

/// A command that goes on, and writes what it sees into a file.
struct Watching(Child);

impl Watching {
    fn start(arguments: &[&str], into: &Path) -> Self {
        let mut command = tidegate();
        command.args(arguments).stdin(Stdio::null()).stdout(File::create(into).unwrap());
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Of a cluster another controller leads then; here each leads for itself.
#[test]
fn who_watches_goes_on_with_another_controller_when_the_one_that_led_is_gone() {
    let (mut first, second) = (Controller::start(), Controller::start());
    first.ok(&["group", "create", "before", "--rate", "5"]);
    second.ok(&["group", "create", "behind", "--rate", "5"]);
    let both = format!("{},{}", first.endpoint, second.endpoint);
    let folder = tempfile::tempdir().unwrap();
    let commands = [&["group", "list", "--watch"][..], &["top"]];
    let watching: Vec<_> = commands
        .iter()
        .enumerate()
        .map(|(number, command)| {
            let file = folder.path().join(number.to_string());
            let begin = ["--endpoint", &both, "-o", "json"];
            (Watching::start(&[&begin, *command, &["--interval", "100ms"]].concat(), &file), file)
        })
        .collect();
    let seen = |file: &Path, group: &str| read_to_string(file).unwrap().contains(group);
    for (_, file) in &watching {
        eventually("the first one is seen", || seen(file, "\"before\""));
        assert!(!seen(file, "\"behind\""));
    }
    first.kill();
    for (_, file) in &watching {
        eventually("the second one is seen", || seen(file, "\"behind\""));
    }
}

/// A standby says that it is unavailable, to everybody.
#[test]
fn a_controller_that_refuses_the_one_who_asks_is_the_one_that_leads() {
    let (guarded, open) = (Controller::with(&["--authentication", "required"]), Controller::start());
    let both = format!("{},{}", guarded.endpoint, open.endpoint);
    let refused = run(&["--endpoint", &both, "group", "list"]);
    assert!(!refused.status.success());
    assert!(err(&refused).contains("no certificate and no token"), "{}", err(&refused));
}
