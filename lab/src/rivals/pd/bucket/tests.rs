//! The conformance rows of PD's own tests that concern the bucket.

use super::*;

fn at(seconds: u64) -> Time {
    Time(seconds * 1_000_000)
}

/// One client with id 7 asks.
fn ask(bucket: &mut Bucket, now: Time, required: f64, period: u64) -> (f64, u64) {
    let granted = bucket.request(now, 7, required, Span::secs(period), &BTreeMap::new());
    (granted.tokens, granted.trickle.0 / 1_000)
}

fn used(fill: f64, burst: f64, tokens: f64) -> Bucket {
    let mut bucket = Bucket::new(fill, burst);
    bucket.fill_up(at(0), tokens);
    bucket
}

#[test]
fn t1_request() {
    let mut bucket = used(2_000.0, 20_000_000.0, 200_000.0);
    let steps = [
        (190_000.0, (190_000.0, 0)),
        (11_000.0, (11_000.0, 2_750)),
        (35_000.0, (35_000.0, 10_000)),
        (60_000.0, (22_000.0, 10_000)),
        (3_000.0, (3_000.0, 10_000)),
        (12_000.0, (10_000.0, 10_000)),
    ];
    for (required, expected) in steps {
        assert_eq!(ask(&mut bucket, at(0), required, 10), expected, "{required} RU");
    }
    assert_eq!(ask(&mut bucket, at(20), 20_000.0, 10), (20_000.0, 10_000));
}

#[test]
fn t2_loop() {
    let mut bucket = used(2_000.0, 200_000.0, 50_000.0);
    let expected = [
        (50_000.0, 0.0),
        (30_000.0, -20_000.0),
        (15_000.0, -25_000.0),
        (12_500.0, -27_500.0),
        (11_250.0, -28_750.0),
        (10_625.0, -29_375.0),
        (10_312.5, -29_687.5),
        (10_156.25, -29_843.75),
    ];
    let mut required = 50_000.0;
    for (step, (granted, left)) in (0..).zip(expected) {
        let trickle = if step == 0 { 0 } else { 5_000 };
        assert_eq!(ask(&mut bucket, at(step * 5), required, 5), (granted, trickle), "step {step}");
        assert_eq!(bucket.tokens, left, "step {step}");
        required = granted;
    }
    for step in 8..40 {
        required = ask(&mut bucket, at(step * 5), required, 5).0;
    }
    assert!((required - 10_000.0).abs() < 1.0 && (bucket.tokens + 30_000.0).abs() < 1.0);
}

#[test]
fn t3_patch() {
    let mut bucket = used(2_000.0, 20_000_000.0, 200_000.0);
    ask(&mut bucket, at(0), 0.0, 10);
    assert_eq!(bucket.tokens, 200_000.0);
    bucket.modify(1_000.0, 10_000_000.0, -100_000.0);
    ask(&mut bucket, at(0), 0.0, 10);
    assert_eq!((bucket.tokens, bucket.fill), (100_000.0, 1_000.0));
}

#[test]
fn t4_unlimited() {
    for tokens in [0.0, 200_000.0] {
        let mut bucket = used(2_000.0, -1.0, tokens);
        for second in 0..3 {
            ask(&mut bucket, at(second), 0.0, 10);
            assert_eq!(bucket.tokens, tokens);
        }
    }
}

#[test]
fn t5_burst_table() {
    let max = UNLIMITED_RATE;
    let rows = [
        (2_000.0, 2_000.0, (2_000.0, 2_000.0)),
        (2_000.0, 0.0, (2_000.0, 0.0)),
        (2_000.0, -1.0, (2_000.0, -1.0)),
        (2_000.0, -2.0, (12_000.0, 12_000.0)),
        (max, 2_000.0, (max, 2_000.0)),
        (max, 0.0, (max, 0.0)),
        (max, -1.0, (max, -1.0)),
        (max, -2.0, (max, max)),
    ];
    for (fill, burst, slot) in rows {
        let mut bucket = used(fill, burst, 200_000.0);
        ask(&mut bucket, at(0), 190_000.0, 10);
        let has = bucket.slot(7).map(|slot| (slot.fill, slot.burst));
        assert_eq!(has, Some(slot), "fill {fill}, burst {burst}");
        assert_eq!((bucket.fill, bucket.burst), (fill, burst));
    }
}

#[test]
fn t6_zero_override() {
    let mut bucket = used(2_000.0, 200_000.0, 10_000.0);
    bucket.overridden = Some((0.0, 0.0));
    for client in [1, 2] {
        let granted = bucket.request(at(1), client, 1_000.0, Span::secs(5), &BTreeMap::new());
        assert_eq!((granted.tokens, granted.trickle), (0.0, Span::secs(5)));
        assert!(bucket.tokens.is_finite());
    }
}

#[test]
fn t7_a_new_client_has_its_equal_share() {
    let mut bucket = used(100.0, 100.0, 0.0);
    let mut trackers = BTreeMap::from([(1, Tracker::default()), (2, Tracker::default())]);
    for second in 0..3 {
        trackers.get_mut(&1).unwrap().sample(at(second), 100.0);
    }
    bucket.request(at(0), 1, 100.0, Span::secs(5), &trackers);
    trackers.get_mut(&2).unwrap().sample(at(0), 1.0);
    let granted = bucket.request(at(0), 2, 1.0, Span::secs(5), &trackers);
    assert_eq!((granted.tokens, granted.trickle), (1.0, Span::secs(5)));
    assert_eq!(bucket.slot(2).map(|slot| slot.fill), Some(50.0));
}

#[test]
fn t9_every_grant_of_the_integration_test() {
    let groups =
        [(10_000.0, 0.0, 100_000.0), (20_000.0, -1.0, 100_000.0), (100.0, 5e6, 5e6), (1_000.0, 5e6, 5e6)];
    for (fill, burst, tokens) in groups {
        let mut bucket = used(fill, burst, tokens);
        let granted = bucket.request(at(1), 0, 30_000.0, Span::secs(10), &BTreeMap::new());
        assert_eq!(granted.tokens, 30_000.0, "fill {fill}");
        assert_eq!(granted.burst < 0.0, burst < 0.0);
    }
}

/// Rate-controlled groups lend without end, and forgive the loan to a client that asks for nothing.
#[test]
fn nothing_is_refilled_without_a_depth() {
    let mut bucket = used(1_000.0, 0.0, 0.0);
    let grants: Vec<f64> = (0..5).map(|round| ask(&mut bucket, at(round * 5), 1e6, 5).0).collect();
    assert_eq!(grants, [10_000.0, 5_000.0, 2_500.0, 2_500.0, 2_500.0]);
    ask(&mut bucket, at(30), 0.0, 5);
    assert_eq!(bucket.slot(7), None);
}

/// A greedy client that asks once per period comes to its fill rate.
#[test]
fn a_polite_client_comes_to_its_fill_rate() {
    for depth in [1.0, 10.0, 50.0] {
        let mut bucket = used(1_000.0, 1_000.0 * depth, 0.0);
        let grants = (0..200).map(|round| ask(&mut bucket, at(round * 5), 1e6, 5).0);
        let total: f64 = grants.skip(100).sum();
        assert!((total / 500_000.0 - 1.0).abs() < 0.01, "{depth}: {total}");
    }
}

/// A group that is used for the first time has 100,000 RU.
#[test]
fn a_new_group_has_a_gift() {
    let mut bucket = Bucket::new(1_000.0, 1_000.0);
    assert_eq!(ask(&mut bucket, at(3), 60_000.0, 5), (60_000.0, 0));
}
