//! A node's statement of what it holds, gives back and may give back, and how much of it the ledger accepts.
//!
//! A refund, the part of its estimate that an operation did not need, may come long after the node reported a lump as
//! spent. Until then the ledger goes on counting the lump as held, under `running`: so there is room for the refund
//! whenever it comes, and never more to spend than the burst, messages on their way included. The room costs nobody
//! anything: the ledger takes it back once the pool has real tokens for it or a bucket needs it, and a later refund is
//! lost, as it would be in one full bucket.

use crate::exchange::Ask;
use crate::group::ClientId;
use crate::lease::Lease;
use crate::tree::{Chain, Tree};
use crate::units::{Rate, Ru, Time};

impl Tree {
    /// Takes in what the node holds and gives back, but never more than the ledger granted.
    pub(crate) fn hear(&mut self, chain: &Chain, now: Time, lease: &mut Lease, seq: u64, ask: &Ask) {
        let back = lease.hear(now, seq, ask);
        let hold = lease.hold();
        for slot in chain.up() {
            let group = self.at_mut(slot);
            if group.spec.limit().is_some() {
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
        let group = self.at_mut(chain.slot());
        while taken < amount
            && let Some(client) = group.live.running.iter().find(|client| Some(**client) != but).copied()
            && let Some(lease) = group.live.leases.get_mut(&client)
        {
            taken += lease.take_room(amount - taken);
            if lease.tokens().running == Ru::ZERO {
                group.live.running.remove(&client);
            }
        }
        self.add(chain, Rate::ZERO, Ru::ZERO - taken, Rate::ZERO);
    }
}
