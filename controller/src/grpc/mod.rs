//! gRPC adapters: decode, one call of the service, encode. No state, no policy.

pub(crate) mod admin;
pub(crate) mod convert;
pub(crate) mod grants;
mod session;
mod shapes;
mod watch;

use tokio::sync::watch as flag;
use tonic::{Code, Request, Status};

use crate::audit::Actor;
use crate::clients::ClientError;
use crate::error::AdminError;

/// Header in which a caller states who it is, for the audit log.
pub(crate) const ACTOR_HEADER: &str = "x-tidegate-actor";

/// Tells streams that the controller shuts down.
#[derive(Clone)]
pub(crate) struct Stopping(pub(crate) flag::Receiver<bool>);

impl Stopping {
    /// Waits for the shutdown.
    async fn requested(&mut self) {
        // An error means that the sender is gone, which comes to the same.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}

/// Who asks.
fn actor<T>(request: &Request<T>) -> Actor {
    let stated = request.metadata().get(ACTOR_HEADER).and_then(|value| value.to_str().ok());
    let peer = request.remote_addr().map_or_else(|| "unknown address".to_owned(), |peer| peer.to_string());
    Actor::new(stated, &peer)
}

/// Runs a call that waits for the disk where waiting is allowed.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result.map_err(admin_status),
        Err(error) => Err(Status::internal(format!("the call did not finish: {error}"))),
    }
}

fn admin_status(error: AdminError) -> Status {
    let code = match error {
        AdminError::Invalid { .. } => Code::InvalidArgument,
        AdminError::NoGroup { .. } | AdminError::NotFound { .. } => Code::NotFound,
        AdminError::AlreadyExists { .. } => Code::AlreadyExists,
        AdminError::InUse { .. } | AdminError::Refused { .. } => Code::FailedPrecondition,
        AdminError::Revision { .. } => Code::Aborted,
        AdminError::Full { .. } => Code::ResourceExhausted,
        AdminError::Store(_) => Code::Unavailable,
        AdminError::Internal(_) => Code::Internal,
    };
    Status::new(code, error.to_string())
}

fn client_status(error: &ClientError) -> Status {
    match error {
        ClientError::Older { .. } | ClientError::Folded { .. } => {
            Status::failed_precondition(error.to_string())
        }
        ClientError::TooMany => Status::resource_exhausted(error.to_string()),
    }
}
