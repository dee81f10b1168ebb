//! Settings that are refused, and how large states are.

use std::fmt::Debug;

use tidegate_core::policy::demotion::DemotionState;
use tidegate_core::policy::fixed_window::{FixedWindow, FixedWindowState};
use tidegate_core::policy::gcra::{Gcra, GcraState};
use tidegate_core::policy::paced::{Delay, Grain, Paced, PacedSettings, PacedState};
use tidegate_core::policy::setting::{LONGEST, MOST_STORED, SettingError};
use tidegate_core::policy::sliding_log::{SlidingLog, SlidingLogState};
use tidegate_core::policy::sub_windows::{SubWindows, SubWindowsState};
use tidegate_core::policy::token_bucket::{TokenBucket, TokenBucketState};
use tidegate_core::policy::two_windows::{TwoWindows, TwoWindowsState};
use tidegate_core::policy::warm_up::{WarmUp, WarmUpState};
use tidegate_core::units::{Rate, Ru, Span};

fn error<P: Debug>(made: Result<P, SettingError>) -> String {
    made.unwrap_err().to_string()
}

fn paced(rate: Rate, burst: Ru, delay: Delay) -> Result<Paced, SettingError> {
    Paced::new(PacedSettings { rate, burst, delay, grain: Grain::Exact })
}

#[test]
fn an_error_names_the_setting_its_value_and_what_to_give() {
    let (one, second) = (Ru::whole(1), Span::secs(1));
    let rate = Rate::whole(1);
    let year = "give more than 0 and at most 31622400s";
    let most = "give more than 0 and at most 1000000000000 RU";
    for (said, expected) in [
        (error(FixedWindow::new(one, Span(0))), format!("window 0ms: {year}")),
        (error(TwoWindows::new(one, Span(LONGEST.0 + 1))), format!("window 31622400.000001s: {year}")),
        (error(TwoWindows::new(Ru(-1), second)), format!("limit -0.000001 RU: {most}")),
        (error(FixedWindow::new(Ru(0), second)), format!("limit 0 RU: {most}")),
        (error(FixedWindow::new(Ru(Ru::MAX.0 + 1), second)), format!("limit 1000000000000.000001 RU: {most}")),
        (
            error(SubWindows::new(one, second, 7)),
            "7 cells of a window of 1s: give 1 to 3600, each a whole number of microseconds".to_owned(),
        ),
        (
            error(SubWindows::weighted(one, second, 0)),
            "0 cells of a window of 1s: give 1 to 3600, each a whole number of microseconds".to_owned(),
        ),
        (
            error(SlidingLog::new(one, second, 0)),
            "log of 0 entries: give 1 to 1000000, or count by sub-windows".to_owned(),
        ),
        (
            error(TokenBucket::new(Rate::ZERO, one)),
            "rate 0 RU/s: give more than 0 and at most 1000000000 RU/s".to_owned(),
        ),
        (
            error(Gcra::new(Rate(Rate::MAX.0 + 1), one)),
            "rate 1000000000.000001 RU/s: give more than 0 and at most 1000000000 RU/s".to_owned(),
        ),
        (error(Gcra::new(rate, Ru::ZERO)), format!("capacity 0 RU: {most}")),
        (
            error(paced(rate, Ru::ZERO, Delay::All)),
            "queue 0 RU: nothing can wait in it; give more than 0, or admit without delay".to_owned(),
        ),
        (error(paced(rate, Ru(-1), Delay::None)), "queue -0.000001 RU: give 0 to 1000000000000 RU".to_owned()),
        (
            error(paced(rate, one, Delay::Beyond(Ru(-1)))),
            "undelayed part -0.000001 RU of the queue: give 0 to 1000000000000 RU, 0 to delay all".to_owned(),
        ),
        (error(WarmUp::new(rate, Span(0), 3)), format!("warm-up 0ms: {year}")),
        (
            error(WarmUp::new(rate, second, 1)),
            "cold factor 1: give 2 to 100, or a token bucket for no warm-up".to_owned(),
        ),
        (
            error(WarmUp::new(Rate::MAX, Span::secs(2), 3)),
            "1000000000 RU/s over a warm-up of 2s store more than 1000000000 RU: give a lower rate or a shorter \
             warm-up"
                .to_owned(),
        ),
    ] {
        assert_eq!(said, expected);
    }
}

#[test]
fn no_queue_is_a_queue_without_delay() {
    assert!(paced(Rate::whole(1), Ru::ZERO, Delay::None).is_ok());
}

#[test]
fn a_warm_up_stores_up_to_its_most_and_no_more() {
    let made = |micros| WarmUp::new(Rate::MAX, Span(micros), 3);
    assert_eq!(made(1_000_000).map(|policy| policy.most()), Ok(MOST_STORED));
    assert!(made(1_000_001).is_err());
}

#[test]
fn all_of_the_largest_queue_may_be_undelayed() {
    assert!(paced(Rate::whole(1), Ru::MAX, Delay::Beyond(Ru::MAX)).is_ok());
}

#[test]
fn states_are_as_large_as_their_files_say() {
    assert_eq!(size_of::<FixedWindowState>(), 16);
    assert_eq!(size_of::<SlidingLogState>(), 56);
    assert_eq!(size_of::<SubWindowsState>(), 48);
    assert_eq!(size_of::<TwoWindowsState>(), 24);
    assert_eq!(size_of::<TokenBucketState>(), 32);
    assert_eq!(size_of::<GcraState>(), 16);
    assert_eq!(size_of::<PacedState>(), 32);
    assert_eq!(size_of::<WarmUpState>(), 32);
    assert_eq!(size_of::<DemotionState>(), 80);
}
