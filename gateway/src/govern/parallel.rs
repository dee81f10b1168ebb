//! PostgreSQL's parallel workers: processes of their own, children of the postmaster, that work for a session's process
//! while a statement of it runs.
//!
//! The gateway looks for them [`FIRST`] after a statement began, then ever less often, and often once it has had some.
//! The kernel reports what a worker used when it ended, to processes that may ask ([`Exits`]); without that, the
//! gateway misses what the worker does after the last look. PostgreSQL answers only when all workers of a statement
//! have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::fs::CWD;
use tokio::time::Instant;

use super::counters::Counters;
use super::exits::Exits;
use super::share::Counted;
use crate::alarm::Alarm;
use crate::clock::after;

/// From the beginning of a statement to the first look. Few that end before that are worth a worker to PostgreSQL.
const FIRST: Duration = Duration::from_millis(10);
/// Between two looks once a statement has had workers.
const OFTEN: Duration = Duration::from_millis(20);
/// Between two looks at most.
const SELDOM: Duration = Duration::from_millis(100);
/// Workers of one statement that are followed; PostgreSQL's `max_parallel_workers` is 8 unless raised.
const MAX_WORKERS: usize = 64;

/// The workers of one session.
#[derive(Debug)]
pub(super) struct Workers {
    leader: u32,
    /// Where the kernel lists the postmaster's children.
    children: PathBuf,
    found: BTreeMap<u32, Counters>,
    /// Other children.
    others: BTreeSet<u32>,
    /// While there are any.
    exits: Option<Exits>,
    /// The workers' usage since it was last taken.
    used: Counted,
    alarm: Alarm,
    /// The next look at the statement that runs.
    next: Option<Instant>,
    pause: Duration,
    /// Whether it has had workers.
    had_some: bool,
}

impl Workers {
    /// Those of the session that this child of the postmaster serves.
    pub(super) fn of(leader: u32, postmaster: u32) -> Self {
        Self {
            leader,
            children: super::backend::process(postmaster).join(format!("task/{postmaster}/children")),
            found: BTreeMap::new(),
            others: BTreeSet::from([leader]),
            exits: None,
            used: Counted::default(),
            alarm: Alarm::new(),
            next: None,
            pause: FIRST,
            had_some: false,
        }
    }

    /// Looks for them when it is time, while a statement runs that began then; whether it was.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, began: Instant) -> bool {
        let mut looked = false;
        loop {
            let next = *self.next.get_or_insert_with(|| after(began, FIRST));
            let Poll::Ready(now) = self.alarm.poll(cx, next) else { return looked };
            looked = true;
            self.find();
            self.count();
            self.pause = if self.had_some { OFTEN } else { self.pause.saturating_mul(2).min(SELDOM) };
            self.next = Some(after(now, self.pause));
        }
    }

    /// Those that work now, as far as they were found.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.found.keys().copied()
    }

    /// The statement has ended: what was used since the last time. None of its workers is left.
    pub(super) fn end(&mut self) -> Counted {
        (self.next, self.pause, self.had_some) = (None, FIRST, false);
        self.take()
    }

    /// What was used since the last time.
    pub(super) fn take(&mut self) -> Counted {
        self.count();
        std::mem::take(&mut self.used)
    }

    /// Costs tens of microseconds, and some more for each child that was not there before.
    fn find(&mut self) {
        let Ok(children) = std::fs::read_to_string(&self.children) else { return };
        let children: BTreeSet<u32> =
            children.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        self.others.retain(|pid| children.contains(pid));
        let mark = format!("parallel worker for PID {}", self.leader);
        for pid in children {
            if self.others.contains(&pid) || self.found.contains_key(&pid) || self.found.len() >= MAX_WORKERS
            {
                continue;
            }
            let folder = super::backend::process(pid);
            let title = std::fs::read(folder.join("cmdline")).unwrap_or_default();
            let title = String::from_utf8_lossy(&title);
            // A child bears the postmaster's title until it says what it is; its own is padded.
            let title = title.trim_end_matches(['\0', ' ']);
            if title.ends_with(&mark) {
                self.had_some = true;
                // Asked first, so that its end cannot be missed.
                self.exits = self.exits.take().or_else(Exits::listen);
                self.found.extend(Counters::whole(CWD, &folder).map(|counters| (pid, counters)));
            } else if title.starts_with("postgres: ") {
                self.others.insert(pid);
            }
        }
    }

    fn count(&mut self) {
        let used = &mut self.used;
        while let Some((pid, all)) = self.exits.as_ref().and_then(Exits::next) {
            if let Some(counters) = self.found.remove(&pid) {
                *used = used.plus(&counters.end(all));
                // It may still be among the children for a moment.
                self.others.insert(pid);
            }
        }
        self.found.retain(|_, counters| {
            let more = counters.take();
            *used = used.plus(&more.unwrap_or_default());
            more.is_some()
        });
        // Also when the one for which it began to listen had ended before it could be followed.
        if self.found.is_empty() {
            self.exits = None;
        }
    }
}

#[cfg(test)]
mod tests;
