//! What `top` shows and how it answers keys, without a terminal: samples and keys in, lines out.

use std::collections::BTreeMap;
use std::time::Duration;

use super::column::{Key, table};
use super::detail::Detail;
use crate::clock::utc_text;
use crate::page::painted;
use crate::sample::{GroupSample, Sums};
use crate::screen::Screen;
use crate::table::{Laid, Tone, cut_end};

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Press {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Draw.
    Draw,
    /// Look at once, and from now on as often as the board says.
    Look,
    Suspend,
    Quit,
}

/// Longest filter: that of a name.
const LONGEST_FILTER: usize = 64;
/// Rows that a page moves when the terminal did not say how many it has.
const USUAL_ROWS: usize = 24;

/// Times between looks that `+` and `-` go through.
const INTERVALS: [Duration; 9] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// The keys, as the help says them.
const HELP: [(&str, &str); 14] = [
    ("q, Ctrl-C", "quit"),
    ("up, down, j, k", "choose a row"),
    ("Enter", "the chosen group: its waits, parts and nodes; again or Esc, all groups"),
    ("PgUp, PgDn", "a screen up or down"),
    ("Home, End", "the first or last row"),
    ("left, right", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "show groups with this in their name; Enter keeps, Esc drops it"),
    ("t", "tree, or all groups in one order"),
    ("a", "groups without use, too, or not"),
    ("p, blank", "pause"),
    ("+, -", "update more or less often"),
    ("Ctrl-Z", "suspend"),
    ("?", "this"),
];

/// What is shown.
#[derive(Clone, Debug)]
enum Shown {
    Groups,
    /// The chosen one.
    Group(Detail),
    Help,
}

/// The state.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    endpoint: String,
    interval: Duration,
    samples: Vec<GroupSample>,
    /// When they were taken.
    unix_ms: u64,
    /// Why they are old.
    away: Option<String>,
    sort: Key,
    reverse: bool,
    filter: String,
    typing: bool,
    tree: bool,
    all: bool,
    paused: bool,
    shown: Shown,
    /// The chosen group; the first row when it is not shown.
    chosen: String,
    /// The first row on the screen.
    first: usize,
    /// How many rows were on the screen.
    page: usize,
}

/// A row: the group and how deep it stands.
pub(crate) type Row<'s> = (usize, &'s GroupSample);

impl Board {
    /// A board without samples yet.
    pub(crate) fn new(endpoint: &str, interval: Duration, all: bool) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            interval,
            samples: Vec::new(),
            unix_ms: 0,
            away: None,
            sort: Key::default(),
            reverse: false,
            filter: String::new(),
            typing: false,
            tree: true,
            all,
            paused: false,
            shown: Shown::Groups,
            chosen: String::new(),
            first: 0,
            page: USUAL_ROWS,
        }
    }

    /// Time between looks.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Whether `top` takes no samples at the moment.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Takes a look.
    pub(crate) fn saw(&mut self, samples: Vec<GroupSample>, unix_ms: u64) {
        (self.samples, self.unix_ms, self.away) = (samples, unix_ms, None);
        self.look_closer();
    }

    /// Looks at the chosen group where that is shown.
    fn look_closer(&mut self) {
        if let Shown::Group(detail) = &mut self.shown
            && let Some(sample) = self.samples.iter().find(|sample| sample.group == self.chosen)
        {
            detail.see(sample, self.unix_ms);
        }
    }

    /// There was nothing to see.
    pub(crate) fn missed(&mut self, error: String) {
        self.away = Some(error);
    }

    /// Answers a key.
    pub(crate) fn press(&mut self, press: Press) -> Act {
        match press {
            Press::Interrupt => return Act::Quit,
            Press::Suspend => return Act::Suspend,
            _ if self.typing => self.type_filter(press),
            _ if matches!(self.shown, Shown::Help) => self.shown = Shown::Groups,
            Press::Char('q') => return Act::Quit,
            Press::Char('+' | '-') => {
                self.change_interval(press == Press::Char('+'));
                return Act::Look;
            }
            Press::Char('p' | ' ') => {
                self.paused = !self.paused;
                return Act::Look;
            }
            Press::Char('?' | 'h') => self.shown = Shown::Help,
            Press::Enter | Press::Escape if self.is_closer() => self.shown = Shown::Groups,
            Press::Enter => {
                // The first row is chosen when none was.
                self.choose(press);
                self.shown = Shown::Group(Detail::default());
                self.look_closer();
            }
            other if self.is_closer() => {
                self.choose(other);
                self.look_closer();
            }
            Press::Char('/') => self.typing = true,
            Press::Char('t') => self.tree = !self.tree,
            Press::Char('a') => self.all = !self.all,
            Press::Char('r') => self.reverse = !self.reverse,
            Press::Left | Press::Right => self.sort = self.sort.beside(press == Press::Right),
            Press::Escape => self.filter.clear(),
            other => self.choose(other),
        }
        Act::Draw
    }

    /// Whether one group is shown.
    fn is_closer(&self) -> bool {
        matches!(self.shown, Shown::Group(_))
    }

    fn type_filter(&mut self, press: Press) {
        match press {
            Press::Char(c) if self.filter.chars().count() < LONGEST_FILTER => self.filter.push(c),
            Press::Backspace => drop(self.filter.pop()),
            Press::Enter => self.typing = false,
            Press::Escape => (self.typing, self.filter) = (false, String::new()),
            other => self.choose(other),
        }
    }

    /// `+` looks more often.
    fn change_interval(&mut self, more: bool) {
        let next = if more {
            INTERVALS.into_iter().rev().find(|interval| *interval < self.interval)
        } else {
            INTERVALS.into_iter().find(|interval| *interval > self.interval)
        };
        self.interval = next.unwrap_or(self.interval);
    }

    fn choose(&mut self, press: Press) {
        let rows = self.rows();
        let at = rows.iter().position(|(_, sample)| sample.group == self.chosen).unwrap_or_default();
        let last = rows.len().saturating_sub(1);
        let to = match press {
            Press::Up | Press::Char('k') => at.saturating_sub(1),
            Press::Down | Press::Char('j') => at.saturating_add(1),
            Press::PageUp => at.saturating_sub(self.page),
            Press::PageDown => at.saturating_add(self.page),
            Press::Home => 0,
            Press::End => last,
            _ => at,
        };
        if let Some((_, sample)) = rows.get(to.min(last)) {
            self.chosen = sample.group.clone();
        }
    }

    /// The rows in their order, with how deep each stands.
    pub(crate) fn rows(&self) -> Vec<Row<'_>> {
        let matches = |sample: &GroupSample| {
            (self.all || sample.is_used()) && sample.group.contains(&self.filter.to_lowercase())
        };
        let order = |one: &&GroupSample, other: &&GroupSample| {
            let order = self.sort.order(one, other);
            if self.reverse { order.reverse() } else { order }
        };
        if !self.tree {
            let mut rows: Vec<&GroupSample> = self.samples.iter().filter(|sample| matches(sample)).collect();
            rows.sort_by(order);
            return rows.into_iter().map(|sample| (0, sample)).collect();
        }
        let mut below: BTreeMap<&str, Vec<&GroupSample>> = BTreeMap::new();
        let known: BTreeMap<&str, &GroupSample> =
            self.samples.iter().map(|sample| (sample.group.as_str(), sample)).collect();
        for sample in self.samples.iter().filter(|sample| matches(sample)) {
            // With all groups above it, which show where it stands.
            let mut at = sample;
            loop {
                let above = known.get(at.parent.as_str()).copied();
                let siblings = below.entry(above.map_or("", |above| &above.group)).or_default();
                if siblings.iter().any(|other| other.group == at.group) {
                    break;
                }
                siblings.push(at);
                match above {
                    Some(above) => at = above,
                    None => break,
                }
            }
        }
        below.values_mut().for_each(|siblings| siblings.sort_by(order));
        let mut rows = Vec::new();
        let mut next: Vec<Row<'_>> = below.get("").into_iter().flatten().rev().map(|top| (0, *top)).collect();
        while let Some((depth, sample)) = next.pop() {
            rows.push((depth, sample));
            let children = below.get(sample.group.as_str()).into_iter().flatten().rev();
            next.extend(children.map(|child| (depth.saturating_add(1), *child)));
        }
        rows
    }

    /// The screen, at most as wide and as tall as it is.
    pub(crate) fn lines(&mut self, screen: &Screen) -> Vec<String> {
        let (columns, height) = (screen.columns.unwrap_or(usize::MAX), screen.rows.unwrap_or(USUAL_ROWS));
        let tinted = |text: &str, tone: Tone| {
            let text = cut_end(text, columns);
            if screen.color { tone.paint(&text) } else { text }
        };
        if let Shown::Group(detail) = &self.shown {
            return self.closer(detail, screen);
        }
        if matches!(self.shown, Shown::Help) {
            let mut lines = vec![tinted("tidegate top: keys", Tone::Strong), String::new()];
            lines.extend(HELP.iter().map(|(key, does)| tinted(&format!("{key:<16}{does}"), Tone::Plain)));
            lines.extend([
                String::new(),
                tinted("numbers of a group include the groups below it", Tone::Faint),
            ]);
            lines.truncate(height);
            return lines;
        }
        let rows = self.rows();
        let chosen = rows.iter().position(|(_, sample)| sample.group == self.chosen).unwrap_or_default();
        let named = rows.iter().map(|(depth, sample)| (indented(*depth, &sample.group), *sample));
        let laid = table(named, Some((self.sort, self.reverse))).laid(screen.columns, false);
        let mut lines = vec![tinted(&self.heading(), Tone::Strong)];
        lines.push(match &self.away {
            Some(error) => tinted(&format!("AWAY, trying again: {error}"), Tone::Bad),
            None => tinted(&self.summary(rows.len(), &laid), Tone::Plain),
        });
        lines.extend(laid.head.iter().map(|line| painted(line, screen.color)));
        let room = height.saturating_sub(lines.len()).saturating_sub(1);
        let first = self.first.min(chosen).max(chosen.saturating_add(1).saturating_sub(room));
        let first = first.min(laid.rows.len().saturating_sub(room));
        for (index, row) in laid.rows.iter().enumerate().skip(first).take(room) {
            let line = row.first().map(Vec::as_slice).unwrap_or_default();
            lines.push(if index == chosen && screen.color {
                Tone::Chosen.paint(&painted(line, false))
            } else {
                painted(line, screen.color)
            });
        }
        if laid.rows.is_empty() && room > 0 {
            lines.push(tinted(self.nothing(), Tone::Faint));
        }
        // The keys stand below all, wherever the rows end.
        lines.resize(height.saturating_sub(1), String::new());
        lines.push(tinted(&self.footer(), Tone::Faint));
        lines.truncate(height);
        (self.first, self.page) = (first, room.max(1));
        lines
    }

    /// The screen of one group.
    fn closer(&self, detail: &Detail, screen: &Screen) -> Vec<String> {
        let (columns, height) = (screen.columns.unwrap_or(usize::MAX), screen.rows.unwrap_or(USUAL_ROWS));
        let tinted = |text: &str, tone: Tone| {
            let text = cut_end(text, columns);
            if screen.color { tone.paint(&text) } else { text }
        };
        let mut lines = vec![tinted(&self.heading(), Tone::Strong)];
        lines
            .extend(self.away.iter().map(|error| tinted(&format!("AWAY, trying again: {error}"), Tone::Bad)));
        match self.samples.iter().find(|sample| sample.group == self.chosen) {
            None => lines.push(tinted(&format!("group {} is gone", self.chosen), Tone::Faint)),
            Some(sample) => {
                for table in detail.tables(sample) {
                    let laid = table.laid(screen.columns, false);
                    lines.push(String::new());
                    let all = laid.head.iter().chain(laid.rows.iter().flatten());
                    lines.extend(all.map(|line| painted(line, screen.color)));
                }
                if sample.nodes.is_empty() {
                    lines.push(tinted("no node holds a lease of it", Tone::Faint));
                }
            }
        }
        lines.resize(height.saturating_sub(1), String::new());
        lines.push(tinted(
            "q quit  ? help  Enter all groups  up down another group  p pause  + -",
            Tone::Faint,
        ));
        lines.truncate(height);
        lines
    }

    fn heading(&self) -> String {
        let paused = if self.paused { "  PAUSED" } else { "" };
        format!("{}{paused}  every {:?}  {}", self.endpoint, self.interval, utc_text(self.unix_ms))
    }

    fn summary(&self, shown: usize, laid: &Laid) -> String {
        let known = |name: &str| self.samples.iter().any(|sample| sample.group == name);
        let tops = self.samples.iter().filter(|sample| !known(&sample.parent));
        let all = tops.fold(Sums::default(), |sums, sample| sums.plus(&sample.with_children));
        let mut text = format!(
            "{shown} of {} groups  {} RU/s  {} waiting  {} refused",
            self.samples.len(),
            super::column::whole(&all.live.number().to_string()),
            all.waiting,
            all.throttled.0
        );
        if !laid.hidden.is_empty() {
            text.push_str(&format!("  (no room for {})", laid.hidden.join(", ")));
        }
        text
    }

    /// Why there is no row.
    fn nothing(&self) -> &'static str {
        match (self.samples.is_empty(), self.filter.is_empty()) {
            (true, _) => "no groups",
            (false, true) => "no group was used yet; a shows all",
            (false, false) => "no such group; Esc drops the filter",
        }
    }

    fn footer(&self) -> String {
        if self.typing {
            return format!("/{}_  (Enter keeps it, Esc drops it)", self.filter);
        }
        let filter = if self.filter.is_empty() { String::new() } else { format!("/{}  ", self.filter) };
        format!(
            "{filter}q quit  ? help  Enter group  / find  <- -> sort  r turn  t tree  a all  p pause  + -"
        )
    }
}

/// A name as it stands in a tree.
pub(crate) fn indented(depth: usize, name: &str) -> String {
    format!("{}{name}", "  ".repeat(depth))
}

#[cfg(test)]
mod tests;
