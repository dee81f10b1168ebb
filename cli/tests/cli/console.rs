//! What the web console prints to be copied: commands and statements that do what the form would do.

use std::process::Command;

use serde_json::{Value, json};
use tidegate_console::command;
use tidegate_console::form::Changed;

use crate::support::{Controller, err};

/// What the form knows of a change.
fn changed(of: &[(&str, &str)]) -> Vec<Changed> {
    let change = |(field, after): &(&str, &str)| Changed {
        field: (*field).to_owned(),
        before: String::new(),
        after: (*after).to_owned(),
    };
    of.iter().map(change).collect()
}

/// The settings of a group, without what counts its changes.
fn settings(controller: &Controller, group: &str) -> Value {
    let mut shown = controller.json(&["group", "show", group]);
    for own in ["name", "revision", "owner"] {
        shown.as_object_mut().unwrap().remove(own);
    }
    shown
}

#[test]
fn commands_and_statements_of_the_console_are_taken_and_say_the_same() {
    let controller = Controller::start();
    for group in ["above", "by-command", "by-sql"] {
        controller.ok(&["group", "create", group, "--rate", "100"]);
    }
    controller.ok(&["group", "create", "spill", "--rate", "1", "--priority", "low"]);
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("TIDEGATE_ENDPOINT", &controller.endpoint);
        command.env("TIDEGATE_CONTEXTS", "/nonexistent/contexts.toml");
        command.env("PATH", format!("{}:/usr/bin:/bin", binary.parent().unwrap().display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", err(&output));
    };
    let full = [
        ("parent", "above"),
        ("ru_per_sec", "50.5"),
        ("burst", "7"),
        ("burstable", "moderated"),
        ("burst_ru_per_sec", "80"),
        ("priority", "high"),
        ("weight", "7"),
        ("ttl_us", "7s"),
        ("renew_us", "1.5s"),
        ("fallback", "0.5"),
        ("fallback_total", "3"),
        ("max_debt", "9"),
        ("comment", "Bob's `a`; \"b\" $c"),
        ("max_wait_us", "500ms"),
        ("enforcement", "shadow"),
        ("quota", "5000 per day Europe/Berlin"),
        ("demote_to", "spill"),
    ];
    // What was set is left open again.
    let open = [
        ("parent", "/"),
        ("ru_per_sec", "unlimited"),
        ("burst", "default"),
        ("burstable", "off"),
        ("burst_ru_per_sec", "default"),
        ("weight", ""),
        ("ttl_us", ""),
        ("renew_us", ""),
        ("fallback", "stop"),
        ("fallback_total", "none"),
        ("max_debt", "default"),
        ("comment", ""),
        ("max_wait_us", ""),
        ("enforcement", "on"),
        ("quota", "none"),
        ("demote_to", "/"),
    ];
    let paced = [("burstable", "off"), ("policy", "paced"), ("quota", "7 requests per rolling hour")];
    let warm = [("quota", "none"), ("ru_per_sec", "50"), ("policy", "warm_up(10s, 3)")];
    let mut before = settings(&controller, "by-sql");
    for changes in [&full[..], &open, &paced, &warm] {
        let changes = changed(changes);
        shell(&command::shell("alter", "by-command", &changes, 0));
        controller.ok(&["sql", &command::sql("ALTER", "by-sql", &changes)]);
        let now = settings(&controller, "by-sql");
        assert_eq!(settings(&controller, "by-command"), now);
        assert_ne!(now, before);
        before = now;
    }
    let owned = changed(&[("owner", "shop; +49 30 'x'")]);
    shell(&command::shell("alter", "by-command", &owned, 0));
    assert_eq!(controller.json(&["group", "show", "by-command"])["owner"], json!("shop; +49 30 'x'"));
    assert!(command::sql("ALTER", "by-sql", &owned).ends_with("-- SQL does not set owner"));
}
