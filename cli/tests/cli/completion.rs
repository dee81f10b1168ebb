//! Completions: scripts that shells read, and names from a real controller within a moment.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Controller, out, run, tidegate};

/// The candidates after these words, without their descriptions.
fn follows(endpoint: &str, words: &[&str]) -> Vec<String> {
    let mut command = tidegate();
    command.env("TIDEGATE_ENDPOINT", endpoint).args(["complete", "--", "tidegate"]).args(words);
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    out(&output).lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

/// Runs a script in a shell.
fn shell(name: &str, arguments: &[&str], script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    fs::write(&file, script).unwrap();
    let mut command = Command::new(name);
    command.args(arguments).arg(&file).stdin(Stdio::null());
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{name} does not start: {error}; install Debian's package {name}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn names_of_the_controller_follow_where_they_belong() {
    let controller = Controller::start();
    for name in ["shop", "shelf", "other"] {
        controller.ok(&["group", "create", name, "--rate", "1"]);
    }
    controller.ok(&["bind", "add", "shop", "--tenant", "storefront", "--user", "ann"]);
    let at = |words: &[&str]| follows(&controller.endpoint, words);
    assert_eq!(at(&["group", "show", "sh"]), ["shelf", "shop"]);
    assert_eq!(at(&["group", "delete", "shop", "o"]), ["other"]);
    assert_eq!(at(&["group", "alter", "shop", "--parent", "oth"]), ["other"]);
    assert_eq!(at(&["group", "alter", "shop", "--parent=oth"]), ["--parent=other"]);
    assert_eq!(at(&["resolve", "--tenant", ""]), ["storefront"]);
    assert_eq!(at(&["bind", "remove", "--user", ""]), ["ann"]);
    assert_eq!(at(&["edit", "group", "she"]), ["shelf"]);
    assert_eq!(at(&["bind", "add", "shop", "--user", "a"]), ["ann"]);
    assert_eq!(at(&["group", "withdraw", "she"]), ["shelf"]);
    assert_eq!(at(&["group", "alter", "shop", "--demote-to", "oth"]), ["other"]);
    assert_eq!(at(&["statement", "reset", "she"]), ["shelf"]);
    assert_eq!(at(&["watch", "remove", "--group", "she"]), ["shelf"]);
    assert_eq!(at(&["usage", "--group", "oth"]), ["other"]);
    assert!(at(&["group", "create", "she"]).is_empty(), "the name of a new group is a new one");
    assert!(at(&["gro"]).contains(&"group".to_owned()));
    let elsewhere =
        follows("http://127.0.0.1:1", &["--endpoint", &controller.endpoint, "group", "show", "she"]);
    assert_eq!(elsewhere, ["shelf"]);
}

#[test]
fn groups_behind_the_first_page_are_found_by_how_they_begin() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("groups.yaml");
    let group = |name: String| format!("---\nkind: Group\nname: {name}\nru_per_sec: 1\n");
    let names = (0..1_100).map(|number| format!("g{number:04}")).chain(["zz.last".to_owned()]);
    fs::write(&file, names.map(group).collect::<String>()).unwrap();
    controller.ok(&["apply", "--file", file.to_str().unwrap()]);
    let at = |begin| follows(&controller.endpoint, &["group", "show", begin]);
    assert_eq!((at("zz"), at("g1099")), (vec!["zz.last".to_owned()], vec!["g1099".to_owned()]));
    assert!(at("h").is_empty());
}

#[test]
fn names_are_those_of_the_context_unless_the_line_or_the_environment_says_where() {
    let (prod, staging) = (Controller::start(), Controller::start());
    prod.ok(&["group", "create", "shop-of-prod", "--rate", "1"]);
    staging.ok(&["group", "create", "shop-of-staging", "--rate", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("contexts.toml");
    let note = |name: &str, controller: &Controller| {
        let mut command = tidegate();
        command.env("TIDEGATE_CONTEXTS", &file).args(["context", "add", name]);
        let output = command.args(["--endpoint", &controller.endpoint]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    note("prod", &prod);
    note("staging", &staging);
    let chosen =
        tidegate().env("TIDEGATE_CONTEXTS", &file).args(["context", "use", "prod"]).output().unwrap();
    assert!(chosen.status.success(), "{chosen:?}");
    let follows = |environment: &[(&str, &str)], words: &[&str]| {
        let mut command = tidegate();
        command.env("TIDEGATE_CONTEXTS", &file).envs(environment.iter().copied());
        let output = command.args(["complete", "--", "tidegate"]).args(words).output().unwrap();
        out(&output).trim_end().to_owned()
    };
    let joined = format!("--endpoint={}", staging.endpoint);
    let show = ["group", "show", "shop"];
    for (environment, options, names) in [
        (&[][..], &[][..], "shop-of-prod"),
        (&[], &["--endpoint", staging.endpoint.as_str()][..], "shop-of-staging"),
        (&[], &[joined.as_str()], "shop-of-staging"),
        (&[], &["--context", "staging"], "shop-of-staging"),
        (&[], &["--context=staging"], "shop-of-staging"),
        (&[], &["--context", "none"], ""),
        (&[("TIDEGATE_ENDPOINT", staging.endpoint.as_str())], &[], "shop-of-staging"),
        (&[("TIDEGATE_CONTEXT", "staging")], &[], "shop-of-staging"),
        (&[("TIDEGATE_CONTEXT", "staging")], &["--context", "prod"], "shop-of-prod"),
        (&[("TIDEGATE_ENDPOINT", "")], &[], "shop-of-prod"),
    ] {
        assert_eq!(follows(environment, &[options, &show].concat()), names, "{environment:?} {options:?}");
    }
    assert_eq!(follows(&[], &["context", "use", "p"]), "prod");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long a shell waits is what is asked here")]
fn a_controller_that_is_away_costs_a_moment_and_says_nothing() {
    // A controller that takes connections and never answers is the worst; the time of a command that asks no controller
    // is subtracted. The bound leaves room for other work of the machine: without a limit it would be three seconds and
    // more.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let least = |words: &[&str], endpoint: &str| {
        let timed = |_| {
            let begin = Instant::now();
            assert!(follows(endpoint, words).iter().all(|name| name != "shop"));
            begin.elapsed()
        };
        (0..5).map(timed).min().unwrap()
    };
    let nobody = least(&["gro"], &silent);
    for endpoint in [silent.as_str(), "http://127.0.0.1:1", "nonsense"] {
        let asked = least(&["group", "show", ""], endpoint);
        assert!(asked.saturating_sub(nobody) < Duration::from_secs(2), "{endpoint}: {asked:?}, {nobody:?}");
    }
}

#[test]
fn shells_read_their_scripts() {
    for (name, arguments) in [("bash", ["-n"].as_slice()), ("zsh", &["-n"]), ("fish", &["--no-execute"])] {
        let script = out(&run(&["completions", name]));
        assert!(script.contains("complete --") || script.contains("complete -c"), "{script}");
        shell(name, arguments, &script);
    }
    for other in ["elvish", "powershell"] {
        assert!(out(&run(&["completions", other])).contains("tidegate"));
    }
}

#[test]
fn bash_completes_names_options_and_what_it_takes_apart() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "1"]);
    let script = out(&run(&["completions", "bash"]));
    // As bash calls it: the words taken apart at `=` and `:`, and the last part of the last word.
    let ask = r#"
ask() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
    _tidegate "$TIDEGATE" "${COMP_WORDS[COMP_CWORD]}" "" 2>/dev/null
    printf '%s,' "${COMPREPLY[@]}"; echo
}
ask 'tidegate group show sh' tidegate group show sh
ask 'tidegate group alter x --parent=sh' tidegate group alter x --parent = sh
ask 'tidegate group alter x --parent=' tidegate group alter x --parent = ''
ask "tidegate group create x --rate '5 RU/s' --parent s" tidegate group create x --rate "'5 RU/s'" --parent s
ask 'tidegate group ' tidegate group ''
"#;
    let head = format!(
        "export TIDEGATE_ENDPOINT={} TIDEGATE={}\ncompopt() {{ :; }}\n",
        controller.endpoint,
        env!("CARGO_BIN_EXE_tidegate")
    );
    let told = shell("bash", &[], &format!("{head}{script}{ask}"));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..4], ["shop,", "shop,", "default,shop,", "shop,"], "{told}");
    assert!(lines[4].starts_with("create,alter,delete,") && lines[4].contains(",list,show,"), "{told}");
}

#[test]
fn zsh_and_fish_complete_names_and_show_what_each_is() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "1"]);
    let binary = env!("CARGO_BIN_EXE_tidegate");
    let script = out(&run(&["completions", "zsh"]));
    // As zsh calls it, with printing in place of what fills its menu.
    let zsh = format!(
        r#"
export TIDEGATE_ENDPOINT={endpoint}
compdef() {{ : }}
_files() {{ : }}
_describe() {{ print -l -- "${{(@P)2}}" }}
compadd() {{ print -l -- "${{@[3,-1]}}" }}
{script}
words=({binary} group show sh) CURRENT=4; _tidegate
words=({binary} gro) CURRENT=2; _tidegate
"#,
        endpoint = controller.endpoint,
    );
    let completed = shell("zsh", &["-f"], &zsh);
    let lines: Vec<&str> = completed.lines().collect();
    assert!(lines[0] == "shop" || lines[0].starts_with("shop:"), "{completed}");
    assert!(lines.iter().any(|line| line.starts_with("group:")), "{completed}");
    let script = out(&run(&["completions", "fish"]));
    let folder = std::path::Path::new(binary).parent().unwrap().display();
    let fish = format!(
        "set -x TIDEGATE_ENDPOINT {endpoint}\nset -x PATH {folder} $PATH\n{script}\n\
         complete -C 'tidegate group show sh'\ncomplete -C 'tidegate gro'\n",
        endpoint = controller.endpoint,
    );
    let completed = shell("fish", &["--no-config"], &fish);
    let lines: Vec<&str> = completed.lines().collect();
    assert_eq!(lines[0].split('\t').next(), Some("shop"), "{completed}");
    assert!(lines.iter().any(|line| line.starts_with("group\t")), "{completed}");
}
