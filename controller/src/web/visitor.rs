//! Who looks at the console in this request.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::Extensions;
use axum::http::request::Parts;
use subtle::ConstantTimeEq as _;
use tidegate_console::viewer::{Proof, Viewer};
use tokio::sync::watch as flag;
use tokio::time::interval;

use super::Web;
use super::live::EVERY;
use super::session::Session;
use crate::definitions::audit::Actor;
use crate::error::AdminError;
use crate::identity::matrix::{Call, allows};
use crate::identity::{Identity, guard};

/// What the audit log has beside a name that changed something here.
const BY: &str = "console";

/// A viewer, with what calls of rooms need of them.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    pub(super) viewer: Viewer,
    identity: Option<Arc<Identity>>,
    peer: String,
    /// Shows true once what was shown is over; `None` for what lasts as its connection does.
    over: Option<flag::Receiver<bool>>,
    /// That of a login.
    session: Option<Session>,
}

impl Visitor {
    /// Of a request that was admitted.
    pub(super) fn of(web: &Web, extensions: &Extensions) -> Self {
        let peer = extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or_else(|| "unknown address".to_owned(), |ConnectInfo(peer)| peer.to_string());
        let identity = guard::caller(extensions);
        let session = extensions.get::<Session>().cloned();
        let role = identity.as_ref().map(|identity| identity.role);
        let may = |method, path| web.guard.is_none() || allows(role, Call::Rest(method, path));
        let viewer = Viewer {
            label: identity.as_ref().map_or_else(
                || "everybody: authentication is off".to_owned(),
                |identity| match identity.name.as_str() {
                    "" => format!("anonymous ({})", identity.role),
                    name => format!("{name} ({})", identity.role),
                },
            ),
            proof: match (&session, &web.guard) {
                (Some(_), _) => Proof::Login,
                (None, Some(_)) => Proof::Request,
                (None, None) => Proof::Off,
            },
            may_change: may("PATCH", "/v1/groups/{name}"),
            may_see_all: may("GET", "/v1/status"),
            form_key: web.forms.key_of(identity.as_deref()),
        };
        Self { viewer, identity, peer, over: guard::over(extensions), session }
    }

    /// The identity, for calls of rooms; `None` while authentication is off.
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// The author of changes.
    pub(super) fn actor(&self) -> Actor {
        Actor::of(self.identity(), Some(BY), &self.peer)
    }

    /// Whose groups are seen: all, or those of this tenant.
    pub(super) fn tenant(&self) -> Option<&str> {
        crate::identity::Sight::of(self.identity()).tenant()
    }

    /// Waits until it is over who this is: with what was shown, or with the session.
    pub(super) async fn ends(&self, web: &Web) {
        let mut over = self.over.clone();
        let shown = async {
            match &mut over {
                // A sender that is gone is a service that is.
                Some(over) => drop(over.wait_for(|over| *over).await.is_ok()),
                None => pending().await,
            }
        };
        let session = async {
            let Some(session) = &self.session else { return pending().await };
            let mut look = interval(EVERY);
            while web.sessions.goes_on(web.service.clock().now(), session) {
                look.tick().await;
            }
        };
        tokio::select! {
            () = shown => {}
            () = session => {}
        }
    }

    /// Refuses a form that does not come from a page of this viewer.
    pub(super) fn sent(&self, form_key: &str) -> Result<(), AdminError> {
        if bool::from(self.viewer.form_key.as_bytes().ct_eq(form_key.as_bytes())) {
            return Ok(());
        }
        let message =
            "this form is of somebody else who was logged in, or from another site: load the page again"
                .to_owned();
        Err(AdminError::Refused { message })
    }
}

impl FromRequestParts<Arc<Web>> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, web: &Arc<Web>) -> Result<Self, Infallible> {
        Ok(Self::of(web, &parts.extensions))
    }
}
