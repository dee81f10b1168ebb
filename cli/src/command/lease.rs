//! `tidegate lease`: what nodes hold in which group.

use clap::Subcommand;
use serde::Serialize;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use super::of_group::OfGroup;
use crate::admin::Admin;
use crate::args::Global;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::table::{Cell, Column, Table, Tone};
use crate::view::millis;

/// What to do with leases.
#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// List leases, and the pool of each group.
    List {
        #[command(flatten)]
        group: OfGroup,
        #[command(flatten)]
        follow: Follow,
    },
}

#[derive(Serialize)]
struct Leases {
    leases: Vec<v1::LeaseInfo>,
    groups: Vec<v1::GroupState>,
    #[serde(skip)]
    truncated: bool,
}

/// Runs the command.
pub(crate) async fn run(command: LeaseCommand, global: &Global) -> Result<(), CliError> {
    let LeaseCommand::List { group, follow } = command;
    let read = async |admin: &Admin| {
        let request = v1::ListLeasesRequest { group: group.name() };
        let reply = admin.calls().list_leases(request).await.map_err(admin.failed())?.into_inner();
        Ok(Leases { leases: reply.leases, groups: reply.groups, truncated: reply.truncated })
    };
    follow::show(global, follow, read).await
}

impl Shown for Leases {
    fn page(&self) -> Page {
        Page::from(leases(&self.leases)).then("").then(groups(&self.groups))
    }

    /// The groups that are leased.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.leases.iter().map(|lease| lease.group.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn notes(&self) -> Vec<String> {
        let note = "warning: there are more leases than fit an answer; ask for one group".to_owned();
        self.truncated.then_some(note).into_iter().collect()
    }
}

fn leases(leases: &[v1::LeaseInfo]) -> Table {
    let mut table = Table::new([
        Column::name("GROUP"),
        Column::name("CLIENT"),
        Column::number("RATE (RU/s)"),
        Column::number("COMMITTED (RU/s)").leaves(3),
        Column::number("CAP (RU)").leaves(5),
        Column::number("LUMP (RU)").leaves(5),
        Column::number("DEMAND (RU/s)").leaves(1),
        Column::number("BACKLOG (RU)").leaves(4),
        Column::number("DEBT (RU)").leaves(2),
        Column::number("WAITING"),
        Column::number("EXPIRES IN").leaves(3),
    ]);
    for lease in leases {
        let debt = if lease.debt == "0" { Tone::Plain } else { Tone::Warn };
        table.cells([
            lease.group.clone().into(),
            lease.client.clone().into(),
            lease.rate.clone().into(),
            lease.committed.clone().into(),
            lease.cap.clone().into(),
            lease.lump.clone().into(),
            lease.demand.clone().into(),
            lease.backlog.clone().into(),
            Cell::new(&lease.debt, debt),
            Cell::warns(lease.waiting.into()),
            Span::millis(lease.expires_in_us / 1_000).to_string().into(),
        ]);
    }
    table
}

fn groups(groups: &[v1::GroupState]) -> Table {
    let mut table = Table::new([
        Column::name("GROUP"),
        Column::number("LEASED (RU/s)"),
        Column::number("POOL (RU)").leaves(1),
        Column::number("DEMAND (RU/s)"),
        Column::number("LEASES").leaves(2),
        Column::number("BOUND (RU/s)").leaves(3),
        Column::number("P99 WAIT (ms)").leaves(3),
        Column::number("QUOTA LEFT").leaves(4),
        Column::number("RESETS IN").leaves(5),
        Column::number("WARMS UP, NOW (RU/s)").leaves(4),
    ]);
    for group in groups {
        let quota = group.quota.as_ref();
        let resets = |quota: &v1::QuotaState| {
            let time = Span::millis(quota.resets_in_us / 1_000);
            if quota.rolls { format!("{time}, a part") } else { time.to_string() }
        };
        table.row([
            group.group.clone(),
            group.committed.clone(),
            group.pool.clone(),
            group.demand.clone(),
            group.leases.to_string(),
            group.bound_rate.clone(),
            group.waits.as_ref().map(|waits| millis(waits.p99_us.into())).unwrap_or_default(),
            quota.map(left).unwrap_or_default(),
            quota.map(resets).unwrap_or_default(),
            group.warmth.as_ref().map(|warmth| warmth.rate.clone()).unwrap_or_default(),
        ]);
    }
    table
}

/// What is left of a quota, with its unit.
fn left(quota: &v1::QuotaState) -> String {
    format!("{} {}", quota.left, quota.counts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_of_a_lease_and_of_a_pool_is_shown_as_what_it_is() {
        let lease = v1::LeaseInfo {
            group: "shop".into(),
            client: "till-1".into(),
            incarnation: 2,
            rate: "3".into(),
            committed: "4".into(),
            cap: "5".into(),
            lump: "6".into(),
            demand: "7".into(),
            backlog: "8".into(),
            debt: "9".into(),
            waiting: 10,
            expires_in_us: 11_000_999,
        };
        let group = v1::GroupState {
            group: "shop".into(),
            committed: "21".into(),
            pool: "22".into(),
            demand: "23".into(),
            leases: 24,
            bound_rate: "25".into(),
            quota: Some(v1::QuotaState {
                amount: "30".into(),
                used: "31".into(),
                unused: "32".into(),
                lost: "33".into(),
                left: "34".into(),
                resets_in_us: 35_000_999,
                unit: "requests".into(),
                rolls: false,
            }),
            waits: Some(v1::GroupWaits {
                p50_us: 41_000,
                p99_us: 42_000,
                max_us: 43_000,
                ..v1::GroupWaits::default()
            }),
            warmth: Some(v1::Warmth { rate: "51".into(), warm_ppm: 52 }),
        };
        let quota =
            group.quota.clone().map(|quota| v1::QuotaState { unit: String::new(), rolls: true, ..quota });
        let rolling = v1::GroupState { quota, ..group.clone() };
        let bare = v1::GroupState { quota: None, waits: None, warmth: None, ..group.clone() };
        let other = v1::LeaseInfo { group: "board".into(), ..lease.clone() };
        let leases = Leases {
            leases: vec![lease.clone(), other, v1::LeaseInfo { client: "till-2".into(), ..lease }],
            groups: vec![group, rolling, bare],
            truncated: false,
        };
        let lines = leases.page().words();
        let expected = [
            "GROUP CLIENT RATE (RU/s) COMMITTED (RU/s) CAP (RU) LUMP (RU) DEMAND (RU/s) BACKLOG (RU) DEBT (RU) WAITING \
             EXPIRES IN",
            "shop till-1 3 4 5 6 7 8 9 10 11s",
            "board till-1 3 4 5 6 7 8 9 10 11s",
            "shop till-2 3 4 5 6 7 8 9 10 11s",
            "",
            "GROUP LEASED (RU/s) POOL (RU) DEMAND (RU/s) LEASES BOUND (RU/s) P99 WAIT (ms) QUOTA LEFT RESETS IN \
             WARMS UP, NOW (RU/s)",
            "shop 21 22 23 24 25 42 34 requests 35s 51",
            "shop 21 22 23 24 25 42 34 RU 35s, a part 51",
            "shop 21 22 23 24 25 - - - -",
        ];
        assert_eq!(lines, expected);
        assert_eq!(leases.names(), ["board", "shop"]);
        assert!(leases.notes().is_empty());
        let notes = Leases { truncated: true, ..leases }.notes();
        assert_eq!(notes, ["warning: there are more leases than fit an answer; ask for one group"]);
    }
}
