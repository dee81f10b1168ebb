//! `tidegate`: controller, governed SQL node, demo, and administration in one binary.
//!
//! Each command is a file under `command`; the demo and the node have a folder each. Results go to the standard
//! output, what goes on beside them to the standard error. Exit status: 0 done, 1 failed or refused, 2 called wrongly.

mod admin;
mod args;
mod call;
mod clock;
mod command;
mod completion;
mod contexts;
mod demo;
mod doctor;
mod endpoints;
mod error;
mod flags;
mod follow;
mod manifest;
mod node;
mod output;
mod page;
mod plain;
mod query_limit;
mod sample;
mod screen;
mod sql;
mod stop;
mod table;
mod terminal;
mod token;
mod top;
mod unconfirmed;
mod view;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::CommandFactory as _;
use error::CliError;

fn main() -> ExitCode {
    let cli = args::parse();
    screen::choose(cli.global.color);
    let compares = matches!(cli.command, Command::Diff(_));
    match run(cli) {
        Ok(code) => code,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format!("tidegate: {error}"));
            ExitCode::from(if compares { command::diff::FAILED } else { error.exit_code() })
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, CliError> {
    if let Command::Complete(args) = cli.command {
        completion::run(args, Cli::command());
        return Ok(ExitCode::SUCCESS);
    }
    stop::with_parent()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::Process { what: "runtime".to_owned(), reason: error.to_string() })?;
    let global = contexts::applied(cli.global)?;
    let done = runtime.block_on(async {
        match cli.command {
            Command::Controller(args) => command::controller::run(args).await,
            Command::Gateway(args) => command::gateway::run(args, &global).await,
            Command::Node(args) => command::node::run(args, &global).await,
            Command::Demo(args) => return demo::run(args, &global).await,
            Command::Apply(args) => command::apply::run(args, &global).await,
            Command::Diff(args) => return command::diff::run(args, &global).await,
            Command::Doctor(args) => return command::doctor::run(args, &global).await,
            Command::Edit(command) => command::edit::run(command, &global).await,
            Command::Group(command) => command::group::run(command, &global).await,
            Command::Bind(command) => command::bind::run(command, &global).await,
            Command::Resolve(args) => command::resolve::run(args, &global).await,
            Command::Usage(args) => command::usage::run(args, &global).await,
            Command::Client(command) => command::client::run(command, &global).await,
            Command::Token(command) => command::token::run(command, &global).await,
            Command::Lease(command) => command::lease::run(command, &global).await,
            Command::CostTable(command) => command::cost_table::run(command, &global).await,
            Command::Sql(args) => command::sql::run(args, &global).await,
            Command::Statement(command) => command::statement::run(command, &global).await,
            Command::Watch(command) => command::watch::run(command, &global).await,
            Command::Runaway(command) => command::runaway::run(command, &global).await,
            Command::Webhook(command) => command::webhook::run(command, &global).await,
            Command::Audit(args) => command::audit::run(args, &global).await,
            Command::Store(command) => command::store::run(command, &global).await,
            Command::Status(args) => command::status::run(args, &global).await,
            Command::Top(args) => command::top::run(args, &global).await,
            Command::Lab(args) => command::lab::run(args, &global).await,
            Command::Cert(command) => command::cert::run(command, &global),
            Command::Cluster(command) => command::cluster::run(command, &global).await,
            Command::Context(command) => command::context::run(command, &global),
            Command::Completions(args) => command::completions::run(&args),
            // Done before, without a runtime.
            Command::Complete(_) => Ok(()),
        }
        .map(|()| ExitCode::SUCCESS)
    });
    // Threads that still read the standard input must not hold the process.
    runtime.shutdown_background();
    done
}
