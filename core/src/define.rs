//! Creating, changing, moving and removing groups while their leases are out.
//!
//! Leases that are out stay counted: a removed group counts in its ancestors until its leases end, and a lowered limit
//! may be exceeded by earlier leases, which only shrink (the `legacy` sums of invariants I1 and I2).

use crate::engine::{Engine, LowerOrder};
use crate::group::{ClientId, GroupId, GroupSpec};
use crate::policy::setting::SettingError;
use crate::pool::Pool;
use crate::tree::{Chain, Group, MAX_DEPTH};
use crate::units::{Rate, Ru, Time};
use crate::warmth::Warmth;

/// Why a definition was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// No such group.
    Unknown(GroupId),
    /// The parent does not exist.
    UnknownParent(GroupId),
    /// The group would be its own ancestor.
    Cycle(GroupId),
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep(GroupId),
    /// The group has children.
    HasChildren(GroupId),
    /// The root and the default group cannot be removed, and the root has no parent.
    Reserved(GroupId),
    /// Its rate cannot warm up so.
    WarmUp(GroupId, SettingError),
}

impl Engine {
    /// Creates or changes a group, its parent included. Leases of nodes follow at their next renewal.
    ///
    /// # Errors
    /// [`GroupError`] when the parent is unknown, nested too deeply or below the group itself, or the rate cannot warm up
    /// as it says.
    pub fn put_group(&mut self, now: Time, id: GroupId, spec: GroupSpec) -> Result<(), GroupError> {
        self.expire(now);
        self.check_parent(id, &spec)?;
        spec.curve().map_err(|error| GroupError::WarmUp(id, error))?;
        let known = self.tree.chain(id).filter(|_| self.tree.get(id).is_some_and(|group| !group.removed));
        match known {
            None => self.create(now, id, spec),
            Some(chain) => self.alter(now, id, &chain, spec),
        }
        self.assert_invariants();
        Ok(())
    }

    fn check_parent(&self, id: GroupId, spec: &GroupSpec) -> Result<(), GroupError> {
        let Some(parent) = spec.parent else { return Ok(()) };
        if id == GroupId::ROOT {
            return Err(GroupError::Reserved(id));
        }
        if self.tree.get(parent).is_none_or(|group| group.removed) {
            return Err(GroupError::UnknownParent(parent));
        }
        let above = self.tree.chain(parent).ok_or(GroupError::TooDeep(id))?;
        if self.tree.up(&above).any(|ancestor| ancestor.id == id) {
            return Err(GroupError::Cycle(id));
        }
        if above.up().count() + self.tree.height(id) > MAX_DEPTH + 1 {
            return Err(GroupError::TooDeep(id));
        }
        Ok(())
    }

    fn create(&mut self, now: Time, id: GroupId, spec: GroupSpec) {
        let mut group = Group::new(now, id, spec);
        if now < self.all_recover_until {
            group.recover_until(self.all_recover_until);
        }
        self.tree.insert(group);
        if let Some(parent) = self.tree.parent(id).and_then(|parent| self.tree.chain(parent)) {
            self.tree.propagate_demand(&parent);
        }
    }

    fn alter(&mut self, now: Time, id: GroupId, chain: &Chain, spec: GroupSpec) {
        self.advance(chain, now);
        let parent_before = self.tree.parent(id);
        let parent_after = (id != GroupId::ROOT).then(|| spec.parent.unwrap_or(GroupId::ROOT));
        let moves = parent_before != parent_after;
        if moves {
            self.tree.detach(id);
        }
        if let Some(group) = self.tree.get_mut(id) {
            let had_limit = group.spec.limit().is_some();
            group.spec = spec;
            group.warmth = Warmth::altered(group.warmth.take(), now, &group.spec);
            if !had_limit {
                // The ledger does not count what nodes spend without a limit, so the new bucket starts empty.
                group.pool = Pool::new(now, Ru::ZERO);
                group.pool.suspend_until(group.recovering_until);
            }
        }
        if moves && let Some(parent) = parent_after {
            if let Some(above) = self.tree.chain(parent) {
                self.advance(&above, now);
            }
            self.tree.attach(id, parent);
        }
        if let Some(chain) = self.tree.chain(id) {
            self.tree.excuse(&chain);
            self.advance(&chain, now);
            self.tree.propagate_demand(&chain);
        }
    }

    /// Removes a group without children. What its nodes still hold counts in its ancestors until their leases end.
    ///
    /// # Errors
    /// [`GroupError`] when the group is unknown, reserved or has children.
    pub fn remove_group(&mut self, now: Time, id: GroupId) -> Result<(), GroupError> {
        self.expire(now);
        if id == GroupId::ROOT || id == GroupId::DEFAULT {
            return Err(GroupError::Reserved(id));
        }
        let group = self.tree.get(id).filter(|group| !group.removed).ok_or(GroupError::Unknown(id))?;
        // Removed children, which count until their leases end, do not prevent it.
        if group.children.iter().any(|child| self.tree.get(*child).is_some_and(|child| !child.removed)) {
            return Err(GroupError::HasChildren(id));
        }
        let holders: Vec<ClientId> = group.live.leases.keys().copied().collect();
        let chain = self.tree.chain(id).ok_or(GroupError::Unknown(id))?;
        self.tree.at_mut(chain.slot()).removed = true;
        for client in holders {
            self.forget_interest(&chain, id, client);
            self.lowers.push(LowerOrder { client, group: id, rate_at_most: Rate::ZERO });
        }
        self.drop_if_gone(id);
        self.assert_invariants();
        Ok(())
    }

    /// Levels of removed groups directly below a group; they count until their leases end.
    pub fn removed_below(&self, id: GroupId) -> usize {
        let children = self.tree.get(id).into_iter().flat_map(|group| group.children.iter());
        let removed = children.filter(|child| self.tree.get(**child).is_some_and(|child| child.removed));
        removed.map(|child| self.tree.height(*child)).max().unwrap_or_default()
    }

    /// Drops a removed group once nothing below it is leased, and then each removed group above that waited for it.
    pub(crate) fn drop_if_gone(&mut self, id: GroupId) {
        let mut level = Some(id);
        while let Some(id) = level.take() {
            let gone =
                |group: &&Group| group.removed && group.live.leases.is_empty() && group.children.is_empty();
            if let Some(group) = self.tree.get(id).filter(gone) {
                level = Some(group.spec.parent.unwrap_or(GroupId::ROOT));
                self.tree.detach(id);
                self.tree.remove(id);
            }
        }
    }
}
