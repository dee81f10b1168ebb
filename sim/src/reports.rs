//! What a node still has to report of its consumption: its totals, and the part of them that the controller confirmed
//! to be on disk.
//!
//! A total is sent with every renewal until it is durable, and never again after that, so that a controller which
//! confirms too early loses it for good. Totals of earlier incarnations are in the journal and are reported like the
//! node's own.

use std::collections::BTreeMap;

use tidegate_controller::service::ReportIn;
use tidegate_core::group::GroupId;
use tidegate_core::units::Ru;
use tidegate_core::usage::Total;

use super::controller::name;

/// Totals by incarnation and group.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports(BTreeMap<(u64, GroupId), Progress>);

#[derive(Clone, Debug, Default)]
struct Progress {
    total: Total,
    durable: Total,
    /// What went out with which message.
    sent: BTreeMap<u64, Total>,
}

impl Reports {
    /// A group's total under an incarnation has grown to this.
    pub(super) fn set(&mut self, incarnation: u64, group: GroupId, total: Total) {
        self.0.entry((incarnation, group)).or_default().total = total;
    }

    /// All totals of an incarnation.
    pub(super) fn of(&self, incarnation: u64) -> BTreeMap<GroupId, Total> {
        let own = self.0.range((incarnation, GroupId(0))..=(incarnation, GroupId(u32::MAX)));
        own.map(|((_, group), progress)| (*group, progress.total)).collect()
    }

    /// What goes out with message `seq`.
    pub(super) fn send(&mut self, seq: u64) -> Vec<ReportIn> {
        let unsure = self.0.iter_mut().filter(|(_, progress)| progress.total != progress.durable);
        let told = unsure.map(|((incarnation, group), progress)| {
            progress.sent.insert(seq, progress.total);
            ReportIn {
                group: name(*group),
                incarnation: *incarnation,
                total: Ok(progress.total),
                waited: Vec::new(),
            }
        });
        told.collect()
    }

    /// Message `seq` is on disk, and with it all that it reported.
    pub(super) fn durable(&mut self, seq: u64) {
        for progress in self.0.values_mut() {
            if let Some(total) = progress.sent.get(&seq) {
                progress.durable = *total;
                progress.sent = progress.sent.split_off(&(seq + 1));
            }
        }
    }

    /// The stream is gone: its reports are sent again.
    pub(super) fn unsure(&mut self) {
        self.0.values_mut().for_each(|progress| progress.sent.clear());
    }

    /// The charges of a group under all incarnations.
    pub(super) fn charged(&self, id: GroupId) -> Ru {
        self.0
            .iter()
            .filter(|((_, group), _)| *group == id)
            .map(|(_, progress)| progress.total.ru().clamped())
            .sum()
    }

    /// The part of it that the controller said is on disk.
    pub(super) fn durable_of(&self, id: GroupId) -> Ru {
        let own = self.0.iter().filter(|((_, group), _)| *group == id);
        own.map(|(_, progress)| progress.durable.ru().clamped()).sum()
    }
}
