//! Messages that cross or are lost make no tokens: one rule a test. Times are in milliseconds, rates and amounts in whole
//! RU.

#![expect(clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::node::{Admitted, NodeConfig, NodeGroup};
use tidegate_core::units::{Rate, Ru, Span};

use common::{at, leased};

const GROUP: GroupId = GroupId(2);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn holds(terms: &LeaseTerms) -> Held {
    Held { rate: terms.rate, cap: terms.cap, lump: terms.lump }
}

#[test]
fn what_a_lowered_bucket_set_aside_is_not_earned_once_more_by_one_that_is_deeper_again() {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    node.ask(at(0), 1);
    let (rate, cap, ttl) = (Rate::whole(50), Ru::whole(25), Span::secs(5));
    let terms = LeaseTerms { rate, cap, ttl, max_fit: cap, ..LeaseTerms::default() };
    node.on_grant(at(0), 1, &Grant::Leased(LeaseTerms { fill: cap, ..terms }));
    node.ask(at(1_000), 2);
    node.on_lower(at(1_001), Rate::whole(20));
    assert_eq!(node.state(at(1_001)).available, Ru::whole(10), "fifteen are set aside");
    // The answer was under way when the order came.
    node.on_grant(at(1_002), 2, &Grant::Leased(terms));
    assert_eq!(node.try_acquire(at(3_000), cap), Ok(Admitted::Paid));
    assert_eq!(node.ask(at(3_000), 3).returned, Ru::ZERO);
}

#[test]
fn a_fill_that_never_came_is_not_given_back_beside_what_was_earned_in_its_place() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    let ahead = Span::millis(400);
    let first = Ask { demand: Rate::whole(40), ahead, ..Ask::default() };
    let a = leased(engine.renew(at(0), A, GROUP, 1, &first, None));
    let b = leased(engine.renew(at(0), B, GROUP, 1, &first, None));
    let steady = Rate::whole(20);
    let large = Ask { head: Ru::whole(95), backlog: Ru::whole(95), steady, ..first };
    let ask = |acked_seq, terms: &LeaseTerms| Ask { acked_seq, held: holds(terms), ..large };
    let a = leased(engine.renew(at(100), A, GROUP, 2, &ask(1, &a), None));
    let a = leased(engine.renew(at(200), A, GROUP, 3, &ask(2, &a), None));
    let idle = Ask { acked_seq: 1, held: holds(&b), ..first };
    engine.renew(at(4_000), B, GROUP, 2, &idle, None);
    let lost = leased(engine.renew(at(4_000), A, GROUP, 4, &ask(3, &a), None));
    assert!(lost.fill.is_positive() && lost.cap <= a.cap, "{lost:?}");
    // A second later everything is full again: the pool, and the bucket of A that got no fill.
    engine.release(at(5_000), B);
    let full = engine.group_view(GROUP).unwrap().pool;
    let done = Ask { acked_seq: 3, held: holds(&a), ..first };
    let again = leased(engine.renew(at(5_000), A, GROUP, 5, &done, None));
    let left = engine.group_view(GROUP).unwrap().pool;
    assert_eq!(left + again.fill + again.lump, full, "{again:?}");
}
