//! `tidegate client`: the nodes that hold leases.

use clap::Subcommand;
use tidegate_core::units::Span;
use tidegate_proto::v1;

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
    /// Forget a node that has ended, with all its starts.
    ///
    /// What it was charged stays counted; should it report once more, that is refused, so that nothing counts twice. Its
    /// next start is let in whatever its number, also after one whose clock was ahead. Refused while the node is
    /// connected, was heard within the last minute, or has a lease. Nodes that are silent for seven days are forgotten
    /// without this.
    #[command(after_help = "Example:\n  tidegate client forget node-7")]
    Forget {
        /// The node, as `tidegate client list` names it.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Runs the command.
pub(crate) async fn run(command: ClientCommand, global: &Global) -> Result<(), CliError> {
    if let ClientCommand::Forget { name } = command {
        return forget(name, global).await;
    }
    let admin = global.admin().await?;
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

async fn forget(name: String, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let request = v1::ForgetClientRequest { client: name.clone() };
    let reply = admin.calls().forget_client(request).await.map_err(admin.failed())?.into_inner();
    let view = ForgottenView { client: name, incarnations: reply.incarnations };
    global
        .output
        .show(&view, || format!("client {} forgotten, {} starts of it", view.client, view.incarnations))
}
