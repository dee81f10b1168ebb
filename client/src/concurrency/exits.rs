//! Threads that end with tokens in their purses, with permits open, or while they wait; others take their seats.

use std::sync::Arc;

use shuttle::future::{block_on, yield_now};
use tidegate_core::units::{Ru, Span, Time};

use super::explore;
use super::purses::{POOL, busy, end, full, look};
use super::world::{FAR, GiveUp, charged_by, settle, work};
use crate::lending::seat;
use crate::permit::Permit;
use crate::sync::Mutex;
use crate::virtual_time;

/// Tasks that live at one time in the scenario of seats: main, driver, session, one who looks, and two at work.
const ALIVE: usize = 6;

/// A thread that takes the seat of one that ended goes on with its purse: nothing in it is lost or doubled, whether the
/// successor spends it or the group takes it back.
#[test]
fn a_full_purse_outlives_its_thread() {
    explore(|| {
        block_on(async {
            let world = full(Span::secs(60));
            let group = busy(&world).await;
            // A later thread settles the permits that an earlier one leaves.
            let left: Arc<Mutex<Vec<Permit<'static>>>> = Arc::default();
            let lines: Vec<_> = [3, 7]
                .map(|cost| {
                    let (group, left) = (group.clone(), Arc::clone(&left));
                    work(async move {
                        let mut charged = 0;
                        for _ in 0..3 {
                            let (group, left) = (group.clone(), Arc::clone(&left));
                            let thread = work(async move {
                                let charged = settle(group.try_acquire(Ru(cost)).unwrap(), cost - 1);
                                let permit = group.try_acquire(Ru(cost)).unwrap().into_owned();
                                let before = left.lock().unwrap().pop();
                                left.lock().unwrap().push(permit);
                                assert!(seat().unwrap() < ALIVE, "seats are taken again");
                                charged + before.map_or(0, |permit| settle(permit, 2))
                            });
                            // Time does not go on for a thread that ends; so the thread that waits for it stays awake.
                            while !thread.is_finished() {
                                yield_now().await;
                            }
                            charged += thread.await.unwrap();
                        }
                        charged
                    })
                })
                .into();
            let looker = {
                let group = group.clone();
                work(async move { look(&group) })
            };
            let mut charged = 2 + charged_by(lines).await;
            looker.await.unwrap();
            let left = std::mem::take(&mut *left.lock().unwrap());
            charged += left.into_iter().map(|permit| settle(permit, 2)).sum::<i64>();
            end(world, &group, charged).await;
            assert_eq!(group.consumption().operations, 14);
        });
    });
}

/// A thread that ends while it waits leaves no place in the queue and loses no tokens: those behind it go on at once,
/// and others can spend all that was in its purse.
#[test]
fn who_ends_while_waiting_leaves_everything_to_others() {
    explore(|| {
        block_on(async {
            let world = full(Span::secs(60));
            let group = busy(&world).await;
            let leaving = [0, 2].map(|patience| {
                let group = group.clone();
                work(async move {
                    let charged = settle(group.acquire(Ru(10), FAR).await.unwrap(), 10);
                    // More than there is: it can only leave.
                    let all = GiveUp::after(patience, group.acquire(Ru(POOL), FAR)).await;
                    assert!(all.is_none(), "some is spent");
                    charged
                })
            });
            let behind = [5, 6].map(|cost| {
                let group = group.clone();
                work(async move {
                    let charged = settle(group.acquire(Ru(cost), FAR).await.unwrap(), cost);
                    // Not by a later look of the driver, which would come in time, too.
                    assert_eq!(virtual_time::now(), Time(0), "admitted late");
                    charged
                })
            });
            let mut charged = 2 + charged_by(leaving.into_iter().chain(behind)).await;
            assert_eq!(charged, 33);
            let heir = {
                let group = group.clone();
                work(async move { settle(group.try_acquire(Ru(POOL - charged)).unwrap(), 1) })
            };
            charged += heir.await.unwrap();
            end(world, &group, charged).await;
        });
    });
}
