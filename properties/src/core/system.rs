//! The whole system under test: the controller's machines, the nodes, the liars, and what was observed of them.

use std::collections::BTreeMap;

use tidegate_core::bound::Bound;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::Held;
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::ledger::Ledger;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::Total;

use super::definitions::{self, GROUPS};
use super::liar::Liar;
use super::network::Message;
use super::node::Node;
use crate::input::Input;

/// Honest nodes, and clients that lie.
pub(super) const NODES: usize = 3;
pub(super) const LIARS: usize = 2;

/// A grant that a client can prove, and its end.
#[derive(Clone, Copy)]
pub(super) struct Proof {
    pub(super) held: Held,
    pub(super) ends: Time,
    pub(super) epoch: u64,
}

/// Everything.
pub(super) struct System {
    pub(super) now: Time,
    pub(super) config: EngineConfig,
    pub(super) specs: BTreeMap<GroupId, GroupSpec>,
    /// The groups that clients ask for; one that was removed keeps its place until another takes it.
    pub(super) groups: [GroupId; GROUPS.len()],
    pub(super) next_group: u32,
    pub(super) engine: Engine,
    pub(super) epoch: u64,
    pub(super) ledger: Ledger,
    /// The ledger as it was last stored: what a crash falls back to.
    pub(super) stored: Ledger,
    pub(super) nodes: Vec<Node>,
    pub(super) liars: Vec<Liar>,
    pub(super) network: Vec<Message>,
    /// Definitions stand still, so that every window can be judged.
    pub(super) steady: bool,
    /// Longest lease that may be out.
    pub(super) longest_ttl: Span,
    /// What honest nodes admitted.
    pub(super) bounds: BTreeMap<GroupId, Bound>,
    /// The charges of each incarnation of an honest node that ended, as its journal would report them.
    pub(super) charged: BTreeMap<(ClientId, GroupId), Total>,
    pub(super) overrun: BTreeMap<GroupId, Ru>,
}

impl System {
    /// Definitions, clocks and the server's capacity come from the input.
    pub(super) fn new(input: &mut Input<'_>) -> Self {
        let steady = input.byte() < 192;
        let config = EngineConfig {
            drift_ppm: input.pick(&[1_000, 0, 100_000, 10_000]).unwrap_or_default(),
            margin: Span(input.pick(&[50_000, 0, 1_000, 60_000_000]).unwrap_or_default()),
        };
        let root = if input.below(4) == 0 {
            GroupSpec::capped(Rate::whole(i64::from(input.byte()) + 1))
        } else {
            GroupSpec::unlimited()
        };
        let mut specs = BTreeMap::from([(GroupId::ROOT, root)]);
        specs.extend(GROUPS.map(|id| (id, definitions::draw(input, definitions::parent(id), !steady))));
        let nodes = (0..NODES).map(|index| Node::new(index, drift(input, config.drift_ppm))).collect();
        let mut system = Self {
            now: Time(0),
            config,
            engine: Engine::new(Time(0), config),
            epoch: 1,
            ledger: Ledger::default(),
            stored: Ledger::default(),
            nodes,
            liars: (0..LIARS).map(Liar::new).collect(),
            network: Vec::new(),
            steady,
            longest_ttl: Span(0),
            bounds: BTreeMap::new(),
            charged: BTreeMap::new(),
            overrun: BTreeMap::new(),
            specs,
            groups: GROUPS,
            next_group: 100,
        };
        system.bounds = system
            .specs
            .iter()
            .filter_map(|(id, spec)| Some((*id, Bound::new(Time(0), spec.limit()?))))
            .collect();
        system.define();
        system
    }

    /// Gives a fresh engine all definitions, parents first.
    pub(super) fn define(&mut self) {
        let mut waiting: Vec<_> = self.specs.iter().collect();
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain(|(id, spec)| self.engine.put_group(self.now, **id, (*spec).clone()).is_err());
            assert!(waiting.len() < before, "what was accepted once is accepted again: {waiting:?}");
        }
        let longest = self.specs.values().map(|spec| spec.ttl).max().unwrap_or_default();
        self.longest_ttl = self.longest_ttl.max(longest);
    }

    /// After every event: every waiter that can be served is, leases end, and the invariants hold.
    pub(super) fn settle(&mut self) {
        for node in 0..NODES {
            self.poll(node);
        }
        self.engine.expire(self.now);
        self.engine.check().expect("I1 to I3");
    }

    /// A group and those above it.
    pub(super) fn levels(&self, id: GroupId) -> Vec<GroupId> {
        let mut levels = vec![id];
        let mut next = self.specs.get(&id).and_then(|spec| spec.parent);
        while let Some(parent) = next {
            levels.push(parent);
            next = self.specs.get(&parent).and_then(|spec| spec.parent);
        }
        if id != GroupId::ROOT {
            levels.push(GroupId::ROOT);
        }
        levels
    }

    /// Honest operations were admitted with this cost; less than nothing when it came out cheaper.
    pub(super) fn count(&mut self, id: GroupId, cost: Ru) {
        for level in self.levels(id) {
            if let Some(bound) = self.bounds.get_mut(&level) {
                bound.admit(self.now, cost);
            }
        }
    }
}

/// How fast a node's clock runs against the controller's, within what is promised, in millionths.
fn drift(input: &mut Input<'_>, most: u32) -> i64 {
    let most = i64::from(most);
    match input.below(4) {
        0 => 0,
        1 => most,
        2 => -most,
        _ => i64::try_from(input.number() % (2 * most.unsigned_abs() + 1)).unwrap_or_default() - most,
    }
}
