//! What controllers take from nodes that have seen others: copies of the store, starts before this one, and strangers;
//! in driven time and by the calls of the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_controller::audit::Actor;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{Seen, Service, ServiceConfig, SessionError, Silence};
use tidegate_controller::store::Store;
use tidegate_core::engine::EngineConfig;
use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1;

use crate::support::{Faulty, MemoryStore, copy, group};

const SECOND: u64 = 1_000_000;

/// The clock of all controllers.
#[derive(Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn pass(&self, us: u64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }

    fn start(&self, store: &Arc<impl Store + 'static>) -> Service {
        let store = Arc::clone(store) as Arc<dyn Store>;
        Service::load(store, ServiceConfig::default(), Clock::driven(Arc::clone(&self.0))).unwrap()
    }
}

/// A group whose leases last so many seconds.
fn lasting(seconds: u64) -> v1::Group {
    v1::Group { ttl_us: seconds * SECOND, ..group("web", "100") }
}

fn create(service: &Service, seconds: u64) {
    service.definitions().create_group(&Actor::new(None, "test"), &lasting(seconds), false).unwrap();
}

fn lasts(service: &Service, seconds: u64) {
    let mask = ["ttl_us", "renew_us"].map(str::to_owned);
    service.definitions().alter_group(&Actor::new(None, "test"), &lasting(seconds), &mask, 0).unwrap();
}

/// What a node has seen that speaks to a controller.
fn seen(service: &Service) -> Seen {
    let session = service.leasing().hello("node", 1, "test").unwrap();
    Seen { epoch: session.epoch, standing: session.standing }
}

fn heeds(service: &Service, seen: &Seen) {
    service.leasing().heed("node", seen).unwrap();
}

fn recovery(service: &Service) -> u64 {
    service.leasing().recovery_of("web").unwrap().0
}

fn in_use(seconds: u64) -> u64 {
    EngineConfig::default().longest_use(Span::secs(seconds)).0
}

fn says_set_back(service: &Service) -> bool {
    service.status().warnings.iter().any(|warning| warning.contains("is a copy or was set back"))
}

/// A store with a group whose leases last for ten seconds, after a stop in order; and a copy of it.
fn two(hand: &Hand) -> (Arc<Faulty>, Arc<MemoryStore>) {
    let store = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let service = hand.start(&store);
    create(&service, 10);
    service.shut_down().unwrap();
    let copied = copy(&*store);
    (store, copied)
}

/// A start on the store, beside one on the copy whose leases last for 40 seconds.
fn beside_longer(hand: &Hand) -> (Arc<Faulty>, Service, Service) {
    let (store, copied) = two(hand);
    let service = hand.start(&store);
    let other = hand.start(&copied);
    lasts(&other, 40);
    (store, service, other)
}

#[test]
fn a_start_on_a_copy_is_recovered_from_for_its_longest_lease_whichever_start_hears_of_it() {
    let hand = Hand::default();
    let (store, service, other) = beside_longer(&hand);
    let of_other = seen(&other);
    hand.pass(7 * SECOND);
    assert!(service.leasing().is_news(&of_other) && !service.leasing().is_news(&Seen::default()));
    heeds(&service, &of_other);
    assert_eq!(recovery(&service), in_use(40), "from now on");
    let epoch = service.epoch();
    assert!(epoch > of_other.epoch && says_set_back(&service));
    assert_eq!((service.metrics.set_back.get(), service.metrics.epoch.get()), (1, epoch.cast_signed()));
    // Once.
    hand.pass(SECOND);
    heeds(&service, &of_other);
    assert_eq!((service.metrics.set_back.get(), service.epoch()), (1, epoch));
    assert_eq!(recovery(&service), in_use(40) - SECOND);
    // The next start waits as long, and does not have to be told.
    for flushed in [false, true] {
        let service = hand.start(&store);
        if flushed {
            // Longer leases are forgotten when they have ended, and not before.
            hand.pass(in_use(10) + SECOND);
            service.upkeep().flush().unwrap();
        }
        drop(service);
        let service = hand.start(&store);
        assert_eq!(recovery(&service), in_use(40), "flushed: {flushed}");
        assert_eq!(service.status().recovery.0, in_use(40));
        heeds(&service, &of_other);
        assert_eq!((service.metrics.set_back.get(), says_set_back(&service)), (0, false));
    }
}

#[test]
fn what_was_heard_is_forgotten_by_the_one_that_heard_it_when_those_leases_have_ended() {
    let hand = Hand::default();
    let (store, service, other) = beside_longer(&hand);
    heeds(&service, &seen(&other));
    hand.pass(in_use(40) - 1);
    service.upkeep().flush().unwrap();
    drop(service);
    assert_eq!(recovery(&hand.start(&store)), in_use(40), "a moment before");
    hand.pass(in_use(40));
    let service = hand.start(&store);
    hand.pass(in_use(40));
    service.upkeep().flush().unwrap();
    drop(service);
    assert_eq!(recovery(&hand.start(&store)), in_use(10));
}

#[test]
fn leases_of_this_store_may_be_out_for_longer_than_those_of_a_start_on_a_copy() {
    let hand = Hand::default();
    let (store, copied) = two(&hand);
    let service = hand.start(&store);
    lasts(&service, 50);
    let other = hand.start(&copied);
    heeds(&service, &seen(&other));
    assert_eq!(recovery(&service), in_use(50), "the copy may be of a moment at which they had been given");
}

/// It would lead nodes to a controller that knows less than the other one.
#[test]
fn an_epoch_that_cannot_be_stored_is_not_led() {
    let hand = Hand::default();
    let (store, copied) = two(&hand);
    let service = hand.start(&store);
    let of_other = seen(&hand.start(&copied));
    store.fill(true);
    let refused = service.leasing().heed("node", &of_other).unwrap_err();
    assert!(matches!(refused, SessionError::Behind { seen, .. } if seen == of_other.epoch), "{refused}");
    assert_eq!((service.epoch(), service.metrics.set_back.get()), (1, 0));
    store.fill(false);
    heeds(&service, &of_other);
    assert!(service.epoch() > of_other.epoch);
}

#[test]
fn a_signed_epoch_is_led_above_whatever_the_node_says_beside_it() {
    let hand = Hand::default();
    let (store, copied) = two(&hand);
    let service = hand.start(&store);
    drop(hand.start(&copied));
    for (starts, led) in [(1, 4), (1, 5), (0, 5)] {
        (0..starts).for_each(|_| drop(hand.start(&copied)));
        let other = hand.start(&copied);
        let of_other = Seen { epoch: 0, ..seen(&other) };
        drop(other);
        heeds(&service, &of_other);
        assert!(service.epoch() > led - 1, "{} for {led}", service.epoch());
    }
    // An equal epoch of another start does not do, either.
    let (store, copied) = two(&hand);
    let service = hand.start(&store);
    drop(service);
    let service = hand.start(&store);
    let other = hand.start(&copied);
    assert_eq!((service.epoch(), other.epoch()), (2, 2));
    heeds(&service, &Seen { epoch: 0, ..seen(&other) });
    assert_eq!(service.epoch(), 3);
}

#[test]
fn the_start_before_this_one_is_known_and_is_no_copy() {
    let hand = Hand::default();
    let store = Arc::new(MemoryStore::default());
    let before = hand.start(&store);
    create(&before, 10);
    let of_before = seen(&before);
    drop(before);
    let service = hand.start(&store);
    let recovers = recovery(&service);
    heeds(&service, &of_before);
    assert_eq!((service.epoch(), recovery(&service), service.metrics.set_back.get()), (2, recovers, 0));
    assert!(!says_set_back(&service));
}

/// The store was set back to a copy that the start before this one made, and went on from.
#[test]
fn a_start_before_this_one_that_gave_longer_leases_is_recovered_from_since_this_start() {
    for (passed, news) in [(5 * SECOND, 1), (in_use(40), 0)] {
        let hand = Hand::default();
        let store = Arc::new(MemoryStore::default());
        let before = hand.start(&store);
        create(&before, 10);
        let copied = copy(&*store);
        lasts(&before, 40);
        let of_before = seen(&before);
        drop(before);
        let service = hand.start(&copied);
        assert_eq!(recovery(&service), in_use(10));
        hand.pass(passed);
        heeds(&service, &of_before);
        assert_eq!(recovery(&service), in_use(40) - passed);
        assert_eq!(service.metrics.set_back.get(), news, "after {passed} us");
    }
}

#[test]
fn a_stop_in_order_hands_over_all_leases_whatever_nodes_say_of_their_length() {
    let hand = Hand::default();
    let store = Arc::new(MemoryStore::default());
    let before = hand.start(&store);
    create(&before, 40);
    let of_before = seen(&before);
    lasts(&before, 2);
    before.shut_down().unwrap();
    drop(before);
    let service = hand.start(&store);
    heeds(&service, &of_before);
    assert_eq!((recovery(&service), service.metrics.set_back.get()), (0, 0));
}

#[test]
fn a_new_store_believes_strangers_for_a_minute_and_no_lease_longer_than_there_are() {
    let stranger = {
        let hand = Hand::default();
        let other = hand.start(&Arc::new(MemoryStore::default()));
        create(&other, 30);
        seen(&other)
    };
    let new = |hand: &Hand| {
        let service = hand.start(&Arc::new(MemoryStore::default()));
        create(&service, 10);
        service
    };
    for (passed, recovers) in [(0, in_use(30)), (60 * SECOND - 1, in_use(30)), (60 * SECOND, 0)] {
        let hand = Hand::default();
        let service = new(&hand);
        hand.pass(passed);
        heeds(&service, &stranger);
        assert_eq!(recovery(&service), recovers, "after {passed} us");
    }
    // The same again within a second is nothing new.
    let hand = Hand::default();
    let service = new(&hand);
    heeds(&service, &stranger);
    hand.pass(SECOND);
    assert!(!service.leasing().is_news(&Seen { epoch: 0, ..stranger.clone() }));
    hand.pass(1);
    assert!(service.leasing().is_news(&Seen { epoch: 0, ..stranger.clone() }));
    // Made up: the words of a standing are its instance, its epoch and its longest lease.
    let mut forged = stranger;
    forged.standing[18..26].fill(0xff);
    let service = new(&Hand::default());
    heeds(&service, &forged);
    assert_eq!(recovery(&service), in_use(60));
}

/// A node goes to and fro until the second controller, which runs on a copy, yields to the first.
fn yields(hand: &Hand, first: &Service, second: &Service) {
    let mut of_second = Seen::default();
    for _ in 0..5 {
        heeds(first, &of_second);
        let of_first = seen(first);
        heeds(second, &of_first);
        match second.leasing().hello("node", 1, "test") {
            Ok(session) => of_second = Seen { epoch: session.epoch, standing: session.standing },
            Err(error) => {
                assert!(matches!(error, SessionError::Silent(Silence::Twin(_))), "{error}");
                return;
            }
        }
        hand.pass(SECOND);
    }
    panic!("nobody yields");
}

/// The longest of both: nodes may hold leases of either.
#[test]
fn one_that_yielded_recovers_for_the_longest_lease_of_both() {
    for (of_first, of_second) in [(10, 50), (50, 10)] {
        let hand = Hand::default();
        let (store, copied) = two(&hand);
        let first = hand.start(&store);
        hand.pass(3 * SECOND);
        let second = hand.start(&copied);
        lasts(&first, of_first);
        lasts(&second, of_second);
        yields(&hand, &first, &second);
        hand.pass(60 * SECOND);
        assert_eq!(second.silence(), None);
        let left = recovery(&second);
        assert!(left > in_use(50) - 5 * SECOND && left <= in_use(50), "{of_first}, {of_second}: {left} us");
    }
}

#[test]
fn one_that_yields_recovers_for_leases_that_the_other_gives_since_then() {
    let hand = Hand::default();
    let (store, copied) = two(&hand);
    let first = hand.start(&store);
    hand.pass(3 * SECOND);
    let second = hand.start(&copied);
    yields(&hand, &first, &second);
    hand.pass(10 * SECOND);
    lasts(&first, 50);
    heeds(&second, &seen(&first));
    hand.pass(60 * SECOND);
    assert_eq!(second.silence(), None);
    assert!(recovery(&second) > in_use(50) - 5 * SECOND, "{} us", recovery(&second));
}

#[test]
fn every_controller_that_runs_on_a_copy_is_counted_and_only_one_that_yields_says_that_it_began_later() {
    let hand = Hand::default();
    let (store, copied) = two(&hand);
    let first = hand.start(&store);
    let others: Vec<_> = (1..3)
        .map(|number| {
            hand.pass(3 * SECOND);
            let other = hand.start(&copy(&*copied));
            heeds(&other, &seen(&first));
            heeds(&first, &seen(&other));
            assert_eq!(first.metrics.twins.get(), number);
            other
        })
        .collect();
    let warns = |service: &Service, text: &str| {
        service.status().warnings.iter().any(|warning| warning.contains(text))
    };
    assert!(warns(&first, "began later: it falls silent"));
    heeds(&others[1], &seen(&first));
    assert!(warns(&others[1], "began earlier") && !warns(&others[1], "began later: it falls silent"));
}

/// What a stranger says takes nothing from what this store knows of its own leases.
#[test]
fn a_stranger_with_shorter_leases_shortens_no_recovery() {
    let hand = Hand::default();
    let stranger = {
        let other = hand.start(&Arc::new(MemoryStore::default()));
        create(&other, 30);
        seen(&other)
    };
    let store = Arc::new(MemoryStore::default());
    let service = hand.start(&store);
    create(&service, 50);
    lasts(&service, 2);
    heeds(&service, &stranger);
    drop(service);
    assert_eq!(recovery(&hand.start(&store)), in_use(50));
}

#[test]
fn a_raised_epoch_alone_makes_no_recovery_longer() {
    let hand = Hand::default();
    let store = Arc::new(MemoryStore::default());
    let service = hand.start(&store);
    create(&service, 2);
    let other = v1::Group { name: "other".into(), ..lasting(40) };
    service.definitions().create_group(&Actor::new(None, "test"), &other, false).unwrap();
    heeds(&service, &Seen { epoch: 7, standing: Vec::new() });
    assert_eq!((service.epoch(), recovery(&service)), (8, 0));
    drop(service);
    let service = hand.start(&store);
    assert_eq!((service.epoch(), recovery(&service)), (9, in_use(2)));
}

/// Groups that are made later share the server with leases of which nobody here knows.
#[test]
fn the_capacity_recovers_after_a_crash_for_what_was_heard_and_as_long_as_it_lasts() {
    for crashes in [0, in_use(10) + SECOND, in_use(40)] {
        let hand = Hand::default();
        let (store, service, other) = beside_longer(&hand);
        heeds(&service, &seen(&other));
        hand.pass(crashes);
        service.upkeep().flush().unwrap();
        drop(service);
        let config = ServiceConfig { capacity: Some(Rate::whole(500)), ..ServiceConfig::default() };
        let clock = Clock::driven(Arc::clone(&hand.0));
        let service = Service::load(store as Arc<dyn Store>, config, clock).unwrap();
        let fresh = v1::Group { name: "fresh".into(), ..lasting(2) };
        service.definitions().create_group(&Actor::new(None, "test"), &fresh, false).unwrap();
        let recovers = service.leasing().recovery_of("fresh").unwrap().0;
        let longest = if crashes < in_use(40) { 40 } else { 10 };
        assert_eq!(recovers, in_use(longest), "after {crashes} us");
    }
}
