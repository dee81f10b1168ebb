//! A log that was set back, and what its file and it say of each other when both have gone on; owners that may still
//! speak; and what an earlier attempt left behind.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_consensus::model::Fault;
use tidegate_core::group::GroupId;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use super::super::roster::GONE;
use super::restored::{CLOCKS, LONGER, Scene, create, owner, said};
use crate::definitions::definition::Definition;
use crate::store::records::{
    META_EPOCH, META_LONGEST_TTL, META_NEXT_GROUP, META_REVISION, StoredGroup, group_row, json, put_number,
};
use crate::store::replicated::Owner;
use crate::store::{RedbStore, Store, Table, each};

/// The longest lease that may be out, by group.
fn longest(store: &dyn Store) -> Vec<(String, Option<u64>)> {
    let mut all = Vec::new();
    let read = each(store, Table::Groups, |_, value| {
        let group: StoredGroup = json(Table::Groups, value)?;
        all.push((group.group.name, group.longest_ttl_us));
        Ok(())
    });
    read.unwrap();
    all.sort();
    all
}

#[test]
fn leases_that_only_the_file_knows_may_be_out_in_every_group() {
    let scene = Scene::new();
    scene.set_back();
    scene.restore().unwrap();
    let follower = scene.follow("b").unwrap();
    let expected = ["default", "shop"].map(|name| (name.to_owned(), Some(LONGER.0)));
    assert_eq!(longest(follower.local()), expected, "a group may have been altered since the backup");
}

#[test]
fn numbers_and_leases_of_a_log_that_went_on_after_it_was_set_back_count_as_well_as_those_of_the_file() {
    const LONGEST: Span = Span::secs(60);
    let scene = Scene::new();
    scene.set_back();
    // Controllers whose folders are empty lead it, until somebody sees what happened.
    for name in ["c", "d"] {
        let (_store, service) = scene.leads(name);
        for group in 0..3 {
            create(&service, &format!("{name}{group}"), LONGEST);
        }
    }
    let follower = scene.follow("e").unwrap();
    let file = RedbStore::peek(&scene.path("a")).unwrap();
    let keys = [META_EPOCH, META_REVISION, META_NEXT_GROUP, META_LONGEST_TTL];
    let ours = keys.map(|key| said(follower.local(), key).unwrap());
    for (key, ours) in keys.iter().zip(ours) {
        assert!(said(&file, key).unwrap() < ours, "{key:?}");
    }
    drop((file, follower));
    let restored = scene.restore().unwrap();
    let lost: Vec<_> = restored.lost.newest.iter().map(|entry| entry.subject.as_str()).collect();
    assert_eq!((restored.lost.changes, lost), (1, vec!["later"]), "the log has others with the same ids");
    let follower = scene.follow("e").unwrap();
    let log = follower.local();
    let [epoch, revision, next, ttl] = ours;
    assert_eq!((restored.epoch, said(log, META_EPOCH)), (epoch + 1, Some(epoch + 1)));
    // The restore itself is a change.
    assert_eq!(said(log, META_REVISION), Some(revision + 1));
    assert_eq!((said(log, META_NEXT_GROUP), said(log, META_LONGEST_TTL)), (Some(next), Some(ttl)));
    assert_eq!(ttl, LONGEST.0);
    assert!(longest(log).iter().all(|(_, us)| *us == Some(LONGEST.0)), "{:?}", longest(log));
}

#[test]
fn an_owner_with_a_longer_fence_is_waited_for_and_once_more_after_an_outage_of_the_shared_store() {
    const FENCE: Span = Span::secs(10);
    let scene = Scene::new();
    scene.set_back();
    let follower = scene.follow("c").unwrap();
    let seen = follower.look().unwrap();
    let leader = follower.take(&seen, &Owner { fence_ms: FENCE.0 / 1_000, ..owner("c") }).unwrap();
    leader.beat().unwrap();
    let (model, now, back) = (Arc::clone(&scene.model), Arc::clone(&scene.now), Arc::<AtomicU64>::default());
    let (begun, heard) = (now.load(Ordering::Relaxed), Arc::clone(&back));
    scene
        .restore_while(move || {
            let at = now.load(Ordering::Relaxed);
            if (begun + 6_000_000..begun + 14_000_000).contains(&at) {
                model.plan([Some(Fault::Away)]);
                heard.store(at, Ordering::Relaxed);
            }
        })
        .unwrap();
    let waited = scene.now.load(Ordering::Relaxed) - back.load(Ordering::Relaxed);
    assert!(Span(waited) >= CLOCKS.longest_use(FENCE), "the owner could show nothing: {}", Span(waited));
}

#[test]
fn what_an_attempt_before_left_is_removed_and_a_folder_that_cannot_be_emptied_is_named() {
    let scene = Scene::new();
    scene.set_back();
    let (work, before) = (scene.path("a.restoring"), scene.model.rows());
    fs::write(&work, "no folder").unwrap();
    let error = scene.restore().unwrap_err().to_string();
    assert!(error.contains("a.restoring cannot be made or emptied: Not a directory"), "{error}");
    assert!(scene.path("a").exists() && scene.model.rows() == before, "nothing is changed");
    fs::remove_file(&work).unwrap();
    fs::create_dir(&work).unwrap();
    fs::write(work.join("log.redb"), "half a file").unwrap();
    scene.restore().unwrap();
    assert!(!work.exists() && !scene.path("a").exists());
}

#[test]
fn however_many_groups_the_log_has_leases_may_be_out_in_all_of_them() {
    let scene = Scene::new();
    let (store, service) = scene.leads("z");
    let row = |id: u32| {
        let group = v1::Group { name: format!("g{id}"), ru_per_sec: "1".to_owned(), ..v1::Group::default() };
        let definition = Definition::parse(&group).unwrap();
        group_row(GroupId(id), &definition, definition.ttl).unwrap()
    };
    let rows: Vec<_> = (1_000..3_100).map(row).chain([put_number(META_NEXT_GROUP, 5_000)]).collect();
    store.commit(&rows).unwrap();
    drop((store, service));
    scene.set_back();
    scene.restore().unwrap();
    let groups = longest(scene.follow("b").unwrap().local());
    assert!(groups.len() > 2_100 && groups.iter().all(|(_, us)| *us == Some(LONGER.0)));
}

#[test]
fn after_an_outage_of_the_shared_store_controllers_are_watched_for_as_long_as_at_first() {
    let scene = Scene::new();
    scene.set_back();
    let (model, now, back) = (Arc::clone(&scene.model), Arc::clone(&scene.now), Arc::<AtomicU64>::default());
    let (begun, heard) = (now.load(Ordering::Relaxed), Arc::clone(&back));
    scene
        .restore_while(move || {
            let at = now.load(Ordering::Relaxed);
            if (begun + 100_000..begun + 5_000_000).contains(&at) {
                model.plan([Some(Fault::Away)]);
                heard.store(at, Ordering::Relaxed);
            }
        })
        .unwrap();
    let watched = Span(scene.now.load(Ordering::Relaxed) - back.load(Ordering::Relaxed));
    assert!(watched >= GONE, "they could show nothing meanwhile: {watched}");
}
