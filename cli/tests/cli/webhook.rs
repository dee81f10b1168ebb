//! Receivers of alarms, tried from the command line.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{err, out, run};

/// A receiver that answers each request so, for as long as the test runs.
fn receiver(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), [0; 4_096]);
            let _ = stream.read(&mut head);
            let _ = write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    address
}

/// Settings with a webhook for each receiver.
fn settings(folder: &TempDir, webhooks: &[(&str, SocketAddr)]) -> String {
    let secret = folder.path().join("secret");
    fs::write(&secret, "a secret of tests, for no receiver").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let mut text = String::new();
    for (name, address) in webhooks {
        let url = format!("http://{address}/hook?key=hidden");
        text += &format!("[[webhook]]\nname = {name:?}\nurl = {url:?}\nsecret_file = {secret:?}\n");
    }
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn tried(config: &str, more: &[&str]) -> Output {
    run(&[&["webhook", "test", "--config", config], more].concat())
}

#[test]
fn webhooks_are_tried_and_what_they_answer_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (receiver("204 No Content"), receiver("503 Service Unavailable"));
    let config = settings(&folder, &[("ops", good), ("chat", bad)]);
    let both = tried(&config, &[]);
    assert_eq!(both.status.code(), Some(1), "{}", err(&both));
    assert!(err(&both).contains("not delivered: chat"), "{}", err(&both));
    let shown = out(&both);
    assert!(shown.contains("delivered") && shown.contains("503") && !shown.contains("hidden"), "{shown}");
    let one = tried(&config, &["ops", "-o", "json"]);
    assert!(one.status.success(), "{}", err(&one));
    let shown: Value = serde_json::from_str(&out(&one)).unwrap();
    assert_eq!((&shown[0]["name"], &shown[0]["delivered"]), (&"ops".into(), &true.into()), "{shown}");
    assert_eq!(shown.as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_tried_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = settings(&folder, &[("ops", receiver("200 OK"))]);
    let unknown = tried(&config, &["pos"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(err(&unknown).contains("no webhook \"pos\"; it has ops"), "{}", err(&unknown));
    fs::write(folder.path().join("none.toml"), "capacity = \"100 RU/s\"\n").unwrap();
    let none = tried(folder.path().join("none.toml").to_str().unwrap(), &[]);
    assert!(err(&none).contains("has no [[webhook]]"), "{}", err(&none));
    let absent = tried(folder.path().join("absent.toml").to_str().unwrap(), &[]);
    assert!(err(&absent).contains("absent.toml"), "{}", err(&absent));
    let wrong = folder.path().join("wrong.toml");
    fs::write(&wrong, "[[webhook]]\nname = \"ops\"\n").unwrap();
    assert!(err(&tried(wrong.to_str().unwrap(), &[])).contains("url"));
}
