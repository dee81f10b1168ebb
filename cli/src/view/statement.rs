//! What statements cost.

use serde::Serialize;
use tidegate_proto::v1;

use super::{millis, ru_text};
use crate::table::{Cell, Column, Table};

/// One template in one group. The parts add up to `total_micro_ru`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StatementView {
    pub(crate) group: String,
    pub(crate) fingerprint: String,
    pub(crate) kind: String,
    pub(crate) template: String,
    pub(crate) calls: u64,
    pub(crate) total_micro_ru: i64,
    pub(crate) cpu_micro_ru: i64,
    pub(crate) read_micro_ru: i64,
    pub(crate) write_micro_ru: i64,
    pub(crate) network_micro_ru: i64,
    pub(crate) average_micro_ru: i64,
    pub(crate) max_micro_ru: i64,
    pub(crate) rows: u64,
    pub(crate) elapsed_us: u64,
    pub(crate) waited_us: u64,
    pub(crate) errors: u64,
    pub(crate) throttled: u64,
    pub(crate) estimated: u64,
    pub(crate) first_unix_ms: u64,
    pub(crate) last_unix_ms: u64,
}

impl From<v1::StatementRow> for StatementView {
    fn from(row: v1::StatementRow) -> Self {
        let parts = [row.cpu_micro_ru, row.read_micro_ru, row.write_micro_ru, row.network_micro_ru];
        let total = parts.into_iter().fold(0, i64::saturating_add);
        let calls = i64::try_from(row.calls).unwrap_or(i64::MAX);
        Self {
            group: row.group,
            fingerprint: row.fingerprint,
            kind: row.kind,
            template: row.template,
            calls: row.calls,
            total_micro_ru: total,
            cpu_micro_ru: row.cpu_micro_ru,
            read_micro_ru: row.read_micro_ru,
            write_micro_ru: row.write_micro_ru,
            network_micro_ru: row.network_micro_ru,
            average_micro_ru: total.checked_div(calls).unwrap_or_default(),
            max_micro_ru: row.max_micro_ru,
            rows: row.rows,
            elapsed_us: row.elapsed_us,
            waited_us: row.waited_us,
            errors: row.errors,
            throttled: row.throttled,
            estimated: row.estimated,
            first_unix_ms: row.first_unix_ms,
            last_unix_ms: row.last_unix_ms,
        }
    }
}

impl StatementView {
    /// Many statements, a line each.
    pub(crate) fn table(rows: &[Self]) -> Table {
        let mut table = Table::new([
            Column::name("GROUP"),
            Column::word("FINGERPRINT").leaves(1),
            Column::number("CALLS"),
            Column::number("RU"),
            Column::number("CPU RU").wide(),
            Column::number("READ RU").wide(),
            Column::number("WRITE RU").wide(),
            Column::number("NETWORK RU").wide(),
            Column::number("AVERAGE RU").leaves(2),
            Column::number("MOST RU").leaves(4),
            Column::number("ROWS").leaves(6),
            Column::number("ELAPSED (ms)").leaves(5),
            Column::number("WAITED (ms)").leaves(3),
            Column::number("ERRORS").leaves(5),
            Column::number("REFUSED").leaves(3),
            Column::text("STATEMENT"),
        ]);
        for row in rows {
            table.cells([
                row.group.clone().into(),
                row.fingerprint.clone().into(),
                row.calls.to_string().into(),
                ru_text(row.total_micro_ru).into(),
                ru_text(row.cpu_micro_ru).into(),
                ru_text(row.read_micro_ru).into(),
                ru_text(row.write_micro_ru).into(),
                ru_text(row.network_micro_ru).into(),
                ru_text(row.average_micro_ru).into(),
                ru_text(row.max_micro_ru).into(),
                row.rows.to_string().into(),
                millis(row.elapsed_us.into()).into(),
                millis(row.waited_us.into()).into(),
                Cell::warns(row.errors.into()),
                Cell::warns(row.throttled.into()),
                row.template.clone().into(),
            ]);
        }
        table
    }
}
