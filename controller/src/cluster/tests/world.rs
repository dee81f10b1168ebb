//! True time, in which everything happens, one event after another; what befalls the shared store and the machines.
//!
//! A call of the shared store lets time pass, and with it all other events: so the calls of all machines interleave in
//! every way, on one thread, and a seed repeats a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_consensus::model::Model;
use tidegate_consensus::{Consensus as _, Step, Transaction};
use tidegate_core::units::Span;

use super::judge::Judge;
use super::link::Fault;
use super::machine::{self, Machine};
use super::nodes::Nodes;

pub(super) const MS: u64 = 1_000;
pub(super) const SECOND: u64 = 1_000 * MS;
/// Between two looks of the judge, at the latest.
const TICK: u64 = 50 * MS;
/// A late request may arrive after this time.
const LATEST: u64 = 60 * SECOND;

pub(super) struct Draws(AtomicU64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Below `n`, by SplitMix64.
    pub(super) fn below(&self, n: u64) -> u64 {
        let bits = self.0.load(Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.store(bits, Ordering::Relaxed);
        let mixed = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % n.max(1)
    }

    pub(super) fn among<T: Copy>(&self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// What the shared store is like now.
pub(super) struct Weather {
    /// One call in so many has a fault; 0: none.
    pub(super) one_in: u64,
    /// A call takes up to twice this time.
    pub(super) delay: u64,
    /// Nobody reaches it until then.
    pub(super) away_until: u64,
    /// Something new befalls a machine then.
    pub(super) turns_at: u64,
    held: Vec<(u64, Transaction)>,
    tick_at: u64,
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) draws: Draws,
    pub(super) model: Model,
    pub(super) machines: Vec<Machine>,
    pub(super) weather: Mutex<Weather>,
    pub(super) judge: Mutex<Judge>,
    pub(super) nodes: Mutex<Nodes>,
    /// The length of leases.
    pub(super) ttl: Span,
    /// Machines are halted, clocks and all, and so answers wait for beats.
    pub(super) halts: bool,
    now: AtomicU64,
}

#[derive(Clone, Copy)]
enum Event {
    Main(usize),
    Beat(usize),
    Deliver(usize),
    Nodes,
    Turn,
    Tick,
}

impl World {
    pub(super) fn new(seed: u64, fences: [Span; 3], halts: bool) -> Arc<Self> {
        let draws = Draws::new(seed);
        let weather =
            Weather { one_in: 0, delay: MS, away_until: 0, turns_at: u64::MAX, held: Vec::new(), tick_at: 0 };
        let machines = (0..).zip(fences).map(|(at, fence)| Machine::new(at, fence, &draws)).collect();
        let ttl = draws.among(&[Span::secs(1), Span::secs(2), Span::secs(2), Span::secs(5)]);
        Arc::new(Self {
            seed,
            nodes: Mutex::new(Nodes::new(&draws)),
            ttl,
            draws,
            model: Model::new(),
            machines,
            weather: Mutex::new(weather),
            judge: Mutex::default(),
            halts,
            now: AtomicU64::new(0),
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap()
    }

    fn set_time(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
        self.machines.iter().for_each(|machine| machine.show(now));
    }

    /// Lets this time pass.
    pub(super) fn pass(self: &Arc<Self>, span: u64) {
        self.go_to(self.now() + span);
    }

    /// Lets everything happen that is due until then. What it calls may take longer.
    pub(super) fn go_to(self: &Arc<Self>, until: u64) {
        while let Some((at, event)) = self.next().filter(|(at, _)| *at <= until) {
            self.set_time(at.max(self.now()));
            Judge::look(self);
            self.happens(event);
            // Nodes change nothing about who speaks.
            if !matches!(event, Event::Nodes) {
                Judge::look(self);
            }
        }
        self.set_time(until.max(self.now()));
        Judge::look(self);
    }

    fn next(&self) -> Option<(u64, Event)> {
        let weather = self.weather();
        let mut all = vec![(weather.turns_at, Event::Turn), (weather.tick_at, Event::Tick)];
        all.extend(weather.held.iter().enumerate().map(|(at, (due, _))| (*due, Event::Deliver(at))));
        all.push((self.nodes.lock().unwrap().due(), Event::Nodes));
        for (at, machine) in self.machines.iter().enumerate() {
            let state = machine.lock();
            all.extend(state.main_due().map(|due| (due, Event::Main(at))));
            all.extend(state.beat_due().map(|due| (due, Event::Beat(at))));
        }
        all.into_iter().min_by_key(|(at, _)| *at)
    }

    fn happens(self: &Arc<Self>, event: Event) {
        match event {
            Event::Main(at) => machine::step(self, at),
            Event::Beat(at) => machine::beat(self, at),
            Event::Nodes => Nodes::happens(self),
            Event::Turn => self.turn(),
            Event::Tick => {
                self.weather().tick_at = self.now() + TICK;
                self.nodes.lock().unwrap().sweep(self);
            }
            Event::Deliver(at) => {
                let (_, transaction) = self.weather().held.swap_remove(at);
                let _ = self.model.transact(&transaction, Duration::ZERO);
            }
        }
    }

    /// Waits until a machine goes on, if it is stopped.
    pub(super) fn wake(self: &Arc<Self>, at: usize) {
        loop {
            let until = self.machines[at].lock().stopped_until;
            if until <= self.now() {
                return;
            }
            self.go_to(until);
        }
    }

    pub(super) fn delays(&self) -> (u64, u64) {
        let delay = self.weather().delay;
        // Most are short: only so one that is long makes a difference.
        let both = self.draws.below(if self.draws.below(4) == 0 { 2 * delay } else { delay / 10 });
        let to = self.draws.below(both + 1);
        (to, both - to)
    }

    pub(super) fn fault(&self, at: usize) -> Option<Fault> {
        let (one_in, all) = {
            let weather = self.weather();
            (weather.one_in, weather.away_until)
        };
        if all.max(self.machines[at].lock().away_until) > self.now() {
            // What is on the way when the store goes away may be in it.
            return Some(if self.draws.below(8) == 0 { Fault::Lost } else { Fault::Away });
        }
        if one_in == 0 || self.draws.below(one_in) != 0 {
            return None;
        }
        Some(match self.draws.below(3) {
            0 => Fault::Away,
            1 => Fault::Lost,
            _ => Fault::Late,
        })
    }

    /// A request is on its way for long.
    pub(super) fn hold(&self, transaction: &Transaction) {
        let most = self.draws.among(&[SECOND, 5 * SECOND, LATEST]);
        let due = self.now() + self.draws.below(most);
        self.weather().held.push((due, transaction.clone()));
    }

    /// Something new befalls somebody.
    fn turn(self: &Arc<Self>) {
        let now = self.now();
        let at = usize::try_from(self.draws.below(3)).unwrap();
        let outage = 300 * MS + self.draws.below(2_700 * MS);
        match self.draws.below(12) {
            0 | 1 => self.stop(at),
            2 | 3 => machine::crash(self, at, self.draws.below(5 * SECOND), false),
            4 => machine::crash(self, at, self.draws.below(5 * SECOND), true),
            5 | 6 => self.machines[at].lock().is_to_stop = true,
            7 => self.machines[at].lock().away_until = now + outage,
            8 => self.weather().away_until = now + outage,
            9 if self.draws.below(2) == 0 => self.remove_owner(),
            9 => {}
            10 => self.weather().one_in = self.draws.among(&[0, 0, 3, 10, 40]),
            _ => self.weather().delay = self.draws.among(&[2 * MS, 20 * MS, 140 * MS]),
        }
        self.weather().turns_at = now + self.draws.below(2 * SECOND);
    }

    /// A process stands still, and its machine's clock goes on.
    fn stop(&self, at: usize) {
        let most = self.draws.among(&[SECOND, 3 * SECOND, 3 * SECOND, 30 * SECOND]);
        let mut state = self.machines[at].lock();
        // While it is at a call, all those that are at one wait with it.
        if !state.is_busy() || self.draws.below(4) == 0 {
            state.stopped_until = self.now() + self.draws.below(most);
            if self.halts && self.draws.below(4) > 0 {
                self.machines[at].halt(self.now(), state.stopped_until);
            }
        }
    }

    /// A machine is gone for some seconds: its process dies, or stands still.
    pub(super) fn vanish(&self, at: usize) {
        let mut state = self.machines[at].lock();
        if state.is_busy() || self.draws.below(2) == 0 {
            drop(state);
            machine::crash(self, at, 5 * SECOND, false);
        } else {
            state.stopped_until = self.now() + 5 * SECOND;
        }
    }

    /// A machine stands still for this time, clocks and all.
    pub(super) fn halt(&self, at: usize, span: u64) {
        let until = self.now() + span;
        self.machines[at].lock().stopped_until = until;
        self.machines[at].halt(self.now(), until);
    }

    /// A process may be stopped in the midst of a call.
    pub(super) fn stumble(&self, at: usize) {
        let stormy = self.weather().turns_at != u64::MAX;
        if stormy && self.draws.below(400) == 0 {
            self.machines[at].lock().stopped_until = self.now() + self.draws.below(3 * SECOND);
        }
    }

    /// An operator removes the record of the owner.
    pub(super) fn remove_owner(&self) {
        let then = vec![Step::Delete(b"t/own/".to_vec(), b"t/own0".to_vec())];
        let removal = Transaction { then, ..Transaction::default() };
        self.model.transact(&removal, Duration::ZERO).unwrap();
    }

    /// Faults begin.
    pub(super) fn storm(&self) {
        let mut weather = self.weather();
        weather.one_in = self.draws.among(&[0, 4, 20]);
        weather.delay = self.draws.among(&[2 * MS, 20 * MS, 140 * MS]);
        weather.turns_at = self.now() + self.draws.below(2 * SECOND);
        drop(weather);
        self.nodes.lock().unwrap().storm(self);
    }

    /// Everything is well from now on; what was late arrives now, or never.
    pub(super) fn calm(self: &Arc<Self>) {
        let held = {
            let mut weather = self.weather();
            (weather.one_in, weather.delay) = (0, 2 * MS);
            (weather.away_until, weather.turns_at) = (0, u64::MAX);
            std::mem::take(&mut weather.held)
        };
        for (_, transaction) in held {
            if self.draws.below(2) == 0 {
                let _ = self.model.transact(&transaction, Duration::ZERO);
            }
        }
        let now = self.now();
        for machine in &self.machines {
            machine.halt(now, now);
            let mut state = machine.lock();
            (state.away_until, state.stopped_until) = (0, 0);
            state.is_to_stop = false;
            state.main_at = state.main_at.min(now + 100 * MS);
        }
        self.nodes.lock().unwrap().calm();
    }

    /// The fence that the record of the owner asks for.
    pub(super) fn owner_fence(&self) -> Span {
        let rows = self.model.rows();
        let own = rows.iter().find(|row| row.key.starts_with(b"t/own/")).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&own.value).unwrap();
        Span::millis(record["fence_ms"].as_u64().unwrap())
    }

    /// Lets go of everything that holds this world.
    pub(super) fn end(&self) {
        self.machines.iter().for_each(Machine::clear);
    }
}
