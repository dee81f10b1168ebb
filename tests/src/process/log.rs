//! What a load node did, on disk: written with one `write` a line, so that `kill -9` loses at most the last line.
//!
//! A line is `B incarnation` when a process begins, `A micros cost` when an operation of `cost` micro-RU was admitted
//! (`micros` on the machine's monotonic clock, the same for all processes), and `C` when it was charged. Operations
//! follow one another, so of each incarnation at most the last is admitted and not known to be charged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds on the monotonic clock of the machine.
pub fn machine_micros() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec / 1_000).unwrap_or(0)
}

/// A log that is being written.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Appends to a log, or begins one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(path: &Path, incarnation: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // A line that the last process did not finish is ended, so that it does not run into the next.
        file.write_all(format!("\nB {incarnation}\n").as_bytes())?;
        Ok(Self(file))
    }

    /// An operation was admitted.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn admitted(&mut self, micros: u64, cost: i64) -> io::Result<()> {
        self.0.write_all(format!("A {micros} {cost}\n").as_bytes())
    }

    /// It was charged.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn charged(&mut self) -> io::Result<()> {
        self.0.write_all(b"C\n")
    }
}

/// What one incarnation did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Its number.
    pub incarnation: u64,
    /// Time in microseconds and cost in micro-RU of everything admitted.
    pub admitted: Vec<(u64, i64)>,
    /// Charged for certain: operations and micro-RU.
    pub charged: (u64, i64),
    /// Cost of a last operation that may have been charged before the kill.
    pub doubtful: Option<i64>,
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
            (["B", incarnation], _) => {
                let incarnation = incarnation.parse().unwrap_or(0);
                lives.push(Life { incarnation, ..Life::default() });
            }
            (["A", micros, cost], Some(life)) => {
                if let (Ok(micros), Ok(cost)) = (micros.parse(), cost.parse()) {
                    life.admitted.push((micros, cost));
                    life.doubtful = Some(cost);
                }
            }
            (["C"], Some(life)) => {
                if let Some(cost) = life.doubtful.take() {
                    life.charged = (life.charged.0 + 1, life.charged.1 + cost);
                }
            }
            _ => {}
        }
    }
    Ok(lives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_back_with_its_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.log");
        let mut log = Log::open(&path, 5).unwrap();
        log.admitted(10, 7).unwrap();
        log.charged().unwrap();
        log.admitted(20, 9).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"A 3").unwrap();
        drop(Log::open(&path, 6).unwrap());
        let lives = read(&path).unwrap();
        assert_eq!(lives.len(), 2);
        assert_eq!((lives[0].charged, lives[0].doubtful), ((1, 7), Some(9)));
        assert_eq!(lives[0].admitted, [(10, 7), (20, 9)]);
        assert_eq!(lives[1], Life { incarnation: 6, ..Life::default() });
    }
}
