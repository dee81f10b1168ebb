//! `tidegate cluster`: the controllers of a cluster, each asked by itself.

use clap::Subcommand;
use serde::Serialize;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::endpoints;
use crate::error::CliError;
use crate::table::{Column, Table};
use crate::token;

/// What to do with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show which controller leads, which stand by, and which cannot be reached; fails unless one leads.
    #[command(after_help = "Example:\n  \
        tidegate cluster status --endpoint http://c1:7420,http://c2:7420,http://c3:7420")]
    Status,
}

/// A controller as it is printed.
#[derive(Serialize)]
struct ControllerView {
    endpoint: String,
    /// `leader`, `standby` or `unreachable`.
    role: &'static str,
    /// 0 unless it leads.
    epoch: u64,
    /// What it says, or why it says nothing.
    says: String,
}

/// Runs the command.
pub(crate) async fn run(command: ClusterCommand, global: &Global) -> Result<(), CliError> {
    let ClusterCommand::Status = command;
    let mut views = Vec::new();
    for endpoint in endpoints::each(&global.endpoint) {
        views.push(look(endpoint, global).await?);
    }
    let leaders = || views.iter().filter(|view| view.role == LEADER).map(|view| view.endpoint.clone());
    global.output.list(
        &views,
        || leaders().collect(),
        || {
            let columns = [
                Column::text("CONTROLLER"),
                Column::word("ROLE"),
                Column::number("EPOCH"),
                Column::text("SAYS"),
            ];
            let mut table = Table::new(columns);
            for view in &views {
                let epoch = if view.epoch == 0 { "-".to_owned() } else { view.epoch.to_string() };
                table.row([view.endpoint.clone(), view.role.to_owned(), epoch, view.says.clone()]);
            }
            table
        },
    )?;
    match leaders().count() {
        1 => Ok(()),
        0 => Err(CliError::Unavailable("no controller leads; see what each of them says".to_owned())),
        // Between two answers another one may take over; then the next look shows one.
        several => Err(CliError::Refused(format!(
            "{several} controllers say that they lead; look again, and if they still do, they are of different clusters"
        ))),
    }
}

const LEADER: &str = "leader";

async fn look(endpoint: &str, global: &Global) -> Result<ControllerView, CliError> {
    let token = token::bearer(global.token_file.as_deref())?;
    let asked = async {
        let admin = Admin::connect(endpoint, &global.actor, &global.tls(), token).await?;
        admin.calls().status(v1::StatusRequest {}).await.map_err(admin.failed())
    };
    let view = |role, epoch, says| ControllerView { endpoint: endpoint.to_owned(), role, epoch, says };
    match asked.await {
        Ok(status) => {
            let status = status.into_inner();
            let says =
                if status.warnings.is_empty() { "serving".to_owned() } else { status.warnings.join("; ") };
            Ok(view(LEADER, status.epoch, says))
        }
        Err(CliError::Unavailable(says)) => Ok(view("standby", 0, says)),
        Err(error @ CliError::Unreachable { .. }) => Ok(view("unreachable", 0, error.to_string())),
        Err(error) => Err(error),
    }
}
