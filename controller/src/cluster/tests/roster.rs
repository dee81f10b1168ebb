//! What a controller keeps of the records of others, in virtual time.

use tidegate_core::units::Span;

use super::super::roster::{GONE, Roster};
use super::forget::{Scene, record};

/// Records by which clocks are compared: those of two minutes.
const KEPT: u64 = 120;

fn names(roster: &Roster) -> Vec<String> {
    roster.all().into_iter().map(|seen| seen.record.controller).collect()
}

#[test]
fn a_clock_that_was_set_right_counts_as_ahead_for_two_minutes_and_no_longer() {
    let scene = Scene::new();
    let mut changed = 1;
    let mut sees = |ahead_ms: u64| {
        scene.pass(Span::secs(1));
        changed += 1;
        scene.roster.saw(None, vec![(record("b", scene.unix_ms() + ahead_ms), changed)]);
        scene.roster.all()[0].ahead_ms
    };
    sees(0);
    assert_eq!(sees(500), 500);
    for _ in 1..KEPT {
        assert_eq!(sees(20), 500);
    }
    assert_eq!(sees(20), 20);
}

#[test]
fn the_age_of_a_record_that_was_not_seen_to_change_is_that_of_its_clock() {
    let scene = Scene::new();
    let now = scene.unix_ms();
    let records = vec![(record("b", now - 10_000), 1), (record("c", now + 10_000), 2)];
    scene.roster.saw(None, records);
    let ages = || scene.roster.all().iter().map(|seen| seen.age).collect::<Vec<_>>();
    assert_eq!(ages(), [Span::secs(10), Span(0)]);
    scene.pass(Span::secs(1));
    assert_eq!(ages(), [Span::secs(11), Span(0)]);
    // Once it was seen to change, wall clocks do not matter.
    scene.roster.saw(None, vec![(record("b", now - 10_000), 3)]);
    scene.pass(Span::secs(2));
    assert_eq!(ages(), [Span::secs(2)]);
}

#[test]
fn only_the_record_that_was_removed_leaves_the_view() {
    let scene = Scene::new();
    let (b, c) = (scene.shows("b", 0), scene.shows("c", 0));
    scene.sees();
    let newer = scene.shows("b", b);
    assert!(!scene.roster.remove("b", b).unwrap());
    assert_eq!(names(&scene.roster), ["b", "c"], "it is not the one that was meant");
    scene.sees();
    assert!(scene.roster.remove("b", newer).unwrap());
    assert_eq!(names(&scene.roster), ["c"]);
    // A start after the removal may have been seen before it is heard of.
    scene.roster.saw(None, vec![(record("c", 0), c + 9)]);
    assert!(scene.roster.remove("c", c).unwrap());
    assert_eq!(names(&scene.roster), ["c"]);
}

#[test]
fn a_drain_is_shown_to_the_leadership_that_it_befalls_and_lasts_as_long_as_it_says() {
    let scene = Scene::new();
    scene.runs("b");
    let rest = Span::secs(2);
    let before = scene.roster.drains();
    assert_eq!(*before.borrow(), None);
    scene.roster.drain(rest);
    assert_eq!(*before.borrow(), Some(rest));
    assert_eq!(*scene.roster.drains().borrow(), None, "the next leadership begins without");
    assert!(rest < GONE && scene.roster.rests());
    scene.pass(Span(rest.0 - 1));
    assert!(scene.roster.rests());
    scene.pass(Span(1));
    assert!(!scene.roster.rests());
}

#[test]
fn the_newest_drain_says_how_long_a_controller_rests_also_if_that_is_shorter() {
    let scene = Scene::new();
    scene.runs("b");
    let rest = Span::secs(2);
    scene.roster.drain(Span::secs(3_600));
    scene.roster.drain(rest);
    scene.pass(Span(rest.0 - 1));
    assert!(scene.roster.rests());
    scene.pass(Span(1));
    assert!(!scene.roster.rests());
}
