//! `tidegate store`: backup, restore and check with the real binary, and processes that are killed in the middle.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_controller::store::records::pair_key;
use tidegate_controller::store::{RedbStore, Store as _, Table, Write};
use tidegate_core::group::GroupId;

use crate::support::{Controller, err, out, run, tidegate};

/// Rows that make the store some megabytes large, so that there is a middle to be killed in.
const ROWS: u64 = 30_000;

/// A controller with a long history.
fn large() -> Controller {
    let mut controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "5"]);
    controller.kill();
    let row = |hour: u64| {
        let mut consumption = vec![0; 153];
        consumption[0] = 1;
        Write::Put(Table::Hours, pair_key((500_000 + hour) * 3_600, GroupId::DEFAULT), consumption)
    };
    let store = RedbStore::open(&controller.data().join("tidegate.redb")).unwrap();
    store.commit(&(0..ROWS).map(row).collect::<Vec<_>>()).unwrap();
    drop(store);
    controller.again();
    controller
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// The file under which a backup is written until it is whole.
fn draft(folder: &Path) -> Option<PathBuf> {
    names(folder).iter().find(|name| name.ends_with(".part")).map(|name| folder.join(name))
}

#[test]
fn a_backup_is_put_back_and_the_old_store_stays_beside_it() {
    let mut controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "2000"]);
    controller.ok(&["bind", "add", "shop", "--tenant", "acme"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.redb");
    let said = controller.ok(&["store", "backup", text(&file)]);
    assert!(said.contains("whole copy: epoch 1, revision 4") && said.contains("bindings"), "{said}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(controller.ok(&["audit"]).contains("backup store"));
    let view: serde_json::Value =
        serde_json::from_str(&out(&run(&["store", "check", text(&file), "-o", "json"]))).unwrap();
    assert_eq!(
        (&view["epoch"], &view["damages"], &view["rows"]["groups"]),
        (&1.into(), &0.into(), &2.into())
    );

    let elsewhere = folder.path().join("elsewhere");
    let output = run(&["store", "restore", text(&file), "--data", text(&elsewhere)]);
    assert!(output.status.success(), "{}", err(&output));
    let mode = fs::metadata(&elsewhere).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "a folder with the key that signs leases");

    controller.ok(&["group", "delete", "shop", "--force-to", "default"]);
    let data = controller.data().to_owned();
    let put_back = ["store", "restore", text(&file), "--data", text(&data)];
    assert!(err(&run(&put_back)).contains("is there already"));
    let busy = err(&run(&[&put_back[..], &["--replace"]].concat()));
    assert!(busy.contains("in use by another process"), "{busy}");
    assert!(err(&run(&["store", "check", text(&data)])).contains("in use by another process"));
    controller.kill();
    let output = run(&[&put_back[..], &["--replace"]].concat());
    assert!(output.status.success() && err(&output).contains("tidegate.redb.replaced-1"), "{}", err(&output));
    assert!(out(&run(&["store", "check", text(&data)])).contains("nothing is damaged"));
    controller.again();
    assert!(controller.ok(&["group", "list"]).contains("shop"));
    assert!(controller.ok(&["status"]).contains("recovering"));
}

#[test]
fn a_store_that_was_stopped_cleanly_gets_another_key_and_goes_on() {
    let mut controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "2000"]);
    let data = controller.data().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.redb");
    controller.ok(&["store", "backup", text(&file)]);
    let rekey = ["store", "rekey", text(&data)];
    assert!(err(&run(&rekey)).contains("in use by another process"));
    let key = || {
        let store = RedbStore::peek(&data.join("tidegate.redb")).unwrap();
        store.get(Table::Meta, &[b"proof_key".to_vec()]).unwrap()
    };
    // A copy of a store that was stopped cleanly.
    controller.halt();
    let before = key();
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for name in names(&data) {
        fs::copy(data.join(&name), copy.join(&name)).unwrap();
    }
    assert!(err(&run(&["store", "rekey", text(&copy)])).contains("or is a copy"));
    let output = run(&rekey);
    assert!(output.status.success() && out(&output).contains("has another key"), "{}", err(&output));
    assert!(key() != before && out(&run(&["store", "check", text(&data)])).contains("nothing is damaged"));
    controller.again();
    let status = controller.ok(&["status"]);
    assert!(status.contains("serving") && controller.ok(&["group", "list"]).contains("shop"), "{status}");
    // Killed: nodes may know more than the store.
    controller.kill();
    let before = key();
    let refused = err(&run(&rekey));
    assert!(
        refused.contains("was not stopped cleanly, or is a copy") && refused.contains("SIGTERM"),
        "{refused}"
    );
    assert_eq!(key(), before);
    let old = err(&run(&["store", "restore", text(&file), "--data", text(&data), "--replace"]));
    assert!(old.contains("of different clusters"), "{old}");
    assert!(err(&run(&["store", "rekey", text(&folder.path().join("none"))])).contains("none"));
}

#[test]
fn only_an_older_backup_gives_way_and_only_when_told() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let (file, notes) = (folder.path().join("backup.redb"), folder.path().join("notes"));
    controller.ok(&["store", "backup", text(&file)]);
    let first = fs::read(&file).unwrap();
    let there = controller.refused(&["store", "backup", text(&file)]);
    assert!(there.contains("backup.redb is there already") && there.contains("--replace"), "{there}");
    assert!(fs::read(&file).unwrap() == first);
    controller.ok(&["group", "create", "shop", "--rate", "5"]);
    let said = controller.ok(&["store", "backup", text(&file), "--replace"]);
    assert!(said.contains("revision 4"), "{said}");
    fs::write(&notes, "mine").unwrap();
    for more in [&["--replace"][..], &[]] {
        controller.refused(&[&["store", "backup", text(&notes)], more].concat());
    }
    let own = controller.data().join("tidegate.redb");
    let own = controller.refused(&["store", "backup", text(&own), "--replace"]);
    assert!(own.contains("in use"), "{own}");
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
    assert!(names(folder.path()).iter().all(|name| !name.ends_with(".part")), "{:?}", names(folder.path()));
}

#[test]
fn a_damaged_store_is_listed_and_ends_with_status_1() {
    let mut controller = Controller::start();
    controller.kill();
    let path = controller.data().join("tidegate.redb");
    let store = RedbStore::open(&path).unwrap();
    store.commit(&[Write::Put(Table::Bindings, b"x".to_vec(), b"{}".to_vec())]).unwrap();
    drop(store);
    let output = run(&["store", "check", text(controller.data())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("1 damages"), "{}", out(&output));
    assert!(err(&output).contains("damaged: bindings x: missing field"), "{}", err(&output));
}

#[test]
fn a_full_disk_leaves_no_half_file() {
    let controller = large();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.redb");
    for (kib, more) in [(16, None), (1_500, None), (3_000, None), (1_500, Some("--data"))] {
        let copy = folder.path().join("store.redb");
        if more.is_some() {
            fs::copy(controller.data().join("tidegate.redb"), &copy).unwrap();
        }
        let offline = more.map(|flag| vec![flag, text(&copy)]).unwrap_or_default();
        let output = Command::new("bash")
            .arg("-c")
            .arg(format!("trap '' XFSZ; ulimit -f {kib}; exec \"$0\" \"$@\""))
            .arg(tidegate().get_program())
            .args(["--endpoint", &controller.endpoint, "store", "backup", text(&file)])
            .args(offline)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{kib}: {}", err(&output));
        assert!(err(&output).contains("arge"), "File too large: {}", err(&output));
        let left: Vec<String> =
            names(folder.path()).into_iter().filter(|name| name != "store.redb").collect();
        assert!(left.is_empty(), "{kib}: {left:?}");
    }
    controller.ok(&["store", "backup", text(&file)]);
}

#[test]
fn who_is_killed_on_either_side_leaves_no_half_file_under_the_final_name() {
    let mut controller = large();
    // In the first two rounds it does not begin to answer; a later one is killed later, if it is not quicker.
    for (round, kills_controller) in [false, true, false, true, false, true].into_iter().enumerate() {
        let never_answers = round < 2;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.redb");
        controller.hold(never_answers);
        let mut command = tidegate();
        command.args(["--endpoint", &controller.endpoint, "store", "backup", text(&file)]);
        let mut backup = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let least = if never_answers { 0 } else { round as u64 * 400_000 };
        let under_way = || draft(folder.path()).and_then(|path| fs::metadata(path).ok());
        while backup.try_wait().unwrap().is_none() && under_way().is_none_or(|data| data.len() < least) {
            std::thread::yield_now();
        }
        if kills_controller {
            controller.kill();
        } else {
            backup.kill().unwrap();
        }
        let ended = backup.wait_with_output().unwrap();
        if file.exists() {
            assert!(!never_answers);
            assert!(out(&run(&["store", "check", text(&file)])).contains("nothing is damaged"));
        } else {
            assert!(!ended.status.success());
            assert!(!kills_controller || draft(folder.path()).is_none(), "{}", err(&ended));
        }
        if kills_controller {
            controller.again();
        } else {
            controller.hold(false);
        }
    }
}

#[test]
fn a_backup_whose_name_was_mistyped_makes_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("mistyped.redb"), folder.path().join("data"));
    let output = run(&["store", "restore", text(&file), "--data", text(&data)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("mistyped.redb") && !data.exists(), "{}", err(&output));
}
