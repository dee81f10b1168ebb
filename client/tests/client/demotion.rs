//! What a group holds back goes on in the group to which it demotes: `g` demotes to `spill`.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use proptest::prelude::*;
use tidegate_client::tower::{Estimate, GovernLayer};
use tidegate_client::{Client, Fallback, Group, LeaseState, Permit, Refused, Ru, RuParts};
use tidegate_core::bound::Bound;
use tidegate_core::group::GroupSpec;
use tidegate_core::units::{Rate, Span, Time};
use tidegate_proto::v1;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

use crate::fake::{Fake, eventually, piped};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const G: Ru = Ru::whole(100);
pub(crate) const SPILL: Ru = Ru::whole(50);

/// Has the fake say to whom `g` demotes while `on`, and do `more` to each answer.
pub(crate) fn demoting(
    fake: &Fake,
    mut more: impl FnMut(&mut v1::GrantEntry) + Send + 'static,
) -> Arc<AtomicBool> {
    let on = Arc::new(AtomicBool::new(true));
    let is_on = Arc::clone(&on);
    fake.state().tamper = Some(Box::new(move |granted: &mut v1::Granted| {
        for entry in &mut granted.entries {
            if entry.group == "g" && is_on.load(Ordering::SeqCst) {
                entry.demote_to = "spill".into();
            }
            more(entry);
        }
    }));
    on
}

/// `g` holds 100 RU and `spill` 50, and both get nothing more, so that every leaked micro-RU shows.
fn fixed(fake: &Fake) {
    fixed_but(fake, |_| {});
}

/// The same, with `more` done to each answer.
pub(crate) fn fixed_but(fake: &Fake, mut more: impl FnMut(&mut v1::GrantEntry) + Send + 'static) {
    let mut filled = BTreeSet::new();
    demoting(fake, move |entry| {
        let holds = if entry.group == "g" { G } else { SPILL };
        (entry.rate, entry.lump_micro_ru) = (0, 0);
        (entry.cap_micro_ru, entry.max_fit_micro_ru) = (holds.0, holds.0);
        entry.fill_micro_ru = if filled.insert(entry.group.clone()) { holds.0 } else { 0 };
        (entry.ttl_us, entry.renew_after_us, entry.ask_again_us) = (3_600_000_000, 3_000_000_000, 0);
        (entry.ack_now, entry.scarce) = (false, false);
        more(entry);
    });
}

/// A client with leases of both groups.
pub(crate) async fn both(fake: &Fake, g: GroupSpec, spill: GroupSpec) -> (Client, Group, Group) {
    fake.group("g", g);
    fake.group("spill", spill);
    let client = piped(fake).connect().await.unwrap();
    let (g, spill) = (client.group("g").await.unwrap(), client.group("spill").await.unwrap());
    let leased = |group: &Group| group.state().lease == LeaseState::Leased;
    eventually("both have leases", || leased(&g) && leased(&spill)).await;
    (client, g, spill)
}

pub(crate) async fn fixed_both(fake: &Fake) -> (Client, Group, Group) {
    fixed(fake);
    let usual = GroupSpec::capped(Rate::whole(1_000));
    both(fake, usual.clone(), usual).await
}

fn hand(group: &Group) -> (Ru, Ru, usize) {
    let state = group.state();
    (state.available, state.debt, state.waiting)
}

#[tokio::test(start_paused = true)]
async fn what_is_over_goes_on_at_once_and_is_refused_only_when_both_refuse() {
    let fake = Fake::new();
    let (client, g, spill) = fixed_both(&fake).await;
    let own = g.try_acquire(G).unwrap();
    assert!(!own.is_demoted() && &**own.group() == "g");
    assert!(g.check(SPILL).is_ok(), "the other has room");
    let tried = g.try_acquire(Ru::whole(20)).unwrap().into_owned();
    let taken = g.take(Ru::whole(15)).unwrap();
    let waited = g.acquire(Ru::whole(15), SECOND).await.unwrap();
    for permit in [&tried, &taken, &waited] {
        assert!(permit.is_demoted() && &**permit.group() == "spill", "{permit:?}");
        assert_eq!(permit.payer().name(), spill.name());
    }
    assert_eq!((hand(&g).0, hand(&spill).0), (Ru::ZERO, Ru::ZERO));
    let refused = g.try_acquire(Ru::whole(1)).unwrap_err();
    assert!(matches!(&refused, Refused::Throttled { group, .. } if &***group == "g"), "{refused:?}");
    assert!(g.check(Ru::whole(1)).is_err() && g.take(Ru::whole(1)).is_none());
    let refused = g.acquire(Ru::whole(1), SECOND).await.unwrap_err();
    assert!(matches!(&refused, Refused::Throttled { group, .. } if &**group == "g"), "{refused:?}");
    let counts = client.stats().counts;
    assert_eq!((counts.demoted, counts.refused, counts.abandoned, counts.queued), (3, 2, 0, 1), "{counts:?}");
    assert_eq!(g.demoted(), (3, SPILL));
    // Who pays is charged, and the other is not.
    tried.settle_ru(RuParts::flat(Ru::whole(20)));
    drop((taken, waited));
    own.cancel();
    assert_eq!((g.consumption().ru().clamped(), spill.consumption().ru().clamped()), (Ru::ZERO, SPILL));
    assert_eq!((g.consumption().operations, spill.consumption().operations), (0, 3));
    assert_eq!(hand(&g).0, G);
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_both_queues_is_admitted_by_the_first_that_can_and_pays_once() {
    let fake = Fake::new();
    let (client, g, spill) = fixed_both(&fake).await;
    let mut context = Context::from_waker(Waker::noop());
    for (first, name) in [("g", "g"), ("spill", "spill"), ("both", "g")] {
        let (own, other) = (g.try_acquire(G).unwrap(), spill.try_acquire(SPILL).unwrap());
        let mut waits = Box::pin(g.acquire(Ru::whole(30), HOUR));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert_eq!((g.state().waiting, spill.state().waiting), (1, 1));
        let (mut own, mut other) = (Some(own), Some(other));
        if first != "spill" {
            own.take().unwrap().cancel();
        }
        if first != "g" {
            other.take().unwrap().cancel();
        }
        let Poll::Ready(Ok(permit)) = waits.as_mut().poll(&mut context) else {
            panic!("{first}: not admitted")
        };
        assert_eq!((&**permit.group(), permit.is_demoted()), (name, name == "spill"), "{first}");
        own.into_iter().chain(other).for_each(Permit::cancel);
        // Once the place in the other queue is given up, what that had given is there again.
        drop(waits);
        let taken = |group: &str| if group == name { Ru::whole(30) } else { Ru::ZERO };
        assert_eq!(hand(&g), (G - taken("g"), Ru::ZERO, 0), "{first}");
        assert_eq!(hand(&spill), (SPILL - taken("spill"), Ru::ZERO, 0), "{first}");
        let Ok(permit) = Ok::<_, Refused>(permit.into_owned()) else { unreachable!() };
        permit.cancel();
    }
    // One that is given up leaves both, also when both have just admitted it, and counts once.
    let (own, other) = (g.try_acquire(G).unwrap(), spill.try_acquire(SPILL).unwrap());
    let mut gone = [Box::pin(g.acquire(Ru::whole(30), HOUR)), Box::pin(g.acquire(Ru::whole(20), HOUR))];
    assert!(gone.iter_mut().all(|waits| waits.as_mut().poll(&mut context).is_pending()));
    let [early, late] = gone;
    drop(early);
    own.cancel();
    other.cancel();
    drop(late);
    assert_eq!((hand(&g), hand(&spill)), ((G, Ru::ZERO, 0), (SPILL, Ru::ZERO, 0)));
    let counts = client.stats().counts;
    assert_eq!((counts.abandoned, counts.refused, counts.demoted), (2, 0, 1), "{counts:?}");
    assert_eq!(client.shutdown().await.open_permits, 0);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up_is_no_end_while_the_other_has_room() {
    let fake = Fake::new();
    demoting(&fake, |_| {});
    let daily = GroupSpec { quota: Some(Ru::whole(10)), ..GroupSpec::capped(Rate::whole(1_000)) };
    let slow = GroupSpec { burst: Some(Ru::whole(5)), ..GroupSpec::capped(Rate::whole(5)) };
    let (_client, g, _spill) = both(&fake, daily, slow).await;
    fake.open_quota("g", Span::secs(300), Span::secs(600));
    eventually("the quota is known", || g.quota_left().is_some_and(|left| left.left == Ru::whole(10))).await;
    let mut own = 0;
    // Shares of it come in parts.
    for turn in 0.. {
        assert!(turn < 500, "{own} of 10 in its own group");
        if own == 10 {
            break;
        }
        let permit = g.acquire(Ru::whole(1), 30 * SECOND).await.unwrap();
        own += u32::from(!permit.is_demoted());
    }
    let began = Instant::now();
    for _ in 0..20 {
        assert!(g.acquire(Ru::whole(1), 30 * SECOND).await.unwrap().is_demoted());
    }
    assert!(began.elapsed() > 2 * SECOND, "the other has its rate: {:?}", began.elapsed());
    // At the end of patience it is the own group's error.
    let refused = loop {
        match g.acquire(Ru::whole(1), Duration::from_millis(20)).await {
            Ok(permit) => drop(permit),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(&refused, Refused::QuotaUsedUp { group, .. } if &**group == "g"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn no_window_of_either_group_is_above_its_bound() {
    let fake = Fake::new();
    demoting(&fake, |_| {});
    let spec =
        |rate, burst| GroupSpec { burst: Some(Ru::whole(burst)), ..GroupSpec::capped(Rate::whole(rate)) };
    let (client, g, _) = both(&fake, spec(200, 100), spec(100, 40)).await;
    let zero = Instant::now();
    let log: Arc<Mutex<Vec<(Instant, String, Ru)>>> = Arc::default();
    let workers = (0..12_u64).map(|worker| {
        let (g, log) = (g.clone(), Arc::clone(&log));
        tokio::spawn(async move {
            let mut turn = worker;
            while zero.elapsed() < 30 * SECOND {
                turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(worker + 1);
                let cost = Ru::whole(i64::try_from(turn >> 33).unwrap() % 12 + 1);
                let patience = Duration::from_millis((turn >> 20) % 400);
                if let Ok(permit) = g.acquire(cost, patience).await {
                    log.lock().unwrap().push((permit.admitted_at(), permit.group().to_string(), cost));
                    permit.settle_ru(RuParts::flat(cost));
                } else {
                    sleep(Duration::from_millis(7)).await;
                }
                if turn % 5 == 0 {
                    sleep(Duration::from_millis(turn % 60)).await;
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let mut log = std::mem::take(&mut *log.lock().unwrap());
    log.sort();
    let time = |at: Instant| Time(u64::try_from(at.saturating_duration_since(zero).as_micros()).unwrap());
    for (name, rate, burst) in [("g", 200, 100), ("spill", 100, 40)] {
        let mut bound = Bound::new(Time(0), Rate::whole(rate));
        for (at, _, cost) in log.iter().filter(|(_, group, _)| group == name) {
            bound.admit(time(*at), *cost);
        }
        // The moment of an admission is told by a clock that may be late by two ticks.
        let late = Rate::whole(rate).over(Span::millis(20));
        assert!(bound.worst() <= Ru::whole(burst) + late, "{name}: {} above the rate", bound.worst());
        let used = bound.admitted();
        assert!(used > Rate::whole(rate).over(Span::secs(24)), "{name} uses its rate: {used} in 30 s");
    }
    let counts = client.stats().counts;
    let demoted = log.iter().filter(|(_, group, _)| group == "spill");
    assert_eq!(u64::try_from(demoted.count()).unwrap(), counts.demoted, "{counts:?}");
}

/// Uses up what a group has; returns which one then pays in its place.
fn demotes_to(group: &Group) -> Option<String> {
    loop {
        let permit = group.try_acquire(Ru::whole(1)).ok()?;
        if permit.is_demoted() {
            return Some(permit.group().to_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_comes_or_goes_holds_from_the_next_answer() {
    let fake = Fake::new();
    let on = demoting(&fake, |_| {});
    let slow = GroupSpec { burst: Some(Ru::whole(5)), ..GroupSpec::capped(Rate::whole(5)) };
    let (_client, g, _spill) = both(&fake, slow.clone(), GroupSpec::capped(Rate::whole(1_000))).await;
    let goes_on = || demotes_to(&g).is_some();
    assert!(goes_on());
    for is_on in [false, true] {
        on.store(is_on, Ordering::SeqCst);
        fake.group("g", slow.clone());
        eventually("the change has come", || goes_on() == is_on).await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_target_holds_from_the_next_answer() {
    let fake = Fake::new();
    let target = Arc::new(Mutex::new("spill"));
    let named = Arc::clone(&target);
    demoting(&fake, move |entry| {
        if entry.group == "g" {
            entry.demote_to = (*named.lock().unwrap()).into();
        }
    });
    fake.group("other", GroupSpec::capped(Rate::whole(1_000)));
    let slow = GroupSpec { burst: Some(Ru::whole(5)), ..GroupSpec::capped(Rate::whole(5)) };
    let (client, g, _spill) = both(&fake, slow.clone(), GroupSpec::capped(Rate::whole(1_000))).await;
    let _other = client.group("other").await.unwrap();
    for name in ["spill", "other", "spill"] {
        *target.lock().unwrap() = name;
        fake.group("g", slow.clone());
        eventually("the change has come", || demotes_to(&g).as_deref() == Some(name)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_before_the_first_answer_hears_of_the_target_with_it() {
    let fake = Fake::new();
    fixed(&fake);
    let usual = GroupSpec::capped(Rate::whole(1_000));
    fake.group("g", usual.clone());
    fake.group("spill", usual);
    let client = piped(&fake).connect().await.unwrap();
    let g = client.group_now("g").unwrap();
    let (one, two) = tokio::join!(g.acquire(Ru::whole(60), HOUR), g.acquire(Ru::whole(50), HOUR));
    assert_eq!([one.unwrap().is_demoted(), two.unwrap().is_demoted()], [false, true]);
}

/// Where the limits of the other group are in shadow, what is over them takes nothing there, and gives nothing back.
#[tokio::test(start_paused = true)]
async fn what_waited_for_a_target_in_shadow_leaves_its_tokens_alone() {
    for cost in [Ru::whole(10), Ru::whole(90)] {
        let fake = Fake::new();
        fixed(&fake);
        let usual = GroupSpec::capped(Rate::whole(1_000));
        fake.group("g", usual.clone());
        fake.group("spill", GroupSpec { shadow: true, ..usual });
        let client = piped(&fake).connect().await.unwrap();
        let g = client.group_now("g").unwrap();
        let (own, demoted) = tokio::join!(g.acquire(Ru::whole(60), HOUR), g.acquire(Ru::whole(70), HOUR));
        let demoted = demoted.unwrap();
        assert!(!own.unwrap().is_demoted() && demoted.is_demoted());
        let spill = client.group("spill").await.unwrap();
        let all = spill.try_acquire(SPILL).unwrap();
        assert_eq!(hand(&spill), (Ru::ZERO, Ru::ZERO, 0), "what is over takes none of it");
        demoted.settle_ru(RuParts::flat(cost));
        assert_eq!(hand(&spill), (Ru::ZERO, Ru::ZERO, 0));
        all.cancel();
        assert_eq!((hand(&spill).0, spill.consumption().ru().clamped()), (SPILL, cost));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_nothing_goes_on_elsewhere() {
    let fake = Fake::new();
    demoting(&fake, |_| {});
    let spill = GroupSpec { fallback: Fallback::Unlimited, ..GroupSpec::capped(Rate::whole(10)) };
    let (_client, g, spill) = both(&fake, GroupSpec::capped(Rate::whole(10)), spill).await;
    fake.go_down();
    let ended = |group: &Group| group.state().lease == LeaseState::Expired;
    eventually("both leases have ended", || ended(&g) && ended(&spill)).await;
    assert!(spill.try_acquire(Ru::whole(1)).is_ok(), "it has a fallback");
    assert!(matches!(g.try_acquire(Ru::whole(1)), Err(Refused::Unavailable { .. })));
    assert!(g.take(Ru::whole(1)).is_none() && g.check(Ru::whole(1)).is_err());
    for wait in [Duration::ZERO, SECOND] {
        let refused = g.acquire(Ru::whole(1), wait).await.unwrap_err();
        assert!(matches!(refused, Refused::Unavailable { .. }), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_other_has_no_lease_for_waits_until_it_has_one() {
    let fake = Fake::new();
    demoting(&fake, |_| {});
    let slow = GroupSpec { burst: Some(Ru::whole(5)), ..GroupSpec::capped(Rate::whole(1)) };
    fake.group("g", slow.clone());
    fake.group("spill", GroupSpec::capped(Rate::whole(1_000)));
    let client = piped(&fake).connect().await.unwrap();
    let g = client.group("g").await.unwrap();
    while g.take(Ru::whole(1)).is_some_and(|permit| !permit.is_demoted()) {}
    // Idle groups give their leases up; those who only try must get one again, too.
    sleep(300 * SECOND).await;
    let mut demoted = false;
    eventually("one that only tries goes on", || {
        demoted |= g.try_acquire(Ru::whole(4)).is_ok_and(|permit| permit.is_demoted());
        demoted
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn large_operations_use_their_own_group_when_it_has_tokens() {
    let fake = Fake::new();
    demoting(&fake, |_| {});
    let g = GroupSpec { burst: Some(Ru::whole(400)), ..GroupSpec::capped(Rate::whole(100)) };
    let (_client, g, _spill) = both(&fake, g, GroupSpec::capped(Rate::whole(1_000))).await;
    let mut own = 0;
    for _ in 0..50 {
        // 80 of 100 RU/s, in pieces that half a second of the rate does not cover.
        sleep(SECOND).await;
        let permit = g.acquire(Ru::whole(80), SECOND).await.unwrap();
        own += u32::from(!permit.is_demoted());
        permit.settle_ru(RuParts::flat(Ru::whole(80)));
    }
    assert!(own > 40, "{own} of 50");
}

#[tokio::test(start_paused = true)]
async fn a_governed_service_goes_on_and_says_who_pays() {
    let fake = Fake::new();
    fixed(&fake);
    fake.bind("acme", "", "g");
    let (client, g, spill) = fixed_both(&fake).await;
    eventually("the binding is known", || client.resolve_now("acme", "").unwrap().name() == g.name()).await;
    let layer =
        GovernLayer::new(client.clone()).estimate(Estimate::Fixed(Ru::whole(40))).wait(Duration::ZERO);
    let routes = Router::new().route("/", get(|| async { "ran" })).layer(layer);
    let mut statuses = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..4 {
        let request = Request::get("/").header("x-tenant", "acme").body(Body::empty()).unwrap();
        let response = routes.clone().oneshot(request).await.unwrap();
        statuses.push(response.status().as_u16());
        kept.push(response);
    }
    // Two in its own group and one in the other, while their answers are not read to their ends.
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!((hand(&g).0, hand(&spill).0), (Ru::whole(20), Ru::whole(10)));
    assert_eq!(client.stats().counts.demoted, 1);
}

#[derive(Clone, Debug)]
enum Step {
    Try(i64),
    Take(i64),
    Wait(i64),
    WaitEstimated(i64),
    /// In the other group, beside what is demoted.
    Other(i64),
    /// Looks at the oldest waiter or a later one.
    Look(usize),
    Leave(usize),
    Cancel(usize),
    /// At this part of its estimate, in percent.
    Settle(usize, i64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = || 1_i64..70;
    let step = prop_oneof![
        3 => cost().prop_map(Step::Try),
        2 => cost().prop_map(Step::Take),
        6 => cost().prop_map(Step::Wait),
        2 => (1_i64..150).prop_map(Step::WaitEstimated),
        2 => (1_i64..50).prop_map(Step::Other),
        6 => (0_usize..6).prop_map(Step::Look),
        3 => (0_usize..6).prop_map(Step::Leave),
        6 => (0_usize..6).prop_map(Step::Cancel),
        2 => ((0_usize..6), (0_i64..=100)).prop_map(|(which, part)| Step::Settle(which, part)),
        2 => (1_u64..2_000).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..60)
}

type Waits<'g> = std::pin::Pin<Box<dyn Future<Output = Result<Permit<'g>, Refused>> + 'g>>;

/// Runs the steps; in the end all is given back but for what was charged.
async fn account(steps: Vec<Step>) {
    let fake = Fake::new();
    let (client, g, spill) = fixed_both(&fake).await;
    let mut context = Context::from_waker(Waker::noop());
    let (mut waiters, mut permits): (Vec<Waits<'_>>, Vec<Permit<'_>>) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Try(cost) => permits.extend(g.try_acquire(Ru::whole(cost)).ok()),
            Step::Take(cost) => permits.extend(g.take(Ru::whole(cost))),
            Step::Other(cost) => permits.extend(spill.try_acquire(Ru::whole(cost)).ok()),
            Step::Wait(cost) => waiters.push(Box::pin(g.acquire(Ru::whole(cost), HOUR))),
            Step::WaitEstimated(cost) => waiters.push(Box::pin(g.acquire_estimated(Ru::whole(cost), HOUR))),
            Step::Look(which) if which < waiters.len() => {
                if let Poll::Ready(answer) = waiters[which].as_mut().poll(&mut context) {
                    permits.extend(answer.ok());
                    drop(waiters.remove(which));
                }
            }
            Step::Leave(which) if which < waiters.len() => drop(waiters.remove(which)),
            Step::Cancel(which) if which < permits.len() => permits.remove(which).cancel(),
            Step::Settle(which, part) if which < permits.len() => {
                let permit = permits.remove(which);
                let cost = permit.estimate().scale(part, 100);
                permit.settle_ru(RuParts::flat(cost));
            }
            Step::Pass(ms) => sleep(Duration::from_millis(ms)).await,
            Step::Look(_) | Step::Leave(_) | Step::Cancel(_) | Step::Settle(..) => {}
        }
        let out: Ru = permits.iter().map(Permit::estimate).sum();
        let (g_used, spill_used) = (g.consumption().ru().clamped(), spill.consumption().ru().clamped());
        let left = hand(&g).0 + hand(&spill).0 + g_used + spill_used;
        assert!(out + left <= G + SPILL, "{out} out beside {left}: more than there is");
    }
    drop(waiters);
    permits.into_iter().for_each(Permit::cancel);
    for (group, holds) in [(&g, G), (&spill, SPILL)] {
        let used = group.consumption().ru().clamped();
        assert_eq!(hand(group), (holds - used, Ru::ZERO, 0), "{}", group.name());
    }
    assert_eq!(client.shutdown().await.open_permits, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_token_of_both_groups_is_spent_or_in_hand(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(account(steps));
    }
}
