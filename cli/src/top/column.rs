//! The columns of `top`, by which its rows are sorted.

use std::cmp::{Ordering, Reverse};

use tidegate_controller::quantity::parse_rate;
use tidegate_core::units::{Rate, RuTotal};

use crate::sample::GroupSample;
use crate::table::{Cell, Column, Table, Tone};
use crate::view::millis;

/// A column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Key {
    #[default]
    Group,
    Cap,
    Admitted,
    Waiting,
    Wait,
    Refused,
    Total,
    Leased,
    Demand,
    Pool,
    Leases,
}

/// Percent of its cap from which on a group is shown to be at it.
const NEAR_CAP_PERCENT: i64 = 95;

impl Key {
    /// All columns, from left to right.
    pub(crate) const ALL: [Self; 11] = [
        Self::Group,
        Self::Cap,
        Self::Admitted,
        Self::Waiting,
        Self::Wait,
        Self::Refused,
        Self::Total,
        Self::Leased,
        Self::Demand,
        Self::Pool,
        Self::Leases,
    ];

    /// The column to the right of it, or to the left; it goes round.
    pub(crate) fn beside(self, right: bool) -> Self {
        let all = || Self::ALL.into_iter().cycle().skip_while(|key| *key != self);
        let steps = if right { 1 } else { Self::ALL.len().saturating_sub(1) };
        all().nth(steps).unwrap_or(self)
    }

    fn title(self) -> &'static str {
        match self {
            Self::Group => "GROUP",
            Self::Cap => "CAP (RU/s)",
            Self::Admitted => "ADMITTED (RU/s)",
            Self::Waiting => "WAITING",
            Self::Wait => "P99 (ms)",
            Self::Refused => "REFUSED",
            Self::Total => "TOTAL (RU)",
            Self::Leased => "LEASED (RU/s)",
            Self::Demand => "DEMAND (RU/s)",
            Self::Pool => "POOL (RU)",
            Self::Leases => "LEASES",
        }
    }

    fn column(self, mark: &str) -> Column {
        let title = format!("{}{mark}", self.title());
        match self {
            Self::Group => Column::name(&title),
            Self::Cap | Self::Admitted | Self::Waiting | Self::Refused => Column::number(&title),
            Self::Total => Column::number(&title).leaves(2),
            Self::Demand => Column::number(&title).leaves(3),
            Self::Leased => Column::number(&title).leaves(4),
            Self::Pool | Self::Leases => Column::number(&title).leaves(5),
            Self::Wait => Column::number(&title).leaves(1),
        }
    }

    /// The order of two groups: names from a, numbers from the largest.
    pub(crate) fn order(self, one: &GroupSample, other: &GroupSample) -> Ordering {
        let by = |of: fn(&GroupSample) -> u128| Reverse(of(one)).cmp(&Reverse(of(other)));
        let first = match self {
            Self::Group => Ordering::Equal,
            Self::Cap => Reverse(limit(&one.cap)).cmp(&Reverse(limit(&other.cap))),
            Self::Admitted => by(|sample| sortable(sample.with_children.live)),
            Self::Waiting => by(|sample| sample.with_children.waiting.into()),
            Self::Wait => by(|sample| sample.with_children.waits.map_or(0, |waits| waits.p99_us.into())),
            Self::Refused => by(|sample| sample.with_children.throttled.0),
            Self::Total => by(|sample| sample.with_children.total_micro_ru.0),
            Self::Leased => by(|sample| sortable(sample.with_children.leased)),
            Self::Demand => by(|sample| sortable(sample.with_children.demand)),
            Self::Pool => by(|sample| sortable(limit(&sample.pool))),
            Self::Leases => by(|sample| sample.with_children.leases.into()),
        };
        first.then_with(|| one.group.cmp(&other.group))
    }

    fn cell(self, name: &str, sample: &GroupSample) -> Cell {
        let sums = &sample.with_children;
        match self {
            Self::Group => Cell::new(name, Tone::Plain),
            Self::Cap => whole(&sample.cap).into(),
            Self::Admitted => {
                let near = limit(&sample.cap).scale(NEAR_CAP_PERCENT, 100);
                let tone = if sums.live > Rate::ZERO && sums.live >= near { Tone::Warn } else { Tone::Plain };
                Cell::new(whole(&sums.live.number().to_string()), tone)
            }
            Self::Waiting => Cell::warns(sums.waiting.into()),
            Self::Wait => sums.waits.map(|waits| millis(waits.p99_us.into())).unwrap_or_default().into(),
            Self::Refused => Cell::warns(sums.throttled.0),
            Self::Total => whole(&RuTotal(sums.total_micro_ru.0).number().to_string()).into(),
            Self::Leased => whole(&sums.leased.number().to_string()).into(),
            Self::Demand => whole(&sums.demand.number().to_string()).into(),
            Self::Pool => whole(&sample.pool).into(),
            Self::Leases => sums.leases.to_string().into(),
        }
    }
}

/// Groups as a table, each under the name it is shown with; `sorted` marks a column.
pub(crate) fn table<'s>(
    rows: impl IntoIterator<Item = (String, &'s GroupSample)>,
    sorted: Option<(Key, bool)>,
) -> Table {
    let mark = |key: Key| match sorted {
        Some((by, reverse)) if by == key => {
            if reverse {
                "▲"
            } else {
                "▼"
            }
        }
        _ => "",
    };
    let mut table = Table::new(Key::ALL.map(|key| key.column(mark(key))));
    for (name, sample) in rows {
        table.cells(Key::ALL.map(|key| key.cell(&name, sample)));
    }
    table
}

/// A rate in text; no limit is above all rates.
fn limit(text: &str) -> Rate {
    if text == "unlimited" { Rate(i64::MAX) } else { parse_rate(text).unwrap_or(Rate::ZERO) }
}

fn sortable(rate: Rate) -> u128 {
    u128::try_from(rate.0).unwrap_or_default()
}

/// A decimal cut to one digit after the point: a table that moves each second is for reading at a glance.
pub(crate) fn whole(decimal: &str) -> String {
    match decimal.split_once('.') {
        Some((whole, part)) if whole.len() < 3 => format!("{whole}.{}", part.get(..1).unwrap_or("0")),
        Some((whole, _)) => whole.to_owned(),
        None => decimal.to_owned(),
    }
}
