//! How long leases may be out, by group, if that is longer than the definition says: the lease length was lowered, or a
//! group below was removed.
//!
//! It is stored beside each definition and decides how long the group, and the groups above it, recover from an unclean
//! stop. The longer length is forgotten when the last such lease has ended, and not before.

use std::collections::BTreeMap;

use tidegate_core::engine::EngineConfig;
use tidegate_core::group::GroupId;
use tidegate_core::units::{Span, Time};

use crate::leasing::LeasingCalls;
use crate::service::State;
use crate::store::records::{META_LONGEST_TTL, group_row, put_number};
use crate::store::{Batch, StoreError};

/// Groups with leases that are longer than their definitions say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Longest(BTreeMap<GroupId, Longer>);

/// Leases of up to this length, and the end of the last one.
#[derive(Clone, Copy, Debug)]
struct Longer {
    ttl: Span,
    until: Time,
}

impl Longest {
    /// The longest lease that may be out in a group whose definition says `defined`.
    pub(crate) fn of(&self, id: GroupId, defined: Span) -> Span {
        self.0.get(&id).map_or(defined, |longer| longer.ttl.max(defined))
    }

    /// The same once those that have ended by `now` are forgotten.
    fn of_after(&self, now: Time, id: GroupId, defined: Span) -> Span {
        let longer = self.0.get(&id).filter(|longer| longer.until > now);
        longer.map_or(defined, |longer| longer.ttl.max(defined))
    }

    /// Notes that leases of up to `ttl` may be out in a group until `until`, however its definition changes.
    pub(crate) fn remember(&mut self, id: GroupId, ttl: Span, until: Time) {
        let longer = self.0.entry(id).or_insert(Longer { ttl, until });
        (longer.ttl, longer.until) = (longer.ttl.max(ttl), longer.until.max(until));
    }

    /// The same for leases that were given until now.
    pub(crate) fn remember_from(&mut self, now: Time, id: GroupId, ttl: Span, config: EngineConfig) {
        self.remember(id, ttl, now.after(config.longest_use(ttl)));
    }

    /// Drops a removed group, whose leases are noted elsewhere.
    pub(crate) fn forget(&mut self, id: GroupId) {
        self.0.remove(&id);
    }

    /// Groups whose longer leases have all ended by `now`.
    fn over(&self, now: Time) -> impl Iterator<Item = GroupId> {
        self.0.iter().filter(move |(_, longer)| longer.until <= now).map(|(id, _)| *id)
    }

    /// Forgets these.
    fn forget_over(&mut self, now: Time) {
        self.0.retain(|_, longer| longer.until > now);
    }
}

/// The longest lease that may be out in any group, without those that have ended by `now`.
fn longest_after(state: &State, now: Time) -> Span {
    let longest = |id: GroupId, defined| state.leasing.longest.of_after(now, id, defined);
    let groups = state.definitions.catalog().iter().map(|(id, definition)| longest(id, definition.ttl));
    groups.fold(longest(GroupId::ROOT, Span(0)), Span::max)
}

impl LeasingCalls<'_> {
    /// Forgets longer leases that have all ended: from now on the definitions count.
    pub(crate) fn forget_longer(&self) -> Result<(), StoreError> {
        let now = self.service.clock().now();
        if self.service.lock().leasing.longest.over(now).next().is_none() {
            return Ok(());
        }
        // No change may be planned on what this writes.
        let _in_order = self.service.in_order();
        let (longest, batch) = {
            let state = self.service.lock();
            let longest = longest_after(&state, now);
            let catalog = state.definitions.catalog();
            let over = state.leasing.longest.over(now).filter_map(|id| Some((id, catalog.get(id)?)));
            // Most rows say what the definition says: every start begins with a length for each group.
            let longer = over
                .filter(|(id, definition)| state.leasing.longest_of(*id, definition.ttl) != definition.ttl);
            let rows = longer.map(|(id, definition)| group_row(id, definition, definition.ttl));
            let mut batch: Batch = rows.collect::<Result<_, _>>()?;
            if longest != state.leasing.longest_ttl {
                batch.push(put_number(META_LONGEST_TTL, longest.0));
            }
            (longest, batch)
        };
        if !batch.is_empty() {
            self.service.commit(&batch)?;
        }
        let mut state = self.service.lock();
        state.leasing.longest.forget_over(now);
        state.leasing.longest_ttl = longest;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_length_is_forgotten_while_a_lease_of_it_may_be_out(
            noted in prop::collection::vec((0_u32..3, 1_u64..60, 0_u64..100), 1..20),
            now in 0_u64..200,
        ) {
            let mut longest = Longest::default();
            for (id, ttl, until) in &noted {
                longest.remember(GroupId(*id), Span(*ttl), Time(*until));
            }
            let kept = (0..3).map(|id| longest.of_after(Time(now), GroupId(id), Span(0))).collect::<Vec<_>>();
            longest.forget_over(Time(now));
            let after = (0..3).map(|id| longest.of(GroupId(id), Span(0))).collect::<Vec<_>>();
            prop_assert_eq!(kept, after);
            prop_assert_eq!(longest.over(Time(now)).count(), 0);
            for (id, ttl, until) in &noted {
                let known = longest.of(GroupId(*id), Span(0));
                prop_assert!(*until <= now || known >= Span(*ttl), "{known:?} after {noted:?}");
            }
            let last = |id: u32| noted.iter().filter(|of| of.0 == id).map(|(.., until)| *until).max();
            for id in (0..3).filter(|id| last(*id).is_none_or(|until| until <= now)) {
                prop_assert_eq!(longest.of(GroupId(id), Span(0)), Span(0), "all of {} have ended", id);
            }
        }
    }
}
