//! Rules, watches, convictions and statistics as messages, and back.
//!
//! One field out of range refuses a whole report of statistics; the error names the field.

use std::sync::Arc;

use tidegate_core::units::Ru;
use tidegate_core::usage::{RuParts, Usage};
use tidegate_cost_model::{Fingerprint, StatementKind};
use tidegate_proto::v1;

use super::convert::{usage_in, usage_out};
use crate::error::{AdminError, InField};
use crate::limits::{MAX_STATEMENT_COUNT, MAX_STATEMENT_ROWS};
use crate::name::{GroupName, client_id};
use crate::quantity::cut;
use crate::service::GroupRule;
use crate::statements::query_limit::Matching;
use crate::statements::runaways::template;
use crate::statements::watches::{Watch, digest};
use crate::statements::{StatementReport, StatementRow, Sums};

pub(super) fn rule(rule: &GroupRule) -> v1::GroupRule {
    v1::GroupRule {
        group: rule.group.to_string(),
        limit: rule.limit.as_ref().map(|rule| rule.text()),
        max_wait_us: rule.max_wait.unwrap_or_default().0,
    }
}

/// A watch for gateways: without its text, which would be most of the list and is for people.
pub(super) fn told_watch(told: &Watch) -> v1::Watch {
    Watch { text: Arc::default(), ..told.clone() }.text()
}

/// Decodes a report.
pub(super) fn report_in(message: v1::ReportStatementsRequest) -> Result<StatementReport, AdminError> {
    let numbered = |field, number: u64, what| {
        if number > 0 { Ok(number) } else { Err(AdminError::invalid(field, what)) }
    };
    if message.rows.len() > MAX_STATEMENT_ROWS {
        let message =
            format!("{} are too many: at most {MAX_STATEMENT_ROWS} in a report", message.rows.len());
        return Err(AdminError::invalid("rows", message));
    }
    let rows = message.rows.into_iter().enumerate().map(|(at, row)| Fields { at }.row(row));
    Ok(StatementReport {
        gateway: client_id(&message.gateway).in_field("gateway")?,
        incarnation: numbered(
            "incarnation",
            message.incarnation,
            "0 is out of range; use a number of this process alone",
        )?,
        seq: numbered("seq", message.seq, "0 is out of range; number reports from 1")?,
        rows: rows.collect::<Result<_, _>>()?,
        evicted: bounded("evicted".to_owned(), message.evicted)?,
    })
}

/// Reads the fields of one row of a report.
#[derive(Clone, Copy)]
struct Fields {
    at: usize,
}

impl Fields {
    fn name(self, field: &str) -> String {
        format!("rows[{}].{field}", self.at)
    }

    fn row(self, row: v1::StatementRow) -> Result<StatementRow, AdminError> {
        let kind = StatementKind::ALL.into_iter().find(|kind| kind.name() == row.kind);
        let kind = kind.ok_or_else(|| {
            let names = StatementKind::ALL.map(StatementKind::name).join(", ");
            AdminError::invalid(self.name("kind"), format!("{:?} is none of {names}", cut(&row.kind)))
        })?;
        let field = self.name("fingerprint");
        let digits = digest(&field, Matching::Similar, &row.fingerprint)?;
        let fingerprint = u64::from_str_radix(&digits, 16);
        Ok(StatementRow {
            group: GroupName::parse(&row.group).in_field(&self.name("group"))?,
            fingerprint: Fingerprint(fingerprint.map_err(|error| AdminError::invalid(field, error))?),
            kind,
            template: template(&self.name("template"), &row.template)?.into(),
            sums: self.sums(&row)?,
        })
    }

    fn sums(self, row: &v1::StatementRow) -> Result<Sums, AdminError> {
        if row.first_unix_ms > row.last_unix_ms {
            let message = format!("{} is after last_unix_ms, {}", row.first_unix_ms, row.last_unix_ms);
            return Err(AdminError::invalid(self.name("first_unix_ms"), message));
        }
        Ok(Sums {
            calls: self.count("calls", row.calls)?,
            charged: RuParts {
                cpu: self.amount("cpu_micro_ru", row.cpu_micro_ru)?,
                read: self.amount("read_micro_ru", row.read_micro_ru)?,
                write: self.amount("write_micro_ru", row.write_micro_ru)?,
                network: self.amount("network_micro_ru", row.network_micro_ru)?,
                flat: Ru::ZERO,
            },
            max: self.amount("max_micro_ru", row.max_micro_ru)?,
            usage: self.usage(row.usage.unwrap_or_default())?,
            rows: self.count("rows", row.rows)?,
            elapsed_us: self.count("elapsed_us", row.elapsed_us)?,
            waited_us: self.count("waited_us", row.waited_us)?,
            errors: self.count("errors", row.errors)?,
            throttled: self.count("throttled", row.throttled)?,
            estimated: self.count("estimated", row.estimated)?,
            first_unix_ms: row.first_unix_ms,
            last_unix_ms: self.count("last_unix_ms", row.last_unix_ms)?,
        })
    }

    fn usage(self, usage: v1::Usage) -> Result<Usage, AdminError> {
        let usage = usage_in(usage);
        for (field, number) in usage.fields() {
            self.count(&format!("usage.{field}"), number)?;
        }
        Ok(usage)
    }

    fn count(self, field: &str, number: u64) -> Result<u64, AdminError> {
        bounded(self.name(field), number)
    }

    fn amount(self, field: &str, micro_ru: i64) -> Result<Ru, AdminError> {
        Some(Ru(micro_ru)).filter(|ru| (Ru::ZERO..=Ru::MAX).contains(ru)).ok_or_else(|| {
            AdminError::invalid(self.name(field), format!("{micro_ru} is out of range: 0 to {}", Ru::MAX.0))
        })
    }
}

fn bounded(field: String, number: u64) -> Result<u64, AdminError> {
    if number > MAX_STATEMENT_COUNT {
        let message = format!("{number} is out of range: 0 to {MAX_STATEMENT_COUNT}");
        return Err(AdminError::invalid(field, message));
    }
    Ok(number)
}

/// Encodes a row.
pub(crate) fn row(row: &StatementRow) -> v1::StatementRow {
    let StatementRow { group, fingerprint, kind, template, sums } = row;
    v1::StatementRow {
        group: group.to_string(),
        fingerprint: fingerprint.to_string(),
        kind: kind.name().to_owned(),
        template: template.to_string(),
        calls: sums.calls,
        cpu_micro_ru: sums.charged.cpu.0,
        read_micro_ru: sums.charged.read.0,
        write_micro_ru: sums.charged.write.0,
        network_micro_ru: sums.charged.network.0,
        max_micro_ru: sums.max.0,
        usage: Some(usage_out(&sums.usage)),
        rows: sums.rows,
        elapsed_us: sums.elapsed_us,
        waited_us: sums.waited_us,
        errors: sums.errors,
        throttled: sums.throttled,
        estimated: sums.estimated,
        first_unix_ms: sums.first_unix_ms,
        last_unix_ms: sums.last_unix_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> v1::StatementRow {
        v1::StatementRow {
            group: "web".into(),
            fingerprint: "00000000000000ab".into(),
            kind: "select".into(),
            template: "SELECT ?".into(),
            calls: 1,
            cpu_micro_ru: 2,
            read_micro_ru: 3,
            write_micro_ru: 4,
            network_micro_ru: 5,
            max_micro_ru: 6,
            usage: Some(v1::Usage { cpu_ns: 7, cross_zone_bytes: 8, ..v1::Usage::default() }),
            rows: 9,
            elapsed_us: 10,
            waited_us: 11,
            errors: 12,
            throttled: 13,
            estimated: 14,
            first_unix_ms: 15,
            last_unix_ms: 16,
        }
    }

    fn report(rows: Vec<v1::StatementRow>) -> v1::ReportStatementsRequest {
        v1::ReportStatementsRequest { gateway: "gw".into(), incarnation: 1, seq: 1, rows, evicted: 0 }
    }

    #[test]
    fn rows_round_trip() {
        let decoded = report_in(report(vec![sample()])).unwrap();
        assert_eq!(row(&decoded.rows[0]), sample());
    }

    #[test]
    fn fields_out_of_range_are_refused_by_name() {
        let most = MAX_STATEMENT_COUNT + 1;
        type Spoil = fn(&mut v1::StatementRow, u64);
        let table: [(&str, Spoil); 19] = [
            ("group", |row, _| row.group.clear()),
            ("fingerprint", |row, _| row.fingerprint = "ab".into()),
            ("kind", |row, _| row.kind = "guess".into()),
            ("template", |row, _| row.template = "x".repeat(8_193)),
            ("calls", |row, most| row.calls = most),
            ("cpu_micro_ru", |row, _| row.cpu_micro_ru = -1),
            ("read_micro_ru", |row, _| row.read_micro_ru = i64::MAX),
            ("write_micro_ru", |row, _| row.write_micro_ru = i64::MIN),
            ("network_micro_ru", |row, _| row.network_micro_ru = -1),
            ("max_micro_ru", |row, _| row.max_micro_ru = -1),
            ("usage.read_bytes", |row, most| {
                row.usage = Some(v1::Usage { read_bytes: most, ..v1::Usage::default() });
            }),
            ("rows", |row, most| row.rows = most),
            ("elapsed_us", |row, most| row.elapsed_us = most),
            ("waited_us", |row, most| row.waited_us = most),
            ("errors", |row, most| row.errors = most),
            ("throttled", |row, most| row.throttled = most),
            ("estimated", |row, most| row.estimated = most),
            ("first_unix_ms", |row, _| row.first_unix_ms = 17),
            ("last_unix_ms", |row, most| row.last_unix_ms = most),
        ];
        for (field, spoil) in table {
            let mut bad = sample();
            spoil(&mut bad, most);
            let error = report_in(report(vec![sample(), bad])).unwrap_err();
            assert_eq!(error.field(), Some(format!("rows[1].{field}").as_str()), "{error}");
        }
        let good = || report(vec![sample()]);
        for (field, bad) in [
            ("gateway", v1::ReportStatementsRequest { gateway: "a b".into(), ..good() }),
            ("incarnation", v1::ReportStatementsRequest { incarnation: 0, ..good() }),
            ("seq", v1::ReportStatementsRequest { seq: 0, ..good() }),
            ("evicted", v1::ReportStatementsRequest { evicted: u64::MAX, ..good() }),
            ("rows", report(vec![sample(); MAX_STATEMENT_ROWS + 1])),
        ] {
            assert_eq!(report_in(bad).unwrap_err().field(), Some(field));
        }
    }
}
