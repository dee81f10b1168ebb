//! The command line: global options and commands.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches as _, Parser, Subcommand};
use tidegate_client::Token;
use tidegate_tls::ClientFiles;

use crate::admin::Admin;
use crate::call;
use crate::command::apply::ApplyArgs;
use crate::command::audit::AuditArgs;
use crate::command::bind::BindCommand;
use crate::command::cert::CertCommand;
use crate::command::client::ClientCommand;
use crate::command::cluster::ClusterCommand;
use crate::command::completions::CompletionsArgs;
use crate::command::context::ContextCommand;
use crate::command::controller::ControllerArgs;
use crate::command::cost_table::CostTableCommand;
use crate::command::diff::DiffArgs;
use crate::command::doctor::DoctorArgs;
use crate::command::edit::EditCommand;
use crate::command::gateway::GatewayArgs;
use crate::command::group::GroupCommand;
use crate::command::lab::LabArgs;
use crate::command::lease::LeaseCommand;
use crate::command::node::NodeArgs;
use crate::command::resolve::ResolveArgs;
use crate::command::runaway::RunawayCommand;
use crate::command::sql::SqlArgs;
use crate::command::statement::StatementCommand;
use crate::command::status::StatusArgs;
use crate::command::store::StoreCommand;
use crate::command::token::TokenCommand;
use crate::command::top::TopArgs;
use crate::command::usage::UsageArgs;
use crate::command::watch::WatchCommand;
use crate::command::webhook::WebhookCommand;
use crate::completion::CompleteArgs;
use crate::demo::DemoArgs;
use crate::error::CliError;
use crate::output::Output;
use crate::screen::Color;
use crate::token;

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
    read(std::env::args_os().collect()).unwrap_or_else(|error| error.exit())
}

fn read(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = call::command(&arguments);
    let mut matches = command.try_get_matches_from_mut(arguments).map_err(call::explained)?;
    call::check(&command, &matches)?;
    let (takes_context, endpoint_given) = (call::takes_context(&matches), call::has_endpoint(&matches));
    let mut cli = Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
    (cli.global.takes_context, cli.global.endpoint_given) = (takes_context, endpoint_given);
    Ok(cli)
}

/// Heading of the options of every command, behind a command's own.
const EVERYWHERE: &str = "Options of every command";

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The controller's gRPC address; those of a cluster's controllers, separated by commas: the one that leads is
    /// found.
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_ENDPOINT",
        default_value = "http://127.0.0.1:7420",
        value_name = "URL",
        help_heading = EVERYWHERE
    )]
    pub(crate) endpoint: String,
    /// Whether that was given, by option or environment.
    #[arg(skip)]
    pub(crate) endpoint_given: bool,
    /// Context to use in place of the current one.
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_CONTEXT",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = EVERYWHERE
    )]
    pub(crate) context: Option<String>,
    /// Whether the command goes where a context says.
    #[arg(skip)]
    pub(crate) takes_context: bool,
    /// Authorities that sign the controller's certificate, in PEM, for an endpoint that begins with https://; those the
    /// machine trusts when left out.
    #[arg(long, global = true, env = "TIDEGATE_CA", value_name = "FILE", help_heading = EVERYWHERE)]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate to show the controller, in PEM.
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_CERT",
        requires = "key",
        value_name = "FILE",
        help_heading = EVERYWHERE
    )]
    pub(crate) cert: Option<PathBuf>,
    /// Its key, in PEM.
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_KEY",
        requires = "cert",
        value_name = "FILE",
        help_heading = EVERYWHERE
    )]
    pub(crate) key: Option<PathBuf>,
    /// File with a token to show the controller, for its owner only; TIDEGATE_TOKEN holds one itself.
    #[arg(id = "token-file",
        long, global = true, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE", help_heading = EVERYWHERE)]
    pub(crate) token_file: Option<PathBuf>,
    /// Shape of the output: tables for people, or documents and names for programs.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "SHAPE",
        help_heading = EVERYWHERE
    )]
    pub(crate) output: Output,
    /// When to use colour; auto respects NO_COLOR.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        help_heading = EVERYWHERE
    )]
    pub(crate) color: Color,
    /// What the audit log records beside the name that is proven; the name itself where none is.
    #[arg(
        long,
        global = true,
        env = "USER",
        default_value = "unknown",
        value_name = "NAME",
        hide_env_values = true,
        help_heading = EVERYWHERE
    )]
    pub(crate) actor: String,
}

impl Global {
    /// A connection to the controller's admin service.
    pub(crate) async fn admin(&self) -> Result<Admin, CliError> {
        let token = token::bearer(self.token_file.as_deref())?;
        Admin::connect(&self.endpoint, &self.actor, &self.tls(), token).await
    }

    /// What to show a controller in place of a certificate.
    pub(crate) fn token(&self) -> Option<Token> {
        token::given(self.token_file.as_deref())
    }

    /// Whom to trust as a controller, and what to show it.
    pub(crate) fn tls(&self) -> ClientFiles {
        ClientFiles { authorities: self.ca.clone(), identity: self.cert.clone().zip(self.key.clone()) }
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
    /// Run a controller and three nodes with SQL workloads of five tenants, and report on them.
    Demo(DemoArgs),
    /// Apply the definitions in files, all of them in one change.
    Apply(ApplyArgs),
    /// Show what `apply` would change.
    Diff(DiffArgs),
    /// Edit a definition in an editor.
    #[command(subcommand)]
    Edit(EditCommand),
    /// Create, alter, delete and show resource groups.
    #[command(subcommand)]
    Group(GroupCommand),
    /// Bind tenants and users to groups.
    #[command(subcommand)]
    Bind(BindCommand),
    /// Show which group pays for a tenant or a user.
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
    /// Manage the watch list: statements that are convicted before they run.
    #[command(subcommand)]
    Watch(WatchCommand),
    /// Show which statements were convicted.
    #[command(subcommand)]
    Runaway(RunawayCommand),
    /// Try the receivers of alarms.
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Show who changed what.
    Audit(AuditArgs),
    /// Make a private authority and certificates, show and renew them.
    #[command(subcommand)]
    Cert(CertCommand),
    /// Make, list and revoke tokens, which prove who calls.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Note controllers under names, and choose one.
    #[command(subcommand)]
    Context(ContextCommand),
    /// Back up, restore and check the store of a controller.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Show the controllers of a cluster.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show the state of the controller.
    Status(StatusArgs),
    /// Watch all groups.
    Top(TopArgs),
    /// Check what this machine lacks, and say what to do.
    Doctor(DoctorArgs),
    /// Show what limiters do, and how many nodes can share one.
    Lab(LabArgs),
    /// Print a completion script.
    Completions(CompletionsArgs),
    /// List what may follow, for the completion script of a shell.
    #[command(hide = true)]
    Complete(CompleteArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(line: &str) -> String {
        let arguments = ["tidegate"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
        let error = read(arguments).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        error.to_string()
    }

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
                let said = wrong(&format!("{line}{value}"));
                assert!(said.contains(&format!("{name} is empty")), "{said}");
            }
        }
        let free = ["tidegate", "group", "alter", "g", "--comment", ""].map(OsString::from);
        assert!(read(free.into()).is_ok());
    }

    #[test]
    fn options_that_a_command_would_ignore_are_refused() {
        for (line, name) in [
            ("controller --endpoint http://127.0.0.1:1", "--endpoint"),
            ("--endpoint http://127.0.0.1:1 controller", "--endpoint"),
            ("controller -o json", "--output"),
            ("gateway --actor ann", "--actor"),
            ("demo --endpoint http://127.0.0.1:1", "--endpoint"),
            ("store check x --endpoint http://127.0.0.1:1", "--endpoint"),
            ("completions bash --output yaml", "--output"),
            ("lab policies --endpoint http://127.0.0.1:1", "--endpoint"),
            ("node --sql x --context prod", "--context"),
            ("context use prod --ca ca.pem", "--ca"),
            ("store rekey x -o json", "--output"),
            ("cluster restored --data x --context prod", "--context"),
        ] {
            let said = wrong(line);
            assert!(said.contains(&format!("{name} has no meaning for")), "{said}");
        }
        assert!(wrong("bind add g --user u -o name").contains("prints no names"));
        let line = ["tidegate", "controller", "--help"].map(OsString::from);
        let help = read(line.into()).unwrap_err().to_string();
        assert!(!help.contains("--endpoint") && help.contains("--color"), "{help}");
    }

    #[test]
    fn each_command_that_lists_things_with_names_prints_them() {
        for line in [
            "cluster members",
            "group proposals",
            "group proposal shop",
            "group propose shop --rate 5",
            "group apply-proposal shop",
        ] {
            let words = ["tidegate"].into_iter().chain(line.split(' ')).chain(["-o", "name"]);
            assert!(read(words.map(OsString::from).collect()).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_number_below_zero_is_a_value_that_is_wrong_and_not_an_option() {
        assert!(wrong("audit --limit -1").contains("invalid value '-1' for '--limit <N>'"));
        assert!(wrong("group create g --rate 1 --weight -1").contains("invalid value '-1' for '--weight"));
        let said = wrong("group create g --rate 1 --ttl -5s");
        assert!(said.contains("'--option=-5s'") && !said.contains("-- -5"), "{said}");
        let said = wrong("group create g --rate 1 -x");
        assert!(said.contains("unexpected argument '-x'"), "{said}");
    }

    #[test]
    fn a_commands_own_options_stand_before_those_of_every_command() {
        let line = ["tidegate", "group", "create", "--help"].map(OsString::from);
        let help = read(line.into()).unwrap_err().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
        assert!(at("--query-limit") < at("--if-not-exists"));
        assert!(at("--if-not-exists") < at(EVERYWHERE) && at(EVERYWHERE) < at("--endpoint"));
        assert!(at("--endpoint") < at("--color") && at(EVERYWHERE) < at("--actor"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        call::command(&[]).debug_assert();
    }
}
