//! A store that was used: groups, bindings, a cost table, nodes, consumption, a runaway, an audit log, and a clean stop.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_controller::store::{RedbStore, Store, StoreError, Table};

use super::work;
use crate::memory::{MemoryStore, Rows};
use tidegate_proto::v1;

/// All tables.
pub(super) const TABLES: [Table; 20] = [
    Table::Meta,
    Table::Groups,
    Table::Bindings,
    Table::CostTables,
    Table::Clients,
    Table::Tombstones,
    Table::Ledger,
    Table::Folded,
    Table::Retired,
    Table::Minutes,
    Table::Hours,
    Table::Audit,
    Table::Watches,
    Table::Runaways,
    Table::Parts,
    Table::Quotas,
    Table::Apart,
    Table::Tokens,
    Table::PastMinutes,
    Table::Proposals,
];

/// Loads a store as the controller does.
pub(super) fn load(store: Arc<dyn Store>) -> Result<Service, StoreError> {
    let config = ServiceConfig::default();
    Service::load(store, config, Clock::driven(Arc::new(AtomicU64::new(0))))
}

/// Uses a new store, and stops in good order.
fn fill(store: Arc<dyn Store>) {
    let service = load(store).expect("an empty store");
    let actor = Actor::new(Some("fuzz"), "nowhere");
    for (name, parent, rate) in [("top", "", "100"), ("child", "top", "60.5"), ("free", "", "unlimited")] {
        let query_limit = (name == "child").then(|| v1::QueryLimit {
            rows: 5,
            action: "switch_group".to_owned(),
            switch_group: "top".to_owned(),
            watch: "similar".to_owned(),
            ..v1::QueryLimit::default()
        });
        let text = v1::Group {
            name: name.to_owned(),
            parent: parent.to_owned(),
            ru_per_sec: rate.to_owned(),
            query_limit,
            ..v1::Group::default()
        };
        service.definitions().create_group(&actor, &text, false).expect("a group");
    }
    service.definitions().bind(&actor, "tenant", "", "top").expect("a binding");
    service.definitions().bind(&actor, "tenant", "user", "child").expect("a binding");
    let table = v1::CostTable {
        name: "mine".to_owned(),
        version: 1,
        ru_per_unit: [("cpu_ns".to_owned(), "1/3000000".to_owned())].into(),
        replicas: 3,
    };
    service.definitions().put_cost_table(&actor, "shadow", Some(table)).expect("a cost table");
    for incarnation in 1..=2 {
        work::renew(&service, "node", incarnation, &["top", "child", "free", "default"]);
    }
    let conviction = v1::ConvictRequest {
        gateway: "gateway".to_owned(),
        group: "child".to_owned(),
        r#match: "identify".to_owned(),
        action: "kill".to_owned(),
        fingerprint: "00000000000000ab".to_owned(),
        ..v1::ConvictRequest::default()
    };
    service.statements().convict(&conviction).expect("a conviction").expect("a watch");
    service.shut_down().expect("a clean stop");
}

/// Its rows.
pub(super) fn rows() -> &'static Rows {
    static ROWS: OnceLock<Rows> = OnceLock::new();
    ROWS.get_or_init(|| {
        let store = Arc::new(MemoryStore::default());
        fill(Arc::clone(&store) as Arc<dyn Store>);
        store.rows()
    })
}

/// Its file.
pub(super) fn file() -> &'static [u8] {
    &on_disk().0
}

/// The rows in the file.
pub(super) fn file_rows() -> &'static Rows {
    &on_disk().1
}

fn on_disk() -> &'static (Vec<u8>, Rows) {
    static FILE: OnceLock<(Vec<u8>, Rows)> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("store");
        let open = || RedbStore::open(&path).expect("a sound store");
        fill(Arc::new(open()));
        let bytes = std::fs::read(&path).expect("its file");
        let (store, mut rows) = (open(), Rows::new());
        for table in TABLES {
            let mut visit = |key: &[u8], value: &[u8]| {
                rows.insert((table, key.to_vec()), value.to_vec());
                Ok(ControlFlow::Continue(()))
            };
            store.scan(table, &[], &mut visit).expect("its rows");
        }
        (bytes, rows)
    })
}
