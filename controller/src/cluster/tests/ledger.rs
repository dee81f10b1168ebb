//! Consumption exactly once, node by node: what the ledger has, beside what nodes charged and what they were told.

use super::groups::KINDS;
use super::nodes::Nodes;
use super::world::World;
use crate::service::Service;

impl Nodes {
    /// The ledger has what each node was told is durable, and no more than it charged. In the end, it has just that.
    pub(super) fn judge_ledger(&mut self, world: &World, service: &Service, is_end: bool) {
        let (seed, now) = (world.seed, world.now());
        for (group, kind) in KINDS.iter().enumerate() {
            let rows = service.accounts().usage(kind.name, true).map(|(rows, _)| rows).unwrap_or_default();
            for node in &mut self.all {
                node.tally();
                for ((incarnation, _), progress) in node.reports.all().filter(|((_, of), _)| *of == group) {
                    let who = (node.name.as_str(), incarnation);
                    let row = rows.iter().find(|row| {
                        row.client.as_ref().is_some_and(|(name, number)| (name.as_str(), *number) == who)
                    });
                    let there = row.map(|row| row.total).unwrap_or_default();
                    let within = progress.durable.ru() <= there.ru() && there.ru() <= progress.said.ru();
                    let is_whole = !is_end || progress.is_lost || there.ru() == progress.total.ru();
                    assert!(
                        within && is_whole,
                        "seed {seed}: {} of {who:?} at {now}: {} is there, of {} charged, {} said, {} durable",
                        kind.name,
                        there.ru(),
                        progress.total.ru(),
                        progress.said.ru(),
                        progress.durable.ru()
                    );
                }
            }
            let sum: u128 = rows.iter().filter(|row| row.client.is_some()).map(|row| row.total.ru().0).sum();
            let whole = rows.iter().find(|row| row.client.is_none()).map_or(0, |row| row.total.ru().0);
            assert_eq!(sum, whole, "seed {seed}: {} at {now}", kind.name);
        }
    }
}
