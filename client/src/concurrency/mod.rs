//! Orders of threads over the real admission path, tried out by shuttle; `tests/concurrency` runs them.
//!
//! Each scenario runs under a random scheduler and under PCT (Burckhardt and others, "A randomized scheduler with
//! probabilistic guarantees of finding bugs", ASPLOS 2010), with fixed seeds. Virtual time moves only when no task can
//! go on, and no deadline is near: a waiter that is not admitted was forgotten.

mod demoting;
mod exits;
mod following;
mod purses;
mod world;

use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use std::task::Poll;

use shuttle::future::{block_on, yield_now};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::node::NodeConfig;
use tidegate_core::units::{Rate, Ru, Span, Time};

use crate::group::Group;
use crate::hub::Hub;
use crate::refused::Refused;
use crate::virtual_time;
use world::{FAR, GiveUp, World, assert_quiet, charged_by, lump, settle, work};

/// Schedules per scenario and scheduler.
fn schedules() -> usize {
    std::env::var("SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

fn explore(scenario: fn()) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(20_000);
    // A run's statics are meant to be dropped at its end.
    config.silence_warnings = true;
    let random = Runner::new(RandomScheduler::new_from_seed(1, schedules()), config.clone()).run(scenario);
    let pct = Runner::new(PctScheduler::new_from_seed(1, 3, schedules()), config).run(scenario);
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("{name}: {random} random schedules, {pct} with 3 changes of priority");
}

/// Grants what waits, as lumps; returns how much that is in all.
fn generous() -> (World, Group, Arc<AtomicI64>) {
    generous_for(NodeConfig::default().idle_after)
}

/// The same to groups that give their leases up after this.
fn generous_for(idle_after: Span) -> (World, Group, Arc<AtomicI64>) {
    let granted = Arc::new(AtomicI64::new(0));
    let sum = Arc::clone(&granted);
    let world = World::idle(idle_after, move |_, ask| {
        let missing = (ask.backlog - ask.held.lump).or_zero();
        // What is handed back leaves the node.
        sum.fetch_add(missing.0 - ask.returned.0, Ordering::Relaxed);
        lump(missing)
    });
    let group = world.group("g");
    (world, group, granted)
}

fn assert_conserved(group: &Group, granted: &AtomicI64, charged: i64) {
    assert_quiet(&group.cell);
    let state = group.state();
    assert_eq!(group.consumption().ru(), Ru(charged).into(), "each charge counts once");
    assert_eq!(
        (state.available.0, state.debt.0),
        (granted.load(Ordering::Relaxed) - charged, 0),
        "what was granted is spent or in hand"
    );
}

/// Tokens are neither lost nor made while operations arrive, settle high or low, and are dropped at any moment.
#[test]
fn every_token_granted_is_spent_or_in_hand() {
    explore(|| {
        block_on(async {
            let (world, group, granted) = generous();
            let take = |group: &Group, cost: i64, actual: i64| {
                let group = group.clone();
                work(async move { settle(group.acquire(Ru(cost), FAR).await.unwrap(), actual) })
            };
            let exact = take(&group, 20, 20);
            let cheap = take(&group, 30, 10);
            let gone = take(&group, 40, 40);
            let dropped = {
                let group = group.clone();
                work(async move {
                    let permit = group.acquire(Ru(10), FAR).await.unwrap();
                    drop(permit);
                    10
                })
            };
            let fickle = {
                let group = group.clone();
                work(async move {
                    let outcome = GiveUp::after(1, group.acquire(Ru(50), FAR)).await;
                    outcome.map_or(0, |permit| {
                        permit.unwrap().cancel();
                        0
                    })
                })
            };
            gone.abort();
            // Aborted while it waited, or done.
            let charged = gone.await.unwrap_or(0) + charged_by([exact, cheap, dropped, fickle]).await;
            // The session has finished what it was doing.
            world.end().await;
            assert_conserved(&group, &granted, charged);
        });
    });
}

/// A group that gives its lease up whenever it can, and falls asleep whenever it can, serves everyone and counts all.
#[test]
fn a_group_may_fall_asleep_at_any_moment() {
    explore(|| {
        block_on(async {
            let (world, group, granted) = generous_for(Span(0));
            let workers: Vec<_> = [[20, 30], [5, 40]]
                .into_iter()
                .map(|costs| {
                    let group = group.clone();
                    work(async move {
                        let mut charged = 0;
                        for cost in costs {
                            charged += settle(group.acquire(Ru(cost), FAR).await.unwrap(), cost - 5);
                        }
                        charged
                    })
                })
                .collect();
            let sleeper = {
                let group = group.clone();
                work(async move {
                    for _ in 0..4 {
                        group.cell.try_sleep(&group.consumption());
                        yield_now().await;
                    }
                    0
                })
            };
            let charged = charged_by(workers.into_iter().chain([sleeper])).await;
            world.end().await;
            assert_conserved(&group, &granted, charged);
            assert_eq!(group.consumption().operations, 4);
        });
    });
}

/// A group that slept is put away at the moment at which it is used again; it serves everyone and counts all.
#[test]
fn a_sleeping_group_may_be_put_away_at_any_moment() {
    /// When it has long given its lease up.
    const LATER: Time = Time(5_000_000);
    fn named(hub: &Hub) -> Group {
        Group { cell: hub.registry.get_or_make("g").unwrap() }
    }
    explore(|| {
        block_on(async {
            let (world, group, granted) = generous_for(Span(0));
            drop(group);
            let hub = Arc::clone(&world.hub);
            let workers: Vec<_> = [[20, 30], [5, 40]]
                .into_iter()
                .map(|costs| {
                    let hub = Arc::clone(&hub);
                    work(async move {
                        let mut charged = 0;
                        for (at, cost) in [Time(0), LATER].into_iter().zip(costs) {
                            virtual_time::sleep_until(at).await;
                            charged += settle(named(&hub).acquire(Ru(cost), FAR).await.unwrap(), cost - 5);
                        }
                        charged
                    })
                })
                .collect();
            let sleeper = {
                let hub = Arc::clone(&hub);
                work(async move {
                    virtual_time::sleep_until(LATER).await;
                    for _ in 0..3 {
                        if let Some(cell) = hub.registry.get("g") {
                            let name = cell.name().clone();
                            cell.try_sleep(&cell.consumption());
                            drop(cell);
                            hub.registry.put_away(&name);
                        }
                        yield_now().await;
                    }
                    0
                })
            };
            let charged = charged_by(workers.into_iter().chain([sleeper])).await;
            world.end().await;
            let group = named(&hub);
            assert_conserved(&group, &granted, charged);
            assert_eq!(group.consumption().operations, 4);
        });
    });
}

/// A waiter that leaves wakes those it held up; no waiter that can be served is forgotten.
#[test]
fn who_leaves_the_queue_lets_the_next_one_in() {
    explore(|| {
        block_on(async {
            // Ten at once and nothing after: the large operation can only leave.
            let world = World::new(|seq, _| lump(Ru(if seq == 1 { 10 } else { 0 })));
            let group = world.group("g");
            let large = {
                let group = group.clone();
                work(async move {
                    let answer = group.cell.with(|state, now| state.listen(now));
                    let mut waiting = Box::pin(group.acquire(Ru(100), FAR));
                    let waits = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending()));
                    assert!(waits.await, "ten do not cover a hundred");
                    // Those behind it could be served from here on.
                    if let Some(answer) = answer {
                        answer.await.unwrap();
                    }
                })
            };
            let small: Vec<_> = (0..2)
                .map(|_| {
                    let group = group.clone();
                    work(async move {
                        let permit = group.acquire(Ru(5), FAR).await.unwrap();
                        // Not by a later look of the driver, which would come in time, too.
                        assert_eq!(virtual_time::now(), Time(0), "admitted late");
                        settle(permit, 5)
                    })
                })
                .collect();
            large.await.unwrap();
            for worker in small {
                assert_eq!(worker.await.unwrap(), 5);
            }
            assert_quiet(&group.cell);
            assert_eq!(group.state().available, Ru(0));
            world.end().await;
        });
    });
}

/// No overtaking: while the first operation waits, a later one is not admitted.
#[test]
fn the_first_to_wait_is_the_first_to_be_admitted() {
    explore(|| {
        block_on(async {
            let world = World::new(|seq, ask| {
                // A trickle: never enough for the first at once, always enough for those behind it.
                let step = if seq > 1 && ask.backlog.is_positive() { 20 } else { 0 };
                lump(Ru(step))
            });
            let group = world.group("g");
            let mut first = Box::pin(group.acquire(Ru(50), FAR));
            let waits = poll_fn(|context| Poll::Ready(first.as_mut().poll(context).is_pending()));
            assert!(waits.await, "nothing is granted yet");
            // They come while a part of what the first one needs is there.
            let later: Vec<_> = [0, 15, 120]
                .map(|ms| {
                    let group = group.clone();
                    work(async move {
                        virtual_time::sleep_until(Time(ms * 1_000)).await;
                        let permit = group.acquire(Ru(1), FAR).await.unwrap();
                        assert!(group.state().backlog < Ru(50), "overtaken");
                        settle(permit, 1)
                    })
                })
                .into();
            let first = first.await.unwrap();
            settle(first, 50);
            for worker in later {
                worker.await.unwrap();
            }
            assert_quiet(&group.cell);
            world.end().await;
        });
    });
}

/// A client that closes answers every waiter, admits nothing more, and learns of the last permit.
#[test]
fn closing_answers_everyone_and_waits_for_the_last_permit() {
    explore(|| {
        block_on(async {
            let (world, group, granted) = generous();
            let workers: Vec<_> = (1..=3)
                .map(|cost| {
                    let group = group.clone();
                    work(async move {
                        match group.acquire(Ru(cost), FAR).await {
                            Ok(permit) => settle(permit, cost),
                            Err(Refused::ShutDown { .. }) => 0,
                            Err(other) => panic!("{other}"),
                        }
                    })
                })
                .collect();
            let closing = {
                let hub = Arc::clone(&world.hub);
                work(async move {
                    hub.close();
                    hub.permits_settled().await;
                })
            };
            closing.await.unwrap();
            assert_eq!(group.cell.open(), 0);
            assert!(matches!(group.try_acquire(Ru(1)), Err(Refused::ShutDown { .. })));
            let charged = charged_by(workers).await;
            assert_quiet(&group.cell);
            assert_eq!(group.consumption().ru(), Ru(charged).into());
            assert!(granted.load(Ordering::Relaxed) >= charged);
            world.end().await;
        });
    });
}

/// Under the real controller machine, with time that passes at any moment and leases that end, the rate holds and
/// everyone is served.
#[test]
fn leases_end_and_come_back_within_the_rate() {
    const RATE: i64 = 100;
    const BURST: i64 = 60;
    explore(|| {
        block_on(async {
            let mut engine = Engine::new(Time(0), EngineConfig { drift_ppm: 0, margin: Span(0) });
            let spec = GroupSpec {
                burst: Some(Ru(BURST)),
                ttl: Span::millis(600),
                renew_every: Span::millis(200),
                ..GroupSpec::capped(Rate(RATE))
            };
            engine.put_group(Time(0), GroupId(1), spec).unwrap();
            let world = World::new(move |seq, ask| {
                let now = virtual_time::now();
                engine.renew(now, ClientId(1), GroupId(1), seq, ask, None).unwrap()
            });
            let group = world.group("g");
            let admitted = Arc::new(AtomicI64::new(0));
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let (group, admitted) = (group.clone(), Arc::clone(&admitted));
                    work(async move {
                        for _ in 0..2 {
                            let permit = group.acquire(Ru(30), FAR).await.unwrap();
                            let so_far = admitted.fetch_add(30, Ordering::Relaxed) + 30;
                            let allowed = BURST + Rate(RATE).over(Span(virtual_time::now().0)).0;
                            assert!(so_far <= allowed, "{so_far} admitted, {allowed} allowed");
                            settle(permit, 30);
                        }
                    })
                })
                .collect();
            let clock = work(async {
                for _ in 0..3 {
                    virtual_time::pass(Span::millis(450));
                    yield_now().await;
                }
            });
            for worker in workers.into_iter().chain([clock]) {
                worker.await.unwrap();
            }
            assert_quiet(&group.cell);
            assert_eq!(group.consumption().ru(), Ru(180).into());
            world.end().await;
        });
    });
}

/// Threads that come for the same group get the same one, and it asks for its first lease.
#[test]
fn a_group_is_made_once() {
    explore(|| {
        block_on(async {
            let (world, ..) = generous();
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let hub = Arc::clone(&world.hub);
                    work(async move {
                        let cell = hub.registry.get_or_make("other").unwrap();
                        settle(Group { cell: Arc::clone(&cell) }.acquire(Ru(1), FAR).await.unwrap(), 1);
                        cell.id()
                    })
                })
                .collect();
            let mut ids = Vec::new();
            for worker in workers {
                ids.push(worker.await.unwrap());
            }
            assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
            assert_eq!(world.hub.registry.len(), 2);
            assert_eq!(world.group("other").consumption().operations, 3);
            world.end().await;
        });
    });
}
