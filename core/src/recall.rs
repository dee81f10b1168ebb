//! Recalling rate: while others hold a client's share, the largest holders above their own share are ordered to lower
//! themselves at once, so that a shift of demand converges in round trips instead of renewals.

use crate::division::Party;
use crate::engine::LowerOrder;
use crate::group::{ClientId, GroupId};
use crate::lease::Lease;
use crate::tree::{Chain, Tree};
use crate::units::{Rate, Span, Time};

/// Holders inspected and orders sent per renewal, so that a decision stays cheap.
const MOST_LOOKED_AT: usize = 8;
/// A holder gets no second order within this time.
pub(crate) const REPEAT_AFTER: Span = Span::millis(200);

/// The controller calls the first in the queue if it would ask this much later than the pool covers it. With half of
/// it, small operations beside a heavy tail wait 1.4 s instead of 0.9 s (p99), with twice 1.3 s; operations of 0.4 to
/// 0.9 burst use the same, and the number of messages is the same.
const CALLED_BEFORE: Span = Span::millis(20);

impl Tree {
    /// Orders holders below `level`, except `asker`, to lower themselves by `short` together.
    pub(crate) fn recall(
        &mut self,
        orders: &mut Vec<LowerOrder>,
        now: Time,
        level: GroupId,
        short: Rate,
        asker: ClientId,
    ) {
        let mut missing = short;
        self.recall_from_clients(orders, now, level, &mut missing, asker);
        let children: Vec<(Rate, GroupId)> = self.get(level).map_or_else(Vec::new, |group| {
            group.live.children_by_rate.iter().rev().take(MOST_LOOKED_AT).copied().collect()
        });
        let capacity = self.get(level).and_then(|group| group.limit());
        for (committed, child) in children {
            let share = capacity.and_then(|capacity| {
                let entry = self.get(child)?.live.entered;
                Some(self.get(level)?.live.division.share(Party::Child(child), entry, capacity))
            });
            let above = committed - share.unwrap_or(Rate::ZERO);
            if missing.0 > 0 && above.0 > 0 {
                self.recall(orders, now, child, missing.min(above), asker);
                missing -= above;
            }
        }
    }

    /// Calls the first client that waits for a lump if the pool covers it now or will before the client asks again:
    /// others returned or refunded tokens sooner than expected, or clients before it took less. The call is an order
    /// with the highest rate: it lowers nothing, and the node answers with a renewal.
    pub(crate) fn call(&mut self, orders: &mut Vec<LowerOrder>, now: Time, chain: &Chain, asker: ClientId) {
        for slot in chain.up() {
            let group = self.at(slot);
            let Some((&(_, client, id), need)) = group.live.queue.first_key_value() else { continue };
            let Some(limit) = group.spec.limit().filter(|_| client != asker) else { continue };
            let missing = *need - group.pool.tokens();
            let covered = (limit - group.live.committed).time_for(missing).map(|span| now.after(span));
            let lease = self.get_mut(id).and_then(|group| group.live.leases.get_mut(&client));
            let late = |lease: &Lease| covered.is_some_and(|at| at.after(CALLED_BEFORE) < lease.asks_at());
            if let Some(lease) =
                lease.filter(|lease| lease.ordered_at().is_none() && (!missing.is_positive() || late(lease)))
            {
                lease.order(now);
                orders.push(LowerOrder { client, group: id, rate_at_most: Rate::MAX });
            }
        }
    }

    fn recall_from_clients(
        &mut self,
        orders: &mut Vec<LowerOrder>,
        now: Time,
        level: GroupId,
        missing: &mut Rate,
        asker: ClientId,
    ) {
        let Some(group) = self.get_mut(level).filter(|group| group.live.is_awake()) else {
            return;
        };
        let live = &mut *group.live;
        let holders: Vec<(Rate, ClientId)> =
            live.by_rate.iter().rev().take(MOST_LOOKED_AT).copied().collect();
        for (committed, client) in holders {
            if missing.0 <= 0 || client == asker {
                continue;
            }
            let Some(lease) = live.leases.get_mut(&client) else {
                continue;
            };
            let share = |entry| Rate(live.own.share(client, entry, live.own_capacity.0));
            let share = lease.entry().map_or(Rate::ZERO, share);
            if committed <= share {
                continue;
            }
            if lease.ordered_at().is_some_and(|at| now.since(at) < REPEAT_AFTER) {
                *missing -= committed - share;
                continue;
            }
            lease.order(now);
            *missing -= committed - share;
            orders.push(LowerOrder { client, group: level, rate_at_most: share });
        }
    }
}
