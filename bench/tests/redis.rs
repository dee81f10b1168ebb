//! Limits that are kept in Redis, against the real server: which of them several connections at once get past, and what a
//! killed server remembers. No time is asserted.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use tidegate_bench::redis::limiter::{Limiter, Way};
use tidegate_bench::redis::{CONNECTIONS, admitted, connect};
use tidegate_test_servers::Redis;

const LIMIT: u32 = 400;
/// Together four times the limit.
const EACH: u64 = 200;
/// So long that the bucket earns no token in a test: one in a quarter of an hour.
const WINDOW: Duration = Duration::from_secs(100 * 3_600);

fn limiter(way: Way, key: &str) -> Limiter {
    Limiter::new(way, key, LIMIT, WINDOW)
}

#[test]
fn get_then_set_is_passed_by_calls_at_once_and_what_the_server_does_alone_is_not() {
    let server = Redis::start(&[]).unwrap();
    let calls = EACH * CONNECTIONS as u64;
    for way in Way::ALL {
        // A race is won by nobody now and then: it has some tries.
        let passed: Vec<u64> = (0..5)
            .map(|number| {
                admitted(&server, &limiter(way, &format!("{number} {}", way.name())), EACH).unwrap()
            })
            .collect();
        let most = passed.iter().copied().max().unwrap();
        if way == Way::GetThenSet {
            assert!(most > u64::from(LIMIT) && most <= calls, "{passed:?}");
        } else {
            assert!(
                passed.iter().all(|admitted| *admitted == u64::from(LIMIT)),
                "{}: {passed:?}",
                way.name()
            );
        }
    }
}

#[test]
fn one_connection_alone_is_never_passed() {
    let server = Redis::start(&[]).unwrap();
    let mut redis = connect(&server).unwrap();
    for way in Way::ALL {
        let limiter = limiter(way, way.name());
        let decided =
            (0..2 * u64::from(LIMIT)).map(|id| limiter.decide(&mut redis, id, Duration::ZERO).unwrap());
        let decided: Vec<bool> = decided.collect();
        let first = usize::try_from(LIMIT).unwrap();
        assert!(decided[..first].iter().all(|admitted| *admitted), "{}", way.name());
        assert!(decided[first..].iter().all(|admitted| !admitted), "{}", way.name());
    }
}

/// What each way admits of a used up limit after the server was killed and started again.
fn after_a_kill(settings: &[&str]) -> Vec<u64> {
    let mut server = Redis::start(settings).unwrap();
    let used_up = |server: &Redis, way: Way| admitted(server, &limiter(way, way.name()), EACH).unwrap();
    // The race aside, which has no number.
    let ways = [Way::Increment, Way::Script, Way::Log];
    for way in ways {
        assert_eq!(used_up(&server, way), u64::from(LIMIT), "{}", way.name());
        assert_eq!(used_up(&server, way), 0, "{}", way.name());
    }
    server.kill();
    server.restart().unwrap();
    ways.map(|way| used_up(&server, way)).into()
}

#[test]
fn a_killed_server_forgets_with_its_defaults_and_remembers_with_a_log_of_each_write() {
    // The defaults save after a minute of 10,000 changes at the soonest.
    assert_eq!(after_a_kill(&[]), [u64::from(LIMIT); 3]);
    assert_eq!(after_a_kill(&["--appendonly", "yes", "--appendfsync", "always"]), [0; 3]);
}

#[test]
fn a_counter_whose_maker_died_before_its_expiry_never_ends() {
    let server = Redis::start(&[]).unwrap();
    let mut redis = connect(&server).unwrap();
    let _: u32 = redis::cmd("INCR").arg("left").query(&mut redis).unwrap();
    let limiter = limiter(Way::Increment, "left");
    assert!(limiter.decide(&mut redis, 0, Duration::ZERO).unwrap());
    let ttl: i64 = redis::cmd("TTL").arg("left").query(&mut redis).unwrap();
    assert_eq!(ttl, -1, "no expiry: the key stays, and so do its refusals");
}
