//! The demo's verdict: was every bound held, and is every charge in the ledger.
//!
//! In: the plan, the changes of caps, the merged logs, the accounts of nodes and controller. Out: rows with units in
//! their names, as JSON or as tables. A group's bound is its burst plus the debt that each start of each node may run
//! up in it and the groups below it. What one's own statements cost is not known before, so the node that runs them may
//! owe its largest surcharge. After a lowered cap the old rate counts until the last old lease has ended.

use serde::Serialize;
use tidegate_core::bound::Bound;
use tidegate_core::units::{Rate, Ru, RuTotal, Span, Time};

use super::evidence::{Event, Evidence};
use super::ledger::LedgerRow;
use super::plan::Plan;
use super::takeover::Takeover;
use crate::page::Page;
use crate::table::{Cell, Column, Table, Tone};
use crate::view::{ConsumptionView, total_text};
use tidegate_controller::quantity::Count;

/// Name of the row for the whole server.
const SERVER: &str = "(server)";
/// Templates listed.
const TOP: usize = 8;
/// Longest statement text in a table.
const TEXT: usize = 84;

/// Everything the verdict rests on.
pub(crate) struct Findings<'a> {
    pub(crate) plan: &'a Plan,
    /// Begin and end on the machine's clock.
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
    /// Caps as they were set, and from when on they bind.
    pub(crate) changes: &'a [CapChange],
    pub(crate) evidence: &'a mut Evidence,
    /// The part of it that is one's own statements.
    pub(crate) own: &'a Evidence,
    /// How many times nodes were started.
    pub(crate) starts: u32,
    pub(crate) consumed: &'a [(String, ConsumptionView)],
    pub(crate) ledger: Vec<LedgerRow>,
    /// Statement text by fingerprint.
    pub(crate) texts: &'a dyn Fn(u64) -> Option<String>,
    pub(crate) failed_statements: u64,
    pub(crate) takeover: Option<Takeover>,
}

/// A cap that was changed while running.
#[derive(Clone, Debug)]
pub(crate) struct CapChange {
    pub(crate) group: &'static str,
    pub(crate) from: Rate,
    pub(crate) to: Rate,
    /// The controller had it in force at this time at the latest.
    pub(crate) at_us: u64,
    /// Longest time that leases of the old rate may still count.
    pub(crate) grace: Span,
}

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seconds: f64,
    pub(crate) bounds_held: bool,
    pub(crate) ledger_equal: bool,
    pub(crate) groups: Vec<GroupRow>,
    pub(crate) top_templates: Vec<TemplateRow>,
    pub(crate) ledger: Vec<LedgerRow>,
    pub(crate) node_starts: u32,
    pub(crate) failed_statements: u64,
    /// With several controllers.
    pub(crate) takeover: Option<Takeover>,
}

/// A group, or the server.
#[derive(Debug, Serialize)]
pub(crate) struct GroupRow {
    pub(crate) group: String,
    /// RU/s, with a change as `old -> new`.
    pub(crate) cap: String,
    pub(crate) admitted_ru_per_sec: f64,
    /// The worst excess in any window of any length.
    pub(crate) worst_excess_micro_ru: i64,
    pub(crate) worst_window_us: u64,
    pub(crate) burst_micro_ru: i64,
    /// Debts of all starts of all nodes.
    pub(crate) overrun_micro_ru: i64,
    pub(crate) bound_micro_ru: i64,
    pub(crate) held: bool,
    pub(crate) operations: u64,
    pub(crate) refused: u64,
    pub(crate) wait_p50_us: u64,
    pub(crate) wait_p99_us: u64,
    pub(crate) cpu_micro_ru: Count,
    pub(crate) io_micro_ru: Count,
    pub(crate) network_micro_ru: Count,
}

/// A statement without its literals.
#[derive(Debug, Serialize)]
pub(crate) struct TemplateRow {
    pub(crate) fingerprint: String,
    pub(crate) group: String,
    pub(crate) micro_ru: i64,
    pub(crate) runs: u64,
    pub(crate) text: String,
}

impl Report {
    /// Judges.
    pub(crate) fn new(findings: Findings<'_>) -> Self {
        let span_us = findings.to_us.saturating_sub(findings.from_us).max(1);
        let mut groups: Vec<GroupRow> =
            findings.plan.groups.iter().map(|group| group.name).chain([SERVER]).map(named).collect();
        let events = findings.evidence.events().to_vec();
        for row in &mut groups {
            judge(row, &findings, &events, span_us);
        }
        let template = |(fingerprint, group, micro_ru, runs): (u64, String, i64, u64)| TemplateRow {
            fingerprint: format!("{fingerprint:016x}"),
            group,
            micro_ru,
            runs,
            text: (findings.texts)(fingerprint).unwrap_or_default(),
        };
        Self {
            seconds: seconds(span_us),
            bounds_held: groups.iter().all(|row| row.held),
            ledger_equal: findings.ledger.iter().all(|row| row.equal),
            top_templates: findings.evidence.top_templates(TOP).into_iter().map(template).collect(),
            groups,
            ledger: findings.ledger,
            node_starts: findings.starts,
            failed_statements: findings.failed_statements,
            takeover: findings.takeover,
        }
    }

    /// Every bound was held and every charge is accounted for.
    pub(crate) fn passed(&self) -> bool {
        self.bounds_held && self.ledger_equal
    }

    /// For people.
    pub(crate) fn page(&self) -> Page {
        let verdict = match (self.bounds_held, self.ledger_equal) {
            (true, true) => "every bound held, and every micro-RU charged on the nodes is in the ledger",
            (false, true) => "FAILED: a bound was exceeded",
            (true, false) => "FAILED: the ledger differs from what the nodes charged",
            (false, false) => {
                "FAILED: a bound was exceeded, and the ledger differs from what the nodes charged"
            }
        };
        let heading = format!(
            "tidegate demo: {:.1} s, {} starts of nodes, {} failed statements",
            self.seconds, self.node_starts, self.failed_statements
        );
        let bounds = "\nCaps: the most admitted above rate x time in any window, against burst + debt";
        let ledger = "\nLedger: charged on the nodes (killed one included) and in the controller";
        Page::from(heading)
            .then(bounds)
            .then(self.bounds())
            .then("\nWhat it was spent on")
            .then(self.parts())
            .then("\nDearest statements")
            .then(self.templates())
            .then(ledger)
            .then(self.accounts())
            .then(self.takeover.as_ref().map(Takeover::text).unwrap_or_default())
            .then("")
            .then(verdict)
    }

    fn bounds(&self) -> Table {
        let mut table = Table::new([
            Column::name("GROUP"),
            Column::number("CAP (RU/s)"),
            Column::number("ADMITTED (RU/s)").leaves(4),
            Column::number("WORST EXCESS (RU)"),
            Column::number("BOUND (RU)"),
            Column::number("OF BOUND").leaves(1),
            Column::word("HELD"),
            Column::number("WAIT p50 (ms)").leaves(3),
            Column::number("WAIT p99 (ms)").leaves(2),
            Column::number("OPS").leaves(3),
            Column::number("REFUSED"),
        ]);
        for row in &self.groups {
            let share = row.worst_excess_micro_ru.saturating_mul(100).checked_div(row.bound_micro_ru);
            table.cells([
                row.group.clone().into(),
                row.cap.clone().into(),
                format!("{:.0}", row.admitted_ru_per_sec).into(),
                whole(row.worst_excess_micro_ru).into(),
                whole(row.bound_micro_ru).into(),
                share.map(|percent| format!("{percent}%")).unwrap_or_default().into(),
                if row.held { "yes".into() } else { Cell::new("NO", Tone::Bad) },
                millis(row.wait_p50_us).into(),
                millis(row.wait_p99_us).into(),
                row.operations.to_string().into(),
                Cell::warns(row.refused.into()),
            ]);
        }
        table
    }

    fn parts(&self) -> Table {
        let mut table = Table::new(["GROUP", ">CPU (RU)", ">IO (RU)", ">NETWORK (RU)"]);
        for row in self.groups.iter().filter(|row| row.group != SERVER) {
            table.row([
                row.group.clone(),
                whole(RuTotal(row.cpu_micro_ru.0).clamped().0),
                whole(RuTotal(row.io_micro_ru.0).clamped().0),
                tenths(RuTotal(row.network_micro_ru.0).clamped().0),
            ]);
        }
        table
    }

    fn templates(&self) -> Table {
        let mut table = Table::new(["GROUP", ">RU", ">RUNS", ">RU/RUN", "STATEMENT"]);
        for row in &self.top_templates {
            let each = i64::try_from(row.runs).ok().and_then(|runs| row.micro_ru.checked_div(runs));
            let text: String = row.text.split_whitespace().collect::<Vec<_>>().join(" ");
            let cut = if text.chars().count() > TEXT { " .." } else { "" };
            table.row([
                row.group.clone(),
                whole(row.micro_ru),
                row.runs.to_string(),
                each.map(tenths).unwrap_or_default(),
                format!("{}{cut}", text.chars().take(TEXT).collect::<String>()),
            ]);
        }
        table
    }

    fn accounts(&self) -> Table {
        let mut table = Table::new(["GROUP", ">NODES (RU)", ">CONTROLLER (RU)", "EQUAL"]);
        for row in &self.ledger {
            table.row([
                row.group.clone(),
                total_text(row.nodes_micro_ru),
                total_text(row.controller_micro_ru),
                if row.equal { "yes" } else { "NO" }.to_owned(),
            ]);
        }
        table
    }
}

fn named(group: &str) -> GroupRow {
    GroupRow {
        group: group.to_owned(),
        cap: String::new(),
        admitted_ru_per_sec: 0.0,
        worst_excess_micro_ru: 0,
        worst_window_us: 0,
        burst_micro_ru: 0,
        overrun_micro_ru: 0,
        bound_micro_ru: 0,
        held: false,
        operations: 0,
        refused: 0,
        wait_p50_us: 0,
        wait_p99_us: 0,
        cpu_micro_ru: Count(0),
        io_micro_ru: Count(0),
        network_micro_ru: Count(0),
    }
}

/// Fills a row.
fn judge(row: &mut GroupRow, findings: &Findings<'_>, events: &[Event], span_us: u64) {
    let plan = findings.plan;
    let name = row.group.clone();
    let within = |group: &str| {
        if name == SERVER { plan.group(group).is_some() } else { plan.counts_for(group, &name) }
    };
    let (rate, burst) = match plan.group(&name) {
        Some(group) => (group.cap(), group.burst),
        None => (plan.capacity, plan.capacity.over(Span::secs(1))),
    };
    let change = findings.changes.iter().find(|change| change.group == name);
    let mut lowered = None;
    row.cap = rate.number().to_string();
    if let Some(change) = change {
        let counts_until =
            change.at_us.saturating_add(if change.to < change.from { change.grace.0 } else { 0 });
        lowered = Some((Time(counts_until.max(findings.from_us)), change.to));
        row.cap = format!("{} -> {}", change.from.number(), change.to.number());
    }
    let mut bound = Bound::new(Time(findings.from_us), rate);
    let mut admitted = Ru::ZERO;
    for event in events.iter().filter(|event| within(&event.group)) {
        let at = Time(event.at_us);
        if let Some((from, rate)) = lowered.take_if(|(from, _)| *from <= at) {
            bound.set_rate(from, rate);
        }
        bound.admit(at, event.amount);
        admitted += event.amount;
    }
    let groups = || plan.groups.iter().filter(|group| within(group.name));
    let debts: Ru = groups().map(|group| group.max_debt).sum();
    let own: Ru = groups().map(|group| findings.own.largest_surcharge(group.name)).sum();
    let overrun = debts.scale(i64::from(findings.starts), 1) + own;
    row.admitted_ru_per_sec = micros(admitted) / seconds(span_us);
    row.worst_excess_micro_ru = bound.worst().0;
    row.worst_window_us = bound.worst_window().0;
    row.burst_micro_ru = burst.0;
    row.overrun_micro_ru = overrun.0;
    row.bound_micro_ru = (burst + overrun).0;
    row.held = bound.worst() <= burst + overrun;
    let of = findings.evidence.group(&name);
    (row.operations, row.refused) = (of.admitted, of.refused);
    (row.wait_p50_us, row.wait_p99_us) = (of.wait_us(0.5), of.wait_us(0.99));
    if let Some((_, consumed)) = findings.consumed.iter().find(|(group, _)| *group == name) {
        row.cpu_micro_ru = consumed.cpu_micro_ru;
        row.io_micro_ru = Count(consumed.read_micro_ru.0 + consumed.write_micro_ru.0);
        row.network_micro_ru = consumed.network_micro_ru;
    }
    if name == SERVER {
        let all = plan.groups.iter().map(|group| findings.evidence.group(group.name));
        (row.operations, row.refused) =
            all.fold((0, 0), |(ops, refused), of| (ops + of.admitted, refused + of.refused));
    }
}

/// Whole RU, rounded to the nearest.
fn whole(micro_ru: i64) -> String {
    (micro_ru.saturating_add(500_000).div_euclid(1_000_000)).to_string()
}

/// RU to a tenth, cut.
fn tenths(micro_ru: i64) -> String {
    format!("{}.{}", micro_ru / 1_000_000, micro_ru % 1_000_000 / 100_000)
}

fn millis(us: u64) -> String {
    format!("{}.{}", us / 1_000, us % 1_000 / 100)
}

fn seconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64()
}

/// RU for display.
fn micros(ru: Ru) -> f64 {
    ru.0 as f64 / 1_000_000.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::calibrate::{Calibration, JobCost};
    use super::super::job::Job;
    use super::*;

    const S: u64 = 1_000_000;

    fn plan() -> Plan {
        let cost = JobCost { mean: Ru::whole(10), largest: Ru::whole(20), cpu_ns: 1_000_000 };
        let costs = Calibration { jobs: Job::ALL.map(|job| (job, cost)).into(), statements: vec![] };
        Plan::new(&costs, 30, super::super::plan::TTL)
    }

    /// A report on `log`, of one start of one node over ten seconds.
    fn report(plan: &Plan, log: &str, changes: &[CapChange], ledger: Vec<LedgerRow>) -> Report {
        let mut evidence = Evidence::default();
        evidence.add(log).unwrap();
        let texts: BTreeMap<u64, String> = [(255, "SELECT ?".to_owned())].into();
        Report::new(Findings {
            plan,
            from_us: 0,
            to_us: 10 * S,
            changes,
            evidence: &mut evidence,
            own: &Evidence::default(),
            starts: 1,
            consumed: &[],
            ledger,
            texts: &|fingerprint| texts.get(&fingerprint).cloned(),
            failed_statements: 0,
            takeover: None,
        })
    }

    fn text(report: &Report) -> String {
        report.page().lines(&crate::screen::Screen::default(), false).join("\n")
    }

    fn row<'r>(report: &'r Report, group: &str) -> &'r GroupRow {
        report.groups.iter().find(|row| row.group == group).unwrap()
    }

    #[test]
    fn a_group_may_use_its_burst_and_its_debt_and_not_a_millionth_more() {
        let plan = plan();
        let shop = plan.group("shop").unwrap();
        let most = (shop.burst + shop.max_debt).0;
        let log =
            |amount: i64| format!("A {S} shop {amount} 0\nS {S} shop 0 {amount} 00000000000000ff:{amount}\n");
        let held = report(&plan, &log(most), &[], vec![]);
        assert!(held.passed() && row(&held, "shop").bound_micro_ru == most, "{held:?}");
        assert_eq!(held.top_templates[0].text, "SELECT ?");
        assert!(text(&held).contains("every bound held"));
        let passed = report(&plan, &log(most + 1), &[], vec![]);
        assert!(!passed.bounds_held && !row(&passed, "shop").held);
        assert!(text(&passed).contains("FAILED: a bound was exceeded"), "{}", text(&passed));
    }

    #[test]
    fn a_child_counts_for_its_parent_and_everything_for_the_server() {
        let plan = plan();
        let log = "A 1 analytics 5000000 0\nA 2 dashboards 3000000 0\nA 3 shop 1000000 0\nR 4 shop 9\n";
        let report = report(&plan, log, &[], vec![]);
        let admitted = |group: &str| row(&report, group).admitted_ru_per_sec;
        let seen = ["dashboards", "analytics", "shop", "batch", SERVER].map(admitted);
        assert_eq!(seen, [0.3, 0.8, 0.1, 0.0, 0.9]);
        assert_eq!((row(&report, SERVER).operations, row(&report, SERVER).refused), (3, 1));
    }

    #[test]
    fn after_a_lowered_cap_the_old_rate_counts_for_one_lease() {
        let plan = plan();
        let shop = plan.group("shop").unwrap();
        let change =
            CapChange { group: "shop", from: shop.rate, to: Rate(0), at_us: 5 * S, grace: Span::secs(2) };
        // The burst at once, then the old rate, a second at a time, until `end`.
        let log = |end: u64| {
            let later = (1..=end).map(|second| format!("A {} shop {} 0\n", second * S, shop.rate.0));
            format!("A 0 shop {} 0\n", shop.burst.0) + &later.collect::<String>()
        };
        let debt = shop.max_debt.0;
        let judged = |end: u64| {
            let report = report(&plan, &log(end), std::slice::from_ref(&change), vec![]);
            (row(&report, "shop").worst_excess_micro_ru - shop.burst.0, row(&report, "shop").held)
        };
        assert_eq!(judged(7), (0, true));
        assert_eq!(judged(8), (shop.rate.0, shop.rate.0 <= debt));
    }

    #[test]
    fn a_ledger_that_differs_fails_the_demo() {
        let differs = LedgerRow {
            group: "shop".to_owned(),
            nodes_micro_ru: Count(1),
            controller_micro_ru: Count(2),
            equal: false,
        };
        let report = report(&plan(), "", &[], vec![differs]);
        assert!(report.bounds_held && !report.passed());
        assert!(text(&report).contains("0.000001"), "{}", text(&report));
    }
}
