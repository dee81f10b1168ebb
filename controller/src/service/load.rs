//! Building the service from the store: each room reads its own tables, first those that decide what must be stored
//! before anything is granted.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::thread;

use tidegate_core::units::Time;
use tokio::sync::{Semaphore, broadcast, watch as flag};

use super::beside::Beside;
use super::meta::Meta;
use super::{Service, ServiceConfig, State};
use crate::accounts::Accounts;
use crate::clock::Clock;
use crate::definitions::Definitions;
use crate::definitions::load::{Kept, Loaded, stored_revision};
use crate::identity::load_tokens;
use crate::leasing::load::{Planned, Start};
use crate::limits::{MAX_REPLAYS, WATCH_QUEUE};
use crate::metrics::Metrics;
use crate::statements::{Convictions, Statistics};
use crate::store::{Batch, Store, StoreError};

impl Service {
    /// Loads the store, which must be open and of the right format. `clock` shows about zero.
    pub fn load(store: Arc<dyn Store>, config: ServiceConfig, clock: Clock) -> Result<Self, StoreError> {
        Self::load_with(store, config, clock, None)
    }

    /// The same with the definitions of the store that were kept, if they were: then their rows are not read.
    pub(crate) fn load_with(
        store: Arc<dyn Store>,
        config: ServiceConfig,
        clock: Clock,
        kept: Option<Kept>,
    ) -> Result<Self, StoreError> {
        let now = clock.now();
        let mut steps = Steps::begin(&clock);
        let meta = Meta::load(&*store)?;
        let first = meta.is_new()?;
        debug_assert!(
            kept.as_ref().is_none_or(|kept| kept.is_of(&*store)),
            "the kept definitions are not the store's"
        );
        // Whatever follows, no other start may find the seal.
        let seal = store.break_seal()?;
        let clean = meta.saved()?.filter(|saved| saved.is_good(seal.as_deref(), clock.unix_ms()));
        steps.over("settings and leases are read");
        let mut first_batch = Batch::new();
        let loaded = Loaded::read(&*store, &meta, config.capacity, kept, &mut first_batch)?;
        let revision = stored_revision(&meta)?;
        steps.over("groups are read");
        let start = Start { now, store: &*store, meta: &meta, config, clean, loaded: &loaded, revision };
        let planned = Planned::read(start, &clock, &mut first_batch)?;
        let tokens = load_tokens(&*store, &meta, &mut first_batch)?;
        steps.over("the start is planned");
        let begin = || {
            let leasing = planned.begin(&clock)?;
            steps.over("the engine is built");
            Ok(leasing)
        };
        let commit = || store.commit(&first_batch);
        let count = || Accounts::load(now, clock.unix_ms() / 1_000, &*store, &loaded.catalog);
        let side_by_side = config.side_by_side;
        let (mut leasing, ((), accounts)) = both(side_by_side, begin, || both(side_by_side, commit, count))?;
        steps.over("the start is stored, and the ledger read");
        let definitions = Definitions::load(&*store, &meta, loaded)?;
        steps.over("definitions are read");
        let catalog = definitions.catalog();
        let convictions = Convictions::load(&*store, &meta, catalog)?;
        leasing.load_clients(&*store, &meta, clock.unix_ms())?;
        steps.over("nodes are read");
        let (epoch, recovery) = (leasing.lead().epoch(), leasing.recovery(now));
        let took = clock.now().since(now);
        tracing::info!(epoch, first, %recovery, %took, "store loaded");
        Ok(Self::assemble(store, clock, State { leasing, accounts, definitions, convictions, tokens }))
    }

    fn assemble(store: Arc<dyn Store>, clock: Clock, state: State) -> Self {
        let metrics = Arc::new(Metrics::new());
        metrics.epoch.set(i64::try_from(state.leasing.lead().epoch()).unwrap_or(i64::MAX));
        metrics.leads.set(1);
        let statements = Statistics::new(clock.unix_ms());
        let service = Self {
            state: Mutex::new(state),
            changes: Mutex::new(()),
            flushing: Mutex::default(),
            backing_up: Mutex::new(()),
            pruned: Mutex::default(),
            replays: Semaphore::new(MAX_REPLAYS),
            store,
            clock,
            events: broadcast::Sender::new(WATCH_QUEUE),
            rules: flag::Sender::new(0),
            beside: Beside::default(),
            statistics: Mutex::new(statements),
            metrics,
        };
        service.definitions().count_definitions(&service.lock());
        service
    }
}

/// The results of both: of the second on a thread of its own, if they run side by side.
fn both<A, B: Send>(
    side_by_side: bool,
    first: impl FnOnce() -> Result<A, StoreError>,
    second: impl FnOnce() -> Result<B, StoreError> + Send,
) -> Result<(A, B), StoreError> {
    if !side_by_side {
        return Ok((first()?, second()?));
    }
    thread::scope(|scope| {
        let second = scope.spawn(second);
        let first = first();
        let second = second.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((first?, second?))
    })
}

/// What the steps of a load take, for the log.
struct Steps<'c> {
    clock: &'c Clock,
    begun: Time,
}

impl<'c> Steps<'c> {
    fn begin(clock: &'c Clock) -> Self {
        Self { clock, begun: clock.now() }
    }

    /// Notes what has been done since the step before.
    fn over(&mut self, done: &'static str) {
        let now = self.clock.now();
        let took = now.since(self.begun);
        tracing::debug!(%took, "{done}");
        self.begun = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tidegate_core::group::GroupId;
    use tidegate_proto::v1;

    use super::*;
    use crate::definitions::definition::Definition;
    use crate::store::overheard::{Call, Overheard};
    use crate::store::records::{META_NEXT_GROUP, group_row, put_number};
    use crate::store::{RedbStore, Table};

    #[test]
    fn a_start_may_read_the_ledger_while_it_is_stored_that_it_has_begun() {
        let folder = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&folder.path().join("store")).unwrap();
        let (read, seen) = channel();
        let seen = Arc::new(Mutex::new(seen));
        let waits = Arc::clone(&seen);
        // Commits wait until the ledger is read.
        let hear = move |call| match call {
            Call::Commit => {
                let read = waits.lock().unwrap().recv_timeout(Duration::from_secs(20));
                read.map_err(|error| StoreError::Failed { operation: "wait", reason: error.to_string() })
            }
            Call::Scan(Table::Ledger) => {
                read.send(()).unwrap();
                Ok(())
            }
            Call::Scan(_) | Call::Get(_) => Ok(()),
        };
        let config = ServiceConfig { side_by_side: true, ..ServiceConfig::default() };
        let service = Service::load(Arc::new(Overheard(store, hear)), config, Clock::start()).unwrap();
        assert_eq!((service.epoch(), seen.lock().unwrap().try_recv().is_err()), (1, true));
    }

    /// Measures, by hand and in a release build: `COUNT=1000000 cargo test --release -p tidegate-controller --lib
    /// what_a_start -- --ignored --nocapture`.
    #[test]
    #[ignore = "it measures"]
    fn what_a_start_takes_with_and_without_groups_that_are_held_ready() {
        let count = std::env::var("COUNT").map_or(100_000, |count| count.parse::<u32>().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
        let start = |held| {
            let (config, clock) = (ServiceConfig::default(), Clock::start());
            let begun = clock.now();
            let service = Service::load_with(Arc::clone(&store), config, clock.clone(), held).unwrap();
            (clock.now().since(begun), service.lock().definitions.catalog().count())
        };
        start(None);
        let mut batch = vec![put_number(META_NEXT_GROUP, u64::from(count) + 2)];
        for id in 2..count + 2 {
            let name = format!("group-{id}");
            let group = v1::Group { name, ru_per_sec: "1000".to_owned(), ..v1::Group::default() };
            let group = Definition::parse(&group).unwrap();
            batch.push(group_row(GroupId(id), &group, group.ttl).unwrap());
        }
        store.commit(&batch).unwrap();
        for _ in 0..5 {
            let (all, groups) = start(None);
            let held = Kept::read(&*store).unwrap();
            let (rest, same) = start(Some(held));
            assert_eq!(groups, same);
            eprintln!("{groups} groups: {all}; with those held ready: {rest}");
        }
    }
}
