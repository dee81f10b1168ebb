//! How far the history is pruned: by the wall clock, but never much faster than time passes.
//!
//! A wall clock that is set a year ahead, for an hour, would delete all of the history. So the beginning of the history
//! moves at most twice as fast as the monotonic clock runs: after a long stop it is soon right again, and a clock that
//! was wrong for an hour costs an hour.

use std::ops::ControlFlow;

use tidegate_core::group::GroupId;
use tidegate_core::units::Span;

use crate::accounts::AccountCalls;
use crate::accounts::history::Resolution;
use crate::store::records::{pair_key, pair_of};
use crate::store::{Batch, StoreError, Write};

/// How much faster than time the beginning may move. At one, rows from before a stop would stay for ever; at twice
/// this, a wrong clock costs twice as much.
const FASTER: u64 = 2;

/// The beginning of the history.
#[derive(Debug, Default)]
pub(crate) struct Pruned {
    /// When it was last computed, in seconds since the start.
    at_s: u64,
    /// Where it is, in seconds since the Unix epoch, by resolution; `None` before the first time.
    from: [Option<u64>; Resolution::ALL.len()],
}

impl AccountCalls<'_> {
    /// Returns a batch that removes what is too old.
    pub(crate) fn prune(&self, pruned: &mut Pruned) -> Result<Batch, StoreError> {
        let (unix_s, now_s) =
            (self.service.clock().unix_ms() / 1_000, self.service.clock().uptime().0 / Span::secs(1).0);
        let passed = now_s.saturating_sub(pruned.at_s).saturating_mul(FASTER);
        let mut batch = Batch::new();
        for (resolution, from) in Resolution::ALL.into_iter().zip(&mut pruned.from) {
            let wanted = unix_s.saturating_sub(resolution.kept_s());
            let before = match *from {
                Some(before) => before,
                None => self.oldest(resolution)?.unwrap_or(wanted),
            };
            let begin = before.saturating_add(passed).min(wanted).max(before);
            *from = Some(begin);
            let key = pair_key(resolution.start(begin), GroupId::ROOT);
            batch.push(Write::DeleteBelow(resolution.table(), key));
        }
        pruned.at_s = now_s;
        Ok(batch)
    }

    /// Start of the oldest row.
    fn oldest(&self, resolution: Resolution) -> Result<Option<u64>, StoreError> {
        let (table, mut oldest) = (resolution.table(), None);
        self.service.store().scan(table, &[], &mut |key, _| {
            oldest = Some(pair_of(table, key)?.0);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(oldest)
    }
}
