//! What statements cost, by template and group, until the controller has it.
//!
//! In: one record per ended statement. Out: all that was counted since the last time, in reports of at most
//! [`MAX_REPORT`] rows. A report is repeated under its number until the controller has answered, so it counts once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tidegate_client::{GroupName, Ru, RuParts, Usage, usage_message};
use tidegate_cost_model::Template;
use tidegate_proto::v1;

use crate::clock;

/// Templates counted between two reports; more are counted as evicted.
const MAX_ROWS: usize = 8_192;
/// Rows of one report, which the controller refuses to exceed.
pub(super) const MAX_REPORT: usize = 1_000;

/// One ended statement.
#[derive(Clone, Debug)]
pub(super) struct Record<'a> {
    pub(super) group: &'a GroupName,
    pub(super) template: &'a Arc<Template>,
    pub(super) outcome: Outcome,
    pub(super) waited: Duration,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// It was not admitted.
    Throttled,
    /// It ran.
    Ran { charged: RuParts, usage: Usage, rows: u64, elapsed: Duration, failed: bool, estimated: bool },
}

/// Rows by fingerprint, then group.
#[derive(Debug, Default)]
pub(super) struct Statements(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    rows: HashMap<(u64, GroupName), Row, RandomState>,
    evicted: u64,
}

#[derive(Debug)]
struct Row {
    template: Arc<Template>,
    calls: u64,
    charged: RuParts,
    most: Ru,
    usage: Usage,
    rows: u64,
    elapsed_us: u64,
    waited_us: u64,
    errors: u64,
    throttled: u64,
    estimated: u64,
    first_unix_ms: u64,
    last_unix_ms: u64,
}

impl Statements {
    pub(super) fn record(&self, record: &Record<'_>) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::wall_ms();
        let key = (record.template.fingerprint().0, record.group.clone());
        if table.rows.len() >= MAX_ROWS && !table.rows.contains_key(&key) {
            table.evicted = table.evicted.saturating_add(1);
            return;
        }
        let row = table.rows.entry(key).or_insert_with(|| Row::new(Arc::clone(record.template), now));
        row.add(record, now);
    }

    /// Takes all rows out, at most [`MAX_REPORT`] at a time, and how many were evicted with the first.
    pub(super) fn take(&self) -> Vec<(Vec<v1::StatementRow>, u64)> {
        let Table { rows, evicted } =
            std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut rows = rows.into_iter().map(|((_, group), row)| row.wire(&group));
        let parts = std::iter::from_fn(|| {
            let part: Vec<_> = rows.by_ref().take(MAX_REPORT).collect();
            (!part.is_empty()).then_some(part)
        });
        // Nothing is evicted before there are rows.
        parts.zip(std::iter::once(evicted).chain(std::iter::repeat(0))).collect()
    }
}

impl Row {
    fn new(template: Arc<Template>, now: u64) -> Self {
        Self {
            template,
            calls: 0,
            charged: RuParts::default(),
            most: Ru::ZERO,
            usage: Usage::default(),
            rows: 0,
            elapsed_us: 0,
            waited_us: 0,
            errors: 0,
            throttled: 0,
            estimated: 0,
            first_unix_ms: now,
            last_unix_ms: now,
        }
    }

    fn add(&mut self, record: &Record<'_>, now: u64) {
        self.last_unix_ms = now;
        self.waited_us = self.waited_us.saturating_add(clock::micros(record.waited));
        let Outcome::Ran { charged, usage, rows, elapsed, failed, estimated } = record.outcome else {
            self.throttled = self.throttled.saturating_add(1);
            return;
        };
        self.calls = self.calls.saturating_add(1);
        self.charged = self.charged.plus(&charged);
        self.most = self.most.max(charged.total());
        self.usage = self.usage.plus(&usage);
        self.rows = self.rows.saturating_add(rows);
        self.elapsed_us = self.elapsed_us.saturating_add(clock::micros(elapsed));
        self.errors = self.errors.saturating_add(u64::from(failed));
        self.estimated = self.estimated.saturating_add(u64::from(estimated));
    }

    fn wire(self, group: &str) -> v1::StatementRow {
        let Self { charged, usage, .. } = self;
        v1::StatementRow {
            group: group.to_owned(),
            fingerprint: self.template.fingerprint().to_string(),
            kind: self.template.kind().name().to_owned(),
            template: self.template.text().to_owned(),
            calls: self.calls,
            cpu_micro_ru: charged.cpu.0,
            read_micro_ru: charged.read.0,
            write_micro_ru: charged.write.0,
            network_micro_ru: charged.network.0,
            max_micro_ru: self.most.0,
            usage: Some(usage_message(&usage)),
            rows: self.rows,
            elapsed_us: self.elapsed_us,
            waited_us: self.waited_us,
            errors: self.errors,
            throttled: self.throttled,
            estimated: self.estimated,
            first_unix_ms: self.first_unix_ms,
            last_unix_ms: self.last_unix_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_cost_model::SqlDialect;

    use super::*;

    #[test]
    fn rows_add_up_per_template_and_group_and_are_taken_once() {
        let statements = Statements::default();
        let template = |sql: &str| Arc::new(Template::new(SqlDialect::PostgreSql, sql));
        let ran = |cpu, failed| Outcome::Ran {
            charged: RuParts { cpu: Ru(cpu), ..RuParts::default() },
            usage: Usage { cpu_ns: 1, ..Usage::default() },
            rows: 2,
            elapsed: Duration::from_micros(5),
            failed,
            estimated: false,
        };
        let add = |group: &str, sql: &str, outcome| {
            let waited = Duration::from_micros(3);
            let group = &GroupName::new(group).unwrap();
            statements.record(&Record { group, template: &template(sql), outcome, waited });
        };
        add("a", "select 1", ran(10, false));
        add("a", "select 2", ran(30, true));
        add("a", "select 3", Outcome::Throttled);
        add("b", "select 1", ran(1, false));
        let (mut rows, evicted) = statements.take().remove(0);
        rows.sort_by(|a, b| a.group.cmp(&b.group));
        assert_eq!((rows.len(), evicted), (2, 0));
        let row = &rows[0];
        assert_eq!((row.calls, row.cpu_micro_ru, row.max_micro_ru), (2, 40, 30));
        assert_eq!((row.errors, row.throttled, row.rows, row.waited_us, row.elapsed_us), (1, 1, 4, 9, 10));
        assert_eq!(row.template, "SELECT ?");
        assert!(statements.take().is_empty());
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let statements = Statements::default();
        let group = &GroupName::new("g").unwrap();
        for n in 0..=MAX_ROWS {
            let template = Arc::new(Template::new(SqlDialect::PostgreSql, format!("select a{n}")));
            let (outcome, waited) = (Outcome::Throttled, Duration::ZERO);
            statements.record(&Record { group, template: &template, outcome, waited });
        }
        let parts: Vec<_> = statements.take().into_iter().map(|(rows, lost)| (rows.len(), lost)).collect();
        assert_eq!((parts.first(), parts.len()), (Some(&(MAX_REPORT, 1)), MAX_ROWS.div_ceil(MAX_REPORT)));
        assert!(parts.iter().skip(1).all(|(rows, lost)| *rows <= MAX_REPORT && *lost == 0));
        assert_eq!(parts.iter().map(|(rows, _)| rows).sum::<usize>(), MAX_ROWS);
    }

    #[test]
    fn a_row_has_all_that_was_used_and_waited_for_and_when_the_last_statement_ended() {
        let template = Arc::new(Template::new(SqlDialect::PostgreSql, "select 1"));
        let group = &GroupName::new("g").unwrap();
        let mut row = Row::new(Arc::clone(&template), 5);
        let usage = Usage { cpu_ns: 7, read_bytes: 2, ..Usage::default() };
        let charged = RuParts { cpu: Ru(3), read: Ru(5), write: Ru(4), network: Ru(6), ..RuParts::default() };
        let elapsed = Duration::from_micros(20);
        for (now, estimated, failed) in [(5, true, false), (6, false, true), (9, true, false)] {
            let outcome = Outcome::Ran { charged, usage, rows: 8, elapsed, failed, estimated };
            row.add(&Record { group, template: &template, outcome, waited: Duration::from_micros(30) }, now);
        }
        let refused = Duration::from_micros(40);
        row.add(&Record { group, template: &template, outcome: Outcome::Throttled, waited: refused }, 11);
        let told = v1::StatementRow {
            group: "g".into(),
            fingerprint: template.fingerprint().to_string(),
            kind: "select".into(),
            template: "SELECT ?".into(),
            calls: 3,
            cpu_micro_ru: 9,
            read_micro_ru: 15,
            write_micro_ru: 12,
            network_micro_ru: 18,
            max_micro_ru: 18,
            usage: Some(usage_message(&Usage { cpu_ns: 21, read_bytes: 6, ..Usage::default() })),
            rows: 24,
            elapsed_us: 60,
            waited_us: 130,
            errors: 1,
            throttled: 1,
            estimated: 2,
            first_unix_ms: 5,
            last_unix_ms: 11,
        };
        assert_eq!(row.wire("g"), told);
    }

    #[test]
    fn a_template_that_has_a_row_is_counted_when_there_is_no_room_for_others() {
        let statements = Statements::default();
        let group = &GroupName::new("g").unwrap();
        for n in (0..MAX_ROWS).chain([0, MAX_ROWS, 7]) {
            let template = Arc::new(Template::new(SqlDialect::PostgreSql, format!("select a{n}")));
            let (outcome, waited) = (Outcome::Throttled, Duration::ZERO);
            statements.record(&Record { group, template: &template, outcome, waited });
        }
        let parts = statements.take();
        assert_eq!(parts.iter().map(|(_, lost)| lost).sum::<u64>(), 1);
        let counted = parts.iter().flat_map(|(rows, _)| rows).map(|row| row.throttled).sum::<u64>();
        assert_eq!(counted, u64::try_from(MAX_ROWS).unwrap() + 2);
    }
}
