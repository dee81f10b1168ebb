//! A distributed store in memory, exact and with faults, for tests of what stands on one.
//!
//! Revisions, guards, pages as of a revision, compaction and the limits of a request are etcd's. Faults befall the next
//! calls, as a test lists them or as a seed draws them; without any, every call succeeds at once. A transaction whose
//! fault is [`Fault::Late`] is held back, and happens when the test says so: long after its caller gave up, or never.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Consensus, ConsensusError, Guard, Outcome, Page, Row, Step, Transaction};

/// Most steps of a transaction: etcd's default.
const MOST_STEPS: usize = 128;
/// Most bytes of a transaction: etcd's default.
const MOST_BYTES: usize = 1_572_864;

/// What befalls a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody is there: nothing happens, and the caller does not know.
    Away,
    /// It happens, and the answer is lost.
    Lost,
    /// The caller gives up, and it happens when [`Model::deliver`] says so. A read is only lost.
    Late,
    /// It is refused.
    Refused,
    /// There is no room: what writes is refused.
    Full,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Away, Self::Lost, Self::Late, Self::Refused, Self::Full];
}

/// A change, as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The revision that it made.
    pub revision: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The new value; `None`: it was removed.
    pub value: Option<Vec<u8>>,
}

/// The store.
#[derive(Debug, Default)]
pub struct Model(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What each key was, by the revision that made it so; `None`: removed.
    keys: BTreeMap<Vec<u8>, BTreeMap<u64, Option<Row>>>,
    revision: u64,
    compacted: u64,
    changes: Vec<Change>,
    planned: VecDeque<Option<Fault>>,
    drawn: Option<Draws>,
    held: Vec<Transaction>,
}

/// Faults from a seed.
#[derive(Debug)]
struct Draws {
    bits: u64,
    /// One call in so many has a fault.
    one_in: u64,
}

impl Draws {
    /// The next number of SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
    fn next(&mut self) -> u64 {
        self.bits = self.bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.bits;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn fault(&mut self) -> Option<Fault> {
        if !self.next().is_multiple_of(self.one_in.max(1)) {
            return None;
        }
        let at = usize::try_from(self.next() % Fault::ALL.len() as u64).unwrap_or_default();
        Fault::ALL.get(at).copied()
    }
}

impl Model {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists what befalls the next calls, one by one; `None` is nothing. It comes before what a seed draws.
    pub fn plan(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.lock().planned.extend(faults);
    }

    /// Draws from now on: one call in `one_in` has a fault.
    pub fn draw(&self, seed: u64, one_in: u64) {
        self.lock().drawn = Some(Draws { bits: seed, one_in });
    }

    /// No call has a fault from now on. What is held back stays so.
    pub fn calm(&self) {
        let mut state = self.lock();
        state.planned.clear();
        state.drawn = None;
    }

    /// The number of transactions that are held back.
    pub fn held(&self) -> usize {
        self.lock().held.len()
    }

    /// Lets one that is held back happen, by its place among them. Returns whether there is one.
    pub fn deliver(&self, at: usize) -> bool {
        let mut state = self.lock();
        if at >= state.held.len() {
            return false;
        }
        let transaction = state.held.remove(at);
        state.run(&transaction);
        true
    }

    /// The revision of the store.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Sets the store back to a revision, as a restore from a backup of then does: later revisions are used again.
    pub fn set_back(&self, revision: u64) {
        let mut state = self.lock();
        for was in state.keys.values_mut() {
            was.retain(|made, _| *made <= revision);
        }
        state.keys.retain(|_, was| !was.is_empty());
        state.changes.retain(|change| change.revision <= revision);
        state.revision = state.revision.min(revision);
    }

    /// All changes ever made, in order.
    pub fn changes(&self) -> Vec<Change> {
        self.lock().changes.clone()
    }

    /// All rows, in order of the keys.
    pub fn rows(&self) -> Vec<Row> {
        let state = self.lock();
        state.keys.values().filter_map(|was| State::as_of(was, u64::MAX)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fault(&mut self) -> Option<Fault> {
        match self.planned.pop_front() {
            Some(planned) => planned,
            None => self.drawn.as_mut().and_then(Draws::fault),
        }
    }

    fn as_of(was: &BTreeMap<u64, Option<Row>>, revision: u64) -> Option<Row> {
        was.range(..=revision).next_back().and_then(|(_, row)| row.clone())
    }

    fn row(&self, key: &[u8]) -> Option<Row> {
        self.keys.get(key).and_then(|was| Self::as_of(was, u64::MAX))
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Changed(key, revision) => self.row(key).map_or(0, |row| row.changed) == *revision,
            Guard::Value(key, value) => self.row(key).is_some_and(|row| row.value == *value),
        }
    }

    fn set(&mut self, revision: u64, key: &[u8], value: Option<&[u8]>) {
        let created = self.row(key).map_or(revision, |row| row.created);
        let row =
            value.map(|value| Row { key: key.to_vec(), value: value.to_vec(), created, changed: revision });
        self.changes.push(Change { revision, key: key.to_vec(), value: value.map(<[u8]>::to_vec) });
        self.keys.entry(key.to_vec()).or_default().insert(revision, row);
        self.revision = revision;
    }

    fn run(&mut self, transaction: &Transaction) -> Outcome {
        let held = transaction.when.iter().all(|guard| self.holds(guard));
        // All of it makes one revision, and none if it changes nothing.
        let (made, mut found) = (self.revision + 1, Vec::new());
        for step in if held { &transaction.then } else { &transaction.otherwise } {
            match step {
                Step::Get(key) => found.push(self.row(key)),
                Step::Put(key, value) => self.set(made, key, Some(value)),
                Step::Delete(from, to) => {
                    for key in self.present(from, to) {
                        self.set(made, &key, None);
                    }
                }
            }
        }
        Outcome { held, revision: self.revision, found }
    }

    /// The keys from the first to before the second that have a value.
    fn present(&self, from: &[u8], to: &[u8]) -> Vec<Vec<u8>> {
        if from >= to {
            return Vec::new();
        }
        let range = self.keys.range(from.to_vec()..to.to_vec());
        range.filter(|(_, was)| Self::as_of(was, u64::MAX).is_some()).map(|(key, _)| key.clone()).collect()
    }
}

fn unknown(reason: &str) -> ConsensusError {
    ConsensusError::Unknown { member: MEMBER.to_owned(), reason: reason.to_owned() }
}

fn refused(reason: &str) -> ConsensusError {
    ConsensusError::Refused { member: MEMBER.to_owned(), reason: reason.to_owned() }
}

/// The name of its only member.
const MEMBER: &str = "the model";

/// Whether etcd would take it: so many steps and bytes, and no key twice.
fn check(transaction: &Transaction) -> Result<(), ConsensusError> {
    let mut steps = transaction.then.iter().chain(&transaction.otherwise);
    let sets_none = steps.any(|step| matches!(step, Step::Get(key) | Step::Put(key, _) if key.is_empty()));
    let of = |guard: &Guard| matches!(guard, Guard::Changed(key, _) | Guard::Value(key, _) if key.is_empty());
    if sets_none || transaction.when.iter().any(of) {
        return Err(refused("key is not provided"));
    }
    let mut bytes = 0;
    for steps in [&transaction.then, &transaction.otherwise] {
        if steps.len() > MOST_STEPS || transaction.when.len() > MOST_STEPS {
            return Err(refused("too many operations in txn request"));
        }
        let mut put = Vec::new();
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    bytes += key.len() + value.len();
                    put.push(key);
                }
                Step::Get(key) => bytes += key.len(),
                Step::Delete(from, to) => bytes += from.len() + to.len(),
            }
        }
        put.sort();
        let twice = put.windows(2).any(|pair| pair.first() == pair.last());
        let removed = |key: &&Vec<u8>| {
            steps.iter().any(|step| matches!(step, Step::Delete(from, to) if from <= *key && *key < to))
        };
        if twice || put.iter().any(removed) {
            return Err(refused("duplicate key given in txn request"));
        }
    }
    if bytes > MOST_BYTES { Err(refused("request is too large")) } else { Ok(()) }
}

impl Consensus for Model {
    fn transact(&self, transaction: &Transaction, _: Duration) -> Result<Outcome, ConsensusError> {
        check(transaction)?;
        let mut state = self.lock();
        let writes = |steps: &[Step]| steps.iter().any(|step| !matches!(step, Step::Get(_)));
        let writes = writes(&transaction.then) || writes(&transaction.otherwise);
        match state.fault() {
            None => Ok(state.run(transaction)),
            Some(Fault::Away) => Err(unknown("nobody is there")),
            Some(Fault::Lost) => {
                state.run(transaction);
                Err(unknown("the answer was lost"))
            }
            Some(Fault::Late) => {
                if writes {
                    state.held.push(transaction.clone());
                }
                Err(unknown("the deadline has passed"))
            }
            Some(Fault::Full) if writes => {
                Err(ConsensusError::Full { member: MEMBER.to_owned(), reason: "mvcc: no space".to_owned() })
            }
            Some(Fault::Refused | Fault::Full) => Err(refused("as the test wants it")),
        }
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        most: usize,
        at: Option<u64>,
        _: Duration,
    ) -> Result<Page, ConsensusError> {
        let mut state = self.lock();
        match state.fault() {
            // A read takes no room.
            None | Some(Fault::Full) => {}
            Some(Fault::Away | Fault::Lost | Fault::Late) => return Err(unknown("nobody is there")),
            Some(Fault::Refused) => return Err(refused("as the test wants it")),
        }
        let revision = at.unwrap_or(state.revision);
        if revision < state.compacted {
            return Err(ConsensusError::Compacted(revision));
        }
        if revision > state.revision {
            return Err(refused("required revision is a future revision"));
        }
        if from >= to {
            return Ok(Page { rows: Vec::new(), more: false, revision });
        }
        let range = state.keys.range(from.to_vec()..to.to_vec());
        let mut rows = range.filter_map(|(_, was)| State::as_of(was, revision));
        let page = rows.by_ref().take(most).collect();
        Ok(Page { rows: page, more: rows.next().is_some(), revision })
    }

    fn compact(&self, revision: u64, _: Duration) -> Result<(), ConsensusError> {
        let mut state = self.lock();
        let fault = state.fault();
        match fault {
            None | Some(Fault::Lost | Fault::Full) => {}
            Some(Fault::Away | Fault::Late) => return Err(unknown("nobody is there")),
            Some(Fault::Refused) => return Err(refused("as the test wants it")),
        }
        if revision <= state.compacted {
            return Ok(());
        }
        if revision > state.revision {
            return Err(refused("required revision is a future revision"));
        }
        state.compacted = revision;
        state.keys.retain(|_, was| {
            // What a key was at the revision stays readable.
            let last = was.range(..=revision).next_back().map_or(0, |(last, _)| *last);
            was.retain(|made, row| *made > last || (*made == last && row.is_some()));
            !was.is_empty()
        });
        if fault == Some(Fault::Lost) { Err(unknown("the answer was lost")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    fn put(when: Vec<Guard>, key: &[u8], value: &[u8]) -> Transaction {
        let then = vec![Step::Put(key.to_vec(), value.to_vec())];
        Transaction { when, then, otherwise: vec![Step::Get(key.to_vec())] }
    }

    fn absent(key: &[u8]) -> Vec<Guard> {
        vec![Guard::Changed(key.to_vec(), 0)]
    }

    fn value(model: &Model, key: &[u8]) -> Option<Vec<u8>> {
        model.rows().into_iter().find(|row| row.key == key).map(|row| row.value)
    }

    #[test]
    fn guards_compare_and_a_transaction_makes_one_revision_or_none() {
        let model = Model::new();
        let first = model.transact(&put(absent(b"a"), b"a", b"1"), SOON).unwrap();
        assert!(first.held && first.revision == 1 && first.found.is_empty());
        let again = model.transact(&put(absent(b"a"), b"a", b"2"), SOON).unwrap();
        let found = again.found[0].clone().unwrap();
        assert!(!again.held && again.revision == 1 && found.value == b"1");
        let two = Transaction {
            when: vec![Guard::Value(b"a".to_vec(), b"1".to_vec()), Guard::Changed(b"a".to_vec(), 1)],
            then: vec![
                Step::Put(b"a".to_vec(), b"3".to_vec()),
                Step::Get(b"a".to_vec()),
                Step::Put(b"b".to_vec(), b"4".to_vec()),
                Step::Delete(b"x".to_vec(), b"y".to_vec()),
            ],
            otherwise: Vec::new(),
        };
        let outcome = model.transact(&two, SOON).unwrap();
        let row = outcome.found[0].clone().unwrap();
        assert_eq!((outcome.revision, row.created, row.changed, row.value), (2, 1, 2, b"3".to_vec()));
        let gone =
            Transaction { then: vec![Step::Delete(b"a".to_vec(), b"b".to_vec())], ..Default::default() };
        assert_eq!(model.transact(&gone, SOON).unwrap().revision, 3);
        assert_eq!(model.transact(&gone, SOON).unwrap().revision, 3, "nothing was there to remove");
        let fresh = model.transact(&put(absent(b"a"), b"a", b"5"), SOON).unwrap();
        assert!(fresh.held, "a key that was removed is absent");
        assert_eq!(model.rows()[0].created, 4);
    }

    #[test]
    fn pages_are_of_one_revision_until_that_is_compacted() {
        let model = Model::new();
        for key in [b"a", b"b", b"c"] {
            model.transact(&put(Vec::new(), key, b"1"), SOON).unwrap();
        }
        let page = model.range(b"a", b"z", 2, None, SOON).unwrap();
        assert!(page.more && page.revision == 3 && page.rows.len() == 2);
        model.transact(&put(Vec::new(), b"c", b"2"), SOON).unwrap();
        let rest = model.range(b"c", b"z", 2, Some(3), SOON).unwrap();
        assert!(!rest.more && rest.rows[0].value == b"1");
        model.compact(3, SOON).unwrap();
        assert_eq!(model.range(b"c", b"z", 2, Some(3), SOON).unwrap(), rest, "as it was then");
        model.compact(4, SOON).unwrap();
        assert_eq!(model.range(b"c", b"z", 2, Some(3), SOON), Err(ConsensusError::Compacted(3)));
        assert_eq!(model.compact(4, SOON), Ok(()), "it is done already");
        assert!(matches!(model.compact(9, SOON), Err(ConsensusError::Refused { .. })));
        assert_eq!(value(&model, b"c"), Some(b"2".to_vec()));
    }

    #[test]
    fn each_fault_does_what_its_name_says() {
        let model = Model::new();
        model.plan(Fault::ALL.into_iter().map(Some).chain([None]));
        let call = |key: &[u8]| model.transact(&put(absent(key), key, b"1"), SOON);
        let (member, model_said) = ("the model".to_owned(), |said: &str| said.to_owned());
        let unknown =
            |said| Err(ConsensusError::Unknown { member: member.clone(), reason: model_said(said) });
        assert_eq!(call(b"away"), unknown("nobody is there"));
        assert_eq!(call(b"lost"), unknown("the answer was lost"));
        assert_eq!(model.held(), 0);
        assert_eq!(call(b"late"), unknown("the deadline has passed"));
        let reason = "as the test wants it".to_owned();
        assert_eq!(call(b"refused"), Err(ConsensusError::Refused { member: member.clone(), reason }));
        let reason = "mvcc: no space".to_owned();
        assert_eq!(call(b"full"), Err(ConsensusError::Full { member: member.clone(), reason }));
        assert!(call(b"well").unwrap().held);
        let keys = || model.rows().into_iter().map(|row| row.key).collect::<Vec<_>>();
        assert_eq!(keys(), [b"lost", b"well"]);
        assert!(model.held() == 1 && model.deliver(0) && !model.deliver(0));
        assert_eq!(keys(), [b"late", b"lost", b"well"]);
        assert_eq!(model.changes().len(), 3);
    }

    /// Of what only reads nothing is left to happen, and it takes no room.
    #[test]
    fn what_may_write_is_held_back_and_needs_room_and_what_reads_does_not() {
        let (put, get) = (Step::Put(b"a".to_vec(), Vec::new()), Step::Get(b"a".to_vec()));
        for (then, otherwise, writes) in [
            (vec![put.clone()], vec![get.clone()], true),
            (vec![get.clone()], vec![put.clone()], true),
            (vec![get.clone(), put], vec![], true),
            (vec![get.clone()], vec![get], false),
            (vec![], vec![], false),
        ] {
            let model = Model::new();
            model.plan([Some(Fault::Late), Some(Fault::Full)]);
            let transaction = Transaction { when: Vec::new(), then, otherwise };
            assert!(matches!(model.transact(&transaction, SOON), Err(ConsensusError::Unknown { .. })));
            assert_eq!(model.held(), usize::from(writes), "{transaction:?}");
            let full = model.transact(&transaction, SOON).unwrap_err();
            assert_eq!(matches!(full, ConsensusError::Full { .. }), writes, "{full:?}");
        }
    }

    #[test]
    fn a_compaction_whose_answer_is_lost_is_made_and_a_calm_store_has_no_faults() {
        let model = Model::new();
        for key in [b"a", b"b"] {
            model.transact(&put(Vec::new(), key, b"1"), SOON).unwrap();
        }
        model.plan([Some(Fault::Lost)]);
        assert!(matches!(model.compact(2, SOON), Err(ConsensusError::Unknown { .. })));
        assert_eq!(model.range(b"a", b"z", 2, Some(1), SOON), Err(ConsensusError::Compacted(1)));
        model.plan([Some(Fault::Away); 3]);
        model.calm();
        assert_eq!(model.range(b"a", b"z", 2, Some(2), SOON).unwrap().rows.len(), 2);
        for (from, to) in [(b"a", b"a"), (b"b", b"a")] {
            assert_eq!(model.range(from, to, 2, None, SOON).unwrap().rows, []);
            let delete = vec![Step::Delete(from.to_vec(), to.to_vec())];
            let outcome = model.transact(&Transaction { then: delete, ..Default::default() }, SOON);
            assert_eq!(outcome.unwrap().revision, 2);
        }
    }

    #[test]
    fn what_etcd_would_refuse_is_refused() {
        let model = Model::new();
        let refuses = |then: Vec<Step>| {
            let transaction = Transaction { then, ..Default::default() };
            matches!(model.transact(&transaction, SOON), Err(ConsensusError::Refused { .. }))
        };
        let put = |size: usize| Step::Put(b"a".to_vec(), vec![0; size]);
        assert!(refuses(vec![put(1), put(1)]));
        assert!(refuses(vec![Step::Delete(b"a".to_vec(), b"b".to_vec()), put(1)]));
        let other = Step::Put(b"b".to_vec(), vec![]);
        assert!(refuses(vec![put(1), other, put(1)]));
        // One more byte is the key's.
        assert!(refuses(vec![put(MOST_BYTES)]) && !refuses(vec![put(MOST_BYTES - 1)]));
        assert!(
            refuses(vec![Step::Get(b"a".to_vec()); 129]) && !refuses(vec![Step::Get(b"a".to_vec()); 128])
        );
    }

    #[test]
    fn a_seed_draws_the_same_faults_again() {
        let course = |seed| {
            let model = Model::new();
            model.draw(seed, 3);
            let calls = (0..100_u8).map(|key| model.transact(&put(Vec::new(), &[key], b"1"), SOON).is_ok());
            let calls: Vec<bool> = calls.collect();
            model.calm();
            assert!(model.transact(&put(Vec::new(), b"end", b"1"), SOON).is_ok());
            (calls, model.rows())
        };
        assert_eq!(course(1), course(1));
        assert_ne!(course(1).0, course(2).0);
    }
}
