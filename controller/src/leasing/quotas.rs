//! The windows of quotas: opened by the wall clock and the calendar of each quota, with a row on disk of how much was
//! granted.
//!
//! A row holds a mark, which the grant engine grants up to, and the mark with which the next window begins. So a window
//! begins without waiting for the disk, and an unclean stop counts as used what may have been. A window goes on until its
//! end has come by the wall clock, whatever that clock showed in between: set back, it does not reset a quota twice.
//!
//! The window of a quota that rolls does not end. Its row has what is charged, too, see [`rolling`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::engine::Engine;
use tidegate_core::group::GroupId;
use tidegate_core::quota::{Opening, QuotaView, Unit, window_number};
use tidegate_core::units::{MICRO, Ru, Span, Time};

use self::rolling::StoredCells;
use crate::definitions::catalog::Catalog;
use crate::definitions::quota::Quota;
use crate::leasing::Leasing;
use crate::store::records::{bad, group_key, group_of, json, put_json};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

mod rolling;

/// Windows of groups with a quota.
#[derive(Default)]
pub(crate) struct Quotas {
    windows: BTreeMap<GroupId, Window>,
    /// Groups whose row is to be removed.
    gone: Vec<GroupId>,
    /// The earliest end of a window, in microseconds of the wall clock; earlier after a definition changed.
    next_end_us: u64,
    /// The newest reading of the wall clock.
    read_us: u64,
    /// The newest id of a window.
    newest_id: u32,
}

/// The present window of one quota.
struct Window {
    quota: Quota,
    /// The definition has it still. A change of many definitions may take it away and put it back.
    is_defined: bool,
    /// What tells the windows of the group apart: the second in which it was opened, or a later one.
    id: u32,
    ends_unix_s: u64,
    /// The mark of the next window that is on disk.
    next: Option<Ru>,
    /// Whether the row on disk is of this window.
    is_stored: bool,
}

/// A window on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredWindow {
    id: u32,
    /// What it counts, unless that is RU, period and zone.
    calendar: String,
    ends_unix_s: u64,
    /// Millionths: granted at most, used at least, and granted at most of the next window.
    mark: i64,
    used: i64,
    next: i64,
    /// Where the window rolls, what was used or lost, and when it leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cells: Option<StoredCells>,
    /// What had left a window that rolls when this was taken.
    #[serde(skip)]
    gone: i128,
}

impl StoredWindow {
    /// Reads a row.
    pub(crate) fn load(value: &[u8]) -> Result<Self, StoreError> {
        let row: Self = json(Table::Quotas, value)?;
        let in_range = |micro_ru: i64| (0..=Ru::MAX.0).contains(&micro_ru);
        let cells = row.cells.as_ref().is_none_or(StoredCells::is_in_range);
        if in_range(row.mark) && in_range(row.used) && in_range(row.next) && row.id > 0 && cells {
            Ok(row)
        } else {
            Err(bad(Table::Quotas, "an amount or a number is out of range"))
        }
    }
}

/// Rows that are being stored.
#[derive(Default)]
pub(crate) struct Taken {
    rows: Vec<(GroupId, StoredWindow)>,
    gone: Vec<GroupId>,
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.gone.is_empty()
    }

    pub(crate) fn rows(&self, batch: &mut Batch) -> Result<(), StoreError> {
        for (group, row) in &self.rows {
            batch.push(put_json(Table::Quotas, group_key(*group), row)?);
        }
        batch.extend(self.gone.iter().map(|group| Write::Delete(Table::Quotas, group_key(*group))));
        Ok(())
    }
}

fn calendar(quota: &Quota) -> String {
    let unit = match quota.unit {
        // As it was when there was no other.
        Unit::Ru => "",
        Unit::Requests => REQUESTS,
    };
    format!("{unit}{} {}", quota.window_text(), quota.zone.name())
}

/// Before the calendar of a quota of requests, whose rows must not be taken for RU.
const REQUESTS: &str = "requests per ";

/// What a row of this calendar counts.
fn unit_of(calendar: &str) -> Unit {
    if calendar.starts_with(REQUESTS) { Unit::Requests } else { Unit::Ru }
}

/// The end of the window after the present one: no window is kept open for longer.
fn latest_end(quota: &Quota, unix_s: u64) -> u64 {
    quota.window_end(quota.window_end(unix_s))
}

fn seconds(unix_us: u64) -> u64 {
    unix_us / MICRO.unsigned_abs()
}

/// The moment at which the wall clock will show `unix_s`.
fn moment(now: Time, unix_us: u64, unix_s: u64) -> Time {
    now.after(Span(unix_s.saturating_mul(MICRO.unsigned_abs()).saturating_sub(unix_us)))
}

/// The id of the next window of any group, which none had before: from second to second there is room for 2^32 seconds.
fn next_id(newest: u32, unix_s: u64) -> u32 {
    newest.saturating_add(1).max(u32::try_from(unix_s).unwrap_or(u32::MAX))
}

/// The mark with which a window of a group begins.
fn first_mark(engine: &Engine, group: GroupId, quota: &Quota) -> Ru {
    QuotaView::first_mark(quota.unit, quota.amount, engine.limit(group).unwrap_or_default())
}

impl Quotas {
    /// Groups with a quota.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.windows.keys().copied()
    }

    /// Takes in a group's definition; the next roll opens a window if it needs one.
    pub(crate) fn define(&mut self, group: GroupId, quota: Option<&Quota>) {
        match (quota, self.windows.get_mut(&group)) {
            (Some(quota), Some(window)) => {
                if calendar(&window.quota) != calendar(quota) {
                    (window.ends_unix_s, window.next) = (0, None);
                }
                (window.quota, window.is_defined) = (quota.clone(), true);
            }
            (Some(quota), None) => {
                let quota = quota.clone();
                let window =
                    Window { quota, is_defined: true, id: 0, ends_unix_s: 0, next: None, is_stored: false };
                self.windows.insert(group, window);
                self.gone.retain(|gone| *gone != group);
            }
            (None, Some(window)) => window.is_defined = false,
            (None, None) => return,
        }
        self.next_end_us = 0;
    }

    /// Opens the windows whose time has come.
    fn roll(&mut self, engine: &mut Engine, now: Time, unix_us: u64) {
        self.read_us = self.read_us.max(unix_us);
        if unix_us < self.next_end_us {
            return;
        }
        let unix_s = seconds(unix_us);
        let undefined = self.windows.extract_if(.., |_, window| !window.is_defined);
        for (group, _) in undefined {
            engine.close_quota(group);
            self.gone.push(group);
        }
        for (group, window) in &mut self.windows {
            if window.ends_unix_s > unix_s {
                continue;
            }
            window.ends_unix_s = window.quota.window_end(unix_s);
            let ends = moment(now, unix_us, window.ends_unix_s);
            self.newest_id = next_id(self.newest_id, unix_s);
            (window.id, window.is_stored) = (self.newest_id, false);
            let durable = window.next.take().unwrap_or_default();
            let number = window_number(*group, window.id);
            let length = window.length();
            let rolls = window.quota.rolls;
            let opening = Opening { number, ends, length, durable, rolls, ..Opening::default() };
            engine.open_quota(now, *group, &opening);
        }
        self.find_next_end();
    }

    fn find_next_end(&mut self) {
        let end = |window: &Window| if window.is_defined { window.ends_unix_s } else { 0 };
        let next = self.windows.values().map(end).min().unwrap_or(u64::MAX);
        self.next_end_us = next.saturating_mul(MICRO.unsigned_abs());
    }

    /// Follows a wall clock that was set.
    fn follow_clock(&mut self, engine: &mut Engine, now: Time, unix_us: u64) {
        let set_back = std::mem::replace(&mut self.read_us, unix_us) > unix_us;
        for (group, window) in &mut self.windows {
            if set_back {
                window.ends_unix_s = window.ends_unix_s.min(latest_end(&window.quota, seconds(unix_us)));
            }
            engine.move_quota_end(*group, moment(now, unix_us, window.ends_unix_s));
        }
        self.find_next_end();
    }

    /// The row of a window in which `mark` may have been granted.
    fn row(
        engine: &Engine,
        (now, unix_us): (Time, u64),
        (group, window): (GroupId, &Window),
        view: &QuotaView,
        mark: Ru,
    ) -> StoredWindow {
        let cells = view.rolls.then(|| StoredCells::of(engine, group, (now, unix_us), window.length()));
        let used = cells.as_ref().map_or(view.used, StoredCells::sum);
        StoredWindow {
            id: window.id,
            calendar: calendar(&window.quota),
            ends_unix_s: window.ends_unix_s,
            // What operations cost beyond their estimates may add up to more than any quota.
            mark: mark.min(Ru::MAX).0,
            used: used.min(Ru::MAX).0,
            next: first_mark(engine, group, &window.quota).0,
            cells,
            gone: view.gone,
        }
    }

    /// Returns the rows to store, after windows followed the wall clock.
    pub(super) fn take(&mut self, engine: &mut Engine, now: Time, unix_us: u64) -> Taken {
        self.follow_clock(engine, now, unix_us);
        self.roll(engine, now, unix_us);
        let rows = self.windows.iter().filter_map(|(group, window)| {
            let view = engine.quota_view(*group, now)?;
            let mark = view.mark();
            let next = first_mark(engine, *group, &window.quota);
            let is_stored = window.is_stored && window.next == Some(next);
            (mark.is_some() || !is_stored).then(|| {
                let mark = mark.unwrap_or(view.durable).max(view.durable);
                (*group, Self::row(engine, (now, unix_us), (*group, window), &view, mark))
            })
        });
        Taken { rows: rows.collect(), gone: std::mem::take(&mut self.gone) }
    }

    /// Takes back what could not be stored; the next call of `take` returns it.
    pub(super) fn not_stored(&mut self, taken: Taken) {
        // A quota that was put back meanwhile keeps its row.
        self.gone.extend(taken.gone.into_iter().filter(|group| !self.windows.contains_key(group)));
    }

    /// The rows of a clean stop, after which nothing is granted: marks are what was granted.
    pub(super) fn last(&mut self, engine: &Engine, now: Time, unix_us: u64) -> Taken {
        let rows = self.windows.iter().filter_map(|(group, window)| {
            let view = engine.quota_view(*group, now)?;
            Some((*group, Self::row(engine, (now, unix_us), (*group, window), &view, view.granted)))
        });
        Taken { rows: rows.collect(), gone: std::mem::take(&mut self.gone) }
    }

    /// Notes that rows are on disk.
    pub(super) fn stored(&mut self, engine: &mut Engine, taken: Taken) {
        for (group, row) in taken.rows {
            engine.quota_durable(group, window_number(group, row.id), Ru(row.mark), row.gone);
            let window = self.windows.get_mut(&group).filter(|window| window.id == row.id);
            if let Some(window) = window.filter(|window| calendar(&window.quota) == row.calendar) {
                (window.next, window.is_stored) = (Some(Ru(row.next)), true);
            }
        }
    }

    /// Goes on with the windows on disk, and opens others. Leases of before the start end at `leased_until`.
    pub(crate) fn load(
        (now, leased_until): (Time, Time),
        unix_us: u64,
        store: &dyn Store,
        catalog: &Catalog,
        engine: &mut Engine,
    ) -> Result<Self, StoreError> {
        let mut rows = BTreeMap::new();
        each(store, Table::Quotas, |key, value| {
            rows.insert(group_of(Table::Quotas, key)?, StoredWindow::load(value)?);
            Ok(())
        })?;
        let defined =
            catalog.iter().filter_map(|(group, definition)| Some((group, definition.quota.as_ref()?)));
        Ok(Self::go_on((now, leased_until), unix_us, rows, defined, engine))
    }

    /// Goes on with the windows of these rows, and opens others.
    fn go_on<'q>(
        (now, leased_until): (Time, Time),
        unix_us: u64,
        mut rows: BTreeMap<GroupId, StoredWindow>,
        defined: impl Iterator<Item = (GroupId, &'q Quota)>,
        engine: &mut Engine,
    ) -> Self {
        // Nodes may still count in a window that does not go on: no other gets its number.
        let newest_id = rows.values().map(|row| row.id).max().unwrap_or_default();
        let mut quotas = Self { read_us: unix_us, newest_id, ..Self::default() };
        for (group, quota) in defined {
            quotas.define(group, Some(quota));
            if let (Some(window), Some(row)) = (quotas.windows.get_mut(&group), rows.remove(&group)) {
                window.resume((now, leased_until), unix_us, group, &row, engine);
                quotas.newest_id = quotas.newest_id.max(window.id);
            }
        }
        quotas.gone = rows.into_keys().collect();
        quotas.roll(engine, now, unix_us);
        quotas
    }
}

impl Window {
    /// The length that the calendar gives to the window that ends when this one does.
    fn length(&self) -> Span {
        Span::secs(self.quota.window_length(self.ends_unix_s.saturating_sub(1)))
    }

    /// Goes on with a window on disk; if it has ended, with one in which the mark of the next may have been granted. If
    /// it was of another calendar, another begins, in which counts what nodes may still use of that one, unless that is of
    /// another unit.
    fn resume(
        &mut self,
        (now, leased_until): (Time, Time),
        unix_us: u64,
        group: GroupId,
        row: &StoredWindow,
        engine: &mut Engine,
    ) {
        let unix_s = seconds(unix_us);
        let is_open = row.ends_unix_s > unix_s;
        let goes_on = is_open && row.calendar == calendar(&self.quota);
        let (mark, used) = match (unit_of(&row.calendar) == self.quota.unit, is_open) {
            (false, _) => (Ru::ZERO, Ru::ZERO),
            (true, true) => (Ru(row.mark), Ru(row.used)),
            (true, false) => (Ru(row.next), Ru::ZERO),
        };
        let rolls = self.quota.rolls;
        let granted = if goes_on && !rolls { mark } else { (mark - used).or_zero() };
        self.ends_unix_s = if goes_on {
            row.ends_unix_s.min(latest_end(&self.quota, unix_s))
        } else {
            self.quota.window_end(unix_s)
        };
        self.id = if goes_on { row.id } else { next_id(row.id, unix_s) };
        let opening = Opening {
            number: window_number(group, self.id),
            ends: moment(now, unix_us, self.ends_unix_s),
            length: self.length(),
            granted,
            lost: mark - used,
            durable: granted,
            rolls,
            lost_until: leased_until,
        };
        engine.open_quota(now, group, &opening);
        if let Some(cells) = row.cells.as_ref().filter(|_| goes_on && rolls) {
            cells.restore(engine, group, (now, unix_us), self.length());
        }
    }
}

impl Leasing {
    /// Opens the windows of quotas whose time has come.
    pub(crate) fn roll_quotas(&mut self, now: Time, unix_us: u64) {
        self.quotas.roll(&mut self.engine, now, unix_us);
    }
}

#[cfg(test)]
mod row_tests;
#[cfg(test)]
mod story;

#[cfg(test)]
mod tests {
    use tidegate_core::engine::EngineConfig;
    use tidegate_core::exchange::{Ask, Grant};
    use tidegate_core::group::{ClientId, GroupSpec};
    use tidegate_core::units::Rate;

    use super::*;

    const GROUP: GroupId = GroupId(2);
    /// 2026-11-26 00:00:30 UTC.
    const UNIX_US: u64 = 1_795_651_230_000_000;
    const MINUTE_US: u64 = 60_000_000;

    struct Store {
        engine: Engine,
        quotas: Quotas,
        disk: Option<StoredWindow>,
        now: Time,
        unix_us: u64,
    }

    fn quota(text: &str) -> Quota {
        Quota::parse(text).unwrap()
    }

    fn engine(now: Time, quota: &Quota) -> Engine {
        let mut engine = Engine::new(now, EngineConfig::default());
        let spec = GroupSpec { quota: Some(quota.amount), ..GroupSpec::capped(Rate::whole(100)) };
        engine.put_group(now, GROUP, spec).unwrap();
        engine
    }

    impl Store {
        /// A group with a quota of 6,000 RU per minute, whose first row is stored.
        fn new() -> Self {
            let text = quota("6000 per minute");
            let mut quotas = Quotas::default();
            quotas.define(GROUP, Some(&text));
            let mut store =
                Self { engine: engine(Time(0), &text), quotas, disk: None, now: Time(0), unix_us: UNIX_US };
            store.flush();
            store
        }

        fn pass(&mut self, us: u64) {
            self.now = self.now.after(Span(us));
            self.unix_us += us;
        }

        fn flush(&mut self) {
            let taken = self.quotas.take(&mut self.engine, self.now, self.unix_us);
            for (_, row) in &taken.rows {
                self.disk = Some(row.clone());
            }
            self.quotas.stored(&mut self.engine, taken);
        }

        fn view(&self) -> QuotaView {
            self.engine.quota_view(GROUP, self.now).unwrap()
        }

        /// What a node with a large backlog may use.
        fn asks(&mut self, client: u64) -> Ru {
            let load = Rate::whole(100);
            let ask = Ask { demand: load, backlog: Ru::whole(90), largest: Ru::whole(1), ..Ask::default() };
            match self.engine.renew(self.now, ClientId(client), GROUP, 1, &ask, None) {
                Some(Grant::Leased(terms)) => {
                    assert_eq!(terms.allowance.unwrap().length, Span::secs(60));
                    terms.allowance.unwrap().ceiling
                }
                other => panic!("{other:?}"),
            }
        }

        /// Another controller on the same disk.
        fn restart(&mut self) {
            let text = quota("6000 per minute");
            self.engine = engine(self.now, &text);
            self.quotas = Quotas { read_us: self.unix_us, ..Quotas::default() };
            self.quotas.define(GROUP, Some(&text));
            let row = self.disk.clone().unwrap();
            let window = self.quotas.windows.get_mut(&GROUP).unwrap();
            window.resume((self.now, self.now), self.unix_us, GROUP, &row, &mut self.engine);
            self.quotas.roll(&mut self.engine, self.now, self.unix_us);
        }
    }

    #[test]
    fn a_window_begins_with_the_mark_that_is_on_disk() {
        let mut store = Store::new();
        let first = store.view();
        assert_eq!((first.used, first.resets_in), (Ru::ZERO, Span::secs(30)));
        assert_eq!(first.durable, Ru::whole(200), "two seconds of the rate");
        assert!(store.asks(1).is_positive());
        store.pass(MINUTE_US / 2);
        store.quotas.roll(&mut store.engine, store.now, store.unix_us);
        let next = store.view();
        assert_ne!(next.window, first.window);
        assert_eq!((next.used, next.granted), (Ru::ZERO, Ru::ZERO));
        assert_eq!((next.durable, next.resets_in), (first.durable, Span::secs(60)));
        assert!(store.asks(2).is_positive(), "without a commit");
    }

    #[test]
    fn a_second_window_without_a_commit_waits_for_one() {
        let mut store = Store::new();
        store.pass(MINUTE_US / 2);
        store.quotas.roll(&mut store.engine, store.now, store.unix_us);
        store.pass(MINUTE_US);
        store.quotas.roll(&mut store.engine, store.now, store.unix_us);
        assert_eq!(store.view().durable, Ru::ZERO);
        assert_eq!(store.asks(1), Ru::ZERO);
        store.flush();
        assert!(store.asks(2).is_positive());
    }

    #[test]
    fn an_unclean_start_counts_all_that_may_have_been_granted() {
        let mut store = Store::new();
        store.asks(1);
        store.pass(1_000_000);
        store.restart();
        let view = store.view();
        assert_eq!((view.granted, view.lost, view.durable), (Ru::whole(200), Ru::whole(200), Ru::whole(200)));
        assert_eq!(view.resets_in, Span::secs(29));
        assert_eq!(store.asks(2), Ru::ZERO, "before the next commit");
        store.flush();
        assert!(store.asks(3).is_positive());
        // The window ends while no controller runs: that the next one began is not known.
        store.pass(MINUTE_US);
        store.restart();
        let view = store.view();
        assert_eq!((view.granted, view.lost), (Ru::whole(200), Ru::whole(200)));
        assert_eq!(view.resets_in, Span::secs(29));
    }

    #[test]
    fn a_clock_that_is_set_back_resets_nothing_twice() {
        let mut store = Store::new();
        store.asks(1);
        let before = store.view();
        // Forward by an hour: the next window begins early, and what is unused counts in it, too.
        store.unix_us += 60 * MINUTE_US;
        store.flush();
        let early = store.view();
        assert_ne!(early.window, before.window);
        assert_eq!(early.granted, before.granted);
        // Back: it goes on, until the end of the window after the one that the clock shows.
        store.unix_us -= 60 * MINUTE_US;
        store.flush();
        assert_eq!((store.view().window, store.view().resets_in), (early.window, Span::secs(90)));
        store.pass(89_000_000);
        store.flush();
        assert_eq!(store.view().window, early.window);
        store.pass(1_000_000);
        store.flush();
        assert_ne!(store.view().window, early.window);
        assert_eq!(store.view().resets_in, Span::secs(60));
    }

    #[test]
    fn a_changed_amount_keeps_the_window_and_a_changed_calendar_begins_another() {
        let mut store = Store::new();
        store.asks(1);
        let before = store.view();
        store.quotas.define(GROUP, Some(&quota("7000 per minute")));
        store.flush();
        assert_eq!((store.view().window, store.view().granted), (before.window, before.granted));
        store.quotas.define(GROUP, Some(&quota("7000 per hour")));
        store.flush();
        let hourly = store.view();
        assert_ne!(hourly.window, before.window);
        assert_eq!(hourly.resets_in, Span(59 * MINUTE_US + MINUTE_US / 2));
        // A change of many definitions takes it away for a moment.
        store.quotas.define(GROUP, None);
        store.quotas.define(GROUP, Some(&quota("7000 per hour")));
        store.flush();
        assert_eq!(store.view().window, hourly.window);
        store.quotas.define(GROUP, None);
        assert_eq!(store.quotas.take(&mut store.engine, store.now, store.unix_us).gone, [GROUP]);
        assert_eq!(store.engine.quota_view(GROUP, store.now), None);
    }
}
