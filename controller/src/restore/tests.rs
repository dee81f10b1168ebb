//! What copies may not be put over, and where a replaced store stays.

use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::clock::Clock;
use crate::service::{Service, ServiceConfig};
use crate::store::Write;

/// A store that was stopped in order.
fn store(path: &Path) {
    let rows = Arc::new(RedbStore::open(path).unwrap());
    Service::load(rows, ServiceConfig::default(), Clock::start()).unwrap().shut_down().unwrap();
}

/// One, and a copy of it.
fn copied() -> (TempDir, [PathBuf; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let [path, copy] = ["store", "copy"].map(|name| folder.path().join(name));
    store(&path);
    backup(&path, &copy, false).unwrap();
    (folder, [path, copy])
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_store_is_no_copy_of_itself_by_whatever_name() {
    let folder = tempfile::tempdir().unwrap();
    let [path, link] = ["store", "link"].map(|name| folder.path().join(name));
    store(&path);
    fs::hard_link(&path, &link).unwrap();
    let before = (names(folder.path()), fs::read(&path).unwrap());
    for other in [&path, &link] {
        let over = Over { store: true, other_cluster: true };
        for refused in [backup(&path, other, true).map(drop), restore(other, &path, over).map(drop)]
            .map(Result::unwrap_err)
        {
            assert!(matches!(refused, CopyError::SameFile { .. }), "{refused}");
            assert!(refused.to_string().contains(&other.display().to_string()), "{refused}");
        }
    }
    assert!((names(folder.path()), fs::read(&path).unwrap()) == before, "nothing was changed");
}

#[test]
fn no_controller_starts_on_a_store_while_a_copy_is_to_replace_it() {
    let (_folder, [path, copy]) = copied();
    let started = || {
        let refused = RedbStore::open(&path).err().unwrap();
        assert!(matches!(refused, StoreError::Locked { .. }), "{refused}");
    };
    restore_and(&copy, &path, Over { store: true, other_cluster: false }, started).unwrap();
    assert!(RedbStore::open(&path).is_ok());
}

#[test]
fn a_replaced_store_takes_a_name_that_is_free_and_none_is_replaced_where_all_are_taken() {
    let (folder, [path, copy]) = copied();
    let taken = |number: u32| folder.path().join(format!("store.replaced-{number}"));
    (1..=MOST_ASIDE)
        .filter(|number| *number != 7)
        .for_each(|number| fs::write(taken(number), "older").unwrap());
    let over = Over { store: true, other_cluster: false };
    let before = fs::read(&path).unwrap();
    assert_eq!(restore(&copy, &path, over).unwrap().aside, Some(taken(7)));
    assert!(fs::read(taken(7)).unwrap() == before && fs::read(taken(8)).unwrap() == b"older");
    // The restored store is stopped in order, and keeps the seal of that.
    store(&path);
    let before = (names(folder.path()), fs::read(&path).unwrap());
    assert!(before.0.contains(&"store.seal".to_owned()), "{:?}", before.0.first());
    let refused = restore(&copy, &path, over).unwrap_err();
    assert!(matches!(refused, CopyError::Aside { .. }), "{refused}");
    assert!(refused.to_string().contains("1000 of them are there already; delete some"), "{refused}");
    assert!((names(folder.path()), fs::read(&path).unwrap()) == before, "the store keeps its name");
    let refused = move_aside(&path).unwrap_err();
    assert!(matches!(refused, CopyError::Aside { .. }) && fs::read(&path).unwrap() == before.1, "{refused}");
}

/// As where the file system has no links: of a folder there are none anywhere.
#[test]
fn what_cannot_have_two_names_is_put_aside_by_its_new_one_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for number in 1..=2 {
        fs::create_dir(&path).unwrap();
        let aside = folder.path().join(format!("store.replaced-{number}"));
        assert_eq!(move_aside(&path).unwrap(), aside);
        assert!(!path.exists() && aside.is_dir());
    }
    let refused = move_aside(&path).unwrap_err().to_string();
    assert!(refused.contains("cannot be put aside: No such file"), "{refused}");
}

#[test]
fn a_copy_that_is_damaged_in_many_places_says_in_how_many() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    store(&path);
    let row = |number: u16| Write::Put(Table::Watches, number.to_be_bytes().to_vec(), b"none".to_vec());
    RedbStore::open(&path).unwrap().commit(&(0..1_003).map(row).collect::<Vec<_>>()).unwrap();
    let checked = check(&path).unwrap();
    assert_eq!((checked.damage.len(), checked.more, checked.rows[&Table::Watches]), (1_000, 3, 1_003));
    let refused = whole(&path, &folder.path().join("named")).unwrap_err().to_string();
    let named =
        format!("{} is damaged in 1003 places, first: watches 0000: ", folder.path().join("named").display());
    assert!(refused.starts_with(&named), "{refused}");
}
