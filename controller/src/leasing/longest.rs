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

    /// Groups whose longer leases have all ended.
    pub(crate) fn over(&self, now: Time) -> Vec<GroupId> {
        self.0.iter().filter(|(_, longer)| longer.until <= now).map(|(id, _)| *id).collect()
    }
}

/// The longest lease that may be out in any group, without those of `over`.
fn longest_but(state: &State, over: &[GroupId]) -> Span {
    let longest = |id: GroupId, defined| {
        if over.contains(&id) { defined } else { state.leasing.longest.of(id, defined) }
    };
    let groups = state.definitions.catalog().iter().map(|(id, definition)| longest(id, definition.ttl));
    groups.fold(longest(GroupId::ROOT, Span(0)), Span::max)
}

impl LeasingCalls<'_> {
    /// Forgets longer leases that have all ended: from now on the definitions count.
    pub(crate) fn forget_longer(&self) -> Result<(), StoreError> {
        let now = self.service.clock().now();
        if self.service.lock().leasing.longest.over(now).is_empty() {
            return Ok(());
        }
        // No change may be planned on what this writes.
        let _in_order = self.service.in_order();
        let (over, longest, batch) = {
            let state = self.service.lock();
            let over = state.leasing.longest.over(now);
            let longest = longest_but(&state, &over);
            let defined = over.iter().filter_map(|id| Some((*id, state.definitions.catalog().get(*id)?)));
            let rows = defined.map(|(id, definition)| group_row(id, definition, definition.ttl));
            let mut batch: Batch = rows.collect::<Result<_, _>>()?;
            batch.push(put_number(META_LONGEST_TTL, longest.0));
            (over, longest, batch)
        };
        self.service.commit(&batch)?;
        let mut state = self.service.lock();
        over.into_iter().for_each(|id| state.leasing.longest.forget(id));
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
            longest.over(Time(now)).into_iter().for_each(|id| longest.forget(id));
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
