//! A tower layer that governs an axum or tonic service in three lines.
//!
//! ```no_run
//! # async fn example(routes: axum::Router) -> Result<axum::Router, Box<dyn std::error::Error>> {
//! use tidegate_client::{Client, tower::GovernLayer};
//!
//! let client = Client::connect(["http://127.0.0.1:7420"], "web-1").await?;
//! let routes = routes.layer(GovernLayer::new(client));
//! # Ok(routes)
//! # }
//! ```
//!
//! Per request: tenant and user are taken from the headers `x-tenant` and `x-user` (or by a closure), the group that
//! pays for them admits an estimate, the inner service runs with its CPU metered over every poll, and the response
//! body is metered (bytes, and CPU unless it is known to be short) until it ends. Then the permit is settled. A request
//! that is given up, by the caller or with an error, is charged for what it used until then.
//!
//! Ingress is the request's `content-length` or the exact size of its body; a chunked upload without one is not
//! seen. What the handler read and wrote elsewhere it adds to the [`UsageRecorder`] in the request's extensions.
//!
//! Headers of the response: `x-ru-charge` is the charge for what was metered until the headers were ready plus the
//! body's length when that is known; what a streamed body adds is charged, and not in the header. `x-ru-remaining`
//! is what is left in this node's bucket. Refusals carry `retry-after`; see [`GovernLayer`] for their codes.

mod account;
mod body;
mod estimate;
mod future;
mod reply;
mod service;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tower::Layer;

pub use crate::meter::UsageRecorder;
pub use body::GovernedBody;
pub use estimate::Estimate;
pub use future::Governed;
pub use reply::{RETRY_AFTER_MS, X_RU_CHARGE, X_RU_REMAINING};
pub use service::Govern;

use crate::client::Client;
use estimate::Estimator;

/// Who a request is for; empty is nobody in particular.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The tenant.
    pub tenant: String,
    /// The user.
    pub user: String,
}

impl Subject {
    /// From the headers `x-tenant` and `x-user`. Trust them only behind a proxy that sets them.
    pub fn from_headers(request: &Parts) -> Self {
        let header = |name| {
            let value = request.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        Self { tenant: header("x-tenant"), user: header("x-user") }
    }
}

/// Governs a service.
///
/// A refused request never reaches it: HTTP gets 429 (throttled), 503 (no lease), 422 (never fits) or 403 (unknown
/// group); gRPC, told by the content type `application/grpc`, gets RESOURCE_EXHAUSTED, UNAVAILABLE, OUT_OF_RANGE or
/// PERMISSION_DENIED.
#[derive(Clone)]
pub struct GovernLayer {
    client: Client,
    policy: Policy,
}

/// What a layer is told to do.
#[derive(Clone)]
struct Policy {
    subject: Arc<dyn Fn(&Parts) -> Subject + Send + Sync>,
    estimator: Arc<Estimator>,
    wait: Duration,
}

impl GovernLayer {
    /// Charges whoever the headers `x-tenant` and `x-user` name, estimates by the average of past requests, and lets
    /// a request wait for a second.
    pub fn new(client: Client) -> Self {
        let policy = Policy {
            subject: Arc::new(Subject::from_headers),
            estimator: Arc::new(Estimator::new(Estimate::default())),
            wait: Duration::from_secs(1),
        };
        Self { client, policy }
    }

    /// Tells who a request is for.
    #[must_use]
    pub fn subject(mut self, tell: impl Fn(&Parts) -> Subject + Send + Sync + 'static) -> Self {
        self.policy.subject = Arc::new(tell);
        self
    }

    /// How the cost of a request is estimated.
    #[must_use]
    pub fn estimate(mut self, estimate: Estimate) -> Self {
        self.policy.estimator = Arc::new(Estimator::new(estimate));
        self
    }

    /// How long a request may wait for admission; zero refuses at once.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.policy.wait = wait;
        self
    }
}

impl<S> Layer<S> for GovernLayer {
    type Service = Govern<S>;

    fn layer(&self, inner: S) -> Govern<S> {
        Govern::new(inner, self.client.clone(), self.policy.clone())
    }
}

impl fmt::Debug for GovernLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GovernLayer").field("wait", &self.policy.wait).finish_non_exhaustive()
    }
}
