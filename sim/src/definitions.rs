//! Groups and bindings, as the controller acknowledges them and the nodes hear of them.

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_proto::v1;

use super::controller::text;
use super::network::Message;
use super::world::{World, user};

impl World {
    /// Creates or alters a group, and notifies the nodes.
    ///
    /// # Errors
    /// The controller refused it, is down, or died over it.
    pub fn put_group(&mut self, id: GroupId, spec: GroupSpec) -> Result<(), String> {
        self.listens()?;
        let done = self.controller.put_group(&self.text(id, &spec));
        if self.died() {
            self.doubtful = Some((id, Some(spec.clone())));
        }
        done?;
        self.acknowledged(id, &spec);
        Ok(())
    }

    /// A stopped controller does not answer, and the caller gives up before it goes on.
    fn listens(&self) -> Result<(), String> {
        if self.stalled() { Err("the controller is stopped".to_owned()) } else { Ok(()) }
    }

    /// The text of a group's definition.
    pub(super) fn text(&self, id: GroupId, spec: &GroupSpec) -> v1::Group {
        text(id, spec, self.charges.rolls(id))
    }

    /// A definition is in force.
    fn acknowledged(&mut self, id: GroupId, spec: &GroupSpec) {
        if self.gone.contains_key(&id) {
            self.note_return(id);
        }
        self.defined(id, spec);
        for node in 0..self.nodes.len() {
            self.send(node, Message::Changed { group: id });
        }
    }

    /// Changes a definition while leases are out.
    pub fn change_group(&mut self, id: GroupId, change: impl FnOnce(&mut GroupSpec)) {
        if let Some(before) = self.specs.get(&id) {
            let mut spec = before.clone();
            change(&mut spec);
            if *before != spec {
                // A refusal (a circle, the controller is down) is an answer.
                let _ = self.put_group(id, spec);
            }
        }
    }

    /// Removes a group.
    ///
    /// # Errors
    /// The controller refused it, is down, or died over it.
    pub fn remove_group(&mut self, id: GroupId) -> Result<(), String> {
        self.listens()?;
        self.judge_reported(id);
        if self.controller.is_up() {
            let counted =
                (0..self.nodes.len()).map(|node| self.controller.charged(id, |other| other == node));
            self.retiring.insert(id, counted.collect());
        }
        let done = self.controller.remove_group(id);
        if self.died() {
            self.doubtful = Some((id, None));
        }
        done?;
        self.removed(id);
        self.push_lowers();
        Ok(())
    }

    /// Binds the user of a load to a group, and notifies the nodes, which hear of it one after the other.
    ///
    /// # Errors
    /// The controller refused it, is down, or died over it.
    pub fn bind(&mut self, load: usize, group: GroupId) -> Result<(), String> {
        self.listens()?;
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
        if found == self.specs.get(&id).map(|spec| self.text(id, spec)) {
            return;
        }
        match change {
            Some(spec) if found == Some(self.text(id, &spec)) => {
                self.acknowledged(id, &spec);
            }
            None if found.is_none() => self.removed(id),
            _ => {}
        }
    }
}
