//! Policies of windows, beside sums over all that was admitted.

use proptest::prelude::*;
use tidegate_core::policy::fixed_window::FixedWindow;
use tidegate_core::policy::sliding_log::SlidingLog;
use tidegate_core::policy::sub_windows::SubWindows;
use tidegate_core::policy::two_windows::TwoWindows;
use tidegate_core::policy::{Limiter, Policy, Verdict};
use tidegate_core::units::{Ru, Span, Time};

use super::trace::{any_way, forward};
use super::{Admitted, admits_no_more_when_time_steps_back, agrees};

const MOST: i64 = 20;

fn sum<'a>(log: impl IntoIterator<Item = &'a Admitted>) -> i128 {
    log.into_iter().map(|entry| entry.cost).sum()
}

fn fits_fixed(limit: i64, window: u64) -> impl Fn(&[Admitted], i128, i128, bool) -> bool {
    let (limit, window) = (i128::from(limit), i128::from(window));
    move |log, now, cost, is_low| {
        let same = log.iter().filter(|entry| entry.at / window == now / window);
        !is_low && sum(same) + cost <= limit
    }
}

fn fits_log(limit: i64, window: u64, entries: usize) -> impl Fn(&[Admitted], i128, i128, bool) -> bool {
    let (limit, window) = (i128::from(limit), i128::from(window));
    move |log, now, cost, is_low| {
        let live: Vec<&Admitted> = log.iter().filter(|entry| entry.at > now - window).collect();
        let mut moments: Vec<i128> = live.iter().map(|entry| entry.at).chain([now]).collect();
        moments.dedup();
        !is_low && sum(live) + cost <= limit && moments.len() <= entries
    }
}

/// In cells, and the leaving cell by the part that is inside, as a fraction over the length of a cell.
fn fits_cells(
    limit: i64,
    cell: u64,
    cells: u32,
    weighted: bool,
) -> impl Fn(&[Admitted], i128, i128, bool) -> bool {
    let (limit, cell, cells) = (i128::from(limit), i128::from(cell), i128::from(cells));
    move |log, now, cost, is_low| {
        let age = |entry: &&Admitted| now / cell - entry.at / cell;
        let whole = sum(log.iter().filter(|entry| age(entry) < cells));
        let leaving = sum(log.iter().filter(|entry| weighted && age(entry) == cells));
        !is_low && leaving * (cell - now % cell) + (whole + cost) * cell <= limit * cell
    }
}

proptest! {
    #[test]
    fn a_fixed_window_counts_what_began_in_it(limit in 1..=MOST, window in 1_u64..3_000, all in forward(MOST)) {
        agrees(&FixedWindow::new(Ru(limit), Span(window)).unwrap(), &fits_fixed(limit, window), &all);
    }

    #[test]
    fn a_log_counts_the_window_before_each_moment(
        limit in 1..=MOST, window in 1_u64..3_000, entries in 1_u32..20, all in forward(MOST)
    ) {
        let policy = SlidingLog::new(Ru(limit), Span(window), entries).unwrap();
        agrees(&policy, &fits_log(limit, window, entries as usize), &all);
    }

    #[test]
    fn sub_windows_count_their_cells(
        limit in 1..=MOST, cell in 1_u64..800, cells in 1_u32..8, weighted: bool, all in forward(MOST)
    ) {
        let window = Span(cell * u64::from(cells));
        let make = if weighted { SubWindows::weighted } else { SubWindows::new };
        agrees(&make(Ru(limit), window, cells).unwrap(), &fits_cells(limit, cell, cells, weighted), &all);
    }

    #[test]
    fn two_windows_count_the_one_before_by_its_part(
        limit in 1..=MOST, window in 1_u64..3_000, all in forward(MOST)
    ) {
        agrees(&TwoWindows::new(Ru(limit), Span(window)).unwrap(), &fits_cells(limit, window, 1, true), &all);
    }

    #[test]
    fn windows_admit_no_more_when_time_steps_back(
        limit in 1..=MOST, cell in 1_u64..800, cells in 1_u32..8, entries in 1_u32..20, weighted: bool,
        all in any_way(MOST)
    ) {
        let (limit, window) = (Ru(limit), Span(cell * u64::from(cells)));
        let fixed = FixedWindow::new(limit, window).unwrap();
        admits_no_more_when_time_steps_back(&fixed, &fits_fixed(limit.0, window.0), &all);
        let log = SlidingLog::new(limit, window, entries).unwrap();
        admits_no_more_when_time_steps_back(&log, &fits_log(limit.0, window.0, entries as usize), &all);
        let make = if weighted { SubWindows::weighted } else { SubWindows::new };
        let sub = make(limit, window, cells).unwrap();
        admits_no_more_when_time_steps_back(&sub, &fits_cells(limit.0, cell, cells, weighted), &all);
        let two = TwoWindows::new(limit, window).unwrap();
        admits_no_more_when_time_steps_back(&two, &fits_cells(limit.0, window.0, 1, true), &all);
    }

    #[test]
    fn one_cell_is_a_fixed_window_and_a_weighted_one_two_windows(
        limit in 1..=MOST, window in 1_u64..3_000, all in any_way(MOST)
    ) {
        let (limit, window) = (Ru(limit), Span(window));
        let mut fixed = Limiter::new(FixedWindow::new(limit, window).unwrap());
        let mut cell = Limiter::new(SubWindows::new(limit, window, 1).unwrap());
        let mut two = Limiter::new(TwoWindows::new(limit, window).unwrap());
        let mut weighted = Limiter::new(SubWindows::weighted(limit, window, 1).unwrap());
        for (at, cost) in all {
            let (at, cost) = (Time(at), Ru(cost));
            prop_assert_eq!(fixed.try_acquire(at, cost), cell.try_acquire(at, cost));
            prop_assert_eq!(two.try_acquire(at, cost), weighted.try_acquire(at, cost));
        }
    }

    #[test]
    fn what_counts_is_the_least_limit_that_is_not_passed(
        limit in 1..=MOST, cell in 1_u64..800, cells in 1_u32..8, weighted: bool, all in forward(MOST)
    ) {
        let window = Span(cell * u64::from(cells));
        let make = if weighted { SubWindows::weighted } else { SubWindows::new };
        let (sub, fixed) = (make(Ru(limit), window, cells).unwrap(), FixedWindow::new(Ru(limit), window).unwrap());
        let (mut in_cells, mut in_window, mut logs) = (sub.fresh(), fixed.fresh(), [Vec::new(), Vec::new()]);
        for (at, cost) in all {
            let entry = Admitted { at: at.into(), cost: cost.into(), is_low: false };
            let verdicts = [
                sub.try_acquire(&mut in_cells, Time(at), Ru(cost)),
                fixed.try_acquire(&mut in_window, Time(at), Ru(cost)),
            ];
            for (log, verdict) in logs.iter_mut().zip(verdicts) {
                log.extend(verdict.is_admitted().then_some(entry));
            }
            let [sub_log, fixed_log] = &logs;
            let used = sub.used(&mut in_cells, Time(at)).0;
            let within = |limit: i64| fits_cells(limit, cell, cells, weighted)(sub_log, at.into(), 0, false);
            prop_assert!(within(used) && (used == 0 || !within(used - 1)), "{} at {}", used, at);
            let used = fixed.used(&mut in_window, Time(at)).0;
            let within = |limit: i64| fits_fixed(limit, window.0)(fixed_log, at.into(), 0, false);
            prop_assert!(within(used) && (used == 0 || !within(used - 1)), "{} at {}", used, at);
        }
    }

    #[test]
    fn what_is_charged_counts_as_if_admitted(limit in 1..=MOST, window in 1_u64..3_000, all in forward(MOST)) {
        let policy = TwoWindows::new(Ru(limit), Span(window)).unwrap();
        let (mut state, mut log) = (policy.fresh(), Vec::new());
        let fits = fits_cells(limit, window, 1, true);
        for (at, cost) in all {
            let (now, amount) = (i128::from(at), i128::from(cost));
            let verdict = policy.try_acquire(&mut state, Time(at), Ru(cost));
            prop_assert_eq!(verdict.is_admitted(), fits(&log, now, amount, false));
            if !verdict.is_admitted() {
                policy.charge(&mut state, Time(at), Ru(cost));
            }
            log.push(Admitted { at: now, cost: amount, is_low: false });
            // The least limit that would not be passed.
            let used = policy.used(&mut state, Time(at)).0;
            let within = |limit: i64| fits_cells(limit, window, 1, true)(&log, now, 0, false);
            prop_assert!(within(used) && (used == 0 || !within(used - 1)), "{} at {}", used, at);
        }
    }
}

const SECOND: u64 = 1_000_000;

#[test]
fn the_window_before_counts_by_the_part_that_is_inside() {
    let policy = TwoWindows::new(Ru::whole(1_000), Span::secs(60)).unwrap();
    let mut state = policy.fresh();
    policy.charge(&mut state, Time(0), Ru::whole(60));
    assert_eq!(policy.used(&mut state, Time(103 * SECOND)), Ru::whole(17), "17/60 at 00:01:43");
}

#[test]
fn three_before_and_one_now_are_2_8_at_24_seconds() {
    let policy = TwoWindows::new(Ru::whole(3), Span::secs(60)).unwrap();
    let mut state = policy.fresh();
    for at in [10, 20, 30, 60] {
        assert!(
            policy
                .try_acquire(&mut state, Time(at * SECOND), Ru::whole(u8::from(at < 60).into()))
                .is_admitted()
        );
    }
    policy.charge(&mut state, Time(60 * SECOND), Ru::whole(1));
    assert_eq!(policy.used(&mut state, Time(84 * SECOND)), Ru(2_800_000));
    // 3 of 60 leave in 20 s each; at 2 in all, one more fits: with 1/3 of the window left.
    let verdict = policy.try_acquire(&mut state, Time(84 * SECOND), Ru::whole(1));
    assert_eq!(verdict, Verdict::RetryAt(Time(100 * SECOND)));
}
