//! `tidegate completions`: completion scripts for shells.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::error::CliError;
use crate::output::print;

/// For which shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tidegate completions bash > /etc/bash_completion.d/tidegate")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Runs the command.
pub(crate) fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidegate", &mut script);
    print(&String::from_utf8_lossy(&script))
}
