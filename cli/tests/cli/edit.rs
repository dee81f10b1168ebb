//! `tidegate edit` with editors that are scripts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{Controller, err, eventually, out, tidegate};

/// A controller with a group, and an editor that is this script; `$1` is the file.
fn stage(script: &str) -> (Controller, TempDir, PathBuf) {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "5"]);
    let folder = tempfile::tempdir().unwrap();
    let editor = folder.path().join("editor");
    fs::write(&editor, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    (controller, folder, editor)
}

fn edit(controller: &Controller, editor: &Path, folder: &Path) -> Output {
    let mut command = tidegate();
    command.args(["--endpoint", &controller.endpoint, "edit", "group", "shop"]);
    command
        .env_remove("VISUAL")
        .env("EDITOR", editor)
        .env("TMPDIR", folder)
        .env("ENDPOINT", &controller.endpoint);
    command.env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate")).output().unwrap()
}

fn rate(controller: &Controller) -> String {
    controller.json(&["group", "show", "shop"])["ru_per_sec"].as_str().unwrap().to_owned()
}

/// The text that was kept, by the path that the error names.
fn kept(output: &Output) -> String {
    let said = err(output);
    let path = said.split("the text is in ").nth(1).unwrap_or_else(|| panic!("{said}"));
    // The difference is behind it, on lines of its own.
    fs::read_to_string(path.lines().next().unwrap()).unwrap()
}

fn drafts(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("tidegate-")).count()
}

#[test]
fn what_is_saved_is_in_force_and_what_is_not_changed_changes_nothing() {
    let (controller, folder, editor) = stage("sed -i 's/^ru_per_sec: .*/ru_per_sec: 7/' \"$1\"");
    let output = edit(&controller, &editor, folder.path());
    assert!(output.status.success() && out(&output).contains("group shop altered"), "{}", err(&output));
    assert_eq!(rate(&controller), "7");
    let revision = controller.json(&["group", "show", "shop"])["revision"].clone();
    fs::write(&editor, "#!/bin/sh\ntest \"$(stat -c %a \"$1\")\" = 600 || exit 3\n").unwrap();
    let output = edit(&controller, &editor, folder.path());
    assert_eq!(out(&output), "group shop unchanged\n", "{}", err(&output));
    assert_eq!(controller.json(&["group", "show", "shop"])["revision"], revision);
    assert_eq!(drafts(folder.path()), 0);
}

#[test]
fn a_conflict_keeps_the_text_and_shows_what_changed() {
    // Somebody is faster, once; the text is opened again, and saved without a look.
    let script = "if grep -q '^#!' \"$1\"; then cp \"$1\" \"$TMPDIR/seen\"; exit 0; fi\n\
                  \"$TIDEGATE\" --endpoint \"$ENDPOINT\" group alter shop --weight 9 >/dev/null\n\
                  sed -i 's/^ru_per_sec: .*/ru_per_sec: 7/' \"$1\"";
    let (controller, folder, editor) = stage(script);
    let output = edit(&controller, &editor, folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("someone else changed the group meanwhile"), "{}", err(&output));
    assert!(kept(&output).contains("ru_per_sec: 7"));
    let seen = fs::read_to_string(folder.path().join("seen")).unwrap();
    assert!(seen.contains("#! -weight: 1\n") && seen.contains("#! +weight: 9\n"), "{seen}");
    assert_eq!(rate(&controller), "5");
    // A user who deletes the reason confirms the text.
    fs::write(&editor, "#!/bin/sh\nsed -i '/^#!/d; s/^ru_per_sec: .*/ru_per_sec: 8/' \"$1\"\n").unwrap();
    assert!(edit(&controller, &editor, folder.path()).status.success());
    assert_eq!(rate(&controller), "8");
}

#[test]
fn what_is_refused_is_opened_again_with_the_reason() {
    let script = "if grep -q '^#! .*lots' \"$1\"; then sed -i 's/lots/9/' \"$1\"; exit 0; fi\n\
                  sed -i 's/^ru_per_sec: .*/ru_per_sec: lots/' \"$1\"";
    let (controller, folder, editor) = stage(script);
    let output = edit(&controller, &editor, folder.path());
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!((rate(&controller).as_str(), drafts(folder.path())), ("9", 0));
    for (broken, part) in [
        ("s/^weight: .*/weight: many/", "no whole number"),
        ("s/^name: .*/name: other/", "keeps its name"),
        ("s/^burst: .*/\\tburst: 5/", "not YAML"),
    ] {
        fs::write(&editor, format!("#!/bin/sh\ngrep -q '^#!' \"$1\" || sed -i '{broken}' \"$1\"\n")).unwrap();
        let output = edit(&controller, &editor, folder.path());
        assert!(output.status.code() == Some(1) && err(&output).contains(part), "{broken}: {}", err(&output));
        assert!(kept(&output).contains("kind: Group"));
    }
    assert_eq!(rate(&controller), "9");
}

#[test]
fn what_was_changed_before_a_refusal_is_kept_where_the_editor_fails_behind_it() {
    let script = "if grep -q '^#!' \"$1\"; then exit 1; fi; sed -i 's/^weight: .*/weight: many/' \"$1\"";
    let (controller, folder, editor) = stage(script);
    let output = edit(&controller, &editor, folder.path());
    assert!(output.status.code() == Some(1) && kept(&output).contains("weight: many"), "{}", err(&output));
}

#[test]
fn an_editor_that_fails_or_is_not_named_changes_nothing() {
    let (controller, folder, editor) = stage("sed -i 's/^ru_per_sec: .*/ru_per_sec: 7/' \"$1\"; exit 4");
    let output = edit(&controller, &editor, folder.path());
    assert!(output.status.code() == Some(1) && kept(&output).contains("ru_per_sec: 7"), "{}", err(&output));
    let output = edit(&controller, Path::new("/no/such/editor"), folder.path());
    assert!(output.status.code() == Some(1) && !err(&output).contains("the text is in"), "{}", err(&output));
    assert_eq!(rate(&controller), "5");
    let mut command = tidegate();
    command.args(["--endpoint", &controller.endpoint, "edit", "group", "shop"]);
    let output = command.env_remove("VISUAL").env_remove("EDITOR").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("neither VISUAL nor EDITOR"), "{}", err(&output));
    let missing = controller.run(&["edit", "group", "nobody"]);
    assert!(!missing.status.success());
}

/// The file whose name the error says, as bytes.
fn kept_bytes(output: &Output) -> Vec<u8> {
    let said = err(output);
    let path = said.split("the text is in ").nth(1).unwrap_or_else(|| panic!("{said}"));
    fs::read(path.lines().next().unwrap()).unwrap()
}

#[test]
fn a_text_that_is_no_utf_8_is_kept() {
    let (controller, folder, editor) = stage("printf 'comment: gr\\374n\\n' >> \"$1\"");
    let output = edit(&controller, &editor, folder.path());
    assert!(!output.status.success() && err(&output).contains("is not UTF-8"), "{}", err(&output));
    assert!(kept_bytes(&output).ends_with(b"comment: gr\xfcn\n"));
}

/// Starts a controller whose REST listens where gRPC was; it ends with the standard input that is returned.
fn rest_at(endpoint: &str, data: &Path) -> Child {
    let address = endpoint.strip_prefix("http://").unwrap();
    let mut command = tidegate();
    command.args([
        "controller",
        "--listen",
        "127.0.0.1:0",
        "--http",
        address,
        "--until-stdin-ends",
        "--data",
    ]);
    command.arg(data).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.contains("rest ")));
    child
}

/// An error that is no refusal of the text, and that no other text would mend.
#[test]
fn a_text_is_kept_when_what_answers_at_last_is_no_controller() {
    let script = "sed -i 's/^ru_per_sec: .*/ru_per_sec: 7/' \"$1\"; touch \"$TMPDIR/written\"\n\
                  until test -e \"$TMPDIR/there\"; do :; done";
    let (controller, folder, editor) = stage(script);
    let output = thread::scope(|scope| {
        let edited = scope.spawn(|| edit(&controller, &editor, folder.path()));
        eventually("the text is written", || folder.path().join("written").exists());
        let pid = Pid::from_raw(i32::try_from(controller.id()).unwrap()).unwrap();
        let address = controller.endpoint.strip_prefix("http://").unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        eventually("its port is free", || TcpStream::connect(address).is_err());
        let mut other = rest_at(&controller.endpoint, &folder.path().join("other"));
        fs::write(folder.path().join("there"), "").unwrap();
        let output = edited.join().unwrap();
        drop(other.stdin.take());
        other.wait().unwrap();
        output
    });
    assert!(!output.status.success() && err(&output).contains("gRPC"), "{}", err(&output));
    assert!(kept(&output).contains("ru_per_sec: 7"));
}

#[test]
fn a_text_that_is_emptied_changes_nothing_and_one_that_says_the_same_says_so() {
    let (controller, folder, editor) = stage("printf '# nothing\\n\\n' > \"$1\"");
    let output = edit(&controller, &editor, folder.path());
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(out(&output), "group shop unchanged: the text is empty\n");
    // Another text of the same group.
    fs::write(&editor, "#!/bin/sh\nprintf '# mine\\n' >> \"$1\"\n").unwrap();
    let output = edit(&controller, &editor, folder.path());
    assert_eq!(out(&output), "group shop unchanged, revision 2\n", "{}", err(&output));
    // One that is refused again and again is kept in the end.
    fs::write(&editor, "#!/bin/sh\nprintf 'colour: red\\n' >> \"$1\"\n").unwrap();
    let output = edit(&controller, &editor, folder.path());
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    assert!(said.contains("nothing is changed after 20 tries") && said.contains("colour"), "{said}");
    assert!(kept(&output).contains("colour: red"), "{said}");
    assert_eq!(rate(&controller), "5");
}
