//! What operations were let in and what they were charged, as those who ran them saw it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_client::{Group, Ru};
use tokio::time::Instant;

/// One start of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// It was killed without a journal: what it had not reported is lost.
    pub(crate) may_lose: bool,
    pub(crate) groups: BTreeMap<String, Account>,
}

/// What one start of a node did in a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) charged: Ru,
    pub(crate) worst_debt: Ru,
}

/// The log of all, by node and start.
#[derive(Clone)]
pub(crate) struct Log {
    began: Instant,
    records: Arc<Mutex<Records>>,
}

#[derive(Default)]
pub(crate) struct Records {
    pub(crate) lives: BTreeMap<(usize, u32), Life>,
    /// Admissions, and what settling them gave back or took, by group, with microseconds since the beginning.
    pub(crate) movements: BTreeMap<String, Vec<(u64, Ru)>>,
    /// Those that ran until their process ended.
    over: Vec<(usize, u32)>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), records: Arc::default() }
    }

    pub(crate) fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Microseconds since the beginning.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap()
    }

    /// A process is gone: what its tasks still do is not done.
    pub(crate) fn close(&self, life: (usize, u32), may_lose: bool) {
        let mut records = self.records();
        records.over.push(life);
        records.lives.entry(life).or_default().may_lose = may_lose;
    }

    /// Tokens were taken, or came back.
    pub(crate) fn moved(&self, life: (usize, u32), group: &str, ru: Ru) {
        let now = self.now();
        let mut records = self.records();
        if !records.over.contains(&life) {
            records.movements.entry(group.to_owned()).or_default().push((now, ru));
        }
    }

    /// An operation that took `estimate` was charged.
    pub(crate) fn charged(&self, life: (usize, u32), group: &Group, (estimate, charged): (Ru, Ru)) {
        self.moved(life, group.name(), charged - estimate);
        let debt = group.state().debt;
        let mut records = self.records();
        if records.over.contains(&life) {
            return;
        }
        let account =
            records.lives.entry(life).or_default().groups.entry(group.name().to_string()).or_default();
        account.charged += charged;
        account.worst_debt = account.worst_debt.max(debt);
    }
}
