//! A tree that is rebuilt while it is used: groups are made, changed, moved with all below them, removed and made again,
//! while clients hold leases and wait in them. Debug builds check after every step that each sum, list, queue and
//! division is what leases and groups make it; here, that who holds something of a group that is removed is ordered to
//! stop, that nothing is left when all has ended, and that a tree of the same groups that was never used answers alike.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::{ClientId, GroupId, GroupSpec, Priority};
use tidegate_core::units::{Rate, Ru, Span, Time};

const GROUPS: u32 = 7;
const CLIENTS: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A group is made or changed: its parent (0 is the top), its rate (0 is no limit), and how it shares.
    Put {
        group: u32,
        parent: u32,
        rate: i64,
        priority: Priority,
        weight: u32,
    },
    Remove(u32),
    /// A client asks, with an operation at the front that waits, or none.
    Ask {
        client: u64,
        group: u32,
        demand: i64,
        head: i64,
        running: i64,
        /// How far away it is, in milliseconds.
        ahead: u64,
    },
    GiveUp {
        client: u64,
        group: u32,
    },
    Goodbye(u64),
    /// Milliseconds pass.
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let group = || 2..2 + GROUPS;
    let parent = prop_oneof![1 => Just(0), 3 => group()];
    let rate = prop_oneof![1 => Just(0_i64), 4 => 1_i64..200];
    let priority = prop_oneof![Just(Priority::Low), Just(Priority::Medium), Just(Priority::High)];
    let client = || 1..=CLIENTS;
    let ahead = prop_oneof![Just(0_u64), 10_u64..1_000];
    let step = prop_oneof![
        4 => (group(), parent, rate, priority, 1_u32..4).prop_map(|(group, parent, rate, priority, weight)| {
            Step::Put { group, parent, rate, priority, weight }
        }),
        1 => group().prop_map(Step::Remove),
        8 => (client(), group(), 0_i64..150, prop_oneof![Just(0_i64), 1_i64..200], 0_i64..3, ahead)
            .prop_map(|(client, group, demand, head, running, ahead)| {
                Step::Ask { client, group, demand, head, running, ahead }
            }),
        1 => (client(), group()).prop_map(|(client, group)| Step::GiveUp { client, group }),
        1 => client().prop_map(Step::Goodbye),
        2 => prop_oneof![1_u64..300, 300_u64..7_000].prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

struct Tree {
    engine: Engine,
    /// The id of each group; the next one of its name has another.
    ids: BTreeMap<u32, u32>,
    specs: BTreeMap<GroupId, GroupSpec>,
    now: Time,
    seq: u64,
    /// The newest answer of each client about each group.
    heard: BTreeMap<(u64, GroupId), (u64, Held)>,
}

impl Tree {
    fn id(&self, group: u32) -> GroupId {
        GroupId(self.ids.get(&group).copied().unwrap_or(group))
    }

    fn ask(&mut self, client: u64, group: u32, ask: Ask) {
        self.seq += 1;
        let group = self.id(group);
        let (acked_seq, held) = self.heard.get(&(client, group)).copied().unwrap_or_default();
        let ask = Ask { acked_seq, held: if ask.gives_up() { ask.held } else { held }, ..ask };
        let answer = self.engine.renew(self.now, ClientId(client), group, self.seq, &ask, None);
        let held = match answer {
            Some(Grant::Leased(terms)) => Held { rate: terms.rate, cap: terms.cap, lump: terms.lump },
            _ => Held::default(),
        };
        self.heard.insert((client, group), (self.seq, held));
    }

    /// All that hold something of a group that is removed are ordered to stop.
    fn remove(&mut self, group: u32) {
        let id = self.id(group);
        let holders: Vec<ClientId> = self.engine.leases(id).map(|lease| lease.client).collect();
        if self.engine.remove_group(self.now, id).is_ok() {
            self.ids.insert(group, id.0 + 100);
            self.specs.remove(&id);
            let orders = self.engine.take_lowers();
            let stopped = orders.iter().filter(|order| (order.group, order.rate_at_most) == (id, Rate::ZERO));
            assert_eq!(stopped.map(|order| order.client).collect::<Vec<_>>(), holders);
        }
    }

    /// A tree of the same groups that was never used or changed.
    fn fresh(&self) -> Engine {
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        let mut left: Vec<_> = self.specs.iter().collect();
        while !left.is_empty() {
            left.retain(|(id, spec)| engine.put_group(Time(0), **id, (*spec).clone()).is_err());
        }
        engine
    }

    /// The answers to a client that comes to each group in turn, first with a load and then with an operation that
    /// waits.
    fn answers(&self, engine: &mut Engine) -> Vec<Option<Grant>> {
        let asks = [Ask { demand: Rate::whole(7), ..Ask::default() }, {
            let (head, ahead) = (Ru::whole(9), Span::millis(100));
            Ask { acked_seq: 1, head, backlog: head, waiting: 1, ahead, ..Ask::default() }
        }];
        let rounds = (1..).zip(&asks);
        let answers = rounds.flat_map(|(seq, ask)| self.specs.keys().map(move |id| (seq, ask, *id)));
        answers.map(|(seq, ask, id)| engine.renew(self.now, ClientId(99), id, seq, ask, None)).collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put { group, parent, rate, priority, weight } => {
                let parent = (parent > 0).then(|| self.id(parent));
                let rated =
                    if rate > 0 { GroupSpec::capped(Rate::whole(rate)) } else { GroupSpec::unlimited() };
                // Refused where it would be its own ancestor, or too deep.
                let spec = GroupSpec { parent, priority, weight, ..rated };
                if self.engine.put_group(self.now, self.id(group), spec.clone()).is_ok() {
                    self.specs.insert(self.id(group), spec);
                }
            }
            Step::Remove(group) => self.remove(group),
            Step::Ask { client, group, demand, head, running, ahead } => {
                let (demand, head, running) = (Rate::whole(demand), Ru::whole(head), Ru::whole(running));
                let waiting = u64::from(head.is_positive());
                self.ask(
                    client,
                    group,
                    Ask {
                        demand,
                        head,
                        backlog: head,
                        waiting,
                        running,
                        ahead: Span::millis(ahead),
                        ..Ask::default()
                    },
                );
            }
            Step::GiveUp { client, group } => self.ask(client, group, Ask::default()),
            Step::Goodbye(client) => self.engine.release(self.now, ClientId(client)),
            Step::Pass(ms) => {
                self.now = Time(self.now.0 + ms * 1_000);
                self.engine.expire(self.now);
            }
        }
        drop(self.engine.take_lowers());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_left_of_leases_that_ended_however_the_tree_was_rebuilt(steps in steps()) {
        let engine = Engine::new(Time(0), EngineConfig::default());
        let (ids, specs, heard) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut tree = Tree { engine, ids, specs, now: Time(0), seq: 0, heard };
        steps.into_iter().for_each(|step| tree.step(step));
        tree.step(Step::Pass(1_000_000));
        tree.engine.check().map_err(TestCaseError::fail)?;
        prop_assert_eq!(tree.engine.next_expiry(), None);
        for group in 0..2 + GROUPS {
            let Some(view) = tree.engine.group_view(tree.id(group)) else { continue };
            prop_assert_eq!((view.leases, view.committed, view.held), (0, Rate::ZERO, Ru::ZERO), "{}", group);
        }
        let mut fresh = tree.fresh();
        prop_assert_eq!(tree.answers(&mut tree.engine.clone()), tree.answers(&mut fresh));
    }
}
