//! The log of a load node: written with one `write` a line, so that `kill -9` loses at most the last line.
//!
//! A line is one of these; all times are microseconds of the machine's monotonic clock, the same for all processes:
//!
//! * `B incarnation journal .` when a process begins, or `B incarnation none .` when it keeps no journal;
//! * `A group admitted written estimate actual waited .` when an operation was admitted: when its tokens were taken,
//!   when this line was about to be written, micro-RU taken and micro-RU it will be charged, microseconds waited;
//! * `C group settled .` when it was charged;
//! * `S epoch at .` when a newer leadership of the controller was seen, and by when;
//! * `E .` when the process ends and the controller has confirmed all it charged.
//!
//! Operations of one group follow one another, so of each incarnation and group at most the last is admitted and not
//! known to be charged. The moment that counts is `admitted`, when the node's state machine took the tokens, and not
//! `written`: a process that is stopped between the two has already spent what it was leased while the lease ran, and
//! writes the line when it goes on. The end of line `.` distinguishes a whole line from one that was torn.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// A reading of both clocks is good when it took no longer than this, in microseconds.
pub const CLOCK_ERROR_US: u64 = 20;
/// Attempts to get such a reading; the best counts.
const READINGS: u32 = 1_000;

/// Words for a process with a journal and for one without.
const JOURNAL: &str = "journal";
const NO_JOURNAL: &str = "none";

/// Microseconds on the monotonic clock of the machine.
pub fn machine_micros() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec / 1_000).unwrap_or(0)
}

/// Turns instants of this process into machine time. Both clocks are read once, so that a process that is stopped
/// while it converts a moment does not move that moment.
#[derive(Clone, Copy, Debug)]
pub struct MachineClock {
    instant: Instant,
    micros: u64,
}

impl MachineClock {
    /// Reads both clocks; to within [`CLOCK_ERROR_US`] unless the machine is too busy for that, which is an error.
    ///
    /// # Errors
    /// No reading was quick enough.
    pub fn start() -> io::Result<Self> {
        for _ in 0..READINGS {
            let micros = machine_micros();
            let instant = Instant::now();
            if machine_micros() - micros <= CLOCK_ERROR_US {
                return Ok(Self { instant, micros });
            }
        }
        Err(io::Error::other("the machine is too busy to compare its clocks"))
    }

    /// The moment `instant`, which is not before this clock was started.
    pub fn micros(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.instant).as_micros();
        self.micros.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// When its tokens were taken.
    pub admitted_us: u64,
    /// When that was about to be written down.
    pub written_us: u64,
    /// Micro-RU taken.
    pub estimate: i64,
    /// Micro-RU it is charged.
    pub actual: i64,
    /// Time it waited for admission.
    pub waited_us: u64,
    /// When it was charged, if that is certain.
    pub settled_us: Option<u64>,
}

/// A log that is being written.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Appends to a log, or begins one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(path: &Path, incarnation: u64, journal: bool) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        let journal = if journal { JOURNAL } else { NO_JOURNAL };
        // A line that the last process did not finish is ended, so that it does not run into the next.
        file.write_all(format!("\nB {incarnation} {journal} .\n").as_bytes())?;
        Ok(Self(file))
    }

    /// An operation of `group` was admitted.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn admitted(&mut self, group: &str, operation: &Operation) -> io::Result<()> {
        let Operation { admitted_us, written_us, estimate, actual, waited_us, .. } = operation;
        let line = format!("A {group} {admitted_us} {written_us} {estimate} {actual} {waited_us} .\n");
        self.0.write_all(line.as_bytes())
    }

    /// It was charged.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn charged(&mut self, group: &str, settled_us: u64) -> io::Result<()> {
        self.0.write_all(format!("C {group} {settled_us} .\n").as_bytes())
    }

    /// A newer leadership of the controller has been seen by now.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn led(&mut self, epoch: u64) -> io::Result<()> {
        self.0.write_all(format!("S {epoch} {} .\n", machine_micros()).as_bytes())
    }

    /// The process ends, and all that was charged is confirmed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn confirmed(&mut self) -> io::Result<()> {
        self.0.write_all(b"E .\n")
    }
}

/// What one incarnation did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Its number.
    pub incarnation: u64,
    /// A kill may have lost what it had not reported: it kept no journal, and did not end with everything confirmed.
    pub may_lose: bool,
    /// Leaderships that it saw, and by when, in order.
    pub epochs: Vec<(u64, u64)>,
    /// Operations by group, in the order of their admission.
    pub groups: BTreeMap<String, Vec<Operation>>,
}

impl Life {
    /// The certain charges of a group: operations and micro-RU.
    pub fn charged(&self, group: &str) -> (u64, i64) {
        let certain = self.operations(group).iter().filter(|operation| operation.settled_us.is_some());
        certain.fold((0, 0), |(count, sum), operation| (count + 1, sum + operation.actual))
    }

    /// Micro-RU of a last operation that may have been charged before the kill.
    pub fn doubtful(&self, group: &str) -> Option<i64> {
        let last = self.operations(group).last()?;
        last.settled_us.is_none().then_some(last.actual)
    }

    /// Whether the ledger's operations and micro-RU of a group are what was charged for certain, or that and a last
    /// operation; of a process that may lose, what the first of its operations came to, however many.
    pub fn agrees(&self, group: &str, ledger: (u64, i64)) -> bool {
        let certain = self.charged(group);
        let possible = self.doubtful(group).map(|cost| (certain.0 + 1, certain.1 + cost));
        if !self.may_lose || Some(ledger) == possible {
            return ledger == certain || Some(ledger) == possible;
        }
        let certain = self.operations(group).iter().filter(|operation| operation.settled_us.is_some());
        let reported = certain.take(usize::try_from(ledger.0).unwrap_or(usize::MAX));
        ledger == reported.fold((0, 0), |(count, sum), operation| (count + 1, sum + operation.actual))
    }

    /// Operations of a group.
    pub fn operations(&self, group: &str) -> &[Operation] {
        self.groups.get(group).map_or(&[], Vec::as_slice)
    }

    fn take(&mut self, words: &[&str]) {
        let number = |text: &str| text.parse::<u64>().ok();
        match *words {
            ["A", group, admitted, written, estimate, actual, waited, "."] => {
                let numbers = (number(admitted), number(written), number(waited));
                if let (Some(admitted_us), Some(written_us), Some(waited_us)) = numbers
                    && let (Ok(estimate), Ok(actual)) = (estimate.parse(), actual.parse())
                {
                    let (waited_us, settled_us) = (waited_us, None);
                    let operation =
                        Operation { admitted_us, written_us, estimate, actual, waited_us, settled_us };
                    self.groups.entry(group.to_owned()).or_default().push(operation);
                }
            }
            ["C", group, settled, "."] => {
                if let Some(last) = self.groups.get_mut(group).and_then(|operations| operations.last_mut()) {
                    last.settled_us = number(settled);
                }
            }
            ["S", epoch, at, "."] => self.epochs.extend(number(epoch).zip(number(at))),
            ["E", "."] => self.may_lose = false,
            _ => {}
        }
    }
}

/// Reads a log.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<Life>> {
    let mut lives: Vec<Life> = Vec::new();
    for line in fs::read_to_string(path)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match (words.as_slice(), lives.last_mut()) {
            (["B", incarnation, journal, "."], _) => {
                let incarnation = incarnation.parse().unwrap_or(0);
                lives.push(Life { incarnation, may_lose: *journal == NO_JOURNAL, ..Life::default() });
            }
            (words, Some(life)) => life.take(words),
            _ => {}
        }
    }
    Ok(lives)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(admitted_us: u64, actual: i64) -> Operation {
        Operation { admitted_us, written_us: admitted_us + 1, estimate: 7, actual, ..Operation::default() }
    }

    #[test]
    fn a_log_is_read_back_with_its_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.log");
        let mut log = Log::open(&path, 5, true).unwrap();
        log.admitted("a", &operation(10, 7)).unwrap();
        log.admitted("b", &operation(11, 8)).unwrap();
        log.led(4).unwrap();
        log.charged("a", 15).unwrap();
        log.admitted("a", &operation(20, 9)).unwrap();
        // A whole line but for its end: the last number may be cut short.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"A b 30 31 7 7 100").unwrap();
        drop(Log::open(&path, 6, false).unwrap());
        let lives = read(&path).unwrap();
        assert_eq!(lives.len(), 2);
        assert_eq!((lives[0].charged("a"), lives[0].doubtful("a")), ((1, 7), Some(9)));
        assert_eq!((lives[0].charged("b"), lives[0].doubtful("b")), ((0, 0), Some(8)));
        assert_eq!(lives[0].epochs.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>(), [4]);
        assert_eq!(lives[0].operations("a")[0], Operation { settled_us: Some(15), ..operation(10, 7) });
        assert_eq!(lives[1], Life { incarnation: 6, may_lose: true, ..Life::default() });
        assert_eq!((lives[1].charged("a"), lives[1].doubtful("a")), ((0, 0), None));
    }

    #[test]
    fn a_ledger_has_all_of_a_process_with_a_journal_and_the_first_operations_of_one_without() {
        let operation =
            |actual, settled: bool| Operation { settled_us: settled.then_some(1), ..operation(1, actual) };
        let operations = vec![operation(5, true), operation(7, true), operation(9, false)];
        let groups = BTreeMap::from([("a".to_owned(), operations)]);
        let agreeing = |may_lose: bool, groups: &BTreeMap<_, _>| {
            let life = Life { incarnation: 1, may_lose, groups: groups.clone(), ..Life::default() };
            let ledgers = [(0, 0), (1, 5), (1, 7), (2, 12), (3, 21), (3, 12), (4, 21)];
            ledgers.map(|ledger| life.agrees("a", ledger))
        };
        assert_eq!(agreeing(false, &groups), [false, false, false, true, true, false, false]);
        assert_eq!(agreeing(true, &groups), [true, true, false, true, true, false, false]);
        let none = BTreeMap::new();
        assert_eq!(agreeing(false, &none), agreeing(true, &none));
    }

    #[test]
    fn machine_time_is_that_of_the_machine() {
        let clock = MachineClock::start().unwrap();
        let before = machine_micros();
        let read = clock.micros(Instant::now());
        assert!((before - CLOCK_ERROR_US..=machine_micros() + CLOCK_ERROR_US).contains(&read));
    }
}
