//! Processes with the titles of PostgreSQL's, children of this thread in place of the postmaster.

use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::clock::now;

/// The process that the workers work for.
const LEADER: u32 = 7;

/// A child of this thread under another title, which gives back what it gets.
struct Process(Child);

impl Process {
    fn called(title: &str) -> Self {
        let mut command = Command::new("cat");
        let child = command.arg0(title).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let process = Self(child.unwrap());
        // Until then it bears this process's title.
        while std::fs::read(format!("/proc/{}/cmdline", process.0.id())).unwrap()
            != [title.as_bytes(), &[0]].concat()
        {
            std::thread::yield_now();
        }
        process
    }

    fn worker(number: u32) -> Self {
        Self::called(&format!("postgres: parallel worker for PID {number}"))
    }

    /// Reads and writes so many bytes.
    fn does(&mut self, bytes: usize) {
        self.0.stdin.as_mut().unwrap().write_all(&vec![7; bytes]).unwrap();
        self.0.stdout.as_mut().unwrap().read_exact(&mut vec![0; bytes]).unwrap();
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Those of the leader, whose postmaster is this thread.
fn workers() -> Workers {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    Workers::of(LEADER, thread.file_name().unwrap().to_str().unwrap().parse().unwrap())
}

/// What was read and written. A process may still be on its way to its next read, which takes time of the CPU.
fn calls(used: &Counted) -> (u64, u64, u64) {
    (used.read, used.written, used.writes)
}

/// When they are next looked for, after the beginning.
async fn looks(workers: &mut Workers, began: Instant) -> u128 {
    poll_fn(|cx| if workers.poll(cx, began) { Poll::Ready(()) } else { Poll::Pending }).await;
    began.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn workers_are_looked_for_often_once_there_were_some_and_else_ever_less_often() {
    let mut workers = workers();
    let mut at = Vec::new();
    let began = now();
    for _ in 0..7 {
        at.push(looks(&mut workers, began).await);
    }
    assert_eq!(at, [10, 30, 70, 150, 250, 350, 450]);
    let mut worker = Process::worker(LEADER);
    at.clear();
    for _ in 0..3 {
        at.push(looks(&mut workers, began).await);
    }
    assert_eq!(at, [550, 570, 590]);
    worker.end();
    // It has had some.
    assert_eq!(looks(&mut workers, began).await, 610);
    let _ = workers.end();
    // The next statement begins like the first.
    let began = now();
    at = vec![looks(&mut workers, began).await, looks(&mut workers, began).await];
    assert_eq!(at, [10, 30]);
}

#[tokio::test(start_paused = true)]
async fn what_workers_did_is_counted_once_and_what_other_children_did_is_not() {
    let mut workers = workers();
    let (mut one, mut two) = (Process::worker(LEADER), Process::worker(LEADER));
    let mut others = [
        Process::worker(LEADER * 10 + 7),
        Process::called("postgres: ann shop [local] SELECT"),
        Process::called("postgres"),
    ];
    let began = now();
    one.does(1_000);
    // Then it has read its libraries.
    two.does(1);
    for other in &mut others {
        other.does(50_000);
    }
    let _ = looks(&mut workers, began).await;
    assert_eq!(workers.processes().collect::<BTreeSet<_>>(), [one.0.id(), two.0.id()].into());
    // They have read their libraries, too.
    let first = workers.take();
    assert!((1_000..50_000).contains(&first.written) && first.writes >= 1 && first.cpu_ns > 0, "{first:?}");
    assert_eq!(calls(&workers.take()), (0, 0, 0));
    two.does(3_000);
    let _ = looks(&mut workers, began).await;
    for other in &mut others {
        other.does(50_000);
    }
    let next = workers.take();
    assert_eq!((next.read, next.written), (3_000, 3_000));
    // One ends, and is forgotten; the other is counted on.
    one.end();
    two.does(10);
    let last = workers.take();
    assert_eq!((last.read, last.written), (10, 10));
    assert_eq!(workers.processes().collect::<Vec<_>>(), [two.0.id()]);
    two.does(20);
    assert_eq!(workers.end().written, 20);
    two.end();
    assert_eq!((calls(&workers.end()), workers.processes().count()), ((0, 0, 0), 0));
    assert!(workers.exits.is_none(), "nothing listens while there are none");
}

/// As the kernel reports it, in whole KiB, to processes that may ask.
#[tokio::test(start_paused = true)]
async fn what_a_worker_did_after_the_last_look_is_counted_where_the_kernel_reports_it() {
    let mut workers = workers();
    let (mut one, _two) = (Process::worker(LEADER), Process::worker(LEADER));
    let _ = (looks(&mut workers, now()).await, workers.take());
    let reports = workers.exits.is_some();
    assert_eq!(reports, Exits::listen().is_some());
    one.does(60_000);
    one.end();
    let last = workers.take();
    let expected = if reports { 58_000..=60_000 } else { 0..=0 };
    assert!(expected.contains(&last.written), "{reports}: {last:?}");
    assert_eq!((calls(&workers.take()), workers.processes().count()), ((0, 0, 0), 1));
}

/// The kernel gives a number again, and a session lives long.
#[tokio::test(start_paused = true)]
async fn other_children_are_remembered_as_long_as_they_live_and_not_too_many_workers_are_followed() {
    let mut workers = workers();
    let mut other = Process::called("postgres: ann shop [local] idle");
    let _both = [Process::worker(LEADER), Process::worker(LEADER)];
    // Most of them are this process, under numbers that no process has.
    let many = (1..MAX_WORKERS).map(|number| u32::MAX - u32::try_from(number).unwrap());
    let followed = |number| Some((number, Counters::whole(CWD, Path::new("/proc/self"))?));
    workers.found.extend(many.filter_map(followed));
    let began = now();
    let _ = looks(&mut workers, began).await;
    assert_eq!(workers.processes().count(), MAX_WORKERS);
    assert_eq!(workers.others, [other.0.id()].into());
    other.end();
    let _ = looks(&mut workers, began).await;
    assert!(workers.others.is_empty() && workers.processes().count() == MAX_WORKERS);
}

/// Each of them holds a descriptor, and the kernel's reports of all processes of the machine.
#[tokio::test(start_paused = true)]
async fn nothing_listens_for_a_worker_that_ended_before_it_could_be_followed() {
    let mut workers = workers();
    workers.exits = Exits::listen();
    let _ = looks(&mut workers, now()).await;
    assert!(workers.exits.is_none());
}
