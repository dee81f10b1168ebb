//! Rows of quotas: which are written, which are read, and what a controller that starts makes of them.

use super::rolling::tests::Room;
use super::*;
use tidegate_core::exchange::{Ask, Grant, Spending};
use tidegate_core::group::{ClientId, GroupSpec};
use tidegate_core::units::Rate;

const GROUP: GroupId = GroupId(2);

impl Room {
    /// Another definition, on which the next controller starts.
    fn becomes(&mut self, text: &str) {
        self.quota = Quota::parse(text).unwrap();
    }

    fn sets_clock(&mut self, seconds: i64) {
        self.unix_us = self.unix_us.checked_add_signed(seconds * 1_000_000).unwrap();
    }

    fn window(&self) -> &Window {
        &self.quotas.windows[&GROUP]
    }

    fn row(&self) -> &StoredWindow {
        &self.disk[&GROUP]
    }
}

#[test]
fn a_row_that_no_controller_can_have_written_is_refused() {
    let row = |id: u32, mark: i64, used: i64, next: i64| {
        let text = format!(
            r#"{{"id":{id},"calendar":"minute UTC","ends_unix_s":9,"mark":{mark},"used":{used},"next":{next}}}"#
        );
        StoredWindow::load(text.as_bytes())
    };
    assert!(row(1, 0, 0, 0).is_ok());
    assert!(row(1, Ru::MAX.0, Ru::MAX.0, Ru::MAX.0).is_ok());
    for (id, mark, used, next) in [(0, 1, 1, 1), (1, -1, 0, 0), (1, 1, -1, 0), (1, 1, 1, -1)] {
        assert!(row(id, mark, used, next).is_err(), "{id} {mark} {used} {next}");
    }
    for (id, mark, used, next) in
        [(1, Ru::MAX.0 + 1, 0, 0), (1, 1, Ru::MAX.0 + 1, 0), (1, 1, 1, Ru::MAX.0 + 1)]
    {
        assert!(row(id, mark, used, next).is_err(), "{id} {mark} {used} {next}");
    }
    let cells = |count: usize| {
        let cells = vec!["[1,1]"; count].join(",");
        let rolled = format!(r#"{{"at_unix_us":1,"first_us":2,"cells":[{cells}]}}"#);
        let text = r#"{"id":1,"calendar":"rolling hour","ends_unix_s":9,"mark":1,"used":1,"next":1,"cells":"#;
        let text = format!("{text}{rolled}}}");
        StoredWindow::load(text.as_bytes())
    };
    assert!(cells(62).is_ok() && cells(63).is_err(), "a window has 61 cells, and one begins");
}

/// A node may say that it used more than any quota is: the next controller starts all the same.
#[test]
fn whatever_nodes_say_that_they_used_the_row_can_be_read() {
    for text in ["6000 per minute", "6000 per rolling minute"] {
        let mut room = Room::new(text);
        for client in 1..=3 {
            let ask = Ask { demand: Rate::whole(100), largest: Ru::whole(1), ..Ask::default() };
            let answer = room.engine.renew(room.now, ClientId(client), GROUP, 1, &ask, None);
            let Some(Grant::Leased(terms)) = answer else { panic!("{answer:?}") };
            let window = terms.allowance.unwrap().window;
            let spending = Spending { window, used: Ru::MAX, ceiling: Ru::MAX, ..Spending::default() };
            let ask = Ask { acked_seq: 1, spending, ..ask };
            room.engine.renew(room.now, ClientId(client), GROUP, 2, &ask, None);
            // Another cell of a window that rolls.
            room.pass(2);
        }
        assert_eq!(room.view().used, Ru::MAX, "{text}");
        room.stop();
        room.starts();
        assert!(!room.view().left.is_positive(), "{text}");
    }
}

#[test]
fn a_stop_in_order_loses_nothing_and_what_was_used_counts() {
    let mut room = Room::new("6000 per minute");
    let (used, window) = (room.uses_some(1), room.view().window);
    assert!(used.is_positive());
    room.stop();
    assert_eq!(room.row().cells, None);
    room.starts();
    let view = room.view();
    assert_eq!((view.window, view.granted, view.lost), (window, used, Ru::ZERO));
    assert_eq!(view.left, Ru::whole(6000) - used);
}

#[test]
fn while_nobody_asks_nothing_is_written() {
    for text in ["6000 per day", "6000 per rolling day"] {
        let mut room = Room::new(text);
        let idle = |room: &mut Room| room.quotas.take(&mut room.engine, room.now, room.unix_us);
        assert!(idle(&mut room).is_empty(), "{text}");
        room.pass(1);
        assert!(idle(&mut room).is_empty(), "{text}");
        room.quotas.define(GROUP, None);
        assert!(!idle(&mut room).is_empty(), "{text}: a row is to be removed");
    }
}

/// Leases of before the row was removed may be out: what nodes say of that window must not count in another.
#[test]
fn a_quota_that_was_taken_away_and_comes_back_after_a_start_has_a_window_of_another_number() {
    let mut room = Room::new("6000 per day");
    let before = room.view().window;
    room.quotas.define(GROUP, None);
    room.flush();
    assert!(room.disk.is_empty());
    room.pass(1);
    room.starts();
    assert_ne!(room.view().window, before);
}

#[test]
fn a_quota_that_comes_back_takes_back_its_own_removal_and_no_other() {
    const OTHER: GroupId = GroupId(3);
    let mut room = Room::new("6000 per day");
    room.engine.put_group(room.now, OTHER, GroupSpec::capped(Rate::whole(100))).unwrap();
    let quota = room.quota.clone();
    room.quotas.define(OTHER, Some(&quota));
    room.flush();
    for group in [GROUP, OTHER] {
        room.quotas.define(group, None);
    }
    room.quotas.roll(&mut room.engine, room.now, room.unix_us);
    room.quotas.define(GROUP, Some(&quota));
    let taken = room.quotas.take(&mut room.engine, room.now, room.unix_us);
    assert_eq!(taken.gone, [OTHER]);
    // The same if it comes back while its removal is on its way to a disk that fails.
    room.quotas.define(GROUP, None);
    let taken = room.quotas.take(&mut room.engine, room.now, room.unix_us);
    assert_eq!(taken.gone, [GROUP]);
    room.quotas.define(GROUP, Some(&quota));
    room.quotas.not_stored(taken);
    assert_eq!(room.quotas.take(&mut room.engine, room.now, room.unix_us).gone, []);
}

#[test]
fn the_row_of_a_window_says_nothing_of_the_one_that_began_while_it_was_written() {
    let mut room = Room::new("6000 per minute");
    room.uses_some(1);
    let taken = room.quotas.take(&mut room.engine, room.now, room.unix_us);
    assert_eq!(taken.rows.len(), 1);
    room.pass(30);
    room.quotas.roll(&mut room.engine, room.now, room.unix_us);
    room.write(taken);
    assert_ne!(room.row().id, room.window().id);
    room.flush();
    assert_eq!(room.row().id, room.window().id);
}

/// A renewal may be the first to read the clock that was set.
#[test]
fn a_clock_that_was_ahead_for_a_moment_keeps_no_window_open() {
    let mut room = Room::new("6000 per minute");
    room.sets_clock(3_600);
    room.quotas.roll(&mut room.engine, room.now, room.unix_us);
    assert_eq!(room.view().resets_in, Span::secs(30));
    room.sets_clock(-3_600);
    room.flush();
    assert_eq!(room.view().resets_in, Span::secs(90), "the end of the window after the present one");
}

#[test]
fn a_controller_that_starts_behind_the_clock_of_the_one_before_keeps_its_window_for_a_while() {
    for (ahead, resets_in) in [(60, 90), (3_600, 90)] {
        let mut room = Room::new("6000 per minute");
        room.sets_clock(ahead);
        room.flush();
        let window = room.view().window;
        room.stop();
        room.sets_clock(-ahead);
        room.starts();
        let view = room.view();
        assert_eq!((view.window, view.resets_in), (window, Span::secs(resets_in)), "{ahead} s ahead");
    }
}

#[test]
fn a_window_that_ends_at_the_moment_of_a_start_is_over() {
    let mut room = Room::new("6000 per minute");
    let (before, next) = (room.view().window, room.view().durable);
    room.uses_some(1);
    room.flush();
    room.sets_clock(30);
    room.starts();
    let view = room.view();
    assert_ne!(view.window, before, "what nodes say of the one before does not count in it");
    assert_eq!((view.granted, view.lost, view.resets_in), (next, next, Span::secs(60)));
}

/// What nodes used of the other calendar is used; only what they still may use counts.
#[test]
fn a_start_on_another_calendar_counts_what_nodes_may_still_use_and_nothing_else() {
    for (text, other) in [
        ("6000 per minute", "6000 per hour"),
        ("6000 per rolling minute", "6000 per rolling hour"),
        ("6000 per rolling minute", "6000 per hour"),
        ("6000 per hour", "6000 per rolling minute"),
    ] {
        let mut room = Room::new(text);
        let used = room.uses_some(1);
        room.stop();
        let rest = Ru(room.row().mark) - Ru(room.row().used);
        room.becomes(other);
        let before = room.view().window;
        room.starts();
        let view = room.view();
        assert_eq!((view.granted, view.left), (rest, Ru::whole(6000) - rest), "{text}, {other}: {used:?}");
        assert_ne!(view.window, before);
    }
}

#[test]
fn what_was_used_in_several_cells_leaves_a_window_that_rolls_cell_by_cell_after_a_start() {
    let mut room = Room::new("6000 per rolling minute");
    let first = room.uses_some(1);
    room.pass(30);
    room.flush();
    let second = room.uses_some(2);
    assert!(first.is_positive() && second.is_positive());
    room.stop();
    room.pass(10);
    room.starts();
    let counts = |room: &Room| room.view().used + room.view().lost;
    assert_eq!(counts(&room), first + second);
    room.pass(21);
    assert_eq!(counts(&room), second);
    room.pass(29);
    assert_eq!(counts(&room), second);
    room.pass(1);
    assert_eq!(counts(&room), Ru::ZERO);
    // All of it leaves while no controller runs.
    let mut room = Room::new("6000 per rolling minute");
    room.uses_some(1);
    room.stop();
    room.sets_clock(61);
    room.starts();
    assert_eq!((counts(&room), room.view().left), (Ru::ZERO, Ru::whole(6000)));
}

#[test]
fn a_window_is_as_long_as_its_own_month() {
    // It is November 2026, which has 30 days; December has 31.
    let mut room = Room::new("6000 per month");
    let ask = Ask { demand: Rate::whole(1), largest: Ru::whole(1), ..Ask::default() };
    let length =
        |room: &mut Room, client| match room.engine.renew(room.now, ClientId(client), GROUP, 1, &ask, None) {
            Some(Grant::Leased(terms)) => terms.allowance.unwrap().length,
            other => panic!("{other:?}"),
        };
    assert_eq!(length(&mut room, 1), Span::secs(30 * 86_400));
    room.pass(5 * 86_400);
    room.flush();
    assert_eq!(length(&mut room, 2), Span::secs(31 * 86_400));
}
