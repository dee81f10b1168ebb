//! A store filled before a controller starts on it: many groups in a few commits instead of one commit each.

use std::path::Path;
use std::sync::Arc;

use tidegate_controller::bindings::Principal;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_controller::store::records::{
    META_NEXT_GROUP, StoredBinding, StoredGroup, group_key, put_json, put_number,
};
use tidegate_controller::store::{RedbStore, Store, Table};
use tidegate_core::group::GroupId;

use super::error::{BenchError, failed};
use tidegate_proto::v1;

/// Rows of one commit.
const ROWS: usize = 50_000;
/// Id of the first group; those before are the controller's own.
const FIRST: u32 = GroupId::DEFAULT.0 + 1;

/// The contents of a store.
pub(super) struct Stock<G> {
    /// The groups, parents first.
    pub(super) groups: G,
    /// Tenants and the names of the groups they are bound to.
    pub(super) tenants: Vec<(String, String)>,
}

impl<G: Iterator<Item = v1::Group>> Stock<G> {
    /// Writes all of it into a new store.
    pub(super) fn fill(self, path: &Path) -> Result<(), BenchError> {
        let write = || failed("fill a store");
        let store: Arc<dyn Store> = Arc::new(RedbStore::open(path).map_err(write())?);
        // A first start and a clean stop, so that the controller takes the store for one of its own.
        let settings = ServiceConfig::default();
        let first = Service::load(Arc::clone(&store), settings, Clock::start()).map_err(write())?;
        first.shut_down().map_err(write())?;
        drop(first);
        let mut batch = Vec::with_capacity(ROWS);
        let mut next = FIRST;
        for group in self.groups {
            let stored = StoredGroup { id: next, group, longest_ttl_us: None };
            batch.push(put_json(Table::Groups, group_key(GroupId(next)), &stored).map_err(write())?);
            next += 1;
            if batch.len() == ROWS {
                store.commit(&batch).map_err(write())?;
                batch.clear();
            }
        }
        for (tenant, group) in self.tenants {
            let principal = Principal::parse(&tenant, "").map_err(failed("bind a tenant"))?;
            let (key, stored) = (principal.key(), StoredBinding { principal, group });
            batch.push(put_json(Table::Bindings, key, &stored).map_err(write())?);
        }
        batch.push(put_number(META_NEXT_GROUP, u64::from(next)));
        store.commit(&batch).map_err(write())
    }
}
