//! The governed service: admit, run, meter, settle.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tidegate_core::units::Ru;
use tower::Service;

use super::Policy;
use super::account::Account;
use super::body::GovernedBody;
use super::future::{Governed, Running};
use super::limit;
use super::reply::{self, Denied};
use crate::client::Client;
use crate::group::Group;
use crate::meter::UsageRecorder;
use crate::permit::Permit;
use crate::refused::Refused;

/// A service behind a [`super::GovernLayer`].
#[derive(Clone)]
pub struct Govern<S> {
    inner: S,
    client: Client,
    policy: Policy,
}

impl<S> Govern<S> {
    pub(super) fn new(inner: S, client: Client, policy: Policy) -> Self {
        Self { inner, client, policy }
    }
}

impl<S: fmt::Debug> fmt::Debug for Govern<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Govern").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, Q, R> Service<Request<Q>> for Govern<S>
where
    S: Service<Request<Q>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    Q: Body + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<GovernedBody<R>>;
    type Error = S::Error;
    type Future = Governed<S::Future, R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let group = match find_group(&self.client, &self.policy, &parts) {
            Ok(group) => group,
            Err(reason) => return Governed::denied(reply::denied(&reason, None, is_grpc(&parts))),
        };
        let cost = self.policy.estimator.cost(&parts);
        let group = match group.take_owned(cost) {
            Ok(permit) => {
                let request = Request::from_parts(parts, body);
                return Governed::running(start(&mut self.inner, request, &self.policy, permit));
            }
            Err(group) => group,
        };
        // The service that was polled ready serves; its clone waits for the next request.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let policy = self.policy.clone();
        Governed::waiting(Box::pin(async move {
            match admit(&policy, &group, cost).await {
                Ok(permit) => {
                    let permit = permit.into_owned();
                    start(&mut inner, Request::from_parts(parts, body), &policy, permit).await
                }
                Err(refused) => {
                    let reason = Denied::Refused(refused);
                    let mut response = reply::denied(&reason, Some(&group), is_grpc(&parts));
                    if let Some(quota) = group.quota_left().filter(|_| policy.tells_limits) {
                        limit::write(response.headers_mut(), group.name(), &quota, reason.retry_after());
                    }
                    Ok(response)
                }
            }
        }))
    }
}

fn find_group(client: &Client, policy: &Policy, parts: &Parts) -> Result<Group, Denied> {
    let found = match ((policy.subject)(parts), &policy.otherwise) {
        (Some(subject), _) => client.resolve_now(&subject.tenant, &subject.user),
        (None, Some(group)) => client.group_now(group),
        (None, None) => return Err(Denied::NoSubject),
    };
    found.map_err(Denied::NoGroup)
}

async fn admit<'g>(policy: &Policy, group: &'g Group, cost: Ru) -> Result<Permit<'g>, Refused> {
    if policy.estimator.is_guess() {
        // A few dear requests must not make the average one that can never run.
        group.acquire_estimated(cost, policy.wait).await
    } else {
        group.acquire(cost, policy.wait).await
    }
}

/// Hands the admitted request to the service. The call itself is metered, too.
fn start<S, Q>(
    inner: &mut S,
    mut request: Request<Q>,
    policy: &Policy,
    permit: Permit<'static>,
) -> Running<S::Future>
where
    S: Service<Request<Q>>,
    Q: Body,
{
    let recorder = UsageRecorder::default();
    let received = received(&request);
    request.extensions_mut().insert(recorder.clone());
    let mut account = Account::open(permit, recorder, policy, received);
    let running = account.metered(|| inner.call(request));
    Running::new(running, account)
}

/// Bytes of the request's body, as far as known beforehand.
fn received<Q: Body>(request: &Request<Q>) -> u64 {
    let declared = || request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    request.body().size_hint().exact().or_else(declared).unwrap_or(0)
}

fn is_grpc(parts: &Parts) -> bool {
    parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}
