//! One group in `top`: what the list says of it, its waits, what it is charged for, and its nodes.

use std::collections::VecDeque;

use tidegate_controller::quantity::parse_rate;
use tidegate_core::units::{Rate, RuTotal};

use super::column::{table, whole};
use crate::sample::{Causes, GroupSample};
use crate::table::{Cell, Column, Table};
use crate::view::millis;

/// Over how long what it is charged for now is shown. Reports of nodes come once a second: half of it moves with each,
/// twice of it still shows what is over.
const LOOK_BACK_MS: u64 = 10_000;

/// The group that is shown, and what it was charged at each of the last looks, with the groups below it.
#[derive(Clone, Debug, Default)]
pub(super) struct Detail {
    group: String,
    looks: VecDeque<(u64, Causes)>,
}

impl Detail {
    /// Looks at a group; forgets the one before.
    pub(super) fn see(&mut self, sample: &GroupSample, unix_ms: u64) {
        if self.group != sample.group {
            *self = Self { group: sample.group.clone(), looks: VecDeque::new() };
        }
        if self.looks.back().is_none_or(|(last, _)| *last < unix_ms) {
            self.looks.push_back((unix_ms, sample.with_children.causes));
        }
        let old = unix_ms.saturating_sub(LOOK_BACK_MS);
        while self.looks.get(1).is_some_and(|(at, _)| *at <= old) {
            self.looks.pop_front();
        }
    }

    /// The tables, one below the other.
    pub(super) fn tables(&self, sample: &GroupSample) -> [Table; 4] {
        [table([(sample.group.clone(), sample)], None), waits(sample), self.causes(sample), nodes(sample)]
    }

    /// Each cause with its RU/s since the first look that is kept, and its total.
    fn causes(&self, sample: &GroupSample) -> Table {
        let mut table = Table::new([
            Column::word("CAUSE"),
            Column::number("NOW (RU/s)"),
            Column::number("SHARE NOW (%)").leaves(2),
            Column::number("TOTAL (RU)").leaves(1),
            Column::number("SHARE (%)"),
        ]);
        let all = sample.with_children.causes;
        let (first, last) = (self.looks.front(), self.looks.back());
        let looked =
            first.zip(last).map(|((from, then), (to, now))| (to.saturating_sub(*from), now.since(*then)));
        let (ms, lately) = looked.unwrap_or_default();
        let sum = |of: Causes| of.named().iter().fold(0_u128, |sum, (_, micro)| sum.saturating_add(*micro));
        for ((name, total), (_, new)) in all.named().into_iter().zip(lately.named()) {
            let rate = new.saturating_mul(1_000).checked_div(ms.into());
            table.cells([
                name.into(),
                rate.map(|rate| whole(&RuTotal(rate).number().to_string())).unwrap_or_default().into(),
                percent(new, sum(lately)),
                whole(&RuTotal(total).number().to_string()).into(),
                percent(total, sum(all)),
            ]);
        }
        table
    }
}

/// Waits of the last minute, with those of the groups below; and its rate of the moment, if that warms up.
fn waits(sample: &GroupSample) -> Table {
    let warms = sample.warms_up_at.as_deref();
    let columns = [
        Column::number("WAITS IN THE LAST MINUTE"),
        Column::number("IN VAIN").leaves(1),
        Column::number("P50 (ms)"),
        Column::number("P99 (ms)"),
        Column::number("LONGEST (ms)").leaves(1),
    ];
    let rate = warms.map(|_| Column::number("WARMS UP, NOW (RU/s)").leaves(2));
    let mut table = Table::new(columns.into_iter().chain(rate));
    let waits = sample.with_children.waits.unwrap_or_default();
    let time = |us: u64| Cell::from(if waits.ended == 0 { String::new() } else { millis(us.into()) });
    let cells = [
        waits.ended.to_string().into(),
        Cell::warns(waits.in_vain.into()),
        time(waits.p50_us),
        time(waits.p99_us),
        time(waits.max_us),
    ];
    table.cells(cells.into_iter().chain(warms.map(|rate| whole(rate).into())));
    table
}

/// Its own leases, without those of the groups below.
fn nodes(sample: &GroupSample) -> Table {
    let mut table = Table::new([
        Column::name("NODE"),
        Column::number("LEASED (RU/s)"),
        Column::number("SHARE (%)"),
        Column::number("DEMAND (RU/s)").leaves(1),
        Column::number("WAITING"),
    ]);
    let micro =
        |text: &str| parse_rate(text).map_or(0, |Rate(micro)| u128::try_from(micro).unwrap_or_default());
    let all = sample.nodes.iter().fold(0_u128, |sum, node| sum.saturating_add(micro(&node.rate)));
    for node in &sample.nodes {
        table.cells([
            node.client.clone().into(),
            whole(&node.rate).into(),
            percent(micro(&node.rate), all),
            whole(&node.demand).into(),
            Cell::warns(node.waiting.into()),
        ]);
    }
    table
}

/// A part in percent of all, to a tenth; nothing of nothing.
fn percent(part: u128, all: u128) -> Cell {
    let tenths = part.saturating_mul(1_000).checked_div(all);
    tenths.map(|tenths| format!("{}.{}", tenths / 10, tenths % 10)).unwrap_or_default().into()
}
