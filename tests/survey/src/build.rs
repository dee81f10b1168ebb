//! A copy of the repository with the changes in it, built until those that are no Rust are out.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::rewrite::{Change, rewrite};

/// A change that is no Rust can hide others from the compiler; more rounds than this were never needed.
const ROUNDS: usize = 12;

/// What is put before each number in a rewritten source.
const SWITCH: &str = "__survey::";

/// A crate that holds its changes.
pub struct Built {
    /// The folder that its tests run in.
    pub folder: PathBuf,
    pub changes: Vec<Change>,
    /// Those that are no Rust.
    pub left_out: BTreeSet<usize>,
    pub binaries: Vec<PathBuf>,
    copy: TempDir,
}

impl Built {
    /// Keeps so many of the changes that are Rust, by a lot that the same seed draws again.
    pub fn draw(&mut self, count: usize, seed: u64) {
        let place = |change: &Change| {
            let mut hasher = DefaultHasher::new();
            (seed, change.number).hash(&mut hasher);
            hasher.finish()
        };
        self.changes.retain(|change| !self.left_out.contains(&change.number));
        self.changes.sort_by_cached_key(place);
        self.changes.truncate(count);
        self.changes.sort_by_key(|change| change.number);
    }

    /// A place for files of no use afterwards.
    pub fn scratch(&self) -> &Path {
        self.copy.path()
    }
}

/// Builds the tests of the crate in `folder` with every change in it.
pub fn build(folder: &Path, without: &[String], targets: &[String]) -> anyhow::Result<Built> {
    ensure!(
        folder.join("src/lib.rs").is_file(),
        "{} holds no src/lib.rs; name a crate's folder",
        folder.display()
    );
    let copy = copied()?;
    let sources = sources(folder, without)?;
    let mut built = Built {
        folder: copy.path().join(folder),
        changes: Vec::new(),
        left_out: BTreeSet::new(),
        binaries: Vec::new(),
        copy,
    };
    for _ in 0..ROUNDS {
        built.changes = write(&built, &sources)?;
        let wrong = compile(&mut built, targets)?;
        eprintln!("{} changes, {} of them no Rust", built.changes.len(), built.left_out.len() + wrong.len());
        if wrong.is_empty() {
            return Ok(built);
        }
        built.left_out.extend(wrong);
    }
    bail!("after {ROUNDS} builds there are still changes that are no Rust");
}

/// What git knows of the repository, as it lies there.
fn copied() -> anyhow::Result<TempDir> {
    let copy = TempDir::new()?;
    let files = Command::new("git").args(["ls-files", "-z"]).stdout(Stdio::piped()).spawn()?;
    let list = files.stdout.context("git's answer")?;
    let status =
        Command::new("xargs").args(["-0", "cp", "--parents", "-t"]).arg(copy.path()).stdin(list).status()?;
    ensure!(
        status.success(),
        "what git knows of this folder could not be copied; run this in the repository's root"
    );
    Ok(copy)
}

/// Path and text of each source that is surveyed.
fn sources(folder: &Path, without: &[String]) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.to_string_lossy();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs")
                && !name.contains("tests")
                && !without.iter().any(|text| name.contains(text.as_str()))
            {
                let text = fs::read_to_string(&path)?;
                files.push((path, text));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn write(built: &Built, sources: &[(PathBuf, String)]) -> anyhow::Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (path, source) in sources {
        let name = path.to_string_lossy();
        let (text, of_file) = rewrite(source, &name, changes.len() + 1, &built.left_out)
            .with_context(|| format!("{name} is no Rust that this reads"))?;
        fs::write(built.scratch().join(path), text)?;
        changes.extend(of_file);
    }
    let root = built.folder.join("src/lib.rs");
    let switch = include_str!("switch.rs").replace("//!", "//");
    let begin = "\n#[doc(hidden)]\n#[allow(warnings, clippy::all, clippy::pedantic)]\npub mod __survey {\n";
    let text = fs::read_to_string(&root)?;
    // A root that is left out still holds the switch of the round before.
    let text = text.split_once(begin).map_or(text.as_str(), |(before, _)| before);
    fs::write(root, format!("{text}{begin}{switch}\n}}\n"))?;
    Ok(changes)
}

/// Builds, notes the tests' binaries, and returns the changes that the compiler complains about.
fn compile(built: &mut Built, targets: &[String]) -> anyhow::Result<BTreeSet<usize>> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| built.scratch().join("target"), PathBuf::from);
    let output = Command::new("cargo")
        .args(["test", "--locked", "--no-run", "--message-format=json"])
        .args(targets)
        .current_dir(&built.folder)
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "-Awarnings")
        .stderr(Stdio::inherit())
        .output()?;
    let (mut wrong, mut said) = (BTreeSet::new(), String::new());
    built.binaries.clear();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(binary) = message["executable"].as_str() {
            built.binaries.push(PathBuf::from(binary));
        }
        if message["message"]["level"] == "error" {
            complaints(built.scratch(), &message["message"], &mut wrong);
            said += message["message"]["rendered"].as_str().unwrap_or_default();
        }
    }
    ensure!(
        output.status.success() || !wrong.is_empty(),
        "the build failed, and no change is named where it did:\n{said}"
    );
    Ok(wrong)
}

/// The changes on the lines that a message points to, or else near them.
fn complaints(root: &Path, message: &Value, wrong: &mut BTreeSet<usize>) {
    let spans = message["spans"].as_array().into_iter().flatten();
    let children = message["children"].as_array().into_iter().flatten();
    let inner = children.flat_map(|child| child["spans"].as_array().into_iter().flatten());
    for span in spans.chain(inner) {
        let lines = span["text"].as_array().into_iter().flatten();
        let named: BTreeSet<_> = lines.filter_map(|line| line["text"].as_str()).flat_map(numbers).collect();
        if !named.is_empty() {
            wrong.extend(named);
            continue;
        }
        let Ok(text) = fs::read_to_string(root.join(span["file_name"].as_str().unwrap_or_default())) else {
            continue;
        };
        let line = |of: &str| span[of].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(1);
        let (begin, end) = (line("line_start").saturating_sub(6), line("line_end") + 3);
        wrong.extend(text.lines().take(end).skip(begin).flat_map(numbers));
    }
}

/// The numbers of the changes in a piece of rewritten source.
fn numbers(text: &str) -> Vec<usize> {
    let after = text.split(SWITCH).skip(1).filter_map(|rest| rest.split_once('('));
    let number =
        |rest: &str| rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    after.filter_map(|(_, rest)| number(rest)).collect()
}
