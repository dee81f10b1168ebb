//! The methods of leasing for other rooms.

use tidegate_core::GroupError;
use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::units::{Span, Time};
use tidegate_core::view::{GroupView, LeaseView, Snapshot};

use super::Leasing;
use super::clients::Clients;
use super::fence::Fence;
use super::quotas::Taken as Quotas;
use super::succession::Lead;
use crate::definitions::quota::Quota;

impl Leasing {
    /// Time until all groups have recovered from an unclean stop; zero when none recovers.
    pub(crate) fn recovery(&self, now: Time) -> Span {
        self.engine.recovering_until().since(now)
    }

    /// Checks the invariants of the grant engine.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.engine.check()
    }

    /// The nodes.
    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The nodes, to be changed.
    pub(crate) fn clients_mut(&mut self) -> &mut Clients {
        &mut self.clients
    }

    /// All leases.
    pub(crate) fn leases(&self) -> impl Iterator<Item = LeaseView> {
        self.active.iter().flat_map(|group| self.engine.leases(*group))
    }

    /// Groups with leases.
    pub(crate) fn leased(&self) -> impl Iterator<Item = (GroupId, GroupView)> {
        let views = self.active.iter().filter_map(|id| Some((*id, self.engine.group_view(*id)?)));
        views.filter(|(_, view)| view.leases > 0)
    }

    /// Levels of removed groups with leases directly below a group.
    pub(crate) fn removed_below(&self, id: GroupId) -> usize {
        self.engine.removed_below(id)
    }

    /// Puts a checked group in force. `before` is the lease length in its definition before the change.
    pub(crate) fn put_group(
        &mut self,
        now: Time,
        id: GroupId,
        spec: GroupSpec,
        before: Option<Span>,
    ) -> Result<(), GroupError> {
        self.longest_ttl = self.longest_ttl.max(spec.ttl);
        let before = before.map(|defined| self.longest_of(id, defined));
        if let Some(before) = before.filter(|before| *before > spec.ttl) {
            self.longest.remember_from(now, id, before, self.engine.config());
        }
        self.engine.put_group(now, id, spec)
    }

    /// Takes in the quota of a group's definition.
    pub(crate) fn define_quota(&mut self, id: GroupId, quota: Option<&Quota>) {
        self.quotas.define(id, quota);
    }

    /// Removes a group below `above`. Its leases run on until they expire.
    pub(crate) fn remove_group(
        &mut self,
        now: Time,
        id: GroupId,
        above: GroupId,
        before: Option<Span>,
    ) -> Result<(), GroupError> {
        if let Some(before) = before.map(|defined| self.longest_of(id, defined)) {
            self.longest.remember_from(now, above, before, self.engine.config());
            self.longest.forget(id);
        }
        self.active.remove(&id);
        self.quotas.define(id, None);
        self.engine.remove_group(now, id)
    }

    /// The longest lease that may be out in a group whose definition says `defined`.
    pub(crate) fn longest_of(&self, id: GroupId, defined: Span) -> Span {
        self.longest.of(id, defined)
    }

    /// The longest lease that may be out in any group.
    pub(crate) fn longest_of_all(&self) -> Span {
        self.longest_ttl
    }

    /// Ends all streams, grants nothing any more, and returns the leases and the quotas to save; `None` when nothing was
    /// granted, since a predecessor may still be granting.
    pub(crate) fn stop(&mut self, now: Time, unix_us: u64) -> Option<(Snapshot, Quotas)> {
        self.sessions.clear();
        let is_silent = self.fence.silence(now).is_some();
        self.fence.leave();
        (!is_silent).then(|| (self.engine.snapshot(now), self.quotas.last(&self.engine, now, unix_us)))
    }

    /// The identity of this controller, and what it knows of others.
    pub(crate) fn lead(&self) -> &Lead {
        &self.lead
    }

    /// The fence.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The fence, to be told of commits.
    pub(crate) fn fence_mut(&mut self) -> &mut Fence {
        &mut self.fence
    }
}
