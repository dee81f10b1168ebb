//! Alarms against a plain reading of the rules, and one rule after the other.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru};

use super::*;

const THRESHOLDS: Thresholds =
    Thresholds { throttled_for: Span::secs(10), quota_percent: 80, resolved_after: Span::secs(20) };

fn at(second: u64) -> Moment {
    Moment { now: Time(second * 1_000_000), unix_ms: 5_000 + second * 1_000 }
}

fn waits(group: &str, waiting: u64) -> Seen {
    let facts = Facts::Waiting {
        waiting,
        backlog: Ru::ZERO,
        debt: Ru::ZERO,
        refused: 0,
        demand: Rate::ZERO,
        leased: Rate::ZERO,
    };
    Seen { group: group.to_owned(), facts }
}

fn quota(used: i64) -> Seen {
    let (unit, amount) = (Unit::Ru, Ru::whole(100));
    let (used, resets_in) = (Ru::whole(used), Span::secs(9));
    let facts = Facts::Quota { unit, amount, used, resets_in, rolls: false };
    Seen { group: "a".to_owned(), facts }
}

fn said(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| format!("{} {}", event.change.as_str(), event.key.id())).collect()
}

#[test]
fn a_group_that_waits_for_long_enough_is_one_alarm_and_one_end() {
    let mut book = Book::new(THRESHOLDS, 9);
    let mut all = Vec::new();
    for second in 0..100 {
        // A moment without waits now and then changes nothing; from second 50 on nothing waits.
        let waiting = u64::from(second < 50 && second % 4 != 3);
        let events = book.look(at(second), vec![waits("a", waiting)]);
        all.extend(events.into_iter().map(|event| (second, event)));
    }
    let [(raised, first), (resolved, last)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((*raised, first.change, first.since_unix_ms), (10, Change::Raised, 5_000));
    // It waited last in second 49.
    assert_eq!(
        (*resolved, last.change, last.since_unix_ms, last.unix_ms),
        (69, Change::Resolved, 5_000, 74_000)
    );
    assert_eq!(book.open().count(), 0);
}

#[test]
fn an_alarm_says_what_was_seen_last_when_it_is_repeated_and_when_it_ends() {
    let mut book = Book::new(THRESHOLDS, 9);
    let used = |events: &[Event]| match events {
        [Event { facts: Facts::Quota { used, .. }, .. }] => *used,
        _ => panic!("{events:?}"),
    };
    assert_eq!(used(&book.look(at(0), vec![quota(80)])), Ru::whole(80));
    assert_eq!(used(&book.look(at(3_600), vec![quota(90)])), Ru::whole(90));
    assert_eq!(book.look(at(3_601), vec![quota(95)]), []);
    assert_eq!(used(&book.look(at(4_000), vec![])), Ru::whole(95));
}

#[test]
fn short_waits_are_no_alarm() {
    let mut book = Book::new(THRESHOLDS, 9);
    for second in 0..100 {
        // Nine seconds, and then none for as long as makes it another wait.
        let waiting = u64::from(second % 15 < 9);
        assert_eq!(book.look(at(second), vec![waits("a", waiting)]), []);
    }
}

#[test]
fn a_quota_alarms_at_its_levels_and_ends_with_its_window() {
    let mut book = Book::new(THRESHOLDS, 9);
    let mut look = |second, used| said(&book.look(at(second), vec![quota(used)]));
    assert_eq!(look(0, 79), [""; 0]);
    assert_eq!(look(1, 80), ["raised quota_high/a"]);
    assert_eq!(look(2, 98), [""; 0]);
    assert_eq!(look(3, 99), ["raised quota_spent/a"]);
    // Some of it comes back, and not enough to matter.
    assert_eq!(look(60, 96), [""; 0]);
    assert_eq!(look(61, 0), [""; 0]);
    assert_eq!(look(80, 93), ["resolved quota_spent/a"]);
    assert_eq!(look(81, 74), [""; 0]);
    assert_eq!(look(99, 74), [""; 0]);
    assert_eq!(look(100, 74), ["resolved quota_high/a"]);
}

#[test]
fn a_quota_of_requests_is_spent_when_less_than_one_is_left() {
    let mut book = Book::new(THRESHOLDS, 9);
    let mut look = |second, used| {
        let (unit, amount, resets_in) = (Unit::Requests, Ru::whole(500), Span::secs(9));
        let facts = Facts::Quota { unit, amount, used: Ru(used), resets_in, rolls: false };
        said(&book.look(at(second), vec![Seen { group: "a".to_owned(), facts }]))
    };
    assert_eq!(look(0, 499_000_000), ["raised quota_high/a"]);
    assert_eq!(look(1, 499_000_001), ["raised quota_spent/a"]);
}

/// The points by which a quota has to fall are for alarms that are open.
#[test]
fn a_quota_that_is_left_out_holds_at_its_level_and_not_below() {
    let mut book = Book::new(THRESHOLDS, 1);
    let mut look = |second, used| {
        let others = Seen { group: "b".to_owned(), ..quota(used) };
        said(&book.look(at(second), vec![quota(80), others]))
    };
    assert_eq!(look(0, 80), ["raised quota_high/a", "raised more"]);
    assert_eq!(look(1, 76), [""; 0]);
    assert_eq!(look(20, 76), ["resolved more"]);
}

#[test]
fn what_does_not_hold_right_now_is_not_repeated() {
    let mut book = Book::new(THRESHOLDS, 9);
    assert_eq!(said(&book.look(at(0), vec![quota(80)])), ["raised quota_high/a"]);
    assert_eq!(said(&book.look(at(3_590), vec![quota(80)])), [""; 0]);
    assert_eq!(said(&book.look(at(3_600), vec![])), [""; 0]);
    assert_eq!(said(&book.look(at(3_601), vec![quota(80)])), ["still quota_high/a"]);
}

#[test]
fn a_recovery_begins_and_ends_at_once_and_what_holds_on_is_repeated() {
    let mut book = Book::new(THRESHOLDS, 9);
    let recovery = |left| Seen { group: String::new(), facts: Facts::Recovery { left: Span(left) } };
    let guarantees = |sum| {
        let facts = Facts::Guarantees { sum: Rate::whole(sum), limit: Rate::whole(10) };
        Seen { group: String::new(), facts }
    };
    assert_eq!(said(&book.look(at(0), vec![recovery(1), guarantees(10)])), ["raised recovery"]);
    let both = ["resolved recovery", "raised capacity_oversubscribed"];
    assert_eq!(said(&book.look(at(1), vec![recovery(0), guarantees(11)])), both);
    assert_eq!(said(&book.look(at(3_600), vec![guarantees(11)])), [""; 0]);
    assert_eq!(said(&book.look(at(3_601), vec![guarantees(11)])), ["still capacity_oversubscribed"]);
    assert_eq!(said(&book.look(at(3_602), vec![guarantees(11)])), [""; 0]);
}

/// A receiver that lost it would not know that others hold beside those that are open.
#[test]
fn the_alarm_about_those_that_are_left_out_is_repeated_while_there_are_some() {
    let mut book = Book::new(THRESHOLDS, 1);
    let both = || vec![quota(80), Seen { group: "b".to_owned(), ..quota(80) }];
    assert_eq!(said(&book.look(at(0), both())), ["raised quota_high/a", "raised more"]);
    assert_eq!(said(&book.look(at(3_599), both())), [""; 0]);
    assert_eq!(said(&book.look(at(3_600), both())), ["still quota_high/a", "still more"]);
    assert_eq!(said(&book.look(at(3_601), both())), [""; 0]);
    assert_eq!(said(&book.look(at(7_200), both())), ["still quota_high/a", "still more"]);
}

#[test]
fn beyond_the_bound_one_alarm_says_how_many_are_left_out() {
    let mut book = Book::new(THRESHOLDS, 2);
    let all = |count: usize| (0..count).map(|at| waits(&at.to_string(), 1)).collect::<Vec<_>>();
    assert_eq!(book.look(at(0), all(5)), []);
    let events = (1..11).flat_map(|second| book.look(at(second), all(5))).collect::<Vec<_>>();
    assert_eq!(said(&events), ["raised throttled/0", "raised throttled/1", "raised more"]);
    assert_eq!(events[2].facts, Facts::More { left_out: 3 });
    let mut later = Vec::new();
    for second in 11..60 {
        later.extend(book.look(at(second), all(5).split_off(3)));
    }
    let expected = [
        "resolved throttled/0",
        "resolved throttled/1",
        "raised throttled/3",
        "raised throttled/4",
        "resolved more",
    ];
    assert_eq!(said(&later), expected);
}

/// Otherwise an alarm would say that one is left out while there is room for it.
#[test]
fn a_place_that_becomes_free_is_taken_in_the_same_look() {
    let mut book = Book::new(THRESHOLDS, 1);
    assert_eq!(said(&book.look(at(0), vec![quota(80)])), ["raised quota_high/a"]);
    let other = || vec![Seen { group: "b".to_owned(), ..quota(80) }];
    assert_eq!(said(&book.look(at(20), other())), ["resolved quota_high/a", "raised quota_high/b"]);
    assert_eq!(said(&book.look(at(21), other())), [""; 0]);
}

#[test]
fn what_is_followed_is_bounded() {
    let mut book = Book::new(THRESHOLDS, 2);
    let all: Vec<Seen> = (0..MOST_TRACKED + 7).map(|at| waits(&at.to_string(), 1)).collect();
    // There is no room for these, so they count at once.
    let events = book.look(at(0), all.clone());
    assert_eq!(
        (said(&events), &events[0].facts),
        (vec!["raised more".to_owned()], &Facts::More { left_out: 7 })
    );
    book.look(at(9), all);
    assert_eq!(book.tracks.len(), MOST_TRACKED + 1);
}

/// A plain reading of the rules for one group that waits or does not, second after second: the seconds in which its alarm
/// begins and ends.
fn plainly(waits: &[bool]) -> Vec<(usize, Change)> {
    let mut said = Vec::new();
    let mut second = 0;
    while second < waits.len() {
        if !waits[second] {
            second += 1;
            continue;
        }
        // An episode begins here. Where was it seen last before each later second?
        let begin = second;
        let mut is_open = false;
        let mut last = begin;
        loop {
            second += 1;
            if second == waits.len() {
                return said;
            }
            if waits[second] {
                last = second;
                if !is_open && second - begin >= 10 {
                    is_open = true;
                    said.push((second, Change::Raised));
                }
                continue;
            }
            if second - last >= if is_open { 20 } else { 5 } {
                if is_open {
                    said.push((second, Change::Resolved));
                }
                second += 1;
                break;
            }
        }
    }
    said
}

proptest! {
    #[test]
    fn alarms_are_those_of_a_plain_reading(runs in vec((1..30usize, 1..30usize), 1..20)) {
        let waiting: Vec<bool> =
            runs.iter().flat_map(|(some, none)| [vec![true; *some], vec![false; *none]].concat()).collect();
        let mut book = Book::new(THRESHOLDS, 9);
        let mut found = Vec::new();
        for (second, waits_now) in waiting.iter().enumerate() {
            let seen = vec![waits("a", u64::from(*waits_now))];
            found.extend(book.look(at(second as u64), seen).into_iter().map(|event| (second, event.change)));
        }
        prop_assert_eq!(found, plainly(&waiting));
    }

    /// Whatever is seen: an alarm begins before it ends, never twice, and no more are open than may be.
    #[test]
    fn alarms_begin_and_end_in_turn_within_the_bound(
        looks in vec((1..9u64, vec((0..12u8, 0..3u64, 0..110i64), 0..12)), 1..150),
        most in 1..6usize,
    ) {
        let mut book = Book::new(THRESHOLDS, most);
        let (mut open, mut second) = (BTreeMap::new(), 0);
        for (pause, seen) in looks {
            second += pause;
            let mut all = Vec::new();
            for (group, waiting, used) in seen {
                all.push(waits(&group.to_string(), waiting));
                all.push(Seen { group: group.to_string(), ..quota(used) });
            }
            for event in book.look(at(second), all) {
                match event.change {
                    Change::Raised => {
                        prop_assert_eq!(open.insert(event.key, event.since_unix_ms), None);
                    }
                    Change::Still => prop_assert!(open.contains_key(&event.key)),
                    Change::Resolved => {
                        prop_assert_eq!(open.remove(&event.key), Some(event.since_unix_ms));
                    }
                }
            }
            let shown: BTreeSet<Key> = book.open().map(|(key, ..)| key.clone()).collect();
            prop_assert_eq!(&shown, &open.keys().cloned().collect::<BTreeSet<_>>());
            prop_assert!(open.len() <= most + 1);
        }
    }
}
