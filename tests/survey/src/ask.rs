//! Tests are asked what they reach, and then whether they notice it.
// Processes that nobody here wrote end when they end: their time is that of the machine.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::build::Built;

/// What a test may take beside what it takes alone before it counts as one that hangs: four times that and this.
const GRACE: Duration = Duration::from_secs(20);

/// Tests that are asked of a change whatever they take.
const LEAST: usize = 3;

/// Tests that are asked in one process: few first, since most changes are found by any of them.
const FIRST: usize = 2;
const MOST: usize = 40;

/// One test, asked alone with no change in force.
pub struct Test {
    binary: PathBuf,
    name: String,
    took: Duration,
    reaches: BTreeSet<usize>,
}

enum Answer {
    Passed,
    Failed,
    Hung,
}

/// Asks each test alone which changes it reaches.
pub fn reach(built: &Built, workers: usize, patience: f64) -> anyhow::Result<Vec<Test>> {
    let mut names = Vec::new();
    for binary in &built.binaries {
        let listed =
            Command::new(binary).args(["--list", "--format", "terse"]).current_dir(&built.folder).output()?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        names.extend(tests.map(|name| (binary.clone(), name.to_owned())));
    }
    let most = Duration::from_secs_f64(patience);
    let asked = in_turns(workers, &names, |index, (binary, name)| {
        let log = built.scratch().join(format!("reached-{index}"));
        let began = Instant::now();
        let answer =
            run(built, binary, &[name], &[("SURVEY_LOG", log.to_string_lossy().into_owned())], most)?;
        let took = began.elapsed();
        let numbers = fs::read_to_string(&log).unwrap_or_default();
        let reaches = numbers.lines().filter_map(|number| number.parse().ok()).collect();
        ensure!(!matches!(answer, Answer::Failed), "{name} fails with no change in force");
        if matches!(answer, Answer::Hung) {
            eprintln!("{name} takes longer than {patience} s and is not asked");
            return Ok(None);
        }
        Ok(Some(Test { binary: binary.clone(), name: name.clone(), took, reaches }))
    })?;
    let tests: Vec<_> = asked.into_iter().flatten().collect();
    ensure!(!tests.is_empty(), "there is no test to ask");
    eprintln!("{} tests are asked", tests.len());
    Ok(tests)
}

/// Asks of each change the tests that reach it, the nearest first, until they would take longer than this together;
/// and prints a row for it.
pub fn notice(built: &Built, tests: &[Test], workers: usize, seconds: f64) -> anyhow::Result<()> {
    let most = Duration::try_from_secs_f64(seconds)?;
    let changes: Vec<_> =
        built.changes.iter().filter(|change| !built.left_out.contains(&change.number)).collect();
    let counts = Mutex::new(BTreeMap::<&str, usize>::new());
    in_turns(workers, &changes, |_, change| {
        let mut reaching: Vec<_> =
            tests.iter().filter(|test| test.reaches.contains(&change.number)).collect();
        // A test that reaches little is about what it reaches.
        reaching.sort_by_key(|test| (test.reaches.len(), test.took));
        let mut took = Duration::ZERO;
        let is_in_time = |test: &&&Test| {
            took += test.took;
            took <= most
        };
        let asked = reaching.iter().take_while(is_in_time).count().max(LEAST.min(reaching.len()));
        let verdict = verdict(built, change.number, &reaching[..asked])?;
        println!("{verdict}\t{asked} of {}\t{}", reaching.len(), change.text);
        *counts.lock().expect("no thread panics").entry(verdict).or_default() += 1;
        Ok(())
    })?;
    eprintln!("{:?}", counts.into_inner().expect("no thread panics"));
    Ok(())
}

fn verdict(built: &Built, change: usize, reaching: &[&Test]) -> anyhow::Result<&'static str> {
    let mut rest = reaching;
    let mut size = FIRST;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(size.min(rest.len()));
        let mut by_binary = BTreeMap::<&Path, Vec<&Test>>::new();
        for test in now {
            by_binary.entry(&test.binary).or_default().push(test);
        }
        for (binary, tests) in by_binary {
            let names: Vec<_> = tests.iter().map(|test| &test.name).collect();
            let most = GRACE + 4 * tests.iter().map(|test| test.took).sum::<Duration>();
            match run(built, binary, &names, &[("SURVEY_CHANGE", change.to_string())], most)? {
                Answer::Passed => {}
                Answer::Failed => return Ok("found"),
                Answer::Hung => return Ok("hangs"),
            }
        }
        rest = later;
        size = (2 * size).min(MOST);
    }
    Ok(if reaching.is_empty() { "unreached" } else { "missed" })
}

/// Runs tests in a process group of their own, of which nothing is left afterwards.
fn run(
    built: &Built,
    binary: &Path,
    names: &[&String],
    environment: &[(&str, String)],
    most: Duration,
) -> anyhow::Result<Answer> {
    let mut child = Command::new(binary)
        .arg("--exact")
        .args(names)
        .current_dir(&built.folder)
        .env("PROPTEST_FAILURE_PERSISTENCE", "off")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| binary.display().to_string())?;
    let answer = wait(&mut child, most)?;
    // Whatever the tests started, and themselves if they hang.
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status()?;
    child.wait()?;
    Ok(answer)
}

fn wait(child: &mut Child, most: Duration) -> anyhow::Result<Answer> {
    let end = Instant::now() + most;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { Answer::Passed } else { Answer::Failed });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Answer::Hung)
}

/// Does something with each item, some at a time; the results are in the items' order.
fn in_turns<T: Sync, R: Send>(
    workers: usize,
    items: &[T],
    work: impl Fn(usize, &T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(index, item);
                    done.lock().expect("no thread panics").insert(index, result);
                }
            });
        }
    });
    done.into_inner().expect("no thread panics").into_values().collect()
}
