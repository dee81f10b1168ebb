//! A row of the table: our figure, those beside it, and the marks.

use super::samples::Samples;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit(pub &'static str);

/// Nanoseconds.
pub const NS: Unit = Unit("ns");
/// Microseconds.
pub const US: Unit = Unit("us");
/// Milliseconds.
pub const MS: Unit = Unit("ms");
/// Seconds.
pub const S: Unit = Unit("s");
/// Something per second.
pub const PER_S: Unit = Unit("/s");
/// Bytes.
pub const BYTES: Unit = Unit("B");
/// Parts of a hundred.
pub const PERCENT: Unit = Unit("%");

/// What a figure or a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// From the first to the second, both included.
    Within(f64, f64),
}

impl Mark {
    /// Whether `value` meets it.
    pub fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
            Self::Within(least, most) => (least..=most).contains(&value),
        }
    }
}

/// What stands beside our figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another implementation of the same, measured in this run.
    Peer,
    /// The least that could be paid, measured in this run.
    Floor,
    /// Reported by others, not measured here.
    Published,
}

impl Kind {
    /// As the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Floor => "floor",
            Self::Published => "published",
        }
    }
}

/// A figure beside ours, in the unit of the row.
#[derive(Clone, Debug)]
pub struct Other {
    /// The contender.
    pub name: String,
    /// Its relation to our code.
    pub kind: Kind,
    /// The figure.
    pub figure: Samples,
    /// What ours divided by it should be.
    pub mark: Option<Mark>,
}

/// One thing measured.
#[derive(Clone, Debug)]
pub struct Row {
    /// Family and case.
    pub case: String,
    /// The unit of all figures of the row.
    pub unit: Unit,
    /// What the shipped code does.
    pub ours: Samples,
    /// What our figure should be.
    pub mark: Option<Mark>,
    /// What stands beside it.
    pub others: Vec<Other>,
    /// A note that a reader needs to read the figures.
    pub note: String,
}

impl Row {
    /// A figure alone.
    pub fn new(case: impl Into<String>, unit: Unit, ours: Samples) -> Self {
        Self { case: case.into(), unit, ours, mark: None, others: Vec::new(), note: String::new() }
    }

    /// What the figure should be.
    #[must_use]
    pub fn mark(mut self, mark: Mark) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Another figure beside it.
    #[must_use]
    pub fn beside(
        mut self,
        kind: Kind,
        name: impl Into<String>,
        figure: Samples,
        mark: Option<Mark>,
    ) -> Self {
        self.others.push(Other { name: name.into(), kind, figure, mark });
        self
    }

    /// What a reader must know.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Whether each mark of the row is met: the case, and for a ratio whose.
    pub fn verdicts(&self) -> impl Iterator<Item = (String, bool)> + '_ {
        let own = self.mark.map(|mark| (self.case.clone(), mark.met(self.ours.median())));
        let ratios = self.others.iter().filter_map(|other| {
            let met = other.mark?.met(self.ours.over(&other.figure).median());
            Some((format!("{} beside {}", self.case, other.name), met))
        });
        own.into_iter().chain(ratios)
    }
}
