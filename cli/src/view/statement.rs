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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_of_a_statement_is_shown_as_what_it_is() {
        let row = v1::StatementRow {
            group: "shop".into(),
            fingerprint: "00ff".into(),
            kind: "select".into(),
            template: "SELECT ?".into(),
            calls: 4,
            cpu_micro_ru: 1_000_000,
            read_micro_ru: 2_000_000,
            write_micro_ru: 4_000_000,
            network_micro_ru: 8_000_000,
            max_micro_ru: 9_000_000,
            rows: 21,
            elapsed_us: 31_000,
            waited_us: 32_000,
            errors: 41,
            throttled: 42,
            estimated: 43,
            first_unix_ms: 51,
            last_unix_ms: 52,
            ..v1::StatementRow::default()
        };
        let view = StatementView::from(row.clone());
        assert_eq!((view.total_micro_ru, view.average_micro_ru), (15_000_000, 3_750_000));
        assert_eq!((view.first_unix_ms, view.last_unix_ms, view.estimated), (51, 52, 43));
        assert_eq!(view.kind, "select");
        let laid = StatementView::table(std::slice::from_ref(&view)).laid(None, true);
        let line: String = laid.rows.into_iter().flatten().flatten().map(|span| span.text).collect();
        let cells: Vec<&str> = line.split_whitespace().collect();
        let shown = "shop 00ff 4 15 1 2 4 8 3.75 9 21 31 32 41 42 SELECT ?";
        assert_eq!(cells.join(" "), shown);
        // One that was never finished has no average.
        let begun = StatementView::from(v1::StatementRow { calls: 0, ..row });
        assert_eq!(begun.average_micro_ru, 0);
    }
}
