//! Refused reports beside messages before and after theirs.

use super::*;

fn refused() -> v1::RefusedReport {
    v1::RefusedReport { group: "a".into(), ..v1::RefusedReport::default() }
}

/// A group, of which nothing is reported yet.
fn one() -> (Vec<Arc<GroupCell>>, Reports) {
    (cells(&Shared::new(NodeConfig::default(), None), &["a"]), Reports::default())
}

fn left(reports: &Reports, cells: &[Arc<GroupCell>]) -> Vec<RuTotal> {
    reports.unconfirmed(cells).iter().map(|left| left.ru).collect()
}

#[test]
fn a_refusal_speaks_for_its_message_and_those_before_and_for_none_after() {
    let (cells, mut reports) = one();
    for seq in 1..=3 {
        charge(&cells[0], 5);
        assert_eq!(totals(&reports.collect(seq, &cells, 10)).len(), 1);
    }
    reports.refused(1, &refused(), Some(&cells[0]));
    assert_eq!(totals(&reports.collect(4, &cells, 10)), [("a", 15)], "that was not refused");
    charge(&cells[0], 5);
    assert_eq!(totals(&reports.collect(5, &cells, 10)), [("a", 20)]);
    // The oldest that was not refused is the third now, which is the newest of then.
    reports.durable(3, None);
    assert_eq!(left(&reports, &cells), [RuTotal(5)]);
}

#[test]
fn a_total_that_several_messages_carried_is_refused_with_the_first() {
    let (cells, mut reports) = one();
    charge(&cells[0], 5);
    for seq in 1..=3 {
        assert_eq!(totals(&reports.collect(seq, &cells, 10)), [("a", 5)]);
    }
    for seq in 1..=3 {
        reports.refused(seq, &refused(), Some(&cells[0]));
        assert_eq!(totals(&reports.collect(3 + seq, &cells, 10)), [], "after the refusal of message {seq}");
        reports.durable(seq, None);
    }
    assert_eq!(left(&reports, &cells), [RuTotal(5)]);
}

#[test]
fn the_oldest_total_is_confirmed_by_its_own_message() {
    let (cells, mut reports) = one();
    for seq in 1..=3 {
        charge(&cells[0], 5);
        reports.collect(seq, &cells, 10);
    }
    reports.durable(1, None);
    assert_eq!(left(&reports, &cells), [RuTotal(10)]);
}

/// An operation waits in vain.
async fn wait(cell: &Arc<GroupCell>) {
    let deadline = cell.shared().clock.now().after(Span::millis(5));
    let wish = Wish { cost: Ru(1), deadline, estimated: false, place: Place::Only };
    let waits = cell.with(|state, now| state.acquire(now, wish));
    tokio::time::advance(Duration::from_millis(10)).await;
    cell.with(|_, _| ());
    assert!(matches!(waits, Ok(Entered::Queued(..))));
}

/// How many pieces of waits are reported.
fn told(reports: &[v1::Report]) -> usize {
    reports.iter().map(|report| report.waited.len()).sum()
}

#[tokio::test(start_paused = true)]
async fn waits_that_are_durable_are_not_told_again_on_the_next_stream() {
    let shared = Shared::new(NodeConfig::default(), None);
    let cells = cells(&shared, &["a"]);
    let mut reports = Reports::default();
    wait(&cells[0]).await;
    assert_eq!(told(&reports.collect(1, &cells, 10)), 1);
    wait(&cells[0]).await;
    assert_eq!(told(&reports.collect(2, &cells, 10)), 1);
    reports.durable(1, None);
    reports.session_lost();
    assert_eq!(told(&reports.collect(3, &cells, 10)), 1, "the second only");
    reports.durable(3, None);
    charge(&cells[0], 5);
    reports.session_lost();
    let collected = reports.collect(4, &cells, 10);
    assert_eq!((collected.len(), told(&collected)), (1, 0));
}

/// The controller counts waits with the total that they belong to, which it counts with a later report.
#[tokio::test(start_paused = true)]
async fn waits_of_a_refused_report_are_told_again_with_the_next_and_no_others() {
    let (cells, mut reports) = one();
    for seq in 1..=3 {
        wait(&cells[0]).await;
        assert_eq!(told(&reports.collect(seq, &cells, 10)), 1);
    }
    reports.durable(1, None);
    reports.refused(2, &refused(), Some(&cells[0]));
    reports.durable(2, None);
    assert_eq!(told(&reports.collect(4, &cells, 10)), 1, "the second; the third is on its way");
    reports.durable(4, None);
    wait(&cells[0]).await;
    assert_eq!(told(&reports.collect(5, &cells, 10)), 1);
    reports.refused(5, &refused(), Some(&cells[0]));
    reports.durable(5, None);
    assert_eq!(told(&reports.collect(6, &cells, 10)), 0, "nothing has changed");
    wait(&cells[0]).await;
    assert_eq!(told(&reports.collect(7, &cells, 10)), 2);
    reports.durable(7, None);
    assert_eq!(reports.count(&cells), 0);
}
