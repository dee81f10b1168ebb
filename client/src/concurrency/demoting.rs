//! Operations that go on in another group while others use that one, give up, or end with a place in both queues.

use shuttle::future::block_on;
use tidegate_core::exchange::{Grant, LeaseTerms};
use tidegate_core::node::NodeConfig;
use tidegate_core::units::{Ru, Span, Time};

use super::explore;
use super::world::{FAR, GiveUp, World, assert_quiet, settle, work};
use crate::group::Group;
use crate::permit::Permit;
use crate::virtual_time;

/// What each group has in all.
const POOL: i64 = 20;
/// One operation fits a group at a time, and whatever was charged before, one always does.
const COST: i64 = 12;

/// What was charged to a group and to the other, and the operations that this one passed on.
#[derive(Clone, Copy, Debug, Default)]
struct Paid {
    own: i64,
    other: i64,
    passed_on: u64,
}

impl Paid {
    fn and(self, more: Self) -> Self {
        let Self { own, other, passed_on } = more;
        Self { own: self.own + own, other: self.other + other, passed_on: self.passed_on + passed_on }
    }

    /// Settles with a charge of one, or cancels.
    fn by(permit: Permit<'_>, runs: bool) -> Self {
        let demoted = permit.is_demoted();
        assert_eq!(&**permit.group(), if demoted { "spill" } else { "shop" });
        let charged = if runs {
            settle(permit, 1)
        } else {
            permit.cancel();
            0
        };
        let (own, other) = if demoted { (0, charged) } else { (charged, 0) };
        Self { own, other, passed_on: u64::from(demoted) }
    }
}

/// `shop` demotes to `spill`; each has a full bucket, and nothing after it but what it gives back.
fn demoting() -> World {
    World::of(NodeConfig::default().idle_after, |group, _, ask| {
        let first = Ru(if ask.acked_seq == 0 { POOL } else { 0 });
        let terms = LeaseTerms {
            cap: Ru(POOL),
            fill: first + ask.returned,
            ttl: Span::secs(60),
            renew_after: Span::secs(1),
            max_fit: Ru::MAX,
            ..LeaseTerms::default()
        };
        (Grant::Leased(terms), (group == "shop").then_some("spill"))
    })
}

fn assert_conserved(group: &Group, charged: i64) {
    assert_quiet(&group.cell);
    assert_eq!(group.consumption().ru(), Ru(charged).into(), "{} pays for what it admitted", group.name());
    let state = group.state();
    assert_eq!((state.available, state.debt), (Ru(POOL - charged), Ru::ZERO), "{}", group.name());
}

/// Every token is paid by one group, whichever admits first and whenever an operation leaves, and nobody is forgotten in
/// either queue.
#[test]
fn one_group_pays_and_the_other_has_its_tokens_back() {
    explore(|| {
        block_on(async {
            let world = demoting();
            let (shop, spill) = (world.group("shop"), world.group("spill"));
            let steady = [true, false].map(|runs| {
                let shop = shop.clone();
                work(async move {
                    let first = Paid::by(shop.acquire(Ru(COST), FAR).await.unwrap(), runs);
                    first.and(Paid::by(shop.acquire(Ru(COST), FAR).await.unwrap(), true))
                })
            });
            let fickle = [0, 2].map(|patience| {
                let shop = shop.clone();
                work(async move {
                    let outcome = GiveUp::after(patience, shop.acquire(Ru(COST), FAR)).await;
                    outcome.map_or_else(Paid::default, |permit| Paid::by(permit.unwrap(), patience > 0))
                })
            });
            let beside = {
                let spill = spill.clone();
                work(async move {
                    let other = settle(spill.acquire(Ru(COST), FAR).await.unwrap(), 1);
                    Paid { other, ..Paid::default() }
                })
            };
            let gone = {
                let shop = shop.clone();
                work(async move { Paid::by(shop.acquire(Ru(COST), FAR).await.unwrap(), true) })
            };
            gone.abort();
            // Aborted while it waited, or done.
            let mut paid = gone.await.unwrap_or_default();
            for worker in steady.into_iter().chain(fickle).chain([beside]) {
                paid = paid.and(worker.await.unwrap());
            }
            // Not by a later look of the driver, which would come in time, too.
            assert_eq!(virtual_time::now(), Time(0), "admitted late");
            world.end().await;
            assert_conserved(&shop, paid.own);
            assert_conserved(&spill, paid.other);
            assert_eq!(shop.demoted().0, paid.passed_on);
        });
    });
}
