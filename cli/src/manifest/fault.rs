//! What is wrong with a file, and where.

use std::fmt;

use super::limits::MAX_FAULTS;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    /// The document, and what it defines.
    pub(crate) place: String,
    /// The field, the value and what to write.
    pub(crate) message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.place.is_empty() {
            write!(f, ": {}", self.place)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Everything that is wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    count: usize,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.count += 1;
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        }
    }

    /// Counts faults that are not at hand.
    pub(crate) fn and_more(&mut self, count: usize) {
        self.count += count;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// `value`, where nothing is wrong.
    pub(crate) fn result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str("1 fault, nothing is changed:")?,
            count => write!(f, "{count} faults, nothing is changed:")?,
        }
        for fault in &self.faults {
            write!(f, "\n  {fault}")?;
        }
        match self.count - self.faults.len() {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

impl std::error::Error for Faults {}
