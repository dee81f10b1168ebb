//! What is put at the end of a surveyed crate: which change is in force, and which of them ran. A change that has no
//! effect (a condition that is true already) does not count as one that ran.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// More than any crate has.
const MOST: usize = 20_000;

static RAN: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

struct Asked {
    in_force: usize,
    log: Option<String>,
}

fn asked() -> &'static Asked {
    static ASKED: OnceLock<Asked> = OnceLock::new();
    ASKED.get_or_init(|| Asked {
        in_force: std::env::var("SURVEY_CHANGE").ok().and_then(|number| number.parse().ok()).unwrap_or(0),
        log: std::env::var("SURVEY_LOG").ok(),
    })
}

fn ran(change: usize) {
    if let Some(log) = &asked().log
        && !RAN[change].swap(true, Ordering::Relaxed)
    {
        let written = OpenOptions::new().create(true).append(true).open(log);
        written
            .and_then(|mut log| log.write_all(format!("{change}\n").as_bytes()))
            .expect("the log is written");
    }
}

/// True if the change is in force.
pub fn on(change: usize) -> bool {
    ran(change);
    asked().in_force == change
}

/// A condition that the change makes `other`.
pub fn instead(change: usize, condition: bool, other: bool) -> bool {
    if condition != other {
        ran(change);
    }
    if asked().in_force == change { other } else { condition }
}

/// A condition that the change makes always true.
pub fn always(change: usize, condition: bool) -> bool {
    instead(change, condition, true)
}

/// A condition that the change makes always false.
pub fn never(change: usize, condition: bool) -> bool {
    instead(change, condition, false)
}

/// `a < b`, which the change makes `a <= b`.
pub fn less<A: PartialOrd<B>, B>(change: usize, a: &A, b: &B) -> bool {
    instead(change, a < b, a <= b)
}

/// `a <= b`, which the change makes `a < b`.
pub fn at_most<A: PartialOrd<B>, B>(change: usize, a: &A, b: &B) -> bool {
    instead(change, a <= b, a < b)
}

/// `a > b`, which the change makes `a >= b`.
pub fn more<A: PartialOrd<B>, B>(change: usize, a: &A, b: &B) -> bool {
    instead(change, a > b, a >= b)
}

/// `a >= b`, which the change makes `a > b`.
pub fn at_least<A: PartialOrd<B>, B>(change: usize, a: &A, b: &B) -> bool {
    instead(change, a >= b, a > b)
}
