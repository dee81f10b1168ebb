//! Three controllers, one shared store, and a seed: batches, faults of every kind, crashes between any two calls, owners
//! that are deposed and go on writing, disks that are full or wiped.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_consensus::model::{Change, Fault, Model};
use tidegate_core::group::GroupId;

use super::super::super::records::pair_key;
use super::super::super::{Batch, Store as _, StoreError, Table, Write};
use super::super::applied::Applied;
use super::super::bytes::{Entry, entries};
use super::super::checkpoint::{Checkpoint, Unpager};
use super::super::keys::Keys;
use super::super::known::Known;
use super::super::ready::Ready;
use super::super::segment::{Joining, Segment};
use super::super::{Follower, ReplicatedStore, Seen};
use super::memory::{self, Memory};
use super::{PREFIX, Rows, change, counters, owner, put, rows, settings};

/// The table of markers: each batch puts one of its own, which nothing removes.
const MARKERS: Table = Table::Audit;

struct Draws(u64);

impl Draws {
    /// Below `n`, by SplitMix64.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % n
    }

    fn place(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }
}

enum Role {
    Down,
    Follows(Follower),
    Owns(ReplicatedStore),
}

struct Controller {
    place: Arc<Memory>,
    role: Role,
    /// What it saw of the owner, maybe a while ago.
    seen: Option<Seen>,
    /// Its disk has failed: its store may have parted from the log.
    failed: bool,
}

struct World {
    seed: u64,
    draws: Draws,
    model: Arc<Model>,
    controllers: Vec<Controller>,
    /// Every batch that was asked for, and whether it was acknowledged.
    asked: Vec<(Batch, bool)>,
    /// What is counted, whether or not it could be stored.
    counted: BTreeMap<(Table, Vec<u8>), [u64; 3]>,
    patience: u64,
}

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub(super) acknowledged: usize,
    pub(super) unknown: usize,
    pub(super) takes: usize,
    pub(super) checkpoints: usize,
    pub(super) skipped: usize,
    /// Rows that were logged as what they grew by.
    pub(super) grown: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let controller = || Controller { place: Memory::new(), role: Role::Down, seen: None, failed: false };
        let mut draws = Draws(seed);
        let patience = draws.below(3) * 30;
        Self {
            seed,
            draws,
            model: Arc::default(),
            controllers: (0..3).map(|_| controller()).collect(),
            asked: Vec::new(),
            counted: BTreeMap::new(),
            patience,
        }
    }

    fn batch(&mut self) -> Batch {
        let id = self.asked.len() as u64;
        let mut batch = vec![put(MARKERS, &id.to_be_bytes(), b"")];
        for _ in 0..self.draws.below(6) {
            let tables = [Table::Meta, Table::Ledger, Table::Groups, Table::Minutes];
            let table = tables[self.draws.place(tables.len())];
            let key = vec![b'a' + u8::try_from(self.draws.below(8)).unwrap()];
            let value = vec![u8::try_from(id % 251).unwrap(); self.draws.place(90)];
            batch.push(match self.draws.below(5) {
                0 => Write::Delete(table, key),
                1 if table != Table::Meta => Write::DeleteBelow(table, key),
                _ => Write::Put(table, key, value),
            });
        }
        for _ in 0..self.draws.below(5) {
            let counted = self.counted();
            batch.push(counted);
        }
        batch
    }

    /// A row of counters that has grown, or now and then one that fell or went.
    fn counted(&mut self) -> Write {
        let table = [Table::Ledger, Table::Minutes, Table::Hours][self.draws.place(3)];
        let key = pair_key(1 + self.draws.below(3), GroupId(1));
        match self.draws.below(30) {
            0 => return Write::Delete(table, key),
            1 => return Write::DeleteBelow(table, key),
            2 => drop(self.counted.remove(&(table, key.clone()))),
            _ => {}
        }
        let by = [self.draws.below(2), self.draws.below(300), self.draws.below(1 << 40)];
        let sums = self.counted.entry((table, key.clone())).or_default();
        sums.iter_mut().zip(by).for_each(|(sum, by)| *sum += by);
        Write::Put(table, key, counters(*sums))
    }

    /// Checks an error: it is one that faults explain.
    fn explained(&self, at: usize, error: &StoreError) {
        let explained = match error {
            StoreError::Shared { .. }
            | StoreError::Deposed { .. }
            | StoreError::NotTaken { .. }
            | StoreError::Left
            | StoreError::Belated => true,
            StoreError::Parted { .. } | StoreError::Failed { .. } => self.controllers[at].failed,
            _ => false,
        };
        assert!(explained, "seed {}: controller {at}: {error}", self.seed);
    }

    fn step(&mut self) {
        // The owner gets to do the most.
        let owns = |of: &Controller| matches!(of.role, Role::Owns(_));
        let owner = self.controllers.iter().position(owns).filter(|_| self.draws.below(3) > 0);
        let at = owner.unwrap_or_else(|| self.draws.place(3));
        // Between any two calls of this step the process is killed.
        let killed = self.draws.below(20) == 0;
        if killed {
            let calls = self.draws.place(5);
            self.model.calm();
            self.model.plan(vec![None; calls]);
            self.model.plan(vec![Some(Fault::Away); 50]);
        } else {
            let (seed, rate) = (self.draws.below(u64::MAX), [4, 10, 1_000][self.draws.place(3)]);
            self.model.calm();
            self.model.draw(seed, rate);
        }
        match self.draws.below(40) {
            0 | 1 => drop(self.model.held() > 0 && self.model.deliver(self.draws.place(self.model.held()))),
            2 => self.controllers[at].role = Role::Down,
            3 | 4 if matches!(self.controllers[at].role, Role::Down) => self.controllers[at].place.wipe(),
            5 => {
                let failed = self.draws.below(4) == 0;
                self.controllers[at].failed |= failed;
                self.controllers[at].place.fail(failed);
            }
            _ => self.act(at),
        }
        if killed {
            self.controllers[at].role = Role::Down;
            self.controllers[at].place.fail(false);
        }
    }

    fn act(&mut self, at: usize) {
        match std::mem::replace(&mut self.controllers[at].role, Role::Down) {
            Role::Down => self.start(at),
            Role::Follows(follower) => self.follows(at, follower),
            Role::Owns(store) => {
                let ended = self.owns(at, &store);
                // One that may not write any more stops, or goes on trying for a while.
                if !ended || self.draws.below(3) > 0 {
                    self.controllers[at].role = Role::Owns(store);
                }
            }
        }
    }

    fn start(&mut self, at: usize) {
        self.controllers[at].place.fail(false);
        self.controllers[at].failed = false;
        let place = Arc::<Memory>::clone(&self.controllers[at].place);
        let consensus = Arc::<Model>::clone(&self.model);
        match Follower::follow(consensus, PREFIX, place, settings(self.patience), false) {
            Ok(follower) => self.controllers[at].role = Role::Follows(follower),
            Err(error) => self.explained(at, &error),
        }
    }

    fn follows(&mut self, at: usize, mut follower: Follower) {
        let tried = match self.draws.below(16) {
            0..3 => follower.look().map(|seen| self.controllers[at].seen = Some(seen)),
            3..13 => follower.catch_up(),
            _ => {
                let Some(seen) = self.controllers[at].seen.take() else {
                    self.controllers[at].role = Role::Follows(follower);
                    return;
                };
                match follower.take(&seen, &owner(&at.to_string())) {
                    Ok(store) => {
                        self.controllers[at].role = Role::Owns(store);
                        return;
                    }
                    Err(not) => {
                        follower = not.follower;
                        Err(not.error)
                    }
                }
            }
        };
        if let Err(error) = tried {
            self.explained(at, &error);
        }
        self.controllers[at].role = Role::Follows(follower);
    }

    /// Returns whether the store has ended.
    fn owns(&mut self, at: usize, store: &ReplicatedStore) -> bool {
        let tried = match self.draws.below(10) {
            0 => store.beat(),
            1 => store.checkpoint_if_due().map(drop),
            2 if self.draws.below(20) == 0 => store.leave(),
            of => {
                let batch = self.batch();
                let is_last = of == 3 && self.draws.below(10) == 0;
                let done = if is_last { store.commit_last(&batch) } else { store.commit(&batch) };
                assert!(!is_last || done.is_err() || store.has_left());
                self.asked.push((batch, done.is_ok()));
                done
            }
        };
        let Err(error) = tried else { return false };
        let ended = store.has_ended();
        assert!(!ended || store.commit(&self.batch()).is_err(), "seed {}: it ended, and writes", self.seed);
        self.explained(at, &error);
        ended
    }

    /// Everything is well again: whatever was late arrives, and every copy must say the same.
    fn end(&mut self) -> Rows {
        self.model.calm();
        while self.model.held() > 0 {
            self.model.deliver(self.draws.place(self.model.held()));
        }
        let mut copies = Vec::new();
        for at in 0..self.controllers.len() {
            self.controllers[at].place.fail(false);
            let batch = self.batch();
            let Role::Owns(store) = &self.controllers[at].role else { continue };
            // It may have to learn first that a batch is in the log.
            let done = store.commit(&batch).is_ok();
            if done {
                copies.push(rows(store));
            }
            self.asked.push((batch, done));
        }
        let follow = |place: Arc<Memory>| {
            Follower::follow(Arc::<Model>::clone(&self.model), PREFIX, place, settings(0), false).unwrap()
        };
        let state = rows(follow(Memory::new()).local());
        for controller in &mut self.controllers {
            controller.role = Role::Down;
            copies.push(rows(follow(Arc::<Memory>::clone(&controller.place)).local()));
        }
        assert!(copies.iter().all(|copy| *copy == state), "seed {}: a copy differs", self.seed);
        state
    }
}

/// Runs a seed, and judges it.
pub(super) fn run(seed: u64) -> Course {
    let mut world = World::new(seed);
    for _ in 0..200 {
        world.step();
    }
    let state = world.end();
    let mut judge = Judge { seed, ..Judge::default() };
    let (changes, checkpoint) = (world.model.changes(), Keys::new(PREFIX).unwrap().checkpoint());
    let checkpoints = changes.iter().filter(|change| change.key == checkpoint);
    let values = checkpoints.filter_map(|change| change.value.as_deref());
    judge.states = values.map(|value| (Checkpoint::decode(value).unwrap().n, Rows::new())).collect();
    for change in changes {
        judge.see(change);
    }
    assert_eq!(judge.rows, state, "seed {seed}: what a follower has is not what the log says");
    let mut expected = Rows::new();
    for (id, (batch, acknowledged)) in world.asked.iter().enumerate() {
        let there = judge.ids.contains(&(id as u64));
        assert!(there || !acknowledged, "seed {seed}: batch {id} was acknowledged and is lost");
        if there {
            change(&mut expected, batch);
        }
    }
    assert_eq!(state, expected, "seed {seed}: the state is not that of the batches in order");
    let acknowledged = world.asked.iter().filter(|(_, acknowledged)| *acknowledged).count();
    Course {
        acknowledged,
        unknown: judge.ids.len() - acknowledged,
        takes: judge.takes,
        checkpoints: judge.checkpoints.len(),
        skipped: judge.skipped,
        grown: judge.grown,
    }
}

/// Reads every change of the shared store in order, and checks it against what was there before.
#[derive(Default)]
struct Judge {
    seed: u64,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    own: u64,
    last: u64,
    /// Bytes of all segments.
    logged: u64,
    joining: Joining,
    rows: Rows,
    /// The rows at each number that a checkpoint has.
    states: BTreeMap<u64, Rows>,
    ids: Vec<u64>,
    checkpoints: Vec<Checkpoint>,
    takes: usize,
    skipped: usize,
    grown: usize,
    parts: usize,
}

impl Judge {
    fn see(&mut self, change: Change) {
        let keys = Keys::new(PREFIX).unwrap();
        let Change { revision, key, value } = change;
        let Some(value) = value else {
            self.removed(&keys, &key);
            self.store.remove(&key);
            return;
        };
        if key == keys.own() {
            self.own = revision;
            self.takes += 1;
        } else if let Some(n) = keys.number(&key) {
            self.segment(n, &value);
        } else if key == keys.checkpoint() {
            self.checkpoint(&keys, &value);
        } else if key.starts_with(b"t/page/") {
            assert!(!self.store.contains_key(&key), "seed {}: a page is written twice", self.seed);
        }
        self.store.insert(key, value);
    }

    fn segment(&mut self, n: u64, value: &[u8]) {
        let segment = Segment::decode(value).unwrap();
        assert_eq!((n, segment.n), (self.last + 1, n), "seed {}: numbers have no gap", self.seed);
        assert_eq!(segment.epoch, self.own, "seed {}: number {n} is not of the owner", self.seed);
        assert_eq!(segment.before, self.logged, "seed {}: number {n} counts the bytes before it", self.seed);
        self.logged += value.len() as u64;
        // Last batches may be longer, in one piece.
        assert!(value.len() <= if segment.of == 1 { 300 } else { 160 });
        self.last = n;
        if segment.part == 0 {
            self.skipped += usize::from(self.parts > 0);
            self.parts = 0;
        }
        self.parts += 1;
        let Some(whole) = self.joining.push(&segment).unwrap() else { return };
        self.parts = 0;
        let logged = entries(&whole).unwrap();
        self.grown += logged.iter().filter(|entry| matches!(entry, Entry::Grown(..))).count();
        let mut ready = Ready::new(Known::new(0), Applied::default());
        ready.take(&whole, &memory::Rows::holding(&self.rows), b"").unwrap();
        let batch = ready.batch;
        let markers = batch.iter().filter(|write| write.table() == MARKERS);
        for marker in markers {
            let Write::Put(_, key, _) = marker else { panic!("markers are put") };
            let id = u64::from_be_bytes(key.as_slice().try_into().unwrap());
            assert!(self.ids.last().is_none_or(|last| *last < id), "seed {}: {id} again, or late", self.seed);
            self.ids.push(id);
        }
        change(&mut self.rows, &batch);
        if let Some(state) = self.states.get_mut(&n) {
            state.clone_from(&self.rows);
        }
    }

    fn checkpoint(&mut self, keys: &Keys, value: &[u8]) {
        let checkpoint = Checkpoint::decode(value).unwrap();
        let (mut unpager, mut rows) = (Unpager::new(checkpoint), Rows::new());
        while let Some(i) = unpager.next() {
            let page = self.store.get(&keys.page(checkpoint.generation, i));
            let page = page.unwrap_or_else(|| panic!("seed {}: page {i} is not there yet", self.seed));
            rows.extend(
                unpager.page(page).unwrap().into_iter().map(|(table, key, value)| ((table, key), value)),
            );
        }
        unpager.finish().unwrap();
        assert_eq!(
            Some(&rows),
            self.states.get(&checkpoint.n),
            "seed {}: it is the state at its n",
            self.seed
        );
        self.checkpoints.push(checkpoint);
    }

    /// What is removed is needed neither by the newest checkpoint nor by the one before.
    fn removed(&self, keys: &Keys, key: &[u8]) {
        let mut newest = self.checkpoints.iter().rev();
        let generation = newest.next().map_or(0, |newest| newest.generation);
        let older = newest.next().map_or(0, |older| older.n);
        match keys.number(key) {
            Some(n) => assert!(n <= older, "seed {}: segment {n} is needed behind {older}", self.seed),
            None => {
                assert!(key < keys.page(generation, 0).as_slice(), "seed {}: a page is needed", self.seed)
            }
        }
    }
}
