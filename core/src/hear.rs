//! A node's statement of what it holds, gives back and may give back, and how much of it the ledger accepts.
//!
//! A refund, the part of its estimate that an operation did not need, may come long after the node reported a lump as
//! spent. Until then the ledger goes on counting the lump as held, under `running`: so there is room for the refund
//! whenever it comes, and never more to spend than the burst, messages on their way included. The room costs nobody
//! anything: the ledger takes it back once the pool has real tokens for it or a bucket needs it, and a later refund is
//! lost, as it would be in one full bucket.

use crate::engine::Engine;
use crate::exchange::Ask;
use crate::group::ClientId;
use crate::lease::Lease;
use crate::tree::Chain;
use crate::units::{Rate, Ru, Time};

impl Engine {
    /// Takes in what the node holds and gives back, but never more than the ledger granted.
    pub(crate) fn hear(&mut self, chain: &Chain, now: Time, lease: &mut Lease, ask: &Ask) {
        lease.count_tokens(now);
        let before = lease.hold();
        let mut back = ask.returned.or_zero().min(lease.tokens_max);
        lease.tokens_max -= back;
        if ask.acked_seq != lease.seq && lease.seq > 0 {
            // The node never applied the newest grant, and ignores it from now on. Of the fill, only the part comes back
            // for which the ledger counted a deeper bucket: tokens that came into the rest of the room may be spent.
            let fill = lease.fresh_fill.min((lease.cap - lease.held_cap).or_zero());
            let lost = (lease.fresh_lump + fill).min(lease.tokens_max);
            back += lost;
            lease.tokens_max -= lost;
            lease.lump -= lease.fresh_lump;
        } else {
            lease.held_end = lease.expires;
        }
        (lease.fresh_lump, lease.fresh_fill) = (Ru::ZERO, Ru::ZERO);
        lease.held_until = lease.ends();
        lease.held_rate = ask.held.rate.max(Rate::ZERO).min(lease.committed());
        lease.held_cap = ask.held.cap.or_zero().min(lease.cap.max(lease.held_cap));
        let lump = ask.held.lump.or_zero().min(lease.lump);
        // Only tokens that the ledger counted until now can come back, because these had room all the time.
        let refunded = ask.refunded.or_zero().min(lease.running).min(lease.tokens_max);
        (lease.lump, lease.running) = (lump, Ru::ZERO);
        lease.tokens_max -= refunded;
        back += refunded;
        (lease.rate, lease.cap, lease.expires) = (Rate::ZERO, Ru::ZERO, now);
        lease.running = ask.running.or_zero().min(before - lease.hold() - back).or_zero();
        lease.tokens_max = lease.tokens_max.min(lease.hold());
        let hold = lease.hold();
        for slot in chain.up() {
            if let Some(group) = self.tree.at_mut(slot)
                && group.spec.limit().is_some()
            {
                let room = (group.room() - hold).or_zero();
                if now < group.recovering_until {
                    group.pool.trim(room);
                } else {
                    group.pool.give_back(back, room);
                }
            }
        }
    }

    /// Takes back room kept for refunds, because it is needed otherwise: tokens that exist come before tokens that may
    /// come.
    pub(crate) fn reclaim(&mut self, chain: &Chain, amount: Ru, but: Option<ClientId>) {
        let mut taken = Ru::ZERO;
        while taken < amount
            && let Some(group) = self.tree.at_mut(chain.slot())
            && let Some(client) = group.live.running.iter().find(|client| Some(**client) != but).copied()
            && let Some(lease) = group.live.leases.get_mut(&client)
        {
            let part = lease.running.min(amount - taken);
            lease.running -= part;
            lease.tokens_max = lease.tokens_max.min(lease.hold());
            taken += part;
            if lease.running == Ru::ZERO {
                group.live.running.remove(&client);
            }
        }
        self.tree.add(chain, Rate::ZERO, Ru::ZERO - taken);
    }
}
