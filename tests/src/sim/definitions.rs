//! Groups and bindings, as the controller acknowledges them and the nodes hear of them.

use tidegate_core::group::{GroupId, GroupSpec};

use super::controller::text;
use super::measure::Bound;
use super::network::Message;
use super::world::{World, user};

impl World {
    /// Creates or alters a group, and tells the nodes.
    ///
    /// # Errors
    /// The controller refused it, is down, or died over it.
    pub fn put_group(&mut self, id: GroupId, spec: GroupSpec) -> Result<(), String> {
        let done = self.controller.put_group(id, &spec);
        if self.died() {
            self.doubtful = Some((id, Some(spec.clone())));
        }
        done?;
        self.acknowledged(id, spec);
        Ok(())
    }

    /// A definition is in force.
    fn acknowledged(&mut self, id: GroupId, spec: GroupSpec) {
        let bound = self.rebound(id, &spec);
        self.bounds.insert(id, bound);
        self.specs.insert(id, spec);
        for node in 0..self.nodes.len() {
            self.send(node, Message::Changed { group: id });
        }
    }

    fn rebound(&mut self, id: GroupId, spec: &GroupSpec) -> Bound {
        let rate = self.bound_rate(spec);
        match self.bounds.remove(&id) {
            None => Bound::new(self.now, rate),
            Some(mut bound) => {
                bound.set_rate(self.now, rate);
                bound
            }
        }
    }

    /// Removes a group.
    ///
    /// # Errors
    /// The controller refused it, is down, or died over it.
    pub fn remove_group(&mut self, id: GroupId) -> Result<(), String> {
        let done = self.controller.remove_group(id);
        if self.died() {
            self.doubtful = Some((id, None));
        }
        done?;
        self.specs.remove(&id);
        self.push_lowers();
        Ok(())
    }

    /// Binds the user of a load to a group, and tells the nodes, which hear of it one after the other.
    ///
    /// # Errors
    /// The controller refused it, is down, or died over it.
    pub fn bind(&mut self, load: usize, group: GroupId) -> Result<(), String> {
        let user = user(load);
        let before = self.bound.remove(&user);
        let done = self.controller.bind(&user, group);
        let died = self.died();
        if done.is_ok() {
            self.bound.insert(user, group);
            for node in 0..self.nodes.len() {
                self.send(node, Message::Bound { load, group });
            }
        } else if let Some(before) = before.filter(|_| !died) {
            self.bound.insert(user, before);
        }
        done
    }

    /// A change that was under way when the controller died is in force as a whole or not at all.
    pub(super) fn settle_doubt(&mut self) {
        let Some((id, change)) = self.doubtful.take() else { return };
        let found = self.controller.definition(id);
        if found == self.specs.get(&id).map(|spec| text(id, spec)) {
            return;
        }
        match change {
            Some(spec) if found == Some(text(id, &spec)) => {
                let before = self.specs.get(&id).cloned();
                self.acknowledged(id, spec);
                self.unsettle(id, before.as_ref());
            }
            None if found.is_none() => drop(self.specs.remove(&id)),
            _ => {}
        }
    }
}
