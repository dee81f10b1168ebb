//! Nodes, and the leases that they hold.

use maud::{Markup, html};
use tidegate_proto::v1;

use crate::csv;
use crate::frame::{self, Place};
use crate::link::Link;
use crate::quantity::{amount, bytes, grouped, rate, span};
use crate::viewer::Viewer;

/// Rows of either table on the page; the CSV has all nodes.
pub const MOST: usize = 200;

/// What the page of nodes shows.
#[derive(Clone, Debug)]
pub struct Nodes<'n> {
    /// Nodes, newest first.
    pub clients: &'n [v1::ClientInfo],
    /// Leases, by group.
    pub leases: &'n [v1::LeaseInfo],
    /// Whether there are more nodes, and more leases, than these.
    pub are_cut: (bool, bool),
    /// Only those with this in the name, in any case.
    pub filter: &'n str,
}

impl Nodes<'_> {
    /// The address of this view.
    pub fn link(&self) -> Link {
        Place::Nodes.link().with("q", self.filter)
    }

    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let content = html! {
            form.filters method="get" role="search" {
                label { "Name has " input type="search" name="q" value=(self.filter) size="20"; }
                button type="submit" { "Show" }
                a href=(self.link().with("as", "csv")) { "CSV" }
            }
            (frame::live(&self.link(), &self.live()))
        };
        frame::page("Nodes and leases", Some(Place::Nodes), Some(viewer), &content)
    }

    /// Whether the filter fits a name, in any case.
    fn fits(&self) -> impl Fn(&str) -> bool + use<> {
        let wanted = self.filter.to_lowercase();
        move |name| name.to_lowercase().contains(&wanted)
    }

    fn clients(&self) -> impl Iterator<Item = &v1::ClientInfo> {
        let fits = self.fits();
        self.clients.iter().filter(move |client| fits(&client.client))
    }

    /// The part that follows the present.
    pub fn live(&self) -> Markup {
        let clients: Vec<_> = self.clients().collect();
        let fits = self.fits();
        let leases: Vec<_> = self.leases.iter().filter(|lease| fits(&lease.client)).collect();
        html! {
            section aria-labelledby="nodes" {
                h2 #nodes { "Nodes" }
                @if clients.is_empty() && !self.filter.is_empty() { p.empty { "No node fits." } }
                @else if clients.is_empty() { p.empty { "No node. " code { "tidegate node --endpoint …" } " is one, and so is each process with the client library." } } @else {
                    div.scrolls tabindex="0" role="group" aria-labelledby="nodes" { table {
                        thead { tr { th scope="col" { "Node" } th scope="col" { "State" } th scope="col" { "Software" } th.number scope="col" { "Leases" }
                            th.number scope="col" { "Messages" } th.number scope="col" { "CPU metered" } th.number scope="col" { "Memory" } th.number scope="col" { "Start" } } }
                        tbody { @for client in clients.iter().take(MOST) { (row(client)) } }
                    } }
                    (more(clients.len(), !self.are_cut.0))
                }
                @if self.are_cut.0 { p.hint { "More nodes are known than one answer holds: older starts are not here." } }
            }
            section aria-labelledby="leases" {
                h2 #leases { "Leases" }
                @if leases.is_empty() && !self.filter.is_empty() { p.empty { "No lease fits." } }
                @else if leases.is_empty() { p.empty { "No lease is out." } } @else {
                    div.scrolls tabindex="0" role="group" aria-labelledby="leases" { table {
                        thead { tr { th scope="col" { "Group" } th scope="col" { "Node" } th.number scope="col" { "Rate" } th.number scope="col" { "Demand" }
                            th.number scope="col" { "Backlog" } th.number scope="col" { "Debt" } th.number scope="col" { "Ends in" } } }
                        tbody { @for lease in leases.iter().take(MOST) { tr {
                            th scope="row" { a href=(Link::group(&lease.group)) id={ "lease-" (lease.group) "-" (lease.client) } { (lease.group) } } td { bdi { (lease.client) } }
                            td.number { (rate(&lease.rate)) } td.number { (rate(&lease.demand)) } td.number { (amount(&lease.backlog)) }
                            td.number { (amount(&lease.debt)) } td.number { (span(lease.expires_in_us)) }
                        } } }
                    } }
                    (more(leases.len(), false))
                }
                @if self.are_cut.1 {
                    p.hint { "More leases are out than one answer holds: those of later groups are not here, but on the pages of their groups." }
                }
            }
        }
    }

    /// The nodes as CSV.
    pub fn csv(&self) -> String {
        let names = [
            "node",
            "start",
            "software",
            "connected",
            "silent_us",
            "leases",
            "messages",
            "process_cpu_ns",
            "metered_cpu_ns",
            "resident_bytes",
        ];
        let rows = self.clients().map(|client| {
            let node = client.node.unwrap_or_default();
            vec![
                client.client.clone(),
                client.incarnation.to_string(),
                client.agent.clone(),
                client.connected.to_string(),
                client.silent_us.to_string(),
                client.leases.to_string(),
                client.messages.to_string(),
                node.process_cpu_ns.to_string(),
                node.metered_cpu_ns.to_string(),
                node.resident_bytes.to_string(),
            ]
        });
        csv::text(&names, rows)
    }
}

fn row(client: &v1::ClientInfo) -> Markup {
    let node = client.node.unwrap_or_default();
    let percent = u128::from(node.metered_cpu_ns) * 100 / u128::from(node.process_cpu_ns.max(1));
    html! {
        tr {
            th scope="row" { bdi { (client.client) } }
            td { @if client.connected { "connected" } @else { span.badge.warn { "silent for " (span(client.silent_us)) } } }
            td { bdi { (client.agent) } } td.number { (grouped(client.leases.into())) } td.number { (grouped(client.messages.into())) }
            td.number { (percent) " %" } td.number { (bytes(node.resident_bytes)) } td.number { (client.incarnation) }
        }
    }
}

fn more(rows: usize, csv_has_all: bool) -> Markup {
    html! { @if rows > MOST {
        p.hint { "The first " (MOST) " of " (grouped(rows as u128)) "; a part of a name finds others"
            @if csv_has_all { ", and the CSV has all" } "." }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_filtered_and_cut() {
        let client = |at: usize| v1::ClientInfo {
            client: format!("n-{at:04}"),
            connected: at > 0,
            ..v1::ClientInfo::default()
        };
        let clients: Vec<_> = (0..300).map(client).collect();
        let of =
            |filter: &'static str| Nodes { clients: &clients, leases: &[], are_cut: (false, false), filter };
        let text = of("").live().into_string();
        assert_eq!(text.matches("<bdi>n-").count(), MOST);
        assert!(text.contains("of 300") && text.contains("silent for"), "{text}");
        assert_eq!(of("").csv().lines().count(), 301, "the CSV has all");
        for filter in ["n-0299", "N-0299"] {
            let nodes = of(filter);
            assert_eq!(nodes.live().into_string().matches("<bdi>n-").count(), 1);
            assert_eq!(nodes.csv().lines().count(), 2);
        }
    }

    #[test]
    fn each_node_and_lease_has_its_figures_on_the_page_and_in_the_file() {
        let node = v1::NodeStats { process_cpu_ns: 200, metered_cpu_ns: 50, resident_bytes: 6 };
        let client = v1::ClientInfo {
            client: "n".to_owned(),
            incarnation: 1,
            agent: "<a>/2".to_owned(),
            connected: false,
            silent_us: 3_000_000,
            leases: 1_004,
            messages: 1_005,
            node: Some(node),
        };
        let open = v1::ClientInfo { client: "o".to_owned(), connected: true, node: None, ..client.clone() };
        let [rate, demand, backlog, debt] = ["11", "12", "13", "14"].map(str::to_owned);
        let [group, committed, cap, lump] = ["g", "91", "92", "93"].map(str::to_owned);
        let (client_of, expires_in_us) = ("n".to_owned(), 15_000_000);
        let lease = v1::LeaseInfo {
            group,
            client: client_of,
            incarnation: 1,
            rate,
            committed,
            cap,
            lump,
            demand,
            backlog,
            debt,
            waiting: 94,
            expires_in_us,
        };
        let of = |filter: &'static str| {
            let (clients, leases) = ([client.clone(), open.clone()], [lease.clone()]);
            let nodes = Nodes { clients: &clients, leases: &leases, are_cut: (false, false), filter };
            (nodes.live().into_string(), nodes.csv())
        };
        let (text, csv) = of("");
        let names = "node,start,software,connected,silent_us,leases,messages,process_cpu_ns,metered_cpu_ns,resident_bytes";
        let silent = "n,1,<a>/2,false,3000000,1004,1005,200,50,6";
        assert_eq!(csv, format!("{names}\r\n{silent}\r\no,1,<a>/2,true,3000000,1004,1005,0,0,0\r\n"));
        let figures = |percent, bytes| {
            let cells = ["1,004", "1,005", percent, bytes, "1"]
                .map(|cell| format!("<td class=\"number\">{cell}</td>"));
            format!("<td><bdi>&lt;a&gt;/2</bdi></td>{}</tr>", cells.concat())
        };
        let silent =
            format!("<span class=\"badge warn\">silent for 3.0 s</span></td>{}", figures("25 %", "6 B"));
        let open = format!("<bdi>o</bdi></th><td>connected</td>{}", figures("0 %", "0 B"));
        assert!(text.contains(&silent) && text.contains(&open), "{text}");
        let cells = ["11 RU/s", "12 RU/s", "13 RU", "14 RU", "15 s"]
            .map(|cell| format!("<td class=\"number\">{cell}</td>"));
        let lease = format!("id=\"lease-g-n\">g</a></th><td><bdi>n</bdi></td>{}</tr>", cells.concat());
        assert!(text.contains(&lease), "{text}");
        for filter in ["o", "O"] {
            let (text, csv) = of(filter);
            assert!(
                !text.contains("<bdi>n</bdi>") && csv.lines().count() == 2,
                "a filter is of both: {text} {csv}"
            );
        }
        let upper = [v1::ClientInfo { client: "N-Up".to_owned(), ..v1::ClientInfo::default() }];
        let held = [v1::LeaseInfo { client: "N-Up".to_owned(), ..v1::LeaseInfo::default() }];
        let nodes = Nodes { clients: &upper, leases: &held, are_cut: (false, false), filter: "n-up" };
        assert_eq!(nodes.live().into_string().matches("<bdi>N-Up").count(), 2, "names have a case");
    }

    #[test]
    fn what_is_missing_and_what_only_does_not_fit_is_not_said_to_be_not_there() {
        let named = |at: usize| format!("n-{at:04}");
        let clients: Vec<_> =
            (0..300).map(|at| v1::ClientInfo { client: named(at), ..v1::ClientInfo::default() }).collect();
        let leases: Vec<_> =
            (0..300).map(|at| v1::LeaseInfo { client: named(at), ..v1::LeaseInfo::default() }).collect();
        let says = |are_cut, filter| {
            let nodes = Nodes { clients: &clients, leases: &leases, are_cut, filter };
            nodes.live().into_string()
        };
        for are_cut in [(false, false), (true, false), (false, true)] {
            let text = says(are_cut, "");
            assert_eq!(text.contains("More nodes are known than one answer holds"), are_cut.0, "{text}");
            assert_eq!(text.contains("More leases are out than one answer holds"), are_cut.1, "{text}");
            // It has nodes alone.
            assert_eq!(text.matches("the CSV has all").count(), usize::from(!are_cut.0), "{text}");
        }
        let text = says((false, true), "other");
        assert!(text.contains("No node fits.") && text.contains("No lease fits."), "{text}");
        assert!(
            text.contains("More leases are out than one answer holds") && !text.contains("No lease is out"),
            "{text}"
        );
        let none = Nodes { clients: &[], leases: &[], are_cut: (false, false), filter: "" };
        let text = none.live().into_string();
        assert!(text.contains("No node. ") && text.contains("No lease is out."), "{text}");
    }
}
