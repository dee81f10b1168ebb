//! Whose record it is that was found, when a name is taken, and how a thread shows a controller and ends.

use std::sync::mpsc;
use std::time::Duration;

use tidegate_consensus::model::Fault;
use tidegate_consensus::{Consensus as _, Step, Transaction};

use super::tests::{Cluster, cluster};
use super::*;

impl Cluster {
    /// The revision at which the record of `a` was last changed; 0: there is none.
    fn changed(&self) -> u64 {
        self.model.rows().iter().find(|row| row.key == b"t/member/a").map_or(0, |row| row.changed)
    }

    fn pass_by(&self, span: Span) {
        self.now.fetch_add(span.0, Ordering::Relaxed);
    }

    fn draw_word(&self, word: &str) {
        let then = vec![Step::Put(b"t/cluster".to_vec(), word.as_bytes().to_vec())];
        self.model.transact(&Transaction { then, ..Transaction::default() }, Duration::ZERO).unwrap();
    }
}

/// Waits until it is so, while the thread goes on.
fn until(shown: &Shown, is_so: impl Fn() -> bool) {
    while !is_so() {
        let is_over = shown.thread.is_finished();
        assert!(!is_over || is_so(), "the thread has ended");
        park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_record_whose_answer_was_lost_is_known_as_ones_own_and_written_over_at_the_step_after() {
    let cluster = cluster();
    let mut first = cluster.presence("a", 1);
    for _ in 0..5 {
        cluster.model.plan([Some(Fault::Lost)]);
        first.step().unwrap();
        let lost = cluster.changed();
        first.step().unwrap();
        assert_eq!(cluster.changed(), lost, "it is found");
        first.step().unwrap();
        assert!(cluster.changed() > lost, "others see it change within the time after which it is gone");
    }
}

#[test]
fn a_record_of_another_process_that_is_seen_twice_has_not_changed() {
    let cluster = cluster();
    let (mut first, mut second) = (cluster.presence("a", 1), cluster.presence("a", 2));
    first.step().unwrap();
    for _ in 0..3 {
        second.step().unwrap();
    }
    first.step().unwrap();
    second.step().expect("what was late changes it once");
    first.step().unwrap();
    second.step().unwrap_err();
}

#[test]
fn a_name_is_taken_once_its_record_has_been_still_for_three_seconds_and_not_before() {
    let cluster = cluster();
    let (mut first, mut second) = (cluster.presence("a", 1), cluster.presence("a", 2));
    first.step().unwrap();
    second.step().unwrap();
    let theirs = cluster.changed();
    cluster.pass_by(Span(GONE.0 - 1));
    for _ in 0..2 {
        second.step().unwrap();
        assert_eq!(cluster.changed(), theirs);
    }
    cluster.pass_by(Span(1));
    for _ in 0..2 {
        second.step().unwrap();
    }
    assert_eq!(second.roster.all()[0].record.instance, 2);
}

#[test]
fn the_name_of_a_process_that_was_seen_once_more_is_taken_three_seconds_after_that() {
    let cluster = cluster();
    let (mut first, mut second) = (cluster.presence("a", 1), cluster.presence("a", 2));
    first.step().unwrap();
    second.step().unwrap();
    cluster.pass_by(Span(GONE.0 - 1));
    first.step().unwrap();
    second.step().expect("what it had sent before it ended may have come late");
    let theirs = cluster.changed();
    for (passes, is_taken) in [(GONE.0 - 1, false), (1, true)] {
        cluster.pass_by(Span(passes));
        for _ in 0..2 {
            second.step().unwrap();
        }
        assert_eq!(cluster.changed() > theirs, is_taken);
    }
}

#[test]
fn which_log_it_is_is_read_until_it_is_drawn_and_stays_the_same() {
    let cluster = cluster();
    let mut first = cluster.presence("a", 1);
    first.step().unwrap();
    assert_eq!(first.roster.cluster(), "");
    for word in ["drawn", "another"] {
        cluster.draw_word(word);
        first.step().unwrap();
        assert_eq!(first.roster.cluster(), "drawn");
    }
}

#[test]
fn records_follow_each_other_a_second_apart_give_or_take_a_quarter() {
    let mut presence = cluster().presence("a", 1);
    let pauses: Vec<u64> = (0..1_000).map(|_| presence.pause().0 / 10_000).collect();
    let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
    assert!((75..80).contains(least) && (121..=125).contains(most), "{least} to {most} hundredths");
}

#[tokio::test]
async fn a_controller_that_stops_has_been_shown_about_once_a_second_and_leaves_the_list() {
    let cluster = cluster();
    let clock = Clock::start();
    let shown = cluster.presence("a", 1).go_on(|namesake| panic!("{namesake}")).unwrap();
    until(&shown, || cluster.changed() > 0);
    park_timeout(Duration::from_millis(50));
    shown.end().await;
    assert_eq!(cluster.changed(), 0);
    // The first record and the removal come beside those of all pauses.
    let pauses = clock.now().0 / (EVERY.0 - EVERY.0 / VARIES);
    let changes = cluster.model.changes().len() as u64;
    assert!(changes <= 2 + pauses, "{changes} changes in {} us", clock.now().0);
}

#[test]
fn a_controller_leaves_the_list_though_the_last_answer_before_was_lost() {
    for fault in [Fault::Lost, Fault::Away] {
        let cluster = cluster();
        let mut first = cluster.presence("a", 1);
        for answered in [true, false] {
            cluster.model.plan((!answered).then_some(Some(fault)));
            first.step().unwrap();
        }
        first.leave();
        assert_eq!(cluster.changed(), 0, "{fault:?}");
    }
    // So is the first one.
    let cluster = cluster();
    let mut first = cluster.presence("a", 1);
    cluster.model.plan([Some(Fault::Lost)]);
    first.step().unwrap();
    first.leave();
    assert_eq!(cluster.changed(), 0);
}

#[tokio::test]
async fn a_thread_that_finds_another_process_under_its_name_says_so_and_leaves_its_record() {
    let cluster = cluster();
    let (mut first, second) = (cluster.presence("a", 1), cluster.presence("a", 2));
    let (roster, (found, namesake)) = (Arc::clone(&second.roster), mpsc::channel());
    first.step().unwrap();
    let shown = second.go_on(move |namesake| found.send(namesake).unwrap()).unwrap();
    for _ in 0..2 {
        // The thread has seen this record before the next one is there.
        until(&shown, || roster.record_of("a").is_some_and(|record| record.changed == cluster.changed()));
        first.step().unwrap();
        shown.thread.thread().unpark();
    }
    assert_eq!(namesake.recv().unwrap().name, "a");
    shown.end().await;
    assert_eq!(first.roster.all()[0].record.instance, 1);
    assert!(cluster.changed() > 0, "it is the other one's");
}
