//! Faults that end a gateway before it begins, and whose they are.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::support::{err, run};

/// In front of a database that need not be there.
const STARTS: [&str; 5] = ["gateway", "--upstream", "postgres://127.0.0.1:1", "--listen", "127.0.0.1:0"];

/// The status with which a gateway ends with these flags; what it says names them.
#[track_caller]
fn ends(flags: &[&str], expected: i32, names: &str) {
    let output = run(&[&STARTS, flags].concat());
    let told = err(&output);
    assert_eq!(output.status.code(), Some(expected), "{flags:?}: {told}");
    assert!(told.contains(names), "{flags:?}: {told}");
}

#[test]
fn wrong_settings_are_a_wrong_call() {
    let none = run(&["gateway"]);
    assert_eq!(none.status.code(), Some(2), "{}", err(&none));
    ends(&["--upstream", "redis://127.0.0.1"], 2, "redis");
    ends(&["--listen", "0.0.0.0:0"], 2, "2 times");
    ends(&["--threads", "0"], 2, "threads: 0");
    ends(&["--metrics", "0.0.0.0:0"], 2, "0.0.0.0:0");
    ends(&["--identity", "two words"], 2, "two words");
    ends(&["--controller", "http://"], 2, "http://");
    ends(&["--endpoint", "ftp://here"], 2, "ftp://here");
    let remote = run(&["gateway", "--upstream", "postgres://127.0.0.1:1", "--listen", "0.0.0.0:0"]);
    assert!(remote.status.code() == Some(2) && err(&remote).contains("allow_remote"), "{}", err(&remote));
}

#[test]
fn a_file_with_wrong_settings_is_one_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let path = file.to_str().unwrap();
    for (text, names) in
        [("max_wait = ", "line 1"), ("colour = \"red\"", "colour"), ("threads = 0", "threads")]
    {
        fs::write(&file, text).unwrap();
        ends(&["--config", path], 2, names);
    }
}

#[test]
fn what_the_machine_does_not_give_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let absent = absent.to_str().unwrap();
    ends(&["--config", absent], 1, absent);
    ends(&["--tls-cert", absent, "--tls-key", absent], 1, absent);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    ends(&["--metrics", &address], 1, &format!("cannot listen on {address}"));
    // A folder cannot be made below a file.
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let journal = Path::new(&file).join("journal");
    ends(&["--journal", journal.to_str().unwrap()], 1, "journal");
}
