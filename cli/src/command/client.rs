//! `tidegate client`: the nodes that hold leases.

use clap::Subcommand;
use serde::Serialize;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::table::{Cell, Column, Table, Tone};

/// What to do with clients.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// List nodes, connected or not.
    List {
        #[command(flatten)]
        follow: Follow,
    },
    /// Forget nodes that have ended, with all their starts. A node's charges stay counted; a late report of it is
    /// refused, so that nothing counts twice. Its next start is let in whatever its number, also after a start whose
    /// clock was ahead. Refused while a node is connected, was heard within the last minute, or has a lease; of several
    /// nodes, all are forgotten or none. Nodes that are silent for seven days are forgotten without this command.
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
    match command {
        ClientCommand::List { follow } => follow::show(global, follow, list).await,
        ClientCommand::Forget { names } => forget(names, global).await,
    }
}

/// A node that was forgotten.
#[derive(Clone, Debug, Serialize)]
struct Forgotten {
    client: String,
    /// How many starts of it were known.
    incarnations: u32,
}

/// Share of the process's CPU that some group was charged for, in percent; empty when it is not known.
fn attributed(node: &v1::NodeStats) -> String {
    let share = node.metered_cpu_ns.saturating_mul(100).checked_div(node.process_cpu_ns);
    share.map(|percent| format!("{}%", percent.min(100))).unwrap_or_default()
}

/// Nodes, and whether there are more than an answer holds.
#[derive(Serialize)]
#[serde(transparent)]
struct Nodes {
    nodes: Vec<v1::ClientInfo>,
    #[serde(skip)]
    truncated: bool,
}

async fn list(admin: &Admin) -> Result<Nodes, CliError> {
    let request = v1::ListClientsRequest {};
    let reply = admin.calls().list_clients(request).await.map_err(admin.failed())?.into_inner();
    Ok(Nodes { nodes: reply.clients, truncated: reply.truncated })
}

impl Shown for Nodes {
    fn page(&self) -> Page {
        let mut table = Table::new([
            Column::name("CLIENT"),
            Column::number("INCARNATION").wide(),
            Column::text("AGENT").leaves(2),
            Column::word("CONNECTED"),
            Column::number("SILENT").leaves(1),
            Column::number("LEASES"),
            Column::number("MESSAGES").leaves(4),
            Column::number("CPU (ms)").leaves(3),
            Column::number("CPU METERED").leaves(3),
            Column::number("MEMORY (MiB)").leaves(3),
        ]);
        for view in &self.nodes {
            let node = view.node.unwrap_or_default();
            let connected = if view.connected { "yes" } else { "no" };
            let tone = if view.connected { Tone::Plain } else { Tone::Faint };
            table.cells([
                Cell::new(&view.client, tone),
                view.incarnation.to_string().into(),
                view.agent.clone().into(),
                Cell::new(connected, tone),
                Span::millis(view.silent_us / 1_000).to_string().into(),
                view.leases.to_string().into(),
                view.messages.to_string().into(),
                (node.process_cpu_ns / 1_000_000).to_string().into(),
                attributed(&node).into(),
                (node.resident_bytes / (1_024 * 1_024)).to_string().into(),
            ]);
        }
        table.into()
    }

    /// Each once, whatever its starts.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.nodes.iter().map(|node| node.client.clone()).collect();
        names.dedup();
        names
    }

    fn notes(&self) -> Vec<String> {
        let note = "warning: there are more nodes than fit an answer".to_owned();
        self.truncated.then_some(note).into_iter().collect()
    }
}

async fn forget(names: Vec<String>, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let request = match names.as_slice() {
        // As controllers of before know it.
        [name] => v1::ForgetClientRequest { client: name.clone(), clients: Vec::new() },
        _ => v1::ForgetClientRequest { client: String::new(), clients: names.clone() },
    };
    let reply = admin.calls().forget_client(request).await.map_err(admin.failed())?.into_inner();
    let views = forgotten(names, reply);
    let line =
        |view: &Forgotten| format!("client {} forgotten, {} starts of it\n", view.client, view.incarnations);
    match views.as_slice() {
        [view] => global.output.show(view, || line(view)),
        views => global.output.show(&views, || views.iter().map(line).collect::<String>()),
    }
}

/// Each node with its own count.
fn forgotten(names: Vec<String>, reply: v1::ForgetClientReply) -> Vec<Forgotten> {
    let counts = if names.len() == 1 { vec![reply.incarnations] } else { reply.of_each };
    let of_each = names.into_iter().zip(counts);
    of_each.map(|(client, incarnations)| Forgotten { client, incarnations }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_that_is_forgotten_has_its_own_count() {
        let said = |names: &[&str], reply| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let views = forgotten(names, reply).into_iter();
            views.map(|view| format!("{}={}", view.client, view.incarnations)).collect::<Vec<_>>()
        };
        let several = v1::ForgetClientReply { incarnations: 5, of_each: vec![2, 3] };
        assert_eq!(said(&["b", "a"], several), ["b=2", "a=3"]);
        // Controllers of before count no others.
        assert_eq!(said(&["b"], v1::ForgetClientReply { incarnations: 4, of_each: Vec::new() }), ["b=4"]);
    }

    #[test]
    fn each_figure_of_a_node_is_shown_as_what_it_is() {
        let node = v1::ClientInfo {
            client: "till-1".into(),
            incarnation: 2,
            agent: "tidegate/0.1".into(),
            connected: true,
            silent_us: 3_000_999,
            leases: 4,
            messages: 5,
            node: Some(v1::NodeStats {
                process_cpu_ns: 40_000_000,
                metered_cpu_ns: 10_000_000,
                resident_bytes: 6 << 20,
            }),
        };
        let gone = v1::ClientInfo { connected: false, node: None, ..node.clone() };
        let nodes = Nodes { nodes: vec![node, gone], truncated: false };
        let expected = [
            "CLIENT INCARNATION AGENT CONNECTED SILENT LEASES MESSAGES CPU (ms) CPU METERED MEMORY (MiB)",
            "till-1 2 tidegate/0.1 yes 3s 4 5 40 25% 6",
            "till-1 2 tidegate/0.1 no 3s 4 5 0 - 0",
        ];
        assert_eq!(nodes.page().words(), expected);
        assert_eq!((nodes.names(), nodes.notes().len()), (vec!["till-1".to_owned()], 0));
        let notes = Nodes { truncated: true, ..nodes }.notes();
        assert_eq!(notes, ["warning: there are more nodes than fit an answer"]);
    }

    #[test]
    fn the_share_of_the_cpu_that_is_metered_is_shown_where_it_is_known() {
        for (process_cpu_ns, metered_cpu_ns, shown) in
            [(0, 5, ""), (400, 100, "25%"), (400, 0, "0%"), (100, 101, "100%")]
        {
            assert_eq!(
                attributed(&v1::NodeStats { process_cpu_ns, metered_cpu_ns, ..v1::NodeStats::default() }),
                shown
            );
        }
    }
}
