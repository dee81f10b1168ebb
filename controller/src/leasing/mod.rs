//! Leases, and the nodes that hold them.

pub mod clients;
mod expiry;
pub(crate) mod fence;
pub(crate) mod kept;
pub(crate) mod lag;
pub(crate) mod lineage;
pub(crate) mod longest;
pub mod proof;
pub(crate) mod renewal;
pub(crate) mod rivals;
pub(crate) mod sessions;
pub mod standing;
pub(crate) mod succession;
pub(crate) mod view;

use crate::service::Service;

/// What adapters call.
#[derive(Clone, Copy)]
pub struct LeasingCalls<'s> {
    service: &'s Service,
}

impl<'s> LeasingCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service }
    }
}
