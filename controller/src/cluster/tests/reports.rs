//! What a node charged, what of it it still has to report, and what it was told is durable.
//!
//! A total goes out with every renewal until it is durable, and never again: a controller that confirms too early loses it
//! for good.

use std::collections::BTreeMap;

use tidegate_core::usage::Total;

use super::groups::KINDS;
use crate::service::ReportIn;

/// Totals by incarnation and group.
#[derive(Default)]
pub(super) struct Reports(BTreeMap<(u64, usize), Progress>);

#[derive(Default)]
pub(super) struct Progress {
    pub(super) total: Total,
    pub(super) durable: Total,
    /// The largest that was sent.
    pub(super) said: Total,
    /// What went out over the stream with which message.
    sent: BTreeMap<u64, Total>,
    /// The node's process died, and its journal with it.
    pub(super) is_lost: bool,
}

impl Progress {
    fn is_unsure(&self) -> bool {
        !self.is_lost && self.total != self.durable
    }
}

impl Reports {
    pub(super) fn set(&mut self, incarnation: u64, group: usize, total: Total) {
        self.0.entry((incarnation, group)).or_default().total = total;
    }

    /// What goes out with message `seq`.
    pub(super) fn send(&mut self, seq: u64) -> Vec<ReportIn> {
        let unsure = self.0.iter_mut().filter(|(_, progress)| progress.is_unsure());
        let told = unsure.map(|((incarnation, group), progress)| {
            progress.sent.insert(seq, progress.total);
            progress.said = progress.total;
            let group = KINDS[*group].name.to_owned();
            ReportIn { group, incarnation: *incarnation, total: Ok(progress.total), waited: Vec::new() }
        });
        told.collect()
    }

    /// All that was sent over the stream with messages up to `seq` is durable.
    pub(super) fn durable(&mut self, seq: u64) {
        for progress in self.0.values_mut() {
            let later = progress.sent.split_off(&(seq + 1));
            if let Some((_, total)) = std::mem::replace(&mut progress.sent, later).pop_last() {
                progress.durable = total;
            }
        }
    }

    /// The stream is gone: what it carried is sent again.
    pub(super) fn unsure(&mut self) {
        self.0.values_mut().for_each(|progress| progress.sent.clear());
    }

    /// The journal is gone, with what earlier incarnations left in it.
    pub(super) fn lose(&mut self) {
        self.0.values_mut().for_each(|progress| progress.is_lost = true);
    }

    /// Whether nothing is left to report.
    pub(super) fn is_settled(&self) -> bool {
        !self.0.values().any(Progress::is_unsure)
    }

    /// All of them, by incarnation and group.
    pub(super) fn all(&self) -> impl Iterator<Item = ((u64, usize), &Progress)> {
        self.0.iter().map(|(of, progress)| (*of, progress))
    }
}
