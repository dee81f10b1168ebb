//! A handle for one user of one tenant that follows the bindings: after a re-binding the next operation is charged
//! to the new group, without anyone asking again.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tidegate_core::units::Ru;

use crate::group::Group;
use crate::hub::Hub;
use crate::permit::Permit;
use crate::refused::Refused;

/// Whatever group pays for a user at the moment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Resolved(Arc<Follower>);

#[derive(Debug)]
struct Follower {
    hub: Arc<Hub>,
    tenant: String,
    user: String,
    found: ArcSwap<Found>,
}

/// The group, and the number of binding changes it reflects.
#[derive(Debug)]
struct Found {
    turn: u64,
    group: Group,
}

impl Resolved {
    /// `turn` is read before `group` is resolved.
    pub(crate) fn new(hub: Arc<Hub>, tenant: &str, user: &str, turn: u64, group: Group) -> Self {
        let found = ArcSwap::from_pointee(Found { turn, group });
        Self(Arc::new(Follower { hub, tenant: tenant.to_owned(), user: user.to_owned(), found }))
    }

    /// The group that pays now. Looks bindings up again only when they have changed.
    pub fn group(&self) -> Group {
        self.found().group.clone()
    }

    fn found(&self) -> Guard<Arc<Found>> {
        let follower = &*self.0;
        let turn = follower.hub.turn();
        let found = follower.found.load();
        if found.turn == turn {
            return found;
        }
        match follower.hub.resolve(&follower.tenant, &follower.user) {
            Ok(cell) => {
                follower.found.store(Arc::new(Found { turn, group: Group { cell } }));
                follower.found.load()
            }
            Err(error) => {
                // Charging the former group is better than charging none.
                if follower.hub.warns() {
                    tracing::warn!(%error, tenant = follower.tenant, user = follower.user, "not re-bound");
                }
                found
            }
        }
    }

    /// [`Group::try_acquire`] on the group that pays now.
    pub fn try_acquire(&self, cost: Ru) -> Result<Permit<'static>, Refused> {
        Ok(self.found().group.try_acquire(cost).map(Permit::into_owned)?)
    }

    /// [`Group::acquire`] on the group that pays now.
    pub async fn acquire(&self, cost: Ru, timeout: Duration) -> Result<Permit<'static>, Refused> {
        self.group().acquire(cost, timeout).await.map(Permit::into_owned)
    }
}
