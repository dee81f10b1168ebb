//! `tidegate client`: the nodes that hold leases.

use clap::Subcommand;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::args::Global;
use crate::error::CliError;
use crate::output::note;
use crate::table::Table;
use crate::view::NodeView;

/// What to do with clients.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// List nodes, connected or not.
    List,
}

/// Runs the command.
pub(crate) async fn run(command: ClientCommand, global: &Global) -> Result<(), CliError> {
    let ClientCommand::List = command;
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
