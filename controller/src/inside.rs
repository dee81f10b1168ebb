//! The listeners' routes without their sockets, for tests that send requests of any shape. Not for users.

use std::sync::Arc;

use axum::Router;
use tokio::sync::watch;
use tonic::service::Routes;

use crate::service::Service;
use crate::web::{self, Web};
use crate::{grpc, rest};

/// The routes of the REST listener.
pub fn rest(service: Arc<Service>) -> Router {
    rest::router(rest::described(), service)
}

/// The routes of the console, for callers of whom nothing is asked. Live pages end when `stopped` shows true.
pub fn console(service: Arc<Service>, stopped: watch::Receiver<bool>) -> Router {
    web::router(&Web::new(service, None, false, stopped))
}

/// The routes of the gRPC listener, without health and reflection. Streams end when `stopped` shows true.
pub fn grpc(service: &Arc<Service>, stopped: watch::Receiver<bool>) -> Router {
    Routes::new(grpc::grants(service, stopped.clone()))
        .add_service(grpc::admin(service, stopped.clone()))
        .add_service(grpc::statements(service, stopped))
        .into_axum_router()
}
