//! Costs of statements, by template and group, over all gateways.
//!
//! Pure: time is Unix milliseconds and an argument. Gateways report their counts since their last report. Gateway,
//! incarnation and number identify a report, and one that is not newer than the last applied of that process is not
//! applied again. Nothing is made of the order of incarnations: they come from clocks, which may have been set back. At
//! most [`MAX_STATEMENTS`] rows are kept, and the least recently reported is dropped first; sums saturate. Nothing is
//! stored: all counts restart with the controller, which is when a repeated report must count again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::units::Ru;
use tidegate_core::usage::{RuParts, Usage};
use tidegate_cost_model::{Fingerprint, StatementKind};

use super::recent::{Range, Recent};
use crate::error::AdminError;
use crate::limits::{MAX_GATEWAYS, MAX_STATEMENTS};
use crate::name::GroupName;
use crate::quantity::cut;

/// One template in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementRow {
    /// The group that was charged.
    pub group: GroupName,
    /// Fingerprint of the template.
    pub fingerprint: Fingerprint,
    /// The sort of statement.
    pub kind: StatementKind,
    /// The template.
    pub template: Arc<str>,
    /// Sums.
    pub sums: Sums,
}

/// Sums over calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Calls that were admitted.
    pub calls: u64,
    /// RU charged, by cause.
    pub charged: RuParts,
    /// The highest charge of one call.
    pub max: Ru,
    /// Resources used.
    pub usage: Usage,
    /// Rows sent or affected.
    pub rows: u64,
    /// Time from admission to the end.
    pub elapsed_us: u64,
    /// Time waiting for admission.
    pub waited_us: u64,
    /// Calls that ended in an error of the server.
    pub errors: u64,
    /// Calls that were not admitted.
    pub throttled: u64,
    /// Calls whose cost was estimated.
    pub estimated: u64,
    /// The first call; 0 when unknown.
    pub first_unix_ms: u64,
    /// The last call.
    pub last_unix_ms: u64,
}

impl Sums {
    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let first = match (self.first_unix_ms, other.first_unix_ms) {
            (0, only) | (only, 0) => only,
            (one, two) => one.min(two),
        };
        Self {
            calls: self.calls.saturating_add(other.calls),
            charged: self.charged.plus(&other.charged),
            max: self.max.max(other.max),
            usage: self.usage.plus(&other.usage),
            rows: self.rows.saturating_add(other.rows),
            elapsed_us: self.elapsed_us.saturating_add(other.elapsed_us),
            waited_us: self.waited_us.saturating_add(other.waited_us),
            errors: self.errors.saturating_add(other.errors),
            throttled: self.throttled.saturating_add(other.throttled),
            estimated: self.estimated.saturating_add(other.estimated),
            first_unix_ms: first,
            last_unix_ms: self.last_unix_ms.max(other.last_unix_ms),
        }
    }

    /// The average charge of one call, rounded down; 0 without calls.
    pub fn average(&self) -> Ru {
        let calls = i64::try_from(self.calls).unwrap_or(i64::MAX);
        Ru(self.charged.total().0.checked_div(calls).unwrap_or_default())
    }
}

/// The order of a list, which starts with the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// RU charged.
    Ru,
    /// RU charged to one call on average.
    AverageRu,
    /// The highest charge of one call.
    MaxRu,
    /// Calls.
    Calls,
    /// Rows.
    Rows,
    /// Time from admission to the end.
    Elapsed,
    /// Time waiting for admission.
    Waited,
    /// Errors of the server.
    Errors,
    /// Calls that were not admitted.
    Throttled,
}

impl Order {
    /// All names, in the order of the variants.
    pub const NAMES: [&'static str; 9] =
        ["ru", "average_ru", "max_ru", "calls", "rows", "elapsed", "waited", "errors", "throttled"];

    /// Reads the name; an empty one means RU.
    pub fn parse(text: &str) -> Result<Self, AdminError> {
        Ok(match text {
            "" | "ru" => Self::Ru,
            "average_ru" => Self::AverageRu,
            "max_ru" => Self::MaxRu,
            "calls" => Self::Calls,
            "rows" => Self::Rows,
            "elapsed" => Self::Elapsed,
            "waited" => Self::Waited,
            "errors" => Self::Errors,
            "throttled" => Self::Throttled,
            _ => {
                let message = format!("{:?} is none of {}", cut(text), Self::NAMES.join(", "));
                return Err(AdminError::invalid("order", message));
            }
        })
    }

    fn of(self, sums: &Sums) -> u64 {
        let ru = |amount: Ru| u64::try_from(amount.0).unwrap_or_default();
        match self {
            Self::Ru => ru(sums.charged.total()),
            Self::AverageRu => ru(sums.average()),
            Self::MaxRu => ru(sums.max),
            Self::Calls => sums.calls,
            Self::Rows => sums.rows,
            Self::Elapsed => sums.elapsed_us,
            Self::Waited => sums.waited_us,
            Self::Errors => sums.errors,
            Self::Throttled => sums.throttled,
        }
    }
}

/// The counts of a gateway since its last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementReport {
    /// Identity of the gateway.
    pub gateway: String,
    /// The number of its start.
    pub incarnation: u64,
    /// Grows from report to report.
    pub seq: u64,
    /// The counts.
    pub rows: Vec<StatementRow>,
    /// Rows that made room for others at the gateway.
    pub evicted: u64,
}

type Key = (GroupName, Fingerprint);
/// A gateway's name and incarnation.
type Process = (String, u64);

#[derive(Debug)]
struct Entry {
    /// Never given twice.
    number: u64,
    kind: StatementKind,
    template: Arc<str>,
    sums: Sums,
    used: u64,
}

/// All rows.
#[derive(Debug)]
pub struct Statistics {
    rows: BTreeMap<Key, Entry>,
    /// The same by spans of time; those of rows that are gone go with their spans.
    recent: Recent,
    /// Rows by the tick of their last report.
    used: BTreeMap<u64, Key>,
    /// The newest report of each process of each gateway, and the tick of its arrival.
    processes: BTreeMap<Process, (u64, u64)>,
    heard: BTreeMap<u64, Process>,
    /// Counts all that happens here: an order without a clock.
    tick: u64,
    evicted: u64,
    since_unix_ms: u64,
}

/// Rows asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementList {
    /// In the order asked for, the most first.
    pub rows: Vec<StatementRow>,
    /// Number of rows of the groups asked for.
    pub total: usize,
    /// Rows that made room for others, here and at gateways.
    pub evicted: u64,
    /// Start of the counts, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
}

fn row((group, fingerprint): &Key, entry: &Entry, sums: Sums) -> StatementRow {
    StatementRow {
        group: group.clone(),
        fingerprint: *fingerprint,
        kind: entry.kind,
        template: Arc::clone(&entry.template),
        sums,
    }
}

impl Statistics {
    /// No rows, counting since `unix_ms`.
    pub fn new(unix_ms: u64) -> Self {
        Self {
            rows: BTreeMap::new(),
            recent: Recent::default(),
            used: BTreeMap::new(),
            processes: BTreeMap::new(),
            heard: BTreeMap::new(),
            tick: 0,
            evicted: 0,
            since_unix_ms: unix_ms,
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows that made room for others, here and at gateways.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Adds a report up that comes at `unix_ms`, unless it, or a later one of the same process, was applied before;
    /// returns whether it did.
    pub fn report(&mut self, report: StatementReport, unix_ms: u64) -> bool {
        let process = (report.gateway, report.incarnation);
        let known = self.processes.get(&process).copied();
        if known.is_some_and(|(seq, _)| report.seq <= seq) {
            return false;
        }
        let tick = self.next_tick();
        match known {
            Some((_, heard)) => drop(self.heard.remove(&heard)),
            None if self.processes.len() >= MAX_GATEWAYS => {
                if let Some((_, silent)) = self.heard.pop_first() {
                    self.processes.remove(&silent);
                }
            }
            None => {}
        }
        self.heard.insert(tick, process.clone());
        self.processes.insert(process, (report.seq, tick));
        self.evicted = self.evicted.saturating_add(report.evicted);
        for row in report.rows {
            self.add(row, unix_ms);
        }
        true
    }

    fn add(&mut self, row: StatementRow, unix_ms: u64) {
        let used = self.next_tick();
        let key = (row.group, row.fingerprint);
        let number = if let Some(entry) = self.rows.get_mut(&key) {
            entry.sums = entry.sums.plus(&row.sums);
            self.used.remove(&entry.used);
            entry.used = used;
            entry.number
        } else {
            if self.rows.len() >= MAX_STATEMENTS
                && let Some((_, least)) = self.used.pop_first()
            {
                self.rows.remove(&least);
                self.evicted = self.evicted.saturating_add(1);
            }
            let entry = Entry { number: used, kind: row.kind, template: row.template, sums: row.sums, used };
            self.rows.insert(key.clone(), entry);
            used
        };
        self.recent.add(unix_ms, number, &row.sums);
        self.used.insert(used, key);
    }

    fn next_tick(&mut self) -> u64 {
        self.tick = self.tick.saturating_add(1);
        self.tick
    }

    /// The rows from place `skip` on, at most `most`, of one group, or of all, in this order, with a group and a template that are wanted: all
    /// that was counted, or what was reported within a range that ends at a moment.
    pub fn list(
        &self,
        group: Option<&GroupName>,
        last: Option<(Range, u64)>,
        (order, skip, most): (Order, usize, usize),
        is_wanted: impl Fn(&GroupName, &str) -> bool,
    ) -> StatementList {
        let within = last.map(|(range, unix_ms)| self.recent.within(range, unix_ms));
        let rows = self.of(group).filter(|((group, _), entry)| is_wanted(group, &entry.template));
        let mut found: Vec<_> = rows
            .filter_map(|(key, entry)| {
                let sums = match &within {
                    Some(within) => *within.sums.get(&entry.number)?,
                    None => entry.sums,
                };
                Some((order.of(&sums), key, entry, sums))
            })
            .collect();
        // The keys are in order, so that equal rows stay in it.
        found.sort_by_key(|(amount, ..)| std::cmp::Reverse(*amount));
        let total = found.len();
        let rows = found
            .into_iter()
            .skip(skip)
            .take(most)
            .map(|(_, key, entry, sums)| row(key, entry, sums))
            .collect();
        let since_unix_ms = within.map_or(0, |within| within.since_unix_ms).max(self.since_unix_ms);
        StatementList { rows, total, evicted: self.evicted, since_unix_ms }
    }

    /// One row.
    pub fn get(&self, group: &GroupName, fingerprint: Fingerprint) -> Option<StatementRow> {
        let key = (group.clone(), fingerprint);
        self.rows.get(&key).map(|entry| row(&key, entry, entry.sums))
    }

    /// The sums of one row within a range that ends at `unix_ms`, by the start of their minutes, or hours for a day.
    pub fn history(
        &self,
        group: &GroupName,
        fingerprint: Fingerprint,
        (range, unix_ms): (Range, u64),
    ) -> Vec<(u64, Sums)> {
        let entry = self.rows.get(&(group.clone(), fingerprint));
        entry.map_or_else(Vec::new, |entry| self.recent.history(entry.number, range, unix_ms))
    }

    fn of(&self, group: Option<&GroupName>) -> impl Iterator<Item = (&Key, &Entry)> {
        let from = group.map_or_else(|| None, |group| Some((group.clone(), Fingerprint(0))));
        let rows = match &from {
            Some(from) => self.rows.range(from..),
            None => self.rows.range::<Key, _>(..),
        };
        let group = group.cloned();
        rows.take_while(move |((of, _), _)| group.as_ref().is_none_or(|group| of == group))
    }

    /// Restarts the counts at `unix_ms`, or drops the rows of one group only; returns the number of rows dropped.
    pub fn reset(&mut self, group: Option<&GroupName>, unix_ms: u64) -> usize {
        let keys: Vec<(Key, u64)> = self.of(group).map(|(key, entry)| (key.clone(), entry.used)).collect();
        for (key, used) in &keys {
            self.rows.remove(key);
            self.used.remove(used);
        }
        if group.is_none() {
            (self.evicted, self.since_unix_ms) = (0, unix_ms);
            self.recent = Recent::default();
        }
        keys.len()
    }
}

#[cfg(test)]
mod bounds_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupName {
        GroupName::parse(name).unwrap()
    }

    fn row(of: &str, fingerprint: u64, sums: Sums) -> StatementRow {
        StatementRow {
            group: group(of),
            fingerprint: Fingerprint(fingerprint),
            kind: StatementKind::Select,
            template: "SELECT ?".into(),
            sums,
        }
    }

    fn calls(calls: u64) -> Sums {
        Sums { calls, ..Sums::default() }
    }

    fn report(incarnation: u64, seq: u64, rows: Vec<StatementRow>) -> StatementReport {
        StatementReport { gateway: "gw".into(), incarnation, seq, rows, evicted: 2 }
    }

    /// All that was counted.
    fn list(statements: &Statistics, order: Order, most: usize) -> StatementList {
        statements.list(None, None, (order, 0, most), |_, _| true)
    }

    fn listed(statements: &Statistics, order: Order) -> Vec<u64> {
        list(statements, order, 10).rows.iter().map(|row| row.fingerprint.0).collect()
    }

    #[test]
    fn a_report_is_applied_once_whatever_the_clocks_of_its_process_and_of_others_say() {
        let mut statements = Statistics::new(7);
        let one = || vec![row("a", 1, calls(3))];
        for (incarnation, seq, applied) in [
            (5, 1, true),
            (5, 1, false),
            (5, 3, true),
            (5, 2, false),
            (6, 1, true),
            (5, 3, false),
            // Started after its machine's clock was set back, or another one of this name.
            (4, 1, true),
            (4, 1, false),
            (6, 1, false),
            (5, 4, true),
        ] {
            assert_eq!(statements.report(report(incarnation, seq, one()), 0), applied, "{incarnation} {seq}");
        }
        let list = list(&statements, Order::Ru, 10);
        assert_eq!((list.rows[0].sums.calls, list.total, list.evicted, list.since_unix_ms), (15, 1, 10, 7));
    }

    #[test]
    fn sums_are_added_part_by_part_and_never_overflow() {
        let one = Sums {
            calls: 2,
            charged: RuParts { cpu: Ru(1), read: Ru(2), write: Ru(3), network: Ru(4), flat: Ru(0) },
            max: Ru(6),
            usage: Usage { cpu_ns: 7, ..Usage::default() },
            rows: 8,
            elapsed_us: 9,
            waited_us: 10,
            errors: 11,
            throttled: 12,
            estimated: 13,
            first_unix_ms: 14,
            last_unix_ms: 15,
        };
        let both = one.plus(&Sums { max: Ru(5), first_unix_ms: 0, last_unix_ms: 20, ..one });
        assert_eq!((both.charged.total(), both.max, both.usage.cpu_ns), (Ru(20), Ru(6), 14));
        assert_eq!((both.first_unix_ms, both.last_unix_ms, both.rows, both.errors), (14, 20, 16, 22));
        assert_eq!((both.average(), Sums::default().average()), (Ru(5), Ru::ZERO));
        let most = Sums { calls: u64::MAX, elapsed_us: u64::MAX, max: Ru(i64::MAX), ..one };
        assert_eq!(most.plus(&most).calls, u64::MAX);
    }

    #[test]
    fn lists_are_ordered_filtered_and_cut() {
        let mut statements = Statistics::new(0);
        let flat = |cpu, calls, max| Sums {
            charged: RuParts { cpu: Ru(cpu), ..RuParts::default() },
            max: Ru(max),
            calls,
            ..Sums::default()
        };
        let rows = vec![
            row("a", 1, flat(100, 50, 7)),
            row("a", 2, flat(90, 1, 8)),
            row("b", 3, flat(10, 60, 9)),
            row("b", 4, flat(10, 60, 9)),
        ];
        statements.report(report(1, 1, rows), 0);
        assert_eq!(listed(&statements, Order::Ru), [1, 2, 3, 4]);
        assert_eq!(listed(&statements, Order::AverageRu), [2, 1, 3, 4]);
        assert_eq!(listed(&statements, Order::MaxRu), [3, 4, 2, 1]);
        assert_eq!(listed(&statements, Order::Calls), [3, 4, 1, 2]);
        let of_b = statements.list(Some(&group("b")), None, (Order::Ru, 0, 1), |_, _| true);
        assert_eq!((of_b.rows.len(), of_b.total, of_b.rows[0].fingerprint), (1, 2, Fingerprint(3)));
        assert_eq!(Order::parse("size").unwrap_err().field(), Some("order"));
        for name in Order::NAMES {
            Order::parse(name).unwrap();
        }
    }

    #[test]
    fn rows_go_by_reset_and_by_group() {
        let mut statements = Statistics::new(0);
        let rows = vec![row("a", 1, calls(1)), row("b", 2, calls(1)), row("ab", 3, calls(1))];
        statements.report(report(1, 1, rows), 0);
        assert_eq!(statements.reset(Some(&group("a")), 9), 1);
        assert_eq!(listed(&statements, Order::Ru), [3, 2]);
        assert_eq!(list(&statements, Order::Ru, 1).since_unix_ms, 0);
        assert_eq!(statements.reset(None, 9), 2);
        let list = list(&statements, Order::Ru, 1);
        assert_eq!((list.total, list.evicted, list.since_unix_ms), (0, 0, 9));
        assert!(statements.used.is_empty());
        assert!(
            !statements.report(report(1, 1, vec![row("a", 1, calls(1))]), 0),
            "a reset applies no report again"
        );
    }

    #[test]
    fn rows_and_gateways_are_bounded() {
        let mut statements = Statistics::new(0);
        let most = u64::try_from(MAX_STATEMENTS).unwrap();
        let rows = (0..most).map(|number| row("a", number, calls(1))).collect();
        statements.report(StatementReport { evicted: 0, ..report(1, 1, rows) }, 0);
        let again = vec![row("a", 0, calls(1)), row("a", most, calls(1)), row("b", most, calls(1))];
        statements.report(StatementReport { evicted: 0, ..report(1, 2, again) }, 0);
        let list = list(&statements, Order::Ru, MAX_STATEMENTS);
        assert_eq!((list.total, list.evicted, statements.used.len()), (MAX_STATEMENTS, 2, MAX_STATEMENTS));
        let gone: Vec<u64> =
            (0..4).filter(|number| list.rows.iter().all(|row| row.fingerprint.0 != *number)).collect();
        assert_eq!(gone, [1, 2]);
        for number in 0..MAX_GATEWAYS {
            let gateway = format!("g{number}");
            statements.report(StatementReport { gateway, ..report(1, 1, Vec::new()) }, 0);
        }
        assert_eq!((statements.processes.len(), statements.heard.len()), (MAX_GATEWAYS, MAX_GATEWAYS));
        assert!(statements.report(report(1, 2, Vec::new()), 0), "the longest silent process is forgotten");
    }

    #[test]
    fn a_range_counts_what_came_in_it_of_rows_that_are_there() {
        let mut statements = Statistics::new(0);
        const HOUR: u64 = 3_600_000;
        statements.report(report(1, 1, vec![row("a", 1, calls(5)), row("a", 2, calls(1))]), 30 * HOUR);
        statements.report(report(1, 2, vec![row("a", 1, calls(2)), row("b", 3, calls(4))]), 40 * HOUR);
        let within = |statements: &Statistics, range, now: u64| {
            let list = statements.list(None, Some((range, now)), (Order::Calls, 0, 10), |_, _| true);
            let rows: Vec<_> = list.rows.iter().map(|row| (row.fingerprint.0, row.sums.calls)).collect();
            (rows, list.total, list.since_unix_ms)
        };
        assert_eq!(within(&statements, Range::Hour, 40 * HOUR), (vec![(3, 4), (1, 2)], 2, 39 * HOUR));
        assert_eq!(within(&statements, Range::Day, 40 * HOUR), (vec![(1, 7), (3, 4), (2, 1)], 3, 16 * HOUR));
        assert_eq!(within(&statements, Range::Minutes, 41 * HOUR).0, []);
        let history = statements.history(&group("a"), Fingerprint(1), (Range::Day, 40 * HOUR));
        assert_eq!(history, [(30 * HOUR, calls(5)), (40 * HOUR, calls(2))]);
        // Of rows that were dropped nothing is left, and it is not that of the next ones of the name.
        statements.reset(Some(&group("a")), 40 * HOUR);
        statements.report(report(1, 3, vec![row("a", 1, calls(1))]), 40 * HOUR);
        assert_eq!(within(&statements, Range::Day, 40 * HOUR).0, [(3, 4), (1, 1)]);
        statements.reset(None, 40 * HOUR + 7);
        assert_eq!(within(&statements, Range::Day, 41 * HOUR), (vec![], 0, 40 * HOUR + 7));
    }
}
