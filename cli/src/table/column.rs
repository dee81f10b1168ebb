//! A column of a table: its title, where its cells stand, and what it gives up where the terminal is narrow.

/// How a cell is shortened that is wider than its column may be. Numbers are never cut: a cut number is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is never cut.
    Whole,
    /// Its end is left out, down to so many columns.
    End(usize),
    /// Its middle is left out: both ends of a name distinguish it from others.
    Middle(usize),
    /// It goes on below.
    Wrap(usize),
}

/// The step in which a column leaves; 0 stays.
pub(crate) type Step = u8;

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(super) title: String,
    pub(super) right: bool,
    pub(super) fit: Fit,
    /// Columns of the highest step leave first, those of one step together.
    pub(super) leaves: Step,
    pub(super) only_wide: bool,
}

/// Columns that a text keeps when it shares a narrow terminal.
const LEAST_TEXT: usize = 8;

impl Column {
    /// Words, to the left.
    pub(crate) fn text(title: &str) -> Self {
        let fit = Fit::End(LEAST_TEXT);
        Self { title: title.to_owned(), right: false, fit, leaves: 0, only_wide: false }
    }

    /// Names, to the left: cut in the middle.
    pub(crate) fn name(title: &str) -> Self {
        Self { fit: Fit::Middle(LEAST_TEXT), ..Self::text(title) }
    }

    /// A word that is short, to the left: never cut.
    pub(crate) fn word(title: &str) -> Self {
        Self { fit: Fit::Whole, ..Self::text(title) }
    }

    /// Text that goes on in the next line.
    pub(crate) fn prose(title: &str) -> Self {
        Self { fit: Fit::Wrap(3 * LEAST_TEXT), ..Self::text(title) }
    }

    /// Numbers, to the right: never cut.
    pub(crate) fn number(title: &str) -> Self {
        Self { right: true, ..Self::word(title) }
    }

    /// Leaves with the others of `step` where the terminal is narrow, the highest first.
    pub(crate) fn leaves(self, step: Step) -> Self {
        Self { leaves: step, ..self }
    }

    /// Shown with `-o wide` only.
    pub(crate) fn wide(self) -> Self {
        Self { only_wide: true, ..self }
    }

    /// Columns of a terminal below which its cells are not cut.
    pub(super) fn least(&self) -> Option<usize> {
        match self.fit {
            Fit::Whole => None,
            Fit::End(least) | Fit::Middle(least) | Fit::Wrap(least) => Some(least),
        }
    }
}

impl From<&str> for Column {
    /// As in a list of titles: one that begins with `>` is a column of numbers.
    fn from(title: &str) -> Self {
        title.strip_prefix('>').map_or_else(|| Self::text(title), Self::number)
    }
}

impl From<&&str> for Column {
    fn from(title: &&str) -> Self {
        Self::from(*title)
    }
}
