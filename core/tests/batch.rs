//! Batches of tokens that threads spend on their own: the group gains nothing by them, and knows all of it afterwards.

use proptest::prelude::*;
use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::node::{NodeConfig, NodeGroup, Spent};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Consumption, RuParts};

const fn at(ms: u64) -> Time {
    Time(ms * 1_000)
}

/// A lease of `rate` RU/s with a full bucket of `cap` RU, until the fifth second.
fn leased(rate: i64, cap: i64) -> NodeGroup {
    leased_up_to(Ru::MAX, rate, cap)
}

/// The same where no operation above `max_fit` is ever admitted.
fn leased_up_to(max_fit: Ru, rate: i64, cap: i64) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    node.ask(at(0), 1);
    let terms = LeaseTerms {
        rate: Rate::whole(rate),
        cap: Ru::whole(cap),
        fill: Ru::whole(cap),
        ttl: Span::secs(5),
        renew_after: Span::secs(1),
        max_fit,
        ..LeaseTerms::default()
    };
    node.on_grant(at(0), 1, &Grant::Leased(terms));
    node
}

fn charged(ru: Ru, operations: u64) -> Consumption {
    Consumption { charged: RuParts::flat(ru), operations, ..Consumption::default() }
}

#[test]
fn a_batch_leaves_the_bucket_and_what_is_not_spent_comes_back() {
    let mut node = leased(0, 800);
    let batch = node.draw(at(10), Ru::whole(1)).unwrap();
    assert_eq!(batch.tokens, Ru::whole(175), "a quarter of what is above an eighth");
    assert_eq!(batch.until, at(110));
    assert_eq!(node.state(at(10)).available, Ru::whole(625));
    assert_eq!(node.look().remaining(), Some(Ru::whole(800)), "the group still has it");
    let spent = Spent {
        drawn: batch.tokens,
        left: Ru::whole(75),
        arrived: Ru::whole(100),
        refused: 2,
        operations: batch.operations,
        begun: 50,
        actual: charged(Ru::whole(100), 50),
    };
    node.put_back(at(50), &spent);
    assert_eq!(node.state(at(50)).available, Ru::whole(700));
    assert_eq!(node.state(at(50)).demand, Rate::whole(1_000));
    let total = node.consumption();
    assert_eq!((total.ru().clamped(), total.operations, total.throttled), (Ru::whole(100), 50, 2));
}

#[test]
fn what_threads_hold_counts_in_the_bucket() {
    let mut node = leased(1_000, 800);
    let first = node.draw(at(0), Ru::whole(1)).unwrap();
    // The bucket earns a second's worth and still holds no more than its depth, batches included.
    let second = node.draw(at(1_000), Ru::whole(1)).unwrap();
    assert_eq!(node.state(at(1_000)).available + first.tokens + second.tokens, Ru::whole(800));
    for batch in [first, second] {
        node.put_back(at(1_050), &Spent { drawn: batch.tokens, left: batch.tokens, ..Spent::default() });
    }
    assert_eq!(node.state(at(1_050)).available, Ru::whole(800));
}

#[test]
fn no_batch_outlives_the_lease() {
    let mut node = leased(0, 800);
    let batch = node.draw(at(4_950), Ru::whole(1)).unwrap();
    assert_eq!(batch.until, at(5_000));
    node.put_back(at(6_000), &Spent { drawn: batch.tokens, left: batch.tokens, ..Spent::default() });
    assert_eq!(node.state(at(6_000)).available, Ru::ZERO);
    assert_eq!(node.draw(at(6_000), Ru(1)), None);
}

#[test]
fn there_is_no_batch_past_waiters_debt_or_a_low_bucket() {
    let mut node = leased(0, 100);
    assert_eq!(node.draw(at(0), Ru::whole(2)), None, "less than sixteen operations");
    node.acquire(at(0), Ru::whole(101), at(9_000)).unwrap();
    assert_eq!(node.draw(at(0), Ru(1)), None, "someone waits");
    let mut node = leased(0, 100);
    node.settle(at(0), Ru::ZERO, &charged(Ru::whole(101), 1));
    assert_eq!(node.draw(at(0), Ru(1)), None, "the group owes");
}

#[test]
fn a_batch_covers_sixteen_operations_or_there_is_none() {
    for (cost, tokens) in [(Ru(10_937_500), Some(Ru::whole(175))), (Ru(10_937_501), None)] {
        let batch = leased(0, 800).draw(at(10), cost);
        assert_eq!(batch.map(|batch| batch.tokens), tokens);
    }
}

#[test]
fn a_batch_pays_for_no_operation_that_never_fits() {
    for (max_fit, tokens) in [(100, 100), (174, 174), (175, 175), (176, 175)] {
        let mut node = leased_up_to(Ru::whole(max_fit), 0, 800);
        assert_eq!(node.draw(at(10), Ru::whole(1)).unwrap().tokens, Ru::whole(tokens), "{max_fit}");
    }
}

#[test]
fn refusals_beside_a_batch_make_the_group_ask_early() {
    for (refused, early) in [(0, false), (1, true)] {
        let mut node = leased(0, 800);
        let batch = node.draw(at(10), Ru::whole(1)).unwrap();
        let spent = Spent { drawn: batch.tokens, left: batch.tokens, refused, ..Spent::default() };
        node.put_back(at(50), &spent);
        let due = node.due(at(50)).unwrap();
        assert_eq!(due <= at(50), early, "{refused} refused: {due:?}");
    }
}

#[test]
fn an_unlimited_group_gives_batches_without_end() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    node.ask(at(0), 1);
    let grant = Grant::Unlimited {
        ttl: Span::secs(5),
        renew_after: Span::secs(1),
        fallback: tidegate_core::group::Fallback::Stop,
    };
    node.on_grant(at(0), 1, &grant);
    let batch = node.draw(at(4_990), Ru::whole(1_000)).unwrap();
    assert_eq!((batch.tokens, batch.until), (Ru::MAX, at(5_000)));
    let spent = Spent { drawn: batch.tokens, actual: charged(Ru::whole(7), 1), ..Spent::default() };
    node.put_back(at(4_995), &spent);
    assert_eq!(node.consumption().ru().clamped(), Ru::whole(7));
}

proptest! {
    /// Operations through batches of several threads, returned at any moment: the group spends what it earned and no
    /// more, and counts every charge once.
    #[test]
    fn batches_make_nothing_and_lose_nothing(
        steps in prop::collection::vec((0_u64..40, 0_usize..3, 1_i64..30, any::<bool>()), 1..200),
    ) {
        const RATE: i64 = 200;
        const CAP: i64 = 100;
        let mut node = leased(RATE, CAP);
        let mut out: [Option<(Ru, Time, Spent)>; 3] = Default::default();
        let (mut now, mut admitted, mut operations) = (0, Ru::ZERO, 0);
        for (wait, thread, cost, home) in steps {
            now += wait;
            // The lease ends at 5 s; other tests state what happens then.
            if now >= 4_900 {
                break;
            }
            let cost = Ru::whole(cost).scale(1, 10);
            let slot = &mut out[thread];
            if home && let Some((_, _, spent)) = slot.take() {
                node.put_back(at(now), &spent);
            }
            if slot.is_none() && let Some(batch) = node.draw(at(now), cost) {
                *slot = Some((batch.tokens, batch.until, Spent { drawn: batch.tokens, left: batch.tokens, ..Spent::default() }));
            }
            if let Some((_, until, spent)) = slot && at(now) < *until && spent.left >= cost {
                spent.left -= cost;
                spent.arrived += cost;
                spent.actual.charged = spent.actual.charged.plus(&RuParts::flat(cost));
                spent.actual.operations += 1;
                admitted += cost;
                operations += 1;
            }
            let earned = Ru::whole(CAP) + Rate::whole(RATE).over(Span::millis(now));
            prop_assert!(admitted <= earned, "{admitted} admitted, {earned} earned");
        }
        for (_, _, spent) in out.into_iter().flatten() {
            node.put_back(at(now), &spent);
        }
        prop_assert_eq!((node.consumption().ru().clamped(), node.consumption().operations), (admitted, operations));
        let state = node.state(at(now));
        prop_assert!(state.available <= state.cap && state.available >= Ru::ZERO);
    }
}
