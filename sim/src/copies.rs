//! Copies of the disk: taken while the controller runs or after a stop in order, and put back later.
//!
//! Changes acknowledged after the copy are lost with it, and so is what the ledger had counted since, until nodes
//! report their totals again. The bound is not lost: leases that were given since are in use, and the judge counts
//! them.

use std::collections::BTreeMap;

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::units::Span;

use super::disk::Death;
use super::network::Message;
use super::world::{Event, World, user};

/// A copy of the store, and what was acknowledged by then.
pub(super) struct Copy {
    bytes: Vec<u8>,
    specs: BTreeMap<GroupId, GroupSpec>,
    bound: BTreeMap<String, GroupId>,
}

impl World {
    /// Copies the store: as it is, or between a stop in order and the start that follows.
    pub fn copy_store(&mut self, stopped: bool) {
        if stopped {
            self.stop_controller();
        }
        if !self.controller.has_died() && !self.controller.disk.is_failing() {
            let bytes = self.controller.disk.copy();
            self.copy = Some(Copy { bytes, specs: self.specs.clone(), bound: self.bound.clone() });
        }
        if stopped {
            self.start_controller();
        }
    }

    /// Ends the controller, in order or not, and puts the newest copy in place of the store; it starts again later.
    pub fn put_back(&mut self, in_order: bool, span: Span) {
        let Some(Copy { bytes, specs, bound }) = self.copy.take() else { return };
        self.end_old();
        if in_order {
            self.stop_controller();
        }
        if self.controller_is_up() {
            self.crash_controller(Death::Killed);
        }
        self.note(|| "a copy of the store is put back".to_owned());
        self.controller.disk.put_back(&bytes);
        self.toll.set_back += 1;
        self.set_back = true;
        self.doubtful = None;
        let gone: Vec<GroupId> = self.specs.keys().filter(|id| !specs.contains_key(id)).copied().collect();
        gone.into_iter().for_each(|id| self.removed(id));
        for (id, spec) in &specs {
            if self.specs.get(id) != Some(spec) {
                self.defined(*id, spec);
            }
        }
        self.bound = bound;
        self.tell_all();
        self.at(self.now.after(span), Event::StartController);
    }

    /// Nodes hear all definitions, as a watch sends them when a stream begins.
    fn tell_all(&mut self) {
        let groups: Vec<GroupId> = self.specs.keys().copied().collect();
        for node in 0..self.nodes.len() {
            for group in &groups {
                self.send(node, Message::Changed { group: *group });
            }
            for load in 0..self.loads.len() {
                let own = self.loads.get(load).map(|load| load.group);
                if let Some(group) = self.bound.get(&user(load)).copied().or(own) {
                    self.send(node, Message::Bound { load, group });
                }
            }
        }
    }
}
