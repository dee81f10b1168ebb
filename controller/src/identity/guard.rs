//! Before the handlers: who is at the other end of a connection, and whether a call of theirs goes on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{Extensions, HeaderValue, Request};
use tidegate_listener::{Failures, Greeting, Surface, Tally as _};
use tidegate_tls::Certificate;
use tokio::sync::watch as flag;

use super::matrix::{Call, Who, allows};
use super::provider::{Providers, is_jwt};
use super::tokens::Shown;
use super::{Identity, Kind, Role, Rules, Unproven};
use crate::config::Access;
use crate::service::Service;

/// Looks at every call of both listeners while authentication is required.
pub struct Guard {
    rules: Rules,
    anonymous: Option<Role>,
    providers: Arc<Providers>,
    failures: Arc<Failures>,
    service: Arc<Service>,
}

/// Shows true once what the caller showed with a request is over.
#[derive(Clone)]
struct Over(flag::Receiver<bool>);

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
    /// How much later the caller should hear of it.
    pub later: Duration,
}

impl Guard {
    /// A guard by these settings and by the tokens of this service, which notes who keeps failing.
    pub fn new(access: Access, service: Arc<Service>, failures: Arc<Failures>) -> Arc<Self> {
        let providers = Providers::new(access.providers, service.clock().clone());
        Arc::new(Self { rules: access.rules, anonymous: access.anonymous_role, providers, failures, service })
    }

    /// The providers of identity, with their keys.
    pub(crate) fn providers(&self) -> &Arc<Providers> {
        &self.providers
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

    /// Lets a call go on, with the identity of its caller for the handlers: of the token that it shows, or else of the
    /// connection.
    ///
    /// # Errors
    /// It is not for this caller, or for anybody.
    pub fn admit<B>(&self, surface: Surface, call: Call<'_>, request: &mut Request<B>) -> Result<(), Denied> {
        let shown = request.headers().get(AUTHORIZATION).map(|value| self.shown(value));
        let extensions = request.extensions_mut();
        // A session of the console stands for the token that opened it. No peer can set this.
        let session = extensions.remove::<Arc<Shown>>().map(|session| Ok((*session).clone()));
        let shown = session.or(shown);
        let caller = extensions.remove::<Caller>();
        let peer = caller.as_ref().map(|caller| caller.peer);
        let has_failed = matches!(shown, Some(Err(_)));
        let identity = match shown {
            Some(Ok(Shown { identity, over })) => {
                extensions.insert(Over(over));
                Ok(Arc::new(identity))
            }
            Some(Err(unproven)) => Err(unproven),
            None => caller.map_or(Err(Unproven::NoCertificate), |caller| caller.identity),
        };
        if let (Some(peer), Ok(identity)) = (peer, &identity)
            && identity.kind != Kind::Anonymous
        {
            self.failures.proved(peer.ip());
        }
        let role = identity.as_ref().ok().map(|identity| identity.role);
        // What anyone may call answers at once, and is still no way to try tokens by.
        let later = if has_failed { self.failed(surface, peer, &identity) } else { Duration::ZERO };
        if allows(role, call) {
            if let Ok(identity) = identity {
                extensions.insert(identity);
            }
            return Ok(());
        }
        let denied = Denied { later, ..denied(&identity, call) };
        let reason = if denied.is_unknown { "unauthenticated" } else { "denied" };
        self.service.metrics.turned_away(surface, reason);
        if !has_failed {
            tracing::info!(surface = surface.name(), ?peer, message = %denied.message, "a call was refused");
        }
        Err(denied)
    }

    /// Counts a token or a JWT that proves nothing; returns how much later its caller should hear of it.
    fn failed(
        &self,
        surface: Surface,
        peer: Option<SocketAddr>,
        identity: &Result<Arc<Identity>, Unproven>,
    ) -> Duration {
        self.service.metrics.turned_away(surface, "bad_token");
        let Some(peer) = peer else { return Duration::ZERO };
        let later = self.failures.failed(peer.ip());
        if let (Some(left_out), Err(reason)) = (self.failures.say(), identity) {
            tracing::warn!(surface = surface.name(), %peer, %reason, left_out, "an authentication failed");
        }
        later
    }

    /// Who shows a token or a JWT in the login of the console.
    ///
    /// # Errors
    /// It proves nothing, which counts against the address.
    pub(crate) fn log_in(&self, text: &str, peer: SocketAddr) -> Result<Shown, Denied> {
        match self.proves(text) {
            Ok(shown) => {
                self.failures.proved(peer.ip());
                Ok(shown)
            }
            Err(unproven) => {
                let message = unproven.to_string();
                let later = self.failed(Surface::Rest, Some(peer), &Err(unproven));
                Err(Denied { is_unknown: true, message, later })
            }
        }
    }

    /// Who shows a token or a JWT in this header.
    fn shown(&self, header: &HeaderValue) -> Result<Shown, Unproven> {
        let parts = header.to_str().ok().and_then(|text| text.split_once(' '));
        let (_, text) =
            parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).ok_or(Unproven::Token)?;
        self.proves(text.trim())
    }

    /// Who shows this token or JWT.
    fn proves(&self, text: &str) -> Result<Shown, Unproven> {
        if self.providers.is_empty() || !is_jwt(text) {
            return self.service.tokens().identify(text).ok_or(Unproven::Token);
        }
        Ok(self.providers.identify(text)?)
    }
}

/// The answer to a caller whose call is refused.
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
        Err(unproven) => Denied {
            is_unknown: true,
            message: format!("{call}: {needed}; {unproven}"),
            later: Duration::ZERO,
        },
        Ok(identity) => Denied {
            is_unknown: false,
            later: Duration::ZERO,
            message: format!("{call}: {needed}, and {} has the role {}", identity.label(), identity.role),
        },
    }
}

/// The identity of a request's caller; `None` while authentication is off.
pub fn of(extensions: &Extensions) -> Option<&Identity> {
    extensions.get::<Arc<Identity>>().map(|identity| &**identity)
}

/// The same, to be kept.
pub(crate) fn caller(extensions: &Extensions) -> Option<Arc<Identity>> {
    extensions.get::<Arc<Identity>>().cloned()
}

/// Shows true once what the caller showed with the request is over; `None` for what lasts as its connection does.
pub(crate) fn over(extensions: &Extensions) -> Option<flag::Receiver<bool>> {
    extensions.get::<Over>().map(|over| over.0.clone())
}

#[cfg(test)]
mod tests;
