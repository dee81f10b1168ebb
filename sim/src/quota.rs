//! Quotas: what operations cost in each minute, by the definition. The controller's calendar begins with the world, at
//! midnight unless a plan says otherwise, and quotas of a world are per minute.

use tidegate_core::group::GroupId;
use tidegate_core::units::{Ru, Span};

use super::world::World;

/// The length of a window.
pub(super) const MINUTE: Span = Span::secs(60);

/// The use of one quota.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    window: u64,
    settled: Ru,
    /// The part of it that was above the estimates.
    above: Ru,
    /// Settled in the window before.
    last: Ru,
}

impl World {
    /// An operation ended that cost so much, of which `above` was above its estimate.
    pub(super) fn spend_quota(&mut self, id: GroupId, actual: Ru, above: Ru) {
        let window = self.wall() / MINUTE.0;
        for group in self.chain(id) {
            let Some(amount) = self.specs.get(&group).and_then(|spec| spec.quota) else { continue };
            let spent = self.quotas.entry(group).or_default();
            if spent.window != window {
                let last = if spent.window + 1 == window { spent.settled } else { Ru::ZERO };
                *spent = Spent { window, last, ..Spent::default() };
            }
            (spent.settled, spent.above) = (spent.settled + actual, spent.above + above.or_zero());
            let Spent { settled, above, .. } = *spent;
            // What runs across the end of a window counts where it was let in, see `share.rs`; scenarios have little of it.
            if !self.checked && settled > amount + above {
                let group = group.0;
                self.violate(format!("group {group}: {settled} of a quota of {amount}, {above} unforeseen"));
            }
        }
    }

    /// The part of a group's quota that was used in the last whole window, in thousandths.
    pub(super) fn quota_used(&self, id: GroupId) -> Option<u64> {
        let amount = self.specs.get(&id)?.quota?;
        let spent = self.quotas.get(&id)?;
        let settled = match self.wall() / MINUTE.0 - spent.window {
            0 => spent.last,
            1 => spent.settled,
            _ => Ru::ZERO,
        };
        u64::try_from(i128::from(settled.0) * 1_000 / i128::from(amount.0.max(1))).ok()
    }
}
