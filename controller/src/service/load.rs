//! Building the service from the store: each room reads its own tables, first those that decide what must be stored
//! before anything is granted.

use std::sync::{Arc, Mutex};

use tokio::sync::{Semaphore, broadcast, watch as flag};

use super::beside::Beside;
use super::meta::Meta;
use super::{Service, ServiceConfig, State};
use crate::accounts::Accounts;
use crate::clock::Clock;
use crate::definitions::Definitions;
use crate::definitions::load::{Loaded, stored_revision};
use crate::identity::load_tokens;
use crate::leasing::Leasing;
use crate::leasing::load::Start;
use crate::limits::{MAX_REPLAYS, WATCH_QUEUE};
use crate::metrics::Metrics;
use crate::statements::{Convictions, Statistics};
use crate::store::{Batch, Store, StoreError};

impl Service {
    /// Loads the store, which must be open and of the right format. `clock` shows about zero.
    pub fn load(store: Arc<dyn Store>, config: ServiceConfig, clock: Clock) -> Result<Self, StoreError> {
        let now = clock.now();
        let meta = Meta::load(&*store)?;
        let first = meta.is_new()?;
        // Whatever follows, no other start may find the seal.
        let seal = store.break_seal()?;
        let clean = meta.saved()?.filter(|saved| saved.is_good(seal.as_deref(), clock.unix_ms()));
        let mut first_batch = Batch::new();
        let loaded = Loaded::read(&*store, &meta, config.capacity, &mut first_batch)?;
        let revision = stored_revision(&meta)?;
        let start = Start { now, store: &*store, meta: &meta, config, clean, loaded: &loaded, revision };
        let mut leasing = Leasing::begin(start, &clock, &mut first_batch)?;
        let tokens = load_tokens(&*store, &meta, &mut first_batch)?;
        store.commit(&first_batch)?;
        let definitions = Definitions::load(&*store, &meta, loaded)?;
        let catalog = definitions.catalog();
        let accounts = Accounts::load(now, clock.unix_ms() / 1_000, &*store, catalog)?;
        let convictions = Convictions::load(&*store, &meta, catalog)?;
        leasing.load_clients(&*store, &meta, clock.unix_ms())?;
        let (epoch, recovery) = (leasing.lead().epoch(), leasing.recovery(now));
        tracing::info!(epoch, first, %recovery, "store loaded");
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
