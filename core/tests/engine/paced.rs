//! Paced limits: leases of a rate and nothing at once, for the group and all below it.

use tidegate_core::group::Policy;
use tidegate_core::units::{Ru, Span};

use super::*;

/// GROUP below a group of 400 RU/s, beside one of 300 RU/s below the same.
fn tree(above: Policy, group: Policy) -> Engine {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let spec = |rate, parent, policy| GroupSpec { parent, policy, ..GroupSpec::capped(Rate::whole(rate)) };
    engine.put_group(at(0), GroupId(3), spec(400, None, above)).unwrap();
    engine.put_group(at(0), GROUP, spec(100, Some(GroupId(3)), group)).unwrap();
    engine.put_group(at(0), GroupId(4), spec(300, Some(GroupId(3)), Policy::TokenBucket)).unwrap();
    engine
}

/// An operation of 90 RU waits.
fn waits() -> Ask {
    Ask { backlog: Ru::whole(90), head: Ru::whole(90), largest: Ru::whole(90), waiting: 1, ..wants(90) }
}

#[test]
fn a_lease_is_a_rate_and_nothing_at_once_below_a_paced_limit() {
    use Policy::{Paced, TokenBucket};
    for (above, group) in
        [(TokenBucket, TokenBucket), (TokenBucket, Paced), (Paced, TokenBucket), (Paced, Paced)]
    {
        let mut engine = tree(above, group);
        let terms = leased(engine.renew(at(1_000), A, GROUP, 1, &waits(), None));
        let paced = above == Paced || group == Paced;
        assert_eq!(terms.enforcement.paced, paced);
        if paced {
            assert_eq!((terms.fill, terms.lump), (Ru::ZERO, Ru::ZERO), "{terms:?}");
            assert_eq!((terms.rate, terms.cap), (Rate::whole(100), Rate::whole(100).over(Span::millis(5))));
            assert_eq!(terms.max_fit, Ru::whole(100), "the burst is the largest operation");
        } else {
            assert!((terms.cap + terms.lump) >= Ru::whole(90), "{terms:?}");
        }
        let beside = leased(engine.renew(at(1_000), A, GroupId(4), 1, &wants(10), None));
        assert_eq!(beside.enforcement.paced, above == Paced);
        assert!(!beside.lump_wanted || !paced, "nobody waits for a lump below a paced limit");
    }
}

/// What a node owes for the operation that runs is expected, however large that is.
#[test]
fn the_debt_that_is_expected_covers_the_largest_operation() {
    let mut engine = tree(Policy::TokenBucket, Policy::Paced);
    let spec = |policy| GroupSpec {
        parent: Some(GroupId(3)),
        max_debt: Ru::whole(7),
        policy,
        ..GroupSpec::capped(Rate::whole(100))
    };
    for (seq, policy, expected) in [(1, Policy::Paced, 100), (2, Policy::TokenBucket, 7)] {
        engine.put_group(at(1), GROUP, spec(policy)).unwrap();
        let terms = leased(engine.renew(at(1_000 * seq), A, GROUP, seq, &wants(10), None));
        assert_eq!(terms.max_debt, Ru::whole(expected));
    }
}

/// Tokens of a bucket that was full before are not handed out on top of the rate.
#[test]
fn a_limit_that_becomes_paced_hands_out_no_burst() {
    let mut engine = tree(Policy::TokenBucket, Policy::TokenBucket);
    let spec = |policy| GroupSpec { parent: Some(GroupId(3)), policy, ..GroupSpec::capped(Rate::whole(100)) };
    let before = leased(engine.renew(at(1_000), A, GROUP, 1, &wants(500), None));
    engine.put_group(at(1_001), GROUP, spec(Policy::Paced)).unwrap();
    let terms = leased(engine.renew(at(2_000), A, GROUP, 2, &holds(waits(), 1, &before), None));
    assert!(terms.enforcement.paced && terms.fill == Ru::ZERO && terms.lump == Ru::ZERO, "{terms:?}");
    assert!(terms.cap <= Rate::whole(100).over(Span::millis(5)));
    // Another node has a part of the rate, and no tokens either.
    let other = leased(engine.renew(at(2_001), B, GROUP, 1, &waits(), None));
    assert_eq!((other.fill, other.lump), (Ru::ZERO, Ru::ZERO));
}
