//! The rate that a node should have, by its load and its backlog.
//!
//! Without a distance that is ample, because headroom that nobody needs is back in the pool within milliseconds. If
//! operations take lumps, headroom is earned in vain, and at a distance it stays lost for as long as an answer takes.

use crate::exchange::Ask;
use crate::lease::Lease;
use crate::tree::{Chain, Group, Tree};
use crate::units::{Rate, Ru, Span};

/// From this round trip on, rate that follows every gust of load is lost for longer than a gust lasts. With half or
/// twice of it, operations of 0.4 to 0.9 burst use the same at home and at round trips of 100 ms and more.
pub(crate) const FAR: Span = Span::millis(30);
/// Renewals over which a node's load in operations that fit its bucket is averaged. With half of it, operations of 0.4
/// to 0.9 burst use 0.004 less at home and from 100 to 500 ms; with twice, 0.002 more from 100 ms on, and nodes at home
/// send 0.2 messages a second more.
pub(crate) const AVERAGED: i64 = 8;

/// What the node uses of its lease: what it offers, and all while operations wait.
pub(crate) fn uses(lease: &Lease) -> Rate {
    let (all, reported) = (lease.committed(), lease.reported());
    if reported.backlog.is_positive() { all } else { reported.demand.max(Rate::ZERO).min(all) }
}

/// Whether the lease covers the load, or once did, and at most a second of the load waits.
pub(crate) fn covers(lease: &Lease) -> bool {
    if lease.reported().covered {
        lease.reported().backlog <= lease.held().rate.over(Span::secs(1))
    } else {
        !lease.reported().backlog.is_positive() && lease.reported().average.scale(9, 8) <= lease.held().rate
    }
}

/// Whether, at a distance, some pool lacks more than an eighth of what fits into it beside what nodes may hold. The
/// lease is out of the sums.
pub(crate) fn is_thin(tree: &Tree, chain: &Chain, lease: &Lease) -> bool {
    let missing = |group: &Group| {
        let room = group.spec.depth()? - group.live.held - lease.hold();
        Some(room.scale(7, 8) - group.pool.tokens())
    };
    lease.reported().ahead >= FAR && tree.up(chain).filter_map(missing).any(Ru::is_positive)
}

/// The rate that a node should have: twice its load, so that ordinary growth and noise need no round trip. With a
/// backlog at least half again as much as it has, so that a throttled closed loop can show its demand. If operations
/// take lumps, headroom is earned in vain: then only as much as keeps small operations going, and the rest adds up in
/// the pool.
pub(crate) fn wanted(ask: &Ask, lease: &Lease, others_queue: bool, lumps: bool, thin: bool) -> Rate {
    let offered = ask.demand.max(Rate::ZERO);
    let doubled = offered + offered;
    let wanted = if others_queue && ask.ahead >= FAR {
        beside_others_far(ask, lease)
    } else if ask.backlog.is_positive() {
        doubled.max(lease.held().rate.scale(3, 2)).max(offered + Rate(ask.backlog.0))
    } else if lumps && ask.ahead > Span(0) {
        lease.reported().average.scale(5, 4)
    } else if others_queue {
        offered.scale(4, 3)
    } else if thin {
        offered.scale(9, 8)
    } else {
        doubled
    };
    wanted.min(Rate::MAX)
}

/// At a distance, while others wait for a lump: the average load, and the backlog within a bit more than a second. A
/// part of the backlog is granted at once (`Decision::lump`). A rate raised with each renewal that reports a backlog
/// would be raised again before the first raise has arrived, and be lost when it is lowered.
fn beside_others_far(ask: &Ask, lease: &Lease) -> Rate {
    let least = match ask.backlog.is_positive() {
        true if !lease.reported().covered => lease.held().rate.scale(5, 4),
        true => lease.held().rate,
        false => Rate::ZERO,
    };
    (lease.reported().average + Rate(ask.backlog.0).scale(3, 4)).max(least)
}
