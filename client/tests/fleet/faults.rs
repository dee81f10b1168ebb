//! Faults as they happen to a running fleet.

use std::time::Duration;

use crate::center::actor;
use crate::network::{Road, Way};
use crate::plan::Fault;
use crate::world::{World, micros, pause};

impl World<'_> {
    /// Does what the plan says, and what must follow later by itself.
    pub(crate) async fn befall(&mut self, fault: &Fault) {
        match fault {
            Fault::Break { node } => {
                if let Some(process) = &self.nodes[*node].process {
                    process.road.break_off();
                }
            }
            Fault::Hold { node, ways, lasts } => {
                if let Some(process) = &self.nodes[*node].process {
                    tokio::spawn(hold(process.road.clone(), ways.clone(), *lasts));
                }
            }
            Fault::Delay { node, delay, lasts } => {
                if let Some(process) = &self.nodes[*node].process {
                    tokio::spawn(far(process.road.clone(), *delay, self.plan.nodes[*node].delay, *lasts));
                }
            }
            Fault::Kill { node, down } => {
                if let Some(process) = self.nodes[*node].process.take() {
                    self.nodes[*node].journal = process.kill();
                    self.start_later(*node, *down);
                }
            }
            Fault::End { node, down } => {
                if let Some(process) = self.nodes[*node].process.take() {
                    // What is not confirmed is in the journal, or in no ledger.
                    let (_, journal) = process.end().await;
                    self.nodes[*node].journal = journal;
                    self.start_later(*node, *down);
                }
            }
            Fault::Center { in_order, down } => {
                if self.center.routes().is_some() {
                    self.end_center(*in_order).await;
                    self.center_up_at = Some(self.log.now() + micros(*down));
                }
            }
            Fault::Alter { group, rate } => self.alter(*group, *rate),
        }
    }

    /// The controller ends, and all connections with it.
    async fn end_center(&mut self, in_order: bool) {
        for node in &self.nodes {
            if let Some(process) = &node.process {
                process.road.break_off();
            }
        }
        self.center.end(in_order).await;
    }

    /// The operator gives a group another rate.
    fn alter(&mut self, group: usize, rate: u32) {
        let Some(service) = self.center.service() else { return };
        let plan = &self.plan.groups[group];
        let fields = ["ru_per_sec".to_owned()];
        let done = service.definitions().alter_group(&actor(), &plan.definition(rate), &fields, 0);
        if done.is_ok() {
            self.caps[group].alter(rate, self.log.now());
        }
    }
}

async fn hold(road: Road, ways: Vec<Way>, lasts: Duration) {
    let set = |held: bool| {
        road.set(|state| {
            for way in &ways {
                match way {
                    Way::Up => state.up_held = held,
                    Way::Down => state.down_held = held,
                }
            }
        });
    };
    set(true);
    pause(lasts).await;
    set(false);
}

async fn far(road: Road, delay: Duration, usual: Duration, lasts: Duration) {
    road.set(|state| state.delay = delay);
    pause(lasts).await;
    road.set(|state| state.delay = usual);
}
