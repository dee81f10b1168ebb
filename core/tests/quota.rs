//! Quotas over many nodes that are killed, cut off and restarted, with a controller that is killed, too: no window uses
//! more, and what is left can be used.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test stops at the first surprise"
)]

mod noise;

use std::collections::BTreeMap;

use noise::Noise;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::node::{Acquired, Admitted, NodeConfig, NodeGroup, Refusal, WaiterId};
use tidegate_core::quota::{Opening, QuotaView, window_number};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

const PARENT: GroupId = GroupId(2);
const GROUP: GroupId = GroupId(3);
/// The length of a step.
const STEP: Span = Span::millis(2);
/// Time between two flushes of the controller.
const FLUSH: Span = Span::millis(500);

struct Node {
    client: ClientId,
    group: NodeGroup,
    seq: u64,
    waiting: BTreeMap<WaiterId, (Ru, Ru)>,
    /// Operations under way: when they end, estimate and cost.
    running: Vec<(Time, Ru, Ru)>,
    cut_off_until: Time,
}

/// What a controller has on disk of a quota.
#[derive(Clone, Copy, Default)]
struct Row {
    count: u32,
    mark: Ru,
    used: Ru,
    /// The mark of the next window.
    next: Ru,
}

struct World {
    now: Time,
    engine: Engine,
    row: Row,
    ends: Time,
    nodes: Vec<Node>,
    clients: u64,
    /// On their way: when they arrive, of which node and renewal.
    asks: Vec<(Time, usize, u64, Ask, ClientId)>,
    answers: Vec<(Time, usize, u64, Grant, ClientId)>,
    noise: Noise,
    chance: Chances,
    /// Settled in the present window, and of that what was above estimates.
    settled: Ru,
    above: Ru,
    windows: Vec<(Ru, Ru)>,
    refused: u64,
}

/// Of a thousand steps, and of a thousand messages.
#[derive(Clone, Copy)]
struct Chances {
    kills: u64,
    cuts: u64,
    crashes: u64,
    losses: u64,
    overruns: u64,
}

const CALM: Chances = Chances { kills: 0, cuts: 0, crashes: 0, losses: 0, overruns: 0 };
/// Of a hundred thousand steps, each.
const ROUGH: Chances = Chances { kills: 3, cuts: 6, crashes: 2, losses: 30, overruns: 0 };

const WINDOW: Span = Span::secs(20);
const AMOUNT: Ru = Ru::whole(2_000);
/// Four times what the quota allows.
const RATE: Rate = Rate::whole(400);

impl World {
    fn new(seed: u64, nodes: usize, chance: Chances) -> Self {
        let mut world = Self {
            now: Time(0),
            engine: engine(Time(0)),
            row: Row::default(),
            ends: Time(0),
            nodes: Vec::new(),
            clients: 0,
            asks: Vec::new(),
            answers: Vec::new(),
            noise: Noise::new(seed),
            chance,
            settled: Ru::ZERO,
            above: Ru::ZERO,
            windows: Vec::new(),
            refused: 0,
        };
        world.row.next = QuotaView::first_mark(AMOUNT, RATE);
        for _ in 0..nodes {
            let node = world.node();
            world.nodes.push(node);
        }
        world.open();
        world
    }

    fn node(&mut self) -> Node {
        self.clients += 1;
        Node {
            client: ClientId(self.clients),
            group: NodeGroup::new(self.now, NodeConfig::default()),
            seq: 0,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            cut_off_until: Time(0),
        }
    }

    fn open(&mut self) {
        self.ends = self.ends.after(WINDOW);
        let next = self.row.next;
        self.row = Row { count: self.row.count + 1, mark: next, used: Ru::ZERO, next };
        let number = window_number(PARENT, self.row.count);
        let opening = Opening { number, ends: self.ends, durable: next, ..Opening::default() };
        self.engine.open_quota(self.now, PARENT, &opening);
    }

    fn view(&self) -> QuotaView {
        self.engine.quota_view(PARENT, self.now).unwrap()
    }

    fn flush(&mut self) {
        let view = self.view();
        self.row.used = view.used;
        if let Some(mark) = view.mark() {
            self.row.mark = mark;
            self.engine.quota_durable(PARENT, view.window, mark);
        }
    }

    /// The controller is killed, and another starts on its disk.
    fn crash(&mut self) {
        self.engine = engine(self.now);
        self.engine.recover_until(self.now.after(Span::secs(6)));
        let opening = Opening {
            number: window_number(PARENT, self.row.count),
            ends: self.ends,
            granted: self.row.mark,
            lost: self.row.mark - self.row.used,
            durable: self.row.mark,
            ..Opening::default()
        };
        self.engine.open_quota(self.now, PARENT, &opening);
        (self.asks, self.answers) = (Vec::new(), Vec::new());
        for node in &mut self.nodes {
            node.group.on_session_lost(self.now);
        }
    }

    fn below(&mut self, chance: u64, of: u64) -> bool {
        self.noise.below(of) < chance
    }

    fn run(&mut self, windows: usize, demand: impl Fn(Time, usize) -> u64) {
        while self.windows.len() < windows {
            self.now = self.now.after(STEP);
            if self.now >= self.ends {
                self.windows.push((self.settled, self.above));
                (self.settled, self.above) = (Ru::ZERO, Ru::ZERO);
                self.open();
            }
            if self.now.0.is_multiple_of(FLUSH.0) {
                self.flush();
            }
            if self.below(self.chance.crashes, 100_000) {
                self.crash();
            }
            self.deliver();
            for index in 0..self.nodes.len() {
                self.step(index, demand(self.now, index));
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (asks, answers) = (std::mem::take(&mut self.asks), std::mem::take(&mut self.answers));
        for (at, node, seq, ask, client) in asks {
            if at > now {
                self.asks.push((at, node, seq, ask, client));
            } else if let Some(grant) = self.engine.renew(now, client, GROUP, seq, &ask, Some(ask.held)) {
                let at = self.later();
                self.answers.push((at, node, seq, grant, client));
            }
        }
        let orders = self.engine.take_lowers();
        for order in orders {
            let node = self.nodes.iter_mut().find(|node| node.client == order.client);
            node.into_iter().for_each(|node| node.group.on_lower(now, order.rate_at_most));
        }
        for (at, index, seq, grant, client) in answers {
            if at > now {
                self.answers.push((at, index, seq, grant, client));
            } else if !self.below(self.chance.losses, 1_000)
                && self.nodes[index].client == client
                && self.nodes[index].cut_off_until <= now
            {
                self.nodes[index].group.on_grant(now, seq, &grant);
            }
        }
    }

    fn later(&mut self) -> Time {
        let late = self.noise.below(20_000);
        self.now.after(Span(500 + late))
    }

    fn step(&mut self, index: usize, demand: u64) {
        let now = self.now;
        if self.below(self.chance.kills, 100_000) {
            // What it had under way is gone, and never settled.
            self.nodes[index] = self.node();
        }
        if self.below(self.chance.cuts, 100_000) {
            let long = self.noise.below(12_000_000);
            self.nodes[index].cut_off_until = now.after(Span(long));
        }
        let ended: Vec<_> = {
            let running = &mut self.nodes[index].running;
            let (ended, goes_on) = running.drain(..).partition(|(end, ..)| *end <= now);
            *running = goes_on;
            ended
        };
        for (_, estimate, cost) in ended {
            let used = Consumption { charged: RuParts::flat(cost), operations: 1, ..Consumption::default() };
            self.nodes[index].group.settle(now, estimate, &used);
            self.settled += cost;
            self.above += (cost - estimate).or_zero();
        }
        if self.below(demand, 1_000) {
            self.submit(index);
        }
        while let Some((id, outcome)) = self.nodes[index].group.poll(now) {
            let (estimate, cost) = self.nodes[index].waiting.remove(&id).unwrap();
            match outcome {
                Ok(Admitted::Paid) => self.start(index, estimate, cost),
                Ok(Admitted::Over) => panic!("nothing is in shadow"),
                Err(_) => self.refused += 1,
            }
        }
        let node = &mut self.nodes[index];
        if node.group.due(now).is_some_and(|due| due <= now) {
            node.seq += 1;
            let (seq, ask, client) = (node.seq, node.group.ask(now, node.seq), node.client);
            let cut_off = node.cut_off_until > now;
            let at = self.later();
            if !cut_off && !self.below(self.chance.losses, 1_000) {
                self.asks.push((at, index, seq, ask, client));
            }
        }
    }

    fn submit(&mut self, index: usize) {
        let estimate = Ru::whole(1 + i64::try_from(self.noise.below(4)).unwrap());
        let part = i64::try_from(self.noise.below(101)).unwrap();
        let over = self.below(self.chance.overruns, 100);
        let cost = if over { estimate + estimate } else { estimate.scale(part, 100) };
        let deadline = self.now.after(Span::secs(2));
        match self.nodes[index].group.acquire(self.now, estimate, deadline) {
            Ok(Acquired::Now(_)) => self.start(index, estimate, cost),
            Ok(Acquired::Queued(id)) => {
                self.nodes[index].waiting.insert(id, (estimate, cost));
            }
            Err(_) => self.refused += 1,
        }
    }

    fn start(&mut self, index: usize, estimate: Ru, cost: Ru) {
        let lasts = Span(self.noise.below(300_000));
        self.nodes[index].running.push((self.now.after(lasts), estimate, cost));
    }
}

fn engine(now: Time) -> Engine {
    let mut engine = Engine::new(now, EngineConfig::default());
    let quota = Some(AMOUNT);
    engine.put_group(now, PARENT, GroupSpec { quota, ..GroupSpec::capped(RATE) }).unwrap();
    let below = GroupSpec { parent: Some(PARENT), ..GroupSpec::capped(RATE) };
    engine.put_group(now, GROUP, below).unwrap();
    engine
}

#[test]
fn a_calm_window_is_used_up_and_no_more() {
    for nodes in [1, 3, 8] {
        let mut world = World::new(1, nodes, CALM);
        world.run(4, |_, _| 400);
        for (window, (settled, _)) in world.windows.iter().enumerate() {
            assert!(*settled <= AMOUNT, "{nodes} nodes, window {window}: {settled} of {AMOUNT}");
            assert!(*settled >= AMOUNT.scale(995, 1_000), "{nodes} nodes, window {window}: {settled}");
        }
    }
}

#[test]
fn no_window_uses_more_whatever_is_killed() {
    for seed in 0..40 {
        let mut world = World::new(seed, 8, ROUGH);
        world.run(4, |now, node| if (now.0 / 3_000_000 + node as u64).is_multiple_of(3) { 500 } else { 50 });
        for (window, (settled, _)) in world.windows.iter().enumerate() {
            assert!(*settled <= AMOUNT, "seed {seed}, window {window}: {settled} of {AMOUNT}");
        }
    }
}

#[test]
fn what_operations_cost_beyond_their_estimates_leaves_less_for_others() {
    for seed in 0..10 {
        let mut world = World::new(seed, 4, Chances { overruns: 10, ..ROUGH });
        world.run(3, |_, _| 200);
        for (window, (settled, above)) in world.windows.iter().enumerate() {
            assert!(*settled <= AMOUNT + *above, "seed {seed}, window {window}: {settled}, {above} above");
        }
    }
}

#[test]
fn a_share_ends_with_its_window() {
    let mut world = World::new(1, 1, CALM);
    world.run(1, |_, _| 20);
    // The next window has begun, and the node has not heard of it.
    let now = world.now;
    let group = &mut world.nodes[0].group;
    assert!(group.state(now).available > Ru::whole(20));
    let refusal = group.try_acquire(now, Ru::whole(1)).unwrap_err();
    assert!(matches!(refusal, Refusal::Throttled { .. }), "{refusal:?}");
    world.run(2, |_, _| 20);
    assert!(world.windows[1].0 > Ru::whole(200), "{:?}", world.windows);
}

/// What a thread spends on its own is counted late.
#[test]
fn threads_draw_no_batches_under_a_quota() {
    let mut world = World::new(1, 1, CALM);
    world.run(1, |_, _| 100);
    let now = world.now;
    let group = &mut world.nodes[0].group;
    assert!(group.state(now).available > Ru::whole(20));
    assert_eq!(group.draw(now, Ru(1)), None);
}

#[test]
fn a_used_up_quota_refuses_at_once_and_says_when_to_come_again() {
    let mut world = World::new(1, 2, CALM);
    world.run(1, |_, _| 500);
    while world.now < world.ends.after(Span(0)) && world.settled < AMOUNT.scale(999, 1_000) {
        world.now = world.now.after(STEP);
        world.deliver();
        for node in 0..2 {
            world.step(node, 500);
        }
        if world.now.0.is_multiple_of(FLUSH.0) {
            world.flush();
        }
    }
    let (now, ends) = (world.now, world.ends);
    let refusal = world.nodes[0].group.acquire(now, Ru::whole(4), now.after(Span::secs(1))).unwrap_err();
    let Refusal::QuotaUsedUp { resets_in } = refusal else { panic!("{refusal:?}") };
    let until = now.after(resets_in);
    assert!(until <= ends && ends.since(until) < Span::secs(1), "{until:?} of {ends:?}");
    let patient = world.nodes[0].group.acquire(now, Ru::whole(4), ends.after(Span::secs(1)));
    assert!(matches!(patient, Ok(Acquired::Queued(_))), "{patient:?}");
}
