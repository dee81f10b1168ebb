//! What the controllers granted, by their messages alone: no crash makes this forget.

use std::collections::BTreeMap;

use tidegate_core::group::GroupId;
use tidegate_core::units::Rate;

/// A node, its incarnation, and a group.
type Holder = (usize, u64, GroupId);

/// The highest rate that was ever granted to each holder.
#[derive(Default)]
pub(super) struct Witness(BTreeMap<Holder, Rate>);

impl Witness {
    /// Takes in a grant.
    ///
    /// # Errors
    /// A controller that recovers granted more than the node can have held.
    pub(super) fn granted(&mut self, to: Holder, rate: Rate, recovering: bool) -> Result<(), String> {
        let highest = self.0.entry(to).or_default();
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
