//! Two controllers run on copies of one store at the same time, and nodes meet both. Time advances only when the test
//! moves it, except with sockets.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::clock::Clock;
use tidegate_controller::service::{Seen, Service, ServiceConfig, SessionError, Silence};
use tidegate_controller::store::Store;
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::client_message::Kind as Ask;
use tonic::Code;

use crate::support::{Lab, MemoryStore, Node, copy, store_path};

/// How long a controller that yields is silent after the other was last known to live, in seconds.
const PRESENCE_S: u64 = 60;

/// The wall clock of all, in microseconds; each controller counts from its start.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    fn start(&self, store: Arc<dyn Store>) -> Service {
        Service::load(store, ServiceConfig::default(), Clock::driven(Arc::clone(&self.0))).unwrap()
    }
}

/// A node brings the standing it got elsewhere, and gets a new one.
fn visit(service: &Service, seen: &Seen) -> Result<Seen, SessionError> {
    service.leasing().heed("node", seen)?;
    let session = service.leasing().hello("node", 1, "test")?;
    Ok(Seen { epoch: session.epoch, standing: session.standing })
}

fn is_silent(service: &Service) -> bool {
    matches!(service.silence(), Some(Silence::Twin(_)))
}

fn warnings(service: &Service) -> String {
    service.status().warnings.join("\n")
}

/// The first controller, which goes on, and one that starts three seconds later on a copy of its store. With
/// `after_stop`, the copy is older than that start of the first one.
fn two(hand: &Hand, after_stop: bool) -> (Service, Service) {
    let store = Arc::new(MemoryStore::default());
    hand.start(Arc::clone(&store) as Arc<dyn Store>).shut_down().unwrap();
    let before = copy(&*store);
    let first = hand.start(Arc::clone(&store) as Arc<dyn Store>);
    hand.pass(3);
    let copied = if after_stop { before } else { copy(&*store) };
    (first, hand.start(copied))
}

#[test]
fn the_one_that_began_later_falls_silent_and_both_say_so() {
    for after_stop in [true, false] {
        let hand = Hand::default();
        let (first, second) = two(&hand, after_stop);
        let mut seen = Seen::default();
        let mut trips = 0;
        while let Ok(told) = visit(&first, &seen).and_then(|seen| visit(&second, &seen)) {
            hand.pass(1);
            seen = told;
            trips += 1;
            assert!(trips < 5, "a node goes to and fro and nobody yields");
        }
        assert!(is_silent(&second) && !is_silent(&first), "the copy was made before: {after_stop}");
        let (leads, yields) = (warnings(&first), warnings(&second));
        assert!(leads.contains("runs on a copy of this store and began later"), "{leads}");
        assert!(
            yields.contains("began earlier; this one is silent for") && yields.contains("stop one"),
            "{yields}"
        );
        assert!(!yields.contains("began later"), "the one that leads is not told to stop: {yields}");
        assert_eq!((first.metrics.twins.get(), second.metrics.twins.get()), (1, 1));
        assert!(visit(&first, &seen).is_ok(), "nodes go on with the other");
    }
}

/// Both know of each other, and the second is silent; with the last standings of the first and of the second.
fn met(hand: &Hand) -> (Service, Service, Seen, Seen) {
    let (first, second) = two(hand, true);
    let by_first = visit(&first, &Seen::default()).unwrap();
    let by_second = visit(&second, &by_first).unwrap();
    let by_first = visit(&first, &by_second).unwrap();
    let refused = visit(&second, &by_first).unwrap_err();
    assert!(matches!(refused, SessionError::Silent(Silence::Twin(_))), "{refused}");
    (first, second, by_first, by_second)
}

#[test]
fn it_speaks_again_when_the_other_is_gone_and_recovers_first() {
    let hand = Hand::default();
    let (first, second, by_first, _) = met(&hand);
    drop(first);
    hand.pass(PRESENCE_S - 1);
    // However often a node brings the same old standing.
    assert!(visit(&second, &by_first).is_err());
    hand.pass(1);
    let told = visit(&second, &by_first).unwrap();
    assert!(!is_silent(&second) && told.epoch > by_first.epoch);
    let recovery = second.status().recovery;
    assert!(
        recovery > Span::secs(4) && recovery <= Span::secs(6),
        "what the other leased is out: {recovery}"
    );
}

#[test]
fn it_recovers_for_what_the_other_leased_though_nobody_comes_from_it() {
    let hand = Hand::default();
    let (first, second, ..) = met(&hand);
    drop(first);
    hand.pass(PRESENCE_S);
    // Nobody brings a standing of the other any more.
    let session = second.leasing().hello("newcomer", 1, "test").unwrap();
    assert!(Span::secs(4) < session.recovery && session.recovery <= Span::secs(6), "{}", session.recovery);
}

#[test]
fn it_stays_silent_as_long_as_nodes_come_from_the_other() {
    let hand = Hand::default();
    let (first, second, mut by_first, _) = met(&hand);
    for _ in 0..10 {
        hand.pass(PRESENCE_S / 2);
        by_first = visit(&first, &by_first).unwrap();
        assert!(visit(&second, &by_first).is_err());
    }
    assert!(is_silent(&second) && first.silence().is_none());
    assert_eq!(second.metrics.twins.get(), 1, "it is one and the same");
}

#[test]
fn no_node_can_silence_a_controller_with_what_it_kept_or_made_up() {
    let hand = Hand::default();
    let (first, second, by_first, by_second) = met(&hand);
    // The first never yields to the second, and a standing that was altered is not believed.
    assert!(visit(&first, &by_second).is_ok() && !is_silent(&first));
    for at in 0..by_second.standing.len() {
        for bit in 0..8 {
            let mut forged = by_second.clone();
            forged.standing[at] ^= 1 << bit;
            first.leasing().heed("liar", &forged).unwrap();
            assert!(first.silence().is_none(), "byte {at}, bit {bit}");
        }
    }
    // The first has ended; nodes bring all its earlier standings again and again.
    drop(first);
    hand.pass(PRESENCE_S);
    for _ in 0..20 {
        for seen in [&by_first, &by_second] {
            assert!(visit(&second, seen).is_ok() && !is_silent(&second));
        }
        hand.pass(7);
    }
}

#[tokio::test]
async fn over_sockets_a_node_that_meets_both_ends_with_one() {
    let lab = Lab::start().await;
    let Lab { folder, running } = lab;
    running.shutdown().await.unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::copy(store_path(&folder), store_path(&other)).unwrap();
    let labs = [Lab::at(folder).await, Lab::at(other).await];
    let (mut epoch, mut standing) = (0, Vec::new());
    let mut refused = None;
    'trips: for _ in 0..4 {
        for (place, lab) in labs.iter().enumerate() {
            let hello = v1::Hello {
                protocol_min: 1,
                protocol_max: 1,
                client_id: "node".to_owned(),
                incarnation: 1,
                seen_epoch: epoch,
                seen_standing: std::mem::take(&mut standing),
                ..v1::Hello::default()
            };
            match Node::open(lab, Ask::Hello(hello)).await {
                Ok(node) => (epoch, standing) = (node.welcome.epoch, node.welcome.standing.clone()),
                Err(status) => {
                    refused = Some((place, status));
                    break 'trips;
                }
            }
        }
    }
    let (place, status) = refused.unwrap();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status.message().contains("began earlier") && status.message().contains("stop one of them"),
        "{status}"
    );
    let silent: Vec<bool> = labs.iter().map(|lab| is_silent(lab.running.service())).collect();
    assert_eq!(silent.iter().filter(|silent| **silent).count(), 1);
    assert!(silent[place], "{silent:?}");
}
