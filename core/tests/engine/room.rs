//! Room for buckets, refunds and leases of before a changed definition: one rule a test. Times are in milliseconds,
//! rates and amounts in whole RU.

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::{A, B, GROUP, at, engine, engine_with, holds, leased, wants};

#[test]
fn leases_that_do_not_fit_a_lowered_limit_end_with_the_older_ones_by_any_clock() {
    for drift_ppm in [0, 1_000, 100_000] {
        for margin in [Span(0), Span::millis(50)] {
            let config = EngineConfig { drift_ppm, margin };
            let mut engine = engine_with(config);
            let all = leased(engine.renew(at(0), A, GROUP, 1, &wants(500), None));
            leased(engine.renew(at(0), B, GROUP, 1, &wants(500), None));
            let half = leased(engine.renew(at(0), A, GROUP, 2, &holds(wants(500), 1, &all), None));
            let half = leased(engine.renew(at(0), A, GROUP, 3, &holds(wants(500), 2, &half), None));
            let rival = leased(engine.renew(at(0), B, GROUP, 2, &Ask { acked_seq: 1, ..wants(500) }, None));
            assert_eq!((half.rate, rival.rate), (Rate::whole(50), Rate::whole(50)));
            engine.put_group(at(2_000), GROUP, GroupSpec::capped(Rate::whole(40))).unwrap();
            let terms = leased(engine.renew(at(2_000), A, GROUP, 4, &holds(wants(500), 3, &half), None));
            // B may be using 50 RU/s. The share of A goes on until the lease ends that it has had.
            assert_eq!(terms.rate, Rate::whole(20));
            let left = config.longest_use(half.ttl).0 - at(2_000).0;
            assert!(config.longest_use(terms.ttl) <= Span(left), "{drift_ppm} ppm: {}", terms.ttl);
            assert!(config.longest_use(Span(terms.ttl.0 + 1)) > Span(left), "{drift_ppm} ppm: {}", terms.ttl);
            // It counts no longer, either.
            let counted = engine.leases(GROUP).find(|lease| lease.client == A).map(|lease| lease.expires);
            assert_eq!(counted, Some(at(2_000).after(Span(left))));
        }
    }
}

/// A and B have a half each, and B holds a lump of 20 RU beside its bucket. A's lease ends at 5,020 ms.
fn beside_a_lump(engine: &mut Engine) -> LeaseTerms {
    let all = leased(engine.renew(at(0), A, GROUP, 1, &wants(500), None));
    leased(engine.renew(at(0), B, GROUP, 1, &wants(500), None));
    let half = leased(engine.renew(at(10), A, GROUP, 2, &holds(wants(500), 1, &all), None));
    let half = leased(engine.renew(at(20), A, GROUP, 3, &holds(wants(500), 2, &half), None));
    let waits = Ask { acked_seq: 1, backlog: Ru::whole(20), head: Ru::whole(1), waiting: 1, ..wants(500) };
    let lump = leased(engine.renew(at(30), B, GROUP, 2, &waits, None));
    assert_eq!((half.rate, lump.rate, lump.lump), (Rate::whole(50), Rate::whole(50), Ru::whole(20)));
    half
}

#[test]
fn what_does_not_fit_a_lowered_limit_goes_on_until_two_renewals_before_the_older_lease_ends() {
    // The rate and the bucket of A, while both go on.
    for (rate, burst, kept) in [(40, 100, (20, 10)), (100, 40, (50, 10))] {
        for (now, goes_on) in [(at(2_500), true), (at(3_020), true), (Time(3_020_001), false)] {
            let mut engine = engine_with(EngineConfig { drift_ppm: 0, margin: Span(0) });
            let half = beside_a_lump(&mut engine);
            let spec = GroupSpec { burst: Some(Ru::whole(burst)), ..GroupSpec::capped(Rate::whole(rate)) };
            engine.put_group(at(2_400), GROUP, spec).unwrap();
            let terms = leased(engine.renew(now, A, GROUP, 4, &holds(wants(500), 3, &half), None));
            let named = format!("{rate} RU/s, burst {burst}, at {now:?}: {terms:?}");
            match (goes_on, burst) {
                (true, _) => {
                    assert_eq!((terms.rate, terms.cap), (Rate::whole(kept.0), Ru::whole(kept.1)), "{named}");
                }
                (false, 100) => assert_eq!(terms.rate, Rate::ZERO, "{named}"),
                (false, _) => assert_eq!(terms.cap, Ru::ZERO, "{named}"),
            }
        }
    }
}

/// A client has spent a lump on operations that run, and its bucket is as shallow as can be.
fn runs(engine: &mut Engine, client: ClientId, ru: i64) {
    let lump = Ask { backlog: Ru::whole(ru), head: Ru::whole(1), waiting: 1, ..Ask::default() };
    let terms = leased(engine.renew(at(0), client, GROUP, 1, &lump, None));
    assert_eq!(terms.lump, Ru::whole(ru));
    let ask =
        Ask { acked_seq: 1, running: Ru::whole(ru), returned: terms.fill, demand: Rate(1), ..Ask::default() };
    leased(engine.renew(at(0), client, GROUP, 2, &ask, None));
}

fn held(engine: &Engine) -> Ru {
    engine.group_view(GROUP).unwrap().held
}

fn pool(engine: &Engine) -> Ru {
    engine.group_view(GROUP).unwrap().pool
}

#[test]
fn a_bucket_takes_the_room_kept_for_refunds_of_its_own_operations() {
    let mut engine = engine();
    runs(&mut engine, A, 60);
    let before = pool(&engine);
    let ask = Ask { acked_seq: 2, running: Ru::whole(60), ..wants(500) };
    let terms = leased(engine.renew(at(0), A, GROUP, 3, &ask, None));
    assert_eq!((terms.cap, held(&engine)), (Ru::whole(50), Ru::whole(100)));
    // No token of the pool is lost: what has no room there comes into the bucket.
    assert_eq!((before.is_positive(), pool(&engine) + terms.fill), (true, before));
}

#[test]
fn a_bucket_takes_the_room_kept_for_refunds_of_others() {
    let mut engine = engine();
    runs(&mut engine, B, 60);
    let terms = leased(engine.renew(at(0), A, GROUP, 1, &wants(500), None));
    assert_eq!((terms.cap, held(&engine)), (terms.rate.over(Span::millis(500)), Ru::whole(100)));
    assert!(terms.cap > Ru::whole(24), "{terms:?}");
}

#[test]
fn a_bucket_beside_a_lump_takes_the_room_kept_for_refunds_of_others() {
    let mut engine = engine();
    runs(&mut engine, B, 30);
    let lump = Ask { backlog: Ru::whole(30), head: Ru::whole(1), waiting: 1, ..wants(0) };
    let first = leased(engine.renew(at(0), A, GROUP, 1, &lump, None));
    assert_eq!((first.lump, first.cap), (Ru::whole(30), first.rate.over(Span::millis(500))));
    // The lump is still there when the bucket is to become deeper.
    let deeper = Ask { largest: Ru::whole(20), ..holds(wants(500), 1, &first) };
    let second = leased(engine.renew(at(0), A, GROUP, 2, &deeper, None));
    assert!(first.cap < Ru::whole(25), "{first:?}");
    assert_eq!((second.cap, held(&engine)), (Ru::whole(40), Ru::whole(100)));
}

#[test]
fn no_more_room_for_refunds_is_taken_back_than_a_bucket_needs() {
    let mut engine = engine();
    runs(&mut engine, A, 30);
    runs(&mut engine, B, 30);
    // The bucket becomes 15 RU deeper, and A gives up that much of its own.
    let deeper = Ask { acked_seq: 2, running: Ru::whole(30), largest: Ru::whole(20), ..wants(500) };
    let terms = leased(engine.renew(at(0), A, GROUP, 3, &deeper, None));
    assert_eq!((terms.cap, held(&engine)), (Ru::whole(40), Ru::whole(100)));
}

#[test]
fn far_away_a_bucket_gets_what_the_pool_would_earn_above_its_depth_in_half_a_round_trip() {
    let mut engine = engine();
    // An operation that needs a lump shows that more of them may come.
    leased(engine.renew(at(0), B, GROUP, 1, &wants(500), None));
    let large = Ask { backlog: Ru::whole(60), head: Ru::whole(60), waiting: 1, ..Ask::default() };
    leased(engine.renew(at(0), A, GROUP, 1, &large, None));
    [A, B].into_iter().for_each(|client| engine.release(at(0), client));
    // The pool is full, and A earns half of the rate. In 60 ms the other half yields 3 RU.
    let far = Ask { demand: Rate(1), ahead: Span::millis(120), ..Ask::default() };
    let first = leased(engine.renew(at(2_000), A, GROUP, 1, &far, None));
    let second = leased(engine.renew(at(2_000), A, GROUP, 2, &holds(far, 1, &first), None));
    assert_eq!((first.rate, first.cap, first.fill), (Rate::whole(50), first.fill, first.cap));
    assert_eq!((second.rate, second.cap, second.fill), (first.rate, first.cap, Ru::whole(3)));
}

#[test]
fn an_operation_above_the_burst_of_any_group_above_never_fits() {
    let child = |parent: u32, burst: i64| GroupSpec {
        parent: Some(GroupId(parent)),
        burst: Some(Ru::whole(burst)),
        ..GroupSpec::capped(Rate::whole(100))
    };
    let fits = |above: i64, own: i64| {
        let mut engine = engine();
        engine.put_group(at(0), GroupId(3), child(GROUP.0, above)).unwrap();
        engine.put_group(at(0), GroupId(4), child(3, own)).unwrap();
        leased(engine.renew(at(0), A, GroupId(4), 1, &wants(10), None)).max_fit
    };
    let whole = |ru: [i64; 3]| ru.map(Ru::whole);
    // The group at the top has a burst of 100 RU.
    assert_eq!([fits(500, 900), fits(30, 900), fits(500, 20)], whole([100, 30, 20]));
}
