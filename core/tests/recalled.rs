//! Whose rate is recalled when a client lacks some: one rule a test. Times are in milliseconds, rates and amounts in
//! whole RU.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use std::collections::BTreeMap;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Held, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru};

use common::{at, leased};

const GROUP: GroupId = GroupId(2);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);
const D: ClientId = ClientId(4);
const E: ClientId = ClientId(5);

/// A group of 100 RU/s, and renewals that acknowledge the one before.
struct Group {
    engine: Engine,
    seqs: BTreeMap<ClientId, u64>,
}

impl Group {
    fn new() -> Self {
        let mut engine = Engine::new(at(0), EngineConfig::default());
        engine.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
        Self { engine, seqs: BTreeMap::new() }
    }

    /// Adds a child with this guarantee and cap.
    fn child(&mut self, id: u32, rate: i64) -> GroupId {
        let spec = GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(rate)) };
        self.engine.put_group(at(0), GroupId(id), spec).unwrap();
        GroupId(id)
    }

    /// A client that still holds `held` is offered `demand`.
    fn ask(&mut self, ms: u64, (client, group): (ClientId, GroupId), held: Rate, ask: Ask) -> LeaseTerms {
        let seq = self.seqs.entry(client).or_default();
        let ask = Ask { acked_seq: *seq, held: Held { rate: held, ..Held::default() }, ..ask };
        *seq += 1;
        leased(self.engine.renew(at(ms), client, group, *seq, &ask, None))
    }

    /// Who was told to lower itself since the last call, and to which rate at most, in whole RU/s.
    fn told(&mut self) -> Vec<(ClientId, i64)> {
        let orders = self.engine.take_lowers().into_iter();
        orders.map(|order| (order.client, order.rate_at_most.0 / 1_000_000)).collect()
    }

    fn committed(&self) -> Rate {
        self.engine.group_view(GROUP).unwrap().committed
    }

    /// These clients ask in turns until each has its share.
    fn settle(&mut self, clients: &[(ClientId, GroupId)]) {
        let mut held = vec![Rate::ZERO; clients.len()];
        for ms in 0..6 {
            for (client, rate) in clients.iter().zip(&mut held) {
                *rate = self.ask(ms, *client, *rate, offered(500)).rate;
            }
        }
        self.told();
    }
}

fn offered(ru: i64) -> Ask {
    Ask { demand: Rate::whole(ru), ..Ask::default() }
}

/// B and C hold 45 RU/s each, D has nothing, and all want more. Nobody has been told since B and C said so.
fn two_above_their_share() -> Group {
    let mut group = Group::new();
    group.settle(&[(B, GROUP), (C, GROUP)]);
    group.ask(10, (D, GROUP), Rate::ZERO, offered(500));
    for client in [B, C] {
        group.ask(1_000, (client, GROUP), Rate::whole(45), offered(500));
    }
    group.told();
    assert_eq!(group.committed(), Rate::whole(90));
    group
}

#[test]
fn no_more_holders_are_told_than_cover_what_is_missing() {
    // A's share is 25 RU/s, and 10 are free: one of the holders has the other 15 above its own share.
    let mut group = two_above_their_share();
    assert_eq!(group.ask(1_010, (A, GROUP), Rate::ZERO, offered(500)).rate, Rate::whole(10));
    assert_eq!(group.told(), [(C, 25)]);
    // The same for one that waits for a lump, which its share of the rate is to yield.
    let mut group = two_above_their_share();
    let large = Ask { backlog: Ru::whole(95), head: Ru::whole(95), waiting: 1, ..Ask::default() };
    assert_eq!(group.ask(1_010, (A, GROUP), Rate::ZERO, large).rate, Rate::ZERO);
    assert_eq!(group.told(), [(C, 25)]);
}

#[test]
fn all_holders_are_told_whose_surplus_is_missing() {
    let mut group = Group::new();
    group.settle(&[(B, GROUP), (C, GROUP)]);
    assert_eq!(group.ask(10, (A, GROUP), Rate::ZERO, offered(500)).rate, Rate::ZERO);
    assert_eq!(group.told(), [(C, 33), (B, 33)]);
}

#[test]
fn the_surplus_of_a_holder_that_was_told_lately_is_on_its_way() {
    let mut group = two_above_their_share();
    group.ask(1_010, (A, GROUP), Rate::ZERO, offered(500));
    assert_eq!(group.told(), [(C, 25)]);
    // E lacks 20 RU/s, and C is to give up more than that.
    group.ask(1_020, (E, GROUP), Rate::ZERO, offered(500));
    assert_eq!(group.told(), []);
}

#[test]
fn what_a_holder_was_told_lately_does_not_cover_is_recalled_from_others() {
    let mut group = Group::new();
    group.settle(&[(B, GROUP), (C, GROUP), (D, GROUP)]);
    group.ask(10, (E, GROUP), Rate::ZERO, offered(500));
    for client in [B, C, D] {
        group.ask(1_000, (client, GROUP), Rate::whole(33), offered(500));
    }
    group.told();
    // Each has 9 RU/s above its share. A lacks one, E all of its share.
    group.ask(1_010, (A, GROUP), Rate::ZERO, offered(1));
    assert_eq!(group.told(), [(D, 24)]);
    group.ask(1_020, (E, GROUP), Rate::ZERO, offered(500));
    assert_eq!(group.told(), [(C, 24), (B, 24)]);
}

#[test]
fn a_client_that_lacks_a_trifle_recalls_nothing() {
    let mut group = Group::new();
    group.settle(&[(B, GROUP)]);
    group.ask(10, (A, GROUP), Rate::ZERO, offered(500));
    group.ask(1_000, (B, GROUP), Rate::whole(51), offered(500));
    group.told();
    assert_eq!(group.ask(1_010, (A, GROUP), Rate::ZERO, offered(500)).rate, Rate::whole(49));
    assert_eq!(group.told(), []);
}

#[test]
fn rate_is_recalled_from_every_child_that_has_more_than_its_share() {
    let mut group = Group::new();
    let [one, two, three] = [3, 4, 5].map(|id| group.child(id, 50));
    let half = Rate::whole(50);
    for (client, child) in [(A, one), (B, two)] {
        assert_eq!(group.ask(0, (client, child), Rate::ZERO, offered(500)).rate, half);
    }
    group.ask(10, (C, three), Rate::ZERO, offered(500));
    for (client, child) in [(A, one), (B, two)] {
        group.ask(20, (client, child), half, offered(500));
    }
    group.told();
    assert_eq!(group.ask(30, (C, three), Rate::ZERO, offered(500)).rate, Rate::ZERO);
    assert_eq!(group.told(), [(B, 33), (A, 33)]);
}

#[test]
fn no_more_children_are_asked_than_cover_what_is_missing() {
    let mut group = Group::new();
    let [one, two, three, four] = [3, 4, 5, 6].map(|id| group.child(id, 50));
    let half = Rate::whole(50);
    for (client, child) in [(A, one), (B, two)] {
        assert_eq!(group.ask(0, (client, child), Rate::ZERO, offered(500)).rate, half);
    }
    group.ask(10, (D, four), Rate::ZERO, offered(500));
    for (client, child) in [(A, one), (B, two)] {
        group.ask(20, (client, child), half, offered(500));
    }
    group.told();
    // C lacks 10 RU/s, and each child has a third more than its share was when it asked last.
    assert_eq!(group.ask(30, (C, three), Rate::ZERO, offered(5)).rate, Rate::ZERO);
    assert_eq!(group.told(), [(B, 33)]);
}

#[test]
fn a_child_with_less_than_its_share_does_not_make_others_give_up_more() {
    let mut group = Group::new();
    let children = [(3, 38), (4, 22), (5, 60), (6, 2)].map(|(id, ru)| group.child(id, ru));
    let [small, middle, large, least] = children;
    group.settle(&[(A, small), (B, small), (C, middle)]);
    assert_eq!(group.ask(10, (D, large), Rate::ZERO, offered(500)).rate, Rate::whole(40));
    // Of the others each has a bit more than its share of 100 RU/s, which D lacks.
    for (client, child, held) in [(A, small, 19), (B, small, 19), (C, middle, 22)] {
        group.ask(20, (client, child), Rate::whole(held), offered(500));
    }
    group.told();
    assert_eq!(group.committed(), Rate::whole(100));
    // E lacks 1.6 RU/s, and B has 3.2 above its share of 15.8, so that neither A nor C need give up anything for E.
    assert_eq!(group.ask(30, (E, least), Rate::ZERO, offered(50)).rate, Rate::ZERO);
    assert_eq!(group.told(), [(B, 15)]);
}
