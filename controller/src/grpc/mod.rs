//! gRPC adapters: decode, one call of the service, encode. No state, no policy.

mod admin;
mod backup;
pub(crate) mod convert;
mod grants;
mod reader;
mod rules;
mod session;
mod statement_shapes;
mod statements;
#[cfg(test)]
pub(crate) mod testing;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response as HttpResponse;
use tidegate_listener::Surface;
use tidegate_proto::v1::admin_server::AdminServer;
use tidegate_proto::v1::grants_server::GrantsServer;
use tidegate_proto::v1::statements_server::StatementsServer;
use tokio::sync::watch as flag;
use tonic::{Code, Extensions, Request, Status};

use crate::definitions::audit::Actor;
use crate::error::{AdminError, ErrorKind};
use crate::identity::Identity;
use crate::identity::guard::{self, Guard};
use crate::identity::matrix::Call;
use crate::leasing::clients::ClientError;
use crate::limits::MAX_MESSAGE_BYTES;
use crate::name::GroupName;
use crate::quantity::cut;
use crate::service::{Service, SessionError};
use crate::spans;

pub(crate) use admin::AdminAdapter;
pub(crate) use grants::GrantsAdapter;
pub(crate) use statement_shapes::row as statement_row;
pub(crate) use statements::StatementsAdapter;

/// Header in which a caller names itself for the audit log.
pub(crate) const ACTOR_HEADER: &str = "x-tidegate-actor";

/// The `Grants` service. Its streams end when `stopped` shows true.
pub(crate) fn grants(service: &Arc<Service>, stopped: flag::Receiver<bool>) -> GrantsServer<GrantsAdapter> {
    let adapter = GrantsAdapter { service: Arc::clone(service), stopping: Stopping::new(stopped) };
    GrantsServer::new(adapter).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// The `Admin` service. Its streams end when `stopped` shows true.
pub(crate) fn admin(service: &Arc<Service>, stopped: flag::Receiver<bool>) -> AdminServer<AdminAdapter> {
    let adapter = AdminAdapter { service: Arc::clone(service), stopping: Stopping::new(stopped) };
    AdminServer::new(adapter).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// The `Statements` service. Its streams end when `stopped` shows true.
pub(crate) fn statements(
    service: &Arc<Service>,
    stopped: flag::Receiver<bool>,
) -> StatementsServer<StatementsAdapter> {
    let adapter = StatementsAdapter { service: Arc::clone(service), stopping: Stopping::new(stopped) };
    StatementsServer::new(adapter).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

/// The routes behind a guard, if there is one.
pub(crate) fn guarded(routes: Router, guard: Option<&Arc<Guard>>) -> Router {
    match guard {
        Some(guard) => routes.layer(from_fn_with_state(Arc::clone(guard), admit)),
        None => routes,
    }
}

async fn admit(State(guard): State<Arc<Guard>>, mut request: HttpRequest, next: Next) -> HttpResponse {
    let path = request.uri().path().to_owned();
    let denied = match guard.admit(Surface::Grpc, Call::Grpc(&path), &mut request) {
        Ok(()) => return next.run(request).await,
        Err(denied) => denied,
    };
    tokio::time::sleep(denied.later).await;
    match denied.is_unknown {
        true => Status::unauthenticated(denied.message).into_http(),
        false => Status::permission_denied(denied.message).into_http(),
    }
}

/// Refuses a name that is not the caller's own.
fn check_own(identity: Option<&Identity>, client: &str) -> Result<(), Status> {
    match identity {
        Some(identity) if !identity.may_be(client) => {
            let (client, whose, name) = (cut(client), identity.label(), &identity.name);
            Err(Status::permission_denied(format!(
                "client id {client:?} does not belong to {whose}: use {name}, or {name}. and a word that is another for \
                 each process"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses a group that the caller was not given, as if it were not there. What is no group's name is refused later.
fn check_given(identity: Option<&Identity>, group: &str) -> Result<(), Status> {
    match (identity, GroupName::parse(group)) {
        (Some(identity), Ok(name)) if !identity.is_given(name.as_str()) => {
            Err(admin_status(AdminError::NoGroup { name }))
        }
        _ => Ok(()),
    }
}

/// Ends streams when the controller shuts down.
#[derive(Clone)]
struct Stopping {
    stopped: flag::Receiver<bool>,
    /// Shows true once the token by which the stream was opened is over.
    over: Option<flag::Receiver<bool>>,
}

impl Stopping {
    fn new(stopped: flag::Receiver<bool>) -> Self {
        Self { stopped, over: None }
    }

    /// The same for the stream of a request with these extensions.
    fn of(&self, extensions: &Extensions) -> Self {
        Self { over: guard::over(extensions), ..self.clone() }
    }

    /// Waits for the shutdown, or for the end of what the caller showed, which is the status.
    async fn requested(&mut self) -> Option<Status> {
        let over = async {
            match &mut self.over {
                // A sender that is gone is a service that is.
                Some(over) => drop(over.wait_for(|over| *over).await.is_ok()),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // An error means that the sender is gone, which is a shutdown, too.
            _ = self.stopped.wait_for(|stopping| *stopping) => None,
            () = over => Some(Status::unauthenticated("the token was revoked or has expired; show another")),
        }
    }
}

/// The author of a request.
fn actor<T>(request: &Request<T>) -> Actor {
    let stated = request.metadata().get(ACTOR_HEADER).and_then(|value| value.to_str().ok());
    let peer = request.remote_addr().map_or_else(|| "unknown address".to_owned(), |peer| peer.to_string());
    Actor::of(guard::of(request.extensions()), stated, &peer)
}

/// The caller of a request, and its message.
fn by<T>(request: Request<T>) -> (Option<Arc<Identity>>, T) {
    (guard::caller(request.extensions()), request.into_inner())
}

/// Runs a call that waits for the disk on a thread that may block.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, AdminError> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(spans::carried(call)).await {
        Ok(result) => result.map_err(admin_status),
        Err(error) => Err(Status::internal(format!("the call did not finish: {error}"))),
    }
}

fn admin_status(error: AdminError) -> Status {
    let code = match error.kind() {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::InUse | ErrorKind::Refused => Code::FailedPrecondition,
        ErrorKind::Revision => Code::Aborted,
        ErrorKind::Full => Code::ResourceExhausted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Internal => Code::Internal,
    };
    Status::new(code, error.to_string())
}

fn session_status(error: &SessionError) -> Status {
    let code = match error {
        SessionError::Client(ClientError::Older { .. } | ClientError::Folded { .. }) => {
            Code::FailedPrecondition
        }
        SessionError::Client(ClientError::TooMany) => Code::ResourceExhausted,
        SessionError::Replaced => Code::Aborted,
        SessionError::Silent(_) | SessionError::Behind { .. } => Code::Unavailable,
    };
    Status::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;

    #[test]
    fn each_kind_of_error_has_the_code_that_callers_act_by() {
        let (text, name) = (String::new, GroupName::default_group());
        let store = StoreError::Failed { operation: "commit", reason: text() };
        for (error, code) in [
            (AdminError::invalid("burst", "is wrong"), Code::InvalidArgument),
            (AdminError::NoGroup { name }, Code::NotFound),
            (AdminError::Refused { message: text() }, Code::FailedPrecondition),
            (AdminError::Full { what: "watches", limit: 7 }, Code::ResourceExhausted),
            (AdminError::Store(store), Code::Unavailable),
            (AdminError::Internal(text()), Code::Internal),
        ] {
            let (said, status) = (error.to_string(), admin_status(error));
            assert_eq!((status.code(), status.message()), (code, said.as_str()));
        }
        // A node tries again later, and does not take itself for one that was replaced.
        assert_eq!(
            session_status(&SessionError::Client(ClientError::TooMany)).code(),
            Code::ResourceExhausted
        );
        assert_eq!(session_status(&SessionError::Replaced).code(), Code::Aborted);
    }
}
