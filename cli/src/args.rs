//! The command line: global options and commands.

use clap::{Args, Parser, Subcommand};

use crate::admin::Admin;
use crate::command::audit::AuditArgs;
use crate::command::bind::BindCommand;
use crate::command::client::ClientCommand;
use crate::command::completions::CompletionsArgs;
use crate::command::controller::ControllerArgs;
use crate::command::cost_table::CostTableCommand;
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
    /// Print a completion script.
    Completions(CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
