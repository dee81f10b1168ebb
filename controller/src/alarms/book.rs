//! Which alarms are open: from what is seen at a moment to what changed. Pure; time is an argument.
//!
//! A condition that holds for as long as its kind asks for raises its alarm, once. Short gaps do not end it: reports of
//! nodes come once a second, and a group at its limit has moments in which nothing waits. An open alarm is resolved when
//! its condition did not hold for `resolved_after`, so that one that flaps is one alarm; the level of a quota has to fall
//! by [`BACK_PERCENT`] besides.

use std::collections::BTreeMap;

use tidegate_core::quota::{SPENT_PERCENT, reaches};
use tidegate_core::units::{Span, Time};

use super::kind::{Facts, Key, Kind, Seen};

/// Time for which a condition may not hold and still be the same: the seconds over which rates of groups are averaged.
/// With half of it a renewal that comes late begins the time again; with twice of it, two short waits look like one.
const GAP: Span = Span::secs(5);
/// Points by which the use of a quota falls before its alarm can be resolved. Nodes that come back give up what counted
/// as lost, some percent at a time; twice of it would keep alarms open over a quota that was raised a little.
const BACK_PERCENT: u32 = 5;
/// Time after which an alarm that is still open is said again: a receiver that lost it has it then. Half of it is noise
/// where an alarm is open for a day; with twice of it, a receiver waits long before it knows that one is void.
pub const REPEAT: Span = Span::secs(3_600);
/// Alarms open at once. Nobody reads as many; half of it hides tenants of one large incident, twice of it fills queues
/// and memory for nothing.
pub const MOST_OPEN: usize = 500;
/// Conditions that are followed, open or not: a group's waits are followed before they are an alarm. Each takes about
/// 200 bytes.
const MOST_TRACKED: usize = 10_000;

/// When alarms are raised and resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Operations of a group wait for so long.
    pub throttled_for: Span,
    /// Percent of a quota.
    pub quota_percent: u32,
    /// The condition does not hold for so long.
    pub resolved_after: Span,
}

impl Default for Thresholds {
    fn default() -> Self {
        // A minute: half of it reports each batch job that begins; twice of it leaves a stalled group to its users.
        Self { throttled_for: Span::secs(60), quota_percent: 80, resolved_after: Span::secs(60) }
    }
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since the controller started.
    pub now: Time,
    /// By the wall clock.
    pub unix_ms: u64,
}

/// What happened to an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It began.
    Raised,
    /// It holds on.
    Still,
    /// It is over.
    Resolved,
}

impl Change {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Still => "still",
            Self::Resolved => "resolved",
        }
    }
}

/// An alarm that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub change: Change,
    /// Which alarm.
    pub key: Key,
    /// What was seen when its condition last held.
    pub facts: Facts,
    /// When its condition began to hold, by the wall clock.
    pub since_unix_ms: u64,
    /// When this happened, by the wall clock.
    pub unix_ms: u64,
}

/// A condition that holds, or held lately.
struct Track {
    since: Moment,
    /// When it held last.
    held: Time,
    facts: Facts,
    /// When its alarm was said last; `None` while it is none.
    said: Option<Time>,
}

/// All alarms.
pub struct Book {
    thresholds: Thresholds,
    most_open: usize,
    tracks: BTreeMap<Key, Track>,
}

impl Book {
    /// Without alarms, of which `most_open` can be open, and one that says how many are left out.
    pub fn new(thresholds: Thresholds, most_open: usize) -> Self {
        Self { thresholds, most_open, tracks: BTreeMap::new() }
    }

    /// Takes in what is seen at a moment, which is never earlier than the last, and returns what changed.
    pub fn look(&mut self, at: Moment, seen: Vec<Seen>) -> Vec<Event> {
        let mut events = Vec::new();
        let held = self.held(seen);
        self.resolve(at, |key| key.kind == Kind::More || held.contains_key(key), &mut events);
        let mut left_out = held.into_iter().filter(|(key, facts)| !self.follow(at, key, facts)).count();
        let mut open = self.open().filter(|(key, ..)| key.kind != Kind::More).count();
        for (key, track) in &mut self.tracks {
            let is_due =
                track.held == at.now && at.now.since(track.since.now) >= self.thresholds.hold(key.kind);
            match track.said {
                None if is_due && open < self.most_open => {
                    open += 1;
                    events.push(track.say(Change::Raised, key, at));
                }
                None if is_due => left_out += 1,
                _ => events.extend(track.repeat(key, at)),
            }
        }
        self.count(at, left_out, &mut events);
        events
    }

    /// Open alarms, and since when by the wall clock.
    pub fn open(&self) -> impl Iterator<Item = (&Key, &Facts, u64)> {
        let open = self.tracks.iter().filter(|(_, track)| track.said.is_some());
        open.map(|(key, track)| (key, &track.facts, track.since.unix_ms))
    }

    /// What holds of what is seen.
    fn held(&self, seen: Vec<Seen>) -> BTreeMap<Key, Facts> {
        let mut held = BTreeMap::new();
        for Seen { group, facts } in seen {
            for kind in facts.kinds() {
                let key = Key { kind: *kind, group: group.clone() };
                let is_open = self.tracks.get(&key).is_some_and(|track| track.said.is_some());
                if self.thresholds.holds(*kind, &facts, is_open) {
                    held.insert(key, facts.clone());
                }
            }
        }
        held
    }

    /// Ends what did not hold for long enough.
    fn resolve(&mut self, at: Moment, is_held: impl Fn(&Key) -> bool, events: &mut Vec<Event>) {
        let thresholds = self.thresholds;
        let over = self.tracks.extract_if(.., |key, track| {
            let calm = if track.said.is_some() { thresholds.calm(key.kind) } else { GAP };
            !is_held(key) && at.now.since(track.held) >= calm
        });
        let ended = over.filter(|(_, track)| track.said.is_some());
        events.extend(ended.map(|(key, mut track)| track.say(Change::Resolved, &key, at)));
    }

    /// Notes that a condition holds; returns whether there is room for it.
    fn follow(&mut self, at: Moment, key: &Key, facts: &Facts) -> bool {
        if let Some(track) = self.tracks.get_mut(key) {
            (track.held, track.facts) = (at.now, facts.clone());
            return true;
        }
        // The alarm about the others has a place of its own.
        let has_room = self.tracks.len() < MOST_TRACKED || key.kind == Kind::More;
        if has_room {
            let track = Track { since: at, held: at.now, facts: facts.clone(), said: None };
            self.tracks.insert(key.clone(), track);
        }
        has_room
    }

    /// Raises, repeats or resolves the alarm about those that are left out.
    fn count(&mut self, at: Moment, left_out: usize, events: &mut Vec<Event>) {
        let key = Key { kind: Kind::More, group: String::new() };
        let left_out = u64::try_from(left_out).unwrap_or(u64::MAX);
        if left_out > 0 {
            self.follow(at, &key, &Facts::More { left_out });
        }
        self.resolve(at, |other| *other != key, events);
        if let Some(track) = self.tracks.get_mut(&key) {
            match track.said {
                None => events.push(track.say(Change::Raised, &key, at)),
                Some(_) => events.extend(track.repeat(&key, at)),
            }
        }
    }
}

impl Track {
    /// Says an open alarm again that holds right now, if it is time.
    fn repeat(&mut self, key: &Key, at: Moment) -> Option<Event> {
        let is_due = self.held == at.now && self.said.is_some_and(|said| at.now.since(said) >= REPEAT);
        is_due.then(|| self.say(Change::Still, key, at))
    }

    fn say(&mut self, change: Change, key: &Key, at: Moment) -> Event {
        self.said = Some(at.now);
        let (key, facts) = (key.clone(), self.facts.clone());
        Event { change, key, facts, since_unix_ms: self.since.unix_ms, unix_ms: at.unix_ms }
    }
}

impl Thresholds {
    /// Whether what is seen is worth an alarm, or keeps one open.
    fn holds(&self, kind: Kind, facts: &Facts, is_open: bool) -> bool {
        let percent = |level: u32| level.saturating_sub(if is_open { BACK_PERCENT } else { 0 });
        match facts {
            Facts::Waiting { waiting, backlog, refused, .. } => {
                *waiting > 0 || backlog.is_positive() || *refused > 0
            }
            Facts::Quota { unit, amount, used, .. } if kind == Kind::QuotaSpent && !is_open => {
                unit.is_spent(*used, *amount)
            }
            Facts::Quota { amount, used, .. } if kind == Kind::QuotaSpent => {
                reaches(*used, *amount, percent(SPENT_PERCENT))
            }
            Facts::Quota { amount, used, .. } => reaches(*used, *amount, percent(self.quota_percent)),
            Facts::Guarantees { sum, limit } => sum > limit,
            Facts::Recovery { left } => *left > Span(0),
            Facts::More { left_out } => *left_out > 0,
        }
    }

    /// How long a condition holds before it is an alarm.
    fn hold(&self, kind: Kind) -> Span {
        if kind == Kind::Throttled { self.throttled_for } else { Span(0) }
    }

    /// How long it does not hold before the alarm is over. A recovery ends once.
    fn calm(&self, kind: Kind) -> Span {
        if kind == Kind::Recovery { Span(0) } else { self.resolved_after }
    }
}

#[cfg(test)]
mod tests;
