//! Commands of a cluster: refused without a cluster and without what they need, and what they show of two controllers.

use std::path::Path;

use tidegate_test_servers::Etcd;

use crate::between::{before_call, that_breaks};
use crate::support::{Controller, err, eventually, out, run, tidegate};

/// Runs `cluster restored` with data, and an etcd that is away; returns what it says.
fn restored(data: &Path, more: &[&str]) -> String {
    let etcd = ["--cluster-name", "c1", "--etcd", "http://127.0.0.1:1"];
    let begin = ["cluster", "restored", "--data", data.to_str().unwrap()];
    let output = run(&[&begin, more, &etcd].concat());
    assert!(!output.status.success());
    err(&output)
}

#[test]
fn a_controller_alone_forgets_no_controller() {
    let controller = Controller::start();
    let output = run(&["--endpoint", &controller.endpoint, "cluster", "forget", "c2"]);
    assert!(!output.status.success());
    assert!(err(&output).contains("not one of a cluster; see etcd_endpoints"), "{}", err(&output));
}

#[test]
fn a_wait_for_one_leader_goes_on_while_two_say_that_they_lead() {
    let (one, two) = (Controller::start(), Controller::start());
    // The way to the second one is there for one look.
    let both = format!("{},{}", one.endpoint, before_call(&two.endpoint, 1, || ()));
    let status = run(&["--endpoint", &both, "cluster", "status", "--wait", "600", "-o", "json"]);
    assert!(status.status.success(), "{}", err(&status));
    let views: serde_json::Value = serde_json::from_str(&out(&status)).unwrap();
    assert_eq!((&views[0]["role"], &views[1]["role"]), (&"leader".into(), &"unreachable".into()), "{views}");
    let all = format!("{},{}", one.endpoint, two.endpoint);
    let several = run(&["--endpoint", &all, "cluster", "status"]);
    assert_eq!(several.status.code(), Some(1), "{}", out(&several));
    assert!(err(&several).contains("2 controllers say that they lead"), "{}", err(&several));
}

#[test]
fn a_command_goes_on_to_the_next_controller_unless_this_one_refuses() {
    let one = Controller::start();
    one.ok(&["group", "create", "of-one", "--rate", "1"]);
    let guarded = Controller::with(&["--authentication", "required"]);
    let list = |endpoints: &[&String]| {
        let all: Vec<&str> = endpoints.iter().map(|one| one.as_str()).collect();
        run(&["--endpoint", &all.join(","), "group", "list", "-o", "name"])
    };
    let (broken, gone) = (that_breaks(), "http://127.0.0.1:1".to_owned());
    for endpoints in
        [&[&broken, &one.endpoint][..], &[&one.endpoint, &broken], &[&gone, &broken, &one.endpoint]]
    {
        let listed = list(endpoints);
        assert_eq!(out(&listed), "default\nof-one\n", "{endpoints:?}: {}", err(&listed));
    }
    let broken = list(&[&broken, &gone]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(err(&broken).contains(&format!("cannot reach the controller at {gone}")), "{}", err(&broken));
    for (endpoints, code, says) in [
        ([&guarded.endpoint, &one.endpoint], 1, "token"),
        ([&"ftp://here".to_owned(), &one.endpoint], 2, "\"ftp://here\" cannot be used"),
    ] {
        let refused = list(&endpoints);
        assert_eq!(refused.status.code(), Some(code), "{endpoints:?}: {}", out(&refused));
        assert!(err(&refused).contains(says), "{}", err(&refused));
    }
}

#[test]
fn a_cluster_is_restored_beside_the_data_of_a_controller_of_it_only() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    assert!(restored(&nowhere, &[]).contains("nowhere: there is no such directory"));
    assert!(!nowhere.exists(), "a name that was mistyped makes no folder");
    let empty = restored(folder.path(), &[]);
    assert!(empty.contains("there is no store") && empty.contains("tidegate.redb"), "{empty}");
    let twice = restored(folder.path(), &["--data", folder.path().to_str().unwrap()]);
    assert!(twice.contains("cannot be used multiple times"), "{twice}");
    let none = run(&["cluster", "restored", "--data", folder.path().to_str().unwrap()]);
    assert!(err(&none).contains("no cluster is configured"), "{}", err(&none));

    let mut controller = Controller::start();
    let data = controller.data().to_owned();
    let busy = restored(&data, &[]);
    assert!(busy.contains("in use by another process"), "{busy}");
    controller.halt();
    let alone = restored(&data, &[]);
    assert!(alone.contains("follows no log of a cluster"), "{alone}");
    assert!(data.join("tidegate.redb").exists(), "it stays");
}

#[test]
fn operators_see_who_leads_hand_the_lead_over_and_forget_who_is_gone() {
    let etcd = Etcd::start(1, &[]).unwrap();
    let at = etcd.endpoints().join(",");
    let mut first = Controller::with(&["--cluster-name", "c1", "--etcd", &at]);
    let status = |endpoints: &str, more: &[&str]| {
        run(&[&["--endpoint", endpoints, "cluster", "status"], more].concat())
    };
    let alone = status(&first.endpoint, &["--wait", "60"]);
    assert!(alone.status.success(), "{}", err(&alone));
    let mut second = Controller::with(&["--cluster-name", "c2", "--etcd", &at]);
    let (one, two) = (first.endpoint.clone(), second.endpoint.clone());
    let both = format!("{one},{two}");
    let cluster = |words: &[&str]| run(&[&["--endpoint", &both, "cluster"], words].concat());
    let columns = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };

    eventually("the leader sees both", || out(&cluster(&["members", "-o", "name"])) == "c1\nc2\n");
    let members = columns(&out(&cluster(&["members"])));
    assert_eq!(members[1][..3], ["c1", "leader", one.as_str()], "{members:?}");
    assert_eq!(members[2][..3], ["c2", "standby", two.as_str()], "{members:?}");
    assert_eq!((members[1][3].as_str(), members[1][5].as_str()), (env!("CARGO_PKG_VERSION"), "ago"));
    let shown = status(&both, &[]);
    assert!(err(&shown).starts_with("cluster ") && err(&shown).contains(" under tidegate/"));
    let rows = columns(&out(&shown));
    assert_eq!(rows[1][..], [one.as_str(), "leader", "1", "serving"], "{rows:?}");
    assert_eq!(rows[2][..3], [two.as_str(), "standby", "-"], "{rows:?}");
    assert!(out(&shown).contains("controller c2 is a standby of c1"), "{}", out(&shown));
    let standby = status(&two, &[]);
    assert_eq!(standby.status.code(), Some(1), "{}", out(&standby));
    assert!(err(&standby).contains("no controller leads; see what each of them says"), "{}", err(&standby));

    let too_long = cluster(&["drain", "--rest", "25h"]);
    assert_eq!(too_long.status.code(), Some(2));
    assert!(err(&too_long).contains("--rest: 90000s is longer than"), "{}", err(&too_long));
    assert_eq!(out(&status(&both, &["-o", "name"])), format!("{one}\n"), "it leads on");
    eventually("the lead is handed over", || {
        let drained = out(&cluster(&["drain", "--controller", "c1"]));
        drained == "controller c1 leaves the lead to another one for 30s\n"
    });
    eventually("the other one leads", || out(&status(&both, &["-o", "name"])) == format!("{two}\n"));
    let mut complete = tidegate();
    complete.args(["complete", "--", "tidegate", "--endpoint", &both, "cluster", "forget", "c"]);
    eventually("the one that stands by is offered", || out(&complete.output().unwrap()) == "c1\n");

    first.kill();
    eventually("the one that was killed is forgotten", || {
        let said = out(&cluster(&["forget", "c1"]));
        said.starts_with("controller c1 is forgotten; it was silent for ")
    });
    let rows = columns(&out(&status(&both, &[])));
    assert_eq!(rows[1][..3], [one.as_str(), "unreachable", "-"], "{rows:?}");
    assert_eq!(rows[2][1..4], ["leader", "1", "serving"], "{rows:?}");
    second.kill();
    let none = status(&both, &["--wait", "1"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(err(&none).contains("no controller leads"), "{}", err(&none));
}
