//! What must hold at every moment, over all controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::groups::KINDS;
use super::world::World;
use crate::service::Service;
use crate::store::replicated::ReplicatedStore;

#[derive(Default)]
pub(super) struct Judge {
    /// All takes of the log, and whether the owner left it in order.
    terms: BTreeMap<u64, bool>,
    /// Epochs of the controllers that were loaded, by term.
    epochs: BTreeMap<u64, u64>,
    /// Who spoke last.
    spoke: Option<(u64, u64)>,
    /// Names of groups that were made.
    pub(super) acknowledged: Vec<String>,
    /// The term of the last controller that left, and knows it.
    pub(super) left: Option<u64>,
    names: u64,
    /// What a run came to.
    pub(super) course: Course,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    pub(super) takes: usize,
    pub(super) terms: usize,
    pub(super) resumed: usize,
    pub(super) acknowledged: usize,
    pub(super) durable: u128,
    pub(super) clean: usize,
    pub(super) crashes: usize,
    pub(super) seeds: usize,
    /// Operations that nodes admitted, answers that they took in, streams that they opened, nodes that were killed.
    pub(super) operations: u64,
    pub(super) answers: u64,
    pub(super) streams: u64,
    pub(super) kills: u64,
    /// Seeds in which a window of a group had nine tenths of its burst above its rate.
    pub(super) tight: [usize; KINDS.len()],
}

impl Course {
    pub(super) fn add(&mut self, more: &Self) {
        self.takes += more.takes;
        self.terms += more.terms;
        self.resumed += more.resumed;
        self.acknowledged += more.acknowledged;
        self.durable += more.durable;
        self.clean += more.clean;
        self.crashes += more.crashes;
        self.seeds += 1;
        self.operations += more.operations;
        self.answers += more.answers;
        self.streams += more.streams;
        self.kills += more.kills;
        self.tight.iter_mut().zip(more.tight).for_each(|(all, more)| *all += more);
    }
}

impl Judge {
    /// The next group that nodes use and that is not known to be there.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let is_there = |name: &str| self.acknowledged.iter().any(|there| there == name);
        KINDS.iter().map(|kind| kind.name).find(|name| !is_there(name))
    }

    pub(super) fn new_name(&mut self) -> String {
        self.names += 1;
        self.missing().map_or_else(|| format!("g{}", self.names), str::to_owned)
    }

    pub(super) fn taken(&mut self, term: u64) {
        self.terms.insert(term, false);
        self.course.takes += 1;
    }

    pub(super) fn leaves(&mut self, term: u64) {
        self.terms.insert(term, true);
    }

    /// At most one speaks, for a fence after its newest beat was sent; epochs of those that do only grow.
    pub(super) fn look(world: &World) {
        if world.halts {
            // By its clock, one that was halted may speak beside its successor: what nodes hold is judged.
            return;
        }
        let now = world.now();
        let mut speaking: Option<(usize, u64, u64)> = None;
        for (at, machine) in world.machines.iter().enumerate() {
            let state = machine.lock();
            let Some((term, service)) = &state.speaks else { continue };
            if service.silence().is_some() {
                continue;
            }
            // Its fence, on a clock that may be slow.
            let until = state.beat_sent.map(|sent| sent + machine.fence.0 + machine.fence.0 / 1_000);
            assert!(
                until.is_some_and(|until| now <= until),
                "seed {}: controller {at} speaks at {now}, with a beat that was sent at {:?}",
                world.seed,
                state.beat_sent
            );
            let (term, epoch) = (*term, service.epoch());
            if let Some((other, ..)) = speaking {
                panic!("seed {}: controllers {other} and {at} speak at {now}", world.seed);
            }
            speaking = Some((at, term, epoch));
        }
        let Some((at, term, epoch)) = speaking else { return };
        let mut judge = world.judge.lock().unwrap();
        if judge.spoke == Some((term, epoch)) {
            return;
        }
        if let Some((last, before)) = judge.spoke {
            let seed = world.seed;
            assert!(
                term >= last,
                "seed {seed}: controller {at} of term {term} speaks after {last}, at {now}"
            );
            assert!(epoch >= before, "seed {seed}: controller {at} of epoch {epoch} speaks after {before}");
            judge.course.terms += usize::from(term > last);
        }
        judge.spoke = Some((term, epoch));
    }

    /// A controller is loaded: nothing is lost, and it goes on with leases only where it may.
    pub(super) fn loaded(world: &Arc<World>, store: &ReplicatedStore, service: &Service) {
        let mut judge = world.judge.lock().unwrap();
        let (seed, epoch, term, now) = (world.seed, service.epoch(), store.epoch(), world.now());
        let leaves = judge.terms.range(..term).next_back().is_some_and(|(_, leaves)| *leaves);
        let before = judge.epochs.range(..term).map(|(_, epoch)| *epoch).max().unwrap_or(0);
        assert!(epoch > before || (epoch == before && leaves), "seed {seed}: epoch {epoch} at {now}");
        judge.course.resumed += usize::from(epoch == before);
        judge.epochs.insert(term, epoch);
        if judge.terms.range(term + 1..).next().is_some() {
            // It was stopped meanwhile, and others have gone on.
            return;
        }
        for name in &judge.acknowledged {
            assert!(service.definitions().group(name).is_ok(), "seed {seed}: {name} is lost at {now}");
        }
        drop(judge);
        world.nodes.lock().unwrap().judge_ledger(world, service, false);
    }

    /// Who speaks now: its machine, term and epoch.
    pub(super) fn speaker(world: &World) -> Option<(usize, u64, u64)> {
        world.machines.iter().enumerate().find_map(|(at, machine)| {
            let state = machine.lock();
            let (term, service) = state.speaks.as_ref()?;
            service.silence().is_none().then(|| (at, *term, service.epoch()))
        })
    }
}
