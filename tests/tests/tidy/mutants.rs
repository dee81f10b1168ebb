//! Deliberate faults: each patch of `tests/mutants` applies to the sources as they are.

use std::process::Command;

use super::{files, none, root};

#[test]
fn every_deliberate_fault_applies() {
    let stale = files("tests/mutants", ".patch").into_iter().filter_map(|patch| {
        let git = Command::new("git").args(["apply", "--check", &patch.path]).current_dir(root()).output();
        let checked = git.unwrap_or_else(|error| panic!("git apply --check {}: {error}", patch.path));
        let said = String::from_utf8_lossy(&checked.stderr);
        (!checked.status.success()).then(|| format!("{}: {}", patch.path, said.lines().next().unwrap_or("")))
    });
    let stale: Vec<String> = stale.collect();
    none(&stale, "cut these patches again, each with the same fault where its code stands now");
}
