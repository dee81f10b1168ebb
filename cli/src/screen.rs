//! The place where results are shown: a terminal of so many columns and rows, or a file or pipe, and whether in colour.
//!
//! Colour follows `--color`, then `NO_COLOR` (no-color.org), `CLICOLOR_FORCE` and `CLICOLOR` (bixense.com/clicolors),
//! and otherwise whether it is a terminal. A piped table is not cut: its later reader has no known width.

use std::io::{IsTerminal as _, stderr, stdout};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::termios::tcgetwinsize;

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// Colours on a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// No colours.
    Never,
}

/// What the command line said; the same for both outputs until the process ends.
static CHOSEN: OnceLock<Color> = OnceLock::new();

/// Columns of a terminal that does not say how many it has, as the oldest have.
const USUAL_COLUMNS: usize = 80;

/// Where a text goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Screen {
    /// `None`: as wide as need be.
    pub(crate) columns: Option<usize>,
    /// `None`: as long as need be.
    pub(crate) rows: Option<usize>,
    pub(crate) color: bool,
    pub(crate) is_terminal: bool,
}

/// Says once which colour the command line asks for.
pub(crate) fn choose(color: Color) {
    // A second choice is of the same command line.
    let _ = CHOSEN.set(color);
}

impl Screen {
    /// The standard output.
    pub(crate) fn stdout() -> Self {
        Self::of(stdout(), stdout().is_terminal())
    }

    /// The standard error.
    pub(crate) fn stderr() -> Self {
        Self::of(stderr(), stderr().is_terminal())
    }

    fn of(output: impl AsFd, is_terminal: bool) -> Self {
        let chosen = CHOSEN.get().copied().unwrap_or_default();
        let color = wants_color(chosen, &|name| std::env::var(name).ok(), is_terminal);
        if !is_terminal {
            return Self { color, ..Self::default() };
        }
        let size = tcgetwinsize(output).ok();
        let said = |cells: u16| Some(usize::from(cells)).filter(|cells| *cells > 0);
        let columns = size.and_then(|size| said(size.ws_col)).or_else(columns_of_environment);
        Self {
            columns: Some(columns.unwrap_or(USUAL_COLUMNS)),
            rows: size.and_then(|size| said(size.ws_row)),
            color,
            is_terminal,
        }
    }
}

fn columns_of_environment() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0)
}

fn wants_color(chosen: Color, variable: &dyn Fn(&str) -> Option<String>, is_terminal: bool) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    match chosen {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR").is_some() => false,
        Color::Auto if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        Color::Auto => {
            let refused = set("CLICOLOR").as_deref() == Some("0") || set("TERM").as_deref() == Some("dumb");
            is_terminal && !refused
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_the_flag_then_the_environment_then_the_terminal() {
        let wants = |chosen, variables: &[(&str, &str)], terminal| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            wants_color(chosen, &variable, terminal)
        };
        assert!(wants(Color::Auto, &[], true) && !wants(Color::Auto, &[], false));
        assert!(!wants(Color::Auto, &[("NO_COLOR", "1")], true));
        assert!(wants(Color::Auto, &[("NO_COLOR", "")], true), "empty is not set");
        assert!(!wants(Color::Auto, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], true));
        assert!(wants(Color::Auto, &[("CLICOLOR_FORCE", "1")], false));
        assert!(!wants(Color::Auto, &[("CLICOLOR_FORCE", "0")], false));
        assert!(!wants(Color::Auto, &[("CLICOLOR", "0")], true));
        assert!(!wants(Color::Auto, &[("TERM", "dumb")], true));
        assert!(wants(Color::Always, &[("NO_COLOR", "1")], false));
        assert!(!wants(Color::Never, &[("CLICOLOR_FORCE", "1")], true));
    }
}
