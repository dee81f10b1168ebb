//! Where limits, watches and lists end.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpListener;
use tonic::transport::Endpoint;

use super::*;

#[test]
fn a_limit_of_nothing_is_none_and_one_that_is_reached_is_broken() {
    let second = Duration::from_secs(1);
    let none = v1::QueryLimit { ru: "0".into(), action: "kill".into(), ..v1::QueryLimit::default() };
    assert_eq!(Limit::of(&none).broken(second, Ru::whole(1), 1), None);
    let limit =
        Limit::of(&v1::QueryLimit { ru: "10.5".into(), action: "kill".into(), ..v1::QueryLimit::default() });
    assert_eq!((limit.elapsed, limit.rows), (None, None));
    assert_eq!(limit.broken(second, Ru(10_499_999), u64::MAX), None);
    assert!(limit.broken(Duration::ZERO, Ru(10_500_000), 0).unwrap().contains("limit 10.5 RU"));
}

#[test]
fn what_a_switch_leads_to_is_recorded_and_of_other_actions_nothing() {
    let switch = Action::of("switch_group", "other");
    assert_eq!((switch.name(), switch.switch_group()), ("switch_group", "other"));
    for name in ["dryrun", "cooldown", "kill"] {
        let action = Action::of(name, "other");
        assert_eq!((action.name(), action.switch_group()), (name, ""));
    }
}

#[test]
fn a_watch_that_ends_later_is_in_force() {
    let watch = |digest: &str, end_unix_ms| v1::Watch {
        group: "g".into(),
        r#match: "similar".into(),
        digest: digest.into(),
        end_unix_ms,
        ..v1::Watch::default()
    };
    let book = Book::of(&[], &[watch("long", u64::MAX), watch("over", 1), watch("ever", 0)], 0);
    let found =
        ["long", "over", "ever"].map(|digest| book.watch("g", || Some(digest.into()), || None).is_some());
    assert_eq!(found, [true, false, true]);
}

#[test]
fn a_list_may_have_as_many_rules_as_a_controller_can_have() {
    let mut listing = Listing::default();
    let groups = vec![v1::GroupRule::default(); MAX_RULES];
    assert!(listing.add(v1::Rules { groups, ..v1::Rules::default() }).unwrap().is_some());
}

/// A controller that refuses is not asked again at once: every gateway would ask it as fast as it can.
#[tokio::test(start_paused = true)]
async fn a_controller_that_has_no_rules_is_asked_again_after_a_pause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let (asked, rules) = (AtomicU32::new(0), Rules::default());
    let began = clock::now();
    let refuses = async {
        while asked.load(Ordering::Relaxed) < 4 {
            // It closes each connection: the call fails.
            drop(listener.accept().await.unwrap());
            asked.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::select! {
        () = rules.follow(Controller::new(endpoint.connect_lazy(), None), "gw".to_owned()) => {}
        () = refuses => {}
    }
    assert!(began.elapsed() >= 3 * RETRY, "{:?}", began.elapsed());
}
