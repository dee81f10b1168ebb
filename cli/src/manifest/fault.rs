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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_that_are_not_listed_are_counted() {
        let said = |here: usize, elsewhere: usize| {
            let mut faults = Faults::default();
            for line in 0..here {
                faults.add(Fault { file: "f".into(), line, place: String::new(), message: "m".into() });
            }
            faults.and_more(elsewhere);
            let said = faults.to_string();
            let (first, last) = (said.lines().next().unwrap(), said.lines().last().unwrap());
            (first.to_owned(), last.to_owned(), said.lines().count())
        };
        let all = |count: usize| format!("{count} faults, nothing is changed:");
        assert_eq!(said(1, 0), ("1 fault, nothing is changed:".to_owned(), "  f: m".to_owned(), 2));
        let last = MAX_FAULTS - 1;
        assert_eq!(said(MAX_FAULTS, 0), (all(MAX_FAULTS), format!("  f:{last}: m"), MAX_FAULTS + 1));
        assert_eq!(said(MAX_FAULTS + 1, 0), (all(MAX_FAULTS + 1), "  and 1 more".to_owned(), MAX_FAULTS + 2));
        assert_eq!(said(2, 3), (all(5), "  and 3 more".to_owned(), 4));
        assert!(Faults::default().result(7).is_ok());
    }
}
