//! The rules of the house that no compiler knows: what crates may use, how large a file may get, what core may touch, what
//! documents may name. STYLE.md and ARCHITECTURE.md state them for people.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod crates;
mod documents;
mod mutants;
mod rooms;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Folders of the repository that are crates, the names of ARCHITECTURE.md.
const CRATES: [&str; 21] = [
    "bench",
    "cli",
    "client",
    "consensus",
    "console",
    "controller",
    "core",
    "cost-model",
    "cpu-clock",
    "fuzz",
    "gateway",
    "lab",
    "listener",
    "properties",
    "proto",
    "sim",
    "sql",
    "test-servers",
    "tests",
    "tls",
    "traces",
];

/// A file and its path from the root.
struct File {
    path: String,
    text: String,
}

impl File {
    /// Its lines without the items of its tests.
    fn product(&self) -> impl Iterator<Item = &str> {
        let mut in_tests = false;
        self.text.lines().filter(move |line| {
            let begins = line.starts_with("#[cfg(test)]");
            let ends = *line == "}" || line.ends_with(';') && !line.starts_with([' ', '#']);
            let of_tests = in_tests || begins;
            in_tests = of_tests && !ends;
            !of_tests
        })
    }

    /// Of these, the lines of code.
    fn code(&self) -> impl Iterator<Item = &str> {
        self.product().filter(|line| !line.trim_start().starts_with("//") && !line.trim().is_empty())
    }
}

/// What follows the visibility of an item.
fn bare(line: &str) -> &str {
    let line = line.trim_start();
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
    rest.trim_start()
}

/// What follows `fn` on a line that begins a function.
fn function(line: &str) -> Option<&str> {
    let mut rest = bare(line);
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.strip_prefix("fn ")
}

/// Files below a folder whose name ends so, without build output.
fn files(folder: &str, ending: &str) -> Vec<File> {
    let root = root();
    let mut folders = vec![root.join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" {
                folders.push(path);
            } else if name.ends_with(ending) {
                let text =
                    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let path = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
                files.push(File { path, text });
            }
        }
    }
    assert!(!files.is_empty(), "no file below {folder} ends in {ending}");
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// Fails with all that was found, and what to do about it.
fn none(found: &[String], remedy: &str) {
    assert!(found.is_empty(), "{remedy}:\n{}", found.join("\n"));
}

/// A list of exceptions has none that nothing needs any more.
fn all_needed(listed: impl IntoIterator<Item = &'static str>, met: &[String]) {
    let idle: Vec<String> =
        listed.into_iter().filter(|name| !met.iter().any(|met| met == name)).map(str::to_owned).collect();
    none(&idle, "take these out of the list of exceptions, which nothing needs any more");
}
