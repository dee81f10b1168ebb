//! Before the handlers: who is at the other end of a connection, and whether a call of theirs goes on.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::Extensions;
use tidegate_listener::{Greeting, Surface, Tally as _};
use tidegate_tls::Certificate;

use super::matrix::{Call, Who, allows};
use super::{Identity, Role, Rules, Unproven};
use crate::config::Access;
use crate::metrics::Metrics;

/// Looks at every call of both listeners while authentication is required.
pub struct Guard {
    rules: Rules,
    anonymous: Option<Role>,
    metrics: Arc<Metrics>,
}

/// Who is at the other end of a connection, found out once.
#[derive(Clone, Debug)]
struct Caller {
    identity: Result<Arc<Identity>, Unproven>,
    peer: SocketAddr,
}

/// Why a call does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The caller has not shown who it is; otherwise it is known, and its role is not enough.
    pub is_unknown: bool,
    /// What is missing, and what to do.
    pub message: String,
}

impl Guard {
    /// A guard by these settings, which counts here.
    pub fn new(access: Access, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { rules: access.rules, anonymous: access.anonymous_role, metrics })
    }

    /// Finds out who is at the other end of each connection.
    pub fn greeting(self: &Arc<Self>) -> Arc<Greeting> {
        let guard = Arc::clone(self);
        Arc::new(move |shown, peer| guard.meet(shown, peer))
    }

    fn meet(&self, shown: Option<&Certificate>, peer: SocketAddr) -> Extensions {
        let identity = match (shown, self.anonymous) {
            (Some(certificate), _) => self.rules.identify(&certificate.names),
            (None, Some(role)) => Ok(Identity::anonymous(role)),
            (None, None) => Err(Unproven::NoCertificate),
        };
        if let (Err(unproven), Some(certificate)) = (&identity, shown) {
            tracing::warn!(%peer, subject = %crate::quantity::cut(&certificate.subject), %unproven, "unknown caller");
        }
        let mut extensions = Extensions::new();
        extensions.insert(Caller { identity: identity.map(Arc::new), peer });
        extensions
    }

    /// Lets a call go on, with the identity of its caller for the handlers.
    ///
    /// # Errors
    /// It is not for this caller, or for anybody.
    pub fn admit(&self, surface: Surface, call: Call<'_>, extensions: &mut Extensions) -> Result<(), Denied> {
        let caller = extensions.remove::<Caller>();
        let identity = caller.as_ref().map(|caller| caller.identity.clone());
        let identity = identity.unwrap_or(Err(Unproven::NoCertificate));
        let role = identity.as_ref().ok().map(|identity| identity.role);
        if allows(role, call) {
            if let Ok(identity) = identity {
                extensions.insert(identity);
            }
            return Ok(());
        }
        let denied = denied(&identity, call);
        let reason = if denied.is_unknown { "unauthenticated" } else { "denied" };
        self.metrics.turned_away(surface, reason);
        let peer = caller.map(|caller| caller.peer);
        tracing::info!(surface = surface.name(), ?peer, message = %denied.message, "a call was refused");
        Err(denied)
    }
}

/// What to tell a caller of a call that is not for it.
fn denied(identity: &Result<Arc<Identity>, Unproven>, call: Call<'_>) -> Denied {
    let needed = match call.who() {
        Some(Who::Roles(roles)) => {
            let names: Vec<&str> = roles.iter().map(|role| role.name()).collect();
            format!("it needs the role {}", names.join(" or "))
        }
        _ => "no role may make it: the controller does not know this call".to_owned(),
    };
    let call = call.label();
    match identity {
        Err(unproven) => Denied { is_unknown: true, message: format!("{call}: {needed}; {unproven}") },
        Ok(identity) => Denied {
            is_unknown: false,
            message: format!("{call}: {needed}, and {} has the role {}", identity.label(), identity.role),
        },
    }
}

/// The identity of a request's caller; `None` while authentication is off.
pub fn of(extensions: &Extensions) -> Option<&Identity> {
    extensions.get::<Arc<Identity>>().map(|identity| &**identity)
}

/// The groups that the caller was given.
pub fn scope(extensions: &Extensions) -> super::Scope {
    of(extensions)?.scope.clone()
}
