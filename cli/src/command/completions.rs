//! `tidegate completions`: completion scripts for shells.

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::Shell;

use crate::args::Cli;
use crate::completion::{Scripted, script};
use crate::error::CliError;
use crate::output::print;

/// For which shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate completions bash > /etc/bash_completion.d/tidegate\n  \
    tidegate completions zsh > /usr/local/share/zsh/site-functions/_tidegate\n  \
    tidegate completions fish > ~/.config/fish/completions/tidegate.fish\n\n\
    bash, zsh and fish complete the names of groups, tenants, users and clients, too: they ask the controller of\n\
    --endpoint or TIDEGATE_ENDPOINT for a quarter of a second at most.")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Runs the command.
pub(crate) fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    if let Ok(scripted) = Scripted::from_str(&args.shell.to_string(), true) {
        return print(script(scripted));
    }
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidegate", &mut text);
    print(&String::from_utf8_lossy(&text))
}
