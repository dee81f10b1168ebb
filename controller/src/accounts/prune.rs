//! How far the history is pruned: by the wall clock, but never much faster than time passes.
//!
//! A wall clock that is set a year ahead, for an hour, would delete all of the history. So the beginning of the history
//! moves at most twice as fast as the monotonic clock runs: after a long stop it is soon right again, and a clock that
//! was wrong for an hour costs an hour.

use std::ops::ControlFlow;

use tidegate_core::group::GroupId;
use tidegate_core::units::Span;

use crate::accounts::Upkeep;
use crate::accounts::history::Resolution;
use crate::limits::PAST_MINUTES_KEPT_S;
use crate::store::records::{pair_key, pair_of};
use crate::store::{Batch, StoreError, Table, Write};

/// How much faster than time the beginning may move. At one, rows from before a stop would stay for ever; at twice
/// this, a wrong clock costs twice as much.
const FASTER: u64 = 2;

/// Tables of the history, how many seconds each is kept, and how many a row of it has.
const KEPT: [(Table, u64, Resolution); 3] = [
    (Table::Minutes, Resolution::Minute.kept_s(), Resolution::Minute),
    (Table::Hours, Resolution::Hour.kept_s(), Resolution::Hour),
    (Table::PastMinutes, PAST_MINUTES_KEPT_S, Resolution::Hour),
];

/// The beginning of the history.
#[derive(Debug, Default)]
pub(crate) struct Pruned {
    /// When it was last computed, in seconds since the start.
    at_s: u64,
    /// Where it is, in seconds since the Unix epoch, by table; `None` before the first row.
    from: [Option<u64>; KEPT.len()],
    /// Minutes from here on are not packed yet, in seconds since the Unix epoch; a start begins with the oldest. Nothing
    /// is removed before it is packed.
    unpacked_from: u64,
}

impl Pruned {
    /// From which moment on minutes are not packed yet.
    pub(crate) fn unpacked_from(&self) -> u64 {
        self.unpacked_from
    }

    /// Minutes up to here are packed and stored.
    pub(crate) fn packed(&mut self, up_to: Option<u64>) {
        self.unpacked_from = up_to.unwrap_or(0).max(self.unpacked_from);
    }
}

impl Upkeep<'_> {
    /// Returns a batch that removes what is too old; of minutes nothing behind those that were packed just now, of which
    /// there may be more after a machine was suspended.
    pub(crate) fn prune(&self, pruned: &mut Pruned, packed: Option<u64>) -> Result<Batch, StoreError> {
        let (unix_s, now_s) =
            (self.service.clock().unix_ms() / 1_000, self.service.clock().uptime().0 / Span::secs(1).0);
        let passed = now_s.saturating_sub(pruned.at_s).saturating_mul(FASTER);
        let mut batch = Batch::new();
        for ((table, kept_s, rows), from) in KEPT.into_iter().zip(&mut pruned.from) {
            let wanted = unix_s.saturating_sub(kept_s);
            // Without a row there is nothing to remove, and nothing but the wall clock to begin with.
            let Some(before) = from.map_or_else(|| self.oldest(table), |before| Ok(Some(before)))? else {
                continue;
            };
            let begin = before.saturating_add(passed).min(wanted).max(before);
            *from = Some(begin);
            let gone = packed.filter(|_| table == Table::Minutes).map_or(begin, |packed| packed.min(begin));
            let key = pair_key(rows.start(gone), GroupId::ROOT);
            batch.push(Write::DeleteBelow(table, key));
        }
        pruned.at_s = now_s;
        Ok(batch)
    }

    /// Start of the oldest row.
    fn oldest(&self, table: Table) -> Result<Option<u64>, StoreError> {
        let mut oldest = None;
        self.service.store().scan(table, &[], &mut |key, _| {
            oldest = Some(pair_of(table, key)?.0);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(oldest)
    }
}
