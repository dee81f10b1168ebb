//! Where results go and in which shape: tables for people; JSON, YAML and names for programs.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::error::CliError;
use crate::page::Page;
use crate::plain;
use crate::screen::Screen;

/// Shape of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Aligned columns, units in the headers, as wide as the terminal.
    #[default]
    Table,
    /// The same with more columns, and none cut.
    Wide,
    /// One JSON document with stable field names.
    Json,
    /// The same as YAML.
    Yaml,
    /// A name a line.
    Name,
}

impl Output {
    /// Prints `value` for programs, or the page for people.
    pub(crate) fn show<P: Into<Page>>(
        self,
        value: &impl Serialize,
        page: impl FnOnce() -> P,
    ) -> Result<(), CliError> {
        self.list(value, Vec::new, page)
    }

    /// The same for things that have names.
    pub(crate) fn list<P: Into<Page>>(
        self,
        value: &impl Serialize,
        names: impl FnOnce() -> Vec<String>,
        page: impl FnOnce() -> P,
    ) -> Result<(), CliError> {
        match self {
            Self::Table | Self::Wide => {
                let lines = page().into().lines(&Screen::stdout(), self == Self::Wide);
                print_raw(&lines.join("\n"))
            }
            Self::Json => print_json(&serde_json::to_string_pretty(value).map_err(not_json)?),
            // With its end, so that `apply --prune` takes it.
            Self::Yaml => print(&format!("{}...\n", yaml(value)?)),
            Self::Name => names().iter().try_for_each(|name| print(name)),
        }
    }

    /// Prints one of several values: a line of JSON, a document of YAML, or the page.
    pub(crate) fn one<P: Into<Page>>(
        self,
        value: &impl Serialize,
        page: impl FnOnce() -> P,
    ) -> Result<(), CliError> {
        match self {
            Self::Json => print_json(&serde_json::to_string(value).map_err(not_json)?),
            Self::Yaml => print(&format!("---\n{}", yaml(value)?)),
            _ => self.show(value, page),
        }
    }

    /// Whether people read it.
    pub(crate) fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

fn not_json(error: serde_json::Error) -> CliError {
    CliError::Output(error.into())
}

/// `value` as a document of YAML, without its end.
fn yaml(value: &impl Serialize) -> Result<String, CliError> {
    let text = serde_saphyr::to_string(value);
    text.map_err(|error| CliError::Output(io::Error::other(error.to_string())))
}

fn print_json(text: &str) -> Result<(), CliError> {
    if Screen::stdout().is_terminal { print_raw(&plain::json(text)) } else { print_raw(text) }
}

/// Writes `text` to the standard output as whole lines, on a terminal without what would move its cursor.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    if Screen::stdout().is_terminal { print_raw(&plain::lines(text)) } else { print_raw(text) }
}

/// The same for what is safe, colours among it.
pub(crate) fn print_raw(text: &str) -> Result<(), CliError> {
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

/// What a command goes on with where nobody reads any more what it prints: its work, and the status that answers who
/// called it.
pub(crate) fn unless_unread(printed: Result<(), CliError>) -> Result<(), CliError> {
    printed.or_else(|error| if error.is_closed_pipe() { Ok(()) } else { Err(error) })
}

/// Prints a note for people on the standard error; a reader that is gone does not stop the work.
pub(crate) fn note(text: &str) {
    let safe = if Screen::stderr().is_terminal { plain::lines(text) } else { text.into() };
    let _ = writeln!(io::stderr().lock(), "{safe}");
}
