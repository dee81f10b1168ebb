//! What a node says of itself without spending anything.

use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::node::{NodeConfig, NodeGroup};
use tidegate_core::units::Ru;

use super::{at, free, node, queued, terms, used};

#[test]
fn a_check_answers_as_an_admission_would_and_changes_nothing() {
    let mut waited_for = node(terms(0, 50, 20));
    queued(waited_for.acquire(at(1), Ru::whole(30), at(60_000)));
    let mut passed = node(terms(100, 50, 0));
    queued(passed.acquire(at(1), Ru::whole(80), at(60_000)));
    for (what, mut node, cost, admits) in [
        ("no lease", NodeGroup::new(at(0), NodeConfig::default()), 1, false),
        ("enough", node(terms(0, 50, 20)), 20, true),
        ("too little", node(terms(0, 50, 20)), 21, false),
        ("an earlier operation waits", waited_for, 1, false),
        ("an earlier operation waits for a lump", passed.clone(), 30, true),
        ("the bucket does not suffice to pass it", passed, 31, false),
    ] {
        let would = node.clone().try_acquire(at(301), Ru::whole(cost));
        assert_eq!(would.is_ok(), admits, "{what}");
        let before = (node.state(at(301)), *node.consumption());
        assert_eq!(node.check(at(301), Ru::whole(cost)), would.map(drop), "{what}");
        assert_eq!((node.state(at(301)), *node.consumption()), before, "{what}");
    }
}

#[test]
fn what_remains_is_the_bucket_and_the_lump_and_never_less_than_nothing() {
    let mut node = node(LeaseTerms { fill: Ru::whole(30), ..terms(0, 50, 20) });
    assert_eq!(node.look().remaining(), Some(Ru::whole(50)));
    node.charge(at(1), &used(45));
    assert_eq!(node.look().remaining(), Some(Ru::whole(5)));
    node.charge(at(1), &used(45));
    assert_eq!(node.look().remaining(), Some(Ru::ZERO), "40 RU are owed");
    node.ask(at(10), 2);
    node.on_grant(at(11), 2, &free(5));
    assert_eq!(node.look().remaining(), None, "without a limit");
}

#[test]
fn the_largest_operation_that_fits_is_what_the_last_answer_said() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    assert_eq!(node.look().max_fit(), Ru::MAX, "nobody knows");
    node.ask(at(0), 1);
    node.on_grant(at(1), 1, &Grant::Leased(terms(100, 50, 0)));
    assert_eq!(node.look().max_fit(), Ru::whole(1_000));
    node.ask(at(100), 2);
    node.on_grant(at(101), 2, &free(5));
    assert_eq!(node.look().max_fit(), Ru::MAX, "without a limit");
}
