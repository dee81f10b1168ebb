//! Sources: what core may touch, how large files get, where tests may sleep, what constants say of themselves.

use super::{CRATES, File, all_needed, bare, files, function, none};

/// Lines of code that a file may have: what one reads in one go. Tests at its end do not count.
const LONGEST: usize = 400;

/// Files that are longer, and why. None gets longer than it is.
const LONGER: [(&str, usize, &str); 0] = [];

/// Tests that sleep, and what for. Others wait for a state.
const SLEEPS: [(&str, &str); 22] = [
    ("cli/tests/cli/gateway/still.rs", "nothing happens for a while, which is what is tested"),
    ("console/tests/browser/stage.rs", "polls a browser"),
    ("controller/src/cluster/tests/drain.rs", "polls controllers"),
    ("controller/src/cluster/tests/secure.rs", "polls a controller that renews its certificate"),
    ("controller/tests/it/takeover.rs", "polls another process's clock"),
    ("gateway/src/mysql/session/tests/left.rs", "time to ask a group too early"),
    ("gateway/src/postgres/session/tests/cancelled.rs", "time in which a result would be held"),
    ("gateway/src/postgres/session/tests/gone.rs", "time in which a result would be cut off"),
    ("gateway/src/postgres/session/tests/held.rs", "time to choose too early, or to end with the session"),
    ("gateway/src/postgres/session/tests/logging_in.rs", "longer than a limit that does not hold any more"),
    ("gateway/tests/gateway/common.rs", "polls a server that starts"),
    ("gateway/tests/gateway/gone.rs", "a statement runs on for a while after its client is gone"),
    ("gateway/tests/gateway/halves.rs", "paces load"),
    ("gateway/tests/gateway/postgres/faults.rs", "a server is away for a while"),
    ("gateway/tests/gateway/postgres/governed.rs", "a statement holds tokens for a while"),
    ("gateway/tests/gateway/pressure.rs", "paces load"),
    ("tests/tests/drain.rs", "polls controllers"),
    ("tests/tests/restore.rs", "polls a process"),
    ("tests/tests/restored.rs", "polls nodes"),
    ("tests/tests/stopped.rs", "stops a process at a moment of its lease"),
    ("tests/tests/takeover.rs", "polls nodes"),
    ("tests/tests/unwritable.rs", "polls a process"),
];

fn sources() -> impl Iterator<Item = File> {
    CRATES.into_iter().flat_map(|name| files(name, ".rs"))
}

#[test]
fn core_touches_nothing_outside() {
    let forbidden = [
        "f32",
        "f64",
        "std::fs",
        "std::env",
        "std::net",
        "std::thread",
        "std::time",
        "HashMap",
        "HashSet",
        "async ",
    ];
    let mut found = Vec::new();
    for file in files("core/src", ".rs") {
        for line in file.code() {
            let word = forbidden.iter().find(|word| line.contains(**word));
            found.extend(word.map(|word| format!("{}: {word}: {}", file.path, line.trim())));
        }
    }
    none(&found, "core is pure: no floats, clock, I/O, threads or maps without order (ARCHITECTURE.md)");
}

#[test]
fn files_are_short() {
    let (mut found, mut met) = (Vec::new(), Vec::new());
    for file in sources() {
        let lines = file.code().count();
        let longer = LONGER.iter().find(|(path, ..)| *path == file.path);
        let most = longer.map_or(LONGEST, |(_, most, _)| *most);
        if lines > LONGEST {
            met.push(file.path.clone());
        }
        // Tests of one thing are a list.
        let is_list = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
        if lines > most && !is_list {
            found.push(format!("{}: {lines} lines of code, at most {most}", file.path));
        }
    }
    none(&found, "cut these files by noun");
    all_needed(LONGER.map(|(path, ..)| path), &met);
}

/// Lines of code of a function, with its head: what fits a screen and a head.
const LONGEST_FUNCTION: usize = 70;
/// Functions that are longer, and why.
const LONGER_FUNCTIONS: [(&str, &str); 3] = [
    (
        "core/src/decide.rs decide",
        "the grant decision, whose parts each have a name; its order is what matters",
    ),
    ("sim/src/script.rs command", "a list of commands"),
    ("sim/src/world.rs handle", "a list of events"),
];

/// The functions of a file and their lines of code: from `fn` to the brace that closes it, in its own column.
fn functions(file: &File) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    // Its name, how far it is indented, and its lines until now.
    let mut open: Option<(String, usize, usize)> = None;
    for line in file.code() {
        let indent = line.len() - line.trim_start().len();
        if open.is_none() {
            let Some(rest) = function(line) else { continue };
            // One that is a line, or has no body.
            if line.ends_with('}') || line.ends_with(';') {
                continue;
            }
            open = Some((super::rooms::name(rest), indent, 0));
        }
        if let Some((name, from, lines)) = &mut open {
            *lines += 1;
            if line.trim() == "}" && indent == *from {
                found.push((std::mem::take(name), *lines));
                open = None;
            }
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let (mut found, mut met) = (Vec::new(), Vec::new());
    for file in sources() {
        // A test is a list of what happens.
        if file.path.contains("/tests/") || file.path.ends_with("/tests.rs") {
            continue;
        }
        for (name, lines) in functions(&file).into_iter().filter(|(_, lines)| *lines > LONGEST_FUNCTION) {
            let place = format!("{} {name}", file.path);
            if LONGER_FUNCTIONS.iter().any(|(longer, _)| *longer == place) {
                met.push(place);
            } else {
                found.push(format!("{place}: {lines} lines of code, at most {LONGEST_FUNCTION}"));
            }
        }
    }
    none(&found, "cut these functions by step, and name the steps");
    all_needed(LONGER_FUNCTIONS.map(|(place, _)| place), &met);
}

#[test]
fn tests_wait_for_states() {
    let (mut found, mut met) = (Vec::new(), Vec::new());
    let tests = sources().filter(|file| file.path.contains("/tests/"));
    for file in tests.filter(|file| !file.path.starts_with("tests/tests/tidy/")) {
        // Time that stands still until nothing can go on costs none.
        let is_paused = file.text.contains("start_paused");
        let sleeps = !is_paused
            && file.code().any(|line| line.contains("::sleep(") || line.trim_start().starts_with("sleep("));
        if sleeps && SLEEPS.iter().any(|(path, _)| *path == file.path) {
            met.push(file.path.clone());
        } else if sleeps {
            found.push(file.path.clone());
        }
    }
    none(&found, "wait for a state, or say in SLEEPS what the time is for");
    all_needed(SLEEPS.map(|(path, _)| path), &met);
}

#[test]
fn numbers_of_policy_have_a_reason() {
    let mut found = Vec::new();
    for file in files("core/src", ".rs") {
        let lines: Vec<&str> = file.product().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(rest) = bare(line).strip_prefix("const ") else { continue };
            let is_number =
                rest.contains("i64") || rest.contains("u64") || rest.contains("Span") || rest.contains("u32");
            let above = at.checked_sub(1).and_then(|above| lines.get(above)).copied().unwrap_or_default();
            if is_number && !rest.starts_with("fn ") && !above.trim_start().starts_with("//") {
                found.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    none(&found, "say above each number why it is this one");
}
