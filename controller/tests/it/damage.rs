//! Rows that no controller has written are refused at start, by table and reason.

use std::sync::Arc;

use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{EntryIn, RenewIn, Service, ServiceConfig};
use tidegate_controller::store::{Store, StoreError, Table, Write};
use tidegate_core::MAX_DEPTH;
use tidegate_core::exchange::Ask;
use tidegate_core::units::{Rate, Span};

use crate::support::MemoryStore;
use tidegate_proto::v1;

fn load(store: &Arc<MemoryStore>) -> Result<Service, StoreError> {
    let config = ServiceConfig::default();
    Service::load(Arc::clone(store) as Arc<dyn Store>, config, Clock::start())
}

/// A store with one group, after a clean stop.
fn used() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    let service = load(&store).unwrap();
    let text = v1::Group { name: "web".into(), ru_per_sec: "5".into(), ..v1::Group::default() };
    service.definitions().create_group(&Actor::new(None, "test"), &text, false).unwrap();
    service.shut_down().unwrap();
    store
}

fn put(table: Table, key: &[u8], value: &[u8]) -> Write {
    Write::Put(table, key.to_vec(), value.to_vec())
}

#[test]
fn rows_that_cannot_be_are_refused_by_table_and_reason() {
    let lease = |rate: &str| format!(r#"{{"pools":[],"leases":[[2,1,1,{rate},0,0,5]],"recovery_us":0}}"#);
    let (negative, sound) = (lease("-1"), lease("1"));
    let warm = sound.replace("\"pools\":[]", "\"pools\":[],\"warmths\":[[2,-1]]");
    let proposal =
        |name: &str, field: &str| format!(r#"{{"group":{{"name":"{name}"}},"fields":["{field}"]}}"#);
    let web = br#"{"id":3,"group":{"name":"web"}}"#;
    let orphan = br#"{"id":3,"group":{"name":"a","parent":"gone"}}"#;
    let circular = br#"{"id":3,"group":{"name":"a","parent":"a"}}"#;
    let table: Vec<(Write, &str)> = vec![
        (Write::Delete(Table::Meta, b"epoch".to_vec()), "the epoch is missing"),
        (put(Table::Meta, b"epoch", b"18446744073709551615"), "more than was ever counted"),
        (put(Table::Meta, b"revision", b"18446744073709551615"), "more than was ever counted"),
        (Write::Delete(Table::Meta, b"cost_roles".to_vec()), "which cost table is in use is missing"),
        (put(Table::Meta, b"clean", negative.as_bytes()), "a saved lease is out of range"),
        (put(Table::Groups, &3_u32.to_be_bytes(), web), "group web is there twice"),
        (put(Table::Groups, &4_u32.to_be_bytes(), web), "group web has the id of another"),
        (put(Table::Groups, &3_u32.to_be_bytes(), orphan), "the parent gone of a is missing"),
        (put(Table::Groups, &3_u32.to_be_bytes(), circular), "some groups are above themselves"),
        (put(Table::Groups, &0_u32.to_be_bytes(), br#"{"id":0,"group":{"name":"x"}}"#), "id of another"),
        (
            put(
                Table::Clients,
                &u64::MAX.to_be_bytes(),
                br#"{"name":"n","incarnation":1,"heard_unix_ms":0}"#,
            ),
            "more than was ever counted",
        ),
        (
            put(Table::Bindings, b"t\0", br#"{"principal":{"User":"u"},"group":"web"}"#),
            "the binding of user u has the key of another",
        ),
        (put(Table::Audit, &u64::MAX.to_be_bytes(), b"{}"), "more than was ever counted"),
        (put(Table::Meta, b"next_group", b"4294967296"), "the next group id is out of range"),
        (put(Table::Meta, b"proof_key", b"short"), "the proof key has a wrong length"),
        (put(Table::Meta, b"clean", warm.as_bytes()), "a saved lease is out of range"),
        (
            put(Table::Meta, b"cost_roles", br#"{"active":["mine",1],"shadow":null}"#),
            "the table that is in use is missing",
        ),
        (
            put(Table::Bindings, b"\0u", br#"{"principal":{"User":"u"},"group":"?"}"#),
            "Bindings that does not decode: ",
        ),
        (
            put(Table::Bindings, b"\0u", br#"{"principal":{"User":"u"},"group":"gone"}"#),
            "user u is bound to gone, which is missing",
        ),
        (put(Table::Groups, &3_u32.to_be_bytes(), br#"{"id":3,"group":{"name":"?"}}"#), "Groups that does"),
        (put(Table::Watches, &3_u64.to_be_bytes(), br#"{"id":3,"group":"?"}"#), "Watches that does not"),
        (put(Table::Runaways, &3_u64.to_be_bytes(), b"{}"), "Runaways that does not decode: "),
        (
            put(Table::Proposals, &2_u32.to_be_bytes(), proposal("web", "comment").as_bytes()),
            r#""comment" is no field of a proposal"#,
        ),
        (
            put(Table::Proposals, &2_u32.to_be_bytes(), proposal("?", "burst").as_bytes()),
            "Proposals that does not decode: ",
        ),
        (
            put(Table::Proposals, &2_u32.to_be_bytes(), proposal("default", "burst").as_bytes()),
            "that of default has the key of another",
        ),
    ];
    for (damage, reason) in table {
        let store = used();
        store.commit(std::slice::from_ref(&damage)).unwrap();
        let error = load(&store).err().unwrap_or_else(|| panic!("{damage:?} is taken")).to_string();
        assert!(error.contains(reason) && error.contains("backup"), "{damage:?}: {error}");
    }
    // More levels than the tree may have.
    let store = used();
    let level = |id: u32| {
        let parent = if id == 3 { "web".to_owned() } else { format!("g{}", id - 1) };
        let row = format!(r#"{{"id":{id},"group":{{"name":"g{id}","parent":"{parent}"}}}}"#);
        put(Table::Groups, &id.to_be_bytes(), row.as_bytes())
    };
    let levels = u32::try_from(MAX_DEPTH).unwrap();
    store.commit(&(3..levels + 2).map(level).collect::<Vec<_>>()).unwrap();
    assert!(load(&store).is_ok());
    let store = used();
    store.commit(&(3..=levels + 2).map(level).collect::<Vec<_>>()).unwrap();
    let error = load(&store).err().unwrap().to_string();
    assert!(error.contains("the grant engine refused a definition"), "{error}");
    // After an unclean stop the longest lease counts.
    let store = used();
    let unclean = Write::Delete(Table::Meta, b"clean".to_vec());
    store.commit(&[unclean, put(Table::Meta, b"longest_ttl_us", b"600000001")]).unwrap();
    assert!(load(&store).err().unwrap().to_string().contains("longer than any can be"));
    let store = used();
    store.commit(&[put(Table::Meta, b"clean", sound.as_bytes())]).unwrap();
    assert!(load(&store).is_ok());
}

#[test]
fn the_longest_lease_is_taken_up_after_a_clean_and_an_unclean_stop() {
    let store = used();
    let service = load(&store).unwrap();
    let text =
        v1::Group { name: "slow".into(), ru_per_sec: "5".into(), ttl_us: 60_000_000, ..v1::Group::default() };
    service.definitions().create_group(&Actor::new(None, "test"), &text, false).unwrap();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let ask = Ask { demand: Rate::whole(1), ..Ask::default() };
    let entry = EntryIn { group: "slow".into(), ask: Ok((ask, Vec::new())) };
    let renewal = RenewIn { seq: 1, entries: vec![entry], ..RenewIn::default() };
    service.leasing().renew(session.client, session.session, renewal).unwrap();
    service.shut_down().unwrap();
    // The second start finds what the first wrote, without the mark of a clean stop.
    for start in 1..=2 {
        let service = load(&store).unwrap();
        assert_eq!(service.status().recovery > Span::secs(60), start == 2);
    }
}
