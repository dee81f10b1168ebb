//! Tokens as an admin lists and revokes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tidegate_proto::NOT_GIVEN;

use super::*;
use crate::clock::Clock;
use crate::service::ServiceConfig;
use crate::store::RedbStore;

fn stage() -> (Service, Arc<AtomicU64>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let now = Arc::new(AtomicU64::new(0));
    let clock = Clock::driven(Arc::clone(&now));
    (Service::load(store, ServiceConfig::default(), clock).unwrap(), now, folder)
}

fn actor() -> Actor {
    Actor::new(None, "test")
}

/// Makes a token; returns its number.
fn made(service: &Service, name: &str, role: &str, ttl_us: u64) -> u64 {
    let (name, role) = (name.to_owned(), role.to_owned());
    let wish = v1::CreateTokenRequest { name, role, ttl_us, ..v1::CreateTokenRequest::default() };
    service.tokens().create(&actor(), &wish).unwrap().0.id()
}

#[test]
fn a_page_of_tokens_names_the_next_one_only_if_there_is_more() {
    let (service, _, _folder) = stage();
    let all: Vec<u64> = ["a", "b", "c"].map(|name| made(&service, name, "viewer", 0)).to_vec();
    let page = |after, limit| {
        let reply = service.tokens().list(after, limit).unwrap();
        (reply.tokens.iter().map(|token| token.id).collect::<Vec<_>>(), reply.next_after)
    };
    assert_eq!(page(0, 3), (all.clone(), 0), "a page that ends with the last one");
    assert_eq!(page(0, 2), (all[..2].to_vec(), all[1]));
    assert_eq!(page(all[1], 1), (all[2..].to_vec(), 0));
    assert_eq!(page(all[2], 1), (vec![], 0));
    assert_eq!(page(0, 0), (all, 0));
}

#[test]
fn the_token_of_an_admin_that_is_over_is_revoked_though_there_is_no_other() {
    let (service, now, _folder) = stage();
    let id = made(&service, "root", "admin", 5_000);
    assert_eq!(service.tokens().revoke(&actor(), id, false).unwrap_err().code(), "refused");
    now.store(5_000, Ordering::SeqCst);
    assert_eq!(service.tokens().revoke(&actor(), id, false).unwrap().id(), id);
    assert_eq!(service.tokens().revoke(&actor(), id, true).unwrap_err().code(), "not_found");
}

#[test]
fn the_word_for_groups_that_are_not_given_is_none_that_is_given() {
    let (service, _, _folder) = stage();
    let wish = |group: &str| v1::CreateTokenRequest {
        name: "till".to_owned(),
        role: "node".to_owned(),
        groups: vec!["shop".to_owned(), group.to_owned()],
        ..v1::CreateTokenRequest::default()
    };
    for word in [NOT_GIVEN.to_owned(), NOT_GIVEN.to_ascii_uppercase()] {
        let refused = service.tokens().create(&actor(), &wish(&word)).unwrap_err();
        assert_eq!(refused.field(), Some("groups"), "{word}");
    }
    service.tokens().create(&actor(), &wish("reports")).unwrap();
}
