//! What the admission logs of all nodes say together: events in time order, waits, and charges by template.

use std::collections::BTreeMap;
use std::path::Path;

use hdrhistogram::Histogram;
use tidegate_core::units::Ru;

use crate::error::CliError;
use crate::node::LogLine;

/// Longest wait that the histogram distinguishes, in microseconds: ten minutes.
const MAX_WAIT_US: u64 = 600_000_000;

/// Tokens taken, or given back when negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at_us: u64,
    pub(crate) group: String,
    pub(crate) amount: Ru,
}

/// Logs, merged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    events: Vec<Event>,
    groups: BTreeMap<String, GroupEvidence>,
    /// Micro-RU and runs by template and group.
    templates: BTreeMap<(u64, String), (i64, u64)>,
    surcharges: BTreeMap<String, Ru>,
    /// When operations were admitted.
    admitted: Vec<u64>,
}

/// What the logs say of one group.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupEvidence {
    /// Waits of admitted operations, in microseconds, zero included.
    waits: Option<Histogram<u64>>,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) charged_micro_ru: i64,
}

impl GroupEvidence {
    /// The wait that this share (0 to 1) of the admitted operations did not pass, in microseconds.
    pub(crate) fn wait_us(&self, share: f64) -> u64 {
        self.waits.as_ref().map(|waits| waits.value_at_quantile(share)).unwrap_or_default()
    }
}

impl Evidence {
    /// Adds the log of one start of a node.
    pub(crate) fn read(&mut self, path: &Path) -> Result<(), CliError> {
        let text = std::fs::read(path).map_err(CliError::file("read the admission log", path))?;
        self.add(&String::from_utf8_lossy(&text))
            .map_err(|message| CliError::Content { path: path.into(), message })
    }

    /// Adds a log. A last line without a newline was torn by a kill and is left out.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
        for (number, line) in whole.lines().enumerate() {
            let parsed = LogLine::parse(line);
            self.take(
                parsed
                    .ok_or_else(|| format!("line {} is no line of an admission log: {line:?}", number + 1))?,
            );
        }
        Ok(())
    }

    fn take(&mut self, line: LogLine) {
        match line {
            LogLine::Admitted { at_us, group, estimate, waited_us } => {
                let of = self.groups.entry(group.clone()).or_default();
                of.admitted = of.admitted.saturating_add(1);
                of.waited(waited_us);
                self.admitted.push(at_us);
                self.event(at_us, group, estimate);
            }
            LogLine::Settled { at_us, group, correction, charge, templates } => {
                let of = self.groups.entry(group.clone()).or_default();
                of.charged_micro_ru = of.charged_micro_ru.saturating_add(charge);
                let largest = self.surcharges.entry(group.clone()).or_default();
                *largest = (*largest).max(Ru(correction));
                for (fingerprint, ru) in templates {
                    let sum = self.templates.entry((fingerprint, group.clone())).or_default();
                    *sum = (sum.0.saturating_add(ru), sum.1.saturating_add(1));
                }
                self.event(at_us, group, correction);
            }
            LogLine::Refused { group, .. } => {
                let of = self.groups.entry(group).or_default();
                of.refused = of.refused.saturating_add(1);
            }
        }
    }

    fn event(&mut self, at_us: u64, group: String, amount: i64) {
        self.events.push(Event { at_us, group, amount: Ru(amount) });
    }

    /// The most that one operation cost above its estimate in `group`. A node that runs one operation at a time never
    /// owes more than that, since it pays before the next.
    pub(crate) fn largest_surcharge(&self, group: &str) -> Ru {
        self.surcharges.get(group).copied().unwrap_or_default()
    }

    /// All events in time order; those of one log keep their order.
    pub(crate) fn events(&mut self) -> &[Event] {
        self.events.sort_by_key(|event| event.at_us);
        &self.events
    }

    /// When operations were admitted, log by log.
    pub(crate) fn admitted(&self) -> &[u64] {
        &self.admitted
    }

    /// What the logs say of `group`.
    pub(crate) fn group(&self, group: &str) -> GroupEvidence {
        self.groups.get(group).cloned().unwrap_or_default()
    }

    /// Fingerprint, group, micro-RU and runs of the dearest templates.
    pub(crate) fn top_templates(&self, count: usize) -> Vec<(u64, String, i64, u64)> {
        let row = |((fingerprint, group), (ru, runs)): (&(u64, String), &(i64, u64))| {
            (*fingerprint, group.clone(), *ru, *runs)
        };
        let mut rows: Vec<_> = self.templates.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.2));
        rows.truncate(count);
        rows
    }
}

impl GroupEvidence {
    fn waited(&mut self, waited_us: u64) {
        if self.waits.is_none() {
            self.waits = Histogram::new_with_bounds(1, MAX_WAIT_US, 3).ok();
        }
        if let Some(waits) = &mut self.waits {
            waits.saturating_record(waited_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_merged_in_time_and_torn_tails_left_out() {
        let mut evidence = Evidence::default();
        evidence.add("A 10 shop 70 0\nS 30 shop -20 50 00000000000000ff:50\nA 40 shop 7").unwrap();
        evidence.add("A 20 shop 5 3000\nR 25 shop 9\nA 26 batch 1 0\n").unwrap();
        evidence.add("A 5").unwrap();
        evidence.add("").unwrap();
        let seen: Vec<_> = evidence.events().iter().map(|event| (event.at_us, event.amount.0)).collect();
        assert_eq!(seen, [(10, 70), (20, 5), (26, 1), (30, -20)]);
        let shop = evidence.group("shop");
        assert_eq!((shop.admitted, shop.refused, shop.charged_micro_ru), (2, 1, 50));
        assert!((2_990..=3_010).contains(&shop.wait_us(0.99)), "{}", shop.wait_us(0.99));
        assert_eq!(evidence.top_templates(5), [(255, "shop".to_owned(), 50, 1)]);
        assert_eq!(evidence.largest_surcharge("shop"), Ru::ZERO);
        evidence.add("S 50 shop 9 79 -\n").unwrap_err();
        evidence.add("S 50 shop 9 79 \nS 51 shop 4 74 \n").unwrap();
        assert_eq!(evidence.largest_surcharge("shop"), Ru(9));
        assert_eq!(evidence.group("none").wait_us(0.5), 0);
    }

    #[test]
    fn the_dearest_templates_come_first_each_by_its_group() {
        let mut evidence = Evidence::default();
        let [one, two] = ["00000000000000ff", "0000000000000001"];
        evidence.add(&format!("S 1 shop 0 9 {one}:4,{two}:5\nS 2 batch 3 7 {one}:7\n")).unwrap();
        evidence.add(&format!("S 3 shop -5 6 {one}:6\nR 4 trial 1\nA 5 shop 1 200\nA 6 shop 1 0\n")).unwrap();
        let row = |fingerprint, group: &str, ru, runs| (fingerprint, group.to_owned(), ru, runs);
        let rows = [row(255, "shop", 10, 2), row(255, "batch", 7, 1), row(1, "shop", 5, 1)];
        assert_eq!(evidence.top_templates(9), rows);
        assert_eq!(evidence.top_templates(2), rows[..2]);
        let largest = ["shop", "batch", "none"].map(|group| evidence.largest_surcharge(group).0);
        assert_eq!(largest, [0, 3, 0], "what another group cost above its estimate is not one's own");
        assert_eq!(evidence.admitted(), [5, 6]);
        let shop = evidence.group("shop");
        assert_eq!((shop.admitted, shop.refused, shop.charged_micro_ru), (2, 0, 15));
        assert_eq!((shop.wait_us(0.5), shop.wait_us(1.0)), (0, 200));
        assert_eq!((evidence.group("trial").refused, evidence.group("trial").admitted), (1, 0));
    }

    #[test]
    fn a_broken_line_within_a_log_is_an_error() {
        let error = Evidence::default().add("A 10 shop 70 0\nnonsense\nA 11 shop 1 0\n").unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }
}
