//! Where results go: aligned tables for people, JSON for programs.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::error::CliError;

/// Shape of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Aligned columns, units in the headers.
    #[default]
    Table,
    /// One JSON document with stable field names.
    Json,
}

impl Output {
    /// Prints `value` as JSON, or the text that `table` makes.
    pub(crate) fn show(self, value: &impl Serialize, table: impl FnOnce() -> String) -> Result<(), CliError> {
        match self {
            Self::Table => print(&table()),
            Self::Json => {
                let text =
                    serde_json::to_string_pretty(value).map_err(|error| CliError::Output(error.into()))?;
                print(&text)
            }
        }
    }
}

/// Writes `text` to the standard output as whole lines.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let write = |out: &mut io::StdoutLock<'_>| {
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write(&mut out).map_err(CliError::Output)
}

/// Tells people what is going on, on the standard error; a reader that is gone does not stop the work.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
