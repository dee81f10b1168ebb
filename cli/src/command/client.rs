//! `tidegate client`: the nodes that hold leases.

use clap::Subcommand;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::error::CliError;
use crate::output::note;
use crate::table::Table;
use crate::view::{ForgottenView, NodeView};

/// What to do with clients.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// List nodes, connected or not.
    List,
    /// Forget nodes that have ended, with all their starts.
    ///
    /// What it was charged stays counted; should it report once more, that is refused, so that nothing counts twice. Its
    /// next start is let in whatever its number, also after one whose clock was ahead. Refused while the node is
    /// connected, was heard within the last minute, or has a lease. Nodes that are silent for seven days are forgotten
    /// without this.
    ///
    /// Several are forgotten one by one, in order; the first that is refused ends it, and what was done is told.
    #[command(
        after_help = "Examples:\n  tidegate client forget node-7\n  tidegate client forget node-7 node-8"
    )]
    Forget {
        /// The nodes, as `tidegate client list` names them.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// Runs the command.
pub(crate) async fn run(command: ClientCommand, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    if let ClientCommand::Forget { names } = command {
        return forget(&admin, names, global).await;
    }
    let request = v1::ListClientsRequest {};
    let reply = admin.calls().list_clients(request).await.map_err(admin.failed())?.into_inner();
    if reply.truncated {
        note("warning: there are more nodes than fit an answer");
    }
    let views: Vec<NodeView> = reply.clients.into_iter().map(Into::into).collect();
    global.output.show(&views, || {
        let mut table = Table::new(&[
            "CLIENT",
            ">INCARNATION",
            "AGENT",
            "CONNECTED",
            ">SILENT",
            ">LEASES",
            ">MESSAGES",
            ">CPU (ms)",
            ">CPU METERED",
            ">MEMORY (MiB)",
        ]);
        for view in &views {
            table.row([
                view.client.clone(),
                view.incarnation.to_string(),
                view.agent.clone(),
                if view.connected { "yes" } else { "no" }.to_owned(),
                Span::millis(view.silent_us / 1_000).to_string(),
                view.leases.to_string(),
                view.messages.to_string(),
                (view.process_cpu_ns / 1_000_000).to_string(),
                view.attributed(),
                (view.resident_bytes / (1_024 * 1_024)).to_string(),
            ]);
        }
        table.text()
    })
}

async fn forget(admin: &Admin, names: Vec<String>, global: &Global) -> Result<(), CliError> {
    let single = names.len() == 1;
    let mut views = Vec::new();
    let mut result = Ok(());
    for client in names {
        let request = v1::ForgetClientRequest { client: client.clone() };
        match admin.calls().forget_client(request).await {
            Ok(reply) => {
                views.push(ForgottenView { client, incarnations: reply.into_inner().incarnations });
            }
            Err(status) => {
                result = Err(admin.failed()(status));
                break;
            }
        }
    }
    let line = |view: &ForgottenView| {
        format!("client {} forgotten, {} starts of it\n", view.client, view.incarnations)
    };
    match views.as_slice() {
        [] => {}
        [view] if single => global.output.show(view, || line(view))?,
        views => global.output.show(&views, || views.iter().map(line).collect())?,
    }
    result
}
