//! The first token over takeovers, restored copies, and its own end.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use super::*;
use crate::clock::Clock;
use crate::service::ServiceConfig;
use crate::store::RedbStore;

/// A controller by a clock that a test sets, and a folder for each machine that it runs on.
struct Stage {
    service: Service,
    now: Arc<AtomicU64>,
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
        let now = Arc::new(AtomicU64::new(0));
        let clock = Clock::driven(Arc::clone(&now));
        let service = Service::load(store, ServiceConfig::default(), clock).unwrap();
        Self { service, now, folder }
    }

    /// What a start on this machine keeps.
    fn on(&self, machine: &str) -> FirstToken {
        FirstToken::beside(&self.folder.path().join(machine))
    }

    /// The text in the file of a machine, and whether it is a token in force; `None` without a file.
    fn file(&self, machine: &str) -> Option<(String, bool)> {
        let text = fs::read_to_string(self.on(machine).path).ok()?.trim().to_owned();
        let opens = self.service.tokens().identify(&text).is_some();
        Some((text, opens))
    }

    fn create(&self, name: &str, ttl_us: u64) {
        let (name, role) = (name.to_owned(), "admin".to_owned());
        let wish = v1::CreateTokenRequest { name, role, ttl_us, ..v1::CreateTokenRequest::default() };
        self.service.tokens().create(&Actor::new(None, "test"), &wish).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let admins = self.service.tokens().admins();
        admins.iter().map(|token| token.name().to_owned()).collect()
    }
}

#[test]
fn a_file_opens_the_controller_on_whichever_machine_it_leads() {
    let stage = Stage::new();
    stage.on("a").look(&stage.service);
    let (of_a, opens) = stage.file("a").unwrap();
    assert!(opens);
    stage.on("b").look(&stage.service);
    assert!(stage.file("b").unwrap().1 && !stage.file("a").unwrap().1, "one is in force at a time");
    // The first machine leads again, and still has the file of its own time.
    let again = stage.on("a");
    again.look(&stage.service);
    let (text, opens) = stage.file("a").unwrap();
    assert!(opens && text != of_a && !stage.file("b").unwrap().1);
    // A start that finds the right file keeps the token.
    again.look(&stage.service);
    stage.on("a").look(&stage.service);
    assert_eq!((stage.file("a"), stage.names()), (Some((text, true)), vec![FIRST.to_owned()]));
}

#[test]
fn the_file_goes_once_an_admin_has_a_token_though_the_first_was_over_before_that_was_seen() {
    let stage = Stage::new();
    let first = stage.on("a");
    first.look(&stage.service);
    stage.create("root", 0);
    stage.now.fetch_add(TTL_US, Ordering::SeqCst);
    assert!(!stage.file("a").unwrap().1);
    first.look(&stage.service);
    assert_eq!((stage.file("a"), stage.names()), (None, vec!["root".to_owned()]));
}

#[test]
fn a_file_that_an_earlier_start_left_goes_with_the_first_look() {
    let stage = Stage::new();
    let earlier = stage.on("a");
    earlier.look(&stage.service);
    let (text, _) = stage.file("a").unwrap();
    stage.create("root", 0);
    earlier.look(&stage.service);
    assert_eq!(stage.file("a"), None);
    // As if that start had ended between the two.
    fs::write(&earlier.path, text).unwrap();
    stage.on("a").look(&stage.service);
    assert_eq!((stage.file("a"), stage.names()), (None, vec!["root".to_owned()]));
}

#[test]
fn a_first_token_is_made_again_once_no_admin_has_one() {
    let stage = Stage::new();
    let first = stage.on("a");
    first.look(&stage.service);
    let (of_first, _) = stage.file("a").unwrap();
    stage.create("root", 5_000_000);
    first.look(&stage.service);
    assert_eq!((stage.file("a"), stage.names()), (None, vec!["root".to_owned()]));
    stage.now.fetch_add(5_000_000, Ordering::SeqCst);
    first.look(&stage.service);
    let (text, opens) = stage.file("a").unwrap();
    assert!(opens && text != of_first, "the token of root is over");
}

/// Where the file cannot be written, each look would make another one for nobody.
#[test]
fn a_first_token_that_cannot_be_written_is_made_once_in_its_time() {
    let stage = Stage::new();
    let first = stage.on("no such folder/a");
    let next = || stage.service.lock().tokens.next_id();
    for _ in 0..3 {
        first.look(&stage.service);
        assert_eq!((next(), stage.names()), (2, vec![FIRST.to_owned()]));
    }
    stage.now.fetch_add(TTL_US, Ordering::SeqCst);
    for _ in 0..3 {
        first.look(&stage.service);
        assert_eq!((next(), stage.names()), (3, vec![FIRST.to_owned()]));
    }
}
