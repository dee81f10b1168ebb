//! Commands of a cluster that are refused: without a cluster, and without what they need.

use std::path::Path;

use crate::support::{Controller, err, run};

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
