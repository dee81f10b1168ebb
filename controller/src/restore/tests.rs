//! What copies may not be put over, and where a replaced store stays.

use std::sync::Arc;

use super::*;
use crate::clock::Clock;
use crate::service::{Service, ServiceConfig};

/// A store that was stopped in order.
fn store(path: &Path) {
    let rows = Arc::new(RedbStore::open(path).unwrap());
    Service::load(rows, ServiceConfig::default(), Clock::start()).unwrap().shut_down().unwrap();
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
fn a_replaced_store_takes_a_name_that_is_free_and_none_is_replaced_where_all_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let [path, copy] = ["store", "copy"].map(|name| folder.path().join(name));
    store(&path);
    backup(&path, &copy, false).unwrap();
    let taken = |number: u32| folder.path().join(format!("store.replaced-{number}"));
    (1..=MOST_ASIDE)
        .filter(|number| *number != 7)
        .for_each(|number| fs::write(taken(number), "older").unwrap());
    let over = Over { store: true, other_cluster: false };
    let before = fs::read(&path).unwrap();
    assert_eq!(restore(&copy, &path, over).unwrap().aside, Some(taken(7)));
    assert!(fs::read(taken(7)).unwrap() == before && fs::read(taken(8)).unwrap() == b"older");
    let before = (names(folder.path()), fs::read(&path).unwrap());
    let refused = restore(&copy, &path, over).unwrap_err();
    assert!(matches!(refused, CopyError::Aside { .. }), "{refused}");
    assert!(refused.to_string().contains("1000 of them are there already; delete some"), "{refused}");
    assert!((names(folder.path()), fs::read(&path).unwrap()) == before, "the store keeps its name");
    let refused = move_aside(&path).unwrap_err();
    assert!(matches!(refused, CopyError::Aside { .. }) && fs::read(&path).unwrap() == before.1, "{refused}");
}
