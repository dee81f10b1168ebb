//! Groups, bindings and cost tables, and how they change.

pub(crate) mod apply;
pub mod audit;
pub(crate) mod binding;
pub mod bindings;
pub mod catalog;
pub(crate) mod change;
pub mod cost_tables;
mod costing;
pub mod definition;
pub(crate) mod deletion;
pub(crate) mod events;
pub mod group_fields;
pub(crate) mod groups;
pub mod limited;

use crate::service::Service;

/// What adapters call.
#[derive(Clone, Copy)]
pub struct DefinitionCalls<'s> {
    service: &'s Service,
}

impl<'s> DefinitionCalls<'s> {
    pub(crate) fn of(service: &'s Service) -> Self {
        Self { service }
    }
}
