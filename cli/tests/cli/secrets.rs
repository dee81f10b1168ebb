//! What nobody may read afterwards: all that controller, node, gateway and commands wrote at their most talkative, and
//! what they stored, is searched for every secret that they had.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Controller, err, eventually, out, tidegate};

/// Characters of a secret that are looked for, from its beginning and from its middle: an error may show a part of it.
const PART: usize = 16;
/// A token and a JWT that nobody made, as somebody would try them.
const WRONG: [&str; 2] = [
    "tdg_9.Zk3yWq8vTn5xRb2mLc7dFh4jGs6pKa1uVe0iYo9tXw3q",
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL25vYm9keS5leGFtcGxlIn0.c2lnbmF0dXJlLW9mLW5vYm9keS1hdC1hbGw",
];

/// Secrets, and what was said.
struct Search {
    secrets: Vec<(String, String)>,
    said: Vec<(String, Vec<u8>)>,
}

impl Search {
    /// A secret, of which the part after the last full stop is random.
    fn secret(&mut self, name: &str, text: &str) {
        let random = text.trim().rsplit('.').next().unwrap();
        assert!(random.len() >= 2 * PART, "{name} is short");
        self.secrets.push((name.to_owned(), random.to_owned()));
    }

    fn heard(&mut self, from: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.said.push((from.into(), bytes.into()));
    }

    /// Where a part of a secret stands.
    fn found(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, secret) in &self.secrets {
            let parts = [&secret[..PART], &secret[secret.len() / 2..secret.len() / 2 + PART]];
            for (from, said) in &self.said {
                if parts.iter().any(|part| said.windows(PART).any(|window| window == part.as_bytes())) {
                    found.push(format!("{name} in {from}"));
                }
            }
        }
        found
    }
}

struct Site {
    controller: Controller,
    ca: String,
}

impl Site {
    /// Runs a command with a token, at its most talkative.
    fn asked(&self, search: &mut Search, token: &str, words: &[&str]) -> Output {
        let mut command = tidegate();
        command
            .args(["--endpoint", &self.controller.endpoint, "--ca", &self.ca])
            .env("TIDEGATE_LOG", "trace");
        command.args(["--token-file", token]).args(words).stdin(Stdio::null());
        let output = command.output().unwrap();
        search.heard(format!("{words:?}, standard output"), output.stdout.clone());
        search.heard(format!("{words:?}, standard error"), output.stderr.clone());
        output
    }

    /// A request, with its answer.
    fn curl(&self, more: &[&str], path: &str) -> Output {
        let mut command = Command::new("curl");
        command
            .args(["-sS", "-i", "--cacert", &self.ca])
            .args(more)
            .arg(format!("{}{path}", self.controller.rest));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{path}: {}", err(&output));
        output
    }
}

fn keep(path: &Path, text: &str) -> String {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn no_secret_is_in_any_log_error_page_or_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut search = Search { secrets: Vec::new(), said: Vec::new() };
    for words in [&["cert", "init"][..], &["cert", "issue", "controller", "c", "--ip", "127.0.0.1"]] {
        let output = tidegate().args(words).args(["--dir", &path("")]).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        search.heard(format!("{words:?}"), [output.stdout, output.stderr].concat());
    }
    for name in ["ca-key.pem", "c-key.pem"] {
        let pem = fs::read_to_string(path(name)).unwrap();
        search.secret(name, pem.lines().nth(1).unwrap());
    }
    let settings =
        ["--authentication", "required", "--tls-cert", &path("c.pem"), "--tls-key", &path("c-key.pem")];
    let site = Site { controller: Controller::talkative(&settings), ca: path("ca.pem") };
    let first = site.controller.path("tidegate.redb.first-token");
    eventually("the first token is there", || first.exists());
    let first = keep(&folder.path().join("first"), &fs::read_to_string(&first).unwrap());
    search.secret("first token", &fs::read_to_string(&first).unwrap());

    let root = path("root");
    let made = |search: &mut Search, by: &str, name: &str, more: &[&str]| {
        let file = path(name);
        let words = [&["token", "create", name, "--out", &file][..], more].concat();
        let output = site.asked(search, by, &words);
        assert!(output.status.success(), "{}", err(&output));
        search.secret(name, &fs::read_to_string(file).unwrap());
    };
    made(&mut search, &first, "root", &["--role", "admin"]);
    for (name, role) in [("ann", "operator"), ("till", "node"), ("gw-1", "gateway"), ("board", "metrics")] {
        made(&mut search, &root, name, &["--role", role]);
    }
    // What nobody made is as secret: it may be a word mistyped, or of another system.
    for (at, wrong) in WRONG.into_iter().enumerate() {
        search.secret(&format!("wrong {at}"), wrong);
        let file = keep(&folder.path().join(format!("wrong-{at}")), wrong);
        assert!(!site.asked(&mut search, &file, &["status"]).status.success());
        let bearer = format!("authorization: Bearer {wrong}");
        let output = site.curl(&["-H", &bearer], "/v1/groups");
        search.heard("REST's refusal", output.stdout);
        let output = site.curl(&["--data-urlencode", &format!("token={wrong}")], "/console/login");
        assert!(out(&output).contains("HTTP/2 401"), "{}", out(&output));
        search.heard("the console's refusal", output.stdout);
    }

    // Everybody at work.
    let ann = path("ann");
    assert!(site.asked(&mut search, &ann, &["group", "create", "shop", "--rate", "50"]).status.success());
    let sql = keep(&folder.path().join("work.sql"), "select 1;");
    let journal = path("journal");
    let node = ["node", "--sql", &sql, "--identity", "till", "--journal", &journal];
    let output = site.asked(&mut search, &path("till"), &node);
    assert!(output.status.success(), "{}", err(&output));
    let page_token = "page-token-of-the-gateway-0123456789abcdef";
    search.secret("the token of the gateway's page", page_token);
    let page_file = keep(&folder.path().join("page-token"), page_token);
    let database = "database-password-0123456789abcdef0123456789";
    search.secret("the password of the database", database);
    let mut gateway = tidegate();
    gateway.args([
        "--endpoint",
        &site.controller.endpoint,
        "gateway",
        "--identity",
        "gw-1",
        "--until-stdin-ends",
    ]);
    gateway.args([
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &format!("postgres://gate:{database}@127.0.0.1:1"),
    ]);
    gateway.args(["--controller-token-file", &path("gw-1"), "--controller-ca", &site.ca]);
    gateway.args(["--metrics", "127.0.0.1:0", "--metrics-token-file", &page_file]);
    gateway.env("TIDEGATE_LOG", "trace").stdin(Stdio::piped());
    let said = fs::File::create(path("gateway.log")).unwrap();
    let mut gateway = gateway.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap();
    eventually("the gateway has a session", || {
        out(&site.asked(&mut search, &root, &["client", "list"])).contains("gw-1")
    });
    drop(gateway.stdin.take());
    assert!(gateway.wait().unwrap().success(), "{}", fs::read_to_string(path("gateway.log")).unwrap());

    // A session of the console: its cookie is a secret, too.
    let token = fs::read_to_string(&ann).unwrap();
    let output = site.curl(&["--data-urlencode", &format!("token={}", token.trim())], "/console/login");
    let answer = out(&output);
    let cookie = answer.split_once("tidegate-console=").unwrap().1.split(';').next().unwrap().to_owned();
    search.secret("the console's cookie", &cookie);
    let cookie = format!("cookie: tidegate-console={cookie}");
    for page in ["/console", "/console/groups/shop", "/console/audit", "/console/nodes"] {
        let output = site.curl(&["-H", &cookie], page);
        assert!(out(&output).contains("HTTP/2 200"), "{page}: {}", out(&output));
        search.heard(page, output.stdout);
    }
    let bearer = format!("authorization: Bearer {}", fs::read_to_string(path("board")).unwrap().trim());
    search.heard("metrics", site.curl(&["-H", &bearer], "/metrics").stdout);
    let list = out(&site.asked(&mut search, &root, &["token", "list", "-o", "json"]));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let of_ann = list.as_array().unwrap().iter().find(|token| token["name"] == "ann").unwrap();
    let of_ann = of_ann["id"].to_string();
    for words in [&["audit"][..], &["token", "list"], &["status"], &["token", "revoke", &of_ann]] {
        assert!(site.asked(&mut search, &root, words).status.success(), "{words:?}");
    }
    assert!(!site.asked(&mut search, &ann, &["status"]).status.success(), "it was revoked");
    let backup = path("backup");
    let output = site.asked(&mut search, &root, &["store", "backup", &backup]);
    assert!(output.status.success(), "{}", err(&output));

    let log = site.controller.log();
    assert!(
        log.contains("TRACE") && log.contains("an authentication failed"),
        "the log is the most talkative"
    );
    search.heard("the log of the controller", log);
    for file in ["backup", "gateway.log"] {
        search.heard(file, fs::read(path(file)).unwrap());
    }
    search.heard("the store", fs::read(site.controller.path("tidegate.redb")).unwrap());
    for file in fs::read_dir(&journal).unwrap() {
        search.heard("the journal", fs::read(file.unwrap().path()).unwrap());
    }
    assert_eq!(search.found(), Vec::<String>::new());
    // The search finds what is there.
    search.heard("a file with a token", token);
    assert_eq!(search.found(), ["ann in a file with a token"]);
}
