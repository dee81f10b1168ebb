//! What was consumed: counted exactly once, stored, folded, shown.

mod flush;
pub(crate) mod fold;
pub mod history;
pub mod live;
pub(crate) mod prune;
pub(crate) mod usage;

use crate::service::Service;

/// What adapters call.
#[derive(Clone, Copy)]
pub struct AccountCalls<'s> {
    service: &'s Service,
}

impl<'s> AccountCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service }
    }
}
