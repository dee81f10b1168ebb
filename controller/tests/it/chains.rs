//! How long each group recovers from an unclean stop: for the longest lease that may be out in its own chain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::clock::Clock;
use tidegate_controller::service::{Service, ServiceConfig};
use tidegate_controller::store::records::META_CLEAN;
use tidegate_controller::store::{Store, Table, Write};

use crate::support::{MemoryStore, actor};
use tidegate_proto::v1;

/// A store and a clock.
#[derive(Default)]
struct Site {
    store: Arc<MemoryStore>,
    us: Arc<AtomicU64>,
}

impl Site {
    /// Starts a controller on what the last one left when it died.
    fn start(&self) -> Service {
        let (store, clock) = (Arc::clone(&self.store) as Arc<dyn Store>, Clock::driven(Arc::clone(&self.us)));
        Service::load(store, ServiceConfig::default(), clock).unwrap()
    }

    fn pass(&self, service: &Service, seconds: u64) {
        self.us.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
        service.upkeep().flush().unwrap();
    }
}

fn group(name: &str, parent: &str, ttl_s: u64) -> v1::Group {
    v1::Group {
        name: name.into(),
        parent: parent.into(),
        ru_per_sec: "5".into(),
        ttl_us: ttl_s * 1_000_000,
        ..v1::Group::default()
    }
}

fn create(service: &Service, name: &str, parent: &str, ttl_s: u64) {
    service.definitions().create_group(&actor(), &group(name, parent, ttl_s), false).unwrap();
}

fn alter(service: &Service, name: &str, ttl_s: u64) {
    let mask = ["ttl_us", "renew_us"].map(str::to_owned);
    service.definitions().alter_group(&actor(), &group(name, "", ttl_s), &mask, 0).unwrap();
}

/// Whole seconds of recovery per group; a lease is in use a little longer than it lasts.
fn recovery<const N: usize>(service: &Service, groups: [&str; N]) -> [u64; N] {
    groups.map(|group| service.leasing().recovery_of(group).unwrap().0 / 1_000_000)
}

#[test]
fn nobody_waits_for_leases_of_other_chains() {
    let site = Site::default();
    let service = site.start();
    create(&service, "all", "", 2);
    create(&service, "slow", "all", 30);
    create(&service, "quick", "all", 2);
    create(&service, "other", "", 3);
    let service = site.start();
    assert_eq!(recovery(&service, ["slow", "quick", "all", "other"]), [30, 30, 30, 3]);
    assert_eq!(recovery(&service, ["default"]), [0], "nothing limits it");
    // The controller dies again before the first group has recovered.
    site.pass(&service, 2);
    let service = site.start();
    assert_eq!(recovery(&service, ["slow", "other"]), [30, 3]);
}

#[test]
fn a_lowered_lease_length_counts_when_the_longer_leases_have_ended() {
    let site = Site::default();
    let service = site.start();
    create(&service, "web", "", 30);
    alter(&service, "web", 10);
    alter(&service, "web", 2);
    assert_eq!(recovery(&site.start(), ["web"]), [30]);
    let service = site.start();
    site.pass(&service, 29);
    assert_eq!(recovery(&site.start(), ["web"]), [30], "one may be out that was given before it died");
    let service = site.start();
    site.pass(&service, 31);
    assert_eq!(recovery(&site.start(), ["web"]), [2]);
    let service = site.start();
    alter(&service, "web", 20);
    alter(&service, "web", 2);
    site.pass(&service, 19);
    // Lowering the length once more does not end the wait for the earlier length.
    alter(&service, "web", 1);
    assert_eq!(recovery(&site.start(), ["web"]), [20]);
}

#[test]
fn a_removed_group_counts_in_those_it_was_below() {
    let site = Site::default();
    let service = site.start();
    create(&service, "top", "", 1);
    create(&service, "middle", "top", 1);
    create(&service, "leaf", "middle", 30);
    create(&service, "other", "", 1);
    for name in ["leaf", "middle"] {
        service.definitions().delete_group(&actor(), name, "", 0, false).unwrap();
    }
    assert_eq!(recovery(&site.start(), ["top", "other"]), [30, 1]);
    let service = site.start();
    site.pass(&service, 31);
    assert_eq!(recovery(&site.start(), ["top", "other"]), [1, 1]);
    // Children that move away take their leases along, and the leases of removed ones stay.
    let service = site.start();
    create(&service, "from", "top", 20);
    create(&service, "child", "from", 40);
    service.definitions().delete_group(&actor(), "from", "other", 0, false).unwrap();
    assert_eq!(recovery(&site.start(), ["top", "other", "child"]), [20, 40, 40]);
}

#[test]
fn after_a_clean_stop_the_leases_that_are_out_count() {
    let site = Site::default();
    let service = site.start();
    create(&service, "web", "", 30);
    alter(&service, "web", 2);
    create(&service, "other", "", 3);
    service.shut_down().unwrap();
    let service = site.start();
    assert_eq!(recovery(&service, ["web", "other"]), [0, 0]);
    drop(service);
    assert_eq!(recovery(&site.start(), ["web", "other"]), [2, 3]);
}

#[test]
fn the_recovery_of_all_groups_that_an_earlier_version_saved_goes_on_in_each() {
    let site = Site::default();
    let service = site.start();
    create(&service, "web", "", 2);
    create(&service, "api", "web", 2);
    service.shut_down().unwrap();
    drop(service);
    let row = site.store.get(Table::Meta, &[META_CLEAN.to_vec()]).unwrap().remove(0).unwrap();
    let mut saved: serde_json::Value = serde_json::from_slice(&row).unwrap();
    let fields = saved.as_object_mut().unwrap();
    assert!(fields.remove("recoveries").is_some());
    fields.insert("recovery_us".into(), 20_000_000.into());
    let row = serde_json::to_vec(&saved).unwrap();
    site.store.commit(&[Write::Put(Table::Meta, META_CLEAN.to_vec(), row)]).unwrap();

    let service = site.start();
    assert_eq!(service.epoch(), 1, "the stop was clean");
    create(&service, "new", "", 2);
    assert_eq!(recovery(&service, ["web", "api", "new"]), [20; 3]);
    site.pass(&service, 5);
    // One that dies meanwhile leaves the rest of it, and so does one that stops.
    service.shut_down().unwrap();
    let service = site.start();
    assert_eq!(recovery(&service, ["web", "api", "new"]), [15; 3]);
    drop(service);
    assert!(recovery(&site.start(), ["web", "api"]).iter().all(|seconds| *seconds >= 15));
}

#[test]
fn groups_stored_by_an_earlier_version_recover_for_the_longest_lease_of_all() {
    let site = Site::default();
    let service = site.start();
    create(&service, "web", "", 2);
    create(&service, "slow", "", 30);
    let web = br#"{"id":2,"group":{"name":"web","ru_per_sec":"5","ttl_us":2000000}}"#;
    let key = 2_u32.to_be_bytes().to_vec();
    site.store.commit(&[Write::Put(Table::Groups, key, web.to_vec())]).unwrap();
    assert_eq!(recovery(&site.start(), ["web", "slow"]), [30, 30]);
}
