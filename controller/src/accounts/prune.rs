//! How far the history is pruned: by the wall clock, and never much faster than time passes.
//!
//! A wall clock that is set a year ahead, for an hour, would take all of the history with it. So what is kept begins at
//! most twice as fast as the monotonic clock runs: after a long stop that is soon right again, and a clock that was wrong
//! for an hour costs an hour.

use std::ops::ControlFlow;

use tidegate_core::group::GroupId;
use tidegate_core::units::Span;

use crate::accounts::AccountCalls;
use crate::accounts::history::Resolution;
use crate::store::records::{pair_key, pair_of};
use crate::store::{Batch, StoreError, Write};

/// How much faster than time the history may go. With one a stop leaves rows of before for ever; with twice of it a wrong
/// clock costs twice as much.
const FASTER: u64 = 2;

/// Where the history begins.
#[derive(Debug, Default)]
pub(crate) struct Pruned {
    /// When that was said last, in seconds since the start.
    at_s: u64,
    /// In seconds since the Unix epoch, by resolution; `None` before the first time.
    from: [Option<u64>; Resolution::ALL.len()],
}

impl AccountCalls<'_> {
    /// Removes what is too old.
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

    /// Begin of the oldest row.
    fn oldest(&self, resolution: Resolution) -> Result<Option<u64>, StoreError> {
        let (table, mut oldest) = (resolution.table(), None);
        self.service.store().scan(table, &[], &mut |key, _| {
            oldest = Some(pair_of(table, key)?.0);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(oldest)
    }
}
