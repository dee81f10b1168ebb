//! Threads that pay from their purses while others close them: renewals, looks, waiters, the end of the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use shuttle::future::block_on;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Allowance, Ask, Grant, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::explore;
use super::world::{FAR, World, assert_quiet, charged_by, settle, work};
use crate::cell::Notice;
use crate::group::Group;
use crate::permit::Permit;
use crate::refused::Refused;
use crate::sync::Mutex;
use crate::virtual_time;

/// The pool at the start.
pub(super) const POOL: i64 = 10_000;

/// A lease on a full bucket, and nothing after it.
pub(super) fn full(ttl: Span) -> World {
    World::new(move |_, ask| Grant::Leased(filled_once(ttl, ask)))
}

fn filled_once(ttl: Span, ask: &Ask) -> LeaseTerms {
    LeaseTerms {
        cap: Ru(POOL),
        fill: Ru(if ask.acked_seq == 0 { POOL } else { 0 }),
        ttl,
        renew_after: Span::millis(100),
        max_fit: Ru::MAX,
        ..LeaseTerms::default()
    }
}

/// The group, once it has its lease, with purses: two operations at the same time make it busy.
pub(super) async fn busy(world: &World) -> Group {
    let group = world.group("g");
    for _ in 0..2 {
        settle(group.acquire(Ru(1), FAR).await.unwrap(), 1);
    }
    assert!(group.cell.pay(Ru(0)).is_some(), "the purse is open");
    Permit::new(&group.cell, Ru(0), group.cell.shared().clock.tick()).cancel();
    group
}

/// Looks at the group twice, which closes its purses.
pub(super) fn look(group: &Group) {
    for _ in 0..2 {
        let state = group.state();
        assert!(state.available <= Ru(POOL) && state.debt == Ru::ZERO, "{state:?}");
    }
}

/// Ends the world; what was charged is counted, and what is left of the pool is there.
pub(super) async fn end(world: World, group: &Group, charged: i64) {
    world.end().await;
    assert_quiet(&group.cell);
    assert_eq!(group.consumption().ru(), Ru(charged).into());
    assert_eq!(group.state().available.0, POOL - charged);
}

/// Tokens in purses are spent once or come back, and every charge is counted once, whichever thread closes them, at any
/// moment.
#[test]
fn purses_make_nothing_and_lose_nothing() {
    explore(|| {
        block_on(async {
            let world = full(Span::secs(60));
            let group = busy(&world).await;
            let workers: Vec<_> = [(3, 3), (5, 2), (2, 6)]
                .map(|(cost, actual)| {
                    let group = group.clone();
                    work(async move {
                        let mut charged = 0;
                        for turn in 0..4 {
                            let permit = group.try_acquire(Ru(cost)).unwrap();
                            if turn == 2 {
                                permit.cancel();
                            } else {
                                charged += settle(permit, actual);
                            }
                        }
                        charged
                    })
                })
                .into();
            let looker = {
                let group = group.clone();
                work(async move {
                    look(&group);
                    group.cell.heed(Notice::Renew);
                })
            };
            let charged = 2 + charged_by(workers).await;
            looker.await.unwrap();
            end(world, &group, charged).await;
            assert_eq!(group.consumption().operations, 11);
        });
    });
}

/// A thread that needs tokens gets those that other threads hold.
#[test]
fn a_large_operation_gets_what_is_in_the_purses() {
    explore(|| {
        block_on(async {
            let world = full(Span::secs(60));
            let group = busy(&world).await;
            let small: Vec<_> = (0..2)
                .map(|_| {
                    let group = group.clone();
                    work(async move {
                        let spent =
                            (0..2).map(|_| settle(group.try_acquire(Ru(10)).unwrap(), 10)).sum::<i64>();
                        spent
                    })
                })
                .collect();
            let large = {
                let group = group.clone();
                work(async move { settle(group.try_acquire(Ru(POOL - 42)).unwrap(), POOL - 42) })
            };
            for worker in small {
                worker.await.unwrap();
            }
            large.await.unwrap();
            assert_eq!(group.state().available, Ru::ZERO);
            world.end().await;
            assert_quiet(&group.cell);
        });
    });
}

/// A waiter wakes when the last token that it needs comes back, even from the purse of another thread.
#[test]
fn what_comes_back_from_purses_wakes_who_waits_for_it() {
    explore(|| {
        block_on(async {
            let world = full(Span::secs(60));
            let group = busy(&world).await;
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let group = group.clone();
                    work(async move {
                        let mut charged = 0;
                        for _ in 0..2 {
                            // No operation overtakes a waiter.
                            let Ok(dear) = group.try_acquire(Ru(100)) else { continue };
                            if let Ok(idle) = group.try_acquire(Ru(50)) {
                                idle.cancel();
                            }
                            charged += settle(dear, 10);
                        }
                        charged
                    })
                })
                .collect();
            let large = {
                let group = group.clone();
                work(async move {
                    // What is left when everyone has settled.
                    let all = POOL - 2 - 4 * 10;
                    let permit = group.acquire(Ru(all), FAR).await.unwrap();
                    // Not by a later look of the driver, which would come in time, too.
                    assert_eq!(virtual_time::now(), Time(0), "admitted late");
                    settle(permit, all)
                })
            };
            let charged = 2 + charged_by(others.into_iter().chain([large])).await;
            end(world, &group, charged).await;
        });
    });
}

/// A permit is settled wherever it ends up: another purse gives back, or pays for, what it took from the first.
#[test]
fn permits_are_settled_in_other_threads() {
    explore(|| {
        block_on(async {
            let world = full(Span::secs(60));
            let group = busy(&world).await;
            let table: Arc<Mutex<Vec<(usize, Permit<'static>)>>> = Arc::default();
            let settled = |(way, permit): (usize, Permit<'static>)| match way {
                0 => settle(permit, 2),
                1 => settle(permit, 16),
                2 => {
                    drop(permit);
                    9
                }
                _ => {
                    permit.cancel();
                    0
                }
            };
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let (group, table) = (group.clone(), Arc::clone(&table));
                    work(async move {
                        let mut charged = 0;
                        for way in 0..4 {
                            let permit = group.try_acquire(Ru(9)).unwrap().into_owned();
                            table.lock().unwrap().push((way, permit));
                            let oldest = {
                                let mut table = table.lock().unwrap();
                                (table.len() > 2).then(|| table.remove(0))
                            };
                            charged += oldest.map_or(0, settled);
                        }
                        charged
                    })
                })
                .collect();
            let mut charged = 2 + charged_by(workers).await;
            let table = std::mem::take(&mut *table.lock().unwrap());
            charged += table.into_iter().map(settled).sum::<i64>();
            assert_eq!(charged, 2 + 3 * (2 + 16 + 9));
            end(world, &group, charged).await;
            assert_eq!(group.consumption().operations, 11);
        });
    });
}

/// Purses end with the lease: with time that passes at any moment, the rate holds over several leases.
#[test]
fn purses_end_with_the_lease() {
    const RATE: i64 = 1_000;
    const BURST: i64 = 200;
    explore(|| {
        block_on(async {
            let mut engine = Engine::new(Time(0), EngineConfig { drift_ppm: 0, margin: Span(0) });
            let spec = GroupSpec {
                burst: Some(Ru(BURST)),
                ttl: Span::millis(300),
                renew_every: Span::millis(100),
                ..GroupSpec::capped(Rate(RATE))
            };
            engine.put_group(Time(0), GroupId(1), spec).unwrap();
            let world = World::new(move |seq, ask| {
                let now = virtual_time::now();
                engine.renew(now, ClientId(1), GroupId(1), seq, ask, None).unwrap()
            });
            let group = world.group("g");
            settle(group.acquire(Ru(1), FAR).await.unwrap(), 1);
            let admitted = Arc::new(AtomicI64::new(1));
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (group, admitted) = (group.clone(), Arc::clone(&admitted));
                    work(async move {
                        for _ in 0..30 {
                            let Ok(permit) = group.try_acquire(Ru(3)) else { continue };
                            let so_far = admitted.fetch_add(3, Ordering::Relaxed) + 3;
                            let allowed = BURST + Rate(RATE).over(Span(virtual_time::now().0)).0;
                            assert!(so_far <= allowed, "{so_far} admitted, {allowed} allowed");
                            settle(permit, 3);
                        }
                    })
                })
                .collect();
            let clock = work(async {
                for _ in 0..4 {
                    virtual_time::pass(Span::millis(110));
                    shuttle::future::yield_now().await;
                }
            });
            for worker in workers.into_iter().chain([clock]) {
                worker.await.unwrap();
            }
            world.end().await;
            assert_quiet(&group.cell);
            assert_eq!(group.consumption().ru(), Ru(admitted.load(Ordering::Relaxed)).into());
        });
    });
}

/// Operations that threads may begin on their own begin once, and those that they did not begin are there for others.
#[test]
fn a_share_of_requests_is_begun_once() {
    const SHARE: Ru = Ru::whole(70);
    explore(|| {
        block_on(async {
            let world = World::new(|_, ask| {
                let allowance = Allowance {
                    window: 1,
                    unit: Unit::Requests,
                    ceiling: SHARE,
                    amount: SHARE,
                    left: SHARE - ask.spending.used,
                    resets_in: Span::secs(60),
                    ..Allowance::default()
                };
                let terms = filled_once(Span::secs(60), ask);
                Grant::Leased(LeaseTerms { allowance: Some(allowance), ..terms })
            });
            let group = busy(&world).await;
            // Two were settled. The one that was given up may have begun before the share came.
            let begun = 3;
            virtual_time::pass(Span::millis(1));
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let group = group.clone();
                    work(async move {
                        let mut begun = 0;
                        for turn in 0..30 {
                            match group.try_acquire(Ru(0)) {
                                Ok(permit) if turn == 20 => permit.cancel(),
                                Ok(permit) => {
                                    settle(permit, 1);
                                    begun += 1;
                                }
                                Err(Refused::QuotaUsedUp { .. }) => {}
                                Err(other) => panic!("{other}"),
                            }
                        }
                        begun
                    })
                })
                .collect();
            let begun = begun + charged_by(workers).await;
            let rest =
                (0..70).map_while(|_| group.try_acquire(Ru(0)).ok()).map(|permit| settle(permit, 1)).count();
            let begun = begun + i64::try_from(rest).unwrap();
            assert_eq!(Ru::whole(begun), SHARE);
            world.end().await;
            assert_quiet(&group.cell);
        });
    });
}

/// A client that closes shuts every purse, and learns of the last permit paid from one.
#[test]
fn closing_shuts_the_purses() {
    explore(|| {
        block_on(async {
            let world = full(Span::secs(60));
            let group = busy(&world).await;
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let group = group.clone();
                    work(async move {
                        let mut charged = 0;
                        for _ in 0..3 {
                            match group.try_acquire(Ru(4)) {
                                Ok(permit) => charged += settle(permit, 4),
                                Err(Refused::ShutDown { .. }) => {}
                                Err(other) => panic!("{other}"),
                            }
                        }
                        charged
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
            assert!(matches!(group.try_acquire(Ru(1)), Err(Refused::ShutDown { .. })));
            let charged = 2 + charged_by(workers).await;
            assert_quiet(&group.cell);
            assert_eq!(group.consumption().ru(), Ru(charged).into());
            world.end().await;
        });
    });
}
