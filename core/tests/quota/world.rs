//! Nodes and a controller under a quota of either unit, in steps of virtual time.

use std::collections::BTreeMap;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::node::{Acquired, Admitted, Batch, NodeConfig, NodeGroup, Spent, WaiterId};
use tidegate_core::quota::{Opening, QuotaView, Unit, window_number};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

use crate::noise::Noise;

const PARENT: GroupId = GroupId(2);
const GROUP: GroupId = GroupId(3);
/// The length of a step.
pub(crate) const STEP: Span = Span::millis(2);
/// Time between two flushes of the controller.
pub(crate) const FLUSH: Span = Span::millis(500);

pub(crate) struct Node {
    pub(crate) client: ClientId,
    pub(crate) group: NodeGroup,
    pub(crate) seq: u64,
    pub(crate) waiting: BTreeMap<WaiterId, (Ru, Ru)>,
    /// Operations under way.
    pub(crate) running: Vec<Running>,
    pub(crate) cut_off_until: Time,
    /// Out with a thread.
    batch: Option<(Batch, Spent)>,
}

impl Node {
    /// The machine, whole: what its thread holds comes back first.
    pub(crate) fn gather(&mut self, now: Time) -> &mut NodeGroup {
        if let Some((_, spent)) = self.batch.take() {
            self.group.put_back(now, &spent);
        }
        &mut self.group
    }

    /// Has the thread draw a batch for operations of about this cost.
    fn draw(&mut self, now: Time, cost: Ru) {
        self.gather(now);
        let spent = |batch: Batch| Spent {
            drawn: batch.tokens,
            left: batch.tokens,
            operations: batch.operations,
            ..Spent::default()
        };
        self.batch = self.group.draw(now, cost).map(|batch| (batch, spent(batch)));
    }

    /// Whether the thread pays for an operation.
    fn pays(&mut self, now: Time, cost: Ru) -> bool {
        let Some((batch, spent)) = &mut self.batch else { return false };
        let pays = now < batch.until && spent.left >= cost && spent.begun < batch.operations;
        if pays {
            spent.left -= cost;
            spent.arrived += cost;
            spent.begun += 1;
        }
        pays
    }

    /// Whether the thread takes in what an operation cost.
    fn settles(&mut self, now: Time, estimate: Ru, used: &Consumption) -> bool {
        let Some((batch, spent)) = &mut self.batch else { return false };
        let left = spent.left + estimate - used.ru();
        let fits =
            if used.ru() > estimate { left >= Ru::ZERO && now < batch.until } else { left <= spent.drawn };
        if fits {
            spent.left = left;
            spent.actual.charged = spent.actual.charged.plus(&used.charged);
            spent.actual.operations += used.operations;
        }
        fits
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Running {
    began: Time,
    ends: Time,
    estimate: Ru,
    cost: Ru,
    /// In this window of the world.
    window: usize,
}

/// What a controller has on disk of a quota.
#[derive(Clone, Copy, Default)]
pub(crate) struct Row {
    count: u32,
    mark: Ru,
    used: Ru,
    /// The mark of the next window.
    next: Ru,
    /// When this was written.
    at: Time,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) engine: Engine,
    pub(crate) row: Row,
    pub(crate) ends: Time,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: u64,
    /// On their way: when they arrive, of which node and renewal.
    pub(crate) asks: Vec<(Time, usize, u64, Ask, ClientId)>,
    pub(crate) answers: Vec<(Time, usize, u64, Grant, ClientId)>,
    pub(crate) noise: Noise,
    pub(crate) chance: Chances,
    pub(crate) unit: Unit,
    /// Operations cost nothing.
    pub(crate) free: bool,
    /// Settled in the present window, and of that what was above estimates. Requests: begun and not given back.
    pub(crate) settled: Ru,
    pub(crate) above: Ru,
    pub(crate) windows: Vec<(Ru, Ru)>,
    /// Its window rolls: what was charged, and when it leaves after the row was written.
    pub(crate) rolls: Option<Vec<(Span, Ru)>>,
    /// The length of the window.
    pub(crate) length: Span,
    /// The number of the newest window; that of a row on disk may be of before a change.
    pub(crate) count: u32,
    /// When the window was changed last.
    pub(crate) changed: Time,
    /// What was charged, and when: of requests those that began, and less what never ran.
    pub(crate) charges: Vec<(Time, Ru)>,
    pub(crate) refused: u64,
}

/// Of a thousand steps, and of a thousand messages.
#[derive(Clone, Copy)]
pub(crate) struct Chances {
    pub(crate) kills: u64,
    pub(crate) cuts: u64,
    pub(crate) crashes: u64,
    pub(crate) losses: u64,
    pub(crate) overruns: u64,
    /// Of a hundred operations, those that never run.
    pub(crate) cancels: u64,
    /// Of a hundred operations that no thread pays for, those with which one draws a batch.
    pub(crate) batches: u64,
}

pub(crate) const CALM: Chances =
    Chances { kills: 0, cuts: 0, crashes: 0, losses: 0, overruns: 0, cancels: 0, batches: 0 };
/// Of a hundred thousand steps, each.
pub(crate) const ROUGH: Chances =
    Chances { kills: 3, cuts: 6, crashes: 2, losses: 30, overruns: 0, cancels: 0, batches: 0 };

pub(crate) const WINDOW: Span = Span::secs(20);
pub(crate) const AMOUNT: Ru = Ru::whole(2_000);
/// Four times what the quota allows.
pub(crate) const RATE: Rate = Rate::whole(400);

impl World {
    pub(crate) fn new(seed: u64, nodes: usize, chance: Chances) -> Self {
        Self::of(Unit::Ru, seed, nodes, chance)
    }

    pub(crate) fn of(unit: Unit, seed: u64, nodes: usize, chance: Chances) -> Self {
        let mut world = Self {
            now: Time(0),
            engine: engine(unit, Time(0)),
            unit,
            free: false,
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
            rolls: None,
            length: WINDOW,
            count: 0,
            changed: Time(0),
            charges: Vec::new(),
            refused: 0,
        };
        world.row.next = QuotaView::first_mark(unit, AMOUNT, RATE);
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
            batch: None,
        }
    }

    /// The same with a window that rolls, of a minute, which is the shortest there is.
    pub(crate) fn rolling(unit: Unit, seed: u64, nodes: usize, chance: Chances) -> Self {
        let mut world = Self::of(unit, seed, nodes, chance);
        (world.rolls, world.length, world.ends) = (Some(Vec::new()), Span::secs(60), Time(u64::MAX));
        world.engine = engine(unit, world.now);
        (world.row, world.count) = (Row { count: 2, ..Row::default() }, 2);
        world.reopen();
        world
    }

    /// Another length begins with nothing used but what nodes hold. The disk has it from the next flush on.
    pub(crate) fn change_length(&mut self, length: Span) {
        self.count += 1;
        (self.length, self.changed) = (length, self.now);
        let number = window_number(PARENT, self.count);
        let opening = Opening { number, length, rolls: true, ..Opening::default() };
        self.engine.open_quota(self.now, PARENT, &opening);
        self.charges.clear();
    }

    /// The controller begins on its disk.
    fn reopen(&mut self) {
        let rolls = self.rolls.is_some();
        let lost = self.row.mark - self.row.used;
        let granted = if rolls { lost } else { self.row.mark };
        let opening = Opening {
            number: window_number(PARENT, self.count),
            ends: self.ends,
            length: self.length,
            granted,
            lost,
            durable: granted,
            rolls,
            lost_until: self.engine.recovering_until(),
        };
        self.engine.open_quota(self.now, PARENT, &opening);
        if self.row.count != self.count {
            return;
        }
        let passed = self.now.since(self.row.at);
        for (leaves_in, amount) in self.rolls.iter().flatten() {
            if *leaves_in > passed {
                let leaves_in = Span(leaves_in.0 - passed.0);
                self.engine.charge_quota(self.now, PARENT, leaves_in, *amount);
            }
        }
    }

    fn open(&mut self) {
        self.ends = self.ends.after(WINDOW);
        let next = self.row.next;
        self.count += 1;
        self.row = Row { count: self.count, mark: next, used: Ru::ZERO, next, at: self.now };
        let number = window_number(PARENT, self.count);
        let opening = Opening { number, ends: self.ends, durable: next, ..Opening::default() };
        self.engine.open_quota(self.now, PARENT, &opening);
    }

    pub(crate) fn view(&self) -> QuotaView {
        self.engine.quota_view(PARENT, self.now).unwrap()
    }

    pub(crate) fn flush(&mut self) {
        let view = self.view();
        if self.rolls.is_some() {
            let Some(mark) = view.mark() else { return };
            let cells = self.engine.quota_cells(PARENT, self.now);
            let used = cells.iter().fold(Ru::ZERO, |sum, (_, amount)| sum + *amount);
            self.row = Row { count: self.count, mark, used, at: self.now, ..self.row };
            self.rolls = Some(cells);
            self.engine.quota_durable(PARENT, view.window, mark, view.gone);
            return;
        }
        self.row.used = view.used;
        if let Some(mark) = view.mark() {
            self.row.mark = mark;
            self.engine.quota_durable(PARENT, view.window, mark, 0);
        }
    }

    /// The controller is killed, and another starts on its disk.
    pub(crate) fn crash(&mut self) {
        self.engine = engine(self.unit, self.now);
        self.engine.recover_until(self.now.after(Span::secs(6)));
        self.reopen();
        (self.asks, self.answers) = (Vec::new(), Vec::new());
        for node in &mut self.nodes {
            node.gather(self.now).on_session_lost(self.now);
        }
    }

    fn below(&mut self, chance: u64, of: u64) -> bool {
        self.noise.below(of) < chance
    }

    pub(crate) fn run(&mut self, windows: usize, demand: impl Fn(Time, usize) -> u64) {
        while self.windows.len() < windows {
            self.now = self.now.after(STEP);
            if self.now >= self.ends {
                // Of requests, what is left: not used, and not lost with nodes and controllers that are gone.
                let beside = if self.unit == Unit::Ru { self.above } else { self.view().left };
                self.windows.push((self.settled, beside));
                (self.settled, self.above) = (Ru::ZERO, Ru::ZERO);
                self.open();
            }
            self.pass(&demand);
        }
    }

    /// One step of all.
    pub(crate) fn pass(&mut self, demand: &impl Fn(Time, usize) -> u64) {
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

    pub(crate) fn deliver(&mut self) {
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
            node.into_iter().for_each(|node| node.gather(now).on_lower(now, order.rate_at_most));
        }
        for (at, index, seq, grant, client) in answers {
            if at > now {
                self.answers.push((at, index, seq, grant, client));
            } else if !self.below(self.chance.losses, 1_000)
                && self.nodes[index].client == client
                && self.nodes[index].cut_off_until <= now
            {
                self.nodes[index].gather(now).on_grant(now, seq, &grant);
            }
        }
    }

    fn later(&mut self) -> Time {
        let late = self.noise.below(20_000);
        self.now.after(Span(500 + late))
    }

    pub(crate) fn step(&mut self, index: usize, demand: u64) {
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
            let (ended, goes_on) = running.drain(..).partition(|running| running.ends <= now);
            *running = goes_on;
            ended
        };
        for running in ended {
            self.end(index, running);
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
            let (seq, client) = (node.seq, node.client);
            let ask = node.gather(now).ask(now, seq);
            let cut_off = node.cut_off_until > now;
            let at = self.later();
            if !cut_off && !self.below(self.chance.losses, 1_000) {
                self.asks.push((at, index, seq, ask, client));
            }
        }
    }

    fn end(&mut self, index: usize, running: Running) {
        let Running { began, estimate, cost, window, .. } = running;
        if self.below(self.chance.cancels, 100) {
            self.nodes[index].gather(self.now).give_back(self.now, began, estimate);
            if self.unit == Unit::Requests && window == self.windows.len() {
                self.settled -= Unit::REQUEST;
                self.uncharge(began);
            }
            return;
        }
        let used = Consumption { charged: RuParts::flat(cost), operations: 1, ..Consumption::default() };
        let (now, node) = (self.now, &mut self.nodes[index]);
        if !node.settles(now, estimate, &used) {
            node.gather(now).settle(now, estimate, &used);
        }
        if self.unit == Unit::Ru {
            self.settled += cost;
            self.charges.push((self.now, cost));
            self.above += (cost - estimate).or_zero();
        }
    }

    /// A request that began then never ran.
    fn uncharge(&mut self, began: Time) {
        if began >= self.changed {
            self.charges.push((began, Ru::ZERO - Unit::REQUEST));
        }
    }

    fn submit(&mut self, index: usize) {
        let estimate = Ru::whole(1 + i64::try_from(self.noise.below(4)).unwrap());
        let estimate = if self.free { Ru::ZERO } else { estimate };
        let part = i64::try_from(self.noise.below(101)).unwrap();
        let over = self.below(self.chance.overruns, 100);
        let cost = if over { estimate + estimate } else { estimate.scale(part, 100) };
        let deadline = self.now.after(Span::secs(2));
        if self.nodes[index].pays(self.now, estimate) {
            return self.start(index, estimate, cost);
        }
        if self.chance.batches > 0 && self.below(self.chance.batches, 100) {
            self.nodes[index].draw(self.now, estimate);
            if self.nodes[index].pays(self.now, estimate) {
                return self.start(index, estimate, cost);
            }
        }
        match self.nodes[index].gather(self.now).acquire(self.now, estimate, deadline) {
            Ok(Acquired::Now(_)) => self.start(index, estimate, cost),
            Ok(Acquired::Queued(id)) => {
                self.nodes[index].waiting.insert(id, (estimate, cost));
            }
            Err(_) => self.refused += 1,
        }
    }

    fn start(&mut self, index: usize, estimate: Ru, cost: Ru) {
        let ends = self.now.after(Span(self.noise.below(300_000)));
        let window = self.windows.len();
        self.nodes[index].running.push(Running { began: self.now, ends, estimate, cost, window });
        if self.unit == Unit::Requests {
            self.settled += Unit::REQUEST;
            self.charges.push((self.now, Unit::REQUEST));
        }
    }
}

fn engine(unit: Unit, now: Time) -> Engine {
    let mut engine = Engine::new(now, EngineConfig::default());
    let quota = Some(AMOUNT);
    engine.put_group(now, PARENT, GroupSpec { quota, quota_unit: unit, ..GroupSpec::capped(RATE) }).unwrap();
    let below = GroupSpec { parent: Some(PARENT), ..GroupSpec::capped(RATE) };
    engine.put_group(now, GROUP, below).unwrap();
    engine
}
