//! Certificates by `tidegate cert`, and a controller under TLS with all its clients; judged by openssl and curl, and with
//! certificates that openssl made.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_test_servers::{Certificates, said};

use crate::support::{Controller, err, eventually, out, run, tidegate};

/// A folder with an authority, and certificates of a controller, a node and an operator.
struct Certs {
    folder: TempDir,
}

impl Certs {
    fn new() -> Self {
        let certs = Self { folder: tempfile::tempdir().unwrap() };
        certs.ok(&["init"]);
        certs.ok(&["issue", "controller", "rates"]);
        certs.ok(&["issue", "node", "node-1"]);
        certs.ok(&["issue", "gateway", "gw-1"]);
        certs.ok(&["issue", "viewer", "eve"]);
        certs.ok(&["issue", "operator", "ann"]);
        certs
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = tidegate();
        command.arg("cert").args(words).current_dir(self.folder.path()).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", err(&output));
        out(&output)
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        err(&output)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("certs").join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// To openssl, a certificate ends so many days after the last minute.
    #[track_caller]
    fn ends_in(&self, days: u32, name: &str) {
        for (seconds, end) in [(days * 86_400, "will expire"), (days * 86_400 - 60, "will not expire")] {
            let file = self.text(name);
            let checked =
                said("openssl", &["x509", "-in", &file, "-noout", "-checkend", &seconds.to_string()]);
            assert!(checked.contains(end), "{name} in {seconds} s: {checked}");
        }
    }

    /// Options of a client with this certificate, or with none.
    fn client(&self, name: Option<&str>) -> Vec<String> {
        let mut words = vec!["--ca".to_owned(), self.text("ca.pem")];
        if let Some(name) = name {
            words.extend(["--cert".to_owned(), self.text(&format!("{name}.pem"))]);
            words.extend(["--key".to_owned(), self.text(&format!("{name}-key.pem"))]);
        }
        words
    }

    /// Options of a controller that demands certificates.
    fn controller(&self) -> Vec<String> {
        let mut words = vec!["--tls-cert".to_owned(), self.text("rates.pem")];
        words.extend(["--tls-key".to_owned(), self.text("rates-key.pem")]);
        words.extend(["--tls-client-ca".to_owned(), self.text("ca.pem")]);
        words
    }
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn asked(controller: &Controller, client: &[String], words: &[&str]) -> Output {
    controller.run(&[&strs(client)[..], words].concat())
}

/// What a program of others says of both its outputs.
fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    out(&output) + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn certificates_are_made_shown_and_renewed_and_never_written_over() {
    let certs = Certs::new();
    for (name, mode) in [("ca.pem", 0o644), ("ca-key.pem", 0o600), ("rates-key.pem", 0o600)] {
        let has = fs::metadata(certs.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(has, mode, "{name}");
    }
    let before = fs::read(certs.path("ca.pem")).unwrap();
    assert!(certs.refused(&["init"]).contains("ca.pem exists"));
    assert!(certs.refused(&["issue", "node", "node-1"]).contains("--force"));
    assert_eq!(fs::read(certs.path("ca.pem")).unwrap(), before);
    certs.ok(&["issue", "gateway", "gw", "--dns", "db.example", "--ip", "10.0.0.7", "--uri", "spiffe://x/y"]);

    let shown: Value =
        serde_json::from_str(&certs.ok(&["show", "certs/gw.pem", "certs/ca.pem", "-o", "json"])).unwrap();
    let names = ["DNS:db.example", "IP:10.0.0.7", "URI:spiffe://tidegate/gateway/gw", "URI:spiffe://x/y"];
    assert_eq!(shown[0]["names"], serde_json::json!(names));
    assert_eq!(shown[0]["usage"], serde_json::json!(["server", "client"]));
    assert_eq!(shown[1]["usage"][0], "authority");
    let print = said("openssl", &["x509", "-in", &certs.text("gw.pem"), "-noout", "-fingerprint", "-sha256"]);
    assert!(print.contains(shown[0]["sha256"].as_str().unwrap()), "{print}");
    let ca = certs.text("ca.pem");
    for (purpose, name) in [("sslserver", "rates.pem"), ("sslclient", "node-1.pem"), ("sslclient", "gw.pem")]
    {
        let strictly = ["verify", "-x509_strict", "-CAfile", &ca, "-purpose", purpose, &certs.text(name)];
        let verified = said("openssl", &strictly);
        assert!(verified.contains(": OK"), "{verified}");
    }
    for (name, may) in [
        ("ca.pem", ["CA:TRUE, pathlen:0", "Certificate Sign, CRL Sign"]),
        ("rates.pem", ["CA:FALSE", "Digital Signature"]),
    ] {
        let file = certs.text(name);
        let shown = said("openssl", &["x509", "-in", &file, "-noout", "-ext", "basicConstraints,keyUsage"]);
        assert!(may.iter().all(|may| shown.contains(may)), "{name}: {shown}");
    }

    certs.ends_in(90, "gw.pem");
    // Of the last day, whole seconds are over by now.
    assert!([89, 90].map(Value::from).contains(&shown[0]["days_left"]), "{shown}");
    certs.ok(&["renew", "certs/gw.pem", "--days", "20"]);
    certs.ends_in(20, "gw.pem");
    let shown = certs.ok(&["show", "certs/gw.pem"]);
    assert!(shown.contains("20: renew it") || shown.contains("19: renew it"), "{shown}");
    assert!(certs.refused(&["renew", "certs/ca.pem"]).contains("is an authority"));
    assert!(certs.refused(&["show", "certs/gw-key.pem"]).contains("holds no certificate"));
    assert!(certs.refused(&["issue", "node", "n", "--dir", "nowhere"]).contains("tidegate cert init"));
    assert_eq!(certs.run(&["issue", "node", "../n"]).status.code(), Some(2));
}

#[test]
fn everything_speaks_tls_to_a_controller_that_demands_it() {
    let certs = Certs::new();
    let controller = Controller::with(&strs(&certs.controller()));
    assert!(controller.endpoint.starts_with("https://") && controller.rest.starts_with("https://"));
    let (ann, nobody, node) = (certs.client(Some("ann")), certs.client(None), certs.client(Some("node-1")));
    let status = asked(&controller, &ann, &["status"]);
    assert!(status.status.success(), "{}", err(&status));
    let sql = certs.path("work.sql");
    fs::write(&sql, "select 1;").unwrap();
    let ran = asked(&controller, &node, &["node", "--sql", sql.to_str().unwrap()]);
    assert!(out(&ran).contains("RU in default"), "{}", err(&ran));

    let metrics =
        ["--metrics", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--upstream", "postgres://127.0.0.1:1"];
    let gw = certs.client(Some("gw-1"));
    let [_, ca, _, cert, _, key] = gw.as_slice() else { panic!("{gw:?}") };
    let reach =
        ["--controller-ca", ca, "--controller-cert", cert, "--controller-key", key, "--until-stdin-ends"];
    let mut gateway = tidegate();
    gateway.args(["--endpoint", &controller.endpoint, "gateway"]).args(metrics).args(reach);
    gateway.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(said::log());
    let mut gateway = gateway.spawn().unwrap();
    // Node and gateway are the clients that their certificates name.
    eventually("the gateway has a session", || {
        let list = out(&asked(&controller, &ann, &["client", "list"]));
        list.contains("tidegate-gateway/") && list.contains("gw-1") && list.contains("node-1.")
    });
    drop(gateway.stdin.take());
    assert!(gateway.wait().unwrap().success());

    for (client, words, expected) in [
        (
            &nobody,
            &["status"][..],
            "demands a certificate of its clients; name one and its key (--cert, --key)",
        ),
        (&nobody, &["node", "--sql", sql.to_str().unwrap()], "demands a certificate of its clients"),
        (&Vec::new(), &["status"], "(--ca)"),
    ] {
        let output = asked(&controller, client, words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(err(&output).contains(expected), "{words:?}: {}", err(&output));
    }
    let away = run(&[&["--endpoint", "https://127.0.0.1:1"][..], &strs(&ann), &["status"]].concat());
    assert!(err(&away).contains("is it running?"), "{}", err(&away));
    let plain = controller.endpoint.replace("https://", "http://");
    let output = run(&["--endpoint", &plain, "status"]);
    assert!(err(&output).contains("speaks TLS on this port; write https://"), "{}", err(&output));
    let output = run(&["--endpoint", &plain, "node", "--sql", sql.to_str().unwrap()]);
    assert!(err(&output).contains("speaks TLS on this port; write https://"), "{}", err(&output));
    let unencrypted = Controller::start();
    let secure = unencrypted.endpoint.replace("http://", "https://");
    let output = run(&[&["--endpoint", &secure][..], &strs(&ann), &["status"]].concat());
    assert!(err(&output).contains("does not speak TLS on this port; write http://"), "{}", err(&output));
    assert_eq!(controller.stop(), Some(0));
}

#[test]
fn a_certificate_opens_what_its_role_may() {
    let certs = Certs::new();
    let controller = Controller::with(&strs(&certs.controller()));
    let [ann, eve, node] = ["ann", "eve", "node-1"].map(|name| certs.client(Some(name)));
    let create = ["group", "create", "shop", "--rate", "5"];
    let created = asked(&controller, &ann, &[&["--actor", "bob"][..], &create].concat());
    assert!(created.status.success(), "{}", err(&created));
    for (client, role) in [(&eve, "viewer"), (&node, "node")] {
        let refused = err(&asked(&controller, client, &create));
        let said = format!("has the role {role}");
        assert!(refused.contains("needs the role admin or operator") && refused.contains(&said), "{refused}");
    }
    let log = asked(&controller, &eve, &["audit", "-o", "json"]);
    let log: Value = serde_json::from_str(&out(&log)).unwrap();
    for (key, value) in
        [("kind", "certificate"), ("identity", "ann"), ("role", "operator"), ("comment", "bob")]
    {
        assert_eq!(log[0][key], value, "{log}");
    }
    assert!(out(&asked(&controller, &eve, &["audit"])).contains("operator ann (127.0.0.1:"));
    assert!(!asked(&controller, &node, &["usage"]).status.success());
    let as_another = ["node", "--identity", "node-2", "--sql", "/dev/null"];
    let refused = err(&asked(&controller, &node, &as_another));
    assert!(
        refused.contains("client id \"node-2\" does not belong to") && refused.contains("use node-1"),
        "{refused}"
    );
    assert_eq!(certs.run(&["issue", "node", "a.b"]).status.code(), Some(2));
    let url = format!("{}/v1/groups", controller.rest);
    let [ca, cert, key] = ["ca.pem", "eve.pem", "eve-key.pem"].map(|name| certs.text(name));
    let shown = ["-sS", "--cacert", &ca, "--cert", &cert, "--key", &key, &url];
    assert!(said("curl", &shown).contains("\"shop\""));
    let body = ["-X", "POST", "-H", "content-type: application/json", "-d", "{}"];
    let refused = said("curl", &[&shown[..], &body].concat());
    assert!(refused.contains("\"code\":\"denied\"") && refused.contains("admin or operator"), "{refused}");
}

/// What `openssl s_client` says of a handshake in this version, and which ALPN came of it.
fn handshake(controller: &Controller, certs: &Certs, version: &str, shows: bool) -> String {
    let address = controller.endpoint.strip_prefix("https://").unwrap();
    let (ca, cert, key) = (certs.text("ca.pem"), certs.text("ann.pem"), certs.text("ann-key.pem"));
    let mut words = vec!["s_client", "-connect", address, version, "-CAfile", &ca, "-alpn", "h2"];
    words.extend(["-cipher", "DEFAULT@SECLEVEL=0", "-verify_return_error", "-ign_eof"]);
    if shows {
        words.extend(["-cert", &cert, "-key", &key]);
    }
    said("openssl", &words)
}

#[test]
fn openssl_and_curl_agree() {
    let certs = Certs::new();
    let controller = Controller::with(&strs(&certs.controller()));
    for version in ["-tls1_2", "-tls1_3"] {
        let text = handshake(&controller, &certs, version, true);
        assert!(text.contains("ALPN protocol: h2") && text.contains("Verification: OK"), "{text}");
        assert!(text.contains("Acceptable client certificate CA names"), "{text}");
        let text = handshake(&controller, &certs, version, false);
        assert!(text.contains("alert certificate required") || text.contains("alert number 116"), "{text}");
    }
    let text = handshake(&controller, &certs, "-tls1_1", true);
    assert!(text.contains("alert handshake failure") && text.contains("No ALPN negotiated"), "{text}");

    let url = format!("{}/healthz", controller.rest);
    let (ca, cert, key) = (certs.text("ca.pem"), certs.text("ann.pem"), certs.text("ann-key.pem"));
    let shown = ["--cert", cert.as_str(), "--key", &key, "--cacert", &ca];
    for (version, expected) in [("--http2", "\"ok\"} 2"), ("--http1.1", "\"ok\"} 1.1")] {
        let text = said("curl", &[&["-sS", version, "-w", " %{http_version}", &url][..], &shown].concat());
        assert!(text.contains(expected), "{text}");
    }
    let text = said("curl", &["-sS", "--cacert", &ca, &url]);
    assert!(text.contains("certificate required") && !text.contains("ok"), "{text}");
    let text = said("curl", &[&["-sS", &url][..], &shown[..4]].concat());
    assert!(text.contains("self-signed certificate") || text.contains("unable to get"), "{text}");
    let plain = url.replace("https://", "http://");
    assert!(said("curl", &["-sS", &plain]).contains("this listener speaks TLS; use https://"));
}

#[test]
fn certificates_of_openssl_work_as_well_and_are_renewed_in_place() {
    let made = Certificates::new("DNS:localhost,IP:127.0.0.1").unwrap();
    let copy = tempfile::tempdir().unwrap();
    let at = |name: &str| copy.path().join(name);
    let put = |from: &Path, name: &str| {
        fs::copy(from, at(name)).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    put(&made.certificate(), "cert.pem");
    put(&made.key(), "key.pem");
    let (cert, key) = (at("cert.pem"), at("key.pem"));
    let controller =
        Controller::with(&["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()]);
    let trust = |authority: &Path| vec!["--ca".to_owned(), authority.to_str().unwrap().to_owned()];
    let status = asked(&controller, &trust(&made.authority()), &["status"]);
    let warned = out(&status);
    assert!(warned.contains("the certificate CN=server in ") && warned.contains(" expires in "), "{warned}");
    let next = Certificates::new("DNS:localhost,IP:127.0.0.1").unwrap();
    put(&next.certificate(), "cert.pem");
    put(&next.key(), "key.pem");
    eventually("the renewed certificate is in force", || {
        asked(&controller, &trust(&next.authority()), &["status"]).status.success()
    });
    assert!(!asked(&controller, &trust(&made.authority()), &["status"]).status.success());
}

#[test]
fn a_revoked_certificate_is_refused_as_openssl_says() {
    let certs = Certs::new();
    let list = certs.text("crl.pem");
    assert_eq!(certs.ok(&["revoke"]), "certs/crl.pem has 0 certificates\n");
    let mut settings = certs.controller();
    settings.extend(["--tls-client-crl".to_owned(), list.clone()]);
    let controller = Controller::with(&strs(&settings));
    let answer = |name: &str| asked(&controller, &certs.client(Some(name)), &["status"]);
    assert!(answer("eve").status.success() && answer("ann").status.success());
    assert_eq!(certs.ok(&["revoke", "certs/eve.pem"]), "certs/crl.pem has 1 certificates\n");
    eventually("the list is in force", || !answer("eve").status.success());
    assert!(err(&answer("eve")).contains("is revoked; issue another one"), "{}", err(&answer("eve")));
    assert!(answer("ann").status.success());
    let checked = |name: &str| {
        let (ca, certificate) = (certs.text("ca.pem"), certs.text(&format!("{name}.pem")));
        said("openssl", &["verify", "-crl_check", "-CAfile", &ca, "-CRLfile", &list, &certificate])
    };
    assert!(checked("eve").contains("certificate revoked") && checked("ann").contains("ann.pem: OK"));
    let signed = said("openssl", &["crl", "-in", &list, "-CAfile", &certs.text("ca.pem"), "-noout"]);
    assert!(signed.contains("verify OK"), "{signed}");
    let wrong = certs.refused(&["revoke", "certs/ca.pem"]);
    assert!(wrong.contains("is an authority"), "{wrong}");
    // A new key under the same name.
    certs.ok(&["issue", "viewer", "eve", "--force"]);
    assert!(answer("eve").status.success());
}

#[test]
fn files_that_cannot_be_used_end_the_start_with_what_to_do() {
    let certs = Certs::new();
    certs.ok(&["issue", "controller", "other"]);
    let data = certs.path("data");
    let started = |certificate: &str, key: &str| {
        let (certificate, key) = (certs.text(certificate), certs.text(key));
        let words = ["controller", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"];
        let tls = [data.to_str().unwrap(), "--tls-cert", &certificate, "--tls-key", &key];
        let output = run(&[&words[..], &tls].concat());
        assert_eq!(output.status.code(), Some(1));
        err(&output)
    };
    assert!(started("rates.pem", "other-key.pem").contains("does not belong to the certificate"));
    assert!(started("none.pem", "rates-key.pem").contains("cannot read"));
    fs::set_permissions(certs.path("rates-key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(
        started("rates.pem", "rates-key.pem").contains("mode 0644: others can read the key; run: chmod 600")
    );
}
