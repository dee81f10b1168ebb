//! What the controllers granted, by their messages alone: no crash makes this forget.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::group::GroupId;
use tidegate_core::units::Rate;

/// A node, its incarnation, and a group.
type Holder = (usize, u64, GroupId);

/// What no crash makes forget.
#[derive(Default)]
pub(super) struct Witness {
    /// The highest rate that was ever granted to each holder.
    highest: BTreeMap<Holder, Rate>,
    /// Groups whose limit, or one above it, is or was in shadow.
    pub(super) shadowed: BTreeSet<GroupId>,
}

impl Witness {
    /// Takes in a grant.
    ///
    /// # Errors
    /// A controller that recovers granted more than the node can have held.
    pub(super) fn granted(&mut self, to: Holder, rate: Rate, recovering: bool) -> Result<(), String> {
        let highest = self.highest.entry(to).or_default();
        if recovering && rate > *highest {
            let (node, _, group) = to;
            return Err(format!(
                "group {}: node {node} got {rate} in recovery and was never granted more than {highest} before",
                group.0
            ));
        }
        *highest = rate.max(*highest);
        Ok(())
    }
}
