//! What is charged to a quota that rolls, on disk.
//!
//! A controller counts on a clock that nobody sets. Its row says when it was written, by the wall clock, so that another
//! knows how much time has passed since. If the wall clock shows less than it did then, no time has: nothing leaves early.
//! A row is as old as the last mark: what was charged since is between what it says was used and the mark, and is counted
//! as lost at the start.

use serde::{Deserialize, Serialize};
use tidegate_core::engine::Engine;
use tidegate_core::group::GroupId;
use tidegate_core::quota::{CELLS, cell};
use tidegate_core::units::{Ru, Span, Time};

/// Cells in a row: those of a window, and the one that begins. Another length would say that the row is damaged.
const MOST_CELLS: usize = 62;

/// What was used or lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredCells {
    /// When this was taken, by the wall clock.
    at_unix_us: u64,
    /// Time from then until the first cell leaves.
    first_us: u64,
    /// Cells after the first one, and millionths.
    cells: Vec<(u64, i64)>,
}

impl StoredCells {
    /// The cells of a group's quota at a moment, by both clocks.
    pub(super) fn of(engine: &Engine, group: GroupId, (now, unix_us): (Time, u64), length: Span) -> Self {
        let parts = engine.quota_cells(group, now);
        let first_us = parts.first().map_or(0, |(leaves_in, _)| leaves_in.0);
        let after = |leaves_in: Span| leaves_in.0.saturating_sub(first_us) / cell(length).0;
        let cells = parts.into_iter().map(|(leaves_in, amount)| (after(leaves_in), amount.min(Ru::MAX).0));
        Self { at_unix_us: unix_us, first_us, cells: cells.collect() }
    }

    /// All of it.
    pub(super) fn sum(&self) -> Ru {
        self.cells.iter().fold(Ru::ZERO, |sum, (_, amount)| sum + Ru(*amount))
    }

    pub(super) fn is_in_range(&self) -> bool {
        let in_range = |(after, amount): &(u64, i64)| *after <= 2 * CELLS && (0..=Ru::MAX.0).contains(amount);
        self.cells.len() <= MOST_CELLS && self.cells.iter().all(in_range)
    }

    /// Charges what has not left yet.
    pub(super) fn restore(
        &self,
        engine: &mut Engine,
        group: GroupId,
        (now, unix_us): (Time, u64),
        length: Span,
    ) {
        let passed = unix_us.saturating_sub(self.at_unix_us);
        for (after, amount) in &self.cells {
            let leaves_us = self.first_us.saturating_add(after.saturating_mul(cell(length).0));
            let leaves_in = Span(leaves_us.saturating_sub(passed));
            if leaves_in > Span(0) {
                engine.charge_quota(now, group, leaves_in, Ru(*amount));
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tidegate_core::engine::EngineConfig;
    use tidegate_core::exchange::{Ask, Grant, Spending};
    use tidegate_core::group::{ClientId, GroupSpec};
    use tidegate_core::quota::QuotaView;
    use tidegate_core::units::Rate;

    use super::super::*;

    const GROUP: GroupId = GroupId(2);
    /// 2026-11-26 00:00:30 UTC.
    const UNIX_US: u64 = 1_795_651_230_000_000;
    const SECOND: u64 = 1_000_000;

    /// A controller with a quota, its disk, and both clocks.
    pub(in crate::leasing::quotas) struct Room {
        pub(in crate::leasing::quotas) engine: Engine,
        pub(in crate::leasing::quotas) quotas: Quotas,
        pub(in crate::leasing::quotas) quota: Quota,
        pub(in crate::leasing::quotas) disk: BTreeMap<GroupId, StoredWindow>,
        pub(in crate::leasing::quotas) now: Time,
        pub(in crate::leasing::quotas) unix_us: u64,
        /// How long leases of before a start last.
        pub(in crate::leasing::quotas) leased: Span,
    }

    impl Room {
        pub(in crate::leasing::quotas) fn new(text: &str) -> Self {
            let quota = Quota::parse(text).unwrap();
            let engine = Engine::new(Time(0), EngineConfig::default());
            let quotas = Quotas::default();
            let (disk, now, leased) = (BTreeMap::new(), Time(0), Span(0));
            let mut room = Self { engine, quotas, quota, disk, now, unix_us: UNIX_US, leased };
            room.starts();
            room.flush();
            room
        }

        /// Another controller on the same disk, whose clock begins at zero.
        pub(in crate::leasing::quotas) fn starts(&mut self) {
            self.now = Time(0);
            self.engine = Engine::new(self.now, EngineConfig::default());
            let (amount, quota_unit) = (Some(self.quota.amount), self.quota.unit);
            let spec = GroupSpec { quota: amount, quota_unit, ..GroupSpec::capped(Rate::whole(100)) };
            self.engine.put_group(self.now, GROUP, spec).unwrap();
            // As the store has it.
            let rows = self.disk.iter().map(|(group, row)| (*group, serde_json::to_vec(row).unwrap()));
            let rows = rows.map(|(group, row)| (group, StoredWindow::load(&row).unwrap())).collect();
            let defined = [(GROUP, &self.quota)].into_iter();
            let leased = (self.now, self.now.after(self.leased));
            self.quotas = Quotas::go_on(leased, self.unix_us, rows, defined, &mut self.engine);
        }

        pub(in crate::leasing::quotas) fn pass(&mut self, seconds: u64) {
            let us = seconds * SECOND;
            (self.now, self.unix_us) = (self.now.after(Span(us)), self.unix_us + us);
            self.engine.expire(self.now);
        }

        pub(in crate::leasing::quotas) fn write(&mut self, taken: Taken) {
            self.disk.extend(taken.rows.iter().cloned());
            taken.gone.iter().for_each(|group| drop(self.disk.remove(group)));
            self.quotas.stored(&mut self.engine, taken);
        }

        pub(in crate::leasing::quotas) fn flush(&mut self) {
            let taken = self.quotas.take(&mut self.engine, self.now, self.unix_us);
            self.write(taken);
        }

        pub(in crate::leasing::quotas) fn stop(&mut self) {
            let taken = self.quotas.last(&self.engine, self.now, self.unix_us);
            self.write(taken);
        }

        pub(in crate::leasing::quotas) fn view(&self) -> QuotaView {
            self.engine.quota_view(GROUP, self.now).unwrap()
        }

        /// A node takes a share, uses all of it, says so and goes.
        pub(in crate::leasing::quotas) fn uses_some(&mut self, client: u64) -> Ru {
            let load = Rate::whole(100);
            let ask = Ask { demand: load, backlog: Ru::whole(90), largest: Ru::whole(1), ..Ask::default() };
            let answer = self.engine.renew(self.now, ClientId(client), GROUP, 1, &ask, None);
            let Some(Grant::Leased(terms)) = answer else { panic!("{answer:?}") };
            let share = terms.allowance.unwrap();
            assert_eq!(share.rolls, self.quota.rolls);
            let (window, used) = (share.window, share.ceiling);
            let spending = Spending { window, used, ceiling: used, ..Spending::default() };
            let ask = Ask { acked_seq: 1, spending, ..Ask::default() };
            self.engine.renew(self.now, ClientId(client), GROUP, 2, &ask, None);
            used
        }
    }

    #[test]
    fn what_is_charged_leaves_a_window_later_also_over_restarts() {
        let mut room = Room::new("6000 per rolling minute");
        let used = room.uses_some(1);
        assert!(used.is_positive());
        assert_eq!((room.view().used, room.view().resets_in), (used, Span::secs(61)));
        room.flush();
        room.pass(20);
        room.stop();
        room.pass(5);
        room.starts();
        assert_eq!((room.view().used + room.view().lost, room.view().left), (used, Ru::whole(6000) - used));
        room.pass(35);
        assert_eq!(room.view().left, Ru::whole(6000) - used, "a minute after it was used");
        room.pass(1);
        assert_eq!((room.view().left, room.view().granted), (Ru::whole(6000), Ru::ZERO), "a cell later");
    }

    /// Long after the first of them left, and while the second is due.
    #[test]
    fn each_cell_leaves_when_it_is_due_though_the_first_was_due_while_no_controller_ran() {
        let mut room = Room::new("6000 per rolling minute");
        let first = room.uses_some(1);
        room.pass(10);
        let second = room.uses_some(2);
        assert!(first.is_positive() && second.is_positive());
        room.pass(10);
        room.flush();
        room.stop();
        room.pass(50);
        room.starts();
        let view = room.view();
        assert_eq!((view.used + view.lost, view.resets_in), (second, Span::secs(1)));
        room.pass(1);
        assert_eq!((room.view().left, room.view().granted), (Ru::whole(6000), Ru::ZERO));
    }

    #[test]
    fn an_unclean_start_charges_now_what_may_have_been_used_since_the_row_was_written() {
        let mut room = Room::new("6000 per rolling minute");
        let mark = room.view().durable;
        room.pass(30);
        let used = room.uses_some(1);
        room.starts();
        let view = room.view();
        assert_eq!((view.lost, view.granted, view.durable), (mark, mark, mark));
        assert!(used <= mark);
        room.pass(60);
        assert_eq!(room.view().lost, mark);
        room.pass(1);
        assert_eq!((room.view().lost, room.view().granted, room.view().durable), Default::default());
    }

    /// What they hold is used while they last, and nobody hears of it before.
    #[test]
    fn what_nodes_may_have_had_at_a_start_leaves_a_window_after_the_end_of_their_leases() {
        for is_clean in [true, false] {
            let mut room = Room::new("6000 per rolling minute");
            room.leased = Span::secs(5);
            let used = room.uses_some(1);
            room.flush();
            // Another has a share, and is not heard again.
            let ask = Ask { demand: Rate::whole(100), largest: Ru::whole(1), ..Ask::default() };
            room.engine.renew(room.now, ClientId(2), GROUP, 1, &ask, None);
            let held = room.view().granted - used;
            assert!(held.is_positive());
            if is_clean {
                room.stop();
            }
            room.starts();
            let lost = room.view().lost;
            assert!(lost >= held && (lost == held || !is_clean), "{lost} of {held}");
            room.pass(65);
            assert_eq!(room.view().lost, lost, "a minute after the leases ended");
            room.pass(1);
            assert_eq!(room.view().lost, Ru::ZERO, "a cell later");
        }
    }

    /// A start says nothing of when the one before it was.
    #[test]
    fn a_second_start_before_leases_have_ended_loses_nothing_of_what_may_be_used() {
        let mut room = Room::new("6000 per rolling minute");
        room.leased = Span::secs(5);
        room.uses_some(1);
        room.starts();
        let lost = room.view().lost;
        room.pass(2);
        room.flush();
        room.starts();
        assert!(room.view().lost >= lost);
        room.pass(65);
        assert!(room.view().lost >= lost, "a minute after the leases of the second start ended");
        room.pass(1);
        assert_eq!(room.view().lost, Ru::ZERO);
    }

    #[test]
    fn a_clock_that_is_set_moves_nothing_and_one_set_back_over_a_start_frees_nothing() {
        for set in [-86_400_i64, -1, 86_400] {
            let mut room = Room::new("6000 per rolling hour");
            let (window, used) = (room.view().window, room.uses_some(1));
            room.pass(600);
            room.unix_us = room.unix_us.checked_add_signed(set * 1_000_000).unwrap();
            room.flush();
            assert_eq!((room.view().window, room.view().used), (window, used), "{set} s");
            room.pass(2_999);
            assert_eq!(room.view().used, used, "{set} s");
            room.pass(61);
            assert_eq!(room.view().used, Ru::ZERO, "{set} s");
        }
        let mut room = Room::new("6000 per rolling hour");
        let used = room.uses_some(1);
        room.pass(1_800);
        room.stop();
        room.unix_us -= 7_200 * SECOND;
        room.starts();
        assert_eq!(room.view().resets_in, Span::secs(1_860));
        room.pass(1_859);
        assert_eq!(room.view().used + room.view().lost, used);
        room.pass(1);
        assert_eq!(room.view().granted, Ru::ZERO);
    }

    #[test]
    fn a_changed_amount_keeps_what_is_used_and_a_changed_window_begins_with_nothing() {
        let mut room = Room::new("6000 per rolling hour");
        let (window, used) = (room.view().window, room.uses_some(1));
        room.pass(90);
        let becomes = |room: &mut Room, text: &str| {
            room.quota = Quota::parse(text).unwrap();
            room.quotas.define(GROUP, Some(&room.quota));
            room.flush();
            (room.view().window, room.view().used)
        };
        assert_eq!(becomes(&mut room, "7000 per rolling hour"), (window, used));
        for text in ["7000 per rolling day", "7000 per day", "7000 per rolling day"] {
            let before = room.view().window;
            let (window, used) = becomes(&mut room, text);
            assert_ne!(window, before, "{text}");
            assert_eq!(used, Ru::ZERO, "{text}");
            room.uses_some(window);
            room.starts();
            assert_eq!(room.view().rolls, text.contains("rolling"));
        }
    }

    #[test]
    fn rows_before_windows_rolled_are_read_and_those_out_of_range_are_not() {
        let row = r#"{"id":7,"calendar":"minute UTC","ends_unix_s":9,"mark":5,"used":3,"next":2}"#;
        let read = StoredWindow::load(row.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), row);
        let cells = |cells: &str| {
            let cells = format!(r#","cells":{{"at_unix_us":1,"first_us":2,"cells":{cells}}}}}"#);
            StoredWindow::load(row.replace('}', &cells).as_bytes())
        };
        assert!(cells("[[0,1],[120,5]]").is_ok());
        for wrong in ["[[0,-1]]", "[[121,1]]", "[[0,1000000000000000001]]", "[[0]]"] {
            assert!(cells(wrong).is_err(), "{wrong}");
        }
        assert!(cells(&format!("[[0,1]{}]", ",[1,1]".repeat(MOST))).is_err());
    }

    const MOST: usize = super::MOST_CELLS;
}
