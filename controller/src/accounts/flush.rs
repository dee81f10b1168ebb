//! Storing consumption: rows of the ledger, history and signs of life in one transaction, together with what gateways
//! convicted.
//!
//! Rows are cumulative and history amounts absolute, so that a failed commit is simply repeated with newer values. A
//! renewal's number becomes durable when everything counted up to it is stored.

use crate::accounts::Upkeep;
use crate::accounts::kept::Taken as AccountsTaken;
use crate::clock::Clock;
use crate::leasing::kept::Taken as LeasingTaken;
use crate::service::{Service, State, commit_last};
use crate::statements::kept::Taken as ConvictionsTaken;
use crate::store::records::{META_CLEAN, SavedLeases, put_json};
use crate::store::{Batch, StoreError, Table};

impl Upkeep<'_> {
    /// Stores everything counted so far. After an error, the next call stores it.
    pub fn flush(&self) -> Result<(), StoreError> {
        // One at a time: an earlier commit must not overtake a later one.
        let _alone = self.service.flushing();
        let flushed = self.flush_alone();
        self.service.leasing().tell_silence();
        flushed.and_then(|()| self.service.leasing().forget_longer())
    }

    /// The same, for callers that hold `flushing`.
    pub(crate) fn flush_alone(&self) -> Result<(), StoreError> {
        let (taken, beat) = {
            let mut state = self.service.lock();
            (state.take_unstored(self.service.clock()), state.leasing.fence().beat())
        };
        if taken.is_empty() && beat.is_none() {
            return Ok(());
        }
        let result = taken.batch().and_then(|mut batch| {
            batch.extend(beat);
            if batch.is_empty() { Ok(()) } else { self.service.commit(&batch) }
        });
        taken.settle(self.service, result)
    }

    /// Stores everything, packs minutes that are over, drops history that is too old, and folds incarnations that were
    /// silent for long.
    pub fn tidy(&self) -> Result<(), StoreError> {
        {
            let mut state = self.service.lock();
            state.leasing.tidy_idle();
            state.accounts.tidy_idle(self.service.clock().now());
        }
        // An hour is packed once: what of it could not be stored until now is stored before.
        {
            let _alone = self.service.flushing();
            self.flush_alone()?;
        }
        // One transaction, so that an hour costs no commit of its own.
        let mut batch = Batch::new();
        let packed = {
            let mut pruned = self.service.pruned();
            let packed = self.pack(&pruned, &mut batch)?;
            batch.extend(self.prune(&mut pruned, packed)?);
            packed
        };
        self.service.commit(&batch)?;
        self.service.pruned().packed(packed);
        self.fold()
    }
}

/// Stores everything counted so far together with the leases, for the next controller to go on with. Callers hold
/// `flushing`, and the order of changes.
pub(crate) fn flush_last(service: &Service) -> Result<(), StoreError> {
    let (clock, store) = (service.clock(), service.store());
    let (taken, stopped) = {
        let mut state = service.lock();
        (state.take_unstored(clock), state.leasing.stop(clock.now(), clock.unix_us()))
    };
    let last = |mut batch: Batch| match stopped {
        // Nothing was granted, so the stop is as unclean as the start was.
        None if batch.is_empty() => Ok(()),
        None => service.commit(&batch),
        Some((snapshot, quotas)) => {
            let leases = SavedLeases::from(&snapshot).sealed(store.seal()?, clock.unix_ms());
            batch.push(put_json(Table::Meta, META_CLEAN.to_vec(), &leases)?);
            quotas.rows(&mut batch)?;
            tracing::debug!(leases = snapshot.leases.len(), "what the next controller goes on with is read");
            commit_last(service, &batch)
        }
    };
    let result = taken.batch().and_then(last);
    taken.settle(service, result)
}

/// The changes of each owner that are being stored.
struct Taken {
    accounts: AccountsTaken,
    leasing: LeasingTaken,
    convictions: ConvictionsTaken,
}

impl Taken {
    fn is_empty(&self) -> bool {
        self.accounts.is_empty() && self.leasing.is_empty() && self.convictions.is_empty()
    }

    fn batch(&self) -> Result<Batch, StoreError> {
        let mut batch = Batch::new();
        self.accounts.rows(&mut batch);
        self.leasing.rows(&mut batch)?;
        self.convictions.rows(&mut batch)?;
        Ok(batch)
    }

    /// Notes how the commit of these ended, and returns that.
    fn settle(self, service: &Service, result: Result<(), StoreError>) -> Result<(), StoreError> {
        let mut state = service.lock();
        match &result {
            Ok(()) => state.leasing.stored(self.leasing),
            Err(_) => state.not_stored(self),
        }
        result
    }
}

impl State {
    fn take_unstored(&mut self, clock: &Clock) -> Taken {
        Taken {
            leasing: self.leasing.take(clock.now(), clock.unix_us()),
            accounts: self.accounts.take(clock.unix_ms() / 1_000),
            convictions: self.convictions.take(),
        }
    }

    fn not_stored(&mut self, taken: Taken) {
        self.leasing.not_stored(taken.leasing);
        self.accounts.not_stored(taken.accounts);
        self.convictions.not_stored(taken.convictions);
    }
}
