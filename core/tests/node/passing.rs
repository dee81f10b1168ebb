//! Operations that go on in another group.

use tidegate_core::node::Passing;

use super::*;

#[test]
fn what_goes_on_elsewhere_counts_as_load_and_as_nothing_else() {
    let mut node = node(terms(10, 10, 0));
    let before = node.state(at(1_000));
    assert!(Passing(&mut node).denies(at(1_000), Ru::whole(20), at(1_100)).is_none(), "it would wait");
    assert!(matches!(
        Passing(&mut node).denies(at(1_000), Ru::whole(20), at(1_000)),
        Some(Refusal::Throttled { .. })
    ));
    assert!(matches!(
        Passing(&mut node).denies(at(1_000), Ru::whole(2_000), at(9_000)),
        Some(Refusal::NeverFits { .. })
    ));
    assert_eq!(node.state(at(1_000)).waiting, 0, "asking counts nothing");
    Passing(&mut node).pass_on(at(1_000), Ru::whole(20));
    let after = node.state(at(1_000));
    assert_eq!((after.available, after.waiting, after.debt), (before.available, 0, Ru::ZERO));
    assert!(after.demand > before.demand, "{after:?}");
    assert_eq!((node.consumption().throttled, node.consumption().operations), (0, 0));
    assert!(node.due(at(1_000)).is_some_and(|due| due <= at(1_100)), "it asks soon");
}

#[test]
fn the_size_of_what_went_on_is_reported_while_there_are_such() {
    let mut node = node(terms(10, 10, 0));
    Passing(&mut node).pass_on(at(100), Ru::whole(20));
    assert_eq!(node.ask(at(200), 2).largest, Ru::whole(20));
    assert_eq!(node.ask(at(300), 3).largest, Ru::whole(20));
    assert_eq!(node.ask(at(400), 4).largest, Ru::ZERO, "the last two renewals saw none");
    // One that never fits would deepen the bucket in vain.
    Passing(&mut node).pass_on(at(500), Ru::whole(2_000));
    assert_eq!(node.ask(at(600), 5).largest, Ru::ZERO);
}
