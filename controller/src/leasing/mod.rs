//! Leases, and the nodes that hold them.

pub mod clients;
mod expiry;
pub(crate) mod fence;
pub(crate) mod kept;
pub(crate) mod lag;
pub(crate) mod lineage;
pub(crate) mod load;
pub(crate) mod longest;
mod older;
mod owner;
pub mod proof;
pub(crate) mod quotas;
pub(crate) mod renewal;
pub(crate) mod rivals;
pub(crate) mod sessions;
pub mod standing;
pub(crate) mod succession;
#[cfg(test)]
mod tests;
pub(crate) mod view;
pub(crate) mod waits;

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::engine::Engine;
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::Span;

use crate::identity::{Identity, Sight};
use crate::service::Service;
use clients::Clients;
use fence::Fence;
use lag::Shed;
use longest::Longest;
use proof::Prover;
use quotas::Quotas;
use sessions::Slot;
use succession::Lead;

/// Nodes, their leases, and whether this controller may speak to them.
pub(crate) struct Leasing {
    engine: Engine,
    quotas: Quotas,
    clients: Clients,
    sessions: BTreeMap<ClientId, Slot>,
    next_session: u64,
    /// Newest renewal of each client with reports that are counted and not yet on disk, by stream: numbers of an older
    /// stream mean nothing in a newer one.
    unstored: BTreeMap<ClientId, (u64, u64)>,
    /// Groups that have, or lately had, leases, so that reading does not walk the idle ones.
    active: BTreeSet<GroupId>,
    /// Longest lease that may be out, whatever the definitions say now: of all groups, and of each.
    longest_ttl: Span,
    longest: Longest,
    lead: Lead,
    /// Signs and checks what nodes keep.
    prover: Prover,
    fence: Fence,
    shed: Shed,
    /// Renewals of nodes that do not count what a quota counts.
    uncounted: Shed,
}

/// The calls of adapters.
#[derive(Clone, Copy)]
pub struct LeasingCalls<'s> {
    service: &'s Service,
    sight: Sight<'s>,
}

impl<'s> LeasingCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service, sight: Sight::default() }
    }

    /// The same, with answers of what this caller sees.
    pub fn seen_by(self, identity: Option<&'s Identity>) -> Self {
        Self { sight: Sight::of(identity), ..self }
    }
}
