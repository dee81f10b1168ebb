//! `tidegate doctor` where nothing runs, beside a controller, and where something is wrong.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use serde_json::Value;

use crate::support::{Controller, err, out, run, tidegate};

/// What was found, by area.
fn findings(output: &Output) -> Vec<(String, String, String, String)> {
    let json: Value =
        serde_json::from_str(&out(output)).unwrap_or_else(|error| panic!("{error}: {}", err(output)));
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let all = json["findings"].as_array().unwrap().iter();
    all.map(|one| (text(one, "area"), text(one, "verdict"), text(one, "found"), text(one, "remedy")))
        .collect()
}

/// Whether something like this was found, with a remedy unless it is well.
fn has(output: &Output, area: &str, verdict: &str, part: &str) -> bool {
    findings(output).iter().any(|(of, how, found, remedy)| {
        of == area && how == verdict && found.contains(part) && (verdict == "ok") == remedy.is_empty()
    })
}

#[test]
fn it_works_where_nothing_runs_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let words =
        ["doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let output = run(&[&words[..], &["--output", "json"]].concat());
    assert!(has(&output, "store", "warning", "neither is its directory"), "{output:?}");
    assert!(
        has(&output, "ports", "ok", "is free") && has(&output, "settings", "ok", "(--listen)"),
        "{output:?}"
    );
    assert!(!data.exists());
    let text = out(&run(&words));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let away = run(&[&["--endpoint", "http://127.0.0.1:1", "--output", "json"], &words[..]].concat());
    assert_eq!(away.status.code(), Some(1));
    assert!(has(&away, "controller", "failed", "cannot reach the controller"));
}

/// One that was named and is away is a failure, and the default one may be away.
#[test]
fn an_endpoint_that_is_named_is_not_the_default_whatever_it_is() {
    const DEFAULT: &str = "http://127.0.0.1:7420";
    let folder = tempfile::tempdir().unwrap();
    let contexts = folder.path().join("contexts.toml");
    fs::write(&contexts, format!("current = \"prod\"\n[contexts.prod]\nendpoint = \"{DEFAULT}\"\n")).unwrap();
    fs::set_permissions(&contexts, fs::Permissions::from_mode(0o600)).unwrap();
    for (option, variable, from) in [
        (None, None, "default"),
        (Some(DEFAULT), None, "--endpoint"),
        (None, Some(("TIDEGATE_ENDPOINT", DEFAULT)), "TIDEGATE_ENDPOINT"),
        (Some(DEFAULT), Some(("TIDEGATE_ENDPOINT", "http://127.0.0.1:1")), "--endpoint"),
        (None, Some(("TIDEGATE_CONTEXTS", contexts.to_str().unwrap())), "context"),
    ] {
        let mut command = tidegate();
        command.args(["doctor", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "-o", "json", "--data"]);
        command.arg(folder.path().join("data")).envs(variable);
        command.args(option.map(|endpoint| format!("--endpoint={endpoint}")));
        let output = command.output().unwrap();
        let line = format!("endpoint = {DEFAULT} ({from})");
        assert!(has(&output, "settings", "ok", &line), "{line}: {output:?}");
    }
}

#[test]
fn it_finds_a_controller_that_runs() {
    let controller = Controller::start();
    let bare = |url: &str| url.strip_prefix("http://").unwrap().to_owned();
    let (listen, http) = (bare(&controller.endpoint), bare(&controller.rest));
    let data = controller.data().to_str().unwrap().to_owned();
    let words = ["doctor", "--listen", &listen, "--http", &http, "--data", &data, "--output", "json"];
    let output = controller.run(&words);
    for (area, part) in [
        ("controller", "answers, version"),
        ("controller", "ready, says REST"),
        ("ports", "is tidegate's"),
        ("store", "can be read and written"),
        ("store", "in use by a controller"),
    ] {
        assert!(has(&output, area, "ok", part), "{part}: {:?}", findings(&output));
    }
    assert!(findings(&output).iter().all(|(_, verdict, ..)| verdict != "failed"), "{:?}", findings(&output));
    assert!(output.status.success());
}

#[test]
fn what_is_wrong_has_a_remedy() {
    let mut controller = Controller::start();
    controller.kill();
    let store = controller.data().join("tidegate.redb");
    let data = controller.data().to_str().unwrap().to_owned();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = controller.data().join("t.toml");
    fs::write(&config, "colour = \"red\"\n").unwrap();
    let words = [
        "doctor",
        "--config",
        config.to_str().unwrap(),
        "--data",
        &data,
        "--listen",
        &address,
        "--output",
        "json",
    ];
    fs::set_permissions(&store, fs::Permissions::from_mode(0o644)).unwrap();
    let output = tidegate().args(words).env("TIDEGATE_LOG", "a=b=c").output().unwrap();
    assert!(has(&output, "store", "warning", "others can read it"), "{:?}", findings(&output));
    assert!(has(&output, "store", "ok", "nothing is damaged"), "{:?}", findings(&output));
    assert!(
        has(&output, "settings", "failed", "colour") && has(&output, "settings", "failed", "TIDEGATE_LOG")
    );
    assert_eq!(output.status.code(), Some(1));
    fs::remove_file(&config).unwrap();
    let output = run(&words[3..].iter().copied().fold(vec!["doctor"], |mut all, word| {
        all.push(word);
        all
    }));
    assert!(has(&output, "ports", "failed", "is taken by"), "{:?}", findings(&output));
    // A store whose first page is not what it was.
    let mut bytes = fs::read(&store).unwrap();
    bytes[..64].fill(0xAA);
    fs::write(&store, bytes).unwrap();
    let output = run(&["doctor", "--data", &data, "--output", "json"]);
    assert!(findings(&output).iter().any(|(area, verdict, ..)| area == "store" && verdict == "failed"));
}
