//! Readings that take room among the replays, and those that do not.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use tidegate_proto::v1;

use crate::clock::Clock;
use crate::limits::MAX_REPLAYS;
use crate::service::{Service, ServiceConfig};
use crate::store::{RedbStore, Store, StoreError, Table, Visit, VisitAll, Write};

/// A store that notes how much room there is when minutes are read.
struct Watched {
    inner: RedbStore,
    service: OnceLock<Weak<Service>>,
    room: Mutex<Vec<usize>>,
}

impl Store for Watched {
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        self.inner.commit(batch)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.inner.scan(table, from, visit)
    }

    fn get(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        if table == Table::Minutes {
            let service = self.service.get().and_then(Weak::upgrade).unwrap();
            self.room.lock().unwrap().push(service.replays().available_permits());
        }
        self.inner.get(table, keys)
    }

    fn copy(&self, visit: &mut VisitAll<'_>) -> Result<(), StoreError> {
        self.inner.copy(visit)
    }

    fn seal(&self) -> Result<String, StoreError> {
        self.inner.seal()
    }

    fn break_seal(&self) -> Result<Option<String>, StoreError> {
        self.inner.break_seal()
    }
}

/// Up to fifty-one groups are read at once: that takes as long as a replay.
#[test]
fn history_with_the_groups_below_takes_room_among_the_replays_until_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let inner = RedbStore::open(&folder.path().join("store")).unwrap();
    let store = Arc::new(Watched { inner, service: OnceLock::new(), room: Mutex::default() });
    let loaded = Service::load(Arc::clone(&store) as _, ServiceConfig::default(), Clock::start()).unwrap();
    let service = Arc::new(loaded);
    store.service.set(Arc::downgrade(&service)).unwrap();
    for (below, room) in [(false, MAX_REPLAYS), (true, MAX_REPLAYS - 1)] {
        let wish = v1::UsageHistoryRequest { group: "default".into(), below, ..Default::default() };
        service.accounts().history_of(&wish).unwrap();
        assert_eq!(std::mem::take(&mut *store.room.lock().unwrap()), [room], "below: {below}");
    }
    assert_eq!(service.replays().available_permits(), MAX_REPLAYS);
    let wish = v1::UsageHistoryRequest { group: "default".into(), below: true, ..Default::default() };
    let _all = service.replays().try_acquire_many(u32::try_from(MAX_REPLAYS).unwrap()).unwrap();
    let refused = service.accounts().history_of(&wish).unwrap_err().to_string();
    assert!(refused.contains("replays run already"), "{refused}");
}
