//! `tidegate apply`, `diff` and several names: with a real controller, and one that is killed in the middle.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_test_servers::said;

use crate::between::before_call;
use crate::support::{Controller, err, out, run, tidegate};

const SHOP: &str = "kind: Group\nname: shop\nru_per_sec: 2000\n---\nkind: Group\nname: board\nparent: shop\nru_per_sec: 300\n\
                    ---\nkind: Binding\ntenant: acme\ngroup: shop\n";

/// A file in a folder of its own.
fn file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.yaml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn with<'a>(words: &[&'a str], path: &'a Path) -> Vec<&'a str> {
    let (command, options) = words.split_first().unwrap();
    [&[*command, "-f", path.to_str().unwrap()], options].concat()
}

/// What became of each thing.
fn outcomes(applied: &Value) -> Vec<String> {
    let told = applied["outcomes"].as_array().unwrap().iter();
    told.map(|one| format!("{} {}", one["name"].as_str().unwrap(), one["outcome"].as_str().unwrap()))
        .collect()
}

fn names(controller: &Controller) -> Vec<String> {
    let groups = controller.json(&["group", "list"]);
    groups.as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs a command that reads `input`.
fn fed(controller: &Controller, words: &[&str], input: &str) -> Output {
    let mut command = tidegate();
    command.args(["--endpoint", &controller.endpoint]).args(words);
    let mut process =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that refuses early reads no more.
    let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
    process.wait_with_output().unwrap()
}

#[test]
fn what_is_applied_is_there_and_again_changes_nothing() {
    let controller = Controller::start();
    let (_folder, path) = file(SHOP);
    let dry = controller.ok(&with(&["apply", "--dry-run"], &path));
    assert!(dry.contains("group shop created (dry run)") && names(&controller) == ["default"], "{dry}");
    let told = controller.ok(&with(&["apply"], &path));
    assert_eq!(told, "group shop created\ngroup board created\nbinding tenant acme created\n");
    let revision = controller.json(&["status"])["revision"].clone();
    let again = controller.json(&with(&["apply"], &path));
    assert_eq!(outcomes(&again), ["shop unchanged", "board unchanged", "tenant acme unchanged"]);
    assert_eq!((&again["changed"], &again["revision"]), (&Value::Bool(false), &revision));
    // The output of a list can be applied, here and elsewhere.
    let other = Controller::start();
    for list in [["group", "list"], ["bind", "list"], ["cost-table", "list"], ["watch", "list"]] {
        let listed = controller.json(&list).to_string();
        if listed == "[]" {
            continue;
        }
        for controller in [&controller, &other] {
            let output = fed(controller, &["apply", "-f", "-"], &listed);
            assert!(output.status.success(), "{list:?}: {}", err(&output));
        }
    }
    assert_eq!(names(&other), names(&controller));
    assert_eq!(controller.json(&["status"])["revision"], revision);
}

#[test]
fn every_fault_is_told_with_its_place_and_nothing_is_changed() {
    let controller = Controller::start();
    let (_folder, path) = file(
        "kind: Group\nname: good\nru_per_sec: 5\n---\nkind: Group\nname: bad\nru_per_sec: lots\nburst: -1\n---\n\
         kind: Binding\nuser: u\ngroup: n o\n",
    );
    let said = controller.refused(&with(&["apply"], &path));
    for part in [
        "3 faults, nothing is changed",
        "f.yaml:7: document 2, group bad: ru_per_sec:",
        "f.yaml:8: ",
        ":12: document 3",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for (text, part) in [
        (
            "kind: Group\nname: a\nru_per_sec: 5\nparent: nowhere\n",
            ":4: document 1, group a: parent: group nowhere",
        ),
        (
            "kind: Group\nname: a\nru_per_sec: 5\nparent: b\n---\nkind: Group\nname: b\nparent: a\nru_per_sec: 5\n",
            "cycle",
        ),
        (
            "kind: Group\nname: a\nru_per_sec: 5\n---\nkind: Group\nname: A\nru_per_sec: 6\n",
            "say one thing of it",
        ),
        ("kind: Group\nname: a\nname: b\nru_per_sec: 5\n", ":3: \"name\" is in line 2, too"),
        ("kind: Group\nname: a\nrate: 5\n", "rate: unknown field"),
        ("kind: Group\n\tname: a\n", "blanks"),
        ("kind: Group\nname: a\nru_per_sec: 20", "cut off"),
        ("kind: Group\nname: a\n", "ru_per_sec: is empty"),
        ("", "no document"),
        ("{\"kind\": \"Group\", \"name\": \"a\", \"ru_per_sec\": \"5\"", "f.yaml:"),
    ] {
        fs::write(&path, text).unwrap();
        let said = controller.refused(&with(&["apply"], &path));
        assert!(said.contains(part), "{text:?}: {said}");
    }
    assert_eq!(names(&controller), ["default"]);
    let missing = controller.refused(&["apply", "-f", "/no/such.yaml"]);
    assert!(missing.contains("/no/such.yaml"), "{missing}");
}

#[test]
fn what_is_too_large_or_grows_without_bound_is_refused_before_anything_is_sent() {
    // Nothing listens there, and no controller is asked.
    let refused = |input: &str| {
        let mut command = tidegate();
        command.args(["--endpoint", "http://127.0.0.1:1", "apply", "-f", "-"]);
        let mut process = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
        err(&process.wait_with_output().unwrap())
    };
    assert!(refused(&"a: 1\n---\n".repeat(1_000_000)).contains("too large"));
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = level - 1;
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{below}"); 10].join(", ")));
    }
    assert!(refused(&bomb).contains("aliases"));
    assert!(refused(&format!("{}\n", "- ".repeat(100_000))).contains("in each other"));
    let many: String =
        (0..10_001).map(|user| format!("---\nkind: Binding\nuser: u{user}\ngroup: default\n")).collect();
    let controller = Controller::start();
    let said = err(&fed(&controller, &["apply", "-f", "-"], &many));
    assert!(said.contains("10001 are more than the 10000 of one change"), "{said}");
}

#[test]
fn what_the_files_do_not_name_goes_where_that_is_said() {
    let controller = Controller::start();
    let (_folder, path) = file(SHOP);
    controller.ok(&with(&["apply"], &path));
    controller.ok(&["group", "create", "aside", "--rate", "1"]);
    let kept = "kind: Group\nname: shop\nru_per_sec: 2000\n";
    fs::write(&path, kept).unwrap();
    for command in [&["apply", "--prune", "groups", "--yes"][..], &["diff", "--prune", "groups"]] {
        let half = controller.run(&with(command, &path));
        let said = err(&half);
        assert!(
            !half.status.success() && said.contains("f.yaml:3: ") && said.contains("a line `...`"),
            "{said}"
        );
    }
    assert_eq!(names(&controller).len(), 4);
    fs::write(&path, format!("{kept}...\n")).unwrap();
    let unsure = controller.run(&with(&["apply", "--prune", "groups,bindings", "--under", "shop"], &path));
    assert_eq!(unsure.status.code(), Some(2));
    assert!(err(&unsure).contains("say --yes"), "{}", err(&unsure));
    assert_eq!(names(&controller).len(), 4);
    let pruned =
        controller.json(&with(&["apply", "--prune", "groups,bindings", "--under", "shop", "--yes"], &path));
    assert_eq!(outcomes(&pruned), ["shop unchanged", "tenant acme deleted", "board deleted"]);
    assert_eq!(names(&controller), ["aside", "default", "shop"]);
    assert_eq!((&pruned["changed"], &pruned["dry_run"]), (&Value::Bool(true), &Value::Bool(false)));
    let differs = controller.run(&with(&["diff", "--prune", "groups"], &path));
    let gone = "--- live/group aside\n+++ (not in the files)\n@@ -1,";
    assert!(differs.status.code() == Some(1) && out(&differs).starts_with(gone), "{}", out(&differs));
    assert!(out(&differs).lines().skip(2).all(|line| line.starts_with(['-', '@'])), "{}", out(&differs));
    let prune = ["apply", "--prune", "groups", "--yes"];
    let dry = controller.json(&with(&[&prune[..], &["--dry-run"]].concat(), &path));
    assert_eq!((&dry["changed"], &dry["dry_run"]), (&Value::Bool(false), &Value::Bool(true)));
    assert_eq!(outcomes(&dry), ["shop unchanged", "aside deleted"]);
    assert_eq!(names(&controller), ["aside", "default", "shop"]);
    // Deletions are all that this one does.
    let pruned = controller.json(&with(&prune, &path));
    assert_eq!(outcomes(&pruned), ["shop unchanged", "aside deleted"]);
    let revision = controller.json(&["status"])["revision"].clone();
    assert_eq!((&pruned["changed"], &pruned["revision"]), (&Value::Bool(true), &revision));
    assert_eq!(names(&controller), ["default", "shop"]);
    let again = controller.json(&with(&prune, &path));
    assert_eq!((&again["changed"], &again["revision"]), (&Value::Bool(false), &revision));
}

#[test]
fn what_comes_between_the_question_what_may_go_and_the_change_is_not_deleted() {
    let controller = Arc::new(Controller::start());
    let (_folder, path) = file(&format!("{SHOP}...\n"));
    controller.ok(&with(&["apply"], &path));
    let other = Arc::clone(&controller);
    let create = move || drop(other.ok(&["group", "create", "late", "--rate", "1"]));
    // The first call asks what would go, which is nothing.
    let endpoint = before_call(&controller.endpoint, 2, create);
    let all = ["apply", "--prune", "groups,bindings", "--endpoint", &endpoint];
    let refused = run(&with(&all, &path));
    assert_eq!(refused.status.code(), Some(1), "{}", out(&refused));
    assert!(err(&refused).contains("revision"), "{}", err(&refused));
    assert_eq!(names(&controller), ["board", "default", "late", "shop"]);
}

#[test]
fn diff_shows_what_apply_would_change_and_says_so_by_its_status() {
    let controller = Controller::start();
    let (_folder, path) = file(SHOP);
    let status = |words: &[&str]| {
        let output = controller.run(words);
        (output.status.code(), out(&output), err(&output))
    };
    let (code, text, _) = status(&with(&["diff"], &path));
    assert_eq!((code, text.matches("+++ ").count()), (Some(1), 3), "{text}");
    controller.ok(&with(&["apply"], &path));
    assert_eq!(status(&with(&["diff"], &path)), (Some(0), String::new(), String::new()));
    fs::write(&path, SHOP.replace("300", "301")).unwrap();
    let (code, text, _) = status(&with(&["diff"], &path));
    assert!(code == Some(1) && text.contains("-ru_per_sec: \"300\"\n+ru_per_sec: \"301\"\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "colours are for terminals");
    fs::write(&path, "kind: Group\n").unwrap();
    let (code, _, said) = status(&with(&["diff"], &path));
    assert!(code == Some(2) && said.contains("name:"), "{said}");
    let away =
        tidegate().args(["--endpoint", "http://127.0.0.1:1"]).args(with(&["diff"], &path)).output().unwrap();
    assert_eq!(away.status.code(), Some(2));
}

#[test]
fn several_names_are_done_together_or_not_at_all() {
    let controller = Controller::start();
    for name in ["a", "b", "c"] {
        controller.ok(&["group", "create", name, "--rate", "1"]);
    }
    controller.ok(&["bind", "add", "c", "--tenant", "t"]);
    controller.ok(&["bind", "add", "c", "--tenant", "u"]);
    let said = controller.refused(&["group", "delete", "a", "b", "c"]);
    assert!(said.contains("group c is used by tenant t"), "{said}");
    assert!(controller.refused(&["group", "delete", "a", "missing"]).contains("missing"));
    assert_eq!(names(&controller).len(), 4);
    let told = controller.ok(&["bind", "remove", "--tenant", "t", "--tenant", "u", "--tenant", "v"]);
    assert_eq!(told, "binding tenant t deleted\nbinding tenant u deleted\nbinding tenant v unchanged\n");
    controller.ok(&["group", "delete", "a", "b", "c"]);
    assert_eq!(names(&controller), ["default"]);
    let digest = |last: u32| format!("{last:016x}");
    for last in 1..4 {
        controller.ok(&[
            "watch",
            "add",
            "--group",
            "default",
            "--similar-to",
            &digest(last),
            "--action",
            "kill",
        ]);
    }
    controller.ok(&["watch", "remove", "1", "3"]);
    assert_eq!(controller.json(&["watch", "list"])[0]["digest"], digest(2).as_str());
    let both =
        controller.run(&["bind", "remove", "--tenant", "a", "--tenant", "b", "--user", "c", "--user", "d"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn a_controller_that_is_killed_in_the_middle_has_all_of_a_change_or_nothing() {
    let mut controller = Controller::start();
    let mut had = 0;
    for round in 0..8_u32 {
        // Each round defines another number of groups with another rate.
        let (count, rate) = (usize::try_from(200 + round * 10).unwrap(), round + 1);
        let text: String = (0..count)
            .map(|number| format!("---\nkind: Group\nname: g{number}\nru_per_sec: {rate}\n"))
            .collect();
        let (_folder, path) = file(&text);
        let mut command = tidegate();
        command.args(["--endpoint", &controller.endpoint, "apply", "-f"]).arg(&path);
        let mut process = command.stdout(Stdio::null()).stderr(said::log()).spawn().unwrap();
        // Killed at another moment each time: before, in, and after the commit.
        for _ in 0..round * 600_000 {
            std::hint::spin_loop();
        }
        controller.kill();
        let done = process.wait().unwrap().success();
        controller.again();
        let groups = controller.json(&["group", "list"]);
        let ours: Vec<&Value> =
            groups.as_array().unwrap().iter().filter(|group| group["name"] != "default").collect();
        let rates: Vec<&str> = ours.iter().map(|group| group["ru_per_sec"].as_str().unwrap()).collect();
        let whole = rates.len() == count && rates.iter().all(|other| *other == rate.to_string());
        assert!(
            whole || (!done && rates.len() == had),
            "round {round}: {} of {count}, {rates:?}",
            rates.len()
        );
        if !whole {
            // The lost change is made again.
            controller.ok(&with(&["apply"], &path));
        }
        had = count;
    }
}

#[test]
fn the_example_of_the_documentation_is_applied() {
    let controller = Controller::start();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/definitions.yaml");
    let first = outcomes(&controller.json(&with(&["apply"], &example)));
    assert!(first.len() == 8 && first.iter().all(|outcome| outcome.ends_with(" created")), "{first:?}");
    let again = outcomes(&controller.json(&with(&["apply"], &example)));
    assert!(again.iter().all(|outcome| outcome.ends_with(" unchanged")), "{again:?}");
}
