//! What a node reports of its load, and what it gives back, while others wait.

use tidegate_core::exchange::{Ask, LeaseTerms};
use tidegate_core::units::{Rate, Ru};

use super::{Admitted, at, node, terms};

/// Renews at 2,000 ms, when so much has come, each a millisecond after its time.
fn renews_after(load: &[(u64, Ru)], terms: LeaseTerms) -> Ask {
    let mut node = node(terms);
    for (ms, cost) in load {
        assert_eq!(node.try_acquire(at(ms + 1), *cost), Ok(Admitted::Paid), "{ms} ms");
    }
    node.ask(at(2_000), 2)
}

/// Others wait; the bucket is full again after 50 ms.
fn scarce() -> LeaseTerms {
    LeaseTerms { scarce: true, ..terms(1_000, 50, 0) }
}

#[test]
fn a_load_that_has_gone_elsewhere_is_reported_gone_if_others_wait_and_nothing_is_missing_here() {
    // 40 RU in the last second, of which the last 300 ms saw none, less than a quarter or a quarter.
    let gone = [(1_000, Ru::whole(40))];
    let thinned = [(1_000, Ru::whole(38)), (1_800, Ru::whole(2))];
    let noisy = [(1_000, Ru::whole(37)), (1_800, Ru::whole(3))];
    let reported = |load: &[_], terms| renews_after(load, terms).demand;
    assert_eq!(reported(&gone, scarce()), Rate::ZERO);
    assert_eq!(reported(&thinned, scarce()), Rate(6_666_666));
    assert_eq!(reported(&noisy, scarce()), Rate::whole(40));
    assert_eq!(reported(&gone, terms(1_000, 50, 0)), Rate::whole(40), "nobody else needs the rate");
    // The bucket is still filling, so the load may be what it lacks.
    let filling = LeaseTerms { scarce: true, fill: Ru::whole(50), ..terms(10, 50, 0) };
    assert_eq!(reported(&gone, filling), Rate::whole(40));
}

#[test]
fn who_holds_much_more_than_its_load_lowers_its_rate_to_twice_the_load_if_others_wait() {
    for (load, scarce, held) in
        [(100, true, 200), (374, true, 748), (375, true, 1_000), (500, true, 1_000), (100, false, 1_000)]
    {
        let tenths: Vec<_> = (10..20).map(|tenth| (tenth * 100, Ru(load * 100_000))).collect();
        let ask = renews_after(&tenths, LeaseTerms { scarce, ..terms(1_000, 50, 0) });
        assert_eq!(ask.held.rate, Rate::whole(held), "a load of {load} RU/s");
    }
}
