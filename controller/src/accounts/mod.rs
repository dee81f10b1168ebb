//! Consumption: counting it exactly once, storing, folding and reading it.

pub(crate) mod brief;
mod counting;
pub(crate) mod flush;
pub(crate) mod fold;
pub mod history;
pub(crate) mod kept;
pub mod live;
pub(crate) mod packing;
pub(crate) mod proposed;
pub(crate) mod prune;
pub(crate) mod recent;
#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod replays_tests;
pub(crate) mod usage;
pub mod waited;
pub mod what_if;

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::ledger::Ledger;
use tidegate_core::units::Time;

use crate::identity::{Identity, Sight};
use crate::metrics::Charges;
use crate::service::Service;
use history::History;
use live::Live;
use recent::Recent;
use waited::RecentWaits;

/// Consumption of all groups and nodes.
pub(crate) struct Accounts {
    ledger: Ledger,
    /// Groups that were charged at least once.
    charged: BTreeSet<GroupId>,
    /// Rates and counters of groups that were charged lately.
    live: BTreeMap<GroupId, (Live, Charges)>,
    live_clients: BTreeMap<(GroupId, ClientId), Live>,
    history: History,
    recent: Recent,
    waits: RecentWaits,
    /// When a claim that is counted apart was last logged.
    said_apart: Option<Time>,
}

/// Keeping the store up to what was counted, and small: what a controller does by itself.
#[derive(Clone, Copy)]
pub struct Upkeep<'s> {
    service: &'s Service,
}

impl<'s> Upkeep<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service }
    }
}

/// The calls of adapters.
#[derive(Clone, Copy)]
pub struct AccountCalls<'s> {
    service: &'s Service,
    sight: Sight<'s>,
}

impl<'s> AccountCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service, sight: Sight::default() }
    }

    /// The same, with answers of what this caller sees.
    pub fn seen_by(self, identity: Option<&'s Identity>) -> Self {
        Self { sight: Sight::of(identity), ..self }
    }
}
