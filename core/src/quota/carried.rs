//! What nodes may still use of a quota by shares of windows that are over: of one that was changed, of one that opened
//! early, or of the controller before. It counts in the windows that follow, which do not hear of it.

use super::{Opening, Quota};
use crate::engine::Engine;
use crate::group::{ClientId, GroupId};
use crate::units::Time;

/// What nodes may use by shares of windows that are over, without counting it in the present one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Carried {
    pub(super) until: Time,
    pub(super) held: i128,
}

impl Quota {
    /// Counts what nodes may still use by shares of windows before this one: as used, or, where it rolls, as lost once they
    /// cannot use it any more.
    fn carry(&mut self, now: Time, early: Carried) {
        if early.held == 0 {
            return;
        }
        let all =
            Carried { until: self.carried.until.max(early.until), held: self.carried.held + early.held };
        (self.granted, self.carried) = (self.granted + early.held, all);
        if let Some(cells) = &mut self.cells {
            self.lost += early.held;
            cells.lose(now, all.until, all.held);
        }
    }

    /// What nodes may still use by shares of this window and of those before it.
    fn held(&self, now: Time) -> i128 {
        let of_shares = match &self.cells {
            _ if self.told <= now => 0,
            None => self.unused,
            Some(cells) => self.granted - cells.sums().0,
        };
        of_shares + if self.carried.until > now { self.carried.held } else { 0 }
    }
}

impl Engine {
    /// Opens a window of a group's quota. If it opens before the end that nodes were given, what they hold of the one
    /// before may be used in this one. No number of requests stands for RU: what is held of the other unit counts in no
    /// window that follows.
    pub fn open_quota(&mut self, now: Time, group: GroupId, opening: &Opening) {
        let Some(known) = self.tree.get(group).filter(|group| group.spec.quota.is_some()) else { return };
        let unit = known.spec.quota_unit;
        let before = known.quota.as_deref().filter(|before| before.unit == unit);
        let early = before.map(|before| self.usable(now, before)).unwrap_or_default();
        let mut quota = Quota::open(now, unit, opening);
        quota.carry(now, early);
        if let Some(group) = self.tree.get_mut(group) {
            group.quota = Some(Box::new(quota));
        }
        self.assert_invariants();
    }

    /// What nodes may still use by shares of a window and of those before it, and until when.
    fn usable(&self, now: Time, quota: &Quota) -> Carried {
        let held = quota.held(now);
        let shares_end = if held > 0 { self.shares_end(quota) } else { now };
        Carried { until: quota.carried.until.max(shares_end), held }
    }

    /// When the last lease with a share of a window ends, or the window by the latest end that a node was given.
    fn shares_end(&self, quota: &Quota) -> Time {
        let has_share = |client: &ClientId, id: &GroupId| {
            let lease = self.tree.get(*id).and_then(|group| group.live.leases.get(client));
            lease.is_some_and(|lease| lease.share.window == quota.window)
        };
        let last = self.expiries.iter().rev().find(|(_, client, id)| has_share(client, id));
        last.map(|(end, ..)| *end).unwrap_or_default().min(quota.told)
    }
}
