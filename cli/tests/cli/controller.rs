//! `tidegate controller`: its settings, its refusals, and a clean end.

use std::net::TcpListener;

use crate::support::{Controller, err, run};

#[test]
fn every_error_of_the_settings_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    std::fs::write(&file, "capacity = \"lots\"\nmargin = 5\ncolour = \"red\"\n").unwrap();
    let output =
        run(&["controller", "--config", file.to_str().unwrap(), "--listen", "here", "--http", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2), "called wrongly");
    let said = err(&output);
    for key in ["capacity: ", "margin: ", "colour: ", "grpc_listen: ", "http_listen: "] {
        assert!(said.contains(key), "{key} is not in {said}");
    }
    assert!(said.contains("5 errors in") && said.contains("--listen is grpc_listen"), "{said}");
}

#[test]
fn broken_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    std::fs::write(&file, "capacity = ").unwrap();
    let said = err(&run(&["controller", "--config", file.to_str().unwrap()]));
    assert!(said.contains("TOML") && said.contains("tidegate.toml"), "{said}");
    let said = err(&run(&["controller", "--config", "/nowhere/tidegate.toml"]));
    assert!(said.contains("cannot read /nowhere/tidegate.toml"), "{said}");
}

#[test]
fn listening_beyond_the_machine_must_be_meant() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let output = run(&["controller", "--data", data, "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("allow_remote"), "{}", err(&output));
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let output = run(&["controller", "--data", data, "--listen", &address, "--http", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains(&format!("cannot listen on {address}")), "{}", err(&output));
}

#[test]
fn a_data_directory_serves_one_controller() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = crate::support::spawn(dir.path(), &[]);
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(first.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let output = run(&["controller", "--data", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let controller = Controller::logging_to(full.into());
    controller.ok(&["group", "create", "shop", "--rate", "5"]);
    assert!(controller.ok(&["group", "list"]).contains("shop"));
    assert_eq!(controller.stop(), Some(0));
}

#[test]
fn it_ends_cleanly_with_its_parent() {
    let controller = Controller::start();
    assert!(controller.rest.starts_with("http://127.0.0.1:"));
    assert_eq!(controller.stop(), Some(0));
}
