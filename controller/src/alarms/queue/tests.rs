//! The queue: nothing that holds is lost, whatever happens while a receiver is gone.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn entry(now: u64, change: Change, id: usize) -> Entry {
    Entry { at: Time(now), of: Some((change, id.to_string())), json: Value::Null }
}

fn pause(queue: &mut Queue, random: u32) -> Span {
    let (Some(batch), 0) = queue.next(Time(0)) else { panic!() };
    assert!(batch.due >= Time(0));
    queue.failed(Time(0), random);
    let (Some(batch), 0) = queue.next(Time(0)) else { panic!() };
    batch.due.since(Time(0))
}

#[test]
fn a_delivery_is_the_same_until_it_arrives_and_pauses_double_up_to_the_longest() {
    let mut queue = Queue::default();
    queue.push(entry(0, Change::Raised, 1));
    let (Some(first), 0) = queue.next(Time(0)) else { panic!() };
    queue.push(entry(0, Change::Raised, 2));
    let pauses = [u32::MAX, u32::MAX, u32::MAX, 0].map(|random| pause(&mut queue, random));
    assert_eq!(pauses, [Span::secs(1), Span::secs(2), Span::secs(4), Span::secs(4)]);
    for _ in 0..70 {
        pause(&mut queue, u32::MAX);
    }
    assert_eq!((pause(&mut queue, u32::MAX), pause(&mut queue, 0)), (LONGEST_PAUSE, Span::secs(150)));
    let (Some(again), 0) = queue.next(Time(0)) else { panic!() };
    assert_eq!((again.number, again.entries.len()), (first.number, 1));
    queue.done();
    let (Some(second), 0) = queue.next(Time(0)) else { panic!() };
    assert_eq!((second.number, second.due, queue.len()), (first.number + 1, Time(0), 1));
    queue.done();
    assert!(queue.next(Time(0)).0.is_none());
}

#[test]
fn what_is_too_old_is_given_up_and_counted() {
    let mut queue = Queue::default();
    queue.push(entry(0, Change::Raised, 1));
    queue.next(Time(0));
    queue.push(entry(1, Change::Resolved, 1));
    queue.push(entry(2, Change::Raised, 2));
    let (Some(batch), 0) = queue.next(Time(MOST_AGE.0)) else { panic!() };
    assert_eq!(batch.number, 1);
    let (Some(batch), 2) = queue.next(Time(MOST_AGE.0 + 2)) else { panic!() };
    assert_eq!((batch.number, queue.len()), (2, 1));
}

/// A receiver that was away for a day hears of what is not that old.
#[test]
fn what_is_not_old_is_not_given_up_with_the_delivery_that_it_is_in() {
    let mut queue = Queue::default();
    queue.push(entry(0, Change::Raised, 1));
    queue.push(entry(9, Change::Raised, 2));
    queue.push(entry(9, Change::Raised, 3));
    queue.next(Time(9));
    queue.push(entry(10, Change::Resolved, 2));
    let (Some(batch), 1) = queue.next(Time(MOST_AGE.0 + 1)) else { panic!() };
    let ids: Vec<_> = batch.entries.iter().map(|entry| (entry.at, entry.of.clone().unwrap().1)).collect();
    let expected = [(9, 2), (9, 3), (10, 2)].map(|(at, id)| (Time(at), id.to_string()));
    assert_eq!((batch.number, ids), (2, expected.to_vec()));
    assert_eq!((batch.due, queue.len()), (Time(MOST_AGE.0 + 1), 3));
}

/// What is over goes first, then the oldest repetition; what is left says all that holds.
#[test]
fn a_queue_that_is_full_keeps_its_bound_and_counts_what_it_drops() {
    let mut queue = Queue::default();
    let mut dropped = 0;
    let mut push = |queue: &mut Queue, change, id| {
        dropped += queue.push(entry(0, change, id));
        assert!(queue.len() <= MOST_QUEUED);
        (queue.len(), dropped)
    };
    for id in 0..MOST_OPEN {
        push(&mut queue, Change::Raised, id);
    }
    for _ in 0..3 {
        for id in 0..MOST_OPEN {
            push(&mut queue, Change::Still, id);
        }
    }
    // Of the repetitions the oldest went, each for one that came.
    assert_eq!(push(&mut queue, Change::Still, 0), (MOST_QUEUED, 4 * MOST_OPEN + 1 - MOST_QUEUED));
    let raised = queue.waiting.iter().filter(|entry| matches!(entry.of, Some((Change::Raised, _))));
    assert_eq!(raised.count(), MOST_OPEN);
    // An alarm that is over takes its beginning, its repetitions and its end along, and those of no other.
    let before =
        queue.waiting.iter().filter(|entry| !matches!(&entry.of, Some((_, id)) if id == "7")).count();
    push(&mut queue, Change::Resolved, 7);
    let of = |id: &str| {
        queue.waiting.iter().filter(|entry| matches!(&entry.of, Some((_, of)) if of == id)).count()
    };
    assert_eq!((of("7"), queue.len()), (0, before));
}

#[test]
fn ends_follow_their_beginnings() {
    let mut queue = Queue::default();
    for _ in 0..3 {
        for change in [Change::Raised, Change::Resolved] {
            for id in 0..MOST_OPEN {
                queue.push(entry(0, change, id));
            }
        }
    }
    let mut state: BTreeMap<String, Change> = BTreeMap::new();
    while let (Some(batch), _) = queue.next(Time(0)) {
        for entry in batch.entries {
            let (change, id) = entry.of.unwrap();
            let before = state.insert(id, change);
            assert_eq!(before.unwrap_or(Change::Resolved) == Change::Resolved, change == Change::Raised);
        }
        queue.done();
    }
    assert!(state.values().all(|change| *change == Change::Resolved));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A receiver that hears what is delivered has the alarms that are open, and the queue is bounded.
    #[test]
    fn a_receiver_that_is_back_has_what_holds(steps in vec((0..40u8, 0..MOST_OPEN, any::<bool>()), 1..6_000)) {
        let mut queue = Queue::default();
        let (mut open, mut heard) = (BTreeSet::new(), BTreeSet::new());
        let (mut pushed, mut dropped, mut delivered) = (0, 0, 0);
        let hear = |batch: &Batch, heard: &mut BTreeSet<String>| {
            for entry in &batch.entries {
                match entry.of.clone().unwrap() {
                    (Change::Raised | Change::Still, id) => drop(heard.insert(id)),
                    (Change::Resolved, id) => drop(heard.remove(&id)),
                }
            }
        };
        for (what, id, changes) in steps {
            let change = match (open.contains(&id), changes) {
                (false, _) => Change::Raised,
                (true, true) => Change::Resolved,
                (true, false) => Change::Still,
            };
            match change {
                Change::Raised => drop(open.insert(id)),
                Change::Resolved => drop(open.remove(&id)),
                Change::Still => {}
            }
            dropped += queue.push(entry(0, change, id));
            pushed += 1;
            prop_assert!(queue.len() <= MOST_QUEUED + BATCH);
            // It is there for one step of some.
            if what == 0 && let (Some(batch), _) = queue.next(Time(0)) {
                hear(&batch, &mut heard);
                delivered += batch.entries.len();
                queue.done();
            }
        }
        while let (Some(batch), _) = queue.next(Time(0)) {
            hear(&batch, &mut heard);
            delivered += batch.entries.len();
            queue.done();
        }
        prop_assert_eq!(heard, open.iter().map(ToString::to_string).collect::<BTreeSet<_>>());
        prop_assert_eq!(pushed, dropped + delivered);
    }
}
