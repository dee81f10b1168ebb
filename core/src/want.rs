//! How much rate a node should have, by what it is offered and by what waits there.
//!
//! At home that is ample, because headroom that nobody needs is back in the pool within milliseconds. Where operations
//! take lumps it is earned in vain, and at a distance it stays lost for as long as an answer takes.

use crate::exchange::Ask;
use crate::lease::Lease;
use crate::tree::{Chain, Group, Tree};
use crate::units::{Rate, Ru, Span};

/// From this round trip on, a rate that follows every gust of load is lost for longer than a gust lasts. With half or
/// twice of it operations of 0.4 to 0.9 burst use the same at home and at round trips of 100 ms and more.
pub(crate) const FAR: Span = Span::millis(30);
/// What a node is offered in operations that fit its bucket is averaged over about so many renewals. With half of it
/// operations of 0.4 to 0.9 burst use 0.004 less at home and from 100 to 500 ms; with twice of it 0.002 more from 100
/// ms on, and nodes at home send 0.2 messages a second more.
pub(crate) const AVERAGED: i64 = 8;

/// Whether what is leased covers the load, or once did, and no more than a second of it waits.
pub(crate) fn covers(lease: &Lease) -> bool {
    if lease.covered {
        lease.backlog <= lease.held_rate.over(Span::secs(1))
    } else {
        !lease.backlog.is_positive() && lease.average.scale(9, 8) <= lease.held_rate
    }
}

/// At a distance: some pool lacks more than an eighth of what fits into it beside what nodes may hold. The lease is out
/// of the sums.
pub(crate) fn is_thin(tree: &Tree, chain: &Chain, lease: &Lease) -> bool {
    let missing = |group: &Group| {
        let room = group.spec.depth()? - group.live.held - lease.hold();
        Some(room.scale(7, 8) - group.pool.tokens())
    };
    lease.ahead >= FAR && tree.up(chain).filter_map(missing).any(Ru::is_positive)
}

/// What a node should have: twice what it is offered, so that ordinary growth and noise need no round trip. With a
/// backlog at least half again what it has, so that a throttled closed loop can be discovered. Where operations take
/// lumps, headroom is earned in vain: there it is as much as keeps small ones going, and the rest adds up in the pool.
pub(crate) fn wanted(ask: &Ask, lease: &Lease, others_queue: bool, lumps: bool, thin: bool) -> Rate {
    let offered = ask.demand.max(Rate::ZERO);
    let doubled = offered + offered;
    let wanted = if others_queue && ask.ahead >= FAR {
        beside_others_far(ask, lease)
    } else if ask.backlog.is_positive() {
        doubled.max(lease.held_rate.scale(3, 2)).max(offered + Rate(ask.backlog.0))
    } else if lumps && ask.ahead > Span(0) {
        lease.average.scale(5, 4)
    } else if others_queue {
        offered.scale(4, 3)
    } else if thin {
        offered.scale(9, 8)
    } else {
        doubled
    };
    wanted.min(Rate::MAX)
}

/// At a distance, while others wait for a lump: what is offered on the average, and what waits within a bit more than a
/// second. A part of what waits is granted at once (`Decision::lump`). A rate that is raised further with each renewal
/// that tells of a backlog is raised again before the first raise has come, and lost when it is lowered.
fn beside_others_far(ask: &Ask, lease: &Lease) -> Rate {
    let least = match ask.backlog.is_positive() {
        true if !lease.covered => lease.held_rate.scale(5, 4),
        true => lease.held_rate,
        false => Rate::ZERO,
    };
    (lease.average + Rate(ask.backlog.0).scale(3, 4)).max(least)
}
