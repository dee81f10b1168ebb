//! What other rooms ask of leasing, and tell it.

use tidegate_core::GroupError;
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Span, Time};
use tidegate_core::view::{GroupView, LeaseView, Snapshot};

use super::Leasing;
use super::clients::Clients;
use super::fence::Silence;
use super::rivals::Twin;
use crate::store::Write;

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

    /// The same, to be changed.
    pub(crate) fn clients_mut(&mut self) -> &mut Clients {
        &mut self.clients
    }

    /// Name and number of an incarnation.
    pub(crate) fn identity(&self, client: ClientId) -> Option<(String, u64)> {
        self.clients.get(client).map(|known| (known.name.clone(), known.number))
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

    /// Levels of removed groups that have leases right below a group.
    pub(crate) fn removed_below(&self, id: GroupId) -> usize {
        self.engine.removed_below(id)
    }

    /// Puts a checked group in force, whose definition said that leases are so long `before`.
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

    /// Leadership epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.lead.epoch
    }

    /// Which start of which controller this is.
    pub(crate) fn instance(&self) -> u64 {
        self.lead.instance
    }

    /// The epoch that was raised to because this store is a copy, or was set back.
    pub(crate) fn set_back(&self) -> Option<u64> {
        self.lead.set_back
    }

    /// Another controller that runs at the same time.
    pub(crate) fn twin(&self, now: Time) -> Option<Twin> {
        self.lead.rivals.twin(now)
    }

    /// Whether definitions of revision `have`, as `instance` told them, are those of `now`.
    pub(crate) fn knows(&self, instance: u64, have: u64, now: u64) -> bool {
        self.lead.lineage.is_current(instance, have, now)
    }

    /// Why nodes are not spoken to, if so.
    pub(crate) fn silence(&self, now: Time) -> Option<Silence> {
        self.fence.silence(now)
    }

    /// What to store when there is nothing else to store.
    pub(crate) fn beat(&self) -> Option<Write> {
        self.fence.beat()
    }

    /// A commit that began then is on disk, or failed.
    pub(crate) fn committed(&mut self, began: Time, is_stored: bool) {
        if is_stored {
            self.fence.confirm(began);
        } else {
            self.fence.fail();
        }
    }

    /// Whether the newest commit failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.fence.has_failed()
    }

    /// Ends all streams. The leases to be saved; `None` when nothing was granted, as a controller before this one may
    /// still be granting.
    pub(crate) fn stop(&mut self, now: Time) -> Option<Snapshot> {
        self.sessions.clear();
        self.fence.silence(now).is_none().then(|| self.engine.snapshot(now))
    }
}
