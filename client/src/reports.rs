//! Which part of this node's consumption the controller has on disk, and which must still be reported.
//!
//! Reports are cumulative. A total counts as confirmed when the controller says that a message which carried it is
//! durable; totals sent on a stream that broke are sent again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::units::RuTotal;
use tidegate_core::usage::Total;
use tidegate_proto::v1;

use crate::groups::GroupCell;
use crate::journal::{Inherited, Journal};
use crate::names::GroupName;
use crate::session::convert;
use crate::waited::Pieces;

/// Progress of all reports of one client.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    current: BTreeMap<u64, Progress>,
    inherited: Vec<Ancestral>,
    /// Group after which the next batch begins, so that a batch cut short starves no group.
    cursor: u64,
    /// Groups that the newest batch sent to sleep.
    fell_asleep: Vec<GroupName>,
}

/// What is known of one group's total.
#[derive(Debug, Default)]
struct Progress {
    durable: Total,
    /// Oldest message on the live stream that is not durable and carried a total, and that total. Kept beside the
    /// newest, so that a group that is always busy is confirmed, too.
    oldest: Option<(u64, Total)>,
    /// The newest message that carried a new total.
    newest: Option<(u64, Total)>,
    /// The total that the controller could not count; reported again when it has changed, or on the next stream.
    refused: Option<Total>,
    /// Waits that are not durable.
    waited: Pieces,
}

impl Progress {
    /// `total` goes out with message `seq`.
    fn sent(&mut self, seq: u64, total: Total) {
        // An unchanged total is confirmed by the first message that carried it.
        if self.newest.is_none_or(|(_, sent)| sent != total) {
            self.newest = Some((seq, total));
            self.oldest = self.oldest.or(self.newest);
        }
    }

    /// The total that went out with message `seq` was not counted, nor were those before it.
    fn refused(&mut self, seq: u64) {
        self.waited.refused(seq);
        let later = |sent: &(u64, Total)| sent.0 > seq;
        let last = [self.newest, self.oldest].into_iter().flatten().find(|sent| !later(sent));
        self.refused = last.map(|(_, total)| total).or(self.refused);
        self.newest = self.newest.filter(later);
        self.oldest = self.oldest.filter(later).or(self.newest);
    }

    /// Every message up to `seq` is on disk.
    fn durable(&mut self, seq: u64) {
        self.waited.durable(seq);
        match (self.oldest, self.newest) {
            (_, Some((sent, total))) if sent <= seq => {
                (self.durable, self.oldest, self.newest, self.refused) = (total, None, None, None);
            }
            (Some((sent, total)), newest) if sent <= seq => (self.durable, self.oldest) = (total, newest),
            _ => {}
        }
    }
}

/// A total of an earlier incarnation.
#[derive(Debug)]
struct Ancestral {
    entry: Inherited,
    sent: Option<u64>,
    /// The controller could not count it; reported again on the next stream.
    refused: bool,
}

/// Consumption that the controller has not confirmed to be on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The group.
    pub group: GroupName,
    /// The incarnation that consumed it; 0 is the current one.
    pub incarnation: u64,
    /// RU charged beyond what is confirmed.
    pub ru: RuTotal,
}

impl Reports {
    /// Begins with what earlier incarnations left in the journal.
    pub(crate) fn new(inherited: Vec<Inherited>) -> Self {
        let inherited =
            inherited.into_iter().map(|entry| Ancestral { entry, sent: None, refused: false }).collect();
        Self { inherited, ..Self::default() }
    }

    /// Collects at most `limit` reports for message `seq`, of everything that is not durable.
    pub(crate) fn collect(&mut self, seq: u64, cells: &[Arc<GroupCell>], limit: usize) -> Vec<v1::Report> {
        let mut reports = Vec::new();
        self.collect_inherited(seq, limit, &mut reports, |old| old.sent.is_none());
        self.collect_current(seq, cells, limit, &mut reports);
        // What goes out again only asks for the confirmation: whatever did not go out yet has the room.
        self.collect_inherited(seq, limit, &mut reports, |old| old.sent.is_some_and(|sent| sent < seq));
        reports
    }

    /// Of earlier incarnations. A total that never changes is confirmed by the first message that carried it.
    fn collect_inherited(
        &mut self,
        seq: u64,
        limit: usize,
        reports: &mut Vec<v1::Report>,
        is_wanted: impl Fn(&Ancestral) -> bool,
    ) {
        let room = limit.saturating_sub(reports.len());
        for old in self.inherited.iter_mut().filter(|old| !old.refused && is_wanted(old)).take(room) {
            old.sent.get_or_insert(seq);
            reports.push(convert::report(&old.entry.group, old.entry.incarnation, &old.entry.total));
        }
    }

    /// Of this one.
    fn collect_current(
        &mut self,
        seq: u64,
        cells: &[Arc<GroupCell>],
        limit: usize,
        reports: &mut Vec<v1::Report>,
    ) {
        self.fell_asleep.clear();
        let from = cells.partition_point(|cell| cell.id() < self.cursor);
        let (before, after) = cells.split_at_checked(from).unwrap_or((cells, &[]));
        for cell in after.iter().chain(before) {
            if reports.len() >= limit {
                self.cursor = cell.id();
                break;
            }
            // Most groups of a node with many are idle, and what was not charged since they woke needs no account.
            let known = self.of(cell);
            if cell.consumption() == known {
                if cell.try_sleep(&known) {
                    self.current.remove(&cell.id());
                    self.fell_asleep.push(cell.name().clone());
                }
                continue;
            }
            let begun = Progress { durable: known, ..Progress::default() };
            let progress = self.current.entry(cell.id()).or_insert(begun);
            // The journal never falls behind a report: a total must not shrink when the process dies.
            let (total, unreported) = cell.report();
            if let Some(unreported) = unreported {
                progress.waited.add(&unreported);
            }
            if progress.refused == Some(total) {
                continue;
            }
            let waited = progress.waited.send(seq);
            reports.push(v1::Report { waited, ..convert::report(cell.name(), 0, &total) });
            progress.sent(seq, total);
        }
    }

    /// Groups that the newest batch sent to sleep; returned once.
    pub(crate) fn fell_asleep(&mut self) -> Vec<GroupName> {
        std::mem::take(&mut self.fell_asleep)
    }

    /// A report of message `seq` was not counted, so nothing that is said of the message speaks for it. `cell` is the
    /// group's, where it has one.
    pub(crate) fn refused(&mut self, seq: u64, report: &v1::RefusedReport, cell: Option<&GroupCell>) {
        if report.incarnation == 0 {
            if let Some(progress) = cell.and_then(|cell| self.current.get_mut(&cell.id())) {
                progress.refused(seq);
            }
            return;
        }
        let named = |old: &&mut Ancestral| {
            old.entry.incarnation == report.incarnation && *old.entry.group == *report.group
        };
        for old in self.inherited.iter_mut().filter(named) {
            (old.sent, old.refused) = (None, true);
        }
    }

    /// Every message up to `seq` is on the controller's disk.
    pub(crate) fn durable(&mut self, seq: u64, journal: Option<&Journal>) {
        self.current.values_mut().for_each(|progress| progress.durable(seq));
        self.inherited.retain(|old| {
            let confirmed = old.sent.is_some_and(|sent| sent <= seq);
            if confirmed
                && let Some(journal) = journal
                && let Err(error) = journal.drop_slot(old.entry.slot)
            {
                tracing::error!(%error, "what was confirmed will be reported again");
            }
            !confirmed
        });
    }

    /// The stream is gone, and with it whatever had not arrived.
    pub(crate) fn session_lost(&mut self) {
        for progress in self.current.values_mut() {
            (progress.oldest, progress.newest, progress.refused) = (None, None, None);
            progress.waited.session_lost();
        }
        for old in &mut self.inherited {
            (old.sent, old.refused) = (None, false);
        }
    }

    /// How many totals wait to be reported or confirmed.
    pub(crate) fn count(&self, cells: &[Arc<GroupCell>]) -> usize {
        let current = cells.iter().filter(|cell| cell.consumption() != self.of(cell)).count();
        self.inherited.len().saturating_add(current)
    }

    /// What is not confirmed.
    pub(crate) fn unconfirmed(&self, cells: &[Arc<GroupCell>]) -> Vec<Unconfirmed> {
        let old = self.inherited.iter().map(|old| Unconfirmed {
            group: old.entry.group.clone(),
            incarnation: old.entry.incarnation,
            ru: old.entry.total.ru(),
        });
        let current = cells.iter().filter_map(|cell| {
            let (total, durable) = (cell.consumption(), self.of(cell));
            let ru = total.ru() - durable.ru();
            (total != durable).then(|| Unconfirmed { group: cell.name().clone(), incarnation: 0, ru })
        });
        old.chain(current).collect()
    }

    /// Empties the journal of all that is confirmed; the node ends.
    pub(crate) fn forget_confirmed(&self, cells: &[Arc<GroupCell>]) {
        for cell in cells {
            cell.forget_journal(&self.of(cell));
        }
    }

    fn of(&self, cell: &GroupCell) -> Total {
        self.current.get(&cell.id()).map_or_else(|| cell.confirmed(), |progress| progress.durable)
    }
}

#[cfg(test)]
mod tests {
    mod refusals;

    use std::path::Path;
    use std::time::Duration;

    use tidegate_core::exchange::Grant;
    use tidegate_core::group::Fallback;
    use tidegate_core::node::NodeConfig;
    use tidegate_core::units::{Ru, Span};
    use tidegate_core::usage::{Consumption, RuParts};

    use super::*;
    use crate::cell::{Entered, Place, Wish};
    use crate::names::Identity;
    use crate::shared::Shared;

    fn cells(shared: &Arc<Shared>, names: &[&str]) -> Vec<Arc<GroupCell>> {
        let make = |(id, name): (u64, &&str)| {
            GroupCell::new(id, GroupName::new(name).unwrap(), Arc::clone(shared), Arc::default(), None)
        };
        (0..).zip(names).map(make).collect()
    }

    fn charge(cell: &Arc<GroupCell>, ru: i64) {
        let flat = RuParts::flat(Ru(ru));
        let actual = Consumption { charged: flat, operations: 1, ..Consumption::default() };
        cell.with(|state, now| state.charge(now, &actual));
    }

    fn totals(reports: &[v1::Report]) -> Vec<(&str, i64)> {
        reports.iter().map(|r| (r.group.as_str(), r.total.as_ref().unwrap().flat_micro_ru)).collect()
    }

    #[test]
    fn a_total_is_reported_until_a_message_that_carried_it_is_durable() {
        let shared = Shared::new(NodeConfig::default(), None);
        let cells = cells(&shared, &["a", "b"]);
        let mut reports = Reports::default();
        assert_eq!(reports.count(&cells), 0);
        charge(&cells[0], 5);
        assert_eq!(totals(&reports.collect(1, &cells, 10)), [("a", 5)]);
        assert_eq!(totals(&reports.collect(2, &cells, 10)), [("a", 5)]);
        charge(&cells[1], 7);
        assert_eq!(totals(&reports.collect(3, &cells, 10)), [("a", 5), ("b", 7)]);
        reports.durable(2, None);
        assert_eq!(totals(&reports.collect(4, &cells, 10)), [("b", 7)]);
        reports.session_lost();
        reports.durable(4, None);
        let left = reports.unconfirmed(&cells);
        assert_eq!(left.iter().map(|u| (&*u.group, u.ru)).collect::<Vec<_>>(), [("b", RuTotal(7))]);
        reports.collect(5, &cells, 10);
        reports.durable(5, None);
        assert!(reports.count(&cells) == 0 && reports.unconfirmed(&cells).is_empty());
    }

    #[test]
    fn what_was_refused_is_never_confirmed_and_is_told_again_when_it_changed_or_the_stream_did() {
        let shared = Shared::new(NodeConfig::default(), None);
        let cells = cells(&shared, &["a", "b"]);
        let mut reports = Reports::default();
        charge(&cells[0], 5);
        charge(&cells[1], 7);
        assert_eq!(totals(&reports.collect(1, &cells, 10)), [("a", 5), ("b", 7)]);
        let refused = v1::RefusedReport { group: "a".into(), ..v1::RefusedReport::default() };
        reports.refused(1, &refused, Some(&cells[0]));
        reports.durable(1, None);
        assert_eq!(totals(&reports.collect(2, &cells, 10)), [], "not once a second for ever");
        reports.durable(2, None);
        let left = reports.unconfirmed(&cells);
        assert_eq!(left.iter().map(|u| (&*u.group, u.ru)).collect::<Vec<_>>(), [("a", RuTotal(5))]);
        charge(&cells[0], 1);
        assert_eq!(totals(&reports.collect(3, &cells, 10)), [("a", 6)]);
        reports.refused(3, &refused, Some(&cells[0]));
        reports.session_lost();
        assert_eq!(totals(&reports.collect(4, &cells, 10)), [("a", 6)]);
        reports.durable(4, None);
        assert_eq!(reports.count(&cells), 0);
    }

    fn open(dir: &Path, wall_us: u64) -> (Journal, Vec<Inherited>) {
        Journal::open(dir, &Identity::new("node-1").unwrap(), wall_us).unwrap()
    }

    /// The second start of a node, whose first one left ten RU of each group behind.
    fn left_behind(dir: &Path, groups: &[&str]) -> (Journal, Vec<Inherited>) {
        let (journal, _) = open(dir, 1);
        let mut total = Total::default();
        total.count(&Consumption { charged: RuParts::flat(Ru(10)), operations: 1, ..Consumption::default() });
        for name in groups {
            let group = GroupName::new(name).unwrap();
            journal.write(&mut journal.claim(&group).unwrap(), &group, &total).unwrap();
        }
        drop(journal);
        open(dir, 2)
    }

    #[test]
    fn what_an_earlier_start_left_is_confirmed_only_by_a_message_of_the_stream_that_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, inherited) = left_behind(dir.path(), &["a", "b", "c"]);
        let mut reports = Reports::new(inherited);
        assert_eq!(reports.collect(1, &[], 2).len(), 2);
        reports.session_lost();
        // The next message has room for one, and speaks for no other.
        assert_eq!(reports.collect(2, &[], 1).len(), 1);
        reports.durable(2, Some(&journal));
        assert_eq!(reports.unconfirmed(&[]).len(), 2);
        drop(journal);
        assert_eq!(open(dir.path(), 3).1.len(), 2, "nor is anything else gone from the journal");
    }

    #[test]
    fn what_is_refused_of_an_earlier_start_is_told_apart_from_other_groups_and_from_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, inherited) = left_behind(dir.path(), &["a", "b"]);
        let shared = Shared::new(NodeConfig::default(), None);
        let cells = cells(&shared, &["a"]);
        charge(&cells[0], 5);
        let mut reports = Reports::new(inherited);
        assert_eq!((reports.count(&[]), reports.count(&cells)), (2, 3));
        assert_eq!(totals(&reports.collect(1, &cells, 10)), [("a", 10), ("b", 10), ("a", 5)]);
        let refused = v1::RefusedReport { group: "a".into(), incarnation: 1, ..v1::RefusedReport::default() };
        reports.refused(1, &refused, Some(&cells[0]));
        let unknown = v1::RefusedReport { incarnation: 7, ..refused };
        reports.refused(1, &unknown, Some(&cells[0]));
        reports.durable(1, Some(&journal));
        let left = reports.unconfirmed(&cells);
        let left: Vec<_> = left.iter().map(|left| (&*left.group, left.incarnation, left.ru)).collect();
        assert_eq!(left, [("a", 1, RuTotal(10))]);
        assert_eq!(totals(&reports.collect(2, &cells, 10)), [], "not again on this stream");
        assert_eq!(reports.count(&cells), 1);
        reports.session_lost();
        assert_eq!(totals(&reports.collect(3, &cells, 10)), [("a", 10)]);
        reports.durable(3, Some(&journal));
        assert!(reports.count(&cells) == 0 && reports.unconfirmed(&cells).is_empty());
    }

    #[test]
    fn of_what_earlier_starts_left_the_rest_comes_before_what_went_out_already() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, inherited) = left_behind(dir.path(), &["a", "b", "c"]);
        let mut reports = Reports::new(inherited);
        let mut told = |seq, limit| {
            let collected = reports.collect(seq, &[], limit);
            collected.iter().map(|report| report.group.clone()).collect::<Vec<_>>()
        };
        assert_eq!((told(1, 2), told(2, 2)), (vec!["a".into(), "b".into()], vec!["c".into(), "a".into()]));
        reports.durable(1, Some(&journal));
        let left: Vec<_> = reports.unconfirmed(&[]).into_iter().map(|left| left.group.to_string()).collect();
        assert_eq!(left, ["c"], "the first message that carried a total confirms it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_is_sent_to_sleep_once_and_begins_with_what_was_confirmed() {
        let shared = Shared::new(NodeConfig { idle_after: Span(0), ..NodeConfig::default() }, None);
        let cells = cells(&shared, &["a", "b"]);
        let mut reports = Reports::default();
        charge(&cells[0], 5);
        assert_eq!(totals(&reports.collect(1, &cells, 10)), [("a", 5)]);
        reports.durable(1, None);
        let free = Grant::Unlimited { ttl: Span::secs(60), renew_after: Span(0), fallback: Fallback::Stop };
        for seq in [1, 2] {
            assert!(cells[0].if_awake(|state, now| state.ask(now, seq)).flatten().is_some());
            cells[0].grant(seq, &free, Vec::new(), None);
        }
        cells[0].if_awake(|state, _| state.looked());
        assert_eq!(totals(&reports.collect(2, &cells, 10)), []);
        let asleep: Vec<_> = reports.fell_asleep().iter().map(ToString::to_string).collect();
        assert_eq!(asleep, ["a"], "the other has a lease to ask for");
        assert!(reports.fell_asleep().is_empty(), "once");
        assert!(reports.current.is_empty(), "what a sleeping group remembers is its own");
        charge(&cells[0], 2);
        assert_eq!(reports.unconfirmed(&cells).iter().map(|left| left.ru).collect::<Vec<_>>(), [RuTotal(2)]);
        assert_eq!(totals(&reports.collect(3, &cells, 10)), [("a", 7)]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_of_a_stream_that_was_lost_are_told_on_the_next() {
        let shared = Shared::new(NodeConfig::default(), None);
        let cells = cells(&shared, &["a"]);
        let deadline = shared.clock.now().after(Span::millis(5));
        let wish = Wish { cost: Ru(1), deadline, estimated: false, place: Place::Only };
        let waits = cells[0].with(|state, now| state.acquire(now, wish));
        tokio::time::advance(Duration::from_millis(10)).await;
        cells[0].with(|_, _| ());
        assert!(matches!(waits, Ok(Entered::Queued(..))));
        let mut reports = Reports::default();
        let mut told = |lost: bool, seq| {
            if lost {
                reports.session_lost();
            }
            if seq > 4 {
                reports.durable(4, None);
            }
            reports.collect(seq, &cells, 10).iter().map(|report| report.waited.len()).sum::<usize>()
        };
        assert_eq!((told(false, 1), told(false, 2), told(true, 3)), (1, 0, 1));
        assert_eq!((told(true, 4), told(false, 5), told(true, 6)), (1, 0, 0), "they are durable");
    }

    #[test]
    fn a_small_batch_goes_round_and_starves_nobody() {
        let shared = Shared::new(NodeConfig::default(), None);
        let cells = cells(&shared, &["a", "b", "c"]);
        cells.iter().for_each(|cell| charge(cell, 1));
        let mut reports = Reports::default();
        let batches: Vec<_> = (1..=3).map(|seq| totals(&reports.collect(seq, &cells, 2)).len()).collect();
        assert_eq!(batches, [2, 2, 2]);
        reports.durable(3, None);
        assert_eq!(reports.count(&cells), 0);
    }

    #[test]
    fn a_confirmation_covers_what_its_message_carried_and_nothing_newer() {
        let shared = Shared::new(NodeConfig::default(), None);
        let cells = cells(&shared, &["a"]);
        // A confirmation lags behind by a number of messages that changes; each message carries one RU more.
        for lag in 1..6_u64 {
            let mut reports = Reports::default();
            let mut carried = Vec::new();
            let before = cells[0].consumption().ru();
            reports.collect(1, &cells, 10);
            reports.durable(1, None);
            for seq in 2..40_u64 {
                charge(&cells[0], 1);
                reports.collect(seq, &cells, 10);
                carried.push((seq, cells[0].consumption().ru() - before));
                let confirmed = seq.saturating_sub(lag + seq % 3);
                reports.durable(confirmed, None);
                let told =
                    carried.iter().rev().find(|(seq, _)| *seq <= confirmed).map_or(RuTotal(0), |(_, ru)| *ru);
                let total = carried.last().unwrap().1;
                let left = reports.unconfirmed(&cells).first().map_or(RuTotal(0), |left| left.ru);
                assert!(
                    left >= total - told,
                    "{left:?} left of {total:?}, {told:?} confirmed by {confirmed}"
                );
            }
        }
    }

    #[test]
    fn a_busy_group_is_confirmed_although_the_disk_is_always_behind() {
        let shared = Shared::new(NodeConfig::default(), None);
        let cells = cells(&shared, &["a"]);
        let mut reports = Reports::default();
        for seq in 1..=20 {
            charge(&cells[0], 1);
            reports.collect(seq, &cells, 10);
            reports.durable(seq.saturating_sub(5), None);
        }
        let left = reports.unconfirmed(&cells)[0].ru;
        assert!(left <= RuTotal(11), "{left:?} of 20 not confirmed");
        reports.durable(20, None);
        assert_eq!(reports.count(&cells), 0);
    }
}
