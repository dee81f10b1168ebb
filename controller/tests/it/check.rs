//! The findings of a store's check, and the files that it does not change.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_controller::audit::Actor;
use tidegate_controller::check::{Checked, check};
use tidegate_controller::restore::{CopyError, Over, backup, restore};
use tidegate_controller::store::records::{META_EPOCH, META_FORMAT};
use tidegate_controller::store::{RedbStore, Store as _, StoreError, Table, Write};
use tidegate_core::group::GroupId;
use tidegate_proto::v1;

use crate::support::{Lab, Node, entry, group, report, store_path};

/// A folder with the store of a controller that was used and stopped uncleanly.
async fn used() -> tempfile::TempDir {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    lab.group("old", "5").await;
    let binding = v1::Binding { tenant: "acme".into(), user: String::new(), group: "web".into() };
    lab.admin().await.bind(v1::BindRequest { binding: Some(binding) }).await.unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("web", 1, 5), report("old", 1, 5)]).await;
    lab.delete("old").await;
    let Lab { folder, running } = lab;
    running.abort().await;
    folder
}

fn copy(folder: &tempfile::TempDir) -> PathBuf {
    let copy = folder.path().join("copy.redb");
    fs::copy(store_path(folder), &copy).unwrap();
    copy
}

fn put(table: Table, key: &[u8], value: &[u8]) -> Write {
    Write::Put(table, key.to_vec(), value.to_vec())
}

fn said(checked: &Checked) -> String {
    let lines = checked.damage.iter().map(|damage| format!("{}: {}\n", damage.place, damage.reason));
    lines.collect()
}

#[tokio::test]
async fn a_used_store_is_whole_and_is_not_changed_by_looking() {
    let folder = used().await;
    let path = store_path(&folder);
    let before = fs::read(&path).unwrap();
    let checked = check(&path).unwrap();
    assert!(checked.is_whole(), "{}", said(&checked));
    assert_eq!((checked.epoch, checked.leftover), (1, 0));
    let rows = |table| checked.rows.get(&table).copied().unwrap_or_default();
    // `default` is a group, too.
    assert_eq!((rows(Table::Groups), rows(Table::Bindings), rows(Table::Ledger)), (2, 1, 1));
    assert_eq!((rows(Table::Retired), rows(Table::Clients), rows(Table::Audit)), (1, 1, 4));
    assert!(fs::read(&path).unwrap() == before, "a check changes nothing");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the store and the note of its last commit");
}

#[tokio::test]
async fn every_damage_is_named_by_its_place() {
    let folder = used().await;
    let web = br#"{"id":9,"group":{"name":"web"}}"#;
    let orphan = br#"{"id":2,"group":{"name":"web","parent":"gone"}}"#;
    let bound = br#"{"principal":{"Tenant":"acme"},"group":"gone"}"#;
    let other = br#"{"id":8,"unix_ms":1,"actor":"","action":"","subject":"","before":"","after":""}"#;
    let ledger = [7_u64.to_be_bytes().as_slice(), &2_u32.to_be_bytes()].concat();
    let table: Vec<(Write, &str)> = vec![
        (Write::Delete(Table::Meta, META_EPOCH.to_vec()), "meta epoch: it is missing"),
        (put(Table::Meta, b"proof_key", b"short"), "meta proof_key: it has 5 bytes"),
        (put(Table::Meta, b"lineage", b"{"), "meta lineage: "),
        (put(Table::Meta, b"next_group", b"1"), "is not below next_group, so it would be given again"),
        (
            put(Table::Meta, b"next_group", b"2"),
            "its id 2 is not below next_group, so it would be given again",
        ),
        (
            put(Table::Meta, b"next_client", b"1"),
            "its id 1 is not below next_client, so it would be given again",
        ),
        (put(Table::Groups, b"x", b"{}"), "groups x: the key is not a group id"),
        (put(Table::Groups, &9_u32.to_be_bytes(), web), "groups 00000009: "),
        (put(Table::Groups, &2_u32.to_be_bytes(), orphan), "groups web: it is below gone, which is missing"),
        (put(Table::Bindings, b"acme\0", bound), "tenant acme is bound to gone, which is missing"),
        (put(Table::Bindings, b"acme\0ann", bound), "the binding of tenant acme has the key of another"),
        (put(Table::CostTables, b"x", b"{}"), "cost_tables x: "),
        (put(Table::Clients, b"x", b"{}"), "clients x: "),
        (put(Table::Tombstones, b"node", b"many"), "tombstones node: a number was expected"),
        (put(Table::Ledger, &ledger, &[1]), "consumption of version 1 with 1 bytes"),
        (put(Table::Folded, b"x", &[9]), "folded x: "),
        (put(Table::Retired, b"old", &[9]), "retired old: "),
        (put(Table::Hours, b"x", &[9]), "hours x: "),
        (put(Table::Audit, &9_u64.to_be_bytes(), other), "entry 8 has the key of another"),
        (put(Table::Watches, b"x", b"{}"), "watches x: "),
        (put(Table::Runaways, b"x", b"{}"), "runaways x: "),
        (put(Table::Parts, b"x", b"1"), "parts x: "),
    ];
    for (write, expected) in table {
        let path = copy(&folder);
        RedbStore::open(&path).unwrap().commit(std::slice::from_ref(&write)).unwrap();
        let checked = check(&path).unwrap();
        assert!(said(&checked).contains(expected), "{write:?}: {}", said(&checked));
    }
    let path = copy(&folder);
    let client = store_of_clients(&path);
    RedbStore::open(&path).unwrap().commit(&[Write::Delete(Table::Clients, client)]).unwrap();
    let lost = said(&check(&path).unwrap());
    assert!(lost.contains("ledger ") && lost.contains("retired ") && lost.contains("is missing"), "{lost}");
}

/// A folder with a store that has rows in tables of which few stores have any.
async fn full() -> tempfile::TempDir {
    let lab = Lab::start().await;
    let web = v1::Group {
        quota: "1000 per day".into(),
        fallback: "7".into(),
        fallback_total: "14".into(),
        ..group("web", "1000")
    };
    let request = v1::CreateGroupRequest { group: Some(web.clone()), if_not_exists: false };
    lab.admin().await.create_group(request).await.unwrap();
    let (service, actor) = (lab.running.service(), Actor::new(None, "test"));
    let proposed = v1::Group { ru_per_sec: "5".into(), ..web };
    service.definitions().put_proposal(&actor, &proposed, &["ru_per_sec".to_owned()], 0).unwrap();
    let watch = v1::Watch {
        group: "web".into(),
        r#match: "similar".into(),
        digest: "00000000000000ab".into(),
        action: "switch_group".into(),
        switch_group: "default".into(),
        ..v1::Watch::default()
    };
    service.statements().add_watch(&actor, &watch).unwrap();
    let wish = v1::CreateTokenRequest { name: "ann".into(), role: "viewer".into(), ..Default::default() };
    service.tokens().create(&actor, &wish).unwrap();
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.renew(vec![entry("web", 10)], Vec::new()).await.unwrap();
    node.report(vec![report("web", 1, 5)]).await;
    let Lab { folder, running } = lab;
    running.abort().await;
    folder
}

/// The first row of a table.
fn first(path: &Path, table: Table) -> (Vec<u8>, Vec<u8>) {
    let mut row = None;
    let mut visit = |key: &[u8], value: &[u8]| {
        row = Some((key.to_vec(), value.to_vec()));
        Ok(std::ops::ControlFlow::Break(()))
    };
    RedbStore::open(path).unwrap().scan(table, &[], &mut visit).unwrap();
    row.unwrap_or_else(|| panic!("{} has no row", table.name()))
}

/// What a check says of a copy with this row beside the others.
fn with(folder: &tempfile::TempDir, write: &Write) -> Checked {
    let path = copy(folder);
    RedbStore::open(&path).unwrap().commit(std::slice::from_ref(write)).unwrap();
    check(&path).unwrap()
}

#[tokio::test]
async fn a_row_under_the_key_of_another_or_of_another_shape_is_named() {
    let folder = full().await;
    let whole = check(&copy(&folder)).unwrap();
    assert!(whole.is_whole() && whole.leftover == 0, "{}", said(&whole));
    let (number, default) = (99_u64.to_be_bytes(), GroupId::DEFAULT.0.to_be_bytes());
    let pair = [number.as_slice(), &default].concat();
    for (table, key, expected) in [
        (Table::Groups, &[0, 0, 0, 0][..], "has the key of another"),
        (Table::CostTables, b"x", "has the key of another"),
        (Table::Watches, &number, "watch 1 has the key of another"),
        (Table::Tokens, &number, "token 1 has the key of another"),
        (Table::Proposals, &default, "that of web has the key of another"),
    ] {
        let (own, row) = first(&copy(&folder), table);
        assert_ne!(own, key);
        let row = if table == Table::Groups { web_of(&copy(&folder)) } else { row };
        let checked = with(&folder, &put(table, key, &row));
        let damage = said(&checked);
        assert!(damage.starts_with(&format!("{} ", table.name())) && damage.contains(expected), "{damage}");
    }
    for (table, key, value, expected) in [
        (Table::Watches, &number[..], &b"{}"[..], "match"),
        (Table::Runaways, &number, b"{}", "runaways 0000000000000063: "),
        (Table::Tokens, &number, b"{}", "tokens 0000000000000063: "),
        (Table::Quotas, &default, &[9], "quotas 00000001: "),
        (Table::Proposals, &default, b"{}", "proposals 00000001: "),
        (Table::Parts, &pair, b"x", "a number was expected"),
        (Table::PastMinutes, &pair, &[9], "its version is not known"),
        (Table::PastMinutes, &number, &[9], "past_minutes 0000000000000063: "),
        (Table::Quotas, b"x", &[9], "quotas x: "),
    ] {
        let damage = said(&with(&folder, &put(table, key, value)));
        assert!(damage.contains(expected), "{}: {damage}", table.name());
    }
}

/// The row of the group web, which is not the first.
fn web_of(path: &Path) -> Vec<u8> {
    let mut found = Vec::new();
    let mut visit = |_: &[u8], value: &[u8]| {
        if value.windows(5).any(|part| part == b"\"web\"") {
            found = value.to_vec();
        }
        Ok(std::ops::ControlFlow::Continue(()))
    };
    RedbStore::open(path).unwrap().scan(Table::Groups, &[], &mut visit).unwrap();
    found
}

/// What a group leaves behind that an earlier build deleted is no damage: the controller passes over it.
#[tokio::test]
async fn rows_of_groups_that_are_gone_are_counted_and_are_no_damage() {
    let folder = full().await;
    let gone = 77_u32.to_be_bytes();
    let (client, _) = first(&copy(&folder), Table::Clients);
    let watch = String::from_utf8(first(&copy(&folder), Table::Watches).1).unwrap();
    let mut left = Vec::new();
    for table in [Table::Proposals, Table::Quotas] {
        left.push(put(table, &gone, &first(&copy(&folder), table).1));
    }
    left.push(put(Table::Parts, &[client.as_slice(), &gone].concat(), b"7"));
    for (name, other) in [("\"web\"", "\"gone\""), ("\"default\"", "\"gone\"")] {
        assert!(watch.contains(name), "{watch}");
        left.push(put(Table::Watches, &1_u64.to_be_bytes(), watch.replace(name, other).as_bytes()));
    }
    for write in left {
        let checked = with(&folder, &write);
        assert!(checked.is_whole() && checked.leftover == 1, "{write:?}: {}", said(&checked));
    }
}

fn store_of_clients(path: &Path) -> Vec<u8> {
    let mut key = Vec::new();
    let mut visit = |found: &[u8], _: &[u8]| {
        key = found.to_vec();
        Ok(std::ops::ControlFlow::Continue(()))
    };
    RedbStore::open(path).unwrap().scan(Table::Clients, &[], &mut visit).unwrap();
    key
}

#[tokio::test]
async fn a_bit_that_turned_in_a_page_is_found() {
    let folder = used().await;
    let bytes = fs::read(store_path(&folder)).unwrap();
    // A checksum covers the name in every page in use.
    let places: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"acme")).collect();
    assert!(!places.is_empty());
    let path = folder.path().join("copy.redb");
    let mut found = 0;
    for place in places {
        let mut turned = bytes.clone();
        turned[place] ^= 1;
        fs::write(&path, &turned).unwrap();
        found += usize::from(check(&path).map_or(true, |checked| !checked.is_whole()));
    }
    assert!(found > 0, "in none of the pages");
}

#[tokio::test]
async fn what_is_no_whole_store_of_this_format_is_neither_copied_nor_put_back() {
    let folder = used().await;
    let target = folder.path().join("new/tidegate.redb");
    fs::create_dir(folder.path().join("new")).unwrap();
    let whole = fs::read(store_path(&folder)).unwrap();
    let refused = |bytes: &[u8], change: Option<Write>| {
        let path = folder.path().join("copy.redb");
        fs::write(&path, bytes).unwrap();
        if let Some(change) = change {
            RedbStore::open(&path).unwrap().commit(&[change]).unwrap();
        }
        let error = restore(&path, &target, Over { store: true, other_cluster: true }).unwrap_err();
        assert_eq!(backup(&path, &target, true).unwrap_err().to_string(), error.to_string());
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 0, "nothing is left: {error}");
        error
    };
    let newer = refused(&whole, Some(put(Table::Meta, META_FORMAT, b"99")));
    assert!(matches!(newer, CopyError::Store(StoreError::Format { .. })), "{newer}");
    let half = refused(&whole[..whole.len() / 2], None);
    assert!(matches!(half, CopyError::Store(StoreError::Unreadable { .. })), "{half}");
    for other in [&b""[..], b"some notes", &[0; 8_192]] {
        let error = refused(other, None);
        assert!(matches!(error, CopyError::Store(StoreError::Unreadable { .. })), "{error}");
    }
    let damaged = refused(&whole, Some(put(Table::Bindings, b"x", b"{}")));
    assert!(damaged.to_string().contains("damaged in 1 places, first: bindings x"), "{damaged}");
}

#[tokio::test]
async fn a_store_gives_way_when_it_may_and_stays_beside_its_successor() {
    let (folder, other) = (used().await, used().await);
    let (backup_file, store) = (copy(&folder), store_path(&folder));
    let over = |store, other_cluster| Over { store, other_cluster };
    let there = restore(&backup_file, &store, Over::default()).unwrap_err();
    assert!(matches!(there, CopyError::Store(StoreError::Exists { .. })), "{there}");
    let same = restore(&store, &store, over(true, true)).unwrap_err();
    assert!(matches!(same, CopyError::SameFile { .. }), "{same}");
    let foreign = restore(&store_path(&other), &store, over(true, false)).unwrap_err();
    assert!(matches!(foreign, CopyError::OtherCluster { .. }), "{foreign}");
    let used = RedbStore::open(&store).unwrap();
    let locked = restore(&backup_file, &store, over(true, true)).unwrap_err();
    assert!(matches!(locked, CopyError::Store(StoreError::Locked { .. })), "{locked}");
    let locked = check(&store).unwrap_err();
    assert!(matches!(locked, StoreError::Locked { .. }), "{locked}");
    drop(used);

    let before = fs::read(&store).unwrap();
    for number in 1..=2 {
        let restored = restore(&backup_file, &store, over(true, false)).unwrap();
        let aside = restored.aside.unwrap();
        assert!(aside.to_string_lossy().ends_with(&format!("store.redb.replaced-{number}")), "{aside:?}");
        assert!(number == 2 || fs::read(aside).unwrap() == before, "the old store is kept as it was");
    }
    // An unreadable store is replaced, too: it may be the reason to restore.
    fs::write(&store, "garbage").unwrap();
    restore(&backup_file, &store, over(true, false)).unwrap();
    assert!(check(&store).unwrap().is_whole());
}

#[tokio::test]
async fn a_copy_of_a_clean_store_that_is_put_back_is_no_clean_store() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let Lab { folder, running } = lab;
    running.shutdown().await.unwrap();
    let (store, file) = (store_path(&folder), folder.path().join("backup.redb"));
    backup(&store, &file, false).unwrap();
    let seal = folder.path().join("store.redb.seal");
    assert!(seal.exists());
    // Even in its own place, within a moment.
    restore(&file, &store, Over { store: true, other_cluster: false }).unwrap();
    assert!(!seal.exists());
    let lab = Lab::at(folder).await;
    let status = lab.running.service().status();
    assert!(status.epoch == 2 && status.recovery.0 > 4_000_000, "{status:?}");
}
