//! Counting: a node's report enters the ledger, the history and the rates of the last seconds.

use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::ledger::{LedgerError, Reported};
use tidegate_core::units::{Rate, Span, Time};
use tidegate_core::usage::Total;
use tidegate_core::waited::Waited;

use super::Accounts;
use super::live::Live;
use super::waited::WaitedIn;
use crate::metrics::Charges;

/// Interval between log lines about a claim that is counted apart: a node sends thousands of reports a second. The
/// metric counts all of them.
const SAID_EVERY: Span = Span::secs(10);

impl Accounts {
    /// Counts a report. `charges` returns the counters of a group that was not charged lately.
    pub(crate) fn report(
        &mut self,
        now: Time,
        unix_s: u64,
        (client, group): (ClientId, GroupId),
        (total, waited): (&Total, &[WaitedIn]),
        charges: impl FnOnce() -> Charges,
    ) -> Result<Reported, LedgerError> {
        let reported = self.ledger.report(now, client, group, total)?;
        match &reported {
            Reported::Counted(delta) if *delta == Total::default() => {}
            Reported::Apart(_) => {
                self.charged.insert(group);
            }
            Reported::Counted(delta) => {
                self.history.add(group, unix_s, delta);
                let live = self.live.entry(group).or_insert_with(|| {
                    self.charged.insert(group);
                    (Live::default(), charges())
                });
                live.0.add(now, delta.ru().clamped());
                live.1.add(delta);
                self.live_clients.entry((group, client)).or_default().add(now, delta.ru().clamped());
                // What began before the last report was counted with it. A node's field ends at 64 bits.
                let had = (total.waited_us.saturating_sub(delta.waited_us)).min(u64::MAX.into());
                for new in waited.iter().filter(|piece| piece.since_us >= had) {
                    self.waits.add(now, group, new);
                }
            }
        }
        Ok(reported)
    }

    /// Whether to log a claim that is counted apart, and notes the time if so.
    pub(crate) fn says_apart(&mut self, now: Time) -> bool {
        let says = self.said_apart.is_none_or(|said| now.since(said) >= SAID_EVERY);
        if says {
            self.said_apart = Some(now);
        }
        says
    }

    /// Starts the count of a new group where the count of an earlier one of its name ended.
    pub(crate) fn begin_at(&mut self, now: Time, client: ClientId, group: GroupId, total: Total) {
        self.ledger.begin_at(now, client, group, total);
    }

    /// Drops a group that was deleted.
    pub(crate) fn forget_group(&mut self, id: GroupId) {
        self.ledger.forget_group(id);
        self.live.remove(&id);
        self.recent.forget_group(id);
        self.waits.forget_group(id);
        self.charged.remove(&id);
    }

    /// Operations that were refused or gave up, of groups that were charged lately.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (GroupId, u128)> {
        self.live.keys().map(|id| (*id, self.ledger.total(*id).throttled))
    }

    /// Groups with claims that are counted apart.
    pub(crate) fn apart(&self) -> impl Iterator<Item = (GroupId, &Total)> {
        self.ledger.groups_apart()
    }

    /// Drops the rates of groups and nodes without recent charges.
    pub(crate) fn tidy_idle(&mut self, now: Time) {
        self.live.retain(|_, (live, _)| !live.is_idle(now));
        self.live_clients.retain(|_, live| !live.is_idle(now));
        self.waits.tidy(now);
    }

    /// Groups that may have had waits within the last minute.
    pub(crate) fn with_waits(&self) -> impl Iterator<Item = GroupId> {
        self.waits.groups()
    }

    /// Waits of a group that ended within the last minute; `None` when none did.
    pub(crate) fn waits(&self, id: GroupId, now: Time) -> Option<Waited> {
        self.waits.of(now, id)
    }

    /// RU/s of a group in the last seconds.
    pub(crate) fn live(&self, id: GroupId, now: Time) -> Rate {
        self.live.get(&id).map_or(Rate::ZERO, |(live, _)| live.rate(now))
    }

    /// RU/s of each group over the last seconds, of those that used any.
    pub(crate) fn rates(&self, now: Time) -> impl Iterator<Item = (GroupId, Rate)> {
        let rates = self.live.iter().map(move |(id, (live, _))| (*id, live.rate(now)));
        rates.filter(|(_, rate)| *rate > Rate::ZERO)
    }
}
