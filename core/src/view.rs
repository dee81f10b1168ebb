//! Inspecting the engine, and saving it across a clean restart.

use crate::engine::{Engine, EngineConfig};
use crate::exchange::Held;
use crate::group::{ClientId, GroupId};
use crate::lease::Lease;
use crate::pool::Pool;
use crate::units::{Rate, Ru, Span, Time};

/// A group as the engine sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupView {
    /// RU/s that nodes of the group and of all below it may be using.
    pub committed: Rate,
    /// Tokens that no node holds.
    pub pool: Ru,
    /// Tokens that nodes may be holding.
    pub held: Ru,
    /// RU/s wanted.
    pub demand: Rate,
    /// Leases on this group.
    pub leases: usize,
}

/// A lease as the ledger counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Holder.
    pub client: ClientId,
    /// Granted rate.
    pub rate: Rate,
    /// Rate that the node may be using until it acknowledges.
    pub committed: Rate,
    /// Depth of the local bucket.
    pub cap: Ru,
    /// Lump tokens not yet reported spent.
    pub lump: Ru,
    /// RU/s offered, as reported.
    pub demand: Rate,
    /// RU waiting, as reported.
    pub backlog: Ru,
    /// Debt, as reported.
    pub debt: Ru,
    /// Operations waiting, as reported.
    pub waiting: u64,
    /// Whether nothing limits it.
    pub unlimited: bool,
    /// End, on the controller's clock.
    pub expires: Time,
}

/// The state that a clean shutdown saves. Definitions are saved elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Tokens of the pools that are not full.
    pub pools: Vec<(GroupId, Ru)>,
    /// Leases that have not ended.
    pub leases: Vec<SavedLease>,
    /// The rest of each recovery, by group: nodes may hold leases that they have not proven yet.
    pub recoveries: Vec<(GroupId, Span)>,
    /// What groups have in store whose rate warms up, unless they are cold.
    pub warmths: Vec<(GroupId, Ru)>,
    /// How long ago that was, by the wall clock.
    pub away: Span,
}

/// One lease in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedLease {
    /// Group.
    pub group: GroupId,
    /// Holder.
    pub client: ClientId,
    /// Newest renewal heard.
    pub seq: u64,
    /// Rate that the node may be using.
    pub rate: Rate,
    /// Depth of its bucket.
    pub cap: Ru,
    /// Lump tokens it may hold.
    pub lump: Ru,
    /// Time left; counted from the restart, which is later than the true end and therefore safe.
    pub remaining: Span,
}

impl Engine {
    /// A group's sums.
    pub fn group_view(&self, id: GroupId) -> Option<GroupView> {
        self.tree.get(id).filter(|group| !group.removed).map(|group| GroupView {
            committed: group.live.committed,
            pool: group.pool.tokens().or_zero(),
            held: group.live.held,
            demand: group.demand(),
            leases: group.live.leases.len(),
        })
    }

    /// The rate that a group and everything below it never exceed.
    pub fn limit(&self, id: GroupId) -> Option<Rate> {
        self.tree.get(id)?.spec.limit()
    }

    /// The leases on a group.
    pub fn leases(&self, id: GroupId) -> impl Iterator<Item = LeaseView> {
        self.tree.get(id).into_iter().flat_map(|group| group.live.leases.iter()).map(|(client, lease)| {
            LeaseView {
                client: *client,
                rate: lease.granted().rate,
                committed: lease.committed(),
                cap: lease.granted().cap,
                lump: lease.tokens().lump,
                demand: lease.reported().demand,
                backlog: lease.reported().backlog,
                debt: lease.reported().debt,
                waiting: lease.reported().waiting,
                unlimited: lease.granted().unlimited,
                expires: lease.ends(),
            }
        })
    }

    /// Returns the state that a clean shutdown saves.
    pub fn snapshot(&mut self, now: Time) -> Snapshot {
        self.expire(now);
        let mut snapshot = Snapshot { warmths: self.saved_warmths(now), ..Snapshot::default() };
        let ids: Vec<GroupId> = self.tree.iter().map(|group| group.id).collect();
        for id in ids {
            let Some(group) = self.tree.get_mut(id) else {
                continue;
            };
            if group.removed {
                // No group is left to restore these to: the ancestors in which they count recover until they have
                // ended.
                let longest = group.live.leases.values().map(|lease| lease.ends().since(now)).max();
                let left = longest.unwrap_or_default().max(group.recovering_until.since(now));
                let kept = self.kept_above(id);
                snapshot.recoveries.extend((left > Span(0)).then_some((kept, left)));
                continue;
            }
            let left = group.recovering_until.since(now);
            snapshot.recoveries.extend((left > Span(0)).then_some((id, left)));
            group.advance(now);
            // A full pool starts full without being saved.
            if group.spec.depth().is_some_and(|depth| group.pool.tokens() < depth) {
                snapshot.pools.push((id, group.pool.tokens()));
            }
            snapshot.leases.extend(
                group.live.leases.iter().filter(|(_, lease)| !lease.granted().unlimited).map(
                    |(client, lease)| SavedLease {
                        group: id,
                        client: *client,
                        seq: lease.seq(),
                        rate: lease.committed(),
                        cap: lease.cap(),
                        lump: lease.tokens().lump,
                        remaining: lease.ends().since(now),
                    },
                ),
            );
        }
        snapshot
    }

    /// The nearest ancestor of a removed group that still exists.
    fn kept_above(&self, id: GroupId) -> GroupId {
        let above = std::iter::successors(self.tree.parent(id), |id| self.tree.parent(*id));
        let mut kept = above.filter(|id| self.tree.get(*id).is_some_and(|group| !group.removed));
        kept.next().unwrap_or(GroupId::ROOT)
    }

    /// Puts a snapshot into an engine that holds the same definitions and no leases.
    pub fn restore(&mut self, now: Time, snapshot: &Snapshot) {
        for (id, tokens) in &snapshot.pools {
            if let Some(group) = self.tree.get_mut(*id) {
                group.pool = Pool::new(now, (*tokens).min(group.room()));
            }
        }
        self.restore_warmths(now, snapshot.away, &snapshot.warmths);
        for saved in &snapshot.leases {
            let Some(chain) = self.tree.chain(saved.group) else {
                continue;
            };
            let held = Held { rate: saved.rate, cap: saved.cap, lump: saved.lump };
            let lease = Lease::held_before(now, saved.seq, &held, now.after(saved.remaining));
            self.replace(&chain, saved.group, saved.client, lease);
            self.tree.excuse(&chain);
            self.advance(&chain, now);
        }
        for (id, left) in &snapshot.recoveries {
            self.recover_group_until(*id, now.after(*left));
        }
        self.assert_invariants();
    }

    /// Settings.
    pub fn config(&self) -> EngineConfig {
        self.config
    }
}
