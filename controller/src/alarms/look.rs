//! Looks at the state of the controller, a few groups at a time, so that no renewal waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_console::present::{GroupNow, Present};
use tidegate_console::why::Why;
use tidegate_core::group::GroupId;
use tidegate_core::quota::QuotaView;
use tidegate_core::units::Rate;

use super::kind::{Facts, Key, Seen};
use crate::definitions::catalog::Guarantees;
use crate::leasing::waits::Waits;
use crate::message;
use crate::service::{Service, State};

/// Groups that are looked at under one lock: with a few nodes each, some microseconds. Half of it takes the lock more
/// often; twice of it holds a renewal up for longer.
const AT_ONCE: usize = 64;

/// What is kept from look to look.
#[derive(Default)]
pub(super) struct Eyes {
    /// Operations that were refused or gave up, by group, of groups that were charged lately.
    refused: BTreeMap<GroupId, u128>,
    /// Guarantees that are more than there is, and the revision of the definitions at which they were added up.
    guarantees: Option<(u64, Vec<Seen>)>,
}

impl Eyes {
    /// All that may be an alarm now.
    pub(super) fn look(&mut self, service: &Service) -> Vec<Seen> {
        let left = service.lock().leasing.recovery(service.clock().now());
        let mut seen = vec![Seen { group: String::new(), facts: Facts::Recovery { left } }];
        self.waiting(service, &mut seen);
        quotas(service, &mut seen);
        seen.extend_from_slice(self.guarantees(service));
        seen
    }

    /// Groups whose operations wait or are refused.
    fn waiting(&mut self, service: &Service, seen: &mut Vec<Seen>) {
        let (counts, active): (BTreeMap<GroupId, u128>, BTreeSet<GroupId>) = {
            let state = service.lock();
            (state.accounts.refused().collect(), Waits(&state.leasing).groups().collect())
        };
        // What was counted before the first look is not of now.
        let lately = |(id, count): (&GroupId, &u128)| {
            let before = self.refused.get(id).unwrap_or(count);
            (*id, count.saturating_sub(*before))
        };
        let lately: BTreeMap<GroupId, u128> =
            counts.iter().map(lately).filter(|(_, count)| *count > 0).collect();
        let ids = active.into_iter().chain(lately.keys().copied()).collect::<BTreeSet<_>>();
        in_slices(service, ids, |state, id| {
            seen.extend(waits(state, id, lately.get(&id).copied().unwrap_or_default()));
        });
        self.refused = counts;
    }

    /// Groups, or the server, below which more is guaranteed than there is.
    fn guarantees(&mut self, service: &Service) -> &[Seen] {
        let (revision, parents): (u64, Vec<Option<GroupId>>) = {
            let state = service.lock();
            let revision = state.definitions.revision();
            let is_known = self.guarantees.as_ref().is_some_and(|(at, _)| *at == revision);
            let parents = (!is_known).then(|| Guarantees(state.definitions.catalog()).parents().collect());
            (revision, parents.unwrap_or_default())
        };
        if self.guarantees.as_ref().is_none_or(|(at, _)| *at != revision) {
            let mut seen = Vec::new();
            in_slices(service, parents, |state, parent| {
                let catalog = state.definitions.catalog();
                let Some((sum, limit)) = Guarantees(catalog).oversubscription(parent) else { return };
                let name = parent.map_or(Some(String::new()), |id| Some(catalog.name(id)?.to_string()));
                seen.extend(name.map(|group| Seen { group, facts: Facts::Guarantees { sum, limit } }));
            });
            self.guarantees = Some((revision, seen));
        }
        self.guarantees.as_ref().map_or(&[], |(_, seen)| seen)
    }
}

/// Does something for each, and lets others have the state in between.
fn in_slices<T>(service: &Service, all: impl IntoIterator<Item = T>, mut each: impl FnMut(&State, T)) {
    let mut all = all.into_iter().peekable();
    while all.peek().is_some() {
        let state = service.lock();
        all.by_ref().take(AT_ONCE).for_each(|one| each(&state, one));
    }
}

/// What waits in a group. One in shadow holds nothing up.
fn waits(state: &State, id: GroupId, refused: u128) -> Option<Seen> {
    let definition = state.definitions.catalog().get(id).filter(|definition| !definition.shadow)?;
    let of = Waits(&state.leasing).of(id);
    if of.waiting == 0 && !of.backlog.is_positive() && refused == 0 {
        return None;
    }
    let view = Waits(&state.leasing).view(id).unwrap_or_default();
    let facts = Facts::Waiting {
        waiting: of.waiting,
        backlog: of.backlog,
        debt: of.debt,
        refused,
        demand: of.demand,
        leased: view.committed,
    };
    Some(Seen { group: definition.name.to_string(), facts })
}

/// Use of all quotas.
fn quotas(service: &Service, seen: &mut Vec<Seen>) {
    let ids: Vec<GroupId> = Waits(&service.lock().leasing).with_quota().collect();
    in_slices(service, ids, |state, id| {
        let name = state.definitions.catalog().name(id);
        let quota = Waits(&state.leasing).quota(id, service.clock().now());
        seen.extend(name.zip(quota).map(|(name, quota)| {
            let used = quota.used + quota.lost;
            let QuotaView { unit, amount, resets_in, rolls, .. } = quota;
            let facts = Facts::Quota { unit, amount, used, resets_in, rolls };
            Seen { group: name.to_string(), facts }
        }));
    });
}

/// Why operations of a group wait, by the rules of the console.
pub(super) fn why(service: &Service, key: &Key) -> Option<Why> {
    let now = service.clock().now();
    let state = service.lock();
    let catalog = state.definitions.catalog();
    let id = catalog.id_of(&key.group).ok().flatten()?;
    let group = |step: &GroupId| {
        let (view, of) =
            (Waits(&state.leasing).view(*step).unwrap_or_default(), Waits(&state.leasing).of(*step));
        Some(GroupNow {
            own: state.accounts.live(*step, now),
            used: Rate::ZERO,
            leased: view.committed,
            demand: view.demand,
            backlog: of.backlog,
            debt: of.debt,
            // It may be one whose operations do not wait and are refused at once.
            waiting: of.waiting.max(u64::from(*step == id)),
            leases: view.leases,
            quota: Waits(&state.leasing).quota(*step, now).map(message::quota_state).map(Box::new),
            warmth: Waits(&state.leasing).warmth(*step, now).map(message::warmth).map(Box::new),
            ..GroupNow::idle(Arc::new(catalog.get(*step)?.text()))
        })
    };
    let present = Present::of(service.clock().unix_ms(), catalog.path(id).iter().filter_map(group));
    Why::of(&present, present.get(&key.group)?, state.leasing.recovery(now).0 > 0)
}

#[cfg(test)]
mod tests;
