//! A state of the small system: the machines that ship, the messages under way, and what the judgement needs.

use std::collections::BTreeMap;

use tidegate_core::engine::Engine;
use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::ledger::Ledger;
use tidegate_core::node::{NodeGroup, WaiterId};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::Total;

use super::Model;
use super::link::Link;
use super::setting::{Bounds, NODES};
use super::shared::{Shared, fingerprint};
use super::step::Kind;
use super::window::Window;

/// Everything, at one moment. Parts that did not change are shared with the state before.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) now: Time,
    pub(super) controller: Shared<Controller>,
    pub(super) books: Shared<Books>,
    pub(super) nodes: [Shared<Node>; NODES],
    pub(super) links: [Shared<Link>; NODES],
    /// The windows by group, in the order of the setting.
    pub(super) windows: Vec<Window>,
    /// What may still happen.
    pub(super) left: Bounds,
}

/// The controller without its ledger.
#[derive(Clone, Debug, Hash)]
pub(super) struct Controller {
    pub(super) engine: Engine,
    pub(super) epoch: u64,
}

/// Charges, and the part of them that the controller knows.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Books {
    pub(super) ledger: Ledger,
    /// Rows on disk.
    pub(super) stored: BTreeMap<(ClientId, GroupId), Total>,
    /// Charges of incarnations that ended; their journals report them.
    pub(super) dead: Vec<(ClientId, GroupId, Total)>,
    /// The most that ended incarnations ever owed, by node.
    pub(super) dead_debt: [Ru; NODES],
}

/// A node with its one group.
#[derive(Clone, Debug, Hash)]
pub(super) struct Node {
    pub(super) incarnation: u64,
    pub(super) seq: u64,
    /// Newest leadership epoch heard, and that of the controller at the other end of its stream.
    pub(super) epoch: u64,
    pub(super) stream: u64,
    pub(super) group: NodeGroup,
    pub(super) waiting: BTreeMap<WaiterId, Kind>,
    /// Admitted operations that are not settled.
    pub(super) open: u8,
    pub(super) proof: Option<Claim>,
    /// When it sent its newest renewal, and until when the newest lease it was granted can last, on its clock.
    pub(super) asked: Time,
    pub(super) leased_until: Time,
}

/// A grant that a node can prove. The signature is the shell's.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Claim {
    pub(super) held: Held,
    pub(super) ends: Time,
    pub(super) epoch: u64,
}

/// A message to the controller.
#[derive(Clone, Debug, Hash)]
pub(super) struct Up {
    pub(super) client: ClientId,
    pub(super) total: Total,
    /// `None` is a goodbye.
    pub(super) renewal: Option<(u64, Ask, Option<Claim>)>,
}

/// A message to a node.
#[derive(Clone, Debug, Hash)]
pub(super) struct Down {
    pub(super) epoch: u64,
    pub(super) order: Order,
}

/// A message of the controller to a node.
#[derive(Clone, Debug, Hash)]
#[expect(clippy::large_enum_variant, reason = "most orders are grants")]
pub(super) enum Order {
    Granted(u64, Option<(Grant, Option<Claim>)>),
    Lower(Rate),
}

impl State {
    pub(super) fn first(model: &Model) -> Self {
        let setting = &model.setting;
        let now = Time(0);
        let engine = model.defined(now);
        let node = |_| Shared::new(Node::new(now, setting.node, 1, 1));
        Self {
            now,
            controller: Shared::new(Controller { engine, epoch: 1 }),
            books: Shared::new(Books::default()),
            nodes: std::array::from_fn(node),
            links: std::array::from_fn(|_| Shared::new(Link::default())),
            windows: vec![Window::default(); setting.groups.len()],
            left: setting.bounds,
        }
    }

    /// The hash that stands for the state.
    pub(super) fn print(&self) -> u128 {
        let parts = (self.controller.print(), self.books.print(), self.nodes.each_ref().map(Shared::print));
        fingerprint(&(self.now, parts, self.links.each_ref().map(Shared::print), &self.windows, self.left))
    }

    /// What may still happen.
    pub fn left(&self) -> Bounds {
        self.left
    }

    /// True time.
    pub fn now(&self) -> Span {
        Span(self.now.0)
    }
}

impl Model {
    /// The state in which nothing has happened yet.
    pub fn first(&self) -> State {
        State::first(self)
    }

    /// What a node's clock says.
    pub(super) fn clock(&self, now: Time, node: usize) -> Time {
        let drift = self.setting.drifts.get(node).copied().unwrap_or_default();
        let read = i128::from(now.0) * i128::from(1_000_000 + drift) / 1_000_000;
        Time(u64::try_from(read).unwrap_or(u64::MAX))
    }

    /// The group that a node uses.
    pub(super) fn group_of(&self, node: usize) -> GroupId {
        self.setting.uses.get(node).copied().unwrap_or(GroupId::DEFAULT)
    }
}

/// The identity of an incarnation.
pub(super) fn client(node: usize, incarnation: u64) -> ClientId {
    ClientId(node as u64 * 1_000 + incarnation)
}

/// The node of an identity.
pub(super) fn node_of(client: ClientId) -> usize {
    usize::try_from(client.0 / 1_000).unwrap_or(usize::MAX)
}
