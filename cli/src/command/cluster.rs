//! `tidegate cluster`: the controllers of a cluster, each asked by itself.

use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::clock::monotonic_us;
use crate::endpoints;
use crate::error::CliError;
use crate::table::{Column, Table};
use crate::token;

/// What to do with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show which controller leads, which stand by, and which cannot be reached; fails unless one leads.
    #[command(after_help = "Example:\n  \
        tidegate cluster status --endpoint http://c1:7420,http://c2:7420,http://c3:7420\n  \
        tidegate cluster status --wait 30      (after a start or a failure: until one leads)")]
    Status {
        /// Wait until one leads, for at most so many seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600))]
        wait: u64,
    },
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
    /// It leads, and has no successor.
    #[serde(skip)]
    takes_calls: bool,
}

/// Runs the command.
pub(crate) async fn run(command: ClusterCommand, global: &Global) -> Result<(), CliError> {
    let ClusterCommand::Status { wait } = command;
    let until_us = monotonic_us().saturating_add(wait.saturating_mul(1_000_000));
    let mut views = look_at_all(global).await?;
    let is_led = |views: &[ControllerView]| {
        let mut leaders = views.iter().filter(|view| view.role == LEADER);
        leaders.next().is_some_and(|leader| leader.takes_calls) && leaders.next().is_none()
    };
    while !is_led(&views) && monotonic_us() < until_us {
        tokio::time::sleep(LOOK).await;
        views = look_at_all(global).await?;
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
/// Between two looks at all of them: a takeover takes ten times as long.
const LOOK: Duration = Duration::from_millis(100);

async fn look_at_all(global: &Global) -> Result<Vec<ControllerView>, CliError> {
    let mut views = Vec::new();
    for endpoint in endpoints::each(&global.endpoint) {
        views.push(look(endpoint, global).await?);
    }
    Ok(views)
}

async fn look(endpoint: &str, global: &Global) -> Result<ControllerView, CliError> {
    let token = token::bearer(global.token_file.as_deref())?;
    let asked = async {
        let admin = Admin::connect(endpoint, &global.actor, &global.tls(), token).await?;
        let status = admin.calls().status(v1::StatusRequest {}).await.map_err(admin.failed())?;
        Ok((status.into_inner(), admin.leads().await))
    };
    let view = |role, epoch, says, takes_calls| ControllerView {
        endpoint: endpoint.to_owned(),
        role,
        epoch,
        says,
        takes_calls,
    };
    match asked.await {
        Ok((status, takes_calls)) => {
            let says =
                if status.warnings.is_empty() { "serving".to_owned() } else { status.warnings.join("; ") };
            Ok(view(LEADER, status.epoch, says, takes_calls))
        }
        Err(CliError::Unavailable(says)) => Ok(view("standby", 0, says, false)),
        Err(error @ CliError::Unreachable { .. }) => Ok(view("unreachable", 0, error.to_string(), false)),
        Err(error) => Err(error),
    }
}
