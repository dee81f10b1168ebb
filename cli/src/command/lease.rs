//! `tidegate lease`: what nodes hold in which group.

use clap::Subcommand;
use serde::Serialize;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::args::Global;
use crate::error::CliError;
use crate::output::note;
use crate::table::Table;
use crate::view::{GroupStateView, LeaseView};

/// What to do with leases.
#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// List leases, and the pool of each group.
    List {
        /// Only this group.
        #[arg(default_value = "", hide_default_value = true)]
        group: String,
    },
}

#[derive(Serialize)]
struct Leases {
    leases: Vec<LeaseView>,
    groups: Vec<GroupStateView>,
}

/// Runs the command.
pub(crate) async fn run(command: LeaseCommand, global: &Global) -> Result<(), CliError> {
    let LeaseCommand::List { group } = command;
    let admin = global.admin().await?;
    let request = v1::ListLeasesRequest { group };
    let reply = admin.calls().list_leases(request).await.map_err(admin.failed())?.into_inner();
    if reply.truncated {
        note("warning: there are more leases than fit an answer; ask for one group");
    }
    let view = Leases {
        leases: reply.leases.into_iter().map(Into::into).collect(),
        groups: reply.groups.into_iter().map(Into::into).collect(),
    };
    global.output.show(&view, || format!("{}\n{}", leases(&view.leases), groups(&view.groups)))
}

fn leases(leases: &[LeaseView]) -> String {
    let mut table = Table::new(&[
        "GROUP",
        "CLIENT",
        ">RATE (RU/s)",
        ">COMMITTED (RU/s)",
        ">CAP (RU)",
        ">LUMP (RU)",
        ">DEMAND (RU/s)",
        ">BACKLOG (RU)",
        ">DEBT (RU)",
        ">WAITING",
        ">EXPIRES IN",
    ]);
    for lease in leases {
        table.row([
            lease.group.clone(),
            lease.client.clone(),
            lease.rate.clone(),
            lease.committed.clone(),
            lease.cap.clone(),
            lease.lump.clone(),
            lease.demand.clone(),
            lease.backlog.clone(),
            lease.debt.clone(),
            lease.waiting.to_string(),
            Span::millis(lease.expires_in_us / 1_000).to_string(),
        ]);
    }
    table.text()
}

fn groups(groups: &[GroupStateView]) -> String {
    let mut table =
        Table::new(&["GROUP", ">LEASED (RU/s)", ">POOL (RU)", ">DEMAND (RU/s)", ">LEASES", ">BOUND (RU/s)"]);
    for group in groups {
        table.row([
            group.group.clone(),
            group.committed.clone(),
            group.pool.clone(),
            group.demand.clone(),
            group.leases.to_string(),
            group.bound_rate.clone(),
        ]);
    }
    table.text()
}
