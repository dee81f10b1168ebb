//! Readings that take room among the replays, and those that do not.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use tidegate_proto::v1;

use crate::clock::Clock;
use crate::limits::MAX_REPLAYS;
use crate::service::{Service, ServiceConfig};
use crate::store::overheard::{Call, Overheard};
use crate::store::{RedbStore, Table};

/// Up to fifty-one groups are read at once: that takes as long as a replay.
#[test]
fn history_with_the_groups_below_takes_room_among_the_replays_until_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let inner = RedbStore::open(&folder.path().join("store")).unwrap();
    // How much room there is when minutes are read.
    let (seen, watched) = (Arc::<Mutex<Vec<usize>>>::default(), Arc::<OnceLock<Weak<Service>>>::default());
    let hear = {
        let (seen, watched) = (Arc::clone(&seen), Arc::clone(&watched));
        move |call| {
            if call == Call::Get(Table::Minutes) {
                let service = watched.get().and_then(Weak::upgrade).unwrap();
                seen.lock().unwrap().push(service.replays().available_permits());
            }
            Ok(())
        }
    };
    let store = Arc::new(Overheard(inner, hear));
    let service = Arc::new(Service::load(store, ServiceConfig::default(), Clock::start()).unwrap());
    watched.set(Arc::downgrade(&service)).unwrap();
    for (below, room) in [(false, MAX_REPLAYS), (true, MAX_REPLAYS - 1)] {
        let wish = v1::UsageHistoryRequest { group: "default".into(), below, ..Default::default() };
        service.accounts().history_of(&wish).unwrap();
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [room], "below: {below}");
    }
    assert_eq!(service.replays().available_permits(), MAX_REPLAYS);
    let wish = v1::UsageHistoryRequest { group: "default".into(), below: true, ..Default::default() };
    let _all = service.replays().try_acquire_many(u32::try_from(MAX_REPLAYS).unwrap()).unwrap();
    let refused = service.accounts().history_of(&wish).unwrap_err().to_string();
    assert!(refused.contains("replays run already"), "{refused}");
}
