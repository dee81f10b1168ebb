//! Documents: lines that fit, and names that exist.

use std::collections::BTreeSet;
use std::fs;

use super::{File, files, none, root};

/// Characters of a line, in which two stand side by side on a screen.
const WIDEST: usize = 120;

fn documents() -> impl Iterator<Item = File> {
    let top = ["ARCHITECTURE.md", "CHANGELOG.md", "README.md", "STYLE.md"]
        .map(|name| File { path: name.to_owned(), text: fs::read_to_string(root().join(name)).unwrap() });
    top.into_iter().chain(files("docs", ".md"))
}

#[test]
fn lines_fit() {
    let mut found = Vec::new();
    for file in documents() {
        let (mut is_code, mut is_made) = (false, false);
        for (at, line) in file.text.lines().enumerate() {
            is_code ^= line.starts_with("```");
            // What a program writes between its marks.
            is_made = line.contains(": made by") || is_made && !line.contains(": end -->");
            // Rows of tables and addresses cannot be broken.
            let is_fixed = ["|", "    ", "!["].iter().any(|begin| line.starts_with(begin));
            let can_break = !is_code && !is_made && !is_fixed && !line.contains("](");
            if can_break && line.chars().count() > WIDEST {
                found.push(format!("{}:{}", file.path, at + 1));
            }
        }
    }
    none(&found, &format!("break these lines at {WIDEST} characters"));
}

#[test]
fn no_document_holds_two_sides_of_a_merge() {
    let mut found = Vec::new();
    for file in documents() {
        let marks = ["<<<<<<<", "=======", ">>>>>>>"];
        let lines = file.text.lines().enumerate();
        let marked = lines.filter(|(_, line)| marks.iter().any(|mark| line.starts_with(mark)));
        found.extend(marked.map(|(at, _)| format!("{}:{}", file.path, at + 1)));
    }
    none(&found, "choose one side");
}

/// Words of a text that begin so.
fn words<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    let of_a_name = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    text.split(of_a_name).filter(move |word| word.starts_with(begin))
}

#[test]
fn metrics_of_the_documents_exist() {
    let known: String = [
        "controller/src",
        "client/src",
        "gateway/src",
        "listener/src",
        "cli/src",
        "cpu-clock/src",
        "traces/src",
    ]
    .into_iter()
    .flat_map(|folder| files(folder, ".rs"))
    .map(|file| file.text)
    .collect();
    let mut found = BTreeSet::new();
    for word in
        documents().flat_map(|file| words(&file.text, "tidegate_").map(str::to_owned).collect::<Vec<_>>())
    {
        let stem =
            ["_total", "_bucket", "_sum", "_count", "_info"].iter().find_map(|end| word.strip_suffix(end));
        let name = stem.unwrap_or(&word).trim_start_matches("tidegate_").trim_start_matches("gateway_");
        if !known.contains(name) {
            found.insert(word);
        }
    }
    none(&found.into_iter().collect::<Vec<_>>(), "no source names these");
}

#[test]
fn files_that_documents_name_exist() {
    let mut found = Vec::new();
    for file in documents().filter(|file| file.path != "CHANGELOG.md" && !file.path.contains("decisions/")) {
        for part in file.text.split('`').skip(1).step_by(2) {
            let is_path = part.ends_with(".rs") && part.contains('/') && !part.contains(['{', '*', ' ']);
            let begins = part.split('/').next().unwrap_or_default();
            if is_path && super::CRATES.contains(&begins) && !root().join(part).exists() {
                found.push(format!("{}: {part}", file.path));
            }
        }
    }
    none(&found, "these are named and do not exist");
}

/// The options that a text names: two hyphens and a word, with no word before them.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let begins = |at: &usize| {
        let before = text.get(..*at).and_then(|before| before.chars().last());
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.match_indices("--").map(|(at, _)| at).filter(begins).filter_map(|at| {
        let rest = &text[at + 2..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-');
        let word = &rest[..end.unwrap_or(rest.len())];
        word.starts_with(|c: char| c.is_ascii_lowercase()).then_some(word)
    })
}

#[test]
fn options_of_the_documents_exist() {
    // A field of the command line is its option's name; scripts compare with theirs, and pass cargo's on.
    let folders =
        ["bench/src/bin", "cli/src", "lab/src/bin", "sim/src/bin", "tests/src/bin", "tests/survey/src"];
    let programs: String =
        folders.iter().flat_map(|folder| files(folder, ".rs")).map(|file| file.text).collect();
    let scripts = [
        "tests/run",
        "tests/stopped",
        "tests/api",
        "tests/instructions",
        "tests/foreign/run",
        "tests/mutants/run",
        "fuzz/run",
    ];
    let scripts: String = scripts.map(|path| fs::read_to_string(root().join(path)).unwrap()).concat();
    let known = |option: &str| {
        programs.contains(&format!("{}: ", option.replace('-', "_")))
            || programs.contains(&format!("\"{option}\""))
            || options(&scripts).any(|known| known == option)
    };
    let mut found = BTreeSet::new();
    for file in documents().filter(|file| file.path != "CHANGELOG.md" && !file.path.contains("decisions/")) {
        let lines = file.text.lines().filter(|line| !line.contains("cargo "));
        for option in lines.flat_map(options).filter(|option| !known(option)) {
            found.insert(format!("{}: --{option}", file.path));
        }
    }
    none(&found.into_iter().collect::<Vec<_>>(), "no program or script takes these options");
}
