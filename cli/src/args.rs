//! The command line: global options and commands.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::admin::Admin;
use crate::command::apply::ApplyArgs;
use crate::command::audit::AuditArgs;
use crate::command::bind::BindCommand;
use crate::command::client::ClientCommand;
use crate::command::completions::CompletionsArgs;
use crate::command::controller::ControllerArgs;
use crate::command::cost_table::CostTableCommand;
use crate::command::diff::DiffArgs;
use crate::command::doctor::DoctorArgs;
use crate::command::edit::EditCommand;
use crate::command::gateway::GatewayArgs;
use crate::command::group::GroupCommand;
use crate::command::lease::LeaseCommand;
use crate::command::node::NodeArgs;
use crate::command::resolve::ResolveArgs;
use crate::command::runaway::RunawayCommand;
use crate::command::sql::SqlArgs;
use crate::command::statement::StatementCommand;
use crate::command::store::StoreCommand;
use crate::command::top::TopArgs;
use crate::command::usage::UsageArgs;
use crate::command::watch::WatchCommand;
use crate::completion::CompleteArgs;
use crate::demo::DemoArgs;
use crate::error::CliError;
use crate::output::Output;

/// Resource-unit admission control: caps what tenants and users spend, across all nodes, and accounts for it.
///
/// A request unit (RU) is the common measure of CPU, IO and network. Groups have a rate in RU/s; users are bound to
/// groups; nodes lease their share of the rate from one controller and admit operations against it.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    arg_required_else_help = true,
    after_help = "First steps:\n  \
        tidegate demo                                        see it work, nothing to set up\n  \
        tidegate controller --data ./tidegate-data           start a controller\n  \
        tidegate group create shop --rate '2000 RU/s'        define a group\n  \
        tidegate bind add shop --tenant storefront           say who is charged to it\n  \
        tidegate node --sql work.sql --tenant storefront     run SQL under governance\n  \
        tidegate top                                         watch\n\n\
        Exit status: 0 done, 1 failed or refused, 2 called wrongly."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Reads the command line, or ends the process with help or with what is wrong.
pub(crate) fn parse() -> Cli {
    read(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    if let Some(name) = empty_argument(&command, &matches) {
        let message =
            format!("{name} is empty: name a value, or leave it out (is a shell variable not set?)");
        return Err(command.error(ErrorKind::InvalidValue, message));
    }
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The first argument that was given and is empty, as an unset variable of a shell is. It says nothing, and must not
/// lift a limit, or stand for all groups or tenants. Free text may be empty.
fn empty_argument(command: &clap::Command, matches: &ArgMatches) -> Option<String> {
    let empty = |argument: &&clap::Arg| {
        let id = argument.get_id().as_str();
        let given = matches.value_source(id) == Some(ValueSource::CommandLine);
        let blank = |value: &std::ffi::OsStr| value.to_str().is_some_and(|text| text.trim().is_empty());
        let values = matches.try_get_raw(id).ok().flatten();
        !FREE_TEXT.contains(&id) && given && values.into_iter().flatten().any(blank)
    };
    let here = command.get_arguments().find(empty).map(|argument| match argument.get_long() {
        Some(long) => format!("--{long}"),
        None => format!("<{}>", argument.get_id().as_str().to_uppercase()),
    });
    here.or_else(|| {
        let (name, below) = matches.subcommand()?;
        empty_argument(command.find_subcommand(name)?, below)
    })
}

/// Arguments that say something when they are empty: free text, and the words of a line that is being written.
const FREE_TEXT: [&str; 2] = ["comment", "words"];

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The controller's gRPC address.
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_ENDPOINT",
        default_value = "http://127.0.0.1:7420",
        value_name = "URL"
    )]
    pub(crate) endpoint: String,
    /// Tables for people or JSON for programs.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "SHAPE")]
    pub(crate) output: Output,
    /// Who is named in the audit log.
    #[arg(
        long,
        global = true,
        env = "USER",
        default_value = "unknown",
        value_name = "NAME",
        hide_env_values = true
    )]
    pub(crate) actor: String,
}

impl Global {
    /// A connection to the controller's admin service.
    pub(crate) async fn admin(&self) -> Result<Admin, CliError> {
        Admin::connect(&self.endpoint, &self.actor).await
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a controller.
    Controller(ControllerArgs),
    /// Run a gateway that meters and throttles every statement on its way to PostgreSQL or MySQL.
    Gateway(GatewayArgs),
    /// Run SQL statements on an embedded database, governed by a controller.
    Node(NodeArgs),
    /// Show it all at work: a controller, three nodes with real SQL workloads, four tenants, and a report.
    Demo(DemoArgs),
    /// Make what files define true, all of it in one change.
    Apply(ApplyArgs),
    /// Show what `apply` would change.
    Diff(DiffArgs),
    /// Edit a definition in an editor.
    #[command(subcommand)]
    Edit(EditCommand),
    /// Create, alter, delete and show resource groups.
    #[command(subcommand)]
    Group(GroupCommand),
    /// Say who is charged to which group.
    #[command(subcommand)]
    Bind(BindCommand),
    /// Tell which group pays for a tenant or a user.
    Resolve(ResolveArgs),
    /// Show what was consumed.
    Usage(UsageArgs),
    /// Show the nodes.
    #[command(subcommand)]
    Client(ClientCommand),
    /// Show what nodes hold.
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Show and replace the prices of resources.
    #[command(subcommand)]
    CostTable(CostTableCommand),
    /// Send TiDB's resource control statements, and SELECTs from tidegate's tables.
    Sql(SqlArgs),
    /// Show what statements cost.
    #[command(subcommand)]
    Statement(StatementCommand),
    /// Say which statements are convicted before they run.
    #[command(subcommand)]
    Watch(WatchCommand),
    /// Show which statements were convicted.
    #[command(subcommand)]
    Runaway(RunawayCommand),
    /// Show who changed what.
    Audit(AuditArgs),
    /// Back up, restore and check the store of a controller.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Show how the controller is.
    Status,
    /// Watch all groups.
    Top(TopArgs),
    /// Look for what this machine lacks, and say what to do.
    Doctor(DoctorArgs),
    /// Print a completion script.
    Completions(CompletionsArgs),
    /// Tell the script of a shell what may follow.
    #[command(hide = true)]
    Complete(CompleteArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_that_is_empty_is_refused_by_name() {
        for (line, name) in [
            ("group create g --rate ", "--rate"),
            ("group alter g --parent ", "--parent"),
            ("group alter g --burst ", "--burst"),
            ("group alter g --fallback-total ", "--fallback-total"),
            ("group alter g --fallback ", "--fallback"),
            ("group alter g --max-debt ", "--max-debt"),
            ("group show ", "<NAME>"),
            ("bind add g --user u --tenant ", "--tenant"),
            ("bind list ", "<GROUP>"),
            ("statement reset --group ", "--group"),
            ("controller --capacity ", "--capacity"),
            ("node --sql x --user ", "--user"),
            ("status --endpoint ", "--endpoint"),
        ] {
            for value in ["", "\t"] {
                let line = line.split(' ').map(|word| if word.is_empty() { value } else { word });
                let arguments = ["tidegate"].into_iter().chain(line).map(OsString::from);
                let error = read(arguments).unwrap_err();
                let said = error.to_string();
                assert!(said.contains(&format!("{name} is empty")) && error.exit_code() == 2, "{said}");
            }
        }
        let free = ["tidegate", "group", "alter", "g", "--comment", ""].map(OsString::from);
        assert!(read(free).is_ok());
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
