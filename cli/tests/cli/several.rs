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

/// Programs tell where each look ends: a blank line before a table, a mark before a document, a line of JSON.
#[test]
fn each_look_that_differs_is_printed_whole_and_set_apart_from_the_one_before() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let list = |shape: &str| controller.ok(&["group", "list", "-o", shape]);
    let shapes = ["table", "wide", "json", "yaml"];
    let watching = shapes.map(|shape| {
        let file = folder.path().join(shape);
        let words = ["--endpoint", &controller.endpoint, "group", "list", "-o", shape, "--watch"];
        (Watching::start(&[&words[..], &["--interval", "100ms"]].concat(), &file), file)
    });
    let document = |shape: &str| match shape {
        "json" => {
            let read: serde_json::Value = serde_json::from_str(&list(shape)).unwrap();
            format!("{read}\n")
        }
        "yaml" => format!("---\n{}", list(shape).strip_suffix("...\n").unwrap()),
        _ => list(shape),
    };
    let blank = |shape: &str| if ["table", "wide"].contains(&shape) { "\n" } else { "" };
    let mut expected = shapes.map(document);
    for name in ["", "a", "b"] {
        if !name.is_empty() {
            controller.ok(&["group", "create", name, "--rate", "5"]);
            for (shape, text) in shapes.iter().zip(&mut expected) {
                *text += &format!("{}{}", blank(shape), document(shape));
            }
        }
        for ((_, file), text) in watching.iter().zip(&expected) {
            let printed = || read_to_string(file).unwrap();
            eventually("all of it is printed", || printed().len() >= text.len());
            if file.ends_with("json") {
                // The fields of each have an order of their own.
                let values = |text: &str| {
                    let lines =
                        text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
                    lines.collect::<Vec<_>>()
                };
                assert_eq!(values(&printed()), values(text));
            } else {
                assert_eq!(&printed(), text, "{}", file.display());
            }
        }
    }
}

/// A name is printed each time it comes, and those that stay are printed once.
#[test]
fn a_name_that_went_and_comes_back_is_printed_again() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "stays", "--rate", "5"]);
    let folder = tempfile::tempdir().unwrap();
    let commands = [&["group", "list", "--watch"][..], &["top", "--all"]];
    let watching: Vec<_> = commands
        .iter()
        .enumerate()
        .map(|(number, command)| {
            let file = folder.path().join(number.to_string());
            let begin = ["--endpoint", &controller.endpoint, "-o", "name"];
            (Watching::start(&[&begin, *command, &["--interval", "100ms"]].concat(), &file), file)
        })
        .collect();
    let seen = |names: &[&str]| {
        for (_, file) in &watching {
            let printed = || read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
            eventually("as many names are printed", || printed().len() >= names.len());
            assert_eq!(printed(), names);
        }
    };
    seen(&["default", "stays"]);
    controller.ok(&["group", "create", "a", "--rate", "5"]);
    seen(&["default", "stays", "a"]);
    controller.ok(&["group", "delete", "a"]);
    // Who sees this one has seen that the other is gone.
    controller.ok(&["group", "create", "b", "--rate", "5"]);
    seen(&["default", "stays", "a", "b"]);
    controller.ok(&["group", "create", "a", "--rate", "5"]);
    seen(&["default", "stays", "a", "b", "a"]);
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
