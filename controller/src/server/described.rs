//! Routes of a controller that are the same for every service: with them the documents that describe its calls.

use axum::Router;
use tonic::service::Routes;
use tonic_health::server::{HealthReporter, health_reporter};
use tonic_reflection::server::Builder;

use super::StartError;
use crate::rest;

/// The routes without a service. To build them takes some milliseconds, which a standby has before it leads.
pub(crate) struct Described {
    /// Health and reflection.
    pub(super) grpc: Routes,
    /// What health checks are told.
    pub(super) health: HealthReporter,
    /// All of the REST listener, but for the console.
    pub(super) rest: Router,
}

impl Described {
    /// Builds them.
    ///
    /// # Errors
    /// The description of the gRPC calls is of no use.
    pub(crate) fn new() -> Result<Self, StartError> {
        let described = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(tidegate_proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let unbuilt = |error: tonic_reflection::server::Error| StartError::Internal(error.to_string());
        let (health, service) = health_reporter();
        let grpc = Routes::new(service)
            .add_service(described().build_v1().map_err(unbuilt)?)
            // The version for which tools from before v1 ask.
            .add_service(described().build_v1alpha().map_err(unbuilt)?);
        Ok(Self { grpc, health, rest: rest::described() })
    }
}
