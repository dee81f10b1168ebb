//! The demo while it runs: a table that is drawn again each second, or one line a second without a terminal.

use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal as _, Write as _, stderr};

use tidegate_core::units::{Rate, RuTotal};

use crate::clock::monotonic_us;
use crate::output::note;
use crate::page::Page;
use crate::sample::GroupSample;
use crate::screen::Screen;
use crate::top::{table, whole};

/// Samples over which the admitted rate is shown; the controller's own figure looks back longer than a cap that was
/// just lowered should.
const LOOK_BACK: usize = 3;

/// Shows samples and events on the standard error; the report alone goes to the standard output.
#[derive(Debug)]
pub(crate) struct Progress {
    redraw: bool,
    /// Lines of the table that is on the screen.
    drawn: usize,
    /// Totals by group, newest last.
    before: VecDeque<(u64, BTreeMap<String, u128>)>,
}

impl Progress {
    /// Redraws when the standard error is a terminal.
    pub(crate) fn new() -> Self {
        Self { redraw: stderr().is_terminal(), drawn: 0, before: VecDeque::new() }
    }

    /// Something happened; stays on the screen.
    pub(crate) fn event(&mut self, text: &str) {
        self.drawn = 0;
        note(text);
    }

    /// A step with a share of it that is done.
    pub(crate) fn percent(&self, what: &str, percent: u32) {
        if self.redraw {
            let end = if percent >= 100 { "\n" } else { "" };
            let _ = write!(stderr(), "\r{what} {percent}%{end}");
        } else if percent >= 100 {
            note(&format!("{what} done"));
        }
    }

    /// The state of all groups.
    pub(crate) fn show(&mut self, second: u64, of: u64, mut samples: Vec<GroupSample>) {
        self.rates(&mut samples);
        samples.retain(|sample| sample.cap != "unlimited" || sample.is_used());
        if !self.redraw {
            note(&compact(second, &samples));
            return;
        }
        let rows = samples.iter().map(|sample| (sample.group.clone(), sample));
        let page = Page::from(format!("second {second} of {of}")).then(table(rows, None));
        let lines = page.lines(&Screen::stderr(), false);
        let up = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        let _ = writeln!(stderr(), "{up}{}", lines.join("\n"));
        self.drawn = lines.len();
    }
}

impl Progress {
    /// Puts the rate since [`LOOK_BACK`] samples ago into the samples.
    fn rates(&mut self, samples: &mut [GroupSample]) {
        let now = monotonic_us();
        if let Some((then, totals)) = self.before.front() {
            let span = i64::try_from(now.saturating_sub(*then)).unwrap_or(i64::MAX);
            for sample in samples.iter_mut() {
                let since = totals.get(&sample.group).copied().unwrap_or_default();
                let total = sample.with_children.total_micro_ru.0;
                let grown = RuTotal(total.saturating_sub(since)).clamped();
                sample.with_children.live = Rate(grown.scale(1_000_000, span.max(1)).0);
            }
        }
        let total = |sample: &GroupSample| (sample.group.clone(), sample.with_children.total_micro_ru.0);
        self.before.push_back((now, samples.iter().map(total).collect()));
        if self.before.len() > LOOK_BACK {
            self.before.pop_front();
        }
    }
}

/// One line: admitted of cap in RU/s, operations waiting, refused so far, leases.
fn compact(second: u64, samples: &[GroupSample]) -> String {
    let part = |sample: &GroupSample| {
        format!(
            "{} {}/{} RU/s w{} r{} l{}",
            sample.group,
            whole(&sample.with_children.live.number().to_string()),
            whole(&sample.cap),
            sample.with_children.waiting,
            sample.with_children.throttled.0,
            sample.with_children.leases
        )
    };
    let parts: Vec<String> = samples.iter().map(part).collect();
    format!("{second:>4} s  {}", parts.join("  "))
}
