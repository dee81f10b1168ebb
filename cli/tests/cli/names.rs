//! Names, as scripts take them from one command to the next.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Stdio};

use crate::support::{Controller, tidegate};

/// A command that goes on, killed when dropped.
struct Going(Child);

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_made_and_listed_can_be_named_to_the_next_command() {
    let controller = Controller::start();
    let made = controller.ok(&["group", "create", "shop", "--rate", "5", "-o", "name"]);
    assert_eq!(made, "shop\n");
    assert_eq!(controller.ok(&["group", "propose", "shop", "--rate", "6", "-o", "name"]), "shop\n");
    assert_eq!(controller.ok(&["group", "proposals", "-o", "name"]), "shop\n");
    assert_eq!(controller.ok(&["group", "proposal", "shop", "-o", "name"]), "shop\n");
    assert_eq!(controller.ok(&["group", "apply-proposal", "shop", "-o", "name"]), "shop\n");
    assert_eq!(controller.ok(&["group", "alter", "shop", "--rate", "6", "-o", "name"]), "shop\n");
    let add = ["watch", "add", "--group", "shop", "--similar-to", "8c1d3f0a5b7e9d21", "--action", "kill"];
    let watch = controller.ok(&[&add[..], &["-o", "name"]].concat());
    assert_eq!(controller.ok(&["watch", "list", "-o", "name"]), watch);
    assert_eq!(controller.ok(&["watch", "remove", watch.trim()]), "1 watches removed\n");
    let token = controller.ok(&["token", "create", "ann", "--role", "operator"]);
    assert!(token.starts_with("tdg_"), "{token}");
    let id = controller.ok(&["token", "list", "-o", "name"]);
    assert_eq!(
        controller.ok(&["token", "revoke", id.trim()]),
        format!("token {} of ann revoked\n", id.trim())
    );
    assert_eq!(controller.ok(&["token", "list", "-o", "name"]), "");
    assert_eq!(controller.ok(&["bind", "add", "shop", "--tenant", "acme"]), "tenant acme bound to shop\n");
    assert_eq!(controller.ok(&["bind", "add", "shop", "--user", "u"]), "user u bound to shop\n");
    assert_eq!(controller.ok(&["bind", "list", "-o", "name"]), "acme\t\n\tu\n");
    assert_eq!(controller.ok(&["cost-table", "list", "-o", "name"]), "tidb-v1\n");
}

#[test]
fn a_refusal_names_the_flag_and_leaves_everything_as_it_was() {
    let controller = Controller::start();
    for name in ["a", "b"] {
        controller.ok(&["group", "create", name, "--rate", "5"]);
    }
    let before = controller.json(&["status"])["revision"].clone();
    for (words, said) in [
        (&["group", "delete", "a", "b", "--expect-revision", "3"][..], "--expect-revision is of one group"),
        (&["group", "alter", "a"], "name at least one setting"),
        (&["token", "create", "x", "--role", "king"], "--role: \"king\" is no role"),
        (&["token", "create", "x", "--role", "viewer", "--ttl", "99999999h"], "--ttl: is longer than"),
        (&["token", "create", "x", "--role", "viewer", "--ttl", "0s"], "a token that ends at once is none"),
        (&["token", "create", "x", "--role", "viewer", "--ttl", "soon"], "is not a duration such as"),
        (&["token", "create", "x", "--role", "tenant"], "--tenant: is missing"),
        (&["token", "create", "x", "--role", "viewer", "--groups", "a"], "--groups: only a node"),
        (
            &["watch", "add", "--group", "a", "--similar-to", "x", "--action", "kill"],
            "--similar-to or --exact: ",
        ),
        (&["cluster", "drain", "--rest", "0s"], "it would lead again at once; leave it out for 30s"),
        (&["cluster", "drain", "--rest", "soon"], "is not a duration such as"),
    ] {
        let told = controller.wrong(words);
        assert!(told.contains(said), "{words:?}: {told}");
    }
    let kept = controller.path("kept");
    std::fs::write(&kept, "mine").unwrap();
    let create = ["token", "create", "x", "--role", "viewer", "--out"];
    let told = controller.refused(&[&create[..], &[kept.to_str().unwrap()]].concat());
    assert!(told.contains("kept exists; name another file"), "{told}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "mine");
    assert_eq!(controller.ok(&["token", "list", "-o", "name"]), "");
    assert_eq!(controller.json(&["status"])["revision"], before);
    // A token that nobody can use is told with its number, to be ended.
    let nowhere = controller.path("none/there");
    let told = controller.refused(&[&create[..], &[nowhere.to_str().unwrap()]].concat());
    let id = controller.ok(&["token", "list", "-o", "name"]);
    assert!(told.contains(&format!("the token is lost: run tidegate token revoke {}", id.trim())), "{told}");
}

#[test]
fn top_prints_each_new_name_and_outlives_its_controller() {
    let mut controller = Controller::start();
    let mut command = tidegate();
    command.args(["--endpoint", &controller.endpoint, "top", "--all", "-o", "name", "--interval", "100ms"]);
    let mut top =
        Going(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let lines = |output: Box<dyn Read>| BufReader::new(output).lines();
    let mut seen = lines(Box::new(top.0.stdout.take().unwrap()));
    let mut told = lines(Box::new(top.0.stderr.take().unwrap()));
    let mut next = || seen.next().unwrap().unwrap();
    assert_eq!(next(), "default");
    controller.ok(&["group", "create", "shop", "--rate", "5"]);
    assert_eq!(next(), "shop", "none is printed twice");
    controller.kill();
    let away = told.next().unwrap().unwrap();
    assert!(away.contains("cannot reach the controller") && away.ends_with("trying again"), "{away}");
    controller.again();
    assert_eq!(told.next().unwrap().unwrap(), "the controller is back", "each is said once");
    controller.ok(&["group", "create", "reports", "--rate", "5"]);
    assert_eq!(next(), "reports");
}
