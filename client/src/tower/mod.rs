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
//! Per request: tenant and user are taken from the headers `x-tenant` and `x-user` (or by a closure), which are refused
//! when they are malformed, the group that pays for them admits an estimate, the inner service runs with its CPU metered over every poll, and the response
//! body is metered (bytes, and CPU unless it is known to be short) until it ends. Then the permit is settled. A request
//! that is given up, by the caller or with an error, is charged for what it used until then.
//!
//! Ingress is the request's `content-length` or the exact size of its body; a chunked upload without one is not
//! seen. What the handler read and wrote elsewhere it adds to the [`UsageRecorder`] in the request's extensions.
//!
//! Headers of the response: `x-ru-charge` is the charge for what was metered until the headers were ready plus the
//! body's length when that is known; what a streamed body adds is charged, and not in the header. `x-ru-remaining`
//! is what is left in this node's bucket. Refusals carry `retry-after`; see [`GovernLayer`] for their codes. Answers of
//! groups with a quota carry `ratelimit-policy` and `ratelimit`, see `limit.rs`.

mod account;
mod body;
mod estimate;
mod future;
mod limit;
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
pub use limit::{RATE_LIMIT, RATE_LIMIT_POLICY};
pub use reply::{RETRY_AFTER_MS, X_RU_CHARGE, X_RU_REMAINING};
pub use service::Govern;

use crate::client::Client;
use estimate::Estimator;

/// The tenant and user of a request; both empty for a request without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The tenant.
    pub tenant: String,
    /// The user.
    pub user: String,
}

/// Longest tenant or user in a header, in bytes: as long as the controller takes for a binding, so that no longer one
/// is bound to anything.
const LONGEST_NAME: usize = 64;

impl Subject {
    /// From the headers `x-tenant` and `x-user`. Trust them only behind a proxy that sets them. Without them the
    /// subject is empty, and the group `default` pays.
    ///
    /// `None` where one of them is empty, given twice, longer than 64 bytes, or not in visible ASCII: such a request
    /// must not escape a tenant's limit.
    pub fn from_headers(request: &Parts) -> Option<Self> {
        let header = |name| {
            let mut values = request.headers.get_all(name).iter();
            let Some(value) = values.next() else { return Some(String::new()) };
            let text = value.to_str().ok()?;
            let plain = !text.is_empty() && text.len() <= LONGEST_NAME && values.next().is_none();
            plain.then(|| text.to_owned())
        };
        Some(Self { tenant: header("x-tenant")?, user: header("x-user")? })
    }
}

/// Governs a service.
///
/// A refused request never reaches it: HTTP gets 429 (throttled), 503 (no lease), 422 (never fits), 403 (unknown group)
/// or 400 (malformed headers); gRPC, recognised by the content type `application/grpc`, gets RESOURCE_EXHAUSTED,
/// UNAVAILABLE, OUT_OF_RANGE, PERMISSION_DENIED or INVALID_ARGUMENT.
#[derive(Clone)]
pub struct GovernLayer {
    client: Client,
    policy: Policy,
}

/// Says who a request is for.
type Tell = dyn Fn(&Parts) -> Option<Subject> + Send + Sync;

/// The settings of a layer.
#[derive(Clone)]
struct Policy {
    subject: Arc<Tell>,
    /// The group that pays where there is no subject; without it such requests are refused.
    otherwise: Option<Arc<str>>,
    estimator: Arc<Estimator>,
    wait: Duration,
    /// Callers are told what is left of a quota.
    tells_limits: bool,
}

impl GovernLayer {
    /// Charges the tenant and user that the headers `x-tenant` and `x-user` name, estimates by the average of past
    /// requests, and lets a request wait for a second.
    pub fn new(client: Client) -> Self {
        let policy = Policy {
            subject: Arc::new(Subject::from_headers),
            otherwise: None,
            estimator: Arc::new(Estimator::new(Estimate::default())),
            wait: Duration::from_secs(1),
            tells_limits: true,
        };
        Self { client, policy }
    }

    /// Sets how to find the subject of a request; a request for which it returns `None` is refused.
    #[must_use]
    pub fn subject<S: Into<Option<Subject>>>(
        mut self,
        tell: impl Fn(&Parts) -> S + Send + Sync + 'static,
    ) -> Self {
        self.policy.subject = Arc::new(move |request| tell(request).into());
        self
    }

    /// Charges requests without a valid subject to this group, instead of refusing them.
    #[must_use]
    pub fn otherwise(mut self, group: &str) -> Self {
        self.policy.otherwise = Some(group.into());
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

    /// Whether answers of groups with a quota say by `ratelimit-policy` and `ratelimit` what is left of it. They do
    /// unless this is off: callers who must not know how much others use are not told.
    #[must_use]
    pub fn rate_limit_headers(mut self, on: bool) -> Self {
        self.policy.tells_limits = on;
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
